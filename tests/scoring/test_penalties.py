"""P4 to P7, slow peers, remembered scores and new parameters, with the numbers of go and rust.

Where those switch decay off, by a factor of 1 that no check accepts, scores are
asked before the refresh.
"""

import math
from collections.abc import Callable

import pytest

from bruit.scoring.counters import MAX_UNNAMED_TOPICS
from bruit.scoring.params import TopicScoreParams
from bruit.scoring.peer_scores import MAX_RETAINED, PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError, LocalError
from tests.scoring.one_topic import (
    TOPIC,
    A,
    B,
    C,
    D,
    deliver,
    deliver_many,
    in_mesh,
    scores_of,
    stats,
)

GO_P4 = {"invalid_message_deliveries_weight": -1.0, "invalid_message_deliveries_decay": 0.9}
RUST_P4 = {
    "topic_weight": 0.7,
    "invalid_message_deliveries_weight": -2.0,
    "invalid_message_deliveries_decay": 0.9,
}
STRANGER = b"stranger"


def score_list(scores: PeerScores, *peers: bytes) -> list[float]:
    return [scores.score(peer, 0.0) for peer in peers]


# P4


def test_a_hundred_forged_messages_cost_their_square() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    for number in range(100):
        scores.refused(A, TOPIC, str(number).encode(), Refusal.FORGED, 0.0)
    assert scores.score(A, 0.0) == -10_000
    assert scores.statistics().deliveries == 0  # their ids may be another's


def test_invalid_messages_decay_before_they_are_squared() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    for number in range(100):
        scores.refused(A, TOPIC, str(number).encode(), Refusal.FORGED, 0.0)
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == -8100
    left = 90.0
    for tick in range(10):
        scores.refresh(2.0 + tick)
        left *= 0.9
    assert scores.score(A, 11.0) == -(left**2)


@pytest.mark.parametrize("refusal", [Refusal.BANNED, Refusal.QUEUE_FULL])
def test_what_was_never_judged_is_held_against_nobody_and_leaves_no_record(
    refusal: Refusal,
) -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A, B)
    scores.refused(A, TOPIC, b"m", refusal, 0.0)
    assert scores.statistics().deliveries == 0
    scores.duplicate(B, TOPIC, b"m", 0.0)
    assert score_list(scores, A, B) == [0, 0]


@pytest.mark.parametrize("refusal", [Refusal.THROTTLED, Refusal.IGNORED])
def test_what_was_let_go_is_held_against_nobody_for_good(refusal: Refusal) -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A, B, C)
    scores.validating(b"m", 0.0)
    scores.duplicate(C, TOPIC, b"m", 0.0)
    scores.refused(A, TOPIC, b"m", refusal, 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)  # too late
    assert score_list(scores, A, B, C) == [0, 0, 0]


def test_an_invalid_message_is_held_against_all_who_send_it_whenever_they_do() -> None:
    """go-libp2p-pubsub's TestScoreRejectMessageDeliveries, the record expired between its parts."""
    scores = scores_of({**GO_P4, "invalid_message_deliveries_decay": 0.99}, decay_interval=1000.0)
    for peer in (A, B):
        scores.connected(peer, (), 0.0)
    scores.validating(b"m", 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.0)
    assert score_list(scores, A, B) == [-1, -1]
    scores.validating(b"again", 0.0)
    scores.duplicate(B, TOPIC, b"again", 0.0)
    scores.refused(A, TOPIC, b"again", Refusal.INVALID, 0.0)
    assert score_list(scores, A, B) == [-4, -4]


