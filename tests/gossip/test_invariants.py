"""What holds of a router whatever happens: random lives of one router among played peers.

The peers connect and leave, subscribe, talk sense and nonsense; signatures and
verdicts come late and in any order; queues overflow; scores change. After each
event everything that the router says and remembers is looked at.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bruit.node.gossip.actions import (
    Action,
    CancelQueued,
    CheckSignature,
    Connect,
    Deliver,
    PeerSubscribed,
    Published,
    SendControl,
    SendMessage,
    Validate,
)
from bruit.node.gossip.events import (
    AddDirectPeer,
    Event,
    FrameReceived,
    FramesDropped,
    PeerConnected,
    PeerDisconnected,
    PeerRenewed,
    Protocol,
    RecordLearnt,
    RemoveDirectPeer,
    Stop,
    Subscribe,
    Unsubscribe,
    Validated,
)
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import decode_frame
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, decode_message, id_from_content, id_from_origin
from bruit.topics.validation import ACCEPTED, Validation, ignore, reject
from tests.gossip.handheld import Handheld, id_of, of, told

PROTOCOLS = {
    id_of("peer 0"): Protocol.GOSSIPSUB_12,
    id_of("peer 1"): Protocol.GOSSIPSUB_12,
    id_of("peer 2"): Protocol.GOSSIPSUB_12,
    id_of("peer 3"): Protocol.GOSSIPSUB_11,
    id_of("peer 4"): Protocol.GOSSIPSUB_10,
    id_of("peer 5"): Protocol.FLOODSUB,
}
TOPICS = ("plain", "validated", "by content")
PARAMS = GossipParams(
    d=3,
    d_lo=2,
    d_hi=4,
    d_score=2,
    d_out=1,
    d_lazy=2,
    prune_backoff=3.0,
    unsubscribe_backoff=2.0,
    graft_flood_threshold=1.0,
    backoff_slack=1.0,
    opportunistic_graft_ticks=3,
    direct_connect_ticks=4,
    peer_exchange=True,
    fanout_ttl=5.0,
    iwant_followup=2.0,
    cache_bytes=2000,
    max_ihave_messages=3,
    max_ihave_length=4,
    max_idontwant_messages=3,
    idontwant_threshold=64,
    max_rpc_size=1024,
)
THRESHOLDS = Thresholds(gossip=-10, publish=-50, graylist=-80, accept_px=1, opportunistic_graft=5)
MAX_VALIDATING = 3

# Fifty messages, by peers and others; some forged, some on topics that nobody joins.
_writer = Handheld()
GENUINE = [
    _writer.write(f"peer {number % 8}", (*TOPICS, "unknown")[number % 4], bytes([number]) * size)
    for number in range(20)
    for size in (10, 100)
]
FORGED = [message.raw[:-1] + b"\x00" for message in GENUINE[:10]]
RAW = [message.raw for message in GENUINE] + FORGED
IDS = [id_from_origin(message) for message in GENUINE] + [id_from_content(m) for m in GENUINE]

known_peers = st.sampled_from(list(PROTOCOLS))
topics = st.sampled_from(TOPICS)
any_topics = st.sampled_from([*TOPICS, "unknown", "", "t" * 300, "a\nb"])
message_ids = st.lists(st.sampled_from([*IDS[::5], b"", b"x" * 300]), max_size=12)


@st.composite
def rpcs(draw: st.DrawFn) -> Rpc:
    """A frame that parses, of whatever a peer may think of."""
    rpc = Rpc()
    for _ in range(draw(st.integers(0, 2))):
        rpc.subscriptions.add(subscribe=draw(st.booleans()), topic=draw(any_topics))
    for raw in draw(st.lists(st.sampled_from(RAW), max_size=2)):
        rpc.publish.append(raw)
    for kind in draw(st.lists(st.sampled_from(["graft", "prune", "ihave", "iwant", "not"]))):
        match kind:
            case "graft":
                rpc.control.graft.add(topic=draw(any_topics))
            case "prune":
                entry = rpc.control.prune.add(topic=draw(any_topics))
                if draw(st.booleans()):
                    entry.backoff = draw(st.sampled_from([0, 1, 5, 2**63]))
                for peer in draw(st.lists(known_peers, max_size=2)):
                    entry.peers.add(peer_id=peer, signed_peer_record=b"record")
            case "ihave":
                rpc.control.ihave.add(topic=draw(any_topics), message_ids=draw(message_ids))
            case "iwant":
                rpc.control.iwant.add(message_ids=draw(message_ids))
            case _:
                rpc.control.idontwant.add(message_ids=draw(message_ids))
    return rpc


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame, often one that does not quite parse."""
    raw = draw(rpcs()).SerializeToString()
    match draw(st.sampled_from(["whole", "whole", "cut", "flipped", "garbage"])):
        case "cut":
            return raw[: draw(st.integers(0, len(raw)))]
        case "flipped" if raw:
            bit = draw(st.integers(0, 8 * len(raw) - 1))
            return raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :]
        case "garbage":
            return draw(st.binary(max_size=60))
        case _:
            return raw


