"""A producer cuts, attests and sends blocks, and knows in the end what became of each chunk."""

from random import Random

import pytest

from bruit.node.relay.actions import (
    Broadcasted,
    BroadcastRefused,
    Choose,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
)
from bruit.node.relay.coding.code import Coding
from bruit.node.relay.directory import Directory
from bruit.node.relay.events import (
    AcknowledgementReceived,
    Broadcast,
    Chosen,
    Encoded,
    MarketplaceChanged,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.producer import MAX_BROADCASTS
from bruit.node.relay.proof import lacking, verify_proof
from bruit.node.relay.signing import message_id_of, stake_of
from bruit.node.relay.wire import ATTESTATION_SIZE
from bruit.plugins.marketplace import Marketplace
from tests.relay.producing import (
    CHANNEL,
    MERKLE_CHANNEL,
    PARAMS,
    START,
    US,
    World,
    marketplace,
    member_of,
    silent,
    tried,
    unreachable,
)

BLOCK = b"a block" * 30


# --- the way of a block -----------------------------------------------------------


@pytest.mark.parametrize("channel", [CHANNEL, MERKLE_CHANNEL])
def test_a_block_goes_out_in_attested_chunks_and_comes_back_as_a_proof(
    channel: ChannelParams,
) -> None:
    world = World()
    world.broadcast(BLOCK, channel.id)
    world.run()
    submitted = [world.checked(each) for each in world.of(SubmitChunk)]
    assert [each.chunk for each in submitted] == list(range(channel.num_chunks))
    assert all(each.producer == US for each in submitted)
    chunks = {each.chunk: each.frame.chunk for each in submitted[2:5]}
    assert channel.code().decode(chunks) == BLOCK
    proof = world.proof()
    assert proof.message_id == message_id_of(BLOCK)
    assert proof.timestamp == int(START)
    assert lacking(proof) == ()
    assert verify_proof(proof, world.market).holds


def test_chunks_go_to_members_of_the_chosen_clusters() -> None:
    world = World()
    world.select = lambda selection: selection.options[-1].cluster
    world.broadcast(BLOCK)
    world.run()
    directory = Directory(world.market)
    for chunk, clusters in tried(world).items():
        assert clusters == [directory.options(message_id_of(BLOCK), chunk, 3)[-1]]


def test_a_selector_is_told_of_every_option_in_protocol_order() -> None:
    world = World()
    world.broadcast(BLOCK)
    world.run()
    (choose,) = world.of(Choose)
    directory = Directory(world.market)
    for index, selection in enumerate(choose.selections):
        assert (selection.producer, selection.chunk_index) == (US, index)
        assert selection.message_id == message_id_of(BLOCK)
        options = tuple(option.cluster for option in selection.options)
        assert options == directory.options(message_id_of(BLOCK), index, 3)
        assert all(option.price == option.cluster for option in selection.options)
    sizes = [len(submitted.frame) for submitted in world.of(SubmitChunk)]
    assert [selection.chunk_size for selection in choose.selections] == sizes


def test_a_selector_that_answers_nonsense_gets_the_first_option() -> None:
    world = World()
    world.select = lambda _selection: 4711
    world.broadcast(BLOCK)
    world.run()
    assert lacking(world.proof()) == ()


def test_an_empty_payload_and_the_longest_one_go_through() -> None:
    world = World()
    world.broadcast(b"")
    world.run()
    world.broadcast(b"x" * CHANNEL.max_block)
    world.run()
    assert [lacking(answer.proof) for answer in world.of(Broadcasted)] == [(), ()]


def test_members_of_a_cluster_share_the_chunks() -> None:
    world = World(marketplace(clusters=1))
    for number in range(5):
        world.broadcast(bytes((number,)) * 50)
    world.run()
    used = {submitted.member.address for submitted in world.of(SubmitChunk)}
    assert used == {member_of(1, number).address for number in range(3)}


# --- refusals: nothing is sent ----------------------------------------------------


def refused(world: World) -> str:
    assert not world.of(SubmitChunk)
    assert not world.of(Sign)
    return world.problem()


def test_before_there_is_a_marketplace_nothing_is_sent() -> None:
    world = World(Marketplace())
    world.broadcast()
    world.run()
    assert "no producer in the marketplace" in refused(world)


def test_an_unknown_channel_is_refused_with_those_that_are_known() -> None:
    world = World()
    world.broadcast(channel=3)
    assert refused(world) == "channel 3 is not configured; configured: 7, 8"


def test_a_block_over_the_channels_limit_is_refused() -> None:
    world = World()
    world.broadcast(bytes(CHANNEL.max_block + 1))
    assert "10001 bytes" in refused(world)


def test_a_message_id_of_another_length_is_refused() -> None:
    world = World()
    world.tell(Broadcast(1, CHANNEL.id, b"12345", BLOCK))
    assert "4 bytes" in refused(world)


def test_without_a_cluster_that_has_members_nothing_is_sent() -> None:
    world = World(marketplace(clusters=2, members=0))
    world.broadcast()
    assert "no cluster" in refused(world)


def test_a_producer_that_is_struck_off_while_it_encodes_sends_nothing() -> None:
    world = World()
    world.broadcast()
    world.tell(MarketplaceChanged(Marketplace((), world.market.clusters)))
    world.run()
    assert "no producer" in refused(world)


def test_no_more_than_so_many_broadcasts_are_under_way() -> None:
    world = World()
    world.on_submit = silent
    for number in range(MAX_BROADCASTS + 1):
        world.broadcast(bytes((number,)))
    assert len(world.of(BroadcastRefused)) == 1
    world.run()
    assert len(world.of(Broadcasted)) == MAX_BROADCASTS
    world.broadcast(b"another")
    world.run()
    assert len(world.of(Broadcasted)) == MAX_BROADCASTS + 1


def test_what_was_signed_too_late_is_not_sent() -> None:
    world = World()
    world.lag = lambda _action: 6.0  # encoding, then signing and choosing: within
    world.broadcast(BLOCK)
    world.run()
    assert lacking(world.proof()) == ()
    world = World()
    world.lag = lambda _action: PARAMS.tolerable_latency + 1
    world.broadcast(BLOCK)
    world.run()
    assert not world.of(SubmitChunk)
    assert "tolerable latency" in world.problem()


def test_a_merkle_root_cannot_attest_chunks_of_several_lengths() -> None:
    channel = ChannelParams(
        id=9,
        topic="t",
        min_chunks=2,
        num_chunks=4,
        coding=Coding.MOD257,
        attesting=Attesting.MERKLE,
    )
    world = World(channels=[channel])
    world.broadcast(Random(1).randbytes(4096), channel.id)
    world.run()
    assert "one length for all chunks" in refused(world)


# --- stake ------------------------------------------------------------------------


@pytest.mark.parametrize("coding", list(Coding))
def test_every_chunk_has_its_own_stake_whatever_its_length(coding: Coding) -> None:
    channel = ChannelParams(id=9, topic="t", min_chunks=2, num_chunks=4, coding=coding)
    params = RelayParams(stake_per_byte=3)
    world = World(channels=[channel], params=params)
    world.broadcast(Random(1).randbytes(4096), channel.id)
    world.run()
    end = 0
    for submitted in world.of(SubmitChunk):
        start, behind = stake_of(world.checked(submitted).attested, 4, 3)
        assert start == end
        end = behind
    (attached,) = world.of(StakeAttached)
    assert (attached.start, attached.end) == (0, end)
    assert verify_proof(world.proof(), world.market).holds


def test_a_merkle_root_takes_the_stake_of_all_chunks() -> None:
    world = World()
    world.broadcast(BLOCK, MERKLE_CHANNEL.id)
    world.run()
    (attached,) = world.of(StakeAttached)
    attested = world.checked(world.of(SubmitChunk)[0]).attested
    assert stake_of(attested, 6, 1) == (attached.start, attached.end)


def test_stake_is_reported_before_anything_is_signed_or_sent() -> None:
    world = World()
    world.broadcast()
    world.run()
    kinds = [type(action) for action in world.log]
    assert kinds.index(StakeAttached) < kinds.index(Sign) < kinds.index(SubmitChunk)


def stake_for(block: bytes) -> int:
    length = CHANNEL.code().chunk_length(len(block))
    return CHANNEL.num_chunks * (length + ATTESTATION_SIZE)


def test_without_enough_stake_nothing_is_sent_until_it_is_free_again() -> None:
    world = World(marketplace(stake=stake_for(BLOCK)))
    world.broadcast(BLOCK)
    world.run(20)
    world.broadcast(b"B" * len(BLOCK))
    world.run(20)
    (refusal,) = world.of(BroadcastRefused)
    needed = stake_for(BLOCK)
    assert f"{needed} tokens in one piece are needed, 0 of {needed} are free" in refusal.problem
    assert f"try again in 40 s, at Unix time {int(START) + 60}" in refusal.problem
    assert len(world.of(SubmitChunk)) == CHANNEL.num_chunks
    world.run(20)
    world.broadcast(b"B" * len(BLOCK))
    world.run()
    assert len(world.of(Broadcasted)) == 2


def test_a_block_that_the_whole_stake_does_not_cover_is_refused_for_good() -> None:
    world = World(marketplace(stake=100))
    world.broadcast(BLOCK)
    world.run()
    assert "register more, or broadcast smaller blocks" in refused(world)


def test_after_a_restart_stake_that_still_backs_a_block_is_left_alone() -> None:
    first = World()
    first.broadcast(BLOCK)
    first.run(1)
    (attached,) = first.of(StakeAttached)
    second = World(attached=first.of(StakeAttached))
    second.broadcast(BLOCK)
    second.run()
    (again,) = second.of(StakeAttached)
    assert again.start == attached.end
    assert again.timestamp == attached.timestamp + 1  # the first second of this message is taken


# --- timestamps -------------------------------------------------------------------


def test_a_message_that_is_broadcast_again_gets_another_second() -> None:
    world = World()
    world.broadcast(BLOCK)
    world.broadcast(BLOCK)
    world.broadcast(BLOCK, MERKLE_CHANNEL.id)
    world.run()
    stamps = [(attached.channel, attached.timestamp) for attached in world.of(StakeAttached)]
    assert stamps == [(7, int(START)), (7, int(START) + 1), (8, int(START))]
    assert all(lacking(answer.proof) == () for answer in world.of(Broadcasted))


def test_a_message_broadcast_over_and_over_is_refused_at_last() -> None:
    world = World()
    for _ in range(7):
        world.broadcast(BLOCK)
    world.run()
    # Members wait for 10 s; half of it is left for their clocks.
    assert len(world.of(Broadcasted)) == 6
    assert "too often" in world.problem()


def test_members_get_until_a_timestamp_ahead_is_due_and_then_their_time() -> None:
    world = World()
    world.broadcast(BLOCK)
    world.run(0.1)
    world.on_submit = lambda w, s: w.answer(s, w.acknowledgement(s, w.now + 2), 2.0)
    world.broadcast(BLOCK)
    world.run()
    assert len(world.of(SubmitChunk)) == 2 * CHANNEL.num_chunks  # nothing was sent twice


# --- answers that nobody asked for ------------------------------------------------


def test_answers_with_unknown_tickets_do_nothing() -> None:
    world = World()
    world.on_submit = silent
    world.broadcast(BLOCK)
    world.run(0.1)
    timer = world.of(SetTimer)[0].timer
    before = len(world.log)
    for event in (
        Encoded(99, (), ()),
        Signed(99, ()),
        Chosen(99, ()),
        AcknowledgementReceived(b"nobody", b""),
        TimerFired(Timer(timer.name, 99)),
    ):
        assert world.tell(event) == []
    assert len(world.log) == before


def test_the_same_seed_gives_the_same_actions() -> None:
    def run(seed: int) -> list[object]:
        world = World(seed=seed)
        world.on_submit = lambda w, s: (
            unreachable(w, s) if w.checked(s).chunk % 2 else World.acknowledge_soon(w, s)
        )
        for number in range(3):
            world.broadcast(bytes((number,)) * 100)
        world.run()
        return list(world.log)

    assert run(5) == run(5)
    assert run(5) != run(6)
