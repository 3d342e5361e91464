"""P1, P2, P3 and P3b, with the numbers of the tests of go, rust and nim.

Where those switch decay off, by a factor of 1 that no check accepts, scores are
asked before the refresh, or the term that decays is not the one that is looked at.
"""

import pytest

from bruit.scoring.seam import Refusal
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

# P1


def test_time_in_the_mesh_counts_in_whole_quanta_from_the_refresh_on() -> None:
    scores = scores_of(
        {"topic_weight": 0.5, "time_in_mesh_weight": 1.0, "time_in_mesh_quantum": 0.001}
    )
    scores.connected(A, (), 0.0)
    assert scores.score(A, 0.0) == 0
    scores.grafted(A, TOPIC, 0.0)
    assert scores.score(A, 0.2) == 0  # nobody has looked yet
    scores.refresh(0.2)
    assert scores.score(A, 0.2) == 100
    scores.refresh(0.2009)
    assert scores.score(A, 0.2009) == 100
    scores.pruned(A, TOPIC, 0.3)
    assert scores.score(A, 0.3) == 0


def test_time_in_the_mesh_is_capped_in_quanta() -> None:
    scores = scores_of(
        {
            "topic_weight": 0.5,
            "time_in_mesh_weight": 1.0,
            "time_in_mesh_quantum": 0.001,
            "time_in_mesh_cap": 10.0,
        }
    )
    in_mesh(scores, A)
    scores.refresh(0.04)
    assert scores.score(A, 0.04) == 5


def test_half_a_quantum_counts_nothing() -> None:
    """rust-libp2p's numbers for P1; it would count the half, go does not."""
    scores = scores_of(
        {
            "topic_weight": 0.7,
            "time_in_mesh_weight": 2.0,
            "time_in_mesh_quantum": 0.05,
            "time_in_mesh_cap": 10.0,
        }
    )
    in_mesh(scores, A)
    for now, quanta in ((0.1, 2), (0.125, 2), (0.2, 4), (0.55, 10), (9.0, 10)):
        scores.refresh(now)
        assert scores.score(A, now) == pytest.approx(quanta * 2 * 0.7, rel=1e-12)


@pytest.mark.parametrize("start", [0.0, 0.1, 1000.3, 987_654.321, 500_000_000.7])
def test_a_multiple_of_the_quantum_is_reached_at_its_time_on_any_clock(start: float) -> None:
    scores = scores_of({"time_in_mesh_weight": 1.0, "time_in_mesh_quantum": 0.1})
    in_mesh(scores, A, now=start)
    for quanta in range(1, 100):
        scores.refresh(start + quanta / 10)
        assert scores.score(A, 0.0) == quanta


# P2


def test_every_first_delivery_counts_one() -> None:
    scores = scores_of(
        {"first_message_deliveries_weight": 1.0, "first_message_deliveries_cap": 2000.0}
    )
    in_mesh(scores, A)
    deliver_many(scores, A, 100, 0.0)
    assert scores.score(A, 0.0) == 100


def test_first_deliveries_are_capped_as_they_are_counted() -> None:
    scores = scores_of(
        {
            "first_message_deliveries_weight": 1.0,
            "first_message_deliveries_cap": 50.0,
            "first_message_deliveries_decay": 0.9,
        }
    )
    in_mesh(scores, A)
    deliver_many(scores, A, 100, 0.0)
    assert scores.score(A, 0.0) == 50
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == 45  # not 50: nothing was kept beyond the cap


def test_first_deliveries_decay_at_every_refresh() -> None:
    scores = scores_of(
        {
            "first_message_deliveries_weight": 1.0,
            "first_message_deliveries_cap": 2000.0,
            "first_message_deliveries_decay": 0.9,
        }
    )
    in_mesh(scores, A)
    deliver_many(scores, A, 100, 0.0)
    expected = 100.0
    for now in range(1, 12):
        scores.refresh(now)
        expected *= 0.9
        assert scores.score(A, now) == expected


def test_who_delivers_first_is_rewarded_and_who_comes_second_is_not() -> None:
    """rust-libp2p's numbers for P2."""
    scores = scores_of(
        {
            "topic_weight": 0.7,
            "first_message_deliveries_weight": 2.0,
            "first_message_deliveries_cap": 10.0,
            "first_message_deliveries_decay": 0.9,
        }
    )
    in_mesh(scores, A, B)
    deliver(scores, A, b"m1", 0.0)
    scores.duplicate(B, TOPIC, b"m1", 0.0)
    assert scores.score(A, 0.0) == 1 * 2 * 0.7
    assert scores.score(B, 0.0) == 0
    deliver(scores, B, b"m2", 0.0)
    deliver(scores, B, b"m3", 0.0)
    assert scores.score(B, 0.0) == 2 * 2 * 0.7
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == pytest.approx(0.9 * 2 * 0.7, rel=1e-12)
    assert scores.score(B, 1.0) == pytest.approx(2 * 0.9 * 2 * 0.7, rel=1e-12)
    deliver_many(scores, B, 10, 1.0)
    assert scores.score(B, 1.0) == 10 * 2 * 0.7


