"""Four hundred sybils around one publisher, each connected to nobody else, drop everything.

The paper has 1,000 around one of 1,000 nodes with some 40 honest peers: 25 to 1. Here it
is 20 to 1. (eclipse-single)
"""

from tests.attacks.arena import ATTACK, SCORES_ALONE, V1_0, V1_1, Arena, Defences, Outcome


def attacked(defences: Defences) -> Outcome:
    arena = Arena(defences)
    arena.add_sybils(400, arena.publishers[:1], connections=1, at=ATTACK)
    arena.run()
    return arena.outcome(since=ATTACK)


def test_a_node_in_the_middle_of_sybils_hears_and_is_heard() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"


def test_scores_alone_keep_it_in_touch() -> None:
    outcome = attacked(SCORES_ALONE)
    assert outcome.holds, f"{outcome}"


def test_without_scores_it_is_cut_off() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
