"""The relay's driver: hands events to its machines and carries out what they want.

    RelayStreams ─▶ ChunkSubmitted, ChunkPassedOn ──▶ Member ────┐   ┌─▶ RelayStreams
    the channels' topics ─▶ ChunkGossiped ──▶ Consumer ──────────┼───┼─▶ Jobs, threads, timers
    broadcast, AcknowledgementReceived ──▶ Producer ─────────────┘   └─▶ publications, reports

It keeps no protocol state and makes no protocol decision. Nothing that it does for an action
waits.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar, assert_never

import msgspec
import trio
from libp2p.abc import IHost
from libp2p.peer.id import ID

from bruit.node.gossip.actions import Validate
from bruit.node.gossip.events import Validated
from bruit.node.net.dialer import Dialer
from bruit.node.net.relay.clock import UnixClock
from bruit.node.net.relay.jobs import LARGE, Job, Jobs
from bruit.node.net.relay.protocols import RelayProtocol, timestamp_of
from bruit.node.net.relay.streams import RelayStreams
from bruit.node.relay.actions import (
    AskHeard,
    BlockUndecided,
    Broadcasted,
    BroadcastRefused,
    CheckAcknowledgement,
    CheckChunk,
    Choose,
    ChunkDropped,
    ConsumerAction,
    Decode,
    DeliverBlock,
    Dispute,
    Encode,
    JudgeBlock,
    Judged,
    MemberAction,
    PassOn,
    ProducerAction,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
    WatchChunks,
    Witnessed,
)
from bruit.node.relay.directory import Directory, peer_of
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    BlockJudged,
    Broadcast,
    Chosen,
    ChunkChecked,
    ChunkGossiped,
    ChunkPassedOn,
    ChunkSeen,
    ChunksHeard,
    ChunkSubmitted,
    Decoded,
    Encoded,
    MarketplaceChanged,
    MembersScored,
    MemberUnreachable,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import check_acknowledgement, check_chunk, message_id_of, sign
from bruit.node.relay.wants import ChunkWants, group_of
from bruit.node.relay.wire import Acknowledgement
from bruit.plugins.hookspecs import ClusterOption, Selection
from bruit.plugins.marketplace import Marketplace
from bruit.plugins.pipeline import TopicPipeline
from bruit.topics.errors import LocalError, PluginError, RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.validation import Validation, Verdict, ignore

THREADS = 2  # blocks that are cut or rebuilt at a time; guess: each takes a processor
MANY = 64  # signatures at once, beyond which they are made in a thread: 4 ms; guess

RelayAction = ProducerAction | MemberAction | ConsumerAction
RelayReport = Broadcasted | Witnessed | Dispute | ChunkDropped | DeliverBlock | BlockUndecided
Selector = Callable[[Selection, Random], int]
Result = TypeVar("Result")


class Machine(Protocol):
    """A producer, member or consumer. Each takes the events of its own union."""

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]: ...


class Machines(msgspec.Struct, frozen=True):
    """Those of one node, by its roles."""

    producer: Machine | None = None
    member: Machine | None = None
    consumer: Machine | None = None

    def all(self) -> list[Machine]:
        return [each for each in (self.producer, self.member, self.consumer) if each is not None]


class Channels(msgspec.Struct, frozen=True):
    """What the machines' costly actions need."""

    params: Mapping[int, ChannelParams]
    pipelines: Mapping[int, TopicPipeline]  # codec and validator of each channel
    validators: Mapping[int, str]  # names of the plugins that judge its blocks, empty for none
    latency: float  # seconds after its timestamp for which a chunk may be sent
    select: Selector  # for one thread at a time
    secret: bytes  # the relay's private key; empty where nothing is signed


class Outlets(msgspec.Struct, frozen=True):
    """Where things go. None of these may block; ``keep`` may take its time."""

    publish: Callable[[int, bytes], None]  # a frame, on the topic of its channel
    judged: Callable[[Validated], None]  # for the topic's router
    report: Callable[[RelayReport], None]
    keep: Callable[[StakeAttached], Awaitable[None]]  # before what it backs is signed
    fault: Callable[[PeerId, str], None]  # hold something against a peer