def test_an_invalid_message_counts_once_for_a_sender_that_sent_copies_of_it() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    scores.validating(b"m", 0.0)
    for _ in range(3):
        scores.duplicate(A, TOPIC, b"m", 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    assert scores.score(A, 0.0) == -1


def test_every_copy_of_a_message_that_is_known_to_be_invalid_counts() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    scores.duplicate(A, TOPIC, b"m", 0.0)
    scores.duplicate(A, TOPIC, b"m", 0.0)
    assert scores.score(A, 0.0) == -9


def test_a_message_rejected_twice_counts_once() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    assert scores.score(A, 0.0) == -1


def test_leaving_before_the_verdict_does_not_help() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    scores.validating(b"m", 0.0)
    scores.disconnected(A, 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.1)
    assert scores.score(A, 0.1) == -1


def test_a_valid_message_costs_nothing_before_and_after_it_is_judged() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A)
    scores.validating(b"m", 0.0)
    assert scores.score(A, 0.0) == 0
    scores.first_delivery(A, TOPIC, b"m", 0.0)
    assert scores.score(A, 0.0) == 0


def test_one_forged_message_costs_one() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.FORGED, 0.0)
    assert scores.score(A, 0.0) == -2 * 0.7


def test_an_ignored_message_costs_nothing() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A)
    scores.validating(b"m", 0.0)
    scores.refused(A, TOPIC, b"m", Refusal.IGNORED, 0.0)
    assert scores.score(A, 0.0) == 0


def test_a_rejected_message_costs_from_the_verdict_on() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A, B)
    scores.validating(b"m", 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.0)
    assert score_list(scores, A, B) == [0, 0]
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    assert score_list(scores, A, B) == [-2 * 0.7, -2 * 0.7]


def test_three_rejected_messages_cost_nine() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A)
    for message_id in (b"1", b"2", b"3"):
        scores.refused(A, TOPIC, message_id, Refusal.INVALID, 0.0)
    assert scores.score(A, 0.0) == 9 * -2 * 0.7


def test_one_rejected_message_costs_less_after_a_refresh() -> None:
    scores = scores_of(RUST_P4)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == pytest.approx(0.9 * 0.9 * -2 * 0.7, rel=1e-12)


# The sum over topics


def test_all_topics_together_add_no_more_than_the_cap_but_may_take_away_any_amount() -> None:
    scores = scores_of({"first_message_deliveries_weight": 1.0, **GO_P4}, topic_score_cap=5.0)
    in_mesh(scores, A, B)
    scores.set_app_score(A, 3.0, 0.0)
    deliver_many(scores, A, 20, 0.0)
    assert scores.score(A, 0.0) == 5 + 3
    for number in range(10):
        scores.refused(B, TOPIC, str(number).encode(), Refusal.FORGED, 0.0)
    assert scores.score(B, 0.0) == -100


def test_topics_that_are_not_named_count_by_the_default_where_there_is_one() -> None:
    default = TopicScoreParams(topic_weight=0.5, first_message_deliveries_weight=1.0)
    scores = scores_of({"first_message_deliveries_weight": 1.0}, default_topic=default)
    in_mesh(scores, A)
    deliver(scores, A, b"m", 0.0)
    scores.first_delivery(A, "another", b"n", 0.0)
    scores.first_delivery(A, "a third", b"o", 0.0)
    assert scores.score(A, 0.0) == 1 + 0.5 + 0.5


def test_topics_that_count_by_the_default_are_bounded_in_number_and_named_ones_are_not() -> None:
    by_default = TopicScoreParams(first_message_deliveries_weight=1.0)
    scores = scores_of({"first_message_deliveries_weight": 1.0}, default_topic=by_default)
    scores.connected(A, (), 0.0)
    for number in range(MAX_UNNAMED_TOPICS + 5):
        scores.first_delivery(A, f"topic {number}", str(number).encode(), 0.0)
    assert scores.score(A, 0.0) == MAX_UNNAMED_TOPICS
    scores.first_delivery(A, TOPIC, b"m", 0.0)
    assert scores.score(A, 0.0) == MAX_UNNAMED_TOPICS + 1
    scores.set_topic_params("topic 0", by_default, 0.0)  # named now: room for another
    scores.set_topic_params("topic 0", by_default, 0.0)
    for message_id in (b"x", b"y"):
        scores.first_delivery(A, f"topic {message_id!r}", message_id, 0.0)
    assert scores.score(A, 0.0) == MAX_UNNAMED_TOPICS + 2


# P5


