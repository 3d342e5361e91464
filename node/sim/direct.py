"""Frames outside of gossip: other protocols over the connections that nodes have.

A node that speaks such protocols has a `DirectHandler`. Its frames to one peer go in order, in a
bounded queue of their own; they share the connection's bandwidth with the router's frames, and
its delay and loss. A peer that is not connected is dialled first, and what is to be said waits.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Protocol as Interface

import msgspec

from bruit.node.sim.clock import Clock
from bruit.topics.keys import PeerId

if TYPE_CHECKING:
    from bruit.node.sim.links import Carrier, Channel
    from bruit.node.sim.nodes import SimNode

QUEUED = 33_554_432  # bytes to one peer; as `bruit.node.net.relay.streams`
DIAL_TIMEOUT = 5.0  # seconds until a peer that cannot be dialled is given up; the same


class DirectFrame(msgspec.Struct, frozen=True, gc=False):
    """One frame of another protocol."""

    peer: PeerId  # who sent it
    protocol: str
    frame: bytes


class DirectHandler(Interface):
    """What a node does with such frames. Called between events, never inside of one."""

    def on_frame(self, peer: PeerId, protocol: str, frame: bytes) -> None:
        """A frame came."""

    def on_lost(self, peer: PeerId, protocol: str) -> None:
        """Frames that were to go to ``peer`` may not have arrived."""


class DirectQueue:
    """Frames to one peer: first in, first out; an empty queue takes any one."""

    __slots__ = ("_bytes", "_frames", "protocols")

    def __init__(self) -> None:
        self._frames: deque[DirectFrame] = deque()
        self._bytes = 0
        self.protocols: dict[str, None] = {}  # of all frames that it ever took

    def push(self, frame: DirectFrame) -> bool:
        """Queue a frame. False where there is no room."""
        if self._frames and self._bytes + len(frame.frame) > QUEUED:
            return False
        self._frames.append(frame)
        self._bytes += len(frame.frame)
        self.protocols[frame.protocol] = None
        return True

    def pop(self) -> DirectFrame | None:
        """The next frame to send, or None."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._bytes -= len(frame.frame)
        return frame

    def __len__(self) -> int:
        """Frames."""
        return len(self._frames)


class DirectFrames:
    """Those of one network: sends them, and tells who may have lost some."""

    def __init__(
        self, clock: Clock, carrier: "Carrier", dial: Callable[["SimNode", "SimNode"], None]
    ) -> None:
        self._clock = clock
        self._carrier = carrier
        self._dial = dial
        # What waits for a connection, by sender and receiver.
        self._waiting: dict[tuple[PeerId, PeerId], DirectQueue] = {}

    def send(self, node: "SimNode", peer: "SimNode", frame: DirectFrame) -> bool:
        """Queue a frame, dialling where need be. False where there is no room."""
        channel = node.channels.get(peer.peer_id)
        if channel is not None:
            return self._carrier.send_direct(channel, frame)
        waiting = self._waiting.get((node.peer_id, peer.peer_id))
        if waiting is not None:
            return waiting.push(frame)
        waiting = self._waiting[node.peer_id, peer.peer_id] = DirectQueue()
        waiting.push(frame)
        self._clock.at(self._clock.now + DIAL_TIMEOUT, self._give_up, (node, peer), waiting)
        self._dial(node, peer)
        return True

    def on_connected(self, channel: "Channel") -> None:
        """Send what waited for this connection."""
        waiting = self._waiting.pop((channel.sender.peer_id, channel.receiver.peer_id), None)
        while waiting:
            frame = waiting.pop()
            if frame is not None:
                self._carrier.send_direct(channel, frame)

    def on_ended(self, channel: "Channel") -> None:
        """The sender of ``channel`` has no connection any more: some frames may be lost."""
        if channel.direct is not None:
            self._clock.at(self._clock.now, self._lost, channel, channel.direct)

    def arrived(self, channel: "Channel", frame: DirectFrame) -> None:
        """A frame is with its receiver."""
        handler = channel.receiver.direct
        if handler is not None and channel.receiver.up:
            handler.on_frame(frame.peer, frame.protocol, frame.frame)

    def _give_up(self, ends: tuple["SimNode", "SimNode"], waiting: DirectQueue) -> None:
        """A dial has taken too long, if what waits for it still does."""
        node, peer = ends
        key = (node.peer_id, peer.peer_id)
        if self._waiting.get(key) is waiting:
            del self._waiting[key]
            self._tell(node, peer.peer_id, waiting)

    def _lost(self, channel: "Channel", queue: DirectQueue) -> None:
        self._tell(channel.sender, channel.receiver.peer_id, queue)

    def _tell(self, node: "SimNode", peer: PeerId, queue: DirectQueue) -> None:
        if node.direct is not None and node.up:
            for protocol in queue.protocols:
                node.direct.on_lost(peer, protocol)
