"""A machine of forty lines to try the network with: passes on whatever it has not seen."""

from random import Random

from bruit.node.gossip.actions import (
    Action,
    Deliver,
    Lane,
    Published,
    SendControl,
    SendMessage,
)
from bruit.node.gossip.events import (
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Stop,
)
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, decode_message, id_from_origin

GOODBYE = b"goodbye"  # the only control frame that there is


class Flood:
    """Keeps every event with its time, so that tests can see what a machine is told."""

    def __init__(self, own_id: PeerId, rng: Random) -> None:
        self.events: list[tuple[float, Event]] = []
        self._own_id = own_id
        self._peers: dict[PeerId, None] = {}
        self._seen: dict[bytes, None] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        self.events.append((now, event))
        match event:
            case PeerConnected(peer):
                self._peers[peer] = None
            case PeerDisconnected(peer):
                del self._peers[peer]
            case Stop():
                return [SendControl(peer, GOODBYE) for peer in self._peers]
            case Publish(ticket, message):
                actions = self._pass_on(message, self._own_id)
                return [*actions, Published(ticket, id_from_origin(message), tuple(self._peers))]
            case FrameReceived(peer, frame) if frame != GOODBYE:
                messages = map(decode_message, Rpc.FromString(frame).publish)
                return [each for message in messages for each in self._pass_on(message, peer)]
            case _:
                pass
        return []

    def _pass_on(self, message: Message, source: PeerId) -> list[Action]:
        message_id = id_from_origin(message)
        if message_id in self._seen:
            return []
        self._seen[message_id] = None
        targets = tuple(peer for peer in self._peers if peer != source)
        frame = Rpc(publish=[message.raw]).SerializeToString()
        return [
            Deliver(message, message_id, message.data, source, {}),
            SendMessage(targets, message_id, frame, Lane.FORWARD),
        ]