def test_the_application_score_counts_by_its_weight() -> None:
    scores = scores_of({}, app_specific_weight=0.5)
    in_mesh(scores, A)
    for value in range(-100, 100):
        scores.set_app_score(A, float(value), 0.0)
        scores.refresh(0.0)
        assert scores.score(A, 0.0) == value * 0.5
    scores = scores_of({}, app_specific_weight=2.0)
    in_mesh(scores, A)
    scores.set_app_score(A, 1.1, 0.0)
    assert scores.score(A, 0.0) == 1.1 * 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_application_score_that_is_no_number_is_the_callers_mistake(value: float) -> None:
    scores = scores_of({})
    in_mesh(scores, A)
    scores.set_app_score(A, 2.0, 0.0)
    with pytest.raises(LocalError, match="finite"):
        scores.set_app_score(A, value, 0.0)
    assert scores.score(A, 0.0) == 2


# P6


def at(ip: str) -> str:
    return f"/ip4/{ip}/tcp/4001"


def place_as_in_go(scores: PeerScores) -> None:
    """One peer has two addresses, one of which it shares with two others."""
    scores.connected(A, (at("1.2.3.4"),), 0.0)
    scores.connected(B, (at("2.3.4.5"),), 0.0)
    scores.connected(C, (at("2.3.4.5"), at("3.4.5.6")), 0.0)
    scores.connected(D, (at("2.3.4.5"),), 0.0)


def test_peers_that_share_an_address_pay_for_every_one_beyond_the_threshold() -> None:
    scores = scores_of({}, ip_colocation_factor_weight=-1.0)
    place_as_in_go(scores)
    assert score_list(scores, A, B, C, D) == [0, -4, -4, -4]
    scores.refresh(1.0)
    assert score_list(scores, A, B, C, D) == [0, -4, -4, -4]


def test_addresses_in_a_whitelisted_block_may_be_shared() -> None:
    scores = scores_of(
        {}, ip_colocation_factor_weight=-1.0, ip_colocation_factor_whitelist=("2.3.0.0/16",)
    )
    place_as_in_go(scores)
    assert score_list(scores, A, B, C, D) == [0, 0, 0, 0]


def test_a_peer_pays_for_each_of_its_addresses_and_no_longer_for_those_it_has_left() -> None:
    """rust-libp2p's numbers for P6: threshold 5, weight −2."""
    scores = scores_of({}, ip_colocation_factor_weight=-2.0, ip_colocation_factor_threshold=5)
    one, other = at("10.1.2.3"), at("10.1.2.4")
    first = [f"first {number}".encode() for number in range(5)]
    others = [f"other {number}".encode() for number in range(4)]
    for peer in first:
        scores.connected(peer, (one,), 0.0)
    for peer in others:
        scores.connected(peer, (other,), 0.0)
    assert score_list(scores, *first, *others) == [0] * 9
    for peer in others[:3]:
        scores.connected(peer, (other, one), 0.0)
    assert score_list(scores, *first, *others) == [9 * -2] * 8 + [0]
    for peer in first[:3]:
        scores.connected(peer, (one, other), 0.0)
    both, rest, last = (9 + 4) * -2, 9 * -2, 4 * -2
    expected = [both] * 3 + [rest] * 2 + [both] * 3 + [last]
    assert score_list(scores, *first, *others) == expected
    scores.connected(others[0], (one, other, one), 0.0)  # the same again
    scores.connected(others[1], (), 0.0)  # not known any better
    assert score_list(scores, *first, *others) == expected
    for peer in others[:3]:
        scores.connected(peer, (other,), 0.0)
    assert score_list(scores, *first, *others) == [4 * -2] * 3 + [0] * 2 + [4 * -2] * 4


def test_one_more_peer_at_an_address_is_felt_at_once_by_all_who_are_there() -> None:
    scores = scores_of({}, ip_colocation_factor_weight=-1.0)
    scores.connected(A, (at("1.2.3.4"),), 0.0)
    assert scores.score(A, 0.0) == 0
    scores.connected(B, (at("1.2.3.4"),), 0.0)
    assert scores.score(A, 0.0) == -1
    scores.set_app_score(B, 10.0, 0.0)
    scores.disconnected(B, 0.0)  # forgotten at once, its score is positive
    assert scores.score(A, 0.0) == 0


