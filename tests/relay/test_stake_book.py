"""A producer's stake never backs two broadcasts within the refresh interval."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.stake_book import Allocation, StakeBook

INTERVAL = 10


def book(stake: int, interval: float = INTERVAL) -> StakeBook:
    made = StakeBook(interval)
    made.stake = stake
    return made


def test_pieces_are_taken_from_the_first_token_on() -> None:
    ours = book(100)
    assert ours.attach(30, 1000) == Allocation(0, 30, 1000)
    assert ours.attach(70, 1000) == Allocation(30, 100, 1000)
    assert ours.attach(1, 1000) is None


def test_a_piece_is_free_again_after_the_refresh_interval_and_not_before() -> None:
    ours = book(100)
    ours.attach(100, 1000)
    assert ours.attach(100, 1009) is None
    assert ours.free_at(100, 1009) == 1010
    assert ours.attach(100, 1010) == Allocation(0, 100, 1010)


def test_a_broken_interval_ends_with_its_last_second() -> None:
    ours = book(100, 9.5)
    ours.attach(100, 1000)
    assert ours.free_at(1, 1000) == 1010  # 1009 is less than 9.5 s later
    assert ours.attach(1, 1009) is None


def test_stake_attached_for_the_near_future_counts_now() -> None:
    ours = book(100)
    ours.attach(60, 1003)
    assert ours.attach(60, 1000) is None
    assert ours.attach(40, 1000) == Allocation(60, 100, 1000)


def test_more_than_the_stake_is_never_free() -> None:
    ours = book(100)
    assert ours.attach(101, 1000) is None
    assert ours.free_at(101, 1000) is None


def test_what_is_free_in_pieces_does_not_back_one_broadcast() -> None:
    ours = book(100)
    ours.attach(40, 1000)
    ours.attach(20, 1005)
    assert ours.free(1010) == 80
    assert ours.attach(50, 1010) is None
    assert ours.free_at(50, 1010) == 1015


def test_a_stake_that_shrinks_and_grows_keeps_what_is_attached() -> None:
    ours = book(100)
    ours.attach(80, 1000)
    ours.stake = 50
    assert ours.free(1000) == 0
    ours.stake = 120
    assert ours.attach(40, 1001) == Allocation(80, 120, 1001)


def test_restored_stake_is_not_attached_again() -> None:
    ours = book(100)
    ours.restore(Allocation(10, 90, 1000))
    assert ours.attach(20, 1001) is None
    assert ours.attach(10, 1001) == Allocation(0, 10, 1001)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),  # seconds that pass
        st.integers(0, 2),  # seconds that the timestamp is ahead
        st.integers(1, 40),  # tokens
        st.sampled_from([30, 50, 60]),  # the stake from then on
    ),
    max_size=40,
)


@given(STEPS)
def test_the_book_agrees_with_a_list_of_tokens(steps: list[tuple[int, int, int, int]]) -> None:
    ours = book(50)
    taken: dict[int, list[int]] = {}  # token → timestamps that it was attached at
    given: list[Allocation] = []
    clock = 1000

    def is_free(token: int, at: int) -> bool:
        return all(at - timestamp >= INTERVAL for timestamp in taken.get(token, []))

    def first(size: int, at: int) -> int | None:
        starts = range(ours.stake - size + 1)
        return next(
            (s for s in starts if all(is_free(token, at) for token in range(s, s + size))), None
        )

    for passed, ahead, size, stake in steps:
        clock += passed
        ours.stake = stake
        ours.forget(clock)
        at = clock + ahead
        expected = first(size, at)
        wait = (t for t in range(at, at + 2 * INTERVAL) if first(size, t) is not None)
        assert ours.free(at) == sum(is_free(token, at) for token in range(stake))
        assert ours.free_at(size, at) == next(wait, None)
        allocation = ours.attach(size, at)
        if expected is None:
            assert allocation is None
            continue
        assert allocation == Allocation(expected, expected + size, at)
        given.append(allocation)
        for token in range(expected, expected + size):
            taken.setdefault(token, []).append(at)
    for one, other in combinations(given, 2):
        if abs(one.timestamp - other.timestamp) < INTERVAL:
            assert one.end <= other.start or other.end <= one.start
