"""What a consumer takes, gathers, delivers and disputes."""

import pytest

from bruit.node.relay import drops
from bruit.node.relay.consumer import MAX_STRANGE, Consumer
from bruit.node.relay.events import MarketplaceChanged
from bruit.node.relay.evidence import Kind
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.topics.errors import LocalError
from bruit.topics.validation import Validation, Verdict, reject
from tests.relay.consuming import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    CHANNELS,
    MEMBERS,
    MERKLE,
    OTHER_PEER,
    PARAMS,
    PEER,
    START,
    STRANGER,
    Desk,
    Stakes,
    judge,
    market,
    send,
)

BLOCK = b"a block of some bytes" * 20
ACCEPT, REJECT, IGNORE = Verdict.ACCEPT, Verdict.REJECT, Verdict.IGNORE
BOTH = pytest.mark.parametrize("channel", [CHANNEL, MERKLE], ids=["chunks", "merkle"])


@BOTH
@pytest.mark.parametrize("chunks", [(0, 1), (2, 3), (3, 0)])
def test_enough_chunks_of_one_producer_are_delivered(
    channel: ChannelParams, chunks: tuple[int, int]
) -> None:
    desk = Desk()
    assert desk.feed(send(ALICE, BLOCK, channel=channel), *chunks) == [ACCEPT, ACCEPT]
    (delivery,) = desk.delivered
    assert delivery.block == BLOCK
    assert delivery.producers == (ALICE.address,)
    assert delivery.first_chunk_at == START
    assert delivery.clusters == {0: 2}
    desk.finish()
    assert len(desk.delivered) == 1
    assert not desk.disputes


def test_chunks_of_a_delivered_block_are_still_passed_on() -> None:
    desk = Desk()
    assert desk.feed(send(ALICE, BLOCK), 0, 1, 2, 3) == [ACCEPT] * 4
    assert desk.blocks() == [BLOCK]


def test_a_chunk_with_another_witness_is_ignored_and_counted_for_its_cluster() -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK)
    assert desk.feed(sent, 0) == [ACCEPT]
    assert desk.feed(sent, 0, witness=MEMBERS[1]) == [IGNORE]
    assert desk.feed(sent, 1) == [ACCEPT]
    assert desk.delivered[0].clusters == {0: 2, 1: 1}
    assert [drop.reason for drop in desk.drops] == [drops.DUPLICATE]


def test_an_own_chunk_counts_like_a_gossiped_one() -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK)
    desk.see(sent, 0)
    assert desk.feed(sent, 0, 3) == [IGNORE, ACCEPT]
    assert desk.blocks() == [BLOCK]


def test_a_frame_that_is_none_is_rejected_without_a_check() -> None:
    desk = Desk(patient=True)
    good = send(ALICE, BLOCK).frame(0)
    other_channel = send(ALICE, BLOCK, channel=MERKLE).frame(0)
    no_such_chunk = good[:6] + (4).to_bytes(2, "big") + good[8:]
    for frame in (b"", good[:140], good[:146], good + bytes(70_000), other_channel, no_such_chunk):
        assert desk.verdict(frame) is REJECT
    assert not desk.waiting
    assert {(drop.reason, drop.blame) for drop in desk.drops} == {(drops.MALFORMED, True)}