def test_a_remembered_peer_still_counts_at_its_address_until_it_is_forgotten() -> None:
    scores = scores_of({}, ip_colocation_factor_weight=-1.0, retain_score=10.0)
    scores.connected(A, (at("1.2.3.4"),), 0.0)
    scores.connected(B, (at("1.2.3.4"),), 0.0)
    scores.disconnected(B, 0.0)
    scores.refresh(10.0)
    assert score_list(scores, A, B) == [-1, -1]
    scores.refresh(10.1)
    assert score_list(scores, A, B) == [0, 0]


# P7 and slow peers


def test_violations_are_squared_and_decay() -> None:
    scores = scores_of({}, behaviour_penalty_weight=-1.0, behaviour_penalty_decay=0.99)
    scores.misbehaved(A, 1, "a stranger yet", 0.0)
    scores.connected(A, (), 0.0)
    assert scores.score(A, 0.0) == 0
    scores.misbehaved(A, 1, "broken promise", 0.0)
    assert scores.score(A, 0.0) == -1
    scores.misbehaved(A, 1, "broken promise", 0.0)
    assert scores.score(A, 0.0) == -4
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == -3.9204


def test_grafts_during_backoff_cost_by_how_early_they_come() -> None:
    """rust-libp2p's numbers: 2 for a GRAFT within the flood threshold, 1 after it."""
    scores = scores_of({}, behaviour_penalty_weight=-2.0, behaviour_penalty_decay=0.9)
    in_mesh(scores, A, B)
    scores.misbehaved(A, 2, "GRAFT in backoff", 0.05)
    scores.misbehaved(B, 1, "GRAFT in backoff", 0.15)
    assert score_list(scores, A, B) == [4 * -2, 1 * -2]
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == pytest.approx(4 * 0.9 * 0.9 * -2, rel=1e-12)
    assert scores.score(B, 1.0) == pytest.approx(0.9 * 0.9 * -2, rel=1e-12)


def test_violations_up_to_the_threshold_cost_nothing() -> None:
    scores = scores_of({}, behaviour_penalty_weight=-1.0, behaviour_penalty_threshold=6.0)
    scores.connected(A, (), 0.0)
    scores.misbehaved(A, 6, "broken promise", 0.0)
    assert scores.score(A, 0.0) == 0
    scores.misbehaved(A, 3, "broken promise", 0.0)
    assert scores.score(A, 0.0) == -9


def test_frames_dropped_for_a_slow_peer_cost_in_proportion_and_decay() -> None:
    """rust-libp2p's term: not squared."""
    scores = scores_of({}, slow_peer_weight=-0.2, slow_peer_threshold=1.0, slow_peer_decay=0.5)
    scores.connected(A, (), 0.0)
    scores.slow(A, 1, 0.0)
    assert scores.score(A, 0.0) == 0
    scores.slow(A, 20, 0.0)
    assert scores.score(A, 0.0) == pytest.approx(-0.2 * 20, rel=1e-12)
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == pytest.approx(-0.2 * 9.5, rel=1e-12)


# Leaving and coming back


def test_a_bad_score_is_remembered_for_a_time_after_the_peer_left() -> None:
    scores = scores_of({}, retain_score=1.0)
    in_mesh(scores, A)
    scores.set_app_score(A, -1000.0, 0.0)
    scores.refresh(0.0)
    assert scores.score(A, 0.0) == -1000
    scores.disconnected(A, 0.0)
    scores.refresh(0.5)
    assert scores.score(A, 0.5) == -1000
    scores.refresh(1.05)
    assert scores.score(A, 1.05) == 0
    assert scores.peers == []


