"""The relay's streams, against a host that is made up."""

import math
from random import Random
from typing import cast

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.rcmgr import Direction
from multiaddr import Multiaddr
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.identity import new_key
from bruit.node.net.dialer import Dialer
from bruit.node.net.relay.blame import BUDGET, FORGIVEN
from bruit.node.net.relay.protocols import MIN_FRAME, RelayProtocol
from bruit.node.net.relay.streams import (
    IDLE,
    INBOUND,
    PAUSE,
    QUEUED,
    WRITE_TIMEOUT,
    RelayStreams,
)
from bruit.node.relay.wire import ACKNOWLEDGEMENT_SIZE
from bruit.plugins.marketplace import Member
from bruit.topics.keys import PeerId, peer_id_text
from tests.net.made_up_host import Host, Inbound, Outbound
from tests.net.recorder import Recorder, on_the_wire, varint

SUBMIT, PASS_ON = RelayProtocol.SUBMIT, RelayProtocol.PASS_ON
PEER: PeerId = new_key().public_key().peer_id()
OTHER: PeerId = new_key().public_key().peer_id()
DIAL = "/ip4/192.0.2.7/tcp/4001"
MEMBER = Member(bytes(20), (f"{DIAL}/p2p/{peer_id_text(PEER)}",))
MAX_FRAME = 1000
FRAME = bytes(MIN_FRAME)


class Ours(Recorder):
    """A stream that we opened: what a test says comes back on it."""

    def __init__(self) -> None:
        super().__init__()
        self.say, self._heard = trio.open_memory_channel[bytes](math.inf)

    async def read(self, size: int) -> bytes:
        try:
            return await self._heard.receive()
        except trio.EndOfChannel:
            raise StreamEOF from None

    async def reset(self) -> None:
        self.say.close()
        await super().reset()


class RelayHost(Host):
    def __init__(self) -> None:
        super().__init__()
        self.ours: list[Ours | Exception] = []  # what new_stream gives, in order
        self.wanted: list[tuple[PeerId, str]] = []

    async def new_stream(self, peer: ID, protocols: list[TProtocol]) -> Outbound:
        await trio.lowlevel.checkpoint()
        self.wanted += [(peer.to_bytes(), protocol) for protocol in protocols]
        stream = self.ours.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return cast(Outbound, stream)


class UnreachableHost(RelayHost):
    async def dial_addr(self, address: Multiaddr, peer: ID) -> None:
        await super().dial_addr(address, peer)
        raise SwarmException("nobody there")


class Bench:
    def __init__(self, host: RelayHost) -> None:
        self.host = host
        self.frames: list[tuple[PeerId, RelayProtocol, bytes]] = []
        self.receipts: list[tuple[PeerId, bytes]] = []
        self.lost: list[tuple[PeerId, RelayProtocol]] = []
        self.faults: list[PeerId] = []
        self.refused: list[PeerId] = []
        self.room = trio.Event()
        self.room.set()
        self.streams = RelayStreams(
            host.host,
            Dialer(host.host, Random(1), lambda peer, reason: None),
            lambda peer: peer.to_bytes() not in self.refused,
            self.wait_for_room,
            MAX_FRAME,
            lambda *said: self.frames.append(said),
            lambda *said: self.receipts.append(said),
            lambda *said: self.lost.append(said),
            lambda peer, reason: self.faults.append(peer),
        )

    async def wait_for_room(self) -> None:
        await self.room.wait()

    def connected(self) -> Ours:
        """A connection to the member, and the stream that will be opened on it."""
        if PEER not in self.host.connections:
            self.host.connection(PEER, Direction.OUTBOUND)
        self.host.ours.append(stream := Ours())
        return stream

    async def send(self, *frames: bytes, protocol: RelayProtocol = SUBMIT) -> list[bool]:
        taken = [self.streams.send(protocol, MEMBER, frame) for frame in frames]
        await wait_all_tasks_blocked()
        return taken

    async def open(
        self, nursery: trio.Nursery, protocol: RelayProtocol = SUBMIT, peer: PeerId = PEER
    ) -> Inbound:
        """The peer opens a stream to us."""
        stream = Inbound(peer)
        handler = self.host.handlers[protocol.value]
        nursery.start_soon(handler, stream.net)
        await wait_all_tasks_blocked()
        return stream


async def started(nursery: trio.Nursery, host: RelayHost) -> Bench:
    bench = Bench(host)
    await nursery.start(bench.streams.run, tuple(RelayProtocol))
    return bench


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    return await started(nursery, RelayHost())


# Our streams


