"""What a member takes, from whom, when, and what it does with it."""

from random import Random

import pytest

from bruit.node.relay import drops, member
from bruit.node.relay.actions import (
    ChunkDropped,
    Dispute,
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    Witnessed,
)
from bruit.node.relay.events import Timer
from bruit.node.relay.evidence import Kind
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.signing import check_acknowledgement, check_chunk
from bruit.node.relay.wire import decode_acknowledgement
from tests.relay.handheld_member import (
    CHANNELS,
    PARAMS,
    ROOTED,
    SINGLE,
    STAKE,
    T0,
    US,
    HandheldMember,
    address,
    dropped,
    frame,
    log_of,
    market,
    of,
    peer,
    witnessed,
)

BOTH = pytest.mark.parametrize("channel", [SINGLE, ROOTED], ids=["chunks", "root"])


# The way of a chunk


@BOTH
def test_a_submitted_chunk_is_acknowledged_witnessed_passed_on_and_published(
    channel: ChannelParams,
) -> None:
    hand = HandheldMember()
    bare = frame(channel=channel)
    actions = hand.submit(bare)
    assert [type(action) for action in actions] == [
        SendAcknowledgement,
        Witnessed,
        PassOn,
        PublishChunk,
    ]
    [receipt], [proof] = of(SendAcknowledgement, actions), of(Witnessed, actions)
    [passed], [published] = of(PassOn, actions), of(PublishChunk, actions)
    acknowledgement = decode_acknowledgement(receipt.frame)
    assert receipt.peer == peer("gateway")
    assert acknowledgement == proof.acknowledgement
    assert check_acknowledgement(acknowledgement) == address(US)
    assert acknowledgement.producer == address("alice")
    assert (acknowledgement.cluster, acknowledgement.timestamp) == (10, T0)
    assert passed.frame == published.frame == witnessed(bare, US)
    assert published.channel == channel.id
    checked = check_chunk(passed.frame, channel, witnessed=True)
    assert checked == published.checked == proof.checked
    assert checked.member == address(US)
    assert proof.witness == checked.frame.witness


def test_a_chunk_is_passed_on_to_the_rest_of_the_cluster_and_not_to_ourselves() -> None:
    hand = HandheldMember()
    orders = []
    for second in range(20):
        [passed] = of(PassOn, hand.submit(frame(timestamp=T0 + second, offset=300 * second)))
        names = {address(name): name for name in (US, "mate", "pal", "rival")}
        orders.append([names[each.address] for each in passed.members])
        hand.wait(1.0)
    assert all(sorted(order) == ["mate", "pal"] for order in orders)
    assert ["mate", "pal"] in orders
    assert ["pal", "mate"] in orders


def test_a_cluster_of_one_publishes_and_passes_on_to_nobody() -> None:
    actions = HandheldMember(market(ours=(US,))).submit(frame())
    assert len(of(PublishChunk, actions)) == 1
    assert not of(PassOn, actions)


@BOTH
def test_a_witnessed_chunk_is_published_as_it_came_and_not_passed_on_again(
    channel: ChannelParams,
) -> None:
    data = frame(channel=channel, witness="mate")
    [published] = HandheldMember().pass_on(data)
    assert isinstance(published, PublishChunk)
    assert published.frame == data
    assert published.checked == check_chunk(data, channel, witnessed=True)


def test_another_members_witness_may_come_through_a_third() -> None:
    hand = HandheldMember()
    assert len(of(PublishChunk, hand.pass_on(frame(witness="mate"), "pal"))) == 1


def test_a_repeated_submission_gets_the_same_acknowledgement_again() -> None:
    hand = HandheldMember()
    [first] = of(SendAcknowledgement, hand.submit(frame()))
    hand.wait(5.0)
    actions = hand.submit(frame(), "other gateway")
    [again] = of(SendAcknowledgement, actions)
    assert (again.peer, again.frame) == (peer("other gateway"), first.frame)
    assert dropped(actions) == [(drops.DUPLICATE, False)]
    assert len(of(Witnessed, hand.log)) == 1


def test_a_chunk_that_came_through_the_cluster_is_acknowledged_without_a_second_witness() -> None:
    hand = HandheldMember()
    hand.pass_on(frame(witness="mate"))
    hand.wait(2.0)
    actions = hand.submit(frame())
    [receipt] = of(SendAcknowledgement, actions)
    acknowledgement = decode_acknowledgement(receipt.frame)
    assert check_acknowledgement(acknowledgement) == address(US)
    assert acknowledgement.timestamp == T0 + 2
    assert dropped(actions) == [(drops.DUPLICATE, False)]
    assert not of(Witnessed, hand.log)
    assert len(of(PublishChunk, hand.log)) == 1