def test_a_peer_that_comes_back_goes_on_with_its_score_which_did_not_decay() -> None:
    scores = scores_of(GO_P4, behaviour_penalty_weight=-1.0, slow_peer_weight=-1.0)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.FORGED, 0.0)
    scores.misbehaved(A, 2, "broken promise", 0.0)
    scores.slow(A, 3, 0.0)
    scores.set_app_score(A, -5.0, 0.0)
    scores.disconnected(A, 0.0)
    for now in range(1, 50):
        scores.refresh(now)
    assert scores.score(A, 49.0) == -1 - 4 - 3 - 5
    scores.connected(A, (), 49.0)
    assert scores.score(A, 49.0) == -1 - 4 - 3 - 5
    scores.refresh(50.0)
    assert scores.score(A, 50.0) == pytest.approx(-0.81 - 1 - 1.5 - 5)


def test_a_positive_score_is_forgotten_at_once() -> None:
    scores = scores_of({**GO_P4, "first_message_deliveries_weight": 10.0})
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.FORGED, 0.0)
    deliver(scores, A, b"n", 0.0)
    assert scores.score(A, 0.0) == 9
    scores.disconnected(A, 0.0)
    assert scores.score(A, 0.0) == 0
    in_mesh(scores, A)
    assert scores.score(A, 0.0) == 0


def test_leaving_the_mesh_by_leaving_counts_as_a_prune_and_first_deliveries_are_lost() -> None:
    scores = scores_of(
        {
            "first_message_deliveries_weight": 1.0,
            "mesh_message_deliveries_weight": -1.0,
            "mesh_message_deliveries_activation": 1.0,
            "mesh_failure_penalty_weight": -1.0,
        }
    )
    in_mesh(scores, A)
    scores.refresh(1.5)
    deliver_many(scores, A, 4, 1.5)
    assert scores.score(A, 1.5) == 4 - 16**2
    scores.disconnected(A, 1.5)
    after = stats(scores, A)
    assert (after.in_mesh, after.mesh_time, after.first_message_deliveries) == (False, 0, 0)
    assert after.mesh_failure_penalty == 16**2
    assert scores.score(A, 1.5) == -(16**2)


def test_scores_that_are_not_kept_go_at_the_next_refresh() -> None:
    scores = scores_of({}, retain_score=0.0)
    in_mesh(scores, A)
    scores.set_app_score(A, -1.0, 0.0)
    scores.disconnected(A, 0.0)
    assert scores.score(A, 0.5) == -1
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == 0


def test_only_so_many_are_remembered_and_the_oldest_go_first() -> None:
    scores = scores_of({}, ip_colocation_factor_weight=-1.0)
    for number in range(MAX_RETAINED + 2):
        peer = number.to_bytes(4, "big")
        scores.connected(peer, (), 0.0)
        scores.set_app_score(peer, -1.0, 0.0)
        scores.disconnected(peer, number / 1000)
    assert scores.statistics().retained == MAX_RETAINED
    kept = [scores.score(number.to_bytes(4, "big"), 11.0) for number in (0, 1, 2, MAX_RETAINED + 1)]
    assert kept == [0, 0, -1, -1]


def test_who_comes_back_and_leaves_again_is_remembered_from_then_on() -> None:
    scores = scores_of({}, retain_score=10.0)
    for peer in (A, B):
        scores.connected(peer, (), 0.0)
        scores.set_app_score(peer, -1.0, 0.0)
        scores.disconnected(peer, 0.0)
    scores.connected(A, (), 5.0)
    scores.disconnected(A, 5.0)
    scores.refresh(11.0)
    assert score_list(scores, A, B) == [-1, 0]
    scores.refresh(15.5)
    assert score_list(scores, A, B) == [0, 0]