def test_a_flipped_bit_anywhere_is_rejected() -> None:
    desk = Desk()
    good = send(ALICE, BLOCK).frame(0)
    for at in (0, 9, 13, 20, 79, 80, 85, 144, 145, 146, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 0x40
        witness = 81 <= at < 145  # on which nothing else depends
        assert desk.verdict(bytes(bad)) is (IGNORE if witness else REJECT), at
    assert desk.verdict(good) is ACCEPT
    desk.finish()
    assert set(desk.kinds()) <= {Kind.FALSE_WITNESS, Kind.TOO_FEW_CHUNKS}


def test_a_channel_that_is_not_ours_is_ignored() -> None:
    desk = Desk()
    assert desk.verdict(send(ALICE, BLOCK).frame(0), channel=99) is IGNORE
    assert desk.drops[0].reason == drops.UNKNOWN_CHANNEL


def test_before_the_first_marketplace_nobody_is_blamed() -> None:
    desk = Desk()
    desk.consumer = Consumer(CHANNELS, PARAMS, desk.consumer._rng)
    assert desk.verdict(send(ALICE, BLOCK).frame(0)) is IGNORE


def test_a_stranger_may_not_produce() -> None:
    desk = Desk()
    assert desk.feed(send(STRANGER, BLOCK), 0) == [IGNORE]
    assert desk.drops[0].reason == drops.UNKNOWN_PRODUCER
    desk.finish()
    assert not desk.disputes


def test_who_brings_chunks_of_strangers_again_and_again_is_blamed_for_it() -> None:
    """One or two may be of a producer whom this node's marketplace does not know yet."""
    desk = Desk()
    strange = send(STRANGER, BLOCK).frame(0)
    assert [desk.verdict(strange) for _ in range(MAX_STRANGE)] == [IGNORE] * MAX_STRANGE
    assert desk.verdict(strange) is REJECT
    assert desk.verdict(strange, OTHER_PEER) is IGNORE, "another peer has its own patience"
    desk.wait(PARAMS.tolerable_latency + 1)
    assert desk.verdict(strange) is IGNORE


def test_a_chunk_of_a_cluster_that_is_not_known_here_yet_is_not_held_against_its_peer() -> None:
    desk = Desk(marketplace=market(members=MEMBERS[1:]))
    sent = send(ALICE, BLOCK)
    assert desk.feed(sent, 0) == [IGNORE]
    desk.handle(MarketplaceChanged(market()))
    assert desk.feed(sent, 0, 1) == [ACCEPT, ACCEPT]
    assert desk.blocks() == [BLOCK]


def test_a_false_witness_is_disputed_once_for_each_peer_and_broadcast() -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK)
    for peer in (PEER, PEER, OTHER_PEER):
        assert desk.verdict(sent.frame(0, STRANGER), peer) is IGNORE
    assert desk.kinds() == [Kind.FALSE_WITNESS] * 2
    assert desk.disputes[0].culprits == (STRANGER.address,)
    desk.finish()
    assert len(desk.disputes) == 2, "what was refused was not gathered"


def test_a_replay_is_ignored_and_told_once_for_each_peer_and_broadcast() -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK)
    desk.wait(PARAMS.tolerable_latency)
    assert desk.feed(sent, 0) == [ACCEPT]
    desk.wait(0.5)
    assert desk.feed(sent, 1, 2, 3) == [IGNORE] * 3
    assert desk.verdict(sent.frame(3), OTHER_PEER) is IGNORE
    assert desk.kinds() == [Kind.REPLAY] * 2
    assert not desk.delivered


def test_a_timestamp_may_lie_ahead_no_further_than_the_tolerable_latency() -> None:
    desk = Desk()
    limit = PARAMS.tolerable_latency
    assert desk.feed(send(ALICE, BLOCK, at=START + limit), 0) == [ACCEPT]
    assert desk.feed(send(BOB, BLOCK, at=START + limit + 1), 0) == [IGNORE]
    assert desk.drops[0].reason == drops.TOO_FAR_AHEAD


@BOTH
def test_too_few_chunks_are_disputed_when_their_time_is_over(channel: ChannelParams) -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK, channel=channel)
    desk.feed(sent, 3)
    desk.wait(PARAMS.chunk_expiry - 0.01)
    assert not desk.disputes
    desk.wait(0.02)
    (evidence,) = desk.disputes
    assert evidence.kind is Kind.TOO_FEW_CHUNKS
    assert evidence.producers == (ALICE.address,)
    assert len(evidence.exhibits) == 1
    desk.finish()
    assert len(desk.disputes) == 1


def test_a_chunk_after_the_dispute_is_over_and_begins_nothing_anew() -> None:
    desk = Desk(params=RelayParams(chunk_expiry=1.0))
    sent = send(ALICE, BLOCK)
    desk.feed(sent, 0)
    desk.wait(2.0)
    assert desk.feed(sent, 1, 2) == [IGNORE] * 2
    assert desk.drops[-1].reason == drops.EXPIRED
    desk.finish()
    assert desk.kinds() == [Kind.TOO_FEW_CHUNKS]


@BOTH
def test_an_invalid_block_is_disputed_with_the_chunks_that_gave_it(channel: ChannelParams) -> None:
    desk = Desk()
    sent = send(ALICE, b"bad" + BLOCK, channel=channel)
    assert desk.feed(sent, 3, 1, 0) == [ACCEPT, ACCEPT, IGNORE]
    (evidence,) = desk.disputes
    assert evidence.kind is Kind.INVALID_BLOCK
    assert evidence.validator == "chain"
    assert [exhibit.frame for exhibit in evidence.exhibits] == [
        sent.plain[1].encode(),
        sent.plain[3].encode(),
    ]
    desk.finish()
    assert len(desk.disputes) == 1
    assert not desk.delivered


