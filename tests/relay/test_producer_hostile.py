"""No member, and nobody else, makes a producer believe in an acknowledgement that is none."""

from collections.abc import Callable

import msgspec
import pytest

from bruit.node.relay.actions import Broadcasted, CheckAcknowledgement, SubmitChunk
from bruit.node.relay.directory import peer_of
from bruit.node.relay.events import AcknowledgementReceived
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.proof import lacking, verify_proof
from bruit.node.relay.wire import Acknowledgement
from tests.relay.producing import (
    CHANNEL,
    MERKLE_CHANNEL,
    PARAMS,
    World,
    peer_at,
    secret_of,
    signed,
    silent,
)

BLOCK = b"a block" * 30
STRANGER = keccak256(b"stranger")


def changed(**fields: object) -> Callable[[World, SubmitChunk], Acknowledgement]:
    """The honest acknowledgement but for some fields, signed by the member all the same."""

    def make(world: World, submitted: SubmitChunk) -> Acknowledgement:
        given = msgspec.structs.replace(world.acknowledgement(submitted), **fields)
        return signed(given, secret_of(world.cluster_of(submitted.member), _number(submitted)))

    return make


def _number(submitted: SubmitChunk) -> int:
    return next(
        number
        for cluster in range(1, 5)
        for number in range(3)
        if peer_at(cluster, number) == peer_of(submitted.member)
    )


def older(world: World, submitted: SubmitChunk) -> Acknowledgement:
    before = world.checked(submitted).attested.timestamp - 1
    return changed(timestamp=before)(world, submitted)


def later(world: World, submitted: SubmitChunk) -> Acknowledgement:
    after = world.checked(submitted).attested.timestamp + int(PARAMS.tolerable_latency) + 2
    return changed(timestamp=after)(world, submitted)


def next_chunk(world: World, submitted: SubmitChunk) -> Acknowledgement:
    return changed(chunk=world.checked(submitted).chunk + CHANNEL.num_chunks)(world, submitted)


def other_cluster(world: World, submitted: SubmitChunk) -> Acknowledgement:
    return changed(cluster=world.cluster_of(submitted.member) % 4 + 1)(world, submitted)


@pytest.mark.parametrize(
    "forge",
    [
        changed(message_id=b"evil"),
        changed(producer=b"\x01" * 20),
        changed(cluster=9),
        other_cluster,
        next_chunk,
        older,
        later,
        lambda w, s: w.acknowledgement(s).encode()[:-1],
        lambda w, s: w.acknowledgement(s).encode() + b"\x00",
        lambda _w, _s: b"",
    ],
    ids=[
        "another message",
        "another producer",
        "no such cluster",
        "another cluster",
        "no such chunk",
        "too early",
        "too late",
        "short",
        "long",
        "empty",
    ],
)
def test_what_cannot_be_an_acknowledgement_costs_no_check(
    forge: Callable[[World, SubmitChunk], Acknowledgement | bytes],
) -> None:
    world = World()
    world.on_submit = lambda w, s: w.answer(s, forge(w, s))
    world.broadcast(BLOCK)
    world.run()
    assert not world.of(CheckAcknowledgement)
    assert lacking(world.proof()) == tuple(range(CHANNEL.num_chunks))


def by_a_stranger(world: World, submitted: SubmitChunk) -> Acknowledgement:
    return signed(world.acknowledgement(submitted), STRANGER)


def by_another_clusters_member(world: World, submitted: SubmitChunk) -> Acknowledgement:
    return signed(
        world.acknowledgement(submitted),
        secret_of(world.cluster_of(submitted.member) % 4 + 1, 0),
    )


def unsigned(world: World, submitted: SubmitChunk) -> Acknowledgement:
    return msgspec.structs.replace(world.acknowledgement(submitted), signature=bytes(65))


def for_the_next_chunk(world: World, submitted: SubmitChunk) -> Acknowledgement:
    """Signed for one chunk, sent for another."""
    given = world.acknowledgement(submitted)
    return msgspec.structs.replace(
        changed(chunk=given.chunk + 1)(world, submitted), chunk=given.chunk
    )


