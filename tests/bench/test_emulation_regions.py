"""Places, delays and the bound that they give."""

import pytest

from bench.emulation.regions import DELAYS_MS, REGIONS, Place, bound, delay, layout, places, spread

EIGHT = range(len(REGIONS))


def test_delays_are_those_of_the_source() -> None:
    def between(first: str, second: str) -> int:
        return DELAYS_MS[REGIONS.index(first)][REGIONS.index(second)]

    assert between("europe", "na_east") == 70
    assert between("europe", "na_west") == 110
    assert between("europe", "east_asia") == 125
    assert between("europe", "australia") == 165
    assert between("na_east", "na_west") == 60
    assert between("east_asia", "australia") == 110
    assert between("south_america", "south_africa") == 195
    assert between("south_africa", "south_america") == 190
    assert between("west_asia", "west_asia") == 5


def test_every_other_pair_is_as_far_there_as_back() -> None:
    different = {
        frozenset((REGIONS[row], REGIONS[column]))
        for row in EIGHT
        for column in EIGHT
        if DELAYS_MS[row][column] != DELAYS_MS[column][row]
    }
    assert different == {frozenset(("south_america", "south_africa"))}


def test_no_detour_is_shorter_than_the_direct_way() -> None:
    for row in EIGHT:
        for column in EIGHT:
            detours = [
                DELAYS_MS[row][middle] + DELAYS_MS[middle][column]
                for middle in EIGHT
                if middle not in (row, column)
            ]
            assert DELAYS_MS[row][column] <= min(detours)


def test_sixteen_nodes_are_in_all_regions_and_most_where_most_are() -> None:
    # Seven and three: the eight highest of weight / 2, / 3, … are 5599 / 2 to / 7, and 2894 / 2
    # and / 3.
    regions = spread(16)
    assert len(regions) == 16
    assert {region: regions.count(region) for region in REGIONS} == {
        "europe": 7,
        "na_east": 3,
        "na_west": 1,
        "east_asia": 1,
        "australia": 1,
        "west_asia": 1,
        "south_africa": 1,
        "south_america": 1,
    }


def test_a_fifth_is_fast_and_the_producer_only_where_that_is_asked_for() -> None:
    slow, fast = places(16, 0.1, 1), places(16, 0.1, 1, fast_producer=True)
    assert [node.fast for node in slow].count(True) == 3
    assert [node.fast for node in fast].count(True) == 3
    assert not slow[0].fast
    assert fast[0].fast
    assert slow[0].up == slow[0].down == pytest.approx(5e6)
    assert fast[0].up == pytest.approx(102.4e6)


def test_places_follow_from_the_seed() -> None:
    assert places(16, 0.1, 1) == places(16, 0.1, 1)
    assert places(16, 0.1, 1) != places(16, 0.1, 2)


def test_a_layout_has_delays_from_row_to_column() -> None:
    america, africa = (Place(each, 1.0, 2.0) for each in ("south_america", "south_africa"))
    asked = layout([america, africa])
    assert asked.delay == ((0.007, 0.195), (0.190, 0.007))
    assert (asked.up, asked.down) == ((1.0, 1.0), (2.0, 2.0))


def test_the_bound_is_that_of_the_worst_receiver() -> None:
    producer = Place("europe", up=8e6, down=1.0)
    near = Place("europe", up=1.0, down=4e6)  # 2 s and 2 ms
    far = Place("australia", up=1.0, down=80e6)  # 1 s and 165 ms
    assert bound([producer, far], 1_000_000) == pytest.approx(1.165)
    assert bound([producer, near, far], 1_000_000) == pytest.approx(2.002)


def test_the_bound_of_a_small_message_is_the_longest_delay() -> None:
    nodes = places(16, 1.0, 1)
    assert bound(nodes, 0) == max(delay(nodes[0], node) for node in nodes[1:])
