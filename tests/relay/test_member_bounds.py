"""However much comes, what a member keeps is bounded, and nobody is blamed for that."""

import pytest

from bruit.node.relay import drops, member
from bruit.node.relay.actions import Dispute, PublishChunk, Witnessed
from tests.relay.handheld_member import (
    PARAMS,
    T0,
    HandheldMember,
    dropped,
    frame,
    of,
)


def test_a_peer_has_so_many_chunks_under_way_and_no_more() -> None:
    hand = HandheldMember(at_once=False)
    for _ in range(1000):
        hand.submit(frame())
    assert len(hand.questions) == hand.member.under_way == PARAMS.chunks_per_peer
    assert set(dropped(hand.log)) == {(drops.TOO_BUSY, False)}
    hand.submit(frame(), "other")
    assert len(hand.questions) == PARAMS.chunks_per_peer + 1
    hand.answer_all()
    assert hand.member.under_way == 0
    assert len(of(Witnessed, hand.log)) == 1


def test_held_chunks_count_as_under_way_for_their_peer() -> None:
    hand = HandheldMember()
    for number in range(20):
        hand.submit(frame(timestamp=T0 + 1 + number % 9, offset=300 * number))
    assert hand.member.under_way == PARAMS.chunks_per_peer
    assert len(of(Witnessed, hand.wait(10.0))) == PARAMS.chunks_per_peer
    assert hand.member.under_way == 0


def test_a_flood_of_submissions_leaves_room_for_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "MAX_UNDER_WAY", 20)
    hand = HandheldMember(at_once=False)
    for number in range(100):
        hand.submit(frame(), f"sybil {number}")
    assert hand.member.under_way == 20
    hand.pass_on(frame(index=1, witness="mate"))
    assert hand.member.under_way == 21
    assert len(of(PublishChunk, hand.answer(20))) == 1


def test_the_bytes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "MAX_UNDER_WAY_SIZE", 350)
    hand = HandheldMember(at_once=False)
    for number in range(100):
        hand.submit(frame(), f"sybil {number}")
    assert hand.member.under_way == 3  # of 100 bytes each


@pytest.mark.parametrize(
    ("name", "value", "room"),
    [("MAX_HELD", 5, 5), ("MAX_HELD_SIZE", 350, 3), ("MAX_HELD_PER_PRODUCER", 4, 4)],
)
def test_held_chunks_are_bounded(
    monkeypatch: pytest.MonkeyPatch, name: str, value: int, room: int
) -> None:
    monkeypatch.setattr(member, name, value)
    hand = HandheldMember()
    for number in range(50):
        hand.submit(frame(timestamp=T0 + 5, offset=300 * number, content=number), f"s {number}")
    assert hand.member.under_way == room
    assert set(dropped(hand.log)) == {(drops.TOO_BUSY, False)}
    hand.wait(5.0)
    assert hand.member.under_way == 0
    assert hand.submit(frame(timestamp=T0 + 7, offset=9000)) == []


def test_without_room_to_remember_a_chunk_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bruit.node.relay.chunk_cache.MAX_SEEN_PER_PRODUCER", 2)
    hand = HandheldMember()
    for index in range(3):
        hand.submit(frame(index=index))
    assert len(of(Witnessed, hand.log)) == 2
    assert dropped(hand.log) == [(drops.TOO_BUSY, False)]
    assert len(of(Witnessed, hand.submit(frame("bob")))) == 1


def test_a_flood_of_replays_is_told_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "MAX_TESTIMONIES_PER_PEER", 3)
    monkeypatch.setattr(member, "MAX_TESTIMONIES", 5)
    hand = HandheldMember()
    hand.wait(30.0)
    for sender in ("one", "two", "three"):
        for number in range(6):
            hand.submit(frame(timestamp=T0 + number), sender)
    assert len(of(Dispute, hand.log)) == 5
    assert dropped(hand.log) == [(drops.REPLAYED, True)] * 18
