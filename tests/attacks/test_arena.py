"""The measure that every attack is held to."""

import math

import pytest

from tests.attacks.arena import Outcome


def test_everything_in_time_holds() -> None:
    assert Outcome(100, tuple([0.1] * 99 + [30.0])).holds


@pytest.mark.parametrize(
    "delays",
    [[0.1] * 99, [0.1] * 98 + [6.0, 6.0]],
    ids=["one delivery is missing", "more than one in a hundred is late"],
)
def test_a_missing_delivery_or_too_many_late_ones_break_the_bound(delays: list[float]) -> None:
    assert not Outcome(100, tuple(delays)).holds


def test_percentiles_count_what_never_arrived_as_last() -> None:
    outcome = Outcome(10, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))
    assert outcome.share == 0.8
    assert [outcome.percentile(percent) for percent in (50, 80, 81)] == [5.0, 8.0, math.inf]
    assert str(outcome).startswith("2 of 10 deliveries are missing; p50 5.000 s, p99 inf s")