def test_a_block_under_another_message_id_is_disputed_and_not_delivered() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK, message_id=b"same"), 0, 1)
    assert desk.kinds() == [Kind.INVALID_BLOCK]
    assert not desk.delivered


def test_chunks_that_are_none_of_any_message_are_disputed() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK, chunks=[b"\xff" * 8, b"1" * 8, b"2" * 8, b"3" * 8]), 0, 1)
    assert desk.kinds() == [Kind.INVALID_BLOCK]


def test_chunks_of_several_lengths_are_disputed() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK, chunks=[b"\xff" * 8, b"1" * 9, b"2" * 8, b"3" * 8]), 0, 1)
    assert desk.kinds() == [Kind.INVALID_BLOCK]


def test_a_codeword_that_differs_by_subset_is_disputed_and_stays_so() -> None:
    """Chunks 0 and 1 give rubbish, 2 and 3 the block: what came first decides."""
    good = [bytes(chunk) for chunk in CHANNEL.code().encode(BLOCK)]
    bad = [bytes(chunk) for chunk in CHANNEL.code().encode(b"bad" + bytes(len(BLOCK) - 3))]
    sent = send(ALICE, BLOCK, chunks=[*bad[:2], *good[2:]])
    desk = Desk()
    assert desk.feed(sent, 0, 1, 2, 3) == [ACCEPT, ACCEPT, IGNORE, IGNORE]
    desk.finish()
    assert desk.kinds() == [Kind.INVALID_BLOCK]
    assert not desk.delivered
    mixed = Desk()
    mixed.feed(sent, 1, 2)  # neither block
    mixed.finish()
    assert mixed.kinds() == [Kind.INVALID_BLOCK]
    assert not mixed.delivered


def test_a_failing_plugin_loses_the_block_and_says_so_and_blames_nobody() -> None:
    desk = Desk()
    desk.feed(send(ALICE, b"odd" + BLOCK), 0, 1)
    (lost,) = desk.undecided
    assert lost.producers == (ALICE.address,)
    assert lost.reason == "the plugin is broken"
    desk.finish()
    assert not desk.disputes
    assert not desk.delivered


def test_a_plugin_that_fails_on_chunks_put_together_leaves_too_few_of_each() -> None:
    desk = Desk()
    desk.feed(send(ALICE, b"odd" + BLOCK), 0)
    desk.feed(send(BOB, b"odd" + BLOCK), 1)
    desk.finish()
    assert desk.judgements == 1
    assert desk.kinds() == [Kind.TOO_FEW_CHUNKS]
    assert not desk.undecided


def test_another_producer_may_bring_what_a_failing_plugin_lost() -> None:
    works = False

    def moody(block: bytes) -> Validation:
        return judge(block if works else b"odd")

    desk = Desk(judge=moody)
    desk.feed(send(ALICE, BLOCK), 0, 1)
    works = True
    desk.feed(send(BOB, BLOCK), 0, 1)
    assert desk.blocks() == [BLOCK]


def test_the_same_block_of_two_producers_is_delivered_once_and_judged_once() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK), 0, 1)
    desk.feed(send(BOB, BLOCK), 1, 2)
    desk.finish()
    assert desk.blocks() == [BLOCK]
    assert desk.judgements == 1
    assert not desk.disputes


def test_the_same_block_is_delivered_once_though_both_are_judged_at_once() -> None:
    desk = Desk(patient=True)
    for producer in (ALICE, BOB):
        sent = send(producer, BLOCK)
        for chunk in (0, 1):
            desk.gossip(sent.frame(chunk))
    while desk.waiting:
        desk.answer(len(desk.waiting) // 2)
    desk.finish()
    assert desk.blocks() == [BLOCK]
    assert not desk.disputes


def test_a_block_sent_again_is_not_delivered_again() -> None:
    desk = Desk()
    stakes = Stakes()
    desk.feed(send(ALICE, BLOCK, stakes=stakes), 0, 1)
    desk.wait(15)
    desk.feed(send(ALICE, BLOCK, at=desk.now, stakes=stakes), 2, 3)
    assert desk.blocks() == [BLOCK]


def test_chunks_of_several_producers_are_put_together_when_time_is_over() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK), 0)
    desk.wait(3)
    desk.feed(send(BOB, BLOCK), 3)
    desk.wait(PARAMS.chunk_expiry)
    (delivery,) = desk.delivered
    assert delivery.block == BLOCK
    assert set(delivery.producers) == {ALICE.address, BOB.address}
    assert delivery.first_chunk_at == START
    desk.finish()
    assert not desk.disputes


