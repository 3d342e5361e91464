"""Tables of counters grow, change hands and are used again without mixing anything up."""

import random

from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds

ONE_FOR_ONE = TopicScoreParams(
    first_message_deliveries_weight=1.0, first_message_deliveries_cap=1e9
)


def test_counters_stay_with_their_peer_and_topic_while_tables_grow() -> None:
    scores = PeerScores(PeerScoreParams(default_topic=ONE_FOR_ONE), Thresholds())
    topics = [f"topic {number}" for number in range(21)]
    counted = 0
    for number in range(70):
        peer = f"peer {number}".encode()
        scores.connected(peer, (), 0.0)
        for index, topic in enumerate(topics[: 1 + number % 21]):
            for _ in range(number + index):
                counted += 1
                scores.first_delivery(peer, topic, str(counted).encode(), 0.0)
    for number in range(70):
        explanation = scores.explain(f"peer {number}".encode(), 0.0)
        assert explanation is not None
        counters = {each.topic: each.first_message_deliveries for each in explanation.topics}
        expected = {topic: number + index for index, topic in enumerate(topics[: 1 + number % 21])}
        assert counters == {topic: count for topic, count in expected.items() if count}


def test_a_peer_that_takes_the_place_of_a_forgotten_one_starts_from_nothing() -> None:
    params = PeerScoreParams(
        default_topic=TopicScoreParams(
            first_message_deliveries_weight=1.0,
            time_in_mesh_weight=1.0,
            mesh_message_deliveries_weight=-1.0,
            mesh_message_deliveries_threshold=5.0,
            mesh_message_deliveries_activation=1.0,
            mesh_failure_penalty_weight=-1.0,
            invalid_message_deliveries_weight=-1.0,
        ),
        behaviour_penalty_weight=-1.0,
        slow_peer_weight=-1.0,
        ip_colocation_factor_weight=-1.0,
    )
    scores = PeerScores(params, Thresholds())
    scores.connected(b"old", ("/ip4/192.0.2.1/tcp/1",), 0.0)
    scores.connected(b"neighbour", ("/ip4/192.0.2.1/tcp/1",), 0.0)
    scores.grafted(b"old", "topic", 0.0)
    scores.refresh(10.0)
    scores.pruned(b"old", "topic", 10.0)
    scores.grafted(b"old", "topic", 10.0)
    scores.refresh(20.0)
    scores.refused(b"old", "topic", b"m", Refusal.FORGED, 20.0)
    scores.misbehaved(b"old", 1, "a reason", 20.0)
    scores.slow(b"old", 1, 20.0)
    scores.set_app_score(b"old", 1000.0, 20.0)
    assert scores.score(b"old", 20.0) > 0
    scores.disconnected(b"old", 20.0)
    scores.connected(b"new", ("/ip4/192.0.2.2/tcp/1",), 20.0)
    assert scores.score(b"new", 20.0) == 0
    scores.grafted(b"new", "topic", 20.0)
    scores.refresh(20.5)
    explanation = scores.explain(b"new", 20.5)
    assert explanation is not None
    [topic] = explanation.topics
    assert not topic.mesh_message_deliveries_active
    assert topic.mesh_time == 0.5
    assert explanation.score == 0


def test_many_peers_in_many_topics_score_the_same_by_row_and_as_a_table() -> None:
    rng = random.Random(1)
    topics = {
        f"topic {number}": TopicScoreParams(
            topic_weight=rng.random(),
            time_in_mesh_weight=rng.random(),
            time_in_mesh_quantum=0.1,
            first_message_deliveries_weight=rng.random(),
            first_message_deliveries_decay=0.9,
            mesh_message_deliveries_weight=-rng.random(),
            mesh_message_deliveries_decay=0.9,
            mesh_message_deliveries_threshold=3.0,
            mesh_message_deliveries_activation=1.0,
            mesh_failure_penalty_weight=-rng.random(),
            invalid_message_deliveries_weight=-rng.random(),
        )
        for number in range(50)
    }
    scores = PeerScores(PeerScoreParams(topics=topics), Thresholds())
    peers = [f"peer {number}".encode() for number in range(100)]
    names = list(topics)
    for peer in peers:
        scores.connected(peer, (), 0.0)
        for name in rng.sample(names, 30):
            scores.grafted(peer, name, 0.0)
    now = 0.0
    for _ in range(20):
        now += 1.1
        scores.refresh(now)
        for number in range(500):
            peer, name = rng.choice(peers), rng.choice(names)
            scores.first_delivery(peer, name, f"{now} {number}".encode(), now)
            scores.refused(rng.choice(peers), name, b"", Refusal.FORGED, now)
        by_row = [scores.score(peer, now).hex() for peer in peers]
        scores.set_topic_params(names[0], topics[names[0]], now)  # computes all afresh
        assert [scores.score(peer, now).hex() for peer in peers] == by_row
