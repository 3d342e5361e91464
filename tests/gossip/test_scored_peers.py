"""Router and scorer together: what peers do, what it costs them, and what follows from that.

Numbers are those of the tests of go-libp2p-pubsub, rust-libp2p, nim-libp2p and
js-libp2p that the docstrings name.
"""

from collections.abc import Callable

import pytest

from bruit.node.gossip.actions import Disconnect, Pruned, Rejected
from bruit.node.gossip.events import FramesDropped
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.sim import LinkModel, PeerStub, SimNetwork, SimNode, topologies
from bruit.scoring.params import PeerScoreParams, TopicScoreParams, decay_factor
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.message import SignaturePolicy
from bruit.topics.validation import ACCEPTED, Validation, ignore, reject
from tests.gossip.neighbourhood import (
    LATENCY,
    STEP,
    TOPIC,
    beating,
    ids,
    introduce,
    mesh,
    names,
    payloads,
)


class Scored:
    """A network whose nodes keep scores by ``params``; ``scores`` has the scorer of each."""

    def __init__(
        self, params: PeerScoreParams, thresholds: Thresholds, config: RouterConfig | None = None
    ) -> None:
        self.net = SimNetwork(seed=1, link=LinkModel(latency=LATENCY), keep_reports=True)
        self.scores: list[PeerScores] = []
        self._params, self._thresholds = params, thresholds
        self._config = config or beating()

    def add(self, count: int = 1) -> list[SimNode]:
        return self.net.add_nodes(
            count, config=self._config, scores=self._scorer, thresholds=self._thresholds
        )

    def _scorer(self) -> PeerScores:
        scorer = PeerScores(self._params, self._thresholds)
        self.scores.append(scorer)
        return scorer

    def score(self, node: SimNode, peer: SimNode) -> float:
        """What ``node`` thinks of ``peer``."""
        return self.scores[self.net.nodes.index(node)].score(peer.peer_id, self.net.now)


def facing_one(
    params: PeerScoreParams, thresholds: Thresholds, config: RouterConfig | None = None
) -> tuple[Scored, SimNode, PeerStub]:
    """A subscribed node, and a peer played by hand that is in its mesh."""
    scored = Scored(params, thresholds, config)
    (node,) = scored.add()
    scored.net.subscribe(node, TOPIC)
    (peer,) = introduce(scored.net, node, ["peer"])
    assert mesh(node) == ids([peer])
    return scored, node, peer


SPAM = Thresholds(gossip=-100, publish=-500, graylist=-1000)  # of go's spam tests


def test_an_ihave_spammer_is_asked_for_5000_ids_a_heartbeat_and_pays_for_what_it_owes() -> None:
    """go: TestGossipsubAttackSpamIHAVE: P7 of weight −1, 15,000 ids twice, follow-up in 10 s."""
    params = PeerScoreParams(behaviour_penalty_weight=-1, behaviour_penalty_decay=decay_factor(60))
    scored, node, attacker = facing_one(params, SPAM, beating(iwant_followup=10.0))
    net = scored.net

    def offer_15_000(start: int) -> int:
        """Ten frames of 1,500 ids; how many of them it is asked for."""
        attacker.forget()
        for frame in range(10):
            first = start + 1500 * frame
            attacker.ihave(node, TOPIC, *(b"%d" % n for n in range(first, first + 1500)))
        net.run_for(STEP)
        return sum(len(heard.entry.message_ids) for heard in attacker.heard("iwant"))

    net.run_until(3.25)
    assert offer_15_000(0) == 5000
    assert scored.score(node, attacker) == 0
    net.run_for(1.0)
    assert offer_15_000(15_000) == 5000
    assert scored.score(node, attacker) == 0
    net.run_for(12.0)
    assert scored.score(node, attacker) < 0


def test_grafts_during_backoff_are_answered_until_the_score_is_too_low_for_an_answer() -> None:
    """go: TestGossipsubAttackGRAFTDuringBackoff: backoff 200 ms, flood threshold 100 ms, P7 −100.

    Penalties of 1, 2 and 2 make −100, about −900 and about −2,500.
    """
    params = PeerScoreParams(
        behaviour_penalty_weight=-100, behaviour_penalty_decay=decay_factor(60)
    )
    config = beating(prune_backoff=0.2, graft_flood_threshold=0.1)
    scored, node, attacker = facing_one(params, SPAM, config)
    net = scored.net
    net.run_until(3.25)
    attacker.prune(node, TOPIC)
    net.run_for(0.121)
    answers, scores = [], []
    for _ in range(3):
        attacker.graft(node, TOPIC)
        net.run_for(2 * LATENCY)
        answers.append(len(attacker.heard("prune")))
        scores.append(scored.score(node, attacker))
    assert answers == [1, 2, 3]
    assert scores == [-100, -900, -2500]
    net.run_for(0.201)
    attacker.graft(node, TOPIC)
    net.run_for(1.0)
    assert len(attacker.heard("prune")) == 3
    assert mesh(node) == set()


