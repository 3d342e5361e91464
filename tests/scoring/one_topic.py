"""Scores of peers in one topic, for tests that follow the tests of other implementations."""

from typing import Any

from bruit.scoring.explanation import TopicExplanation
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import PeerId

TOPIC = "mytopic"
A, B, C, D = b"A", b"B", b"C", b"D"


def scores_of(topic: dict[str, Any], **peer: Any) -> PeerScores:
    """Scores with these parameters, and all others at their defaults, which are off."""
    params = PeerScoreParams(topics={TOPIC: TopicScoreParams(**topic)}, **peer)
    return PeerScores(params, Thresholds())


def in_mesh(scores: PeerScores, *peers: PeerId, now: float = 0.0) -> None:
    for peer in peers:
        scores.connected(peer, (), now)
        scores.grafted(peer, TOPIC, now)


def deliver(scores: PeerScores, peer: PeerId, message_id: bytes, now: float) -> None:
    """A message of the peer is judged at once, and is valid."""
    scores.validating(message_id, now)
    scores.first_delivery(peer, TOPIC, message_id, now)


def deliver_many(scores: PeerScores, peer: PeerId, count: int, now: float, name: str = "") -> None:
    for number in range(count):
        deliver(scores, peer, f"{name}{number}".encode(), now)


def stats(scores: PeerScores, peer: PeerId) -> TopicExplanation:
    explanation = scores.explain(peer, 0.0)
    assert explanation is not None
    [topic] = explanation.topics
    return topic
