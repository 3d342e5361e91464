"""Four hundred sybils join together with the honest nodes and drop everything.

Every honest node has five of them for each honest peer; the paper's configuration comes to
two, with which the mesh of so small a network, helped by its gossip, holds by itself.
(cold-boot)
"""

from tests.attacks.arena import BOOT, SCORES_ALONE, V1_0, V1_1, WARM_UP, Arena, Defences, Outcome


def attacked(defences: Defences) -> Outcome:
    arena = Arena(defences)
    arena.add_sybils(400, arena.honest, connections=25, at=BOOT)
    arena.run()
    return arena.outcome(since=WARM_UP)


def test_a_network_that_starts_among_sybils_delivers() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"


def test_scores_alone_sort_them_out() -> None:
    outcome = attacked(SCORES_ALONE)
    assert outcome.holds, f"{outcome}"


def test_without_scores_it_never_recovers() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