def test_a_first_delivery_counts_outside_the_mesh_too() -> None:
    scores = scores_of(
        {"first_message_deliveries_weight": 1.0, "mesh_message_deliveries_weight": -1.0}
    )
    scores.connected(A, (), 0.0)
    deliver(scores, A, b"m", 0.0)
    assert scores.score(A, 0.0) == 1
    assert stats(scores, A).mesh_message_deliveries == 0


def test_a_message_that_is_found_valid_twice_counts_for_both_first_senders() -> None:
    scores = scores_of({"first_message_deliveries_weight": 1.0})
    in_mesh(scores, A, B, C)
    scores.duplicate(C, TOPIC, b"m", 0.0)
    deliver(scores, A, b"m", 0.0)
    scores.first_delivery(B, TOPIC, b"m", 1.0)
    assert [stats(scores, peer).first_message_deliveries for peer in (A, B)] == [1, 1]
    assert stats(scores, C).mesh_message_deliveries == 1


def test_counters_below_the_limit_become_nothing() -> None:
    scores = scores_of(
        {"first_message_deliveries_weight": 1.0, "first_message_deliveries_decay": 0.1}
    )
    in_mesh(scores, A)
    deliver(scores, A, b"m", 0.0)
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == pytest.approx(0.1)
    scores.refresh(2.0)
    assert scores.score(A, 2.0) == pytest.approx(0.01)  # at the limit, not below it
    scores.refresh(3.0)
    assert scores.score(A, 3.0) == 0


# P3

GO_P3 = {
    "mesh_message_deliveries_weight": -1.0,
    "mesh_message_deliveries_activation": 1.0,
    "mesh_message_deliveries_window": 0.01,
    "mesh_message_deliveries_threshold": 20.0,
    "mesh_message_deliveries_cap": 100.0,
    "mesh_message_deliveries_decay": 0.5,
}


def test_mesh_peers_that_come_late_or_not_at_all_pay_for_the_deficit() -> None:
    """A delivers first, B within the window, C after it, D nothing."""
    scores = scores_of(GO_P3)
    in_mesh(scores, A, B, C, D)
    scores.refresh(0.0)
    assert [scores.score(peer, 0.0) for peer in (A, B, C, D)] == [0, 0, 0, 0]
    deliver_many(scores, A, 100, 1.0)
    for number in range(100):
        scores.duplicate(B, TOPIC, str(number).encode(), 1.0)
        scores.duplicate(C, TOPIC, str(number).encode(), 1.0 + 0.01 + 0.02)
    scores.refresh(1.1)
    assert [scores.score(peer, 1.1) for peer in (A, B, C, D)] == [0, 0, -400, -400]


def test_the_deficit_grows_as_mesh_deliveries_decay() -> None:
    scores = scores_of({**GO_P3, "mesh_message_deliveries_decay": 0.9})
    in_mesh(scores, A)
    deliver_many(scores, A, 40, 0.0)
    scores.refresh(1.001)
    assert scores.score(A, 1.001) == 0
    left = 40 * 0.9
    for tick in range(20):
        scores.refresh(2.0 + tick)
        left *= 0.9
    assert scores.score(A, 22.0) == -((20 - left) ** 2)


def test_mesh_deliveries_are_counted_capped_and_decayed() -> None:
    """rust-libp2p's numbers for P3."""
    scores = scores_of(
        {
            "topic_weight": 0.7,
            "mesh_message_deliveries_weight": -2.0,
            "mesh_message_deliveries_decay": 0.9,
            "mesh_message_deliveries_cap": 10.0,
            "mesh_message_deliveries_threshold": 5.0,
            "mesh_message_deliveries_activation": 1.0,
            "mesh_message_deliveries_window": 0.1,
        }
    )
    in_mesh(scores, A, B)
    deliver(scores, B, b"m1", 0.0)
    deliver_many(scores, A, 2, 0.0)
    deliver(scores, B, b"m2", 0.06)
    scores.duplicate(A, TOPIC, b"m1", 0.13)  # 130 ms after: too late
    scores.duplicate(A, TOPIC, b"m2", 0.13)  # 70 ms after
    assert stats(scores, A).mesh_message_deliveries == 3
    scores.refresh(1.03)
    left = 3 * 0.9
    assert scores.score(A, 1.03) == pytest.approx(-2 * 0.7 * (5 - left) ** 2, rel=1e-12)
    deliver_many(scores, A, 20, 1.03, "more")
    assert scores.score(A, 1.03) == 0
    left = 10.0
    for tick in range(10):
        scores.refresh(2.0 + tick)
        left *= 0.9
    assert scores.score(A, 11.0) == pytest.approx(-2 * 0.7 * (5 - left) ** 2, rel=1e-12)


