"""Random histories: the arrays agree with the model, with themselves, and with their reasons."""

import random
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bruit.scoring.explanation import Explanation
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds
from tests.scoring.oracle import Oracle

PEERS = [f"peer {number}".encode() for number in range(6)]
TOPICS = ["blocks", "votes", "orphans", "uncounted"]
MESSAGES = [f"message {number}".encode() for number in range(8)]
ADDRESSES = [
    "",
    "/ip4/192.0.2.1/tcp/4001",
    "/ip4/192.0.2.2/tcp/4001",
    "/ip4/198.51.100.7/udp/4001/quic-v1",
    "/ip6/::ffff:192.0.2.1/tcp/4001",
    "/ip6/2001:db8::1/tcp/4001",
    "/ip6/2001:db8::2/tcp/4001",
    "/ip6zone/eth0/ip6/2001:db8::1/tcp/4001",
    "/ip4/127.0.0.1/tcp/4001",
    "/ip6/::1/tcp/4001",
    "/ip4/192.0.2.1/tcp/4001/p2p/QmRelay/p2p-circuit",
    "/dns4/node.example/tcp/4001",
]
# Around the window, the quantum, the activation, the retention and the life of a record
STEPS = [0.0, 0.01, 0.24, 0.25, 0.26, 1.0, 1.5, 3.0, 29.0, 61.0, 121.0]


def topic_params(
    negative: st.SearchStrategy[float],
    positive: st.SearchStrategy[float],
    decays: st.SearchStrategy[float],
) -> st.SearchStrategy[TopicScoreParams]:
    return st.builds(
        TopicScoreParams,
        topic_weight=positive,
        time_in_mesh_weight=positive,
        time_in_mesh_quantum=st.sampled_from([0.1, 0.25, 1.0]),
        time_in_mesh_cap=st.sampled_from([2.0, 3.5, 300.0]),
        first_message_deliveries_weight=positive,
        first_message_deliveries_decay=decays,
        first_message_deliveries_cap=st.sampled_from([1.0, 2.5, 50.0]),
        mesh_message_deliveries_weight=negative,
        mesh_message_deliveries_decay=decays,
        mesh_message_deliveries_cap=st.sampled_from([4.0, 20.0]),
        mesh_message_deliveries_threshold=st.sampled_from([1.0, 2.0, 3.5]),
        mesh_message_deliveries_window=st.sampled_from([0.0, 0.25, 1.0]),
        mesh_message_deliveries_activation=st.sampled_from([1.0, 2.5]),
        mesh_failure_penalty_weight=negative,
        mesh_failure_penalty_decay=decays,
        invalid_message_deliveries_weight=negative,
        invalid_message_deliveries_decay=decays,
    )


def peer_params(
    negative: st.SearchStrategy[float],
    positive: st.SearchStrategy[float],
    decays: st.SearchStrategy[float],
) -> st.SearchStrategy[PeerScoreParams]:
    topic = topic_params(negative, positive, decays)
    return st.builds(
        PeerScoreParams,
        topics=st.fixed_dictionaries({"blocks": topic, "votes": topic}),
        default_topic=st.none() | topic,
        topic_score_cap=st.sampled_from([0.0, 3.0]),
        app_specific_weight=positive,
        ip_colocation_factor_weight=negative,
        ip_colocation_factor_threshold=st.sampled_from([1, 2]),
        ip_colocation_factor_whitelist=st.sampled_from([(), ("192.0.2.2/32", "2001:db8::/48")]),
        behaviour_penalty_weight=negative,
        behaviour_penalty_threshold=st.sampled_from([0.0, 1.5]),
        behaviour_penalty_decay=decays,
        slow_peer_weight=negative,
        slow_peer_threshold=st.sampled_from([0.0, 1.0]),
        slow_peer_decay=decays,
        retain_score=st.sampled_from([0.0, 30.0, 300.0]),
        seen_message_ttl=st.sampled_from([60.0, 120.0]),
    )


