"""The attacker: a peer that is in everybody's mesh and passes on what it pleases.

Modelled on the "badboy" of github.com/libp2p/gossipsub-hardening, the code behind
"GossipSub: Attack-Resilient Message Propagation" (arXiv:2007.02754): it dials its
victims at an appointed time, subscribes to and grafts whatever they subscribe to,
answers PRUNE with another GRAFT once the backoff is over, and gossips nothing.
What it receives it forwards at once to everybody that has not pruned it, if
``forwards`` says so. It keeps no router, so that hundreds of them cost little.
"""

from collections.abc import Callable, Sequence
from random import Random

from bruit.node.gossip.actions import Action, Connect, Lane, SendControl, SendMessage, SetTimer
from bruit.node.gossip.events import (
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Start,
    Timer,
    TimerFired,
)
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import message_frame
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, decode_message, id_from_origin

REGRAFT_BACKOFF = 60.0  # seconds from PRUNE to the next GRAFT (badboy.go)
REGRAFT_JITTER = 15.0  # seconds added at most (badboy.go)

_PUBLISH = b"\x12"  # how a frame of messages begins: field 2 of an RPC

# Whether to pass on a new message, given the time and the dice; None passes on nothing.
Forwards = Callable[[Message, float, Random], bool] | None


def with_probability(share: float) -> Forwards:
    """Forwards each message with probability ``share``, to everybody or to nobody."""
    return lambda message, now, dice: dice.random() < share


def all_but(author: PeerId) -> Forwards:
    """Forwards everything but what one author wrote."""
    return lambda message, now, dice: message.author != author


def until(time: float) -> Forwards:
    """Forwards everything like an honest peer until ``time``, and nothing afterwards."""
    return lambda message, now, dice: now < time


class Sybil:
    """One attacker. Dials ``victims`` at ``joins_at`` (seconds)."""

    def __init__(
        self,
        own_id: PeerId,
        dice: Random,
        victims: Sequence[PeerId],
        joins_at: float,
        forwards: Forwards,
    ) -> None:
        self._own_id = own_id
        self._dice = dice
        self._victims = victims
        self._joins_at = joins_at
        self._forwards = forwards
        self._connected: dict[PeerId, None] = {}
        self._mesh: dict[PeerId, None] = {}  # grafted, and not pruned since
        self._seen: dict[bytes, None] = {}
        self._regrafts: list[tuple[PeerId, str]] = []  # by the epoch of their timer

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case FrameReceived(peer, frame):
                if frame[:1] != _PUBLISH:
                    return self._on_control(peer, Rpc.FromString(frame), now)
                if self._forwards is not None:
                    return self._on_messages(peer, frame, self._forwards, now)
            case TimerFired(Timer("join")):
                return [Connect(victim, ()) for victim in self._victims]
            case TimerFired(Timer("regraft", number)):
                peer, topic = self._regrafts[number]
                return self._graft(peer, topic, subscribe=False)
            case PeerConnected(peer):
                self._connected[peer] = None
            case PeerDisconnected(peer):
                self._connected.pop(peer)
                self._mesh.pop(peer, None)
            case Start():
                return [SetTimer(Timer("join", 0), self._joins_at)]
            case _:
                pass
        return []

    def _on_control(self, peer: PeerId, rpc: Rpc, now: float) -> list[Action]:
        actions: list[Action] = []
        for subscription in rpc.subscriptions:
            if subscription.subscribe:
                actions += self._graft(peer, subscription.topic, subscribe=True)
        for prune in rpc.control.prune:
            self._mesh.pop(peer, None)
            again = now + REGRAFT_BACKOFF + self._dice.uniform(0, REGRAFT_JITTER)
            actions.append(SetTimer(Timer("regraft", len(self._regrafts)), again))
            self._regrafts.append((peer, prune.topic))
        if rpc.control.graft:
            self._mesh[peer] = None
        return actions

    def _graft(self, peer: PeerId, topic: str, subscribe: bool) -> list[Action]:
        if peer not in self._connected:
            return []
        rpc = Rpc()
        if subscribe:
            rpc.subscriptions.add(subscribe=True, topic=topic)
        rpc.control.graft.add(topic=topic)
        self._mesh[peer] = None
        return [SendControl(peer, rpc.SerializeToString())]

    def _on_messages(
        self,
        source: PeerId,
        frame: bytes,
        forwards: Callable[[Message, float, Random], bool],
        now: float,
    ) -> list[Action]:
        actions: list[Action] = []
        for raw in Rpc.FromString(frame).publish:
            message = decode_message(raw)
            message_id = id_from_origin(message)
            if message_id in self._seen:
                continue
            self._seen[message_id] = None
            if not forwards(message, now, self._dice):
                continue
            targets = tuple(peer for peer in self._mesh if peer not in (source, message.author))
            if targets:
                actions.append(SendMessage(targets, message_id, message_frame(raw), Lane.FORWARD))
        return actions
