"""A peer that a test plays by hand: it says what it is told to, and writes down what it hears.

It has no machine and answers nothing by itself, so a hostile peer is a few lines::

    mallory = net.add_peer_stub("mallory")
    mallory.connect(node)
    net.run_for(1.0)
    mallory.subscribe(node, "blocks")
    mallory.graft(node, "blocks")
    mallory.send(node, b"\\xff" * 100)  # any bytes at all
    net.run_for(1.0)
    assert not mallory.heard("graft")
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from bruit.node.gossip.actions import Action, SendControl
from bruit.node.gossip.events import (
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Protocol,
)
from bruit.node.gossip.params import RouterConfig
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.sim.authors import SimAuthor
from bruit.node.sim.nodes import SimNode
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId
from bruit.topics.message import Author, Message, decode_message

if TYPE_CHECKING:
    from bruit.node.sim.network import SimNetwork

_CONTROL = ("ihave", "iwant", "graft", "prune", "idontwant")


class Frame(msgspec.Struct, frozen=True):
    """One frame that a stub got."""

    time: float  # seconds
    source: PeerId
    frame: bytes

    @property
    def rpc(self) -> Rpc:
        """The frame, parsed."""
        return Rpc.FromString(self.frame)


class Heard(msgspec.Struct, frozen=True):
    """One entry of one frame: ``entry`` is the protobuf message of its kind."""

    time: float  # seconds
    source: PeerId
    entry: Any


class PeerStub(SimNode):
    """A node played by hand. Everything said of `SimNode` holds, but for ``deliveries``.

    ``connections`` are the `PeerConnected` events of the connections it has.
    What it sends travels over links like any other node's frames.
    """

    __slots__ = ("_frames", "_net", "connections")

    def __init__(
        self,
        net: "SimNetwork",
        index: int,
        name: str,
        author: Author | SimAuthor,
        protocol: Protocol,
        address: str,
    ) -> None:
        super().__init__(index, name, author, RouterConfig(), protocol, address, self)
        self._net = net
        self._frames: list[Frame] = []
        self.connections: dict[PeerId, PeerConnected] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        """The machine of a stub: takes notes."""
        match event:
            case FrameReceived(peer, frame):
                self._frames.append(Frame(now, peer, frame))
            case PeerConnected(peer):
                self.connections[peer] = event
            case PeerDisconnected(peer):
                del self.connections[peer]
            case _:
                pass
        return []

    # What it hears

    def sent_to_me(self, source: SimNode | None = None) -> list[Frame]:
        """All frames so far, in order; only those of ``source`` where it is given."""
        if source is None:
            return list(self._frames)
        return [frame for frame in self._frames if frame.source == source.peer_id]

    def heard(self, kind: str, source: SimNode | None = None) -> list[Heard]:
        """The entries of one kind, in order.

        ``kind`` is subscriptions, ihave, iwant, graft, prune or idontwant; for
        messages see `messages`.
        """
        if kind not in ("subscriptions", *_CONTROL):
            raise LocalError(
                f"nothing is called {kind!r}: use subscriptions, {', '.join(_CONTROL)}"
            )
        entries = []
        for frame in self.sent_to_me(source):
            rpc = frame.rpc
            within = rpc if kind == "subscriptions" else rpc.control
            entries += [Heard(frame.time, frame.source, entry) for entry in getattr(within, kind)]
        return entries

    def messages(self, source: SimNode | None = None) -> list[Message]:
        """The messages that it got, copies included."""
        return [
            decode_message(raw) for frame in self.sent_to_me(source) for raw in frame.rpc.publish
        ]

    def forget(self) -> None:
        """Begin a new page: what it heard so far is gone."""
        self._frames.clear()

    # What it does

    def connect(self, node: SimNode) -> None:
        """Dial ``node``; connected a round trip later."""
        self._net.connect(self, node)

    def disconnect(self, node: SimNode) -> None:
        self._net.disconnect(self, node)

    def send(self, node: SimNode, frame: bytes | Rpc) -> None:
        """Send one frame: any bytes, or an RPC. Raises LocalError when not connected."""
        if node.peer_id not in self.connections:
            raise LocalError(f"{self.name} is not connected to {node.name}: connect and run first")
        raw = frame if isinstance(frame, bytes) else frame.SerializeToString()
        self._net.perform(self, [SendControl(node.peer_id, raw)])

    def publish(self, node: SimNode, *messages: Message | bytes) -> None:
        """Send messages, or their raw bytes, in one frame. ``author.write`` makes honest ones."""
        raws = [each if isinstance(each, bytes) else each.raw for each in messages]
        self.send(node, Rpc(publish=raws))

    def subscribe(self, node: SimNode, *topics: str) -> None:
        self._tell_subscriptions(node, topics, True)

    def unsubscribe(self, node: SimNode, *topics: str) -> None:
        self._tell_subscriptions(node, topics, False)

    def graft(self, node: SimNode, *topics: str) -> None:
        rpc = Rpc()
        for topic in topics:
            rpc.control.graft.add(topic=topic)
        self.send(node, rpc)

    def prune(
        self,
        node: SimNode,
        topic: str,
        backoff: int | None = None,
        offered: Iterable[SimNode] = (),
    ) -> None:
        """PRUNE, with a backoff in seconds and peers to exchange where they are given."""
        rpc = Rpc()
        entry = rpc.control.prune.add(topic=topic, backoff=backoff)
        for peer in offered:
            entry.peers.add(peer_id=peer.peer_id, signed_peer_record=peer.record)
        self.send(node, rpc)

    def ihave(self, node: SimNode, topic: str, *message_ids: bytes) -> None:
        rpc = Rpc()
        rpc.control.ihave.add(topic=topic, message_ids=message_ids)
        self.send(node, rpc)

    def iwant(self, node: SimNode, *message_ids: bytes) -> None:
        rpc = Rpc()
        rpc.control.iwant.add(message_ids=message_ids)
        self.send(node, rpc)

    def idontwant(self, node: SimNode, *message_ids: bytes) -> None:
        rpc = Rpc()
        rpc.control.idontwant.add(message_ids=message_ids)
        self.send(node, rpc)

    def _tell_subscriptions(self, node: SimNode, topics: Iterable[str], wanted: bool) -> None:
        rpc = Rpc()
        for topic in topics:
            rpc.subscriptions.add(subscribe=wanted, topic=topic)
        self.send(node, rpc)
