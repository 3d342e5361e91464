"""Evidence that arose in whole exchanges: it holds as a file, and nothing made from it does.

A forger has the evidence of others, keys of its own, and writes the file's hash anew.
"""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from bruit.node.relay.evidence import (
    Evidence,
    Exhibit,
    Kind,
    decode_evidence,
    encode_evidence,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.wire import decode_attested
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import LocalError
from tests.relay.exchange import CHANNELS, COLLIDING, PARAMS, World, hash_of
from tests.relay.exchange_oracle import Oracle
from tests.relay.handheld_member import address
from tests.relay.test_exchange_random import honest_run, hostile_run

OF_EACH_KIND = 12
Found = dict[Kind, list[tuple[Evidence, Marketplace, Oracle]]]


@pytest.fixture(scope="module")
def found() -> Found:
    kinds: Found = {kind: [] for kind in Kind}
    for seed in range(40):
        oracle = hostile_run(seed).oracle
        for evidence, market in oracle.evidence:
            if len(kinds[evidence.kind]) < OF_EACH_KIND:
                kinds[evidence.kind].append((evidence, market, oracle))
    assert all(kinds.values())
    return kinds


def replaced(evidence: Evidence, index: int, **changes: object) -> Evidence:
    exhibits = list(evidence.exhibits)
    exhibits[index] = msgspec.structs.replace(exhibits[index], **changes)
    return msgspec.structs.replace(evidence, exhibits=tuple(exhibits))


def flipped(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :]


def attestation_changed(evidence: Evidence, rng: Random) -> Evidence:
    index = rng.randrange(len(evidence.exhibits))
    return replaced(evidence, index, attested=flipped(evidence.exhibits[index].attested, rng))


def signature_changed(evidence: Evidence, rng: Random) -> Evidence:
    index = rng.randrange(len(evidence.exhibits))
    return replaced(evidence, index, signature=flipped(evidence.exhibits[index].signature, rng))


def frame_changed(evidence: Evidence, rng: Random) -> Evidence:
    """Or added, where there is none. A replay says nothing of who witnessed."""
    index = rng.randrange(len(evidence.exhibits))
    frame = evidence.exhibits[index].frame
    if not frame:
        return replaced(evidence, index, frame=rng.randbytes(99))
    forged = flipped(frame, rng)
    while evidence.kind is Kind.REPLAY and forged[:81] + forged[146:] == frame[:81] + frame[146:]:
        forged = flipped(frame, rng)
    return replaced(evidence, index, frame=forged)


def somebody_else_accused(evidence: Evidence, rng: Random) -> Evidence:
    producers = list(evidence.producers)
    producers[rng.randrange(len(producers))] = address("alice-in-chains")
    return msgspec.structs.replace(evidence, producers=tuple(producers))


def one_more_accused(evidence: Evidence, rng: Random) -> Evidence:
    if rng.random() < 0.5:
        return msgspec.structs.replace(evidence, culprits=(*evidence.culprits, address("m0")))
    return msgspec.structs.replace(evidence, producers=(*evidence.producers, address("bob")))


def another_message(evidence: Evidence, rng: Random) -> Evidence:
    return msgspec.structs.replace(evidence, message_id=flipped(evidence.message_id, rng))


def another_kind(evidence: Evidence, rng: Random) -> Evidence:
    kinds = [kind for kind in Kind if kind is not evidence.kind]
    return msgspec.structs.replace(evidence, kind=rng.choice(kinds))


def an_exhibit_twice(evidence: Evidence, rng: Random) -> Evidence:
    exhibits = [*evidence.exhibits, rng.choice(evidence.exhibits)]
    return msgspec.structs.replace(evidence, exhibits=tuple(exhibits))


def other_rules(evidence: Evidence, rng: Random) -> Evidence:
    if rng.random() < 0.5:
        channel = msgspec.structs.replace(evidence.channel, min_chunks=1)
        return msgspec.structs.replace(evidence, channel=channel)
    params = msgspec.structs.replace(evidence.params, refresh_interval=3600.0)
    return msgspec.structs.replace(evidence, params=params)


Forgery = Callable[[Evidence, Random], Evidence]
FORGERIES: list[Forgery] = [
    attestation_changed,
    signature_changed,
    frame_changed,
    somebody_else_accused,
    one_more_accused,
    another_message,
    another_kind,
    an_exhibit_twice,
    other_rules,
]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_evidence_that_was_changed_does_not_hold(
    found: Found, kind: Kind, forgery: Forgery
) -> None:
    rng = Random(3)
    for evidence, market, oracle in found[kind]:
        assert oracle.verify(evidence, market)
        for _ in range(8):
            forged = forgery(evidence, rng)
            # A replay is its finder's testimony, of which a second copy says nothing else.
            if (kind, forgery) != (Kind.REPLAY, an_exhibit_twice):
                assert not oracle.verify(forged, market), forged


@pytest.mark.parametrize("kind", Kind)
def test_a_damaged_file_is_refused_or_says_the_same(found: Found, kind: Kind) -> None:
    rng = Random(4)
    for evidence, _, _ in found[kind]:
        file = encode_evidence(evidence)
        for _ in range(20):
            try:
                read = decode_evidence(flipped(file, rng))
            except LocalError:
                continue
            assert read == decode_evidence(file)  # one blank for another


def test_what_honest_producers_signed_makes_no_evidence_against_them() -> None:
    """Every pair of attestations and every set of frames of theirs, as any kind of evidence."""
    tried = 0
    for seed in range(60):
        oracle = honest_run(seed).oracle
        world = World(Random(seed), producers=("alice", "bob"), stake=10_000)
        for name in ("alice", "bob"):
            made = {
                bare: checked
                for bare, checked in oracle.made.items()
                # The verifier knows nothing of a hash that only `exchange` pretends.
                if checked.producer == address(name)
                and checked.attested.message_id != hash_of(COLLIDING)[:4]
            }
            exhibits = {
                (checked.attested.encode(), checked.frame.attestation.signature): Exhibit(
                    checked.attested.encode(), checked.frame.attestation.signature
                )
                for checked in made.values()
            }
            pairs = [(one, other) for one in exhibits.values() for other in exhibits.values()]
            for pair in pairs:
                for kind in (Kind.OVERLAPPING_STAKE, Kind.CONFLICTING_CHUNKS):
                    tried += 1
                    assert not oracle.verify(accusation(kind, name, pair), world.market)
            for exhibit in exhibits.values():
                claim = accusation(Kind.OVERSPENT_STAKE, name, (exhibit,), stake=10_000)
                assert not oracle.verify(claim, world.market)
            frames = [
                Exhibit(checked.attested.encode(), checked.frame.attestation.signature, bare)
                for bare, checked in made.items()
            ]
            for one in frames:
                for other in frames:
                    claim = accusation(Kind.INVALID_BLOCK, name, (one, other))
                    assert not oracle.verify(claim, world.market)
    assert tried > 500


def test_an_honest_witness_makes_no_evidence_while_it_is_a_member() -> None:
    oracle = honest_run(5).oracle
    world = World(Random(5), members=(("m0", "m1"), ("n0", "n1"), ("o0",)))
    members = {member.address for cluster in world.market.clusters for member in cluster.members}
    tried = 0
    for bare, checked in oracle.made.items():
        for (digest, signature), who in oracle.signed.items():
            if digest != keccak256(bare) or who not in members:
                continue
            exhibit = Exhibit(
                checked.attested.encode(),
                checked.frame.attestation.signature,
                bare[:81] + signature + bare[81:],
                witnessed=True,
            )
            evidence = msgspec.structs.replace(
                accusation(Kind.FALSE_WITNESS, "alice", (exhibit,)),
                culprits=(who,),
                producers=(checked.producer,),
            )
            tried += 1
            assert not oracle.verify(evidence, world.market)
    assert tried


def accusation(kind: Kind, name: str, exhibits: tuple[Exhibit, ...], *, stake: int = 0) -> Evidence:
    attested = [decode_attested(each.attested) for each in exhibits]
    lowest = min(attested, key=lambda each: each.stake_offset)
    return Evidence(
        kind=kind,
        reason="as a forger says",
        found_at=float(attested[-1].timestamp),
        channel=CHANNELS[lowest.channel],
        params=PARAMS,
        message_id=attested[-1].message_id,
        producers=(address(name),),
        exhibits=exhibits,
        stake=stake,
    )