def test_the_sooner_a_graft_after_a_prune_the_more_it_costs() -> None:
    """rust: test_scoring_p7_grafts_before_backoff: weight −2, decay .9; 50 and 150 ms of 200."""
    params = PeerScoreParams(behaviour_penalty_weight=-2, behaviour_penalty_decay=0.9)
    scored = Scored(params, Thresholds(), beating(prune_backoff=0.2, graft_flood_threshold=0.1))
    (node,) = scored.add()
    scored.net.subscribe(node, TOPIC)
    soon, later = introduce(scored.net, node, ["soon", "later"])
    scored.net.run_until(3.25)
    for peer in (soon, later):
        peer.prune(node, TOPIC)
    scored.net.run_for(0.05)
    soon.graft(node, TOPIC)
    scored.net.run_for(0.1)
    later.graft(node, TOPIC)
    scored.net.run_for(STEP)
    assert scored.score(node, soon) == 4 * -2
    assert scored.score(node, later) == 1 * -2
    scored.net.run_until(4.0)
    assert scored.score(node, soon) == pytest.approx(4 * -2 * 0.81)
    assert scored.score(node, later) == pytest.approx(1 * -2 * 0.81)


def test_a_hundred_unsigned_messages_end_the_place_in_the_mesh() -> None:
    """go: TestGossipsubAttackInvalidMessageSpam."""
    topic = TopicScoreParams(
        topic_weight=0.25,
        time_in_mesh_weight=0.0027,
        time_in_mesh_quantum=1.0,
        time_in_mesh_cap=3600,
        first_message_deliveries_weight=0.664,
        first_message_deliveries_decay=0.9916,
        first_message_deliveries_cap=1500,
        mesh_message_deliveries_weight=-0.25,
        mesh_message_deliveries_decay=0.97,
        mesh_message_deliveries_cap=400,
        mesh_message_deliveries_threshold=100,
        mesh_message_deliveries_activation=30.0,
        mesh_message_deliveries_window=300.0,
        mesh_failure_penalty_weight=-0.25,
        mesh_failure_penalty_decay=0.997,
        invalid_message_deliveries_weight=-99,
        invalid_message_deliveries_decay=0.9994,
    )
    params = PeerScoreParams(topics={TOPIC: topic}, decay_interval=5.0, retain_score=10.0)
    thresholds = Thresholds(gossip=-100, publish=-200, graylist=-300)
    scored, node, _ = facing_one(params, thresholds)
    net = scored.net
    attacker = net.add_peer_stub("attacker", policy=SignaturePolicy.STRICT_NO_SIGN)
    attacker.connect(node)
    net.run_for(STEP)
    attacker.subscribe(node, TOPIC)
    attacker.graft(node, TOPIC)
    net.run_for(STEP)
    assert scored.score(node, attacker) == 0
    for number in range(100):
        attacker.publish(node, attacker.author.write(TOPIC, b"unsigned %d" % number))
    net.run_for(STEP)
    assert scored.score(node, attacker) < 0
    rejected = [report for _, report in node.reports if isinstance(report, Rejected)]
    # One costs 99 · 0.25 · 1², the fourth brings −396: below the graylist nothing is looked at.
    assert len(rejected) == 4
    net.run_for(1.0)
    assert attacker.peer_id not in mesh(node)
    assert len(attacker.heard("prune")) == 1


def judging_by_content(topic: str, data: bytes) -> Validation:
    if data.startswith(b"early"):
        return ignore("too early")
    return reject("bad") if data.startswith(b"bad") else ACCEPTED


VALIDATED = RouterConfig(
    params=GossipParams(heartbeat_delay=1.0, heartbeat_interval=1.0),
    default_topic=TopicParams(validated=True),
)


def test_an_ignored_message_costs_nothing_and_a_rejected_one_does() -> None:
    """go, js: TestGossipsubScoreValidatorEx: three nodes, P4 of −1, decay .9999."""
    topic = TopicScoreParams(
        invalid_message_deliveries_weight=-1, invalid_message_deliveries_decay=0.9999
    )
    thresholds = Thresholds(gossip=-10, publish=-100, graylist=-10_000)
    scored = Scored(PeerScoreParams(topics={TOPIC: topic}), thresholds, VALIDATED)
    judge, ignored, rejected = scored.add(3)
    scored.net.connect_all([(0, 1), (0, 2), (1, 2)])
    scored.net.subscribe(judge, TOPIC)
    judge.set_validator(TOPIC, judging_by_content)
    scored.net.run_for(0.1)
    scored.net.publish(ignored, TOPIC, b"early bird")
    scored.net.publish(rejected, TOPIC, b"bad apple")
    scored.net.run_for(0.1)
    assert payloads(judge) == []
    assert scored.score(judge, ignored) == 0
    assert scored.score(judge, rejected) == -1


