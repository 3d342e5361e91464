"""Topologies: right in size, connected for every seed, the same for the same seed."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.sim import topologies
from bruit.node.sim.topologies import Pair
from bruit.topics.errors import LocalError


def reachable(n: int, pairs: list[Pair]) -> set[int]:
    """The slow, obvious search from node 0."""
    neighbours: dict[int, list[int]] = {index: [] for index in range(n)}
    for one, other in pairs:
        neighbours[one].append(other)
        neighbours[other].append(one)
    found, todo = {0}, [0]
    while todo:
        for each in neighbours[todo.pop()]:
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def degrees(n: int, pairs: list[Pair]) -> list[int]:
    ends = [end for pair in pairs for end in pair]
    return [ends.count(index) for index in range(n)]


def assert_simple_and_connected(n: int, pairs: list[Pair]) -> None:
    assert all(one != other for one, other in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert reachable(n, pairs) == set(range(n))


@given(st.integers(3, 60), st.integers(2, 12), st.integers())
def test_a_sparse_random_graph_is_connected_and_gives_everybody_the_degree(
    n: int, degree: int, seed: int
) -> None:
    pairs = topologies.sparse_random(n, degree, Random(seed))
    assert_simple_and_connected(n, pairs)
    assert min(degrees(n, pairs)) >= min(degree, n - 1)


def test_a_large_sparse_random_graph_has_hardly_more_than_the_degree() -> None:
    pairs = topologies.sparse_random(500, 8, Random(1))
    found = degrees(500, pairs)
    assert max(found) <= 10
    assert sum(found) / 500 < 8.2


def test_in_a_sparse_random_graph_everybody_dials_about_half_of_its_neighbours() -> None:
    pairs = topologies.sparse_random(200, 8, Random(2))
    dialled = [sum(1 for dialer, _ in pairs if dialer == index) for index in range(200)]
    assert min(dialled) >= 3
    assert max(dialled) <= 6


def test_the_same_seed_gives_the_same_graph_and_another_seed_another() -> None:
    graphs = [topologies.sparse_random(30, 4, Random(seed)) for seed in (5, 5, 6)]
    assert graphs[0] == graphs[1] != graphs[2]


def test_a_degree_that_no_graph_of_that_size_has_gives_the_full_graph() -> None:
    assert topologies.sparse_random(4, 9, Random(1)) == topologies.full(4)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["full", "line", "ring", "star", "tree"])
def test_every_plain_topology_is_connected(name: str, n: int) -> None:
    assert_simple_and_connected(n, getattr(topologies, name)(n))


def test_plain_topologies_have_their_degrees() -> None:
    assert degrees(5, topologies.full(5)) == [4, 4, 4, 4, 4]
    assert degrees(5, topologies.line(5)) == [1, 2, 2, 2, 1]
    assert degrees(5, topologies.ring(5)) == [2, 2, 2, 2, 2]
    assert degrees(5, topologies.star(5)) == [4, 1, 1, 1, 1]
    assert degrees(7, topologies.tree(7)) == [2, 3, 3, 1, 1, 1, 1]
    assert degrees(5, topologies.tree(5, branching=4)) == [4, 1, 1, 1, 1]


def test_topologies_that_cannot_be_are_refused() -> None:
    with pytest.raises(LocalError, match="0 nodes"):
        topologies.line(0)
    with pytest.raises(LocalError, match="degree 1"):
        topologies.sparse_random(10, 1, Random(1))
    with pytest.raises(LocalError, match="0 children"):
        topologies.tree(3, branching=0)