def test_mesh_deliveries_decay_by_their_factor_at_every_refresh() -> None:
    """nim-libp2p's numbers: 100 deliveries, five intervals at .9."""
    scores = scores_of({**GO_P3, "mesh_message_deliveries_decay": 0.9})
    in_mesh(scores, A)
    deliver_many(scores, A, 100, 0.0)
    for tick in range(5):
        scores.refresh(1.0 + tick)
    assert stats(scores, A).mesh_message_deliveries == pytest.approx(59.05, abs=0.01)


def test_the_deficit_applies_only_after_more_than_the_activation_time() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A)
    scores.refresh(1.0)
    assert scores.score(A, 1.0) == 0
    scores.refresh(1.000001)
    assert scores.score(A, 1.1) == -400


def test_a_new_graft_starts_the_activation_time_again() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A)
    scores.refresh(2.0)
    assert scores.score(A, 2.0) == -400
    scores.grafted(A, TOPIC, 2.0)
    after = stats(scores, A)
    assert (after.in_mesh, after.mesh_time, after.mesh_message_deliveries_active) == (
        True,
        0,
        False,
    )
    assert scores.score(A, 2.0) == 0
    scores.refresh(3.0)
    assert scores.score(A, 3.0) == 0


def test_copies_that_come_while_a_message_is_judged_count_once_it_is_valid() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A, B)
    scores.validating(b"m", 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.0)
    assert stats(scores, B).mesh_message_deliveries == 0
    scores.first_delivery(A, TOPIC, b"m", 50.0)
    assert stats(scores, B).mesh_message_deliveries == 1


@pytest.mark.parametrize(("delay", "counted"), [(0.0, 1), (0.01, 1), (0.010001, 0)])
@pytest.mark.parametrize("start", [0.0, 100.0, 987_654.3])
def test_a_copy_counts_up_to_the_end_of_the_window(
    start: float, delay: float, counted: int
) -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A, B, now=start)
    deliver(scores, A, b"m", start)
    scores.duplicate(B, TOPIC, b"m", start + delay)
    assert stats(scores, B).mesh_message_deliveries == counted


def test_one_message_counts_once_for_each_peer_however_often_it_is_sent() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A, B)
    scores.validating(b"m", 0.0)
    for _ in range(3):
        scores.duplicate(A, TOPIC, b"m", 0.0)
        scores.duplicate(B, TOPIC, b"m", 0.0)
    scores.first_delivery(A, TOPIC, b"m", 0.0)
    for _ in range(3):
        scores.duplicate(A, TOPIC, b"m", 0.0)
        scores.duplicate(B, TOPIC, b"m", 0.0)
    assert [stats(scores, peer).mesh_message_deliveries for peer in (A, B)] == [1, 1]


def test_a_copy_that_came_too_late_is_no_second_chance() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A, B)
    deliver(scores, A, b"m", 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.02)
    scores.duplicate(B, TOPIC, b"m", 0.02)
    assert stats(scores, B).mesh_message_deliveries == 0


def test_copies_of_peers_outside_the_mesh_count_nothing() -> None:
    scores = scores_of(GO_P3)
    in_mesh(scores, A)
    scores.connected(B, (), 0.0)
    deliver(scores, A, b"m", 0.0)
    scores.duplicate(B, TOPIC, b"m", 0.0)
    explanation = scores.explain(B, 0.0)
    assert explanation is not None
    assert explanation.topics == ()


# P3b


def test_a_peer_pruned_in_deficit_keeps_the_deficit_as_a_penalty() -> None:
    scores = scores_of(
        {**GO_P3, "mesh_message_deliveries_weight": 0.0, "mesh_failure_penalty_weight": -1.0}
    )
    in_mesh(scores, A, B)
    deliver_many(scores, A, 100, 0.0)
    scores.refresh(1.001)
    assert [scores.score(A, 1.001), scores.score(B, 1.001)] == [0, 0]
    scores.pruned(A, TOPIC, 1.001)
    scores.pruned(B, TOPIC, 1.001)
    assert [scores.score(A, 1.001), scores.score(B, 1.001)] == [0, -400]
    scores.pruned(B, TOPIC, 1.001)  # said twice
    assert scores.score(B, 1.001) == -400


