"""Selectors against each other in simulation: only what holds by a wide margin.

`python -m bench.block_sim --selectors` prints the whole table.
"""

from pathlib import Path

import pytest

from tests.sim.selecting import CLUSTERS, DROPPING, REFUSING, Outcome, compare, selectors

BROADCASTS = 40
# Of the 16 chunks of a broadcast each has 3 of 8 clusters to go through: of a cluster that is
# always taken where it can be, that is what it gets.
MOST = 3 / 8
LEAST_CHOSEN = 0.05  # explorers send one chunk in twenty anywhere; guess: they are not alone


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes(tmp_path_factory.mktemp("listening"), listens=True)


@pytest.fixture(scope="module")
def deaf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return outcomes(tmp_path_factory.mktemp("deaf"), listens=False)


def outcomes(folder: Path, *, listens: bool) -> dict[str, Outcome]:
    return {
        name: compare(select, BROADCASTS, listens=listens)
        for name, select in selectors(folder).items()
    }


def test_every_selector_gets_every_block_everywhere(listening: dict[str, Outcome]) -> None:
    assert {name: each.delivered for name, each in listening.items()} == dict.fromkeys(
        ("random", "cheapest", "qos", "reputation", "mixed"), 1.0
    )


def test_qos_is_faster_than_random(listening: dict[str, Outcome]) -> None:
    assert listening["qos"].mean_ms < 0.6 * listening["random"].mean_ms


def test_cheapest_is_cheaper_than_all_others(listening: dict[str, Outcome]) -> None:
    others = [each.price for name, each in listening.items() if name != "cheapest"]
    assert listening["cheapest"].price < 0.9 * min(others)


@pytest.mark.parametrize("name", ["cheapest", "qos", "reputation", "mixed"])
def test_a_cluster_that_refuses_is_avoided(name: str, listening: dict[str, Outcome]) -> None:
    assert listening[name].late_shares[REFUSING] < LEAST_CHOSEN


def test_random_avoids_nobody(listening: dict[str, Outcome]) -> None:
    shares = listening["random"].shares
    assert shares[REFUSING] > LEAST_CHOSEN
    assert shares[DROPPING] > LEAST_CHOSEN


@pytest.mark.parametrize("name", ["cheapest", "qos", "mixed"])
def test_a_cluster_that_drops_what_it_acknowledges_is_a_favourite_of_who_does_not_listen(
    name: str, deaf: dict[str, Outcome]
) -> None:
    """It is fast and answers always: nothing in its receipts is wrong."""
    assert deaf[name].late_shares[DROPPING] > 0.6 * MOST


@pytest.mark.parametrize("name", ["cheapest", "qos", "mixed"])
def test_a_producer_that_listens_avoids_it_too(name: str, listening: dict[str, Outcome]) -> None:
    assert listening[name].late_shares[DROPPING] < LEAST_CHOSEN


def test_reputation_is_as_good_as_its_file(
    listening: dict[str, Outcome], deaf: dict[str, Outcome]
) -> None:
    for each in (listening["reputation"], deaf["reputation"]):
        assert each.shares[DROPPING] < LEAST_CHOSEN
        assert all(each.shares[number] > 0 for number, kind in CLUSTERS.items() if not kind.fault)
