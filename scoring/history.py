"""Score histories as rows: what is exported, and what jobs over past scores read.

Two kinds of rows, for every snapshot of a node: `PeerScoreRow` for each known peer
and `TopicScoreRow` for each topic in which something happened with it. Both hold the
raw counters as well as what they contribute, so that a score can be added up again,
or computed under other parameters:

- ``contribution`` of a topic is (p1 + p2 + p3 + p3b + p4) · topic_weight, in that order;
- ``score`` of a peer is topics + app_specific + ip_colocation + behaviour_penalty +
  slow_peer, in that order, where ``topics`` is the sum over its topics or the cap.

Both hold for the very bits. Rows of one snapshot share ``time`` and ``params_hash``.
"""

from collections.abc import Iterable

import msgspec

from bruit.scoring.explanation import Explanation, TopicExplanation
from bruit.topics.keys import peer_id_text

SCHEMA_VERSION = 1  # grows when a field changes its meaning or goes


class PeerScoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """One peer at one time."""

    time: float  # unix seconds
    peer: str  # peer id in base58
    connected: bool  # False: it left, and its score is remembered
    score: float
    # What the score is the sum of
    topics: float  # all topics, after the topic score cap
    app_specific: float  # P5
    ip_colocation: float  # P6
    behaviour_penalty: float  # P7
    slow_peer: float
    # Behind it
    topics_sum: float  # before the cap
    app_score: float  # what the application thinks of the peer
    colocated_excess: float  # excess peers at its addresses, squared and added up
    behaviour_counter: float  # protocol violations, decayed
    slow_counter: float  # frames dropped because it reads too slowly, decayed
    below: tuple[str, ...]  # thresholds: gossip, publish, mesh, graylist, disconnect
    params_hash: str  # `bruit.scoring.params.params_hash` of what it was computed with


class TopicScoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """One peer in one topic at one time."""

    time: float  # unix seconds
    peer: str  # peer id in base58
    topic: str
    in_mesh: bool
    mesh_time: float  # seconds in the mesh at the last refresh; 0 outside it
    mesh_message_deliveries_active: bool  # whether P3 applies
    # Counters, decayed
    first_message_deliveries: float  # messages
    mesh_message_deliveries: float  # messages
    mesh_failure_penalty: float  # messages missing when it left the mesh, squared
    invalid_message_deliveries: float  # messages
    # Weighted terms, before the topic weight
    p1: float  # time in mesh
    p2: float  # first message deliveries
    p3: float  # deficit of mesh message deliveries, squared
    p3b: float  # mesh failure penalty
    p4: float  # invalid message deliveries, squared
    topic_weight: float
    contribution: float  # to the score, before the topic score cap
    params_hash: str  # as in PeerScoreRow


def rows(
    snapshot: Iterable[Explanation], time: float, params_hash: str
) -> tuple[list[PeerScoreRow], list[TopicScoreRow]]:
    """The rows of a snapshot taken at ``time``, in unix seconds."""
    peers: list[PeerScoreRow] = []
    topics: list[TopicScoreRow] = []
    for each in snapshot:
        name = peer_id_text(each.peer)
        peers.append(_peer_row(each, time, name, params_hash))
        topics += (_topic_row(topic, time, name, params_hash) for topic in each.topics)
    return peers, topics


def _peer_row(each: Explanation, time: float, peer: str, params_hash: str) -> PeerScoreRow:
    return PeerScoreRow(
        time=time,
        peer=peer,
        connected=each.connected,
        score=each.score,
        **each.parts(),
        topics_sum=each.topics_sum,
        app_score=each.app_specific.value,
        colocated_excess=each.ip_colocation.value,
        behaviour_counter=each.behaviour_counter,
        slow_counter=each.slow_counter,
        below=each.below,
        params_hash=params_hash,
    )


def _topic_row(topic: TopicExplanation, time: float, peer: str, params_hash: str) -> TopicScoreRow:
    return TopicScoreRow(
        time=time,
        peer=peer,
        topic=topic.topic,
        in_mesh=topic.in_mesh,
        mesh_time=topic.mesh_time,
        mesh_message_deliveries_active=topic.mesh_message_deliveries_active,
        first_message_deliveries=topic.first_message_deliveries,
        mesh_message_deliveries=topic.mesh_message_deliveries,
        mesh_failure_penalty=topic.mesh_failure_penalty,
        invalid_message_deliveries=topic.invalid_message_deliveries,
        p1=topic.p1.contribution,
        p2=topic.p2.contribution,
        p3=topic.p3.contribution,
        p3b=topic.p3b.contribution,
        p4=topic.p4.contribution,
        topic_weight=topic.weight,
        contribution=topic.contribution,
        params_hash=params_hash,
    )
