"""An explanation shows what the number hides, and reads well."""

from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds

PEER, OTHER = b"peer", b"other"
PARAMS = PeerScoreParams(
    topics={
        "/lux/mainnet/blocks": TopicScoreParams(
            topic_weight=0.5,
            time_in_mesh_weight=0.25,
            first_message_deliveries_weight=2.0,
            mesh_message_deliveries_weight=-1.0,
            mesh_message_deliveries_threshold=5.0,
            mesh_failure_penalty_weight=-1.0,
            invalid_message_deliveries_weight=-10.0,
        ),
        "quiet": TopicScoreParams(),
    },
    topic_score_cap=100.0,
    ip_colocation_factor_weight=-5.0,
    behaviour_penalty_weight=-1.0,
    behaviour_penalty_threshold=1.0,
    slow_peer_weight=-0.5,
)
THRESHOLDS = Thresholds(gossip=-10.0, publish=-50.0, graylist=-60.0, disconnect=-80.0)


def example() -> PeerScores:
    scores = PeerScores(PARAMS, THRESHOLDS)
    for peer in (PEER, OTHER):
        scores.connected(peer, ("/ip4/192.0.2.1/tcp/4001",), 0.0)
    scores.grafted(PEER, "/lux/mainnet/blocks", 0.0)
    scores.refresh(8.0)
    scores.validating(b"m", 8.0)
    scores.first_delivery(PEER, "/lux/mainnet/blocks", b"m", 8.0)
    scores.refused(PEER, "/lux/mainnet/blocks", b"n", Refusal.FORGED, 8.0)
    scores.misbehaved(PEER, 3, "broken promise", 8.0)
    scores.slow(PEER, 2, 8.0)
    scores.set_app_score(PEER, 1.5, 8.0)
    return scores


def test_every_term_is_shown_with_its_value_and_weight() -> None:
    explanation = example().explain(PEER, 8.0)
    assert explanation is not None
    [topic] = explanation.topics  # nothing happened in the other
    assert (topic.topic, topic.in_mesh, topic.mesh_time) == ("/lux/mainnet/blocks", True, 8.0)
    assert topic.mesh_message_deliveries_active
    terms = [(term.value, term.weight) for term in (topic.p1, topic.p2, topic.p3, topic.p3b)]
    assert terms == [(8.0, 0.25), (1.0, 2.0), (16.0, -1.0), (0.0, -1.0)]
    assert (topic.p4.value, topic.p4.contribution) == (1.0, -10.0)
    assert topic.contribution == (2 + 2 - 16 - 10) * 0.5 == -11
    assert (explanation.topics_sum, explanation.topics_capped) == (-11, -11)
    assert explanation.app_specific.contribution == 1.5
    assert explanation.ip_colocation.contribution == -5
    assert [(each.address, each.peers) for each in explanation.addresses] == [("192.0.2.1", 2)]
    assert (explanation.behaviour_counter, explanation.behaviour_penalty.value) == (3, 4)
    assert (explanation.slow_counter, explanation.slow_peer.contribution) == (2, -1)
    assert explanation.score == -11 + 1.5 - 5 - 4 - 1 == -19.5


def test_the_thresholds_that_a_score_is_below_are_named() -> None:
    scores = example()
    for value, below in (
        (31.5, ()),
        (21.0, ()),
        (20.9, ("mesh",)),
        (10.9, ("gossip", "mesh")),
        (-30.0, ("gossip", "publish", "mesh")),
        (-40.0, ("gossip", "publish", "mesh", "graylist")),
        (-1000.0, ("gossip", "publish", "mesh", "graylist", "disconnect")),
    ):
        scores.set_app_score(PEER, value, 8.0)
        explanation = scores.explain(PEER, 8.0)
        assert explanation is not None
        assert explanation.below == below


def test_a_snapshot_has_every_known_peer_those_who_left_last() -> None:
    scores = example()
    scores.disconnected(PEER, 9.0)
    snapshot = scores.snapshot(9.0)
    assert [(each.peer, each.connected) for each in snapshot] == [(OTHER, True), (PEER, False)]


def test_the_lines_make_a_table_that_is_read_from_left_to_right() -> None:
    explanation = example().explain(PEER, 8.0)
    assert explanation is not None
    assert explanation.lines("12D3…vz") == [
        "12D3…vz: score -19.5, connected, below gossip, mesh",
        "                             value  weight  score",
        "/lux/mainnet/blocks                    0.5    -11  in the mesh for 8 s",
        "  P1 time in mesh                8    0.25      2",
        "  P2 first deliveries            1       2      2",
        "  P3 mesh delivery deficit²     16      -1    -16  1 delivered",
        "  P3b mesh failures              0      -1      0",
        "  P4 invalid messages²           1     -10    -10  1 invalid",
        "topics                         -11            -11",
        "P5 application                 1.5       1    1.5",
        "P6 shared addresses              1      -5     -5  2 at 192.0.2.1",
        "P7 misbehaviour²                 4      -1     -4  3 violations",
        "slow peer                        2    -0.5     -1  2 dropped",
        "score                                       -19.5",
    ]


def test_a_cap_is_said_to_have_cut_the_sum() -> None:
    scores = PeerScores(PARAMS, THRESHOLDS)
    scores.connected(PEER, (), 0.0)
    for number in range(100):
        scores.first_delivery(PEER, "/lux/mainnet/blocks", str(number).encode(), 0.0)
    scores.set_topic_params(
        "/lux/mainnet/blocks", TopicScoreParams(first_message_deliveries_weight=2.0), 0.0
    )
    explanation = scores.explain(PEER, 0.0)
    assert explanation is not None
    assert (explanation.topics_sum, explanation.topics_capped) == (200, 100)
    assert explanation.score == 100
    [line] = [line for line in explanation.lines("peer") if line.startswith("topics")]
    assert line.split() == ["topics", "200", "100", "capped"]
    assert explanation.lines("peer")[0] == "peer: score 100, connected, below no threshold"
