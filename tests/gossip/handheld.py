"""A router driven by hand: a test hands in each event and reads each list of actions.

Where timing, queues or several routers matter, use `bruit.node.sim.SimNetwork`;
here a test decides itself when a signature is checked and a verdict falls.
"""

import hashlib
from functools import cache
from random import Random
from typing import TypeVar

from bruit.node.gossip.actions import (
    Action,
    CheckSignature,
    Published,
    SendControl,
    SendMessage,
    SetTimer,
    Validate,
)
from bruit.node.gossip.events import (
    Event,
    FrameReceived,
    PeerConnected,
    Protocol,
    Publish,
    SignaturesChecked,
    Start,
    Subscribe,
    TimerFired,
    Validated,
)
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.node.gossip.router import Router
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import KeyType, PeerId, PrivateKey
from bruit.topics.message import Author, Message, SignaturePolicy, id_from_content, signature_valid
from bruit.topics.validation import ACCEPTED, Validation
from tests.gossip.neighbourhood import TOPIC
from tests.gossip.recording_scores import RecordingScores

Kind = TypeVar("Kind", bound=Action)

VALIDATED = RouterConfig(default_topic=TopicParams(validated=True))
UNSIGNED = RouterConfig(
    signature_policy=SignaturePolicy.STRICT_NO_SIGN,
    default_topic=TopicParams(message_id=id_from_content),
)


@cache
def key_of(name: str) -> PrivateKey:
    return PrivateKey(KeyType.ED25519, hashlib.sha256(name.encode()).digest())


@cache
def id_of(name: str) -> PeerId:
    return key_of(name).public_key().peer_id()


def of(actions: list[Action], kind: type[Kind]) -> list[Kind]:
    """The actions of one kind, in order."""
    return [action for action in actions if isinstance(action, kind)]


def told(actions: list[Action], peer: PeerId) -> Rpc:
    """Everything that the actions tell one peer by control frames, as one RPC."""
    rpc = Rpc()
    for action in of(actions, SendControl):
        if action.peer == peer:
            rpc.MergeFromString(action.frame)
    return rpc


def sent(actions: list[Action], peer: PeerId) -> list[bytes]:
    """The ids of the messages that the actions send to one peer."""
    return [action.message_id for action in of(actions, SendMessage) if peer in action.peers]


