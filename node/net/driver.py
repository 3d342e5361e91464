"""The driver: hands events to the router and carries out what it wants.

    socket ─▶ Streams ─▶ FramesReceived ───┐                 ┌─▶ Link queues ─▶ socket
    verifiers ─▶ SignaturesChecked ────────┼─▶ Router.handle ─┼─▶ Judging
    validator threads ─▶ Validated ────────┤                 ├─▶ deliveries, reports
    clock ─▶ TimerFired, commands ─────────┘                 └─▶ timers, Dialer

It keeps no protocol state and makes no protocol decision. Nothing that it does
for an action waits: what cannot be queued is dropped, counted and told to the
router.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import msgspec
import trio
from libp2p.abc import IHost

from bruit.node.gossip.actions import (
    Action,
    CancelQueued,
    CheckSignature,
    Connect,
    Deliver,
    Disconnect,
    Dropped,
    Grafted,
    Lane,
    PeerJoined,
    PeerLeft,
    PeerSubscribed,
    Pruned,
    Published,
    Rejected,
    Report,
    SendControl,
    SendMessage,
    SetTimer,
    ThresholdCrossed,
    Validate,
)
from bruit.node.gossip.events import (
    Event,
    FramesDropped,
    Publish,
    PublishBatch,
    RecordLearnt,
    Start,
    Stop,
    Timer,
    TimerFired,
)
from bruit.node.gossip.router import Router, Statistics
from bruit.node.gossip.wire import WRAPPING
from bruit.node.net.dialer import Dialer
from bruit.node.net.host import has_public_address, known_record
from bruit.node.net.judging import Judging
from bruit.node.net.link import WRITE_SIZE, Link
from bruit.node.net.streams import Streams
from bruit.node.net.verifiers import Verifiers
from bruit.plugins.pipeline import TopicPipeline
from bruit.topics.keys import PeerId
from bruit.topics.message import Message

BURST = 0.002  # seconds that publications may gather before the writers begin; guess
AT_ONCE = 16  # peers that are written to without their writers, which takes 30 µs each; guess
NEWCOMERS = 4  # one peer in so many may come beyond max_peers, until the router chooses; guess
PATIENCE = 1.0  # seconds a publisher waits for one slow peer before leaving it behind; guess


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a publication."""

    message_id: bytes
    peers: tuple[PeerId, ...]  # it was queued for these
    dropped: tuple[PeerId, ...]  # these were to have it, but their queues were full
    problem: str = ""  # why it was queued for nobody


