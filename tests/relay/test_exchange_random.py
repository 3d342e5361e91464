"""The whole relay in any order of events: lost, late, doubled, with crashes and a changing market.

A seed is a whole run. `exchange_oracle` says what must be.
"""

from collections import Counter
from random import Random

import pytest

from bruit.node.relay.evidence import Kind
from bruit.topics.validation import Verdict
from tests.relay.exchange import COLLIDED, COLLIDING, USUAL, Chances, Schedule, World
from tests.relay.exchange_foes import FoulMember, FoulPeer, FoulProducer

GOOD = [b"good block", b"good block, and a longer one", b"good block, and a longer one", b""]
BLOCKS = [*GOOD, COLLIDED, COLLIDING]
BAD = [b"bad block", b"odd block that breaks the validator", b"good block"]


def blocks(rng: Random) -> list[tuple[str, int, bytes]]:
    """What producers of whom one makes bad blocks are told to broadcast."""
    return [
        ("mallory", rng.choice([1, 2]), rng.choice(BAD))
        if rng.random() < 0.25
        else (rng.choice(["alice", "bob"]), rng.choice([1, 2]), rng.choice(BLOCKS))
        for _ in range(rng.randint(1, 5))
    ]


def honest_run(seed: int, chances: Chances = USUAL, steps: int = 400) -> World:
    rng = Random(seed)
    shapes = [(("m0", "m1"), ("n0",)), (("m0",), ("n0", "n1"), ("o0",)), (("m0", "m1"),)]
    world = World(
        rng,
        producers=("alice", "bob", "mallory"),
        members=rng.choice(shapes),
        foes=("mallory",),
        stake=rng.choice([600, 1500, 10_000]),
    )
    Schedule(world, blocks(rng), chances).run(steps)
    return world


def hostile_run(seed: int) -> World:
    rng = Random(seed)
    world = World(
        rng,
        members=(("m0", "m1"), ("n0", "n1")),
        registered=("mallory",),
        foes=("mallory", "m1", "eve", "stranger"),
        stake=rng.choice([1500, 10_000]),
    )
    producer, peer = FoulProducer(world, "mallory", BLOCKS), FoulPeer(world)
    FoulMember(world, "m1")
    told = [("alice", rng.choice([1, 2]), rng.choice(BLOCKS)) for _ in range(rng.randint(0, 2))]
    schedule = Schedule(world, told, Chances(crash=0.004))
    for _ in range(rng.randint(2, 8)):
        rng.choice([producer.move, producer.move, peer.move])()
        schedule.some(rng.choice([5, 30, 100]))
    schedule.run(200)
    return world


def seen(seeds: range, hostile: bool) -> tuple[Counter[Kind], Counter[Verdict], Counter[str]]:
    kinds, verdicts, ends = Counter[Kind](), Counter[Verdict](), Counter[str]()
    for seed in seeds:
        try:
            world = hostile_run(seed) if hostile else honest_run(seed)
        except AssertionError as fault:
            fault.add_note(f"seed {seed}, {hostile=}")
            raise
        oracle = world.oracle
        kinds.update(evidence.kind for evidence, _ in oracle.evidence)
        verdicts.update(oracle.verdicts)
        ends["delivered"] += sum(len(book.delivered) for book in oracle.books.values())
        ends["lives"] += sum(node.life for node in world.nodes.values())
        for proof in oracle.proofs:
            whole = all(receipt.acknowledgement for receipt in proof.receipts)
            ends["whole proofs" if whole else "partial proofs"] += 1
    return kinds, verdicts, ends


@pytest.mark.parametrize("start", range(0, 1200, 300))
def test_among_the_honest_every_block_arrives_or_is_accounted_for(start: int) -> None:
    kinds, verdicts, ends = seen(range(start, start + 300), hostile=False)
    # That the runs are about something:
    assert min(kinds[Kind.INVALID_BLOCK], kinds[Kind.TOO_FEW_CHUNKS], kinds[Kind.REPLAY]) > 20
    assert min(verdicts[Verdict.ACCEPT], verdicts[Verdict.IGNORE]) > 100
    assert min(ends.values()) > 20
    assert len(ends) == 4


@pytest.mark.parametrize("start", range(0, 900, 300))
def test_the_hostile_are_found_out_and_nobody_else(start: int) -> None:
    kinds, verdicts, ends = seen(range(start, start + 300), hostile=True)
    assert all(kinds[kind] > 5 for kind in Kind), kinds
    assert all(verdicts[verdict] > 100 for verdict in Verdict), verdicts
    assert ends["delivered"] > 100


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(10):
        one, other = hostile_run(seed), hostile_run(seed)
        assert one.oracle.evidence == other.oracle.evidence
        assert one.carried_out == other.carried_out
