"""Pauses between attempts: the numbers of go-libp2p-pubsub's backoff_test.go."""

import random

from hypothesis import given
from hypothesis import strategies as st

from bruit.node.gossip.redial import (
    FIRST_PAUSE,
    JITTER,
    LONGEST_PAUSE,
    MAX_ATTEMPTS,
    MAX_REMEMBERED,
    MEMORY,
    RedialPauses,
)

PEER, OTHER = b"peer-1", b"peer-2"


def pauses(max_attempts: int = 10, seed: int = 1) -> RedialPauses:
    return RedialPauses(random.Random(seed), max_attempts)


def test_the_pauses_are_those_of_go() -> None:
    assert (FIRST_PAUSE, LONGEST_PAUSE, JITTER, MAX_ATTEMPTS, MEMORY) == (0.1, 10, 0.1, 4, 600)


@given(st.integers())
def test_pauses_double_up_to_the_longest_and_then_the_peer_is_left_alone(seed: int) -> None:
    redial = pauses(seed=seed)
    assert redial.before_next(PEER, 0.0) == 0
    assert redial.before_next(OTHER, 0.0) == 0
    last = 0.0
    for attempt in range(9):
        pause = redial.before_next(PEER, 0.0)
        assert pause is not None
        assert min(2 * last, LONGEST_PAUSE) <= pause <= min(2**attempt * 0.2, LONGEST_PAUSE)
        last = pause
    assert last == LONGEST_PAUSE
    assert redial.before_next(PEER, 0.0) is None
    assert redial.before_next(PEER, MEMORY) is None
    assert redial.before_next(OTHER, 0.0) == FIRST_PAUSE


def test_a_peer_left_alone_for_ten_minutes_starts_afresh() -> None:
    redial = pauses()
    redial.before_next(PEER, 0.0)
    assert redial.before_next(PEER, 1.0) == FIRST_PAUSE
    assert redial.before_next(PEER, 1.0 + MEMORY + 0.001) == 0
    assert len(redial) == 1


def test_asking_about_a_peer_left_alone_does_not_keep_it_so() -> None:
    redial = pauses(max_attempts=1)
    redial.before_next(PEER, 0.0)
    assert redial.before_next(PEER, MEMORY) is None
    assert redial.before_next(PEER, MEMORY + 0.001) == 0


def test_what_is_too_old_is_forgotten_at_the_next_attempt_of_anybody() -> None:
    redial = pauses(max_attempts=100)
    for number in range(10):
        redial.before_next(f"peer-{number}".encode(), float(number))
    assert len(redial) == 10
    redial.before_next(b"some-new-peer", 4.0 + MEMORY)
    assert len(redial) == 7  # those of 0 to 3 are over the time, that of 4 is not
    redial.before_next(b"some-new-peer", 20.0 + 2 * MEMORY)
    assert len(redial) == 1


def test_only_so_many_peers_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    redial = pauses()
    redial.before_next(PEER, 0.0)
    redial.before_next(OTHER, 0.0)
    for number in range(MAX_REMEMBERED - 2):
        redial.before_next(number.to_bytes(4), 0.0)
    assert redial.before_next(PEER, 1.0) == FIRST_PAUSE
    redial.before_next(b"one more", 1.0)
    assert len(redial) == MAX_REMEMBERED
    assert redial.before_next(OTHER, 1.0) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 400)), max_size=40))
def test_pauses_are_those_of_a_list_of_all_attempts(asked: list[tuple[int, float]]) -> None:
    """Without chance: every pause is as long as its attempts alone make it."""
    redial = RedialPauses(_NoChance(), 4)
    attempts: dict[int, list[float]] = {}
    now = 0.0
    for peer, wait in asked:
        now += wait
        before = attempts.get(peer, [])
        if before and now - before[-1] > MEMORY:
            before = []
        expected = [0.0, 0.1, 0.2, 0.4, None][len(before)]
        assert redial.before_next(bytes([peer]), now) == expected
        attempts[peer] = before if expected is None else [*before, now]


class _NoChance(random.Random):
    def random(self) -> float:
        return 0.0
