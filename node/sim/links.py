"""What lies between two nodes: delay, bandwidth, loss.

A connection is two channels, one per direction, and each keeps its frames in
order as a stream does. A frame handed to a channel

1. waits in the sender's bounded queue while earlier ones are written, if the
   link has a rate; the queue is the one of the real driver, so that lanes,
   bounds and cancelled messages act as they do there,
2. takes ``length / rate`` seconds to be written (the frame's own bytes count,
   neither its length prefix nor what transports add),
3. is lost with probability ``loss``, and otherwise
4. arrives ``latency`` seconds later, plus up to ``jitter``, but never before
   the frame ahead of it.

What a node can send and receive over all its channels together, if that is
bounded, is in `bruit.node.sim.bandwidth`.

A lost frame is never delivered and nobody is told. That is harsher than TCP,
which would deliver it late: what survives it here survives the network.
"""

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import msgspec

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.events import FrameReceived
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.sim.clock import Clock
from bruit.node.sim.direct import DirectFrame, DirectQueue
from bruit.topics.errors import LocalError

if TYPE_CHECKING:
    from bruit.node.sim.bandwidth import Flow
    from bruit.node.sim.nodes import SimNode

GOSSIP, DIRECT = 0, 1  # the two streams of a channel: the router's, and that of other protocols


