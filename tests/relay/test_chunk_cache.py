"""What a member has seen: by the full key, for a while, and no more than there is room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay import chunk_cache
from bruit.node.relay.chunk_cache import ChunkCache, ChunkKey, SeenChunk
from bruit.node.relay.wire import Attested

T0 = 1_000_000
ALICE, BOB = b"a" * 20, b"b" * 20


def key(producer: bytes = ALICE, timestamp: int = T0, chunk: int = 0) -> ChunkKey:
    return ChunkKey(producer, 1, b"mess", timestamp, chunk)


def attested(of: ChunkKey) -> Attested:
    return Attested(of.message_id, of.channel, of.chunk, of.timestamp, 10, 0, bytes(32))


def add(cache: ChunkCache, of: ChunkKey) -> SeenChunk:
    return cache.add(of, attested(of))


def test_a_chunk_is_known_by_every_part_of_its_key() -> None:
    cache = ChunkCache(11.0)
    seen = add(cache, key())
    assert cache.get(key()) is seen
    for other in (
        key(BOB),
        key(timestamp=T0 + 1),
        key(chunk=1),
        key()._replace(channel=2),
        key()._replace(message_id=b"else"),
    ):
        assert cache.get(other) is None


def test_a_chunk_is_kept_for_its_time_and_forgotten_after() -> None:
    cache = ChunkCache(11.0)
    add(cache, key(timestamp=T0 + 5))
    add(cache, key())
    cache.expire(T0 + 11.0)
    assert len(cache) == 2
    cache.expire(T0 + 11.1)
    assert cache.get(key()) is None
    assert cache.get(key(timestamp=T0 + 5)) is not None


def test_where_the_room_ends_a_chunk_is_refused_and_none_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunk_cache, "MAX_SEEN_PER_PRODUCER", 2)
    monkeypatch.setattr(chunk_cache, "MAX_SEEN", 3)
    cache = ChunkCache(11.0)
    add(cache, key())
    add(cache, key(chunk=1))
    assert not cache.has_room(ALICE)
    assert cache.has_room(BOB)
    add(cache, key(BOB))
    assert not cache.has_room(BOB)
    cache.remove(key(BOB))
    assert cache.has_room(BOB)
    assert not cache.has_room(ALICE)


def test_what_was_removed_is_not_missed_when_its_time_is_over() -> None:
    cache = ChunkCache(11.0)
    add(cache, key())
    add(cache, key(chunk=1))
    cache.remove(key())
    cache.expire(T0 + 12.0)
    assert len(cache) == 0


def test_an_acknowledgement_waits_for_a_bounded_number_of_peers_each_once() -> None:
    seen = add(ChunkCache(11.0), key())
    peers = [number.to_bytes(2, "big") for number in range(chunk_cache.MAX_WAITING)]
    assert all(seen.wait(peer) for peer in peers)
    assert seen.wait(peers[0])
    assert not seen.wait(b"one more")
    assert list(seen.waiting) == peers


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "expire", "clear"]),
        st.sampled_from([ALICE, BOB]),
        st.integers(0, 8),
        st.just(0),
    ),
    max_size=60,
)


@given(CHANGES)
def test_it_holds_what_a_plain_list_would(changes: list[tuple[str, bytes, int, int]]) -> None:
    cache, kept = ChunkCache(3.0), list[ChunkKey]()
    for change, producer, second, chunk in changes:
        this = key(producer, T0 + second, chunk)
        match change:
            case "add" if this not in kept:
                add(cache, this)
                kept.append(this)
            case "remove" if this in kept:
                cache.remove(this)
                kept.remove(this)
            case "expire":
                cache.expire(T0 + second)
                kept = [each for each in kept if second - (each.timestamp - T0) <= 3]
            case "clear" if second == 8:
                cache.clear()
                kept = []
        assert len(cache) == len(kept)
        assert all(cache.get(each) is not None for each in kept)