async def test_frames_for_a_member_go_out_together_on_one_stream(bench: Bench) -> None:
    stream = bench.connected()
    assert await bench.send(b"one", b"two") == [True, True]
    assert await bench.send(b"three") == [True]
    assert stream.writes == [on_the_wire([b"one", b"two"]), on_the_wire([b"three"])]
    assert bench.host.wanted == [(PEER, "/bruit/marlin/submit/1.0.0")]
    assert bench.host.dialled == []


async def test_a_member_that_is_not_connected_is_dialled_at_its_addresses(bench: Bench) -> None:
    bench.host.ours.append(stream := Ours())
    await bench.send(b"one", protocol=PASS_ON)
    assert bench.host.dialled == [(PEER, DIAL)]
    assert stream.wire == on_the_wire([b"one"])
    assert bench.host.wanted == [(PEER, "/bruit/marlin/pass/1.0.0")]


async def test_a_member_out_of_reach_is_told_and_left_alone_for_a_pause(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, UnreachableHost())
    assert await bench.send(b"one") == [True]
    assert bench.lost == [(PEER, SUBMIT)]
    assert await bench.send(b"two") == [False]
    assert len(bench.host.dialled) == 1
    await trio.sleep(PAUSE)
    assert await bench.send(b"three") == [True]
    assert len(bench.host.dialled) == 2


async def test_a_member_whose_address_is_none_is_out_of_reach(bench: Bench) -> None:
    address = f"/nowhere/p2p/{peer_id_text(PEER)}"
    assert bench.streams.send(SUBMIT, Member(bytes(20), (address,)), b"one")
    await wait_all_tasks_blocked()
    assert bench.lost == [(PEER, SUBMIT)]


async def test_receipts_come_back_on_the_stream_of_the_submission(bench: Bench) -> None:
    stream = bench.connected()
    await bench.send(b"one")
    wire = on_the_wire([b"first", b"second"])
    stream.say.send_nowait(wire[:4])
    stream.say.send_nowait(wire[4:])
    await wait_all_tasks_blocked()
    assert bench.receipts == [(PEER, b"first"), (PEER, b"second")]
    assert bench.lost == []


async def test_a_member_that_answers_with_too_much_is_lost(bench: Bench) -> None:
    stream = bench.connected()
    await bench.send(b"one")
    stream.say.send_nowait(varint(ACKNOWLEDGEMENT_SIZE + 1))
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert (bench.lost, bench.receipts) == ([(PEER, SUBMIT)], [])


async def test_a_member_that_answers_where_we_pass_on_is_hung_up_on(bench: Bench) -> None:
    stream = bench.connected()
    await bench.send(b"one", protocol=PASS_ON)
    stream.say.send_nowait(b"?")
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert bench.receipts == []


async def test_a_member_that_ends_its_stream_is_lost(bench: Bench) -> None:
    stream = bench.connected()
    await bench.send(b"one")
    stream.say.close()
    await wait_all_tasks_blocked()
    assert bench.lost == [(PEER, SUBMIT)]


async def test_a_member_whose_stream_breaks_after_a_time_is_tried_again_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, RelayHost())
    first, second = bench.connected(), bench.connected()
    await bench.send(b"one")
    await trio.sleep(PAUSE)
    first.say.close()
    await wait_all_tasks_blocked()
    assert bench.lost == [(PEER, SUBMIT)]
    assert await bench.send(b"two") == [True]
    second.say.close()  # at once: there is something wrong with it
    await wait_all_tasks_blocked()
    assert await bench.send(b"three") == [False]


async def test_a_stream_that_is_not_opened_is_a_member_lost(bench: Bench) -> None:
    bench.host.connection(PEER, Direction.OUTBOUND)
    bench.host.ours.append(StreamEOF())
    await bench.send(b"one")
    assert bench.lost == [(PEER, SUBMIT)]