def test_who_submits_while_we_sign_is_acknowledged_with_the_first() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame(), "one")
    hand.answer()
    for sender in ("two", "one", "three"):
        hand.submit(frame(), sender)
        hand.answer(1)  # the check, not the signature
    assert len(hand.questions) == 1
    actions = hand.answer()
    receipts = of(SendAcknowledgement, actions)
    assert [receipt.peer for receipt in receipts] == [
        peer(name) for name in ("one", "two", "three")
    ]
    assert len({receipt.frame for receipt in receipts}) == 1
    assert len(of(Witnessed, actions)) == 1
    assert hand.member.under_way == 0


def test_a_copy_from_the_cluster_while_we_sign_is_a_duplicate() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    hand.answer()
    hand.pass_on(frame(witness="mate"))
    assert dropped(hand.answer(1)) == [(drops.DUPLICATE, False)]
    assert len(of(PublishChunk, hand.answer())) == 1


def test_chunks_do_not_wait_for_each_other() -> None:
    hand = HandheldMember(at_once=False)
    for index in range(3):
        hand.submit(frame(index=index))
    hand.answer(2)
    [published] = of(PublishChunk, hand.answer(2))
    assert published.checked.chunk == 2


def test_answers_to_unknown_tickets_do_nothing() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    question = hand.questions[0]
    hand.answer()
    hand.questions.insert(0, question)
    assert hand.answer() == []


# What is refused


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", drops.MALFORMED),
        (frame()[:80], drops.MALFORMED),
        (frame()[:81], drops.MALFORMED),
        (frame() + bytes(SINGLE.max_chunk()), drops.MALFORMED),
        (frame()[:6] + b"\x00\x03" + frame()[8:], drops.MALFORMED),
        (frame()[:80] + b"\x02" + frame()[81:], drops.BAD_SIGNATURE),
        (frame("stranger"), drops.UNKNOWN_PRODUCER),
        (frame("mate"), drops.UNKNOWN_PRODUCER),
        (frame()[:-1] + b"\x01", drops.UNKNOWN_PRODUCER),
    ],
)
def test_whoever_submits_what_is_plainly_wrong_is_blamed(data: bytes, reason: str) -> None:
    hand = HandheldMember()
    actions = hand.submit(data)
    assert dropped(actions) == [(reason, True)]
    assert len(actions) == 1
    assert hand.member.under_way == 0


def test_a_frame_too_short_for_a_channel_is_reported_without_one() -> None:
    [drop] = of(ChunkDropped, HandheldMember().submit(b"\x00" * 80))
    assert drop.channel == member.NO_CHANNEL


def test_a_channel_that_we_do_not_serve_is_nobodys_fault() -> None:
    other = frame()[:4] + b"\x00\x09" + frame()[6:]
    assert dropped(HandheldMember().submit(other)) == [(drops.UNKNOWN_CHANNEL, False)]


@pytest.mark.parametrize("sender", ["rival", "stranger", US])
def test_only_the_rest_of_the_cluster_may_pass_on(sender: str) -> None:
    actions = HandheldMember().pass_on(frame(witness="mate"), sender)
    assert dropped(actions) == [(drops.NOT_A_MEMBER, True)]


def test_the_witness_of_another_cluster_is_not_ours() -> None:
    actions = HandheldMember().pass_on(frame(witness="rival"))
    assert dropped(actions) == [(drops.WRONG_CLUSTER, True)]
    assert not of(Dispute, actions)


def test_a_false_witness_is_disputed_once_for_a_peer_and_a_broadcast() -> None:
    hand = HandheldMember()
    for index in range(3):
        actions = hand.pass_on(frame(index=index, witness="stranger"))
        assert dropped(actions) == [(drops.FALSE_WITNESS, True)]
    [dispute] = of(Dispute, hand.log)
    assert dispute.evidence.kind is Kind.FALSE_WITNESS
    assert dispute.evidence.culprits == (address("stranger"),)
    assert verify_evidence(dispute.evidence, market(), None).holds


def test_a_producers_own_witness_is_false() -> None:
    actions = HandheldMember().pass_on(frame(witness="alice"))
    assert dropped(actions) == [(drops.FALSE_WITNESS, True)]


# Time


