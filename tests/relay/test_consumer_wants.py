"""A consumer tells its topic's router which chunks are still worth asking for."""

from random import Random

from bruit.node.relay.consumer import Consumer
from bruit.node.relay.events import MarketplaceChanged
from bruit.node.relay.wants import SPARE, ChunkWants, chunk_name
from bruit.topics.message import Message
from tests.relay.consuming import ALICE, BOB, CHANNEL, CHANNELS, PARAMS, Desk, Sent, market, send

BLOCK = b"a block of some bytes" * 20
NEEDED = CHANNEL.min_chunks


def name(sent: Sent, chunk: int) -> bytes:
    return chunk_name(Message("/t", sent.frame(chunk), b"", b"", b"", b"", b""))


def listening() -> tuple[Desk, ChunkWants]:
    desk, wants = Desk(), ChunkWants(NEEDED)
    desk.consumer = Consumer(CHANNELS, PARAMS, Random(1), {CHANNEL.id: wants})
    desk.handle(MarketplaceChanged(market()))
    return desk, wants


def open_questions(wants: ChunkWants, sent: Sent) -> int:
    """How many more chunks of a broadcast the router may ask for now."""
    asked: list[bytes] = []
    while wants.wants(probe := name(sent, 0) + bytes([len(asked)])):
        wants.asked(probe)
        asked.append(probe)
    for each in asked:
        wants.given_up(each)
    return len(asked)


def test_every_chunk_that_counts_leaves_one_less_to_ask_for() -> None:
    desk, wants = listening()
    sent = send(ALICE, BLOCK)
    desk.feed(sent, 0)
    assert open_questions(wants, sent) == NEEDED + SPARE - 1


def test_once_a_block_is_delivered_no_more_of_its_chunks_are_wanted() -> None:
    desk, wants = listening()
    sent = send(ALICE, BLOCK)
    desk.feed(sent, 0, 1)
    assert desk.blocks() == [BLOCK]
    assert open_questions(wants, sent) == 0


def test_a_chunk_that_is_refused_does_not_count() -> None:
    desk, wants = listening()
    sent = send(ALICE, BLOCK)
    wants.asked(name(sent, 0))
    wants.came(name(sent, 0))
    bad = bytearray(sent.frame(0))
    bad[-1] ^= 1
    desk.verdict(bytes(bad))
    assert open_questions(wants, sent) == NEEDED + SPARE


def test_the_set_of_one_producer_does_not_stand_for_that_of_another() -> None:
    """Who attests rubbish under a known message id does not keep its chunks from being asked."""
    desk, wants = listening()
    good = send(ALICE, BLOCK)
    rubbish = send(BOB, b"rubbish", message_id=good.message_id)
    desk.feed(rubbish, 0, 1)  # disputed: the block's id is another
    assert desk.disputes
    assert open_questions(wants, good) == NEEDED + SPARE
    desk.feed(good, 0, 1)
    assert desk.blocks() == [BLOCK]


def test_when_its_time_is_over_nothing_of_a_message_is_wanted() -> None:
    desk, wants = listening()
    sent = send(ALICE, BLOCK)
    desk.feed(sent, 0)
    desk.finish()
    assert open_questions(wants, sent) == 0