EVENTS: dict[str, Callable[[PeerScores], None]] = {
    "disconnected": lambda scores: scores.disconnected(STRANGER, 0.0),
    "grafted": lambda scores: scores.grafted(STRANGER, TOPIC, 0.0),
    "pruned": lambda scores: scores.pruned(STRANGER, TOPIC, 0.0),
    "first_delivery": lambda scores: scores.first_delivery(STRANGER, TOPIC, b"m", 0.0),
    "duplicate": lambda scores: scores.duplicate(STRANGER, TOPIC, b"m", 0.0),
    "forged": lambda scores: scores.refused(STRANGER, TOPIC, b"m", Refusal.FORGED, 0.0),
    "invalid": lambda scores: scores.refused(STRANGER, TOPIC, b"m", Refusal.INVALID, 0.0),
    "misbehaved": lambda scores: scores.misbehaved(STRANGER, 1, "anything", 0.0),
    "slow": lambda scores: scores.slow(STRANGER, 1, 0.0),
    "set_app_score": lambda scores: scores.set_app_score(STRANGER, 1.0, 0.0),
}


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_said_of_a_stranger_makes_it_no_better_known(event: str) -> None:
    scores = scores_of(GO_P4)
    EVENTS[event](scores)
    assert scores.score(STRANGER, 0.0) == 0
    assert scores.explain(STRANGER, 0.0) is None
    assert scores.peers == []


# New parameters


def test_lower_caps_hold_at_once() -> None:
    old = {
        "first_message_deliveries_weight": 10.0,
        "mesh_message_deliveries_weight": -1.0,
        "mesh_message_deliveries_activation": 1.0,
    }
    scores = scores_of(old)
    in_mesh(scores, A, B)
    for number in range(100):
        deliver(scores, A, str(number).encode(), 0.0)
        scores.duplicate(B, TOPIC, str(number).encode(), 0.0)
    assert stats(scores, A).first_message_deliveries == 100
    assert stats(scores, B).mesh_message_deliveries == 100
    lower = TopicScoreParams(
        **old, first_message_deliveries_cap=50.0, mesh_message_deliveries_cap=50.0
    )
    scores.set_topic_params(TOPIC, lower, 0.0)
    assert stats(scores, A).first_message_deliveries == 50
    assert stats(scores, B).mesh_message_deliveries == 50
    assert scores.score(A, 0.0) == 500
    assert scores.params.topics[TOPIC] == lower


def test_lower_caps_hold_for_those_who_left_too() -> None:
    scores = scores_of({})
    in_mesh(scores, A)
    deliver_many(scores, A, 100, 0.0)
    scores.disconnected(A, 0.0)
    lower = TopicScoreParams(mesh_message_deliveries_cap=50.0)
    scores.set_topic_params(TOPIC, lower, 0.0)
    assert stats(scores, A).mesh_message_deliveries == 50


def test_new_weights_hold_at_once_for_those_who_left_too() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A, B)
    for number in range(100):
        for peer in (A, B):
            scores.refused(peer, TOPIC, str(number).encode(), Refusal.FORGED, 0.0)
    scores.disconnected(B, 0.0)
    assert score_list(scores, A, B) == [-10_000, -10_000]
    before = scores.params_hash
    tenfold = TopicScoreParams(invalid_message_deliveries_weight=-10.0)
    scores.set_topic_params(TOPIC, tenfold, 0.0)
    assert score_list(scores, A, B) == [-100_000, -100_000]
    assert scores.params_hash != before


def test_a_topic_may_be_made_to_count_while_the_node_runs() -> None:
    scores = scores_of({})
    in_mesh(scores, A)
    scores.first_delivery(A, "new", b"m", 0.0)
    scores.set_topic_params("new", TopicScoreParams(first_message_deliveries_weight=1.0), 0.0)
    assert scores.score(A, 0.0) == 0
    scores.first_delivery(A, "new", b"n", 0.0)
    assert scores.score(A, 0.0) == 1


def test_parameters_out_of_range_are_refused_and_change_nothing() -> None:
    scores = scores_of(GO_P4)
    in_mesh(scores, A)
    scores.refused(A, TOPIC, b"m", Refusal.FORGED, 0.0)
    before = scores.params_hash
    with pytest.raises(ConfigError, match="mytopic"):
        scores.set_topic_params(TOPIC, TopicScoreParams(topic_weight=-1.0), 0.0)
    assert scores.score(A, 0.0) == -1
    assert scores.params_hash == before
    with pytest.raises(ConfigError):
        scores_of({"topic_weight": -1.0})
    with pytest.raises(ConfigError):
        PeerScores(scores.params, Thresholds(gossip=1.0))
