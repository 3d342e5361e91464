"""Two hundred sybils serve everybody well, but for what one publisher writes.

Every honest node has five of them for each honest peer, as in the paper, which has 2,000
with 100 connections each. Only the messages of the one count. (censor-single)

The sybils earn their scores: they bring everything else, and first. So scores can only
keep some honest peers in each mesh, through which most of it goes; what makes sure of the
rest is that the author floods its messages and that gossip reaches a share of all peers.
"""

from tests.attacks.arena import ATTACK, BY_MESH, V1_0, V1_1, Arena, Defences, Outcome
from tests.attacks.sybils import all_but


def attacked(defences: Defences) -> Outcome:
    arena = Arena(defences)
    target = arena.publishers[0]
    arena.add_sybils(200, arena.honest, connections=50, at=ATTACK, forwards=all_but(target.peer_id))
    arena.run()
    return arena.outcome(since=ATTACK, by=target)


def test_who_is_censored_is_heard_all_the_same() -> None:
    outcome = attacked(V1_1)
    assert outcome.holds, f"{outcome}"
    assert outcome.percentile(50) < BY_MESH, f"{outcome}"  # without scores it is not


def test_with_none_of_the_defences_of_v1_1_the_censors_succeed() -> None:
    outcome = attacked(V1_0)
    assert not outcome.holds, f"{outcome}"
