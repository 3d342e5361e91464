"""Which chunks of a channel are worth asking for, told from their names alone."""

import hashlib

from bruit.node.relay.wants import (
    HERE,
    MAX_BROADCASTS,
    MAX_HEARD,
    MAX_WATCHED,
    SPARE,
    ChunkWants,
    chunk_name,
    group_of,
)
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


# --- who has the chunks of an own broadcast ---------------------------------------


def test_of_a_watched_broadcast_it_is_known_who_announced_which_chunk() -> None:
    wants = ChunkWants(4)
    wants.offered(name(0), b"too early")
    wants.watch(GROUP, 8)
    wants.offered(name(3), b"one")
    wants.offered(name(3), b"two")
    wants.offered(named(frame(3, b"another witness")), b"one")
    wants.offered(name(1), b"two")
    assert wants.heard(GROUP) == {1: (b"two",), 3: (b"one", b"two")}


def test_a_chunk_that_came_or_was_passed_on_by_this_node_is_here() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    wants.offered(name(0), b"one")
    wants.asked(name(0))
    wants.came(name(0))
    wants.judged(GROUP, 1)  # pushed
    assert wants.heard(GROUP) == {0: (b"one", HERE), 1: (HERE,)}


def test_of_other_broadcasts_nothing_is_noted() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    other = group_of(b"next", NOW)
    wants.offered(named(frame(0).replace(MESSAGE_ID, b"next")), b"one")
    wants.offered(named(b"short"), b"one")
    wants.came(named(b"short"))
    assert wants.heard(other) == wants.heard(GROUP) == {}


def test_names_that_no_chunk_of_the_broadcast_has_are_not_noted() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    for chunk in (8, 0xFFFF):
        wants.offered(name(chunk), b"one")
    for length in (0, 8, 9):
        wants.offered(name(0)[:length], b"one")
    assert wants.heard(GROUP) == {}


def test_no_more_than_so_many_peers_are_noted_for_a_chunk_and_always_this_node() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    for number in range(MAX_HEARD + 5):
        wants.offered(name(0), b"%d" % number)
    wants.came(name(0))
    expected = tuple(b"%d" % number for number in range(MAX_HEARD))
    assert wants.heard(GROUP) == {0: (*expected, HERE)}


def test_the_oldest_broadcast_is_watched_no_longer() -> None:
    wants = ChunkWants(4)
    for number in range(MAX_WATCHED + 1):
        wants.watch(group_of(MESSAGE_ID, NOW + number), 8)
    for number in range(MAX_WATCHED + 1):
        stamp = (NOW + number).to_bytes(4, "big")
        wants.offered(name(0).replace(NOW.to_bytes(4, "big"), stamp), b"one")
    heard = [wants.heard(group_of(MESSAGE_ID, NOW + number)) for number in range(MAX_WATCHED + 1)]
    assert heard == [{}] + [{0: (b"one",)}] * MAX_WATCHED


def test_what_was_heard_is_forgotten_with_the_broadcast() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    wants.offered(name(0), b"one")
    for number in range(MAX_BROADCASTS):
        wants.finished(group_of(number.to_bytes(4, "big"), NOW + 1))
    assert wants.heard(GROUP) == {}


def test_own_chunks_are_neither_asked_for_nor_shared_until_enough_are_out() -> None:
    wants = ChunkWants(4)
    wants.watch(GROUP, 8)
    for chunk in range(3):
        wants.offered(name(chunk), b"one")
        wants.offered(name(chunk), b"two")
    assert not wants.wants(name(0))
    assert not wants.shares(name(0))
    wants.offered(name(3), b"one")
    assert wants.wants(name(0))
    assert wants.shares(name(0))


def test_chunks_of_others_are_shared_at_once() -> None:
    wants = ChunkWants(4)
    wants.watch(group_of(MESSAGE_ID, NOW + 1), 8)
    assert wants.shares(name(0))


def test_a_chunk_that_was_judged_before_it_was_published_is_not_waited_for() -> None:
    wants = ChunkWants(1)
    for chunk in range(1 + SPARE):
        wants.asked(name(chunk))
        wants.judged(GROUP, chunk)  # passed on by the cluster, meanwhile
        wants.came(name(chunk))
    assert wants.wants(name(1 + SPARE))