@pytest.mark.parametrize(
    ("honest", "squatters", "degree", "messages", "weights", "least"),
    [
        (10, 40, 5, 1000, (0.0002777, 1, 0.9997, 100), 3),
        (6, 14, 5, 300, (0.00002777, 100, 0.99997, 1000), 2),
    ],
    ids=["go", "js"],
)
def test_a_mesh_full_of_squatters_takes_in_peers_that_bring_something(
    honest: int,
    squatters: int,
    degree: int,
    messages: int,
    weights: tuple[float, float, float, float],
    least: int,
) -> None:
    """go: TestGossipsubOpportunisticGrafting; js: test gossipsub opportunistic grafting."""
    p1, p2, decay, cap = weights
    topic = TopicScoreParams(
        time_in_mesh_weight=p1,
        time_in_mesh_quantum=1.0,
        time_in_mesh_cap=3600,
        first_message_deliveries_weight=p2,
        first_message_deliveries_decay=decay,
        first_message_deliveries_cap=cap,
    )
    thresholds = Thresholds(gossip=-10, publish=-100, graylist=-10_000, opportunistic_graft=1)
    config = beating(
        prune_backoff=0.5,
        graft_flood_threshold=0.1,
        opportunistic_graft_ticks=2,
        flood_publish=True,
    )
    scored = Scored(PeerScoreParams(topics={TOPIC: topic}), thresholds, config)
    nodes = scored.add(honest)
    net = scored.net
    net.connect_all(topologies.sparse_random(honest, degree, net.rng))
    stubs = [net.add_peer_stub(name) for name in names("squatter", squatters)]
    for stub in stubs:
        for node in nodes:
            stub.connect(node)
    net.run_for(STEP)
    for stub in stubs:
        for node in nodes:
            stub.subscribe(node, TOPIC)
    net.run_for(1.0)
    net.subscribe_all(TOPIC)
    for stub in stubs:  # it grafts whoever grafts it, and never prunes
        for node in nodes:
            stub.graft(node, TOPIC)
    net.run_for(STEP)
    before = [len(mesh(node) & ids(nodes)) for node in nodes]
    assert min(before) < least  # otherwise nothing would be shown
    for number in range(messages):
        net.publish(nodes[number % honest], TOPIC, b"message %d" % number)
        net.run_for(0.02)
    net.run_for(7.0)
    assert all(len(mesh(node) & ids(nodes)) >= least for node in nodes)


def test_an_operator_sees_the_score_of_a_peer_grow_with_what_it_brings() -> None:
    """go: TestGossipsubPeerScoreInspect: 20 messages in turn, at least 9 after a second."""
    topic = TopicScoreParams(
        first_message_deliveries_weight=1,
        first_message_deliveries_decay=0.999,
        first_message_deliveries_cap=100,
        invalid_message_deliveries_weight=-1,
        invalid_message_deliveries_decay=0.9999,
    )
    thresholds = Thresholds(gossip=-1, publish=-10, graylist=-1000)
    scored = Scored(PeerScoreParams(topics={TOPIC: topic}), thresholds)
    one, two = nodes = scored.add(2)
    scored.net.connect(one, two)
    scored.net.subscribe_all(TOPIC)
    scored.net.run_for(1.0)
    for number in range(20):
        scored.net.publish(nodes[number % 2], TOPIC, b"message %d" % number)
        scored.net.run_for(0.02)
    scored.net.run_for(1.2)
    (explanation,) = scored.scores[0].snapshot(scored.net.now)
    assert explanation.peer == two.peer_id
    assert 9 <= explanation.score <= 10
    assert explanation.topics[0].first_message_deliveries == explanation.score


