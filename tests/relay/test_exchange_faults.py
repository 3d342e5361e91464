"""What exchanges have brought to light, each as its smallest case."""

import msgspec

from bruit.node.relay import drops
from bruit.node.relay.actions import Dispute
from bruit.node.relay.events import MarketplaceChanged
from bruit.node.relay.evidence import Evidence, Kind
from bruit.node.relay.evidence_check import verify_evidence
from bruit.plugins.marketplace import Marketplace
from bruit.topics.validation import Verdict
from tests.relay import consuming, handheld_member
from tests.relay.consuming import ALICE, MEMBERS, STRANGER, Desk, send
from tests.relay.handheld_member import HandheldMember, dropped, frame, of

LEFT = consuming.market(members=MEMBERS[1:])  # the first member has gone


def holds(evidence: Evidence, marketplace: Marketplace) -> bool:
    return verify_evidence(evidence, marketplace, consuming.judge, restore=bytes).holds


def test_a_consumer_accuses_no_former_member_of_what_it_witnessed_as_one() -> None:
    desk = Desk()
    sent = send(ALICE, b"good block")
    desk.handle(MarketplaceChanged(LEFT))
    desk.wait(consuming.PARAMS.tolerable_latency + 1)
    assert desk.verdict(sent.frame(0, MEMBERS[0])) is Verdict.IGNORE
    assert desk.kinds() == [Kind.REPLAY]


def test_a_member_accuses_no_former_neighbour_of_what_it_witnessed_as_one() -> None:
    hand = HandheldMember()
    hand.change(handheld_member.market(ours=("us", "mate")))
    hand.wait(handheld_member.PARAMS.tolerable_latency + 2)
    actions = hand.pass_on(frame(witness="pal"))
    assert [each.evidence.kind for each in of(Dispute, actions)] == [Kind.REPLAY]


def test_a_member_accuses_nobody_who_has_just_left_another_cluster() -> None:
    hand = HandheldMember()
    hand.change(handheld_member.market(theirs=()))
    actions = hand.pass_on(frame(witness="rival"))
    assert dropped(actions) == [(drops.FALSE_WITNESS, True)]  # it is not for this cluster
    assert of(Dispute, actions) == []


def test_an_old_frame_is_no_evidence_of_a_false_witness() -> None:
    """Anybody can keep one until who witnessed it has left."""
    desk = Desk()
    sent = send(ALICE, b"good block")
    desk.gossip(sent.frame(0, STRANGER))
    (evidence,) = desk.disputes
    assert evidence.kind is Kind.FALSE_WITNESS
    assert holds(evidence, LEFT)
    later = evidence.found_at + consuming.PARAMS.tolerable_latency + 1
    assert not holds(msgspec.structs.replace(evidence, found_at=later), LEFT)


def test_stake_attached_ahead_of_time_is_remembered_until_nothing_can_contradict_it() -> None:
    """The first is one latency early, the second one latency late."""
    desk = Desk()
    latency, interval = consuming.PARAMS.tolerable_latency, consuming.PARAMS.refresh_interval
    ahead = send(ALICE, b"good block", at=desk.now + latency, offset=0)
    assert desk.verdict(ahead.frame(0)) is Verdict.ACCEPT
    again = send(ALICE, b"good other block", at=ahead.timestamp + interval - 1, offset=0)
    desk.wait(again.timestamp + latency - desk.now)
    assert desk.verdict(again.frame(0)) is Verdict.IGNORE
    assert desk.kinds().count(Kind.OVERLAPPING_STAKE) == 1
