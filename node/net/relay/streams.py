"""The relay's streams: opened where there is something to say, read within bounds.

    send ─▶ Outbox ─▶ our stream ─▶ what comes back           (one for each peer and protocol)
    a peer's stream ─▶ frames, and receipts ─▶ Outbox ─▶ back     (a few for each peer)

The peers are connected as any other: who is banned, or one too many, cannot speak here either.
"""

import functools
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamEOF

from bruit.node.net.dialer import Dialer
from bruit.node.net.framing import FrameSplitter
from bruit.node.net.host import NETWORK_ERRORS, beneath, parse_address
from bruit.node.net.link import FAREWELL, Traffic
from bruit.node.net.relay.blame import Blame
from bruit.node.net.relay.outbox import Outbox
from bruit.node.net.relay.protocols import MIN_FRAME, RelayProtocol
from bruit.node.net.relay.turns import Turns
from bruit.node.net.streams import READ_SIZE
from bruit.node.relay.directory import peer_of
from bruit.node.relay.wire import ACKNOWLEDGEMENT_SIZE
from bruit.plugins.marketplace import Member
from bruit.topics.errors import ConfigError, RemoteError
from bruit.topics.keys import PeerId

QUEUED = 33_554_432  # bytes for one peer and protocol; guess: a largest block whole
QUEUED_RECEIPTS = 65_536  # bytes of acknowledgements for one peer; guess: several blocks' chunks
REACH_TIMEOUT = 5.0  # seconds to dial a member and open a stream; guess: of no use later
WRITE_TIMEOUT = 10.0  # seconds that a peer may take over a write; guess: TOLERABLE_LATENCY
WRITERS = 4  # submissions written at a time; guess: TCP starts slowly, one fills no uplink
TURN = 0.25  # seconds after which a slow one does not count among them; guess: a round trip
IDLE = 60.0  # seconds with nothing to write, after which our stream is closed; guess
PAUSE = 1.0  # seconds before a peer that could not be reached, or kept, is tried again; guess
INBOUND = 2  # streams that a peer may have open for a protocol: one, and its replacement

_peer_of = functools.lru_cache(4096)(peer_of)  # base58 takes longer than to queue a chunk

_Key = tuple[PeerId, RelayProtocol]


class _Inbound:
    """A stream that a peer opened, and what goes back on it."""

    def __init__(self, stream: INetStream, traffic: Traffic) -> None:
        self.stream = stream
        self.receipts = Outbox(QUEUED_RECEIPTS, traffic)


