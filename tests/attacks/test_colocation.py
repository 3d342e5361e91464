"""160 sybils on 25 IP addresses join together with the honest nodes and drop everything.

Every honest node is connected to 80, so to three on each address, as in the paper, and has
four for each honest peer; there it is two. P6 costs each of three on one address 40.
(colocation)
"""

from msgspec.structs import replace

from tests.attacks.arena import (
    BOOT,
    SCORES_ALONE,
    V1_0,
    V1_1,
    WARM_UP,
    Arena,
    Defences,
    Outcome,
)


def attacked(defences: Defences) -> Outcome:
    arena = Arena(replace(defences, colocation_weight=-10.0))
    arena.add_sybils(160, arena.honest, connections=50, at=BOOT, addresses=25)
    arena.run()
    return arena.outcome(since=WARM_UP)


def test_sybils_that_share_addresses_do_no_harm() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"


def test_scores_alone_keep_them_out() -> None:
    outcome = attacked(SCORES_ALONE)
    assert outcome.holds, f"{outcome}"


def test_without_scores_they_take_the_mesh_over() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
