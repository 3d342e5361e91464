"""What a demonstration of the relay will do: possible numbers, roles, and who is connected."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.demo.relay.plan import (
    Fault,
    Plan,
    Role,
    Shape,
    Variant,
    make_plan,
    parse_chunks,
)
from bruit.topics.errors import LocalError

SEEDS = range(20)
FAULTY = {Variant.DROP: 2, Variant.CORRUPT: 1}


def plans(variant: Variant = Variant.PLAIN) -> list[Plan]:
    shape = Shape(variant=variant, faulty=FAULTY.get(variant, 0))
    small = msgspec.structs.replace(shape, clusters=3, members=1, consumers=1)
    return [make_plan(each, random.Random(seed)) for seed in SEEDS for each in (shape, small)]


def faults(plan: Plan) -> Counter[Fault]:
    return Counter(place.fault for place in plan.places if place.fault is not Fault.NONE)


def test_the_demonstration_has_19_nodes_in_four_clusters_of_three() -> None:
    plan = make_plan(Shape(), random.Random(1))
    assert len(plan.places) == 19
    assert {role: len(plan.of(role)) for role in Role} == {
        Role.PRODUCER: 1,
        Role.MEMBER: 12,
        Role.CONSUMER: 6,
        Role.OUTSIDER: 0,
    }
    assert Counter(place.cluster for place in plan.places if place.cluster) == Counter(
        {1: 3, 2: 3, 3: 3, 4: 3}
    )
    assert len({place.name for place in plan.places}) == 19


def test_nobody_cheats_unless_it_is_asked_for() -> None:
    assert all(not faults(plan) and not plan.faulty for plan in plans())


@pytest.mark.parametrize(("variant", "fault"), [(Variant.DROP, 2), (Variant.CORRUPT, 1)])
def test_whole_clusters_cheat_and_as_many_as_was_said(variant: Variant, fault: int) -> None:
    for plan in plans(variant):
        assert len(plan.faulty) == fault
        for place in plan.places:
            assert (place.fault is not Fault.NONE) == (place.cluster in plan.faulty)


@pytest.mark.parametrize(
    ("variant", "role", "fault"),
    [
        (Variant.FALSE_WITNESS, Role.OUTSIDER, Fault.FORGES),
        (Variant.OVERSPEND, Role.PRODUCER, Fault.FORGETS),
        (Variant.BAD_BLOCK, Role.PRODUCER, Fault.CARELESS),
    ],
)
def test_one_node_cheats_where_its_role_does(variant: Variant, role: Role, fault: Fault) -> None:
    for plan in plans(variant):
        assert faults(plan) == {fault: 1}
        [index] = plan.of(role)
        assert plan.places[index].fault is fault


def test_the_seed_decides_which_clusters_cheat() -> None:
    assert len({plan.faulty for plan in plans(Variant.DROP)[::2]}) > 1
    assert plans(Variant.DROP) == plans(Variant.DROP)


@pytest.mark.parametrize("variant", [Variant.PLAIN, Variant.FALSE_WITNESS])
def test_every_consumer_is_connected_to_every_cluster(variant: Variant) -> None:
    for plan in plans(variant):
        for consumer in plan.of(Role.CONSUMER):
            around = [plan.places[each] for each in plan.neighbours(consumer)]
            assert {place.cluster for place in around} >= set(plan.clusters)


def test_the_producer_is_connected_to_all_members_and_to_nobody_else() -> None:
    for plan in plans():
        [producer] = plan.of(Role.PRODUCER)
        assert sorted(plan.neighbours(producer)) == plan.of(Role.MEMBER)


def test_an_outsider_is_connected_to_consumers_alone() -> None:
    for plan in plans(Variant.FALSE_WITNESS):
        [outsider] = plan.of(Role.OUTSIDER)
        assert sorted(plan.neighbours(outsider)) == plan.of(Role.CONSUMER)


@given(
    clusters=st.integers(1, 6),
    members=st.integers(1, 5),
    consumers=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_no_two_are_connected_twice(clusters: int, members: int, consumers: int, seed: int) -> None:
    shape = Shape(clusters=clusters, members=members, consumers=consumers)
    pairs = [frozenset(pair) for pair in make_plan(shape, random.Random(seed)).pairs]
    assert all(len(pair) == 2 for pair in pairs)
    assert len(set(pairs)) == len(pairs)


def test_a_replay_is_late_long_before_the_demonstration_is_over() -> None:
    [replay, plain] = [plans(variant)[0].params for variant in (Variant.REPLAY, Variant.PLAIN)]
    assert replay.acknowledgement_timeout < replay.tolerable_latency < plain.tolerable_latency


@pytest.mark.parametrize(
    "shape",
    [
        Shape(variant=Variant.DROP, faulty=0),
        Shape(variant=Variant.DROP, faulty=4),
        Shape(variant=Variant.CORRUPT, faulty=-1),
        Shape(clusters=0),
        Shape(members=9),
        Shape(consumers=33),
    ],
)
def test_impossible_numbers_are_refused(shape: Shape) -> None:
    with pytest.raises(LocalError, match="--"):
        make_plan(shape, random.Random(1))


def test_chunks_are_written_as_needed_and_made() -> None:
    assert parse_chunks("32/64") == (32, 64)
    assert parse_chunks("4/4") == (4, 4)


@pytest.mark.parametrize("text", ["", "32", "32/", "/64", "64/32", "0/4", "-1/4", "a/b", "1/2/3"])
def test_other_chunks_are_refused(text: str) -> None:
    with pytest.raises(LocalError, match="--chunks"):
        parse_chunks(text)