class RelayStreams:
    """All of one host. The callbacks must not block.

    ``admit`` says whether a peer may speak with us at all; ``room`` waits while too much of what
    came is under way; ``on_frame`` gets what peers say, ``on_receipt`` what comes back on a stream
    of submissions, ``on_lost`` who may not have got what was queued for it, and ``on_fault`` whom
    something is held against, and what.
    """

    def __init__(
        self,
        host: IHost,
        dialer: Dialer,
        admit: Callable[[ID], bool],
        room: Callable[[], Awaitable[None]],
        max_frame: int,
        on_frame: Callable[[PeerId, RelayProtocol, bytes], None],
        on_receipt: Callable[[PeerId, bytes], None],
        on_lost: Callable[[PeerId, RelayProtocol], None],
        on_fault: Callable[[PeerId, str], None],
    ) -> None:
        self._host = host
        self._dialer = dialer
        self._admit = admit
        self._room = room
        self._max_frame = max_frame
        self._on_frame = on_frame
        self._on_receipt = on_receipt
        self._on_lost = on_lost
        self._on_fault = on_fault
        self._nursery: trio.Nursery | None = None
        self._outbound: dict[_Key, Outbox] = {}
        self._serving = 0  # tasks that write, and then close, our streams
        self._quiet = trio.lowlevel.ParkingLot()  # who waits for them to end
        self._inbound: dict[_Key, dict[_Inbound, None]] = {}  # the oldest first
        self._latest: dict[PeerId, _Inbound] = {}  # whose frames came last: receipts go there
        self._pauses: dict[PeerId, float] = {}  # until when it is not tried again, trio's clock
        self._turns = Turns(WRITERS, TURN)  # of submissions
        self._blame = Blame()
        self.traffic = Traffic()
        self.faults: dict[str, int] = {}  # why streams ended before their time, counted

    async def run(
        self,
        serve: Sequence[RelayProtocol],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until cancelled. ``serve``: the protocols on which peers may open streams."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for protocol in serve:
                handler = partial(self._listen, protocol)
                self._host.set_stream_handler(TProtocol(protocol.value), handler)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
                with trio.CancelScope(shield=True):
                    for inbounds in list(self._inbound.values()):
                        for inbound in list(inbounds):
                            await self._reset(inbound.stream)

    async def stop(self, grace: float) -> None:
        """Let peers read what is queued, for at most ``grace`` seconds."""
        for outbox in self._outbound.values():
            outbox.close()
        with trio.move_on_after(grace):
            while self._serving:
                await self._quiet.park()

    # Our streams

    def send(
        self, protocol: RelayProtocol, member: Member, frame: bytes, until: float = math.inf
    ) -> bool:
        """Queue a frame for a member, who may have it ``until`` then, on trio's clock.

        False where it cannot be queued: there is no room, or the member is out of reach.
        """
        peer = _peer_of(member)
        outbox = self._outbound.get((peer, protocol))
        if outbox is None:
            if self._nursery is None or trio.current_time() < self._pauses.get(peer, 0.0):
                return False
            turns = self._turns if protocol is RelayProtocol.SUBMIT else None
            outbox = self._outbound[peer, protocol] = Outbox(QUEUED, self.traffic, turns)
            self._nursery.start_soon(self._serve, (peer, protocol), member.addresses, outbox)
        return outbox.push(frame, until)

    async def _serve(self, key: _Key, addresses: Sequence[str], outbox: Outbox) -> None:
        well = False
        steady = math.inf  # from when on a failure is none of reaching the peer
        self._serving += 1
        try:
            stream = await self._reach(*key, addresses)
            if stream is not None:
                steady = trio.current_time() + PAUSE
                try:
                    well = await self._converse(key, stream, outbox)
                finally:
                    with trio.CancelScope(shield=True):
                        await self._reset(stream)
        finally:
            self._leave(key, outbox)
            self._serving -= 1
            self._quiet.unpark_all()
        if not well:
            if trio.current_time() < steady:
                self._pause(key[0])
            self._on_lost(*key)

    async def _reach(
        self, peer: PeerId, protocol: RelayProtocol, addresses: Sequence[str]
    ) -> INetStream | None:
        try:
            dialable = [parse_address(address, "marketplace")[1] for address in addresses]
            with trio.fail_after(REACH_TIMEOUT):
                if not self._dialer.connected(peer):
                    await self._dialer.dial(peer, dialable)
                return await self._host.new_stream(ID(peer), [TProtocol(protocol.value)])
        except (*NETWORK_ERRORS, trio.TooSlowError, ConfigError):
            self._count("member not reached")
            return None

    async def _converse(self, key: _Key, stream: INetStream, outbox: Outbox) -> bool:
        """Write until there is nothing more to say. False where the peer, or the way, failed."""
        well, ended = False, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear, key, stream, ended, nursery.cancel_scope)
            try:
                await outbox.write(stream, idle=IDLE, patience=WRITE_TIMEOUT)
                well = True
                self._leave(key, outbox)  # before anything waits: the next frame needs another
                await stream.close()
                with trio.move_on_after(FAREWELL):
                    await ended.wait()
            except trio.TooSlowError:
                self._count("slow member")
            except NETWORK_ERRORS:
                self._count("write failed")
            nursery.cancel_scope.cancel()
        return well

    async def _hear(
        self, key: _Key, stream: INetStream, ended: trio.Event, both: trio.CancelScope
    ) -> None:
        """Take receipts, until the other end breaks off. It says nothing where we pass on."""
        peer, protocol = key
        splitter = FrameSplitter(ACKNOWLEDGEMENT_SIZE)
        wire = beneath(stream)
        try:
            while data := await wire.read(READ_SIZE):
                if protocol is not RelayProtocol.SUBMIT:
                    raise RemoteError("an answer where there is none")
                self.traffic.bytes_in += len(data)
                for frame in splitter.feed(data):
                    self.traffic.frames_in += 1
                    self._on_receipt(peer, frame)
        except RemoteError:
            self._count("malformed answer")
        except NETWORK_ERRORS:
            pass  # the end of the stream, too
        ended.set()
        both.cancel()

    def _leave(self, key: _Key, outbox: Outbox) -> None:
        outbox.close()
        if outbox.late:
            self._count("too late to be sent", outbox.late)
        if self._outbound.get(key) is outbox:
            del self._outbound[key]

    def _pause(self, peer: PeerId) -> None:
        now = trio.current_time()
        self._pauses = {each: until for each, until in self._pauses.items() if until > now}
        self._pauses[peer] = now + PAUSE

    # Peers' streams

    def answer(self, peer: PeerId, frame: bytes) -> bool:
        """Queue a receipt on the stream that brought the last submission. False for no way."""
        inbound = self._latest.get(peer)
        if inbound is None or not inbound.receipts.push(frame):
            self._count("receipt with no way back")
            return False
        return True

    def blame(self, peer: PeerId, reason: str) -> None:
        """Hold something against a peer. Beyond its budget its streams end, for a time."""
        self._on_fault(peer, reason)
        if self._blame.add(peer, trio.current_time()) and self._nursery is not None:
            for protocol in RelayProtocol:
                for inbound in self._inbound.get((peer, protocol), {}):
                    self._count("too much that was wrong")
                    self._nursery.start_soon(self._reset, inbound.stream)

    async def _listen(self, protocol: RelayProtocol, stream: INetStream) -> None:
        peer_id = stream.muxed_conn.peer_id
        key = peer_id.to_bytes(), protocol
        barred = self._blame.barred(key[0], trio.current_time())
        if self._nursery is None or barred or not self._admit(peer_id):
            await self._reset(stream)
            return
        inbound = _Inbound(stream, self.traffic)
        inbounds = self._inbound.setdefault(key, {})
        inbounds[inbound] = None
        try:
            if len(inbounds) > INBOUND:
                self._count("one stream too many")
                await self._reset(next(iter(inbounds)).stream)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_receipts, inbound)
                if await self._read(key, inbound):
                    inbound.receipts.close()  # what is written when it ends is read still
                    nursery.cancel_scope.deadline = trio.current_time() + FAREWELL
                else:
                    nursery.cancel_scope.cancel()
        finally:
            del inbounds[inbound]
            if not inbounds:
                self._inbound.pop(key, None)
            if self._latest.get(key[0]) is inbound:
                del self._latest[key[0]]
            with trio.CancelScope(shield=True):
                await self._reset(stream)

    async def _write_receipts(self, inbound: _Inbound) -> None:
        try:
            await inbound.receipts.write(inbound.stream, idle=math.inf, patience=WRITE_TIMEOUT)
            await inbound.stream.close()
        except (*NETWORK_ERRORS, trio.TooSlowError):
            self._count("receipts not taken")
            await self._reset(inbound.stream)

    async def _read(self, key: _Key, inbound: _Inbound) -> bool:
        """Take frames until the peer ends its stream: True. False where it breaks off."""
        peer, protocol = key
        splitter = FrameSplitter(self._max_frame)
        wire = beneath(inbound.stream)
        try:
            while data := await wire.read(READ_SIZE):
                self.traffic.bytes_in += len(data)
                for frame in splitter.feed(data):
                    if len(frame) < MIN_FRAME:
                        raise RemoteError(f"a frame of {len(frame)} bytes holds no chunk")
                    await self._room()
                    self.traffic.frames_in += 1
                    if protocol is RelayProtocol.SUBMIT:
                        self._latest[peer] = inbound
                    self._on_frame(peer, protocol, frame)
        except RemoteError:
            self._count("malformed frame")
            self.blame(peer, "malformed frame on a stream of the relay")
        except MuxedStreamEOF:
            return True
        except NETWORK_ERRORS:
            self._count("read failed")
        return False

    async def _reset(self, stream: INetStream) -> None:
        with suppress(*NETWORK_ERRORS):
            await stream.reset()

    def _count(self, fault: str, count: int = 1) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + count