def test_chunks_put_together_in_vain_blame_nobody_for_the_others() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK), 0)
    desk.feed(send(BOB, b"rubbish", message_id=send(ALICE, BLOCK).message_id), 3)
    desk.finish()
    assert desk.kinds() == [Kind.TOO_FEW_CHUNKS]
    assert desk.disputes[0].producers == (ALICE.address, BOB.address)
    assert not desk.delivered


def test_what_most_producers_attest_wins_over_rubbish_of_the_same_length() -> None:
    rubbish = [bytes([at]) * len(chunk) for at, chunk in enumerate(CHANNEL.code().encode(BLOCK))]
    name = send(ALICE, BLOCK).message_id
    for seed in range(8):
        desk = Desk(seed=seed)
        desk.feed(send(CAROL, BLOCK, message_id=name, chunks=rubbish), 2)
        desk.feed(send(ALICE, BLOCK), 0)
        desk.wait(1)
        desk.feed(send(BOB, BLOCK), 0)
        desk.feed(send(BOB, BLOCK), 3)
        desk.finish()
        assert desk.blocks() == [BLOCK]


def test_a_ground_message_id_confuses_nobody() -> None:
    """Another block, valid as well, under the id of Alice's: both are told apart."""
    name = send(ALICE, BLOCK).message_id
    desk = Desk()
    alice = send(ALICE, BLOCK)
    mallory = send(BOB, b"bad block", message_id=name)
    for chunk in (0, 1):
        desk.feed(mallory, chunk)
        desk.feed(alice, chunk)
    desk.finish()
    assert desk.blocks() == [BLOCK]
    assert desk.kinds() == [Kind.INVALID_BLOCK]
    assert desk.disputes[0].producers == (BOB.address,)


def test_who_begins_late_under_a_used_message_id_has_the_whole_time() -> None:
    desk = Desk()
    alice = send(ALICE, BLOCK)
    desk.feed(send(BOB, b"other", message_id=alice.message_id), 0)
    desk.wait(9)
    alice = send(ALICE, BLOCK, at=desk.now)
    desk.feed(alice, 0)
    desk.wait(5)
    assert not desk.disputes
    assert desk.feed(alice, 1) == [ACCEPT]
    assert desk.blocks() == [BLOCK]
    desk.finish()
    assert not desk.disputes, "the message with this id came"


def test_all_producers_concerned_are_named_together() -> None:
    desk = Desk()
    name = send(ALICE, BLOCK).message_id
    desk.feed(send(ALICE, BLOCK), 0)
    desk.wait(6)
    desk.feed(send(BOB, b"B", at=desk.now, message_id=name), 1)
    desk.wait(5)
    assert not desk.disputes
    desk.feed(send(CAROL, b"C", at=desk.now, message_id=name), 2)
    desk.finish()
    assert [each.producers for each in desk.disputes] == [
        (ALICE.address, BOB.address),
        (CAROL.address,),
    ]


def test_a_report_limit_shortens_a_dispute_and_leaves_no_producer_out() -> None:
    five = ChannelParams(id=7, topic="blocks", min_chunks=5, num_chunks=8, max_block=65_536)
    desk = Desk(channels={7: five}, params=RelayParams(chunk_report_limit=5))
    name = send(ALICE, BLOCK).message_id
    for producer in (ALICE, BOB):
        sent = send(producer, producer.name.encode(), message_id=name, channel=five)
        desk.feed(sent, 0, 1, 2, 3)
    desk.finish()
    (evidence,) = desk.disputes
    assert evidence.producers == (ALICE.address, BOB.address)
    assert len(evidence.exhibits) == 5


def test_a_dispute_must_be_able_to_carry_the_chunks_of_a_block() -> None:
    with pytest.raises(LocalError, match="chunk_report_limit"):
        Desk(params=RelayParams(chunk_report_limit=1))


def test_one_chunk_attested_twice_is_disputed_and_the_first_one_counts() -> None:
    desk = Desk()
    stakes = Stakes()
    first = send(ALICE, BLOCK, stakes=stakes)
    second = send(ALICE, b"x" * len(BLOCK), stakes=stakes, message_id=first.message_id)
    desk.feed(first, 0)
    assert desk.feed(second, 0) == [IGNORE]
    assert desk.kinds() == [Kind.CONFLICTING_CHUNKS]
    desk.feed(first, 1)
    assert desk.blocks() == [BLOCK]


def test_one_stake_behind_two_messages_is_disputed_once() -> None:
    desk = Desk()
    desk.feed(send(ALICE, BLOCK), 0)
    assert desk.feed(send(ALICE, b"other"), 0, 0) == [IGNORE] * 2
    assert desk.kinds() == [Kind.OVERLAPPING_STAKE]
    assert desk.drops[-1].reason == drops.OVERSPENT


