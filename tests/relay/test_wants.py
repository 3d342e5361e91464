"""Which chunks of a channel are worth asking for, told from their names alone."""

import hashlib

from bruit.node.relay.wants import MAX_BROADCASTS, SPARE, ChunkWants, chunk_name, group_of
from bruit.node.relay.wire import Attestation
from bruit.topics.message import Message

NOW = 1_800_000_000
MESSAGE_ID = b"\xde\xad\xbe\xef"
GROUP = group_of(MESSAGE_ID, NOW)


def named(data: bytes) -> bytes:
    return chunk_name(Message("/t", data, b"", b"", b"", b"", b""))


def frame(chunk: int, content: bytes = b"content") -> bytes:
    attestation = Attestation(MESSAGE_ID, 7, chunk, NOW, 0, bytes(65))
    return attestation.encode() + bytes(65) + content


def name(chunk: int) -> bytes:
    return named(frame(chunk))


def test_a_name_says_message_id_timestamp_and_chunk_and_ends_in_a_hash_of_everything() -> None:
    digest = hashlib.sha256(frame(3)).digest()[:16]
    assert name(3) == MESSAGE_ID + NOW.to_bytes(4, "big") + b"\x00\x03" + digest
    assert named(frame(3, b"another"))[:10] == name(3)[:10]
    assert named(frame(3, b"another")) != name(3)


def test_what_is_too_short_for_a_chunk_is_named_by_its_content() -> None:
    assert named(b"short") == hashlib.sha256(b"short").digest()


def test_of_a_broadcast_as_many_chunks_are_wanted_as_rebuild_it_and_a_few_to_spare() -> None:
    wants = ChunkWants(4)
    asked = 0
    for chunk in range(20):
        if wants.wants(name(chunk)):
            wants.asked(name(chunk))
            asked += 1
    assert asked == 4 + SPARE


def test_a_chunk_that_came_counts_while_it_is_judged_and_after() -> None:
    wants = ChunkWants(1)
    for chunk in range(1 + SPARE):
        wants.asked(name(chunk))
    wants.came(name(0))
    assert not wants.wants(name(9))
    wants.gathered(GROUP, 1)
    wants.judged(GROUP, 0)
    assert not wants.wants(name(9))


def test_a_chunk_that_proves_worthless_is_replaced() -> None:
    wants = ChunkWants(1)
    for chunk in range(1 + SPARE):
        wants.asked(name(chunk))
    wants.came(name(0))
    wants.judged(GROUP, 0)
    assert wants.wants(name(9))


def test_a_question_that_was_given_up_makes_room_for_another() -> None:
    wants = ChunkWants(1)
    for chunk in range(1 + SPARE):
        wants.asked(name(chunk))
    assert not wants.wants(name(9))
    wants.given_up(name(1))
    assert wants.wants(name(9))


def test_nothing_is_wanted_of_a_broadcast_that_is_finished() -> None:
    wants = ChunkWants(4)
    wants.finished(GROUP)
    assert not wants.wants(name(0))
    assert wants.wants(named(frame(0).replace(MESSAGE_ID, b"next")))


def test_old_broadcasts_are_forgotten() -> None:
    wants = ChunkWants(4)
    wants.finished(GROUP)
    for number in range(MAX_BROADCASTS):
        wants.finished(group_of(number.to_bytes(4, "big"), NOW + 1))
    assert wants.wants(name(0))