@pytest.mark.parametrize("age", [0.0, 9.9, 10.0])
def test_a_chunk_within_the_tolerable_latency_is_fine(age: float) -> None:
    hand = HandheldMember()
    hand.wait(age)
    assert len(of(Witnessed, hand.submit(frame()))) == 1


@BOTH
def test_a_chunk_older_than_that_is_a_replay_and_told_once_for_peer_and_broadcast(
    channel: ChannelParams,
) -> None:
    hand = HandheldMember()
    hand.wait(11.5)
    for index in range(3):
        for sender in ("gateway", "other"):
            actions = hand.submit(frame(index=index, channel=channel), sender)
            assert dropped(actions) == [(drops.REPLAYED, True)]
    disputes = of(Dispute, hand.log)
    assert len(disputes) == 2
    for dispute in disputes:
        assert dispute.evidence.kind is Kind.REPLAY
        assert dispute.evidence.producers == (address("alice"),)
        assert verify_evidence(dispute.evidence, market(), None).holds


def test_a_chunk_late_by_less_than_a_second_is_dropped_without_blame() -> None:
    hand = HandheldMember()
    hand.wait(10.9)
    actions = hand.submit(frame())
    assert dropped(actions) == [(drops.REPLAYED, False)]
    assert not of(Dispute, actions)


def test_nobody_is_blamed_for_our_own_delay() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame(index=0))
    hand.submit(frame(index=1))
    hand.answer()  # the first is to be signed
    hand.wait(30.0)
    actions = hand.answer_all()
    assert dropped(actions) == [(drops.REPLAYED, False)] * 2
    assert len(actions) == 2
    assert hand.member.under_way == 0


def test_a_replay_of_what_we_have_seen_is_still_a_replay() -> None:
    hand = HandheldMember()
    hand.submit(frame())
    hand.wait(11.5)
    actions = hand.submit(frame())
    assert dropped(actions) == [(drops.REPLAYED, True)]
    assert not of(SendAcknowledgement, actions)


def test_a_chunk_from_the_future_is_held_until_it_is_due() -> None:
    hand = HandheldMember()
    assert hand.submit(frame(timestamp=T0 + 3)) == []
    assert hand.wait(2.9) == []
    actions = hand.wait(0.1)
    [proof] = of(Witnessed, actions)
    assert proof.acknowledgement.timestamp == T0 + 3
    assert len(of(PublishChunk, actions)) == 1
    assert hand.member.under_way == 0


def test_a_timer_that_is_early_changes_nothing() -> None:
    hand = HandheldMember()
    hand.submit(frame(timestamp=T0 + 3))
    assert hand.fire(Timer("due", T0 + 3)) == []
    assert len(of(Witnessed, hand.wait(3.0))) == 1


def test_a_chunk_beyond_the_tolerable_future_is_refused() -> None:
    hand = HandheldMember()
    assert dropped(hand.submit(frame(timestamp=T0 + 11))) == [(drops.TOO_FAR_AHEAD, True)]
    assert hand.submit(frame(timestamp=T0 + 10)) == []
    assert len(of(Witnessed, hand.wait(10.0))) == 1


def test_copies_of_a_held_chunk_are_duplicates_and_all_who_submitted_are_acknowledged() -> None:
    hand = HandheldMember()
    hand.submit(frame(timestamp=T0 + 3), "one")
    for sender in ("two", "two"):
        actions = hand.submit(frame(timestamp=T0 + 3), sender)
        assert dropped(actions) == [(drops.DUPLICATE, False)]
    actions = hand.wait(3.0)
    assert [each.peer for each in of(SendAcknowledgement, actions)] == [peer("one"), peer("two")]
    assert len(of(Witnessed, actions)) == 1


def test_who_submits_what_the_cluster_had_us_hold_is_acknowledged_when_it_is_due() -> None:
    hand = HandheldMember()
    hand.pass_on(frame(timestamp=T0 + 3, witness="mate"))
    hand.submit(frame(timestamp=T0 + 3))
    actions = hand.wait(3.0)
    assert [each.peer for each in of(SendAcknowledgement, actions)] == [peer("gateway")]
    assert len(of(PublishChunk, actions)) == 1
    assert not of(Witnessed, actions)


# Stake


def test_stake_behind_two_messages_is_disputed_and_the_second_goes_nowhere() -> None:
    hand = HandheldMember()
    hand.submit(frame())
    actions = hand.submit(frame(message_id=b"else", content=1))
    assert dropped(actions) == [(drops.OVERSPENT, True)]
    [dispute] = of(Dispute, actions)
    assert dispute.evidence.kind is Kind.OVERLAPPING_STAKE
    assert verify_evidence(dispute.evidence, market(), None).holds