def test_more_stake_than_there_is_is_disputed() -> None:
    desk = Desk(marketplace=market(stake=1000))
    assert desk.feed(send(ALICE, BLOCK, offset=999), 0) == [IGNORE]
    (evidence,) = desk.disputes
    assert (evidence.kind, evidence.stake) == (Kind.OVERSPENT_STAKE, 1000)


def test_a_lowered_stake_is_not_held_against_chunks_under_way() -> None:
    desk = Desk(marketplace=market(stake=5000))
    sent = send(ALICE, BLOCK, offset=3000)
    desk.handle(MarketplaceChanged(market(stake=1000)))
    assert desk.feed(sent, 0) == [ACCEPT]
    desk.wait(PARAMS.tolerable_latency + 1)
    assert desk.feed(send(BOB, BLOCK, offset=3000, at=desk.now), 0) == [IGNORE]
    assert Kind.OVERSPENT_STAKE in desk.kinds()


def test_a_producer_that_leaves_is_ignored_and_not_blamed_for_what_then_lacks() -> None:
    desk = Desk()
    sent = send(ALICE, BLOCK)
    desk.feed(sent, 0)
    desk.handle(MarketplaceChanged(market(producers=[BOB])))
    assert desk.feed(sent, 1) == [IGNORE]
    desk.finish()
    assert not desk.disputes
    later = send(ALICE, BLOCK, at=desk.now)
    assert desk.feed(later, 0) == [IGNORE]
    assert [drop.reason for drop in desk.drops] == [drops.UNKNOWN_PRODUCER] * 2


def test_a_block_of_a_producer_that_leaves_while_it_is_judged_is_delivered() -> None:
    desk = Desk(patient=True)
    sent = send(ALICE, BLOCK)
    for chunk in (0, 1):
        desk.gossip(sent.frame(chunk))
    desk.answer()
    desk.answer()
    desk.handle(MarketplaceChanged(market(producers=[BOB])))
    desk.finish()
    assert desk.blocks() == [BLOCK]


def test_what_a_member_witnessed_just_before_it_left_counts() -> None:
    desk = Desk()
    desk.handle(MarketplaceChanged(market(members=MEMBERS[1:])))
    assert desk.feed(send(ALICE, BLOCK), 0, 1) == [ACCEPT, ACCEPT]
    assert desk.blocks() == [BLOCK]
    assert desk.delivered[0].clusters == {0: 2}
    desk.wait(PARAMS.tolerable_latency + 1)
    assert desk.feed(send(ALICE, BLOCK + b"next", at=desk.now), 0) == [IGNORE]
    assert desk.kinds() == [Kind.FALSE_WITNESS]


def test_a_peer_has_so_many_chunks_under_verification_and_no_more() -> None:
    desk = Desk(patient=True, params=RelayParams(chunks_per_peer=2))
    sent = send(ALICE, BLOCK)
    for chunk in (0, 1):
        desk.gossip(sent.frame(chunk))
    assert desk.verdict(sent.frame(2)) is IGNORE
    assert desk.drops[0].reason == drops.TOO_BUSY
    desk.gossip(sent.frame(2), OTHER_PEER)
    assert len(desk.waiting) == 3
    desk.answer()
    desk.gossip(sent.frame(3))
    assert len(desk.waiting) == 3


def test_judgement_that_lasts_beyond_the_expiry_is_waited_for() -> None:
    for block, outcome in ((BLOCK, []), (b"bad", [Kind.INVALID_BLOCK])):
        desk = Desk(patient=True)
        sent = send(ALICE, block)
        for chunk in (0, 1):
            desk.gossip(sent.frame(chunk))
            desk.answer()
        desk.wait(30)
        assert not desk.disputes
        desk.finish()
        assert desk.kinds() == outcome


def test_an_answer_to_nothing_does_nothing() -> None:
    desk = Desk(patient=True)
    sent = send(ALICE, BLOCK)
    desk.gossip(sent.frame(0))
    action = desk.waiting[0]
    desk.answer()
    desk.waiting.append(action)
    desk.answer()
    assert len(desk.verdicts) == 1


def test_a_plugins_reason_is_kept_without_control_codes() -> None:
    desk = Desk(judge=lambda _: reject("\x1b[2J" + "x" * 5000))
    desk.feed(send(ALICE, BLOCK), 0, 1)
    assert desk.disputes[0].reason.startswith("?[2Jx")
    assert len(desk.disputes[0].reason) == 1000
