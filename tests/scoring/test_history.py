"""Rows of history: what they say adds up to the score, and says what it was computed with."""

import msgspec

from bruit.scoring.history import PeerScoreRow, TopicScoreRow, rows
from bruit.scoring.params import params_hash
from bruit.topics.keys import peer_id_text
from tests.scoring.test_explanation import OTHER, PARAMS, PEER, THRESHOLDS, example

NOON = 1_700_000_000.0


def example_rows() -> tuple[list[PeerScoreRow], list[TopicScoreRow]]:
    scores = example()
    scores.disconnected(OTHER, 8.0)
    return rows(scores.snapshot(8.0), NOON, scores.params_hash)


def test_there_is_a_row_for_each_peer_and_for_each_topic_it_was_active_in() -> None:
    peers, topics = example_rows()
    assert [(row.peer, row.connected) for row in peers] == [
        (peer_id_text(PEER), True),
        (peer_id_text(OTHER), False),
    ]
    assert [(row.peer, row.topic) for row in topics] == [
        (peer_id_text(PEER), "/lux/mainnet/blocks")
    ]
    shared = [(peer.time, peer.params_hash) for peer in peers]
    shared += [(topic.time, topic.params_hash) for topic in topics]
    assert shared == [(NOON, params_hash(PARAMS, THRESHOLDS))] * 3


def test_the_rows_of_a_peer_add_up_to_its_score() -> None:
    peers, topics = example_rows()
    for row in topics:
        assert (row.p1 + row.p2 + row.p3 + row.p3b + row.p4) * row.topic_weight == row.contribution
    for peer in peers:
        contributions = [row.contribution for row in topics if row.peer == peer.peer]
        assert sum(contributions) == peer.topics_sum == peer.topics
        total = peer.topics + peer.app_specific + peer.ip_colocation
        assert total + peer.behaviour_penalty + peer.slow_peer == peer.score


def test_the_counters_behind_the_contributions_are_kept() -> None:
    peers, [topic] = example_rows()
    peer = peers[0]
    assert topic.in_mesh
    assert topic.mesh_message_deliveries_active
    assert topic.mesh_time == 8
    assert topic.first_message_deliveries == topic.mesh_message_deliveries == 1
    assert topic.mesh_failure_penalty == 0
    assert topic.invalid_message_deliveries == 1
    assert [topic.p1, topic.p2, topic.p3, topic.p3b, topic.p4] == [2, 2, -16, 0, -10]
    assert [peer.app_score, peer.colocated_excess] == [1.5, 1]
    assert [peer.behaviour_counter, peer.slow_counter] == [3, 2]
    assert peer.score == -19.5
    assert peer.below == ("gossip", "mesh")


def test_rows_are_plain_json_and_come_back_from_it() -> None:
    peers, topics = example_rows()
    assert msgspec.json.decode(msgspec.json.encode(peers), type=list[PeerScoreRow]) == peers
    assert msgspec.json.decode(msgspec.json.encode(topics), type=list[TopicScoreRow]) == topics