def test_what_contradicts_itself_chunk_by_chunk_is_disputed_once() -> None:
    hand = HandheldMember()
    for index in range(3):
        hand.submit(frame(index=index))
    for index in range(3):
        late = hand.submit(frame(index=index, message_id=b"else", content=1))
        assert dropped(late) == [(drops.OVERSPENT, True)]
    assert len(of(Dispute, hand.log)) == 1


def test_of_two_held_chunks_that_contradict_each_other_the_first_to_come_stays() -> None:
    hand = HandheldMember()
    for content in range(3):
        hand.submit(frame(timestamp=T0 + 3, content=content))
    [proof] = of(Witnessed, hand.wait(3.0))
    assert proof.checked.frame.chunk[0] == 0


def test_who_passes_on_a_second_use_of_stake_may_not_have_seen_the_first() -> None:
    hand = HandheldMember()
    hand.submit(frame())
    actions = hand.pass_on(frame(message_id=b"else", content=1, witness="mate"))
    assert dropped(actions) == [(drops.OVERSPENT, False)]
    assert len(of(Dispute, actions)) == 1


@BOTH
def test_stake_that_the_producer_has_not_is_disputed_and_known_to_all(
    channel: ChannelParams,
) -> None:
    actions = HandheldMember().pass_on(frame(offset=STAKE - 99, channel=channel, witness="mate"))
    assert dropped(actions) == [(drops.OVERSPENT, True)]
    [dispute] = of(Dispute, actions)
    assert dispute.evidence.stake == STAKE
    assert verify_evidence(dispute.evidence, market(), None).holds


@BOTH
def test_two_chunks_under_one_id_are_a_conflict(channel: ChannelParams) -> None:
    hand = HandheldMember()
    hand.submit(frame(channel=channel))
    actions = hand.submit(frame(channel=channel, content=1))
    assert dropped(actions) == [(drops.CONFLICTING, True)]
    [dispute] = of(Dispute, actions)
    assert dispute.evidence.kind is Kind.CONFLICTING_CHUNKS
    assert verify_evidence(dispute.evidence, market(), None).holds


def test_the_chunks_of_one_root_share_their_stake() -> None:
    hand = HandheldMember()
    for index in range(3):
        assert len(of(Witnessed, hand.submit(frame(index=index, channel=ROOTED)))) == 1


def test_what_was_attested_before_the_stake_shrank_still_counts_for_a_while() -> None:
    hand = HandheldMember()
    hand.change(market(stakes={"alice": 250}))
    assert len(of(Witnessed, hand.submit(frame(index=2)))) == 1  # up to token 300
    beyond_both = hand.submit(frame("alice", offset=STAKE, message_id=b"more"))
    [dispute] = of(Dispute, beyond_both)
    assert dispute.evidence.stake == 250
    hand.wait(10.1)
    late = hand.submit(frame(index=2, timestamp=T0 + 10, offset=300, message_id=b"else"))
    assert dropped(late) == [(drops.OVERSPENT, True)]
    [dispute] = of(Dispute, late)
    assert dispute.evidence.stake == 250


# Churn


def test_before_there_is_a_marketplace_nothing_is_valid() -> None:
    machine = member.Member(CHANNELS, PARAMS, address(US), Random(1))
    hand = HandheldMember()
    hand.member = machine
    assert dropped(hand.submit(frame())) == [(drops.NO_CLUSTER, False)]
    assert dropped(hand.pass_on(frame(witness="mate"))) == [(drops.NO_CLUSTER, False)]


def test_a_removed_producer_is_refused_at_once_and_blamed_later() -> None:
    hand = HandheldMember()
    hand.submit(frame(timestamp=T0 + 5))
    hand.change(market(stakes={"bob": STAKE}))
    assert dropped(hand.submit(frame())) == [(drops.UNKNOWN_PRODUCER, False)]
    assert dropped(hand.wait(5.0)) == [(drops.UNKNOWN_PRODUCER, False)]  # the held one
    hand.wait(5.1)
    late = hand.submit(frame(timestamp=T0 + 10))
    assert dropped(late) == [(drops.UNKNOWN_PRODUCER, True)]