class RelayDriver:
    """The machines of one node on one host."""

    def __init__(
        self,
        host: IHost,
        dialer: Dialer,
        admit: Callable[[ID], bool],
        machines: Machines,
        channels: Channels,
        outlets: Outlets,
        rng: Random,
        wants: Mapping[int, ChunkWants] = {},
    ) -> None:
        """``rng`` is the selector's, and nobody else's: it is used in threads.

        ``wants``: by channel, what its topic's router hears of chunks.
        """
        self._machines = machines
        self._channels = channels
        self._outlets = outlets
        self._rng = rng
        self._wants = wants
        self.clock = UnixClock()
        self.jobs = Jobs()
        self.streams = RelayStreams(
            host,
            dialer,
            admit,
            self.jobs.room,
            max((each.max_frame() for each in channels.params.values()), default=0),
            self._on_frame,
            self._on_receipt,
            self._on_lost,
            outlets.fault,
        )
        self._events: deque[tuple[Machine, object]] = deque()
        self._feeding = False
        self._nursery: trio.Nursery | None = None
        self._threads = trio.CapacityLimiter(THREADS)
        # Plugins are promised one call at a time: per channel, and of the selector. One that hangs
        # keeps its own thread only.
        self._turns = {channel: trio.Lock() for channel in channels.params}
        self._selecting = trio.Lock()
        self._plugin_threads = trio.CapacityLimiter(len(channels.params) + 1)
        self._last_ticket = 0
        self._broadcasts: dict[int, Broadcasted | BroadcastRefused | None] = {}
        self._answered = trio.lowlevel.ParkingLot()  # who waits for one of those
        self._gossiped: dict[int, bytes] = {}  # ticket → frame, while it is judged
        self._directory = Directory(Marketplace())
        self._kept = trio.Event()  # the stake attached last is written down
        self._kept.set()
        self.options: dict[int, ClusterOption] = {}  # cluster → what the selector was told last

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. The host must be running."""
        serve = tuple(RelayProtocol) if self._machines.member is not None else ()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.jobs.run)
            await nursery.start(self.streams.run, serve)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self._answered.unpark_all()
                for ticket in list(self._gossiped):
                    self._judged(ticket, ignore("the node is stopping"))

    # Commands

    def marketplace_changed(self, directory: Directory) -> None:
        self._directory = directory
        self.options = {
            number: option
            for number, option in self.options.items()
            if directory.cluster(number) is not None
        }
        for machine in self._machines.all():
            self.feed(machine, MarketplaceChanged(directory.marketplace))

    def peers_scored(self, scores: Mapping[PeerId, float]) -> None:
        """What the mesh thinks of the connected peers; those who are no members do not matter."""
        members = tuple(
            (member, score)
            for peer, score in scores.items()
            if (member := self._directory.member_at(peer)) is not None
        )
        if members and self._machines.producer is not None:
            self.feed(self._machines.producer, MembersScored(members))

    async def broadcast(self, channel: int, block: bytes) -> ProofOfBroadcast:
        """Send a block, and wait until its chunks are acknowledged or their options exhausted.

        Raises LocalError where it cannot be sent, and PluginError where the codec fails.
        """
        producer = self._machines.producer
        if producer is None:
            raise LocalError('this node is no producer: add "producer" to relay.roles')
        pipeline = self._channels.pipelines[channel]
        turn = self._turns[channel]
        validation = await self._in_turn(turn, partial(pipeline.check, block))
        if validation.verdict is not Verdict.ACCEPT:
            raise LocalError(f"not valid on this channel: {validation.reason}")
        message_id, payload = await self._in_turn(
            turn, lambda: (message_id_of(block), pipeline.encode(block))
        )
        self._last_ticket += 1
        ticket = self._last_ticket
        self._broadcasts[ticket] = None
        try:
            self.feed(producer, Broadcast(ticket, channel, message_id, payload))
            while (answer := self._broadcasts[ticket]) is None:
                if self._nursery is None:
                    raise LocalError("the node is stopping")
                await self._answered.park()
        finally:
            del self._broadcasts[ticket]
        if isinstance(answer, BroadcastRefused):
            raise LocalError(answer.problem)
        return answer.proof

    def judge(self, channel: int, action: Validate) -> None:
        """Have a frame from the channel's topic judged; answered through ``judged``."""
        consumer = self._machines.consumer
        if consumer is None or self._nursery is None:
            self._outlets.judged(Validated(action.ticket, ignore("the relay is not running")))
            return
        self._gossiped[action.ticket] = action.message.data
        self.feed(
            consumer, ChunkGossiped(action.ticket, channel, action.source, action.message.data)
        )

    # What the streams bring

    def _on_frame(self, peer: PeerId, protocol: RelayProtocol, frame: bytes) -> None:
        if self._machines.member is not None:
            submitted = protocol is RelayProtocol.SUBMIT
            event = ChunkSubmitted(peer, frame) if submitted else ChunkPassedOn(peer, frame)
            self.feed(self._machines.member, event)

    def _on_receipt(self, peer: PeerId, frame: bytes) -> None:
        if self._machines.producer is not None:
            self.feed(self._machines.producer, AcknowledgementReceived(peer, frame))

    def _on_lost(self, peer: PeerId, protocol: RelayProtocol) -> None:
        if protocol is RelayProtocol.SUBMIT and self._machines.producer is not None:
            self.feed(self._machines.producer, MemberUnreachable(peer))

    # Events to actions

    def feed(self, machine: Machine, event: object) -> None:
        """Hand an event to a machine and carry out all that follows, in order."""
        self._events.append((machine, event))
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                machine, event = self._events.popleft()
                for action in machine.handle(event, self.clock.now()):
                    self._carry_out(action, machine)
        finally:
            self._feeding = False

    def _carry_out(self, action: RelayAction, machine: Machine) -> None:  # noqa: C901, a dispatch
        match action:
            case CheckChunk():
                self._job(machine, partial(self._check, action), len(action.frame))
            case Sign() if machine is self._machines.producer:
                if self._nursery is not None:
                    self._nursery.start_soon(self._sign_when_kept, machine, action, self._kept)
            case Sign():
                self._sign_soon(machine, action)
            case CheckAcknowledgement(ticket, acknowledgement):
                recovered = partial(_check_acknowledgement, ticket, acknowledgement)
                self._job(machine, recovered, 0, urgent=True)
            case Encode():
                self._aside(machine, partial(self._encode, action))
            case Decode():
                self._aside(machine, partial(self._decode, action))
            case JudgeBlock(channel=channel):
                self._aside(machine, partial(self._judge_block, action), self._turns[channel])
            case Choose(selections=selections):
                self.options.update(
                    (option.cluster, option) for each in selections for option in each.options
                )
                self._aside(machine, partial(self._choose, action), self._selecting)
            case SetTimer(timer, at):
                if self._nursery is not None:
                    self._nursery.start_soon(self._fire, machine, timer, at)
            case StakeAttached():
                if self._nursery is not None:
                    self._kept = trio.Event()
                    self._nursery.start_soon(self._keep, action, self._kept)
            case SubmitChunk(member, frame):
                if not self.streams.send(RelayProtocol.SUBMIT, member, frame, self._until(frame)):
                    self._events.append((machine, MemberUnreachable(peer_of(member))))
            case PassOn(members, frame):
                for member in members:
                    self.streams.send(RelayProtocol.PASS_ON, member, frame, self._until(frame))
            case SendAcknowledgement(peer, frame):
                self.streams.answer(peer, frame)
            case PublishChunk(channel, frame, checked):
                self._outlets.publish(channel, frame)
                if self._machines.consumer is not None:
                    self._events.append((self._machines.consumer, ChunkSeen(checked)))
            case WatchChunks(channel, message_id, timestamp, chunks):
                if channel in self._wants:
                    self._wants[channel].watch(group_of(message_id, timestamp), chunks)
            case AskHeard(ticket, channel, message_id, timestamp):
                if channel in self._wants:
                    heard = self._wants[channel].heard(group_of(message_id, timestamp))
                    self._events.append((machine, ChunksHeard(ticket, heard)))
            case Judged(ticket, validation):
                self._judged(ticket, validation)
            case Broadcasted(ticket=ticket) | BroadcastRefused(ticket=ticket):
                if ticket in self._broadcasts:
                    self._broadcasts[ticket] = action
                    self._answered.unpark_all()
                if isinstance(action, Broadcasted):
                    self._outlets.report(action)
            case ChunkDropped(peer=peer, reason=reason, blame=blame):
                if blame and machine is self._machines.member:  # the mesh minds its own
                    self.streams.blame(peer, reason)
                self._outlets.report(action)
            case Witnessed() | Dispute() | DeliverBlock() | BlockUndecided():
                self._outlets.report(action)
            case _:
                assert_never(action)

    def _judged(self, ticket: int, validation: Validation) -> None:
        frame = self._gossiped.pop(ticket, None)
        if frame is not None:
            payload = frame if validation.verdict is Verdict.ACCEPT else b""
            self._outlets.judged(Validated(ticket, validation, payload))

    def _until(self, frame: bytes) -> float:
        """When a frame becomes a replay, on trio's clock: who sends it then is to blame."""
        return self.clock.on_trio(timestamp_of(frame) + self._channels.latency)

    async def _fire(self, machine: Machine, timer: Timer, at: float) -> None:
        await trio.sleep_until(self.clock.on_trio(at))
        self.feed(machine, TimerFired(timer))

    async def _keep(self, action: StakeAttached, kept: trio.Event) -> None:
        await self._outlets.keep(action)
        kept.set()

    async def _sign_when_kept(self, machine: Machine, action: Sign, kept: trio.Event) -> None:
        await kept.wait()
        self._sign_soon(machine, action)

    # What costs

    def _job(
        self, machine: Machine, call: Callable[[], object], size: int, *, urgent: bool = False
    ) -> None:
        """Have ``call`` made among others, and its event fed to ``machine``."""
        job: Job = lambda: partial(self.feed, machine, call())  # noqa: E731, typed
        self.jobs.add(job, size, urgent=urgent)

    def _sign_soon(self, machine: Machine, action: Sign) -> None:
        size = LARGE if len(action.digests) > MANY else 0
        self._job(machine, partial(self._sign, action), size, urgent=True)

    def _aside(
        self, machine: Machine, call: Callable[[], object], turn: trio.Lock | None = None
    ) -> None:
        """Have ``call`` made in a thread of its own, in the ``turn`` of a plugin, if of one."""
        if self._nursery is not None:
            self._nursery.start_soon(self._run_aside, machine, call, turn)

    async def _run_aside(
        self, machine: Machine, call: Callable[[], object], turn: trio.Lock | None
    ) -> None:
        if turn is None:
            event = await trio.to_thread.run_sync(
                call, limiter=self._threads, abandon_on_cancel=True
            )
        else:
            event = await self._in_turn(turn, call)
        self.feed(machine, event)

    async def _in_turn(self, turn: trio.Lock, call: Callable[[], Result]) -> Result:
        async with turn:
            return await trio.to_thread.run_sync(
                call, limiter=self._plugin_threads, abandon_on_cancel=True
            )

    def _check(self, action: CheckChunk) -> ChunkChecked:
        channel = self._channels.params[action.channel]
        try:
            checked = check_chunk(action.frame, channel, witnessed=action.witnessed)
        except RemoteError as problem:
            return ChunkChecked(action.ticket, None, str(problem))
        return ChunkChecked(action.ticket, checked)

    def _sign(self, action: Sign) -> Signed:
        signatures = (sign(self._channels.secret, digest) for digest in action.digests)
        return Signed(action.ticket, tuple(signatures))

    def _encode(self, action: Encode) -> Encoded:
        chunks = self._channels.params[action.channel].code().encode(action.payload)
        hashes = tuple(keccak256(chunk) for chunk in chunks)
        return Encoded(action.ticket, tuple(map(bytes, chunks)), hashes)

    def _decode(self, action: Decode) -> Decoded:
        code = self._channels.params[action.channel].code()
        try:
            return Decoded(action.ticket, code.decode(action.chunks))
        except RemoteError as problem:
            return Decoded(action.ticket, b"", str(problem))

    def _judge_block(self, action: JudgeBlock) -> BlockJudged:
        validation, block = self._channels.pipelines[action.channel].judge(action.payload)
        accepted = validation.verdict is Verdict.ACCEPT
        block_hash = keccak256(block) if accepted else b""
        validator = self._channels.validators[action.channel]
        return BlockJudged(action.ticket, validation, block, block_hash, validator)

    def _choose(self, action: Choose) -> Chosen:
        return Chosen(action.ticket, tuple(self._one_of(each) for each in action.selections))

    def _one_of(self, selection: Selection) -> int:
        try:
            return self._channels.select(selection, self._rng)
        except PluginError:
            return selection.options[0].cluster


def _check_acknowledgement(ticket: int, acknowledgement: Acknowledgement) -> AcknowledgementChecked:
    try:
        return AcknowledgementChecked(ticket, check_acknowledgement(acknowledgement))
    except RemoteError:
        return AcknowledgementChecked(ticket, b"")