class Driver:
    """One router on one host. ``on_delivery`` and ``on_report`` must not block."""

    def __init__(
        self,
        host: IHost,
        router: Router,
        pipelines: Mapping[str, TopicPipeline],
        dialer: Dialer,
        max_frame: int,
        max_peers: int,
        on_delivery: Callable[[Deliver], None],
        on_report: Callable[[Report], None],
        verifiers: Verifiers,
        admit: Callable[[PeerId, tuple[str, ...]], str] = lambda peer, addresses: "",
    ) -> None:
        """``admit`` says why a peer may not connect from its addresses; nothing where it may."""
        self._host = host
        self._router = router
        self._dialer = dialer
        self._on_delivery = on_delivery
        self._on_report = on_report
        self.judging = Judging(self.feed, pipelines, verifiers)
        room = max_peers + max(1, max_peers // NEWCOMERS)
        self.streams = Streams(host, self.judging, self.feed, max_frame, room, admit)
        self._events: deque[Event] = deque()
        self._feeding = False
        self._last_ticket = 0
        self._touched: dict[Link, None] = {}  # which something was queued for
        self._in_burst = False  # of publications
        self._unyielded = 0  # bytes published since the last checkpoint
        self._yield_by = 0.0
        self._outcomes: dict[int, Published] = {}
        # Of what is being published: message id → whose queue refused it.
        self._full: dict[bytes, list[PeerId]] = {}
        self._nursery: trio.Nursery | None = None
        self._recorded: dict[PeerId, None] = {}  # peers whose signed record the router has

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. The host must be running."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.judging.run)
            await nursery.start(self._dialer.run)
            await nursery.start(self.streams.run)
            self.feed(Start())
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def stop(self, grace: float) -> None:
        """Let the peers read what is queued, for at most ``grace`` seconds."""
        self.feed(Stop())
        with trio.move_on_after(grace):
            async with trio.open_nursery() as nursery:
                for link in list(self.streams.links.values()):
                    nursery.start_soon(link.finish)

    def feed(self, event: Event) -> None:
        """Hand an event to the router and carry out all that follows, in order."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                for action in self._router.handle(self._events.popleft(), trio.current_time()):
                    self._carry_out(action)
        finally:
            self._feeding = False
            touched, self._touched = self._touched, {}
            # In a burst of publications, and to many peers, the writers gather more at a time.
            at_once = len(touched) <= AT_ONCE and not self._in_burst
            for link in touched:
                if at_once:
                    link.go()
                else:
                    link.wake()

    async def publish(self, publications: Sequence[tuple[Message, bytes]]) -> list[Outcome]:
        """Send own messages, each with its payload for subscribers here.

        Waits for room, first, in the queues of those who keep up.
        """
        size = 0
        items = []
        for message, payload in publications:
            self._last_ticket += 1
            items.append(Publish(self._last_ticket, message, payload))
            size += len(message.raw) + WRAPPING
        for topic in dict.fromkeys(item.message.topic for item in items):
            while full := self._full_link(topic, size):  # others publish while we wait
                await full.wait_for_room(size, PATIENCE)
        self._full.clear()
        self._in_burst = trio.current_time() < self._yield_by
        try:
            self.feed(items[0] if len(items) == 1 else PublishBatch(tuple(items)))
        finally:
            self._in_burst = False
        outcomes = [self._outcome(self._outcomes.pop(item.ticket)) for item in items]
        await self._let_writers_begin(size)
        return outcomes

    def _outcome(self, published: Published) -> Outcome:
        if published.message_id not in self._full:
            return Outcome(published.message_id, published.peers, (), published.problem)
        dropped = tuple(self._full[published.message_id])
        reached = tuple(peer for peer in published.peers if peer not in dropped)
        problem = published.problem
        if not reached:
            problem = "the send queue of every peer is full: publish more slowly"
        return Outcome(published.message_id, reached, dropped, problem)

    def _full_link(self, topic: str, size: int) -> Link | None:
        """The first link worth waiting for."""
        for peer in self._router.subscribers(topic):
            link = self.streams.links.get(peer)
            if link is not None and not link.slow and not link.queue.has_room(Lane.OWN, size):
                return link
        return None

    async def _let_writers_begin(self, size: int) -> None:
        """Yield, but in a burst only when there is a full write or a millisecond has passed."""
        self._unyielded += size
        if self._unyielded < WRITE_SIZE and trio.current_time() < self._yield_by:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        self._unyielded = 0
        await trio.lowlevel.checkpoint()
        self._yield_by = trio.current_time() + BURST

    def subscribers(self, topic: str) -> tuple[PeerId, ...]:
        return self._router.subscribers(topic)

    def statistics(self) -> Statistics:
        return self._router.statistics()

    def _carry_out(self, action: Action) -> None:  # noqa: C901, a flat dispatch
        match action:
            case CheckSignature():
                self.judging.check_signature(action)
            case Deliver():
                self._on_delivery(action)
            case SendMessage():
                self._send_message(action)
            case SendControl(peer, frame):
                link = self.streams.links.get(peer)
                if link is not None:
                    self._touched[link] = None
                    if not link.send_control(frame):
                        self._events.append(FramesDropped(peer, 1, (frame,)))
            case Validate():
                self.judging.validate(action)
            case CancelQueued(peer, message_ids):
                link = self.streams.links.get(peer)
                if link is not None:
                    link.queue.cancel(message_ids)
            case SetTimer(timer, at):
                if self._nursery is not None:
                    self._nursery.start_soon(self._fire, timer, at)
            case Connect():
                self._dialer.once(action)
            case Disconnect(peer):
                self._on_report(action)
                self.streams.disconnect(peer)
            case Published():
                self._outcomes[action.ticket] = action
            case (
                PeerJoined()
                | PeerSubscribed()
                | Grafted()
                | Pruned()
                | Rejected()
                | Dropped()
                | ThresholdCrossed()
            ):
                self._on_report(action)
            case PeerLeft(peer):
                self._recorded.pop(peer, None)
                self._on_report(action)
            case _:
                assert_never(action)

    def _send_message(self, action: SendMessage) -> None:
        links = self.streams.links
        for peer in action.peers:
            link = links.get(peer)
            if link is not None:
                self._touched[link] = None
            if link is None or not link.send_message(action.message_id, action.frame, action.lane):
                if action.lane is Lane.OWN:
                    self._full.setdefault(action.message_id, []).append(peer)
                self._events.append(FramesDropped(peer, 1))

    async def _fire(self, timer: Timer, at: float) -> None:
        await trio.sleep_until(at)
        self._learn_records()
        self.feed(TimerFired(timer))

    def _learn_records(self) -> None:
        """Hand the router the signed records that identify has brought meanwhile."""
        for peer in self.streams.links:
            if peer not in self._recorded:
                envelope = known_record(self._host, peer)
                if envelope is not None:
                    self._recorded[peer] = None
                    public = has_public_address(envelope.record().addrs)
                    self.feed(RecordLearnt(peer, envelope.marshal_envelope(), public))
