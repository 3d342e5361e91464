"""Two hundred sybils pass on one message in ten.

Every honest node has seven or eight of them for each honest peer. The paper has five to
one, 2,000 with 100 connections each, and they pass on one in two: too few and too kind to
be felt in so small a network, with or without scores. (degrade)
"""

from tests.attacks.arena import (
    ATTACK,
    DEADLINE,
    SCORES_ALONE,
    V1_0,
    V1_1,
    Arena,
    Defences,
    Outcome,
)
from tests.attacks.sybils import with_probability


def attacked(defences: Defences) -> Outcome:
    arena = Arena(defences)
    arena.add_sybils(200, arena.honest, connections=75, at=ATTACK, forwards=with_probability(0.1))
    arena.run()
    return arena.outcome(since=ATTACK)


def test_peers_that_pass_on_little_lose_nothing_for_others() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"


def test_scores_alone_find_out_who_passes_on_little() -> None:
    """But for one delivery in a thousand: with gossip to few, luck decides about the last ones."""
    outcome = attacked(SCORES_ALONE)
    assert outcome.share > 0.999, f"{outcome}"
    assert outcome.percentile(99) < DEADLINE, f"{outcome}"


def test_without_scores_messages_are_lost_to_peers_that_pass_on_little() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