class RouterLife(RuleBasedStateMachine):
    """The state beside the router is what its actions and the rules imply, nothing of its own."""

    @initialize(
        flood=st.booleans(),
        here=st.dictionaries(known_peers, st.tuples(st.booleans(), st.lists(topics, unique=True))),
        joined=st.lists(topics, unique=True),
    )
    def begin(
        self, flood: bool, here: dict[PeerId, tuple[bool, list[str]]], joined: list[str]
    ) -> None:
        config = RouterConfig(
            params=PARAMS if flood else without_flooding(PARAMS),
            topics={
                "validated": TopicParams(validated=True, max_validating=MAX_VALIDATING),
                "by content": TopicParams(message_id=id_from_content, max_message_size=200),
            },
        )
        self.handheld = Handheld(config, THRESHOLDS)
        self.handheld.hold = True
        self.connected: dict[PeerId, None] = {}
        self.joined: dict[str, None] = {}
        self.direct: dict[PeerId, None] = {}
        self.subscribed: dict[tuple[PeerId, str], None] = {}
        self.held_off: dict[tuple[PeerId, str], float] = {}  # until when nobody may graft
        self.checks: list[CheckSignature] = []
        self.verdicts: list[Validate] = []
        self.delivered: dict[bytes, None] = {}
        self.told: dict[PeerId, list[bytes]] = {}  # control frames
        for topic in joined:
            self.join(topic)
        for peer, (outbound, wanted) in here.items():
            self.connect(peer, outbound)
            for topic in wanted:
                self.tell_subscription(peer, topic, True)

    # What happens

    @rule(peer=known_peers, outbound=st.booleans())
    def connect(self, peer: PeerId, outbound: bool) -> None:
        if peer not in self.connected:
            self.connected[peer] = None
            self.do(PeerConnected(peer, PROTOCOLS[peer], outbound))

    @rule(peer=known_peers)
    def disconnect(self, peer: PeerId) -> None:
        self.connected.pop(peer, None)
        self.subscribed = {key: None for key in self.subscribed if key[0] != peer}
        self.told.pop(peer, None)
        self.do(PeerDisconnected(peer))

    @rule(peer=known_peers)
    def renew(self, peer: PeerId) -> None:
        self.do(PeerRenewed(peer))

    @rule(peer=known_peers, topic=topics, wanted=st.booleans())
    def tell_subscription(self, peer: PeerId, topic: str, wanted: bool) -> None:
        rpc = Rpc()
        rpc.subscriptions.add(subscribe=wanted, topic=topic)
        self.receive(peer, rpc)
        if peer in self.connected:
            assert ((peer, topic) in self.subscribed) == wanted

    @rule(peer=known_peers, rpc=rpcs())
    def talk_sense(self, peer: PeerId, rpc: Rpc) -> None:
        self.receive(peer, rpc)

    @rule(peer=known_peers, frame=frames())
    def talk_nonsense(self, peer: PeerId, frame: bytes) -> None:
        self.do(FrameReceived(peer, frame), heard_from=peer)

    @rule(peer=known_peers, number=st.integers(0, len(GENUINE) - 1))
    def bring_a_message(self, peer: PeerId, number: int) -> None:
        self.receive(peer, Rpc(publish=[GENUINE[number].raw]))

    @rule(topic=topics)
    def join(self, topic: str) -> None:
        self.joined[topic] = None
        self.do(Subscribe(topic))

    @rule(topic=topics)
    def leave(self, topic: str) -> None:
        self.joined.pop(topic, None)
        self.do(Unsubscribe(topic))

    @rule(topic=topics, size=st.sampled_from([10, 100]), letter=st.sampled_from(b"abc"))
    def publish(self, topic: str, size: int, letter: int) -> None:
        message = self.handheld.write("own", topic, bytes([letter]) * size)
        outcome, actions = self.handheld.publish_message(message)
        self.check(actions)
        assert [outcome] == of(actions, Published)

    @precondition(lambda self: self.checks)
    @rule(draw=st.data())
    def check_a_signature(self, draw: st.DataObject) -> None:
        check = self.checks.pop(draw.draw(st.integers(0, len(self.checks) - 1)))
        self.check(self.handheld.answer_signature(check))

    @precondition(lambda self: self.checks)
    @rule()
    def check_all_signatures(self) -> None:
        while self.checks:
            self.check(self.handheld.answer_signature(self.checks.pop(0)))

    @precondition(lambda self: self.verdicts)
    @rule(draw=st.data(), verdict=st.sampled_from([ACCEPTED, reject("bad"), ignore("early")]))
    def judge(self, draw: st.DataObject, verdict: Validation) -> None:
        validate = self.verdicts.pop(draw.draw(st.integers(0, len(self.verdicts) - 1)))
        self.do(Validated(validate.ticket, verdict, validate.message.data))

    @rule(times=st.integers(1, 4))
    def beat(self, times: int) -> None:
        for _ in range(times):
            self.check(self.handheld.beat())

    @precondition(lambda self: self.told)
    @rule(draw=st.data(), count=st.integers(1, 3))
    def lose_control_frames(self, draw: st.DataObject, count: int) -> None:
        peer = draw.draw(st.sampled_from(list(self.told)))
        self.do(FramesDropped(peer, count, tuple(self.told[peer][-count:])))

    @rule(peer=known_peers, score=st.sampled_from([-100.0, -60.0, -20.0, -1.0, 0.0, 3.0, 9.0]))
    def rate(self, peer: PeerId, score: float) -> None:
        self.handheld.scores.values[peer] = score

    @rule(peer=known_peers)
    def trust(self, peer: PeerId) -> None:
        self.direct[peer] = None
        self.do(AddDirectPeer(peer, ()))

    @rule(peer=known_peers)
    def trust_no_more(self, peer: PeerId) -> None:
        self.direct.pop(peer, None)
        self.do(RemoveDirectPeer(peer))

    @rule(peer=known_peers)
    def learn_a_record(self, peer: PeerId) -> None:
        self.do(RecordLearnt(peer, b"record of " + peer))

    # What follows

    def receive(self, peer: PeerId, rpc: Rpc) -> None:
        self.do(FrameReceived(peer, rpc.SerializeToString()), heard_from=peer)

    def do(self, event: Event, heard_from: PeerId | None = None) -> None:
        actions = self.handheld.handle(event)
        if heard_from in self.connected and isinstance(event, FrameReceived):
            self.note_backoffs_demanded(event)
        self.check(actions)

    def note_backoffs_demanded(self, event: FrameReceived) -> None:
        """A PRUNE that the router has to obey; of a peer that it listens to."""
        peer = event.peer
        graylisted = self.handheld.scores.values.get(peer, 0.0) < THRESHOLDS.graylist
        if PROTOCOLS[peer] is Protocol.FLOODSUB or (graylisted and peer not in self.direct):
            return
        try:
            rpc = decode_frame(event.frame)
        except RemoteError:
            return
        for prune in rpc.control.prune:
            if prune.topic in self.joined:
                self.hold_off(peer, prune.topic, prune.backoff or PARAMS.prune_backoff)

    def hold_off(self, peer: PeerId, topic: str, seconds: float) -> None:
        until = self.handheld.now + min(seconds, 3600.0)
        self.held_off[peer, topic] = max(until, self.held_off.get((peer, topic), 0.0))

    def check(self, actions: list[Action]) -> None:
        mesh = self.handheld.router.statistics().mesh
        self.checks += of(actions, CheckSignature)
        self.verdicts += of(actions, Validate)
        for action in actions:
            match action:
                case SendControl(peer, frame):
                    self.check_control(peer, frame, mesh)
                case SendMessage():
                    self.check_message(action)
                case CancelQueued(peer):
                    assert peer in self.connected
                case Connect(peer):
                    assert peer not in self.connected
                    assert peer != self.handheld.own_id
                case Deliver(message, message_id):
                    assert message.topic in self.joined
                    assert message_id not in self.delivered
                    self.delivered[message_id] = None
                case PeerSubscribed(peer, topic, wanted):
                    assert ((peer, topic) in self.subscribed) != wanted
                    if wanted:
                        self.subscribed[peer, topic] = None
                    else:
                        del self.subscribed[peer, topic]
                case _:
                    pass

    def check_control(
        self, peer: PeerId, frame: bytes, mesh: dict[str, tuple[PeerId, ...]]
    ) -> None:
        assert peer in self.connected
        self.told.setdefault(peer, []).append(frame)
        rpc = decode_frame(frame)
        control = rpc.control
        assert frame
        assert len(frame) <= PARAMS.max_rpc_size
        assert not rpc.publish
        assert PROTOCOLS[peer].has_mesh or not rpc.HasField("control")
        assert PROTOCOLS[peer].has_idontwant or not control.idontwant
        for subscription in rpc.subscriptions:
            assert subscription.subscribe == (subscription.topic in self.joined)
        for graft in control.graft:
            assert peer in mesh[graft.topic]
            assert self.handheld.now >= self.held_off.get((peer, graft.topic), 0.0)
        for prune in control.prune:
            assert peer not in mesh.get(prune.topic, ())
            assert {offered.peer_id for offered in prune.peers} <= {*self.connected} - {peer}
            if peer not in self.direct:
                self.hold_off(peer, prune.topic, prune.backoff)
        for ihave in control.ihave:
            assert peer not in mesh.get(ihave.topic, ())
            assert peer not in self.direct
            assert (peer, ihave.topic) in self.subscribed
        assert sum(len(entry.message_ids) for entry in control.idontwant) <= 10
        assert len(control.iwant) <= 1
        assert all(len(entry.message_ids) <= PARAMS.max_ihave_length for entry in control.iwant)
        assert all(len(entry.message_ids) <= PARAMS.max_ihave_length for entry in control.ihave)

    def check_message(self, send: SendMessage) -> None:
        assert send.peers
        assert max(Counter(send.peers).values()) == 1
        assert {*send.peers} <= {*self.connected}
        (raw,) = Rpc.FromString(send.frame).publish
        message: Message = decode_message(raw)
        requested = len(send.peers) == 1  # perhaps an answer to IWANT, which anybody may send
        assert requested or message.author not in send.peers

    # What holds

    @invariant()
    def who_is_connected_and_subscribed_is_known(self) -> None:
        statistics = self.handheld.router.statistics()
        assert {*statistics.peers} == {*self.connected} == {*self.handheld.scores.here}
        known = {(peer, topic) for topic, all_ in statistics.subscribers.items() for peer in all_}
        assert known == {*self.subscribed}

    @invariant()
    def a_mesh_holds_connected_subscribers_that_speak_it_and_are_not_direct(self) -> None:
        statistics = self.handheld.router.statistics()
        assert {*statistics.mesh} == {*self.joined}
        members = [(peer, topic) for topic, peers in statistics.mesh.items() for peer in peers]
        assert len({*members}) == len(members)
        for peer, topic in members:
            assert (peer, topic) in self.subscribed
            assert PROTOCOLS[peer].has_mesh
            assert peer not in self.direct
        assert {*members} == {*self.handheld.scores.meshes}

    @invariant()
    def a_fanout_holds_at_most_d_subscribers_of_a_topic_that_we_are_not_in(self) -> None:
        for topic, peers in self.handheld.router.statistics().fanout.items():
            assert topic not in self.joined
            assert len(peers) <= PARAMS.d
            for peer in peers:
                assert (peer, topic) in self.subscribed
                assert PROTOCOLS[peer].has_mesh

    @invariant()
    def memory_is_bounded(self) -> None:
        statistics = self.handheld.router.statistics()
        assert statistics.cached_bytes <= PARAMS.cache_bytes
        assert statistics.pending == len(self.checks) + len(self.verdicts)
        assert sum(validate.message.topic == "validated" for validate in self.verdicts) <= 3
        assert statistics.backoffs <= len(TOPICS) * len(PROTOCOLS)
        # 3 frames a heartbeat and peer, each good for one promise of 2 s: 4 heartbeats.
        assert statistics.promises <= 3 * 4 * len(PROTOCOLS)

    def teardown(self) -> None:
        """When all is answered and time goes by, all that was remembered is forgotten."""
        if not hasattr(self, "handheld"):
            return
        while self.checks:
            self.check(self.handheld.answer_signature(self.checks.pop()))
        while self.verdicts:
            validate = self.verdicts.pop()
            self.do(Validated(validate.ticket, ACCEPTED, validate.message.data))
        for topic in list(self.joined):
            del self.joined[topic]
            self.do(Unsubscribe(topic))
        self.do(Stop())
        assert self.handheld.router.statistics().mesh == {}
        assert self.handheld.router.statistics().pending == 0
        for peer in list(self.connected):
            self.disconnect(peer)
        assert self.handheld.router.statistics().subscribers == {}


