"""What a producer remembers of clusters fades, is bounded, and comes back as it went in."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.directory import Directory
from bruit.node.relay.quality import (
    FORGOTTEN,
    HALF_LIFE,
    MEMBER_RESTS,
    SCORES_KEPT,
    DecayedMean,
    Quality,
)
from bruit.plugins.hookspecs import ClusterOption
from bruit.plugins.marketplace import Cluster
from tests.relay.producing import marketplace, member_of

CLUSTER = Cluster(1, 5, tuple(member_of(1, number) for number in range(3)))
MEMBER = CLUSTER.members[0].address
NOW = 1_700_000_000.0


def test_of_an_unused_cluster_nothing_but_its_price_is_known() -> None:
    assert Quality().option(CLUSTER, NOW) == ClusterOption(1, 5, None, None, (), 0)


def test_latency_and_rate_are_means_of_what_was_seen() -> None:
    quality = Quality()
    quality.acknowledged(1, MEMBER, 0.1, NOW)
    quality.acknowledged(1, MEMBER, 0.3, NOW)
    quality.failed(1, NOW)
    option = quality.option(CLUSTER, NOW)
    assert option.latency == pytest.approx(0.2)
    assert option.acknowledgement_rate == pytest.approx(2 / 3)


def test_failures_count_since_the_last_success() -> None:
    quality = Quality()
    quality.failed(1, NOW)
    quality.failed(1, NOW)
    assert quality.option(CLUSTER, NOW).recent_failures == 2
    quality.acknowledged(1, MEMBER, 0.1, NOW)
    assert quality.option(CLUSTER, NOW).recent_failures == 0


def test_the_delivery_rate_is_the_share_of_chunks_that_were_passed_on() -> None:
    quality = Quality()
    quality.acknowledged(1, MEMBER, 0.1, NOW)
    assert quality.option(CLUSTER, NOW).delivery_rate is None
    quality.passed_on(1, NOW)
    quality.not_passed_on(1, NOW)
    quality.passed_on(1, NOW)
    option = quality.option(CLUSTER, NOW)
    assert option.delivery_rate == pytest.approx(2 / 3)
    assert option.acknowledgement_rate == 1


def test_acknowledgements_do_not_end_a_row_of_chunks_that_were_not_passed_on() -> None:
    quality = Quality()
    quality.not_passed_on(1, NOW)
    quality.not_passed_on(1, NOW)
    quality.failed(1, NOW)
    assert quality.option(CLUSTER, NOW).recent_failures == 3
    quality.acknowledged(1, MEMBER, 0.1, NOW)
    assert quality.option(CLUSTER, NOW).recent_failures == 2
    quality.failed(1, NOW)
    quality.passed_on(1, NOW)
    assert quality.option(CLUSTER, NOW).recent_failures == 1


def test_what_was_not_passed_on_long_ago_is_forgotten() -> None:
    quality = Quality()
    quality.not_passed_on(1, NOW)
    later = NOW + 7 * HALF_LIFE
    assert quality.option(CLUSTER, later) == ClusterOption(1, 5, None, None, (), 0)
    quality.not_passed_on(1, later)
    assert quality.option(CLUSTER, later).recent_failures == 1


def test_an_observation_counts_half_after_a_half_life() -> None:
    mean = DecayedMean()
    mean.add(3.0, NOW)
    mean.add(0.0, NOW + HALF_LIFE)
    assert mean.value(NOW + HALF_LIFE) == pytest.approx(3.0 * 0.5 / 1.5)


def test_a_cluster_that_failed_long_ago_is_as_good_as_new() -> None:
    quality = Quality()
    quality.failed(1, NOW)
    later = NOW + 7 * HALF_LIFE
    assert quality.option(CLUSTER, later) == ClusterOption(1, 5, None, None, (), 0)
    quality.failed(1, later)
    assert quality.option(CLUSTER, later).recent_failures == 1


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 60)), min_size=1, max_size=30))
def test_the_mean_agrees_with_a_sum_over_all_observations(
    observations: list[tuple[float, float]],
) -> None:
    mean, now, seen = DecayedMean(), NOW, list[tuple[float, float]]()
    for passed, value in observations:
        now += passed
        mean.add(value, now)
        seen.append((now, value))
    weights = [2.0 ** (-(now - at) / HALF_LIFE) for at, _ in seen]
    assert sum(weights) > FORGOTTEN
    expected = sum(w * value for w, (_, value) in zip(weights, seen, strict=True)) / sum(weights)
    assert mean.value(now) == pytest.approx(expected, abs=1e-9)


def test_an_age_without_observations_ends_in_ignorance_not_in_an_error() -> None:
    mean = DecayedMean()
    mean.add(1.0, NOW)
    assert mean.value(NOW + 1e9) is None
    mean.add(2.0, NOW + 1e9)
    assert mean.value(NOW + 1e9) == 2.0


def test_scores_are_kept_by_cluster_and_only_the_last_ones() -> None:
    quality, directory = Quality(), Directory(marketplace())
    for number in range(SCORES_KEPT + 5):
        quality.scored([(MEMBER, float(number)), (member_of(1, 1).address, 0.0)], directory)
    quality.scored([(b"\x09" * 20, 1.0), (MEMBER, float("nan"))], directory)
    history = quality.option(CLUSTER, NOW).score_history
    assert len(history) == SCORES_KEPT
    assert history[-1] == (SCORES_KEPT + 4) / 2


def test_what_leaves_the_marketplace_is_forgotten() -> None:
    quality = Quality()
    quality.failed(1, NOW)
    quality.failed(4, NOW)
    quality.member_failed(member_of(4, 0).address, NOW)
    quality.retain(Directory(marketplace(clusters=3)))
    quality.retain(Directory(marketplace(clusters=4)))
    assert quality.option(CLUSTER, NOW).recent_failures == 1
    fourth = Cluster(4, 0, (member_of(4, 0), member_of(4, 1)))
    assert quality.option(fourth, NOW).recent_failures == 0
    first = [quality.in_turn(fourth.members, Random(seed), NOW)[0] for seed in range(20)]
    assert fourth.members[0] in first


def test_members_that_failed_lately_come_last_for_a_while() -> None:
    quality = Quality()
    quality.member_failed(MEMBER, NOW)
    for seed in range(20):
        assert quality.in_turn(CLUSTER.members, Random(seed), NOW)[-1].address == MEMBER
    after = NOW + MEMBER_RESTS
    first = [quality.in_turn(CLUSTER.members, Random(seed), after)[0] for seed in range(50)]
    assert all(member in first for member in CLUSTER.members)


def test_a_member_that_acknowledges_is_forgiven() -> None:
    quality = Quality()
    quality.member_failed(MEMBER, NOW)
    quality.acknowledged(1, MEMBER, 0.1, NOW)
    first = [quality.in_turn(CLUSTER.members, Random(seed), NOW)[0] for seed in range(50)]
    assert CLUSTER.members[0] in first