# Sums of fractions of two are exact: model and arrays cannot part where a score nears 0.
EXACT = (
    st.sampled_from([0.0, -0.25, -1.0, -2.5]),
    st.sampled_from([0.0, 0.25, 1.0, 2.5]),
    st.sampled_from([0.5, 0.75]),
)
# Sums of these are not: what is added up otherwise comes out otherwise.
INEXACT = (st.floats(-3.0, -0.01), st.floats(0.01, 3.0), st.floats(0.3, 0.97))
peers = st.sampled_from(PEERS)
topics = st.sampled_from(TOPICS)
messages = st.sampled_from(MESSAGES)
steps = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from(STEPS)),
    st.tuples(st.just("refresh")),
    st.tuples(
        st.just("connected"),
        peers,
        st.lists(st.sampled_from(ADDRESSES), max_size=2).map(tuple),
    ),
    st.tuples(st.just("disconnected"), peers),
    st.tuples(st.just("grafted"), peers, topics),
    st.tuples(st.just("pruned"), peers, topics),
    st.tuples(st.just("validating"), messages),
    st.tuples(st.just("first_delivery"), peers, topics, messages),
    st.tuples(st.just("duplicate"), peers, topics, messages),
    st.tuples(st.just("refused"), peers, topics, messages, st.sampled_from(Refusal)),
    st.tuples(st.just("misbehaved"), peers, st.integers(1, 3)),
    st.tuples(st.just("slow"), peers, st.integers(1, 3)),
    st.tuples(st.just("set_app_score"), peers, st.sampled_from([-4.0, 0.0, 2.5])),
    st.tuples(st.just("set_topic_params"), topics, topic_params(*EXACT)),
)
Step = tuple[Any, ...]


class Pair:
    """The scores under test and the model, told the same."""

    def __init__(self, params: PeerScoreParams) -> None:
        self.scores = PeerScores(params, Thresholds())
        self.oracle = Oracle(params)
        self.now = 0.0
        for peer, address in zip(PEERS[:4], ADDRESSES[1:], strict=False):
            self.take(("connected", peer, (address,)))
            for topic in TOPICS:
                self.take(("grafted", peer, topic))
        self.take(("wait", 2.0))
        self.take(("refresh",))

    def take(self, step: Step) -> None:
        now = self.now
        match step:
            case ("wait", seconds):
                self.now = round(now + seconds, 6)
            case ("refresh",):
                self.scores.refresh(now)
                self.oracle.refresh(now)
            case ("connected", peer, addresses):
                self.scores.connected(peer, addresses, now)
                self.oracle.connected(peer, addresses)
            case ("misbehaved", peer, count):
                self.scores.misbehaved(peer, count, "a reason", now)
                self.oracle.misbehaved(peer, count)
            case ("pruned" | "slow" | "set_app_score" | "set_topic_params" as name, *what):
                getattr(self.scores, name)(*what, now)
                getattr(self.oracle, name)(*what)
            case (name, *what):
                getattr(self.scores, name)(*what, now)
                getattr(self.oracle, name)(*what, now)

    def compare(self) -> None:
        assert set(self.scores.peers) == set(self.oracle.peers)
        for peer in PEERS:
            expected = pytest.approx(self.oracle.score(peer), rel=1e-9, abs=1e-9)
            assert self.scores.score(peer, self.now) == expected, peer

    def recompute(self) -> None:
        """Have every score computed afresh, with whole arrays, as a refresh does."""
        topic = next(iter(self.scores.params.topics))
        self.scores.set_topic_params(topic, self.scores.params.topics[topic], self.now)

    def bits(self) -> list[str]:
        return [self.scores.score(peer, self.now).hex() for peer in PEERS]


def adds_up(explanation: Explanation) -> bool:
    """Whether the parts give the sums, to the bit, when folded in their order."""
    total = 0.0
    for topic in explanation.topics:
        score = topic.p1.value * topic.p1.weight
        for term in (topic.p2, topic.p3, topic.p3b, topic.p4):
            assert term.contribution == term.value * term.weight
            score += term.contribution
        assert score * topic.weight == topic.contribution
        total += topic.contribution
    assert total == explanation.topics_sum
    assert explanation.topics_capped <= total
    total = explanation.topics_capped
    total += explanation.app_specific.contribution
    total += explanation.ip_colocation.contribution
    total += explanation.behaviour_penalty.contribution
    total += explanation.slow_peer.contribution
    return total == explanation.score