def without_flooding(params: GossipParams) -> GossipParams:
    values = {name: getattr(params, name) for name in params.__struct_fields__}
    return GossipParams(**(values | {"flood_publish": False}))


def test_a_router_keeps_its_invariants_whatever_happens() -> None:
    run_state_machine_as_test(
        RouterLife, settings=settings(max_examples=120, stateful_step_count=60, deadline=None)
    )


# What random lives have found


def test_a_prune_that_was_lost_and_is_repeated_holds_both_sides_off_from_then_on() -> None:
    """Backoffs of 10 s; beats at 0.1 s, 0.95 s, …, of which the 15th, at 12 s, forgets old ones.

    The PRUNE of 1.85 s is lost and repeated at 2.65 s, so that the peer counts to 12.65 s.
    """
    params = GossipParams(backoff_slack=0.0, heartbeat_interval=0.85)
    handheld = Handheld(RouterConfig(params=params))
    handheld.subscribe("plain")
    peer = handheld.connect("peer", "plain")
    handheld.beat(3)
    handheld.now = 1.85
    left = handheld.handle(Unsubscribe("plain"))
    frames = tuple(action.frame for action in of(left, SendControl))
    handheld.handle(FramesDropped(peer, len(frames), frames))
    again = told(handheld.beat(), peer)
    assert [prune.backoff for prune in again.control.prune] == [10]
    assert handheld.now == pytest.approx(2.65)
    assert not told(handheld.subscribe("plain"), peer).control.graft
    while not told(handheld.beat(), peer).control.graft:
        assert handheld.now < 60.0
    assert handheld.now >= 12.65
