"""Four hundred sybils connect to each of the ten publishers and drop everything.

The paper has 1,000 around each of 100 publishers with some 40 honest peers: 25 to 1. Here
it is 20 to 1. (eclipse-publishers)
"""

from tests.attacks.arena import (
    ATTACK,
    PUBLISHERS,
    SCORES_ALONE,
    V1_0,
    V1_1,
    Arena,
    Defences,
    Outcome,
)


def attacked(defences: Defences) -> Outcome:
    arena = Arena(defences)
    arena.add_sybils(400, arena.publishers, connections=PUBLISHERS, at=ATTACK)
    arena.run()
    return arena.outcome(since=ATTACK)


def test_publishers_in_the_middle_of_sybils_are_heard() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"


def test_scores_alone_let_them_be_heard() -> None:
    outcome = attacked(SCORES_ALONE)
    assert outcome.holds, f"{outcome}"


def test_without_scores_they_are_silenced() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