histories = st.lists(steps, min_size=20, max_size=60)
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(peer_params(*EXACT), histories)
def test_after_every_event_every_score_is_the_models(
    params: PeerScoreParams, history: list[Step]
) -> None:
    pair = Pair(params)
    for step in history:
        pair.take(step)
        pair.compare()


@many
@given(peer_params(*INEXACT), histories)
def test_a_score_is_the_same_to_the_bit_however_it_is_computed(
    params: PeerScoreParams, history: list[Step]
) -> None:
    pair, unasked = Pair(params), Pair(params)
    for step in history:
        pair.take(step)
        unasked.take(step)
        asked = pair.bits()
        pair.recompute()
        assert pair.bits() == asked
    assert unasked.bits() == pair.bits()


@many
@given(peer_params(*INEXACT), histories)
def test_the_parts_of_an_explanation_add_up_to_the_score_to_the_bit(
    params: PeerScoreParams, history: list[Step]
) -> None:
    pair = Pair(params)
    for step in history:
        pair.take(step)
        for explanation in pair.scores.snapshot(pair.now):
            assert adds_up(explanation)
            assert explanation.score == pair.scores.score(explanation.peer, pair.now)


@pytest.mark.parametrize("seed", range(3))
def test_long_histories_stay_with_the_model(seed: int) -> None:
    rng = random.Random(seed)
    params = PeerScoreParams(
        topics={
            name: TopicScoreParams(
                topic_weight=0.5,
                time_in_mesh_weight=0.25,
                time_in_mesh_quantum=0.1,
                first_message_deliveries_weight=1.0,
                first_message_deliveries_cap=cap,
                mesh_message_deliveries_weight=-1.0,
                mesh_message_deliveries_threshold=4.0,
                mesh_message_deliveries_window=0.25,
                mesh_message_deliveries_activation=1.0,
                mesh_failure_penalty_weight=-0.5,
                invalid_message_deliveries_weight=-2.0,
            )
            for name, cap in (("blocks", 4.0), ("votes", 30.0), ("orphans", 2.5))
        },
        topic_score_cap=20.0,
        ip_colocation_factor_weight=-1.0,
        behaviour_penalty_weight=-1.0,
        slow_peer_weight=-0.25,
        retain_score=60.0,
    )
    pair = Pair(params)
    choices: list[tuple[int, Any]] = [
        (8, lambda: ("wait", rng.choice(STEPS[:7]))),
        (6, lambda: ("refresh",)),
        (2, lambda: ("connected", rng.choice(PEERS), rng.choice(ADDRESSES))),
        (1, lambda: ("disconnected", rng.choice(PEERS))),
        (4, lambda: ("grafted", rng.choice(PEERS), rng.choice(TOPICS))),
        (2, lambda: ("pruned", rng.choice(PEERS), rng.choice(TOPICS))),
        (4, lambda: ("validating", fresh())),
        (8, lambda: ("first_delivery", rng.choice(PEERS), rng.choice(TOPICS), fresh())),
        (9, lambda: ("duplicate", rng.choice(PEERS), rng.choice(TOPICS), fresh())),
        (2, lambda: ("refused", *trio(), rng.choice(list(Refusal)))),
        (1, lambda: ("misbehaved", rng.choice(PEERS), rng.randint(1, 3))),
        (1, lambda: ("slow", rng.choice(PEERS), rng.randint(1, 3))),
        (1, lambda: ("set_app_score", rng.choice(PEERS), rng.choice([-4.0, 2.5]))),
    ]
    taken = count()

    def fresh() -> bytes:
        return str(next(taken) // 5 + rng.randrange(3)).encode()

    def trio() -> Step:
        return rng.choice(PEERS), rng.choice(TOPICS), fresh()

    for _ in range(2000):
        [(_, make)] = rng.choices(choices, [weight for weight, _ in choices])
        pair.take(make())
        pair.compare()