def test_a_pruned_peer_pays_for_the_deficit_it_left_with_and_again_after_a_graft() -> None:
    """rust-libp2p's numbers for P3b."""
    scores = scores_of(
        {
            "topic_weight": 0.7,
            "mesh_message_deliveries_weight": -2.0,
            "mesh_message_deliveries_decay": 0.9,
            "mesh_message_deliveries_cap": 10.0,
            "mesh_message_deliveries_threshold": 5.0,
            "mesh_message_deliveries_activation": 1.0,
            "mesh_message_deliveries_window": 0.1,
            "mesh_failure_penalty_weight": -3.0,
            "mesh_failure_penalty_decay": 0.95,
        }
    )
    in_mesh(scores, A)
    scores.set_app_score(A, 100.0, 0.0)
    deliver_many(scores, A, 2, 0.0)
    scores.refresh(1.05)
    scores.pruned(A, TOPIC, 1.05)
    scores.grafted(A, TOPIC, 1.18)
    failure = (5 - 1.8) ** 2
    assert scores.score(A, 1.18) == pytest.approx(100 + failure * -3 * 0.7, rel=1e-12)
    deliver(scores, A, b"another", 1.18)
    scores.refresh(2.23)
    deficit = (5 - 2.8 * 0.9) ** 2
    expected = 100 + (failure * 0.95 * -3 + deficit * -2) * 0.7
    assert scores.score(A, 2.23) == pytest.approx(expected, rel=1e-12)


def test_a_prune_adds_the_squared_deficit_to_the_failures() -> None:
    """nim-libp2p's numbers: 5 delivered of 10."""
    scores = scores_of({**GO_P3, "mesh_message_deliveries_threshold": 10.0})
    in_mesh(scores, A)
    deliver_many(scores, A, 10, 0.0)
    scores.refresh(1.001)
    scores.pruned(A, TOPIC, 1.1)
    after = stats(scores, A)
    assert (after.in_mesh, after.mesh_message_deliveries, after.mesh_failure_penalty) == (
        False,
        5,
        25,
    )


def test_a_peer_that_has_left_the_mesh_is_in_no_deficit_any_more() -> None:
    """nim-libp2p's numbers. go-libp2p-pubsub would go on charging −250 as well."""
    scores = scores_of(
        {
            "mesh_message_deliveries_threshold": 5.0,
            "mesh_message_deliveries_activation": 1.0,
            "mesh_message_deliveries_weight": -10.0,
            "mesh_failure_penalty_weight": -5.0,
            "mesh_failure_penalty_decay": 0.9,
        }
    )
    in_mesh(scores, A)
    scores.refresh(1.1)
    assert scores.score(A, 1.1) == -250
    scores.pruned(A, TOPIC, 1.1)
    assert scores.score(A, 1.1) == -125
    scores.refresh(2.1)
    assert scores.score(A, 2.1) == -125 * 0.9


def test_a_peer_pruned_before_its_deliveries_count_pays_nothing() -> None:
    scores = scores_of({**GO_P3, "mesh_failure_penalty_weight": -1.0})
    in_mesh(scores, A)
    scores.refresh(1.0)
    scores.pruned(A, TOPIC, 1.0)
    assert scores.score(A, 1.0) == 0


# What becomes of messages


def test_a_message_that_comes_again_after_its_time_is_a_new_message() -> None:
    scores = scores_of({"invalid_message_deliveries_weight": -1.0}, seen_message_ttl=120.0)
    in_mesh(scores, A, B)
    scores.refused(A, TOPIC, b"m", Refusal.INVALID, 0.0)
    scores.refresh(120.0)
    scores.duplicate(B, TOPIC, b"m", 120.0)
    assert scores.score(B, 120.0) == -1
    scores.refresh(120.5)
    assert scores.statistics().deliveries == 0
    scores.duplicate(B, TOPIC, b"m", 120.5)
    assert scores.score(B, 120.5) == -0.25  # it is being judged


def test_a_message_in_a_topic_that_does_not_count_changes_nothing() -> None:
    scores = scores_of({"invalid_message_deliveries_weight": -1.0})
    in_mesh(scores, A, B)
    scores.grafted(A, "another topic", 0.0)
    scores.refused(A, "another topic", b"m", Refusal.INVALID, 0.0)
    scores.duplicate(B, "another topic", b"m", 0.0)
    scores.first_delivery(A, "another topic", b"n", 0.0)
    assert [scores.score(A, 0.0), scores.score(B, 0.0)] == [0, 0]
    assert scores.statistics().topics == 1