@pytest.mark.parametrize("channel", [CHANNEL.id, MERKLE_CHANNEL.id])
@pytest.mark.parametrize(
    "forge", [by_a_stranger, by_another_clusters_member, unsigned, for_the_next_chunk]
)
def test_a_forged_signature_never_counts_and_sends_the_chunk_another_way_at_once(
    forge: Callable[[World, SubmitChunk], Acknowledgement], channel: int
) -> None:
    world = World()
    world.on_submit = lambda w, s: w.answer(s, forge(w, s))
    world.broadcast(BLOCK, channel)
    world.run(3 * 0.05 + 0.01)  # no time-out of 1.5 s
    proof = world.proof()
    assert len(world.of(SubmitChunk)) == 3 * CHANNEL.num_chunks
    assert lacking(proof) == tuple(range(CHANNEL.num_chunks))
    assert verify_proof(proof, world.market).holds


def test_an_acknowledgement_by_another_member_of_the_same_cluster_counts() -> None:
    world = World()
    world.on_submit = lambda w, s: w.answer(
        s, signed(w.acknowledgement(s), secret_of(w.cluster_of(s.member), (_number(s) + 1) % 3))
    )
    world.broadcast(BLOCK)
    world.run()
    assert lacking(world.proof()) == ()


def test_an_honest_acknowledgement_from_a_peer_that_was_sent_nothing_is_not_looked_at() -> None:
    world = World()

    def on_submit(w: World, s: SubmitChunk) -> None:
        for cluster in range(1, 5):
            for number in range(3):
                peer = peer_at(cluster, number)
                if peer != peer_of(s.member):
                    w.later(0.05, AcknowledgementReceived(peer, w.acknowledgement(s).encode()))

    world.on_submit = on_submit
    world.broadcast(BLOCK)
    world.run(1.0)
    assert not world.of(CheckAcknowledgement)


def test_a_flood_of_forgeries_costs_one_check_for_each_time_a_chunk_was_sent() -> None:
    world = World()

    def on_submit(w: World, s: SubmitChunk) -> None:
        for number in range(50):
            forged = signed(w.acknowledgement(s), keccak256(bytes((number,))))
            w.answer(s, forged, 0.05 + number * 1e-4)

    world.on_submit = on_submit
    world.broadcast(BLOCK)
    world.run()
    assert len(world.of(CheckAcknowledgement)) <= len(world.of(SubmitChunk))
    assert lacking(world.proof()) == tuple(range(CHANNEL.num_chunks))


def test_an_acknowledgement_that_comes_many_times_counts_once() -> None:
    world = World()

    def on_submit(w: World, s: SubmitChunk) -> None:
        for number in range(20):
            w.answer(s, w.acknowledgement(s), 0.05 + number * 0.01)

    world.on_submit = on_submit
    world.broadcast(BLOCK)
    world.run()
    assert len(world.of(CheckAcknowledgement)) == CHANNEL.num_chunks
    assert len(world.of(Broadcasted)) == 1


def test_before_a_chunk_was_sent_nobody_can_have_acknowledged_it() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(0.1)
    submitted = world.of(SubmitChunk)[0]
    given = world.acknowledgement(submitted)

    other = World()
    other.lag = lambda _action: 1.0
    other.on_submit = silent
    other.broadcast(BLOCK)  # still at the encoder
    peer = peer_of(submitted.member)
    assert other.tell(AcknowledgementReceived(peer, given.encode())) == []


def test_two_broadcasts_of_one_message_each_need_their_own_acknowledgements() -> None:
    world = World()
    waiting: dict[int, SubmitChunk] = {}  # the first chunk that each cluster gets

    def keep_the_first(w: World, s: SubmitChunk) -> None:
        waiting.setdefault(w.cluster_of(s.member), s)

    world.on_submit = keep_the_first
    world.broadcast(BLOCK, CHANNEL.id)
    world.broadcast(BLOCK, MERKLE_CHANNEL.id)
    world.run(0.1)
    for submitted in waiting.values():
        world.answer(submitted, world.acknowledgement(submitted))
    world.on_submit = silent
    world.run()
    proofs = [answer.proof for answer in world.of(Broadcasted)]
    acknowledged = sum(CHANNEL.num_chunks - len(lacking(proof)) for proof in proofs)
    assert acknowledged == len(waiting)