async def test_no_more_is_queued_for_a_member_than_fits(bench: Bench) -> None:
    stream = bench.connected()
    stream.hold()
    half = bytes(QUEUED // 2)
    await bench.send(b"being written")
    assert await bench.send(half, half, b"one byte too many") == [True, True, False]
    stream.let_go()
    await wait_all_tasks_blocked()
    assert await bench.send(b"room again") == [True]
    assert bench.lost == []


async def test_a_member_that_takes_too_long_over_a_write_is_lost(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, RelayHost())
    stream = bench.connected()
    stream.hold()
    await bench.send(b"one")
    await trio.sleep(WRITE_TIMEOUT)
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert bench.lost == [(PEER, SUBMIT)]


async def test_a_stream_with_nothing_to_say_is_closed_and_the_next_frame_opens_another(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, RelayHost())
    first, second = bench.connected(), bench.connected()
    await bench.send(b"one")
    await trio.sleep(IDLE)
    await wait_all_tasks_blocked()
    assert first.ended.is_set()
    assert await bench.send(b"two") == [True]
    assert (first.wire, second.wire) == (on_the_wire([b"one"]), on_the_wire([b"two"]))
    assert bench.lost == []


async def test_stopping_lets_the_member_read_what_is_queued(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, RelayHost())
    stream = bench.connected()
    stream.take_time(1.0)
    await bench.send(b"one")
    assert bench.streams.send(SUBMIT, MEMBER, b"two")
    await bench.streams.stop(5.0)
    assert stream.wire == on_the_wire([b"one", b"two"])
    assert stream.ended.is_set()


# Peers' streams


async def test_what_peers_say_is_handed_over_frame_by_frame(
    bench: Bench, nursery: trio.Nursery
) -> None:
    submitting, passing = await bench.open(nursery), await bench.open(nursery, PASS_ON, OTHER)
    submitting.say.send_nowait(on_the_wire([FRAME, FRAME + b"!"]))
    await wait_all_tasks_blocked()
    passing.say.send_nowait(on_the_wire([FRAME]))
    await wait_all_tasks_blocked()
    assert bench.frames == [
        (PEER, SUBMIT, FRAME),
        (PEER, SUBMIT, FRAME + b"!"),
        (OTHER, PASS_ON, FRAME),
    ]


@pytest.mark.parametrize(
    "garbage",
    [varint(MAX_FRAME + 1), b"\xff" * 10, on_the_wire([b""]), on_the_wire([FRAME[1:]])],
    ids=["too long", "no length", "empty", "too short"],
)
async def test_a_stream_with_malformed_frames_is_reset_and_held_against_its_peer(
    bench: Bench, nursery: trio.Nursery, garbage: bytes
) -> None:
    stream = await bench.open(nursery)
    stream.say.send_nowait(garbage)
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert (bench.frames, bench.faults) == ([], [PEER])


async def test_a_receipt_goes_back_on_the_stream_that_brought_the_last_frame(
    bench: Bench, nursery: trio.Nursery
) -> None:
    assert not bench.streams.answer(PEER, b"to nobody")
    silent, talking = Answered(PEER), Answered(PEER)
    for stream in (silent, talking):
        nursery.start_soon(bench.host.handlers[SUBMIT.value], stream.net)
    await wait_all_tasks_blocked()
    talking.say.send_nowait(on_the_wire([FRAME]))
    await wait_all_tasks_blocked()
    assert bench.streams.answer(PEER, b"receipt")
    talking.say.close()  # the peer says no more, and still reads
    await wait_all_tasks_blocked()
    assert talking.written == [on_the_wire([b"receipt"])]
    assert talking.was_closed
    assert silent.written == []


class Answered(Inbound):
    """A stream of a peer that reads what we answer."""

    def __init__(self, peer: PeerId) -> None:
        super().__init__(peer)
        self.written: list[bytes] = []

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.written.append(data)


async def test_a_peer_that_opens_one_stream_too_many_loses_its_oldest(
    bench: Bench, nursery: trio.Nursery
) -> None:
    streams = [await bench.open(nursery) for _ in range(INBOUND + 1)]
    assert [stream.was_reset for stream in streams] == [True] + INBOUND * [False]


async def test_who_is_not_admitted_cannot_speak(bench: Bench, nursery: trio.Nursery) -> None:
    bench.refused.append(PEER)
    stream = await bench.open(nursery)
    assert stream.was_reset


async def test_a_peer_is_barred_once_too_much_is_held_against_it_and_forgiven_in_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = await started(nursery, RelayHost())
    stream, bystander = await bench.open(nursery), await bench.open(nursery, peer=OTHER)
    for _ in range(BUDGET):
        bench.streams.blame(PEER, "wrong")
    await wait_all_tasks_blocked()
    assert (stream.was_reset, bystander.was_reset) == (False, False)
    bench.streams.blame(PEER, "wrong")
    await wait_all_tasks_blocked()
    assert (stream.was_reset, bystander.was_reset) == (True, False)
    assert (await bench.open(nursery)).was_reset
    await trio.sleep(FORGIVEN)
    assert not (await bench.open(nursery)).was_reset
    assert bench.faults == [PEER] * (BUDGET + 1)


async def test_who_speaks_waits_while_too_much_is_under_way(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.room = trio.Event()
    stream = await bench.open(nursery)
    stream.say.send_nowait(on_the_wire([FRAME]))
    stream.say.send_nowait(on_the_wire([FRAME]))
    await wait_all_tasks_blocked()
    assert bench.frames == []
    bench.room.set()
    await wait_all_tasks_blocked()
    assert len(bench.frames) == 2
