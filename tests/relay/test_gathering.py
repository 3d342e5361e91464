"""Room for chunks, and what is put together from several producers."""

from random import Random

import msgspec
import pytest

from bruit.node.relay import drops, gathering
from bruit.node.relay.coding.code import Coding
from bruit.node.relay.events import MarketplaceChanged
from bruit.node.relay.evidence import Kind
from bruit.node.relay.gathering import RECORD, Gathering, Placed, State
from bruit.topics.validation import Verdict
from tests.relay.consuming import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    CHANNELS,
    PARAMS,
    START,
    Desk,
    Party,
    Sent,
    Stakes,
    market,
    send,
)

BLOCK = b"a block of some bytes" * 20


def place(room: Gathering, sent: Sent, chunk: int, now: float = START) -> Placed:
    placed, _ = room.place(sent.channel, sent.checked(chunk), 0, now)
    return placed


def test_a_producer_has_so_many_broadcasts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_BROADCASTS_PER_PRODUCER", 2)
    room = Gathering(PARAMS)
    for block in (b"1", b"2"):
        assert place(room, send(ALICE, block), 0) is Placed.NEW
    assert place(room, send(ALICE, b"3"), 0) is Placed.NO_ROOM
    assert place(room, send(BOB, b"3"), 0) is Placed.NEW
    assert place(room, send(ALICE, b"1"), 1) is Placed.NEW


def test_all_producers_have_so_many_broadcasts_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "MAX_BROADCASTS", 2)
    room = Gathering(PARAMS)
    assert [place(room, send(each, BLOCK), 0) for each in (ALICE, BOB, CAROL)] == [
        Placed.NEW,
        Placed.NEW,
        Placed.NO_ROOM,
    ]


def test_a_producer_has_so_many_bytes_and_is_to_blame_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(send(ALICE, BLOCK).plain[0].chunk) + RECORD
    monkeypatch.setattr(gathering, "MAX_BYTES_PER_PRODUCER", size)
    desk = Desk()
    sent = send(ALICE, BLOCK)
    assert desk.feed(sent, 0, 1) == [Verdict.ACCEPT, Verdict.IGNORE]
    assert desk.drops[0].reason == drops.TOO_BUSY
    desk.finish()
    assert desk.kinds() == [Kind.TOO_FEW_CHUNKS]


def test_who_is_refused_for_want_of_room_for_all_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(send(ALICE, BLOCK).plain[0].chunk) + RECORD
    monkeypatch.setattr(gathering, "MAX_BYTES", size)
    desk = Desk()
    assert desk.feed(send(ALICE, BLOCK), 0, 1) == [Verdict.ACCEPT, Verdict.IGNORE]
    assert desk.feed(send(BOB, BLOCK), 0) == [Verdict.IGNORE]
    desk.finish()
    assert not desk.disputes


def test_room_comes_back_when_no_chunk_can_come_any_longer() -> None:
    desk = Desk()
    stakes = Stakes()
    desk.feed(send(ALICE, BLOCK, stakes=stakes), 0, 1, 2)
    desk.feed(send(BOB, b"bad", stakes=stakes), 0, 1)
    desk.feed(send(CAROL, b"odd", stakes=stakes), 0, 1)
    desk.feed(send(CAROL, b"other", stakes=stakes), 3)
    desk.finish()
    desk.wait(60)
    desk.handle(MarketplaceChanged(market()))
    assert desk.idle()


def test_chunks_beyond_those_needed_are_not_kept() -> None:
    room = Gathering(PARAMS)
    sent = send(ALICE, BLOCK)
    for chunk in (0, 1):
        place(room, sent, chunk)
    placed, broadcast = room.place(CHANNEL, sent.checked(2), 0, START)
    assert placed is Placed.NEW
    assert broadcast is not None
    broadcast.state = State.UNDER_WAY
    before = room.bytes
    assert place(room, sent, 3) is Placed.NEW
    assert room.bytes == before + RECORD
    room.finish(broadcast, State.DELIVERED)
    assert room.bytes == 4 * RECORD


def test_a_chunk_has_no_more_witnesses_than_it_has_options() -> None:
    room = Gathering(PARAMS)
    sent = send(ALICE, BLOCK)
    for cluster in range(9):
        _, broadcast = room.place(CHANNEL, sent.checked(0), cluster, START)
    assert broadcast is not None
    assert list(broadcast.witnesses()) == [0, 1, 2]


def test_a_pool_is_not_joined_after_its_time() -> None:
    room = Gathering(PARAMS)
    first = room.place(CHANNEL, send(ALICE, BLOCK).checked(0), 0, START)[1]
    joined = room.place(CHANNEL, send(BOB, BLOCK).checked(0), 0, START + 9)[1]
    later = room.place(CHANNEL, send(CAROL, BLOCK).checked(0), 0, START + 10)[1]
    assert first is not None
    assert joined is not None
    assert later is not None
    assert first.pool is joined.pool
    assert first.pool is not later.pool


def test_chunks_of_another_length_are_left_out_of_a_union() -> None:
    room = Gathering(PARAMS)
    name = send(ALICE, BLOCK).message_id
    place(room, send(ALICE, BLOCK), 0)
    place(room, send(CAROL, b"short", message_id=name), 1)
    _, broadcast = room.place(CHANNEL, send(BOB, BLOCK).checked(2), 0, START)
    assert broadcast is not None
    union = room.union(broadcast.pool, Random(1))
    assert {checked.producer for checked in union} == {ALICE.address, BOB.address}
    assert room.union(broadcast.pool, Random(1)) == (), "each is tried once"


@pytest.mark.parametrize("coding", list(Coding))
def test_every_coding_is_put_together(coding: Coding) -> None:
    channel = msgspec.structs.replace(CHANNEL, coding=coding)
    desk = Desk(channels=CHANNELS | {channel.id: channel})
    block = b"\xff\x00\x80" * 2000  # in the codes mod P chunks have different lengths
    desk.feed(send(ALICE, block, channel=channel), 1)
    desk.feed(send(BOB, block, channel=channel), 3)
    desk.finish()
    assert desk.blocks() == [block]


def test_a_union_of_another_length_is_tried_where_the_first_fails() -> None:
    dave = Party("dave")
    desk = Desk(marketplace=market(producers=[ALICE, BOB, CAROL, dave]))
    name = send(ALICE, BLOCK).message_id
    desk.feed(send(CAROL, b"short", message_id=name), 0)
    desk.feed(send(dave, b"short", message_id=name), 1)
    desk.feed(send(ALICE, BLOCK), 0)
    desk.feed(send(BOB, BLOCK), 3)
    desk.finish()
    assert desk.blocks() == [BLOCK]
    assert not desk.disputes