def test_topic_parameters_change_under_way_and_hold() -> None:
    """go: TestGossipsubPeerScoreResetTopicParams: the cap of P2 from 100 to 200."""

    def first_deliveries(cap: float) -> TopicScoreParams:
        return TopicScoreParams(
            first_message_deliveries_weight=1,
            first_message_deliveries_decay=0.999999,
            first_message_deliveries_cap=cap,
        )

    scored = Scored(PeerScoreParams(topics={TOPIC: first_deliveries(100)}), Thresholds())
    one, two = scored.add(2)
    scored.net.connect(one, two)
    scored.net.subscribe_all(TOPIC)
    scored.net.run_for(1.0)

    def publish(count: int) -> None:
        for number in range(count):
            scored.net.publish(two, TOPIC, b"%f %d" % (scored.net.now, number))
        scored.net.run_for(0.5)

    publish(150)
    assert scored.score(one, two) == pytest.approx(100, rel=1e-3)
    scored.scores[0].set_topic_params(TOPIC, first_deliveries(200), scored.net.now)
    publish(50)
    assert scored.score(one, two) == pytest.approx(150, rel=1e-3)


def slow_peers(weight: float) -> PeerScoreParams:
    return PeerScoreParams(slow_peer_weight=weight, slow_peer_threshold=0, slow_peer_decay=0.2)


def test_a_peer_whose_queue_is_full_is_scored_down() -> None:
    """rust: test_slow_peer_is_downscored_on_publish: weight −0.2, two messages lost."""
    scored, node, peer = facing_one(slow_peers(-0.2), Thresholds())
    for _ in range(2):
        scored.net.hand_in(node, FramesDropped(peer.peer_id, 1))
    assert scored.score(node, peer) == -0.2 * 2


def test_a_slow_peer_is_out_of_the_mesh_at_the_heartbeat() -> None:
    """nim: "Slow peer penalty can prune a peer on heartbeat": weight −10, counter 2."""
    scored, node, peer = facing_one(slow_peers(-10), Thresholds())
    scored.net.run_until(3.5)
    scored.net.hand_in(node, FramesDropped(peer.peer_id, 2))
    assert scored.score(node, peer) == -20
    scored.net.run_until(4.0)
    reasons = [report.reason for _, report in node.reports if isinstance(report, Pruned)]
    assert reasons == ["low score"]


def test_who_sends_invalid_messages_is_penalised_and_disconnected() -> None:
    """nim: "Nodes publishing invalid messages are penalised and disconnected": 5² · −10."""
    topic = TopicScoreParams(
        invalid_message_deliveries_weight=-10, invalid_message_deliveries_decay=0.9
    )
    thresholds = Thresholds(gossip=-1, publish=-150, graylist=-200, disconnect=-200)
    scored = Scored(PeerScoreParams(topics={TOPIC: topic}), thresholds, VALIDATED)
    judge, good, bad = scored.add(3)
    net = scored.net
    net.connect_all([(0, 1), (0, 2)])
    net.subscribe_all(TOPIC)
    judge.set_validator(TOPIC, judging_by_content)
    net.run_until(3.25)
    for number in range(5):
        net.publish(good, TOPIC, b"good %d" % number)
        net.publish(bad, TOPIC, b"bad %d" % number)
    net.run_for(STEP)
    assert scored.score(judge, bad) == -250
    assert scored.score(judge, good) == 0
    net.run_until(4.5)
    ends = [report.peer for _, report in judge.reports if isinstance(report, Disconnect)]
    assert ends == [bad.peer_id]
    assert not net.connected(judge, bad)
    net.connect(bad, judge)
    net.run_for(1.0)
    assert not net.connected(judge, bad)  # its score is remembered
    assert net.connected(judge, good)


def test_scores_outlive_a_peers_subscriptions() -> None:
    """nim: "Peers disconnections mechanics": ten nodes, two thirds of them leave and come back."""
    topic = TopicScoreParams(
        first_message_deliveries_weight=1,
        first_message_deliveries_decay=0.9999,
        first_message_deliveries_cap=1000,
    )
    scored = Scored(PeerScoreParams(topics={TOPIC: topic}), Thresholds())
    nodes = scored.add(10)
    net = scored.net
    net.connect_all([(a, b) for a in range(10) for b in range(a)])
    net.subscribe_all(TOPIC)
    net.run_for(2.0)
    for node in nodes:
        net.publish(node, TOPIC, b"by %s" % node.name.encode())
    net.run_for(0.5)

    def known() -> list[int]:
        return [len(scorer.snapshot(net.now)) for scorer in scored.scores]

    def positive(keep: Callable[[SimNode], bool]) -> list[bool]:
        return [scored.score(nodes[0], node) > 0 for node in nodes[1:] if keep(node)]

    assert known() == [9] * 10
    assert all(positive(lambda node: True))
    leaving = nodes[3:]
    for node in leaving:
        net.unsubscribe(node, TOPIC)
    net.run_for(5.0)
    assert known() == [9] * 10
    assert all(positive(lambda node: node in leaving))
    for node in leaving:
        net.subscribe(node, TOPIC)
    net.run_for(20.0)
    assert known() == [9] * 10
    assert all(positive(lambda node: True))