def test_a_removed_member_is_refused_at_once_and_blamed_later() -> None:
    hand = HandheldMember()
    hand.change(market(ours=(US, "pal")))
    assert dropped(hand.pass_on(frame(witness="mate"))) == [(drops.NOT_A_MEMBER, False)]
    by_pal = hand.pass_on(frame(witness="mate"), "pal")
    assert dropped(by_pal) == [(drops.FALSE_WITNESS, False)]
    assert not of(Dispute, hand.log)
    hand.wait(10.1)
    data = frame(timestamp=T0 + 10, witness="mate")
    assert dropped(hand.pass_on(data)) == [(drops.NOT_A_MEMBER, True)]
    assert dropped(hand.pass_on(data, "pal")) == [(drops.FALSE_WITNESS, True)]
    [dispute] = of(Dispute, hand.log)
    assert dispute.evidence.culprits == (address("mate"),)
    [passed] = of(PassOn, hand.submit(frame(timestamp=T0 + 10)))
    assert [each.address for each in passed.members] == [address("pal")]


def test_a_member_that_moved_is_of_another_cluster() -> None:
    hand = HandheldMember()
    hand.change(market(ours=(US, "pal"), theirs=("rival", "mate")))
    moved = hand.pass_on(frame(witness="mate"), "pal")
    assert dropped(moved) == [(drops.WRONG_CLUSTER, False)]


@pytest.mark.parametrize("answered", [0, 1], ids=["while checked", "while signed"])
def test_removed_ourselves_we_witness_nothing(answered: int) -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    for _ in range(answered):
        hand.answer()
    hand.change(market(ours=("mate", "pal")))
    actions = hand.answer_all()
    assert dropped(actions) == [(drops.NO_CLUSTER, False)]
    assert dropped(hand.submit(frame())) == [(drops.NO_CLUSTER, False)]
    assert not of(Witnessed, hand.log)
    assert not of(SendAcknowledgement, hand.log)
    assert hand.member.under_way == 0


def test_what_was_signed_for_is_sent_only_while_its_producer_is_one() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    hand.answer()
    hand.change(market(stakes={}))
    assert dropped(hand.answer()) == [(drops.UNKNOWN_PRODUCER, False)]
    hand.change(market())
    hand.at_once = True
    assert len(of(Witnessed, hand.submit(frame()))) == 1


def test_away_and_back_while_signing_a_chunk_is_witnessed_once() -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    hand.answer()
    hand.change(market(ours=("mate", "pal")))
    hand.change(market())
    hand.submit(frame())
    hand.answer(1)
    hand.answer_all()
    assert len(of(Witnessed, hand.log)) == 1
    assert len(of(PublishChunk, hand.log)) == 1


@pytest.mark.parametrize("back", [False, True])
def test_what_is_signed_for_one_cluster_is_not_sent_after_we_were_in_another(back: bool) -> None:
    hand = HandheldMember(at_once=False)
    hand.submit(frame())
    hand.answer()
    hand.change(market(ours=("mate",), theirs=("rival", US)))
    if back:
        hand.change(market())
    assert dropped(hand.answer()) == [(drops.NO_CLUSTER, False)]
    assert not of(SendAcknowledgement, hand.log)
    hand.at_once = True
    [proof] = of(Witnessed, hand.submit(frame()))
    assert proof.acknowledgement.cluster == (10 if back else 20)


def test_back_in_our_cluster_we_still_know_what_we_witnessed() -> None:
    hand = HandheldMember()
    [first] = of(SendAcknowledgement, hand.submit(frame()))
    hand.change(market(ours=("mate", "pal")))
    hand.change(market())
    assert of(SendAcknowledgement, hand.submit(frame())) == [first]
    assert len(of(Witnessed, hand.log)) == 1


def test_in_another_cluster_we_witness_for_that_one() -> None:
    hand = HandheldMember()
    hand.submit(frame())
    hand.change(market(ours=("mate",), theirs=("rival", US)))
    [proof] = of(Witnessed, hand.submit(frame()))
    assert proof.acknowledgement.cluster == 20
    [passed] = of(PassOn, hand.log[-2:])
    assert [each.address for each in passed.members] == [address("rival")]


# Chance


def test_the_same_seed_and_events_give_the_same_actions() -> None:
    def run(seed: int) -> bytes:
        hand = HandheldMember(seed=seed)
        for number in range(12):
            hand.submit(frame(timestamp=T0 + number // 2, offset=300 * number, content=number))
            hand.wait(0.5)
        hand.wait(10.0)
        return log_of(hand.log)

    assert run(1) == run(1)
    assert run(1) != run(2)