class LinkModel(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link. Raises LocalError for a value out of its range."""

    latency: float = 0.02  # seconds one way; guess: half a round trip within a continent
    jitter: float = 0.0  # seconds added at most, uniformly
    rate: float | None = None  # bytes per second, None for no limit
    loss: float = 0.0  # probability that a frame vanishes, 0..1

    def __post_init__(self) -> None:
        for name in ("latency", "jitter"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise LocalError(f"link {name} {value}: use seconds from 0")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise LocalError(f"link rate {self.rate}: use bytes per second above 0, or None")
        if not 0 <= self.loss <= 1:
            raise LocalError(f"link loss {self.loss}: use a probability from 0 to 1")


class Channel:
    """One direction of one connection: its model, its dice and what is on its way out."""

    __slots__ = (
        "_dice",
        "_last_arrival",
        "_model",
        "_seed",
        "_turn",
        "back",
        "closing",
        "direct",
        "flow",
        "latency",
        "outbound",
        "queue",
        "rate",
        "receiver",
        "receiving",
        "sender",
        "writing",
    )

    back: "Channel"  # the other direction

    def __init__(
        self, sender: "SimNode", receiver: "SimNode", outbound: bool, model: LinkModel, seed: str
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.outbound = outbound  # whether the sender dialled
        self.queue: SendQueue | None = None  # only where there is, or was, a rate
        self.direct: DirectQueue | None = None  # only where there are such frames
        self.flow: Flow | None = None  # only where a node's bandwidth is bounded
        self.writing = False  # whether a frame is on its way out of the queue
        self.closing = False  # whether the end follows once the queue is empty
        self.receiving = True  # whether what arrives is still taken
        self._seed = seed
        self._dice: Random | None = None  # only where the model has something to roll for
        self._last_arrival = -math.inf
        self._turn = DIRECT  # the stream that was written last
        self.reshape(model)

    def reshape(self, model: LinkModel) -> None:
        """Use ``model`` from the next frame on. What is queued stays queued."""
        self._model = model
        self.latency = model.latency
        self.rate = math.inf if model.rate is None else model.rate  # bytes per second
        if model.rate is not None and self.queue is None:
            self.queue = SendQueue()
        if (model.loss or model.jitter) and self._dice is None:
            self._dice = Random(self._seed)

    def writing_time(self, frame: bytes) -> float:
        """Seconds that it takes to write ``frame``."""
        rate = self._model.rate
        return 0.0 if rate is None else len(frame) / rate

    def pop(self, stream: int) -> FrameReceived | DirectFrame | None:
        """The next frame of a stream, or None."""
        if stream == DIRECT:
            return None if self.direct is None else self.direct.pop()
        frame = None if self.queue is None else self.queue.pop()
        return None if frame is None else FrameReceived(self.sender.peer_id, frame)

    def pop_any(self) -> FrameReceived | DirectFrame | None:
        """The next frame: the streams take turns."""
        for stream in (1 - self._turn, self._turn):
            event = self.pop(stream)
            if event is not None:
                self._turn = stream
                return event
        return None

    @property
    def has_queued(self) -> bool:
        return bool(self.direct) or (self.queue is not None and not self.queue.empty)

    def fall_silent(self) -> None:
        """Nothing more is written, not even what is queued."""
        self.queue = None
        self.direct = None
        if self.flow is not None:
            self.flow.under_way = [None, None]

    def roll(self) -> float | None:
        """The jitter of the next frame, seconds; None for one that is lost."""
        if self._dice is None:
            return 0.0
        if self._dice.random() < self._model.loss:
            return None
        return self._dice.random() * self._model.jitter

    def arrival(self, departure: float) -> float | None:
        """When a frame that leaves at ``departure`` arrives; None for one that is lost."""
        jitter = self.roll()
        if jitter is None:
            return None
        at = departure + self.latency + jitter
        if at < self._last_arrival:
            return self._last_arrival
        self._last_arrival = at
        return at

    def first_bit(self, departure: float, jitter: float, writing: float) -> float:
        """When the first bit arrives of what is written from ``departure`` for so many seconds."""
        at = max(departure + self.latency + jitter, self._last_arrival)
        self._last_arrival = at + writing
        return at

    def end_arrival(self, departure: float) -> float:
        """When the other side learns of the end; after all frames, and never lost."""
        return max(departure + self.latency, self._last_arrival)


class Carrier:
    """Moves frames through the channels of one network, and counts them.

    ``arrived(channel, event)`` and ``ended(channel, None)`` are called when a
    frame, or the end of the connection, reaches the receiver of a channel.
    """

    def __init__(
        self,
        clock: Clock,
        arrived: Callable[[Channel, FrameReceived | DirectFrame], None],
        ended: Callable[[Channel, None], None],
    ) -> None:
        self._clock = clock
        self._arrived = arrived
        self._ended = ended
        self.frames = 0  # written, whether or not they arrive
        self.frame_bytes = 0  # in those
        self.lost = 0  # frames of those that loss took
        self.cancelled = 0  # messages taken out of queues

    def send_message(
        self, channel: Channel, message_id: bytes, event: FrameReceived, lane: Lane
    ) -> bool:
        """Send a message, now or when its turn comes. False where the queue has no room."""
        queue = channel.queue
        if queue is None:
            self._depart(channel, event, self._clock.now)
        elif not queue.push_message(message_id, event.frame, lane):
            return False
        else:
            self._begin(channel)
        return True

    def send_control(self, channel: Channel, event: FrameReceived) -> bool:
        """The same for a control frame."""
        queue = channel.queue
        if queue is None:
            self._depart(channel, event, self._clock.now)
        elif not queue.push_control(event.frame):
            return False
        else:
            self._begin(channel)
        return True

    def send_direct(self, channel: Channel, event: DirectFrame) -> bool:
        """The same for a frame of another protocol."""
        if channel.direct is None:
            channel.direct = DirectQueue()
        if not channel.direct.push(event):
            return False
        if channel.queue is None:  # no rate: it goes at once
            channel.direct.pop()
            self._depart(channel, event, self._clock.now)
        else:
            self._begin(channel)
        return True

    def cancel(self, channel: Channel, message_ids: tuple[bytes, ...]) -> None:
        """Take messages out of the queue of ``channel`` that are not yet being written."""
        if channel.queue is not None:
            self.cancelled += channel.queue.cancel(message_ids)

    def end(self, channel: Channel) -> None:
        """Tell the receiver that the connection is over, after everything that is queued."""
        channel.closing = True
        if not channel.writing:
            self._send_end(channel)

    def _begin(self, channel: Channel) -> None:
        """Something was queued: write it, unless the channel is writing."""
        if not channel.writing:
            self._write(channel, None)

    def _write(self, channel: Channel, _: None) -> None:
        """Begin with the next frame that is queued, if there is one."""
        event = channel.pop_any()
        channel.writing = event is not None
        if event is not None:
            written = self._clock.now + channel.writing_time(event.frame)
            self._depart(channel, event, written)
            self._clock.at(written, self._write, channel, None)
        elif channel.closing:
            self._send_end(channel)

    def _depart(
        self, channel: Channel, event: FrameReceived | DirectFrame, departure: float
    ) -> None:
        self.frames += 1
        self.frame_bytes += len(event.frame)
        at = channel.arrival(departure)
        if at is None:
            self.lost += 1
        else:
            self._clock.at(at, self._arrived, channel, event)

    def _send_end(self, channel: Channel) -> None:
        self._clock.at(channel.end_arrival(self._clock.now), self._ended, channel, None)
