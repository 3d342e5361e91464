"""When clusters and members fail, or the marketplace changes, chunks go another way."""

import itertools

import pytest

from bruit.node.relay.actions import (
    Broadcasted,
    CheckAcknowledgement,
    Choose,
    Encode,
    SubmitChunk,
)
from bruit.node.relay.directory import Directory, peer_of
from bruit.node.relay.events import (
    Encoded,
    MarketplaceChanged,
    MembersScored,
    MemberUnreachable,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import RelayParams
from bruit.node.relay.proof import lacking, verify_proof
from bruit.node.relay.submission import MEMBERS_TRIED
from bruit.node.relay.wire import decode_acknowledgement
from bruit.plugins.marketplace import Marketplace
from tests.relay.producing import (
    CHANNEL,
    PARAMS,
    World,
    marketplace,
    member_of,
    peer_at,
    silent,
    tried,
    unreachable,
)

BLOCK = b"a block" * 30


# --- when clusters fail -----------------------------------------------------------


def test_a_silent_cluster_costs_a_time_out_and_then_another_option_is_used() -> None:
    world = World()
    world.select = lambda selection: min(option.cluster for option in selection.options)
    world.on_submit = lambda w, s: (
        None if w.cluster_of(s.member) == 1 else World.acknowledge_soon(w, s)
    )
    world.broadcast(BLOCK)
    world.run()
    assert lacking(world.proof()) == ()
    for chunk, clusters in tried(world).items():
        assert len(clusters) == 1 + (clusters[0] == 1), chunk
    assert any(len(clusters) == 2 for clusters in tried(world).values())
    assert verify_proof(world.proof(), world.market).holds


def test_while_acknowledgements_come_nothing_is_sent_twice_however_slow_the_uplink() -> None:
    """What was queued behind a megabyte is not lost because it takes its time."""
    world = World()
    turns = itertools.count(1)

    def one_after_the_other(world: World, submitted: SubmitChunk) -> None:
        after = next(turns) * 0.9 * PARAMS.acknowledgement_timeout
        given = world.acknowledgement(submitted, world.now + after)
        world.answer(submitted, given, after)

    world.on_submit = one_after_the_other
    world.broadcast(BLOCK)
    world.run()
    assert [len(clusters) for clusters in tried(world).values()] == [1] * CHANNEL.num_chunks
    assert lacking(world.proof()) == ()


def test_chunks_that_fail_together_are_chosen_for_together() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run()
    assert [len(choose.selections) for choose in world.of(Choose)] == [6, 6, 6]
    offered = [[len(s.options) for s in choose.selections] for choose in world.of(Choose)]
    assert offered == [[3] * 6, [2] * 6, [1] * 6]


def test_with_all_options_exhausted_the_answer_says_what_was_tried() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(3 * PARAMS.acknowledgement_timeout - 0.01)
    assert not world.of(Broadcasted)
    world.run(0.02)
    proof = world.proof()
    assert lacking(proof) == tuple(range(CHANNEL.num_chunks))
    directory = Directory(world.market)
    for receipt in proof.receipts:
        assert receipt.tried == directory.options(proof.message_id, receipt.chunk, 3)
    assert verify_proof(proof, world.market).holds


def test_nothing_is_sent_that_would_be_a_replay() -> None:
    world = World(params=RelayParams(acknowledgement_timeout=6.0))
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run()
    assert {len(clusters) for clusters in tried(world).values()} == {2}
    assert [lacking(answer.proof) for answer in world.of(Broadcasted)] == [tuple(range(6))]


def test_a_late_acknowledgement_still_counts_while_the_broadcast_is_under_way() -> None:
    world = World()
    world.on_submit = lambda w, s: w.answer(s, w.acknowledgement(s), 2.0)
    world.broadcast(BLOCK)
    world.run()
    proof = world.proof()
    assert lacking(proof) == ()
    for receipt in proof.receipts:
        given = decode_acknowledgement(receipt.acknowledgement)
        assert given.cluster == receipt.tried[0]
    assert verify_proof(proof, world.market).holds


def test_an_acknowledgement_after_the_end_does_nothing() -> None:
    world = World()
    world.on_submit = lambda w, s: w.answer(s, w.acknowledgement(s), 9.0)
    world.broadcast(BLOCK)
    world.run()
    assert len(world.of(Broadcasted)) == 1
    assert not world.of(CheckAcknowledgement)


def test_a_late_acknowledgement_stops_the_choice_of_another_cluster() -> None:
    world = World()
    world.lag = lambda action: 0.5 if isinstance(action, Choose) else 0.0
    world.on_submit = lambda w, s: (  # 1.5 s are allowed; the first chunk keeps the broadcast open
        w.answer(s, w.acknowledgement(s), 1.7) if w.checked(s).chunk else None
    )
    world.broadcast(BLOCK)
    world.run()
    assert {chunk: len(clusters) for chunk, clusters in tried(world).items()} == {
        chunk: 1 if chunk else 3 for chunk in range(CHANNEL.num_chunks)
    }
    assert lacking(world.proof()) == (0,)


def test_of_two_clusters_that_acknowledge_a_chunk_the_first_counts() -> None:
    world = World()
    world.lag = lambda action: 1.0 if isinstance(action, CheckAcknowledgement) else 0.0
    seen: dict[int, int] = {}

    def on_submit(w: World, s: SubmitChunk) -> None:
        chunk = w.checked(s).chunk
        seen[chunk] = seen.get(chunk, 0) + 1
        if chunk > 1:
            w.answer(s, w.acknowledgement(s), 1.6 if seen[chunk] == 1 else 0.2)
        elif seen[chunk] == 3:
            World.acknowledge_soon(w, s)

    world.on_submit = on_submit
    world.broadcast(BLOCK)
    world.run()
    proof = world.proof()
    assert lacking(proof) == ()
    for receipt in proof.receipts[2:]:
        assert decode_acknowledgement(receipt.acknowledgement).cluster == receipt.tried[0]


def test_a_chunk_given_up_is_taken_back_by_a_late_acknowledgement() -> None:
    params = RelayParams(cluster_options=1, chunks_per_peer=1)
    world = World(marketplace(clusters=1, members=1), params=params)
    world.on_submit = lambda w, s: w.answer(
        s, w.acknowledgement(s), 0.4 if w.checked(s).chunk else 1.7
    )
    world.broadcast(BLOCK)
    world.run()
    assert len(world.of(SubmitChunk)) == CHANNEL.num_chunks
    assert lacking(world.proof()) == ()


def test_a_cluster_chosen_too_late_is_sent_nothing() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(1)
    world.lag = lambda _action: PARAMS.tolerable_latency
    world.run()
    assert len(world.of(SubmitChunk)) == CHANNEL.num_chunks
    assert lacking(world.proof()) == tuple(range(CHANNEL.num_chunks))


def test_a_selector_learns_how_clusters_did() -> None:
    world = World(marketplace(clusters=2))
    world.select = lambda selection: min(option.cluster for option in selection.options)
    world.on_submit = lambda w, s: (
        None if w.cluster_of(s.member) == 1 else World.acknowledge_soon(w, s)
    )
    world.tell(MembersScored(((member_of(2, 0).address, 4.0), (member_of(2, 1).address, 6.0))))
    world.broadcast(BLOCK)
    world.run(10)
    world.broadcast(b"another block")
    world.run(0)
    options = {option.cluster: option for option in world.of(Choose)[-1].selections[0].options}
    assert options[1].acknowledgement_rate == 0
    assert options[1].recent_failures == CHANNEL.num_chunks
    assert options[1].latency is None
    assert options[2].acknowledgement_rate == pytest.approx(1)
    assert options[2].latency == pytest.approx(0.05)
    assert options[2].score_history == (5.0,)


# --- when members cannot be reached -----------------------------------------------


def test_another_member_of_the_cluster_is_asked_where_one_cannot_be_reached() -> None:
    world = World(marketplace(clusters=1))
    down = peer_at(1, 0)
    world.on_submit = lambda w, s: (
        unreachable(w, s) if peer_of(s.member) == down else World.acknowledge_soon(w, s)
    )
    for number in range(4):
        world.broadcast(bytes((number,)) * 50)
    world.run()
    assert any(peer_of(each.member) == down for each in world.of(SubmitChunk))
    assert len(world.of(Choose)) == 4  # the cluster was never given up
    assert all(lacking(answer.proof) == () for answer in world.of(Broadcasted))


def test_of_an_unreachable_cluster_so_many_members_are_tried_for_a_chunk() -> None:
    world = World()
    world.on_submit = unreachable
    world.broadcast(BLOCK)
    world.run()
    for clusters in tried(world).values():
        assert {clusters.count(cluster) for cluster in clusters} == {MEMBERS_TRIED}
    peers = [(world.checked(each).chunk, each.member.address) for each in world.of(SubmitChunk)]
    assert len(set(peers)) == len(peers)
    assert all(len(receipt.tried) == 3 for receipt in world.proof().receipts)


def test_a_member_that_was_not_sent_anything_may_be_unreachable() -> None:
    world = World()
    world.broadcast(BLOCK)
    world.tell(MemberUnreachable(b"nobody"))
    world.run()
    assert lacking(world.proof()) == ()


# --- how much a member has at a time ----------------------------------------------


def test_a_member_never_has_more_than_its_fill() -> None:
    world = World(marketplace(clusters=1, members=1), params=RelayParams(chunks_per_peer=2))
    held: list[int] = []

    def on_submit(w: World, s: SubmitChunk) -> None:
        held.append(len(w.of(SubmitChunk)) - len(w.of(CheckAcknowledgement)))
        World.acknowledge_soon(w, s)

    world.on_submit = on_submit
    world.broadcast(BLOCK)
    world.run()
    assert max(held) == 2
    assert lacking(world.proof()) == ()


def test_chunks_wait_for_room_no_longer_than_they_live() -> None:
    params = RelayParams(
        chunks_per_peer=1, acknowledgement_timeout=4.0, tolerable_latency=10.0, cluster_options=1
    )
    world = World(marketplace(clusters=1, members=1), params=params)
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run()
    proof = world.proof()
    assert len(world.of(SubmitChunk)) == 3  # at 0, 4 and 8 s
    assert [receipt.tried for receipt in proof.receipts] == [(1,)] * 3 + [()] * 3
    assert "sent to no cluster" in " ".join(verify_proof(proof, world.market).statements)


def test_a_failing_member_gives_its_room_back() -> None:
    world = World(marketplace(clusters=1, members=1), params=RelayParams(chunks_per_peer=3))
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(5)
    world.on_submit = World.acknowledge_soon
    world.broadcast(b"another block")
    world.run()
    assert lacking(world.of(Broadcasted)[-1].proof) == ()


# --- when the marketplace changes under way ---------------------------------------


def test_chunks_in_a_cluster_that_leaves_go_another_way() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(1)
    left = {world.cluster_of(submitted.member) for submitted in world.of(SubmitChunk)}
    stays = next(cluster for cluster in world.market.clusters if cluster.id not in left)
    world.tell(MarketplaceChanged(Marketplace(world.market.producers, (stays,))))
    world.on_submit = World.acknowledge_soon
    world.run()
    assert lacking(world.proof()) == ()
    assert all(receipt.tried[-1] == stays.id for receipt in world.proof().receipts)


def test_chunks_that_wait_for_a_cluster_that_leaves_go_another_way() -> None:
    world = World(marketplace(clusters=2, members=1), params=RelayParams(chunks_per_peer=4))
    world.select = lambda selection: min(option.cluster for option in selection.options)
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(0.1)
    assert len(world.of(SubmitChunk)) == 4
    world.on_submit = World.acknowledge_soon
    world.tell(MarketplaceChanged(Marketplace(world.market.producers, world.market.clusters[1:])))
    world.run()
    assert lacking(world.proof()) == ()


def test_when_all_clusters_leave_the_broadcast_still_ends() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(0.1)
    world.tell(MarketplaceChanged(Marketplace(world.market.producers, ())))
    world.run()
    assert lacking(world.proof()) == tuple(range(6))


def test_when_all_clusters_leave_before_the_first_chunk_the_broadcast_still_ends() -> None:
    world = World()
    world.broadcast(BLOCK)
    encode = world.of(Encode)[0]
    chunks = tuple(bytes(chunk) for chunk in CHANNEL.code().encode(BLOCK))
    hashes = tuple(keccak256(chunk) for chunk in chunks)
    world.tell(Encoded(encode.ticket, chunks, hashes))
    world.tell(MarketplaceChanged(Marketplace(world.market.producers, ())))
    world.run()
    assert [receipt.tried for receipt in world.proof().receipts] == [()] * 6
