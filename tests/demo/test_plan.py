"""What a demonstration will do: possible numbers, a network that holds, processes that suffice."""

import random

import pytest

from bruit.node.demo.plan import DEGREE, MAX_NODES, SHARED_PROCESSES, Plan, make_plan
from bruit.topics.errors import LocalError

SEEDS = range(60)


def plans() -> list[Plan]:
    """Of many seeds: small and large, with nobody killed and with as many as a seed allows."""
    return [make_plan(nodes, kill, random.Random(seed)) for seed in SEEDS for nodes, kill in SIZES]


SIZES = [(2, 0), (3, 1), (5, 1), (9, 3), (16, 3), (16, 6), (MAX_NODES, 10)]


def reachable(plan: Plan, gone: tuple[int, ...]) -> set[int]:
    """Everybody whom the publisher reaches: sets that grow until they do not."""
    reached = {plan.publisher}
    while True:
        more = {
            node
            for pair in plan.pairs
            for node in pair
            if reached & set(pair) and not set(pair) & set(gone)
        }
        if more <= reached:
            return reached
        reached |= more


def test_every_network_is_connected() -> None:
    for plan in plans():
        assert reachable(plan, ()) == set(range(plan.nodes))


def test_the_victims_leave_the_rest_connected() -> None:
    for plan in plans():
        assert reachable(plan, plan.victims) == set(plan.survivors)


def test_the_publisher_is_never_a_victim() -> None:
    for plan in plans():
        assert plan.publisher in plan.survivors


def test_as_many_are_killed_as_was_said() -> None:
    for plan, (nodes, kill) in zip(plans(), SIZES * len(SEEDS), strict=True):
        assert (plan.nodes, len(set(plan.victims))) == (nodes, kill)
        assert len(plan.survivors) == nodes - kill


def test_every_node_runs_in_one_process_and_a_victim_in_one_of_its_own() -> None:
    for plan in plans():
        assert sorted(node for group in plan.groups for node in group) == list(range(plan.nodes))
        assert all((victim,) in plan.groups for victim in plan.victims)
        assert all(plan.groups)
        assert len(plan.groups) <= SHARED_PROCESSES + len(plan.victims)


def test_no_pair_is_connected_twice_and_nobody_to_itself() -> None:
    for plan in plans():
        assert len({frozenset(pair) for pair in plan.pairs}) == len(plan.pairs)
        assert all(one != other for one, other in plan.pairs)


def test_neighbours_are_the_other_ends_of_a_nodes_pairs() -> None:
    for plan in plans():
        neighbours = plan.neighbours()
        assert sum(len(each) for each in neighbours.values()) == 2 * len(plan.pairs)
        for one, other in plan.pairs:
            assert other in neighbours[one]
            assert one in neighbours[other]


def test_a_large_network_has_about_the_degree_that_is_promised() -> None:
    for seed in SEEDS:
        plan = make_plan(MAX_NODES, 0, random.Random(seed))
        assert 2 * len(plan.pairs) / plan.nodes == pytest.approx(DEGREE, rel=0.1)


def test_a_seed_decides_everything_and_another_seed_something_else() -> None:
    def plan(seed: int) -> Plan:
        return make_plan(16, 3, random.Random(seed))

    assert [plan(seed) for seed in SEEDS] == [plan(seed) for seed in SEEDS]
    assert len({(each.pairs, each.publisher, each.victims) for each in map(plan, SEEDS)}) == len(
        SEEDS
    )


@pytest.mark.parametrize(
    ("nodes", "kill", "message"),
    [
        (1, 0, "--nodes 1: use 2 to 64"),
        (0, 0, "--nodes 0: use 2 to 64"),
        (-3, 0, "--nodes -3: use 2 to 64"),
        (65, 0, "--nodes 65: use 2 to 64"),
        (5, -1, "--kill -1: of 5 nodes, at most 3 can be killed"),
        (5, 4, "--kill 4: of 5 nodes, at most 3 can be killed"),
        (2, 1, "--kill 1: of 2 nodes, at most 0 can be killed"),
    ],
)
def test_impossible_numbers_are_refused(nodes: int, kill: int, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        make_plan(nodes, kill, random.Random(1))
    assert str(caught.value) == message


def test_a_network_that_cannot_but_fall_apart_is_refused() -> None:
    # Eight of 64 nodes with four links each are connected once in many millions of draws.
    with pytest.raises(LocalError, match="the network of this seed would fall apart; kill fewer"):
        make_plan(64, 56, random.Random(1))