class Handheld:
    """A router at time ``now``, seconds. Signatures are checked at once unless ``hold`` is set."""

    def __init__(
        self,
        config: RouterConfig | None = None,
        thresholds: Thresholds | None = None,
        seed: int = 1,
    ) -> None:
        self.config = config or RouterConfig()
        self.scores = RecordingScores()
        self.own_id = id_of("own")
        self.router = Router(self.config, self.own_id, Random(seed), self.scores, thresholds)
        self.now = 0.0
        self.actions: list[Action] = []  # all so far
        self.hold = False  # whether signatures wait for `answer_signature`
        self._authors: dict[str, Author] = {}
        self._alarms: dict[str, SetTimer] = {}
        self._tickets = 0
        self.handle(Start())

    def handle(self, event: Event) -> list[Action]:
        """Everything that follows, signature checks answered unless they are held."""
        actions = self.router.handle(event, self.now)
        self.actions += actions
        for action in actions:
            if isinstance(action, SetTimer):
                self._alarms[action.timer.name] = action
        if not self.hold:
            for check in of(actions, CheckSignature):
                valid = signature_valid(check.message)
                actions += self.handle(SignaturesChecked(((check.ticket, valid),)))
        return actions

    def beat(self, times: int = 1) -> list[Action]:
        """Let ``times`` heartbeats pass, each at its time. Everything that follows."""
        actions = []
        for _ in range(times):
            actions += self.ring("heartbeat")
        return actions

    def ring(self, timer: str) -> list[Action]:
        """Let the timer of that name go off, at its time. Everything that follows."""
        alarm = self._alarms[timer]
        self.now = max(self.now, alarm.at)
        return self.handle(TimerFired(alarm.timer))

    def connect(
        self,
        name: str,
        *topics: str,
        protocol: Protocol = Protocol.GOSSIPSUB_12,
        outbound: bool = False,
    ) -> PeerId:
        """A peer of that name connects and subscribes."""
        self.handle(PeerConnected(id_of(name), protocol, outbound))
        if topics:
            self.receive(id_of(name), subscriptions(*topics))
        return id_of(name)

    def subscribe(self, topic: str) -> list[Action]:
        return self.handle(Subscribe(topic))

    def receive(self, peer: PeerId, frame: Rpc | bytes) -> list[Action]:
        raw = frame if isinstance(frame, bytes) else frame.SerializeToString()
        return self.handle(FrameReceived(peer, raw))

    def receive_message(self, peer: PeerId, *messages: Message | bytes) -> list[Action]:
        raws = [each if isinstance(each, bytes) else each.raw for each in messages]
        return self.receive(peer, Rpc(publish=raws))

    def write(self, author: str, topic: str, data: bytes) -> Message:
        """A message by the node of that name; ``own`` is the router's."""
        if author not in self._authors:
            policy = self.config.signature_policy
            self._authors[author] = Author(key_of(author), policy, first_seqno=1)
        return self._authors[author].write(topic, data)

    def publish(self, topic: str, data: bytes) -> tuple[Published, list[Action]]:
        """Publish a new message; the outcome, and everything that follows."""
        return self.publish_message(self.write("own", topic, data))

    def publish_message(self, message: Message) -> tuple[Published, list[Action]]:
        self._tickets += 1
        actions = self.handle(Publish(self._tickets, message, message.data))
        (outcome,) = of(actions, Published)
        assert outcome.ticket == self._tickets
        return outcome, actions

    def answer_signature(self, check: CheckSignature, valid: bool | None = None) -> list[Action]:
        """Answer a held check: truthfully, unless told otherwise."""
        if valid is None:
            valid = signature_valid(check.message)
        return self.handle(SignaturesChecked(((check.ticket, valid),)))

    def judge(self, validate: Validate, validation: Validation = ACCEPTED) -> list[Action]:
        return self.handle(Validated(validate.ticket, validation, validate.message.data))

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        return self.router.statistics().mesh.get(topic, ())

    def count(self, what: str) -> int:
        return self.router.statistics().counters.get(what, 0)


def subscriptions(*topics: str, wanted: bool = True) -> Rpc:
    rpc = Rpc()
    for topic in topics:
        rpc.subscriptions.add(subscribe=wanted, topic=topic)
    return rpc


def grafts(*topics: str) -> Rpc:
    rpc = Rpc()
    for topic in topics:
        rpc.control.graft.add(topic=topic)
    return rpc


def prunes(*topics: str, backoff: int | None = None) -> Rpc:
    rpc = Rpc()
    for topic in topics:
        rpc.control.prune.add(topic=topic, backoff=backoff)
    return rpc


def ihave(topic: str, *message_ids: bytes) -> Rpc:
    rpc = Rpc()
    rpc.control.ihave.add(topic=topic, message_ids=message_ids)
    return rpc


def iwant(*message_ids: bytes) -> Rpc:
    rpc = Rpc()
    rpc.control.iwant.add(message_ids=message_ids)
    return rpc


def idontwant(*message_ids: bytes) -> Rpc:
    rpc = Rpc()
    rpc.control.idontwant.add(message_ids=message_ids)
    return rpc


def between(
    config: RouterConfig | None = None, *topics: str
) -> tuple[Handheld, PeerId, PeerId, PeerId]:
    """A subscribed router with three peers in its mesh."""
    handheld = Handheld(config)
    for topic in topics or (TOPIC,):
        handheld.subscribe(topic)
    one, two, three = (
        handheld.connect(name, *topics or (TOPIC,)) for name in ("one", "two", "three")
    )
    return handheld, one, two, three


def judgements(handheld: Handheld) -> list[tuple[str, PeerId]]:
    return [(each.kind, each.peer) for each in handheld.scores.judged]
