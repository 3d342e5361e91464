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
from bruit.topics.errors import LocalError

if TYPE_CHECKING:
    from bruit.node.sim.nodes import SimNode


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
        "_latency",
        "_model",
        "_seed",
        "back",
        "closing",
        "outbound",
        "queue",
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
        self.writing = False  # whether a frame is on its way out of the queue
        self.closing = False  # whether the end follows once the queue is empty
        self.receiving = True  # whether what arrives is still taken
        self._seed = seed
        self._dice: Random | None = None  # only where the model has something to roll for
        self._last_arrival = -math.inf
        self.reshape(model)

    def reshape(self, model: LinkModel) -> None:
        """Use ``model`` from the next frame on. What is queued stays queued."""
        self._model = model
        self._latency = model.latency
        if model.rate is not None and self.queue is None:
            self.queue = SendQueue()
        if (model.loss or model.jitter) and self._dice is None:
            self._dice = Random(self._seed)

    def writing_time(self, frame: bytes) -> float:
        """Seconds that it takes to write ``frame``."""
        rate = self._model.rate
        return 0.0 if rate is None else len(frame) / rate

    def arrival(self, departure: float) -> float | None:
        """When a frame that leaves at ``departure`` arrives; None for one that is lost."""
        at = departure + self._latency
        if self._dice is not None:
            model = self._model
            if self._dice.random() < model.loss:
                return None
            at += self._dice.random() * model.jitter
        if at < self._last_arrival:
            return self._last_arrival
        self._last_arrival = at
        return at

    def end_arrival(self, departure: float) -> float:
        """When the other side learns of the end; after all frames, and never lost."""
        return max(departure + self._latency, self._last_arrival)


class Carrier:
    """Moves frames through the channels of one network, and counts them.

    ``arrived(channel, event)`` and ``ended(channel, None)`` are called when a
    frame, or the end of the connection, reaches the receiver of a channel.
    """

    def __init__(
        self,
        clock: Clock,
        arrived: Callable[[Channel, FrameReceived], None],
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
        elif not channel.writing:
            self._write(channel, None)
        return True

    def send_control(self, channel: Channel, event: FrameReceived) -> bool:
        """The same for a control frame."""
        queue = channel.queue
        if queue is None:
            self._depart(channel, event, self._clock.now)
        elif not queue.push_control(event.frame):
            return False
        elif not channel.writing:
            self._write(channel, None)
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

    def _write(self, channel: Channel, _: None) -> None:
        """Begin with the next frame of the queue, if there is one."""
        frame = None if channel.queue is None else channel.queue.pop()
        channel.writing = frame is not None
        if frame is not None:
            written = self._clock.now + channel.writing_time(frame)
            self._depart(channel, FrameReceived(channel.sender.peer_id, frame), written)
            self._clock.at(written, self._write, channel, None)
        elif channel.closing:
            self._send_end(channel)

    def _depart(self, channel: Channel, event: FrameReceived, departure: float) -> None:
        self.frames += 1
        self.frame_bytes += len(event.frame)
        at = channel.arrival(departure)
        if at is None:
            self.lost += 1
        else:
            self._clock.at(at, self._arrived, channel, event)

    def _send_end(self, channel: Channel) -> None:
        self._clock.at(channel.end_arrival(self._clock.now), self._ended, channel, None)
