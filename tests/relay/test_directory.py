"""Who is who in a marketplace, and which clusters a chunk may go through."""

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.directory import Directory, peer_of, place_of
from bruit.node.relay.keccak import keccak256
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.topics.keys import peer_id_text
from tests.relay import vectors

VECTORS: dict[str, Any] = json.loads(vectors.FILE.read_text(encoding="utf-8"))

# Chi-square at a significance of 0.001, 4 degrees (NIST/SEMATECH e-Handbook, 1.3.6.7.4)
CRITICAL = 18.467


def peer(number: int) -> bytes:
    """An identity multihash of an Ed25519 key (peer-ids.md)."""
    return bytes.fromhex("002408011220") + number.to_bytes(32, "big")


def member(number: int) -> Member:
    text = peer_id_text(peer(number))
    return Member(number.to_bytes(20, "big"), (f"/ip4/192.0.2.1/tcp/1/p2p/{text}",))


def directory(clusters: list[int], empty: tuple[int, ...] = ()) -> Directory:
    """One member in each cluster but the ``empty`` ones."""
    return Directory(
        Marketplace(
            clusters=tuple(
                Cluster(each, 1, () if each in empty else (member(each),)) for each in clusters
            )
        )
    )


# Who is who


def test_everybody_is_found_by_id_and_nobody_else() -> None:
    producers = (Producer(b"p" * 20, 5), Producer(member(3).address, 6))
    clusters = (Cluster(7, 1, (member(1), member(3))), Cluster(9, 2, ()))
    found = Directory(Marketplace(producers, clusters))
    assert found.producer(b"p" * 20) == producers[0]
    assert found.producer(member(3).address) == producers[1]
    assert found.producer(member(1).address) is None
    assert (found.cluster(7), found.cluster(9), found.cluster(8)) == (*clusters, None)
    assert [found.cluster_of(member(number).address) for number in (1, 2, 3)] == [7, None, 7]
    assert [found.member_at(peer(number)) for number in (1, 2)] == [member(1).address, None]
    assert peer_of(member(3)) == peer(3)


# Options

ids = st.lists(st.integers(0, 0xFFFF), max_size=40, unique=True)


@given(ids, st.binary(min_size=4, max_size=4), st.integers(0, 0xFFFF), st.integers(1, 50))
def test_options_are_the_nearest_on_the_ring(
    clusters: list[int], message_id: bytes, chunk: int, count: int
) -> None:
    found = directory(clusters).options(message_id, chunk, count)
    assert list(found) == vectors.options(message_id, chunk, count, clusters)
    assert len(found) == min(count, len(clusters))


@given(ids, st.integers(0, 0xFFFF))
def test_clusters_without_members_are_no_options(clusters: list[int], chunk: int) -> None:
    empty = tuple(clusters[::2])
    found = directory(clusters, empty).options(b"\1\2\3\4", chunk, 3)
    assert list(found) == vectors.options(b"\1\2\3\4", chunk, 3, clusters[1::2])


@given(
    st.lists(st.integers(0, 31), min_size=1, max_size=12),
    st.integers(0, 31),
    st.integers(1, 14),
)
def test_ties_go_to_the_lower_id_and_the_ring_has_no_ends(
    places: list[int], here: int, count: int
) -> None:
    """On a ring of 32 places, where ties and turns are frequent and two may stand in one place."""
    size = 1 << 256
    step = size // 32

    def ways(place: int) -> int:
        return min(abs(place - here), 32 - abs(place - here))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bruit.node.relay.directory.place_of", lambda each: places[each] * step)
        patch.setattr(
            "bruit.node.relay.directory.keccak256", lambda *_: (here * step).to_bytes(32, "big")
        )
        found = directory(list(range(len(places)))).options(bytes(4), 0, count)
    expected = sorted(range(len(places)), key=lambda each: (ways(places[each]), each))
    # Where several stand in one place, more than ``count`` may be equally far: any are right.
    assert [ways(places[each]) for each in found] == [
        ways(places[each]) for each in expected[:count]
    ]
    if len(dict.fromkeys(places)) == len(places):
        assert list(found) == expected[:count]


def test_the_order_of_the_marketplace_does_not_matter() -> None:
    clusters = list(range(50))
    shuffled = Random(1).sample(clusters, 50)
    one, other = directory(clusters), directory(shuffled)
    for chunk in range(50):
        assert one.options(bytes(4), chunk, 5) == other.options(bytes(4), chunk, 5)


def test_without_clusters_there_are_no_options() -> None:
    assert directory([]).options(bytes(4), 0, 3) == ()


def test_a_place_is_the_hash_of_two_bytes() -> None:
    assert place_of(258) == int.from_bytes(keccak256(b"\x01\x02"), "big")


def test_a_cluster_that_goes_changes_no_option_but_its_own() -> None:
    clusters = list(range(20))
    before, after = directory(clusters), directory(clusters[1:])
    for chunk in range(200):
        was = before.options(bytes(4), chunk, 3)
        now = after.options(bytes(4), chunk, 3)
        assert [each for each in was if each != 0] == list(now[: 3 - (0 in was)])


# Shares


def chi_square(found: Counter[int], shares: dict[int, float]) -> float:
    total = found.total()
    return sum(
        (found[each] - total * share) ** 2 / (total * share) for each, share in shares.items()
    )


def test_a_cluster_is_nearest_to_as_many_chunks_as_its_part_of_the_ring() -> None:
    clusters = [1, 2, 3, 4, 5]
    size = 1 << 256
    ring = sorted((place_of(each), each) for each in clusters)
    arcs = {}
    for at, (place, each) in enumerate(ring):
        before, after = ring[at - 1][0], ring[(at + 1) % len(ring)][0]
        arcs[each] = ((place - before) % size + (after - place) % size) / 2 / size
    assert sum(arcs.values()) == pytest.approx(1)
    found = directory(clusters)
    nearest = Counter(
        found.options(message.to_bytes(4, "big"), chunk, 1)[0]
        for message in range(100)
        for chunk in range(48)
    )
    assert chi_square(nearest, arcs) < CRITICAL


def test_no_place_in_the_list_of_clusters_is_better_than_another() -> None:
    """The document's routine favours the ends of its list: over random ids, here nobody is."""
    rng = Random(1)
    ranks: Counter[int] = Counter()
    for _ in range(1500):
        clusters = sorted(rng.sample(range(0x10000), 5))
        message_id = rng.randbytes(4)
        ranks[clusters.index(directory(clusters).options(message_id, 0, 1)[0])] += 1
    assert chi_square(ranks, dict.fromkeys(range(5), 0.2)) < CRITICAL


def test_vectors_of_cluster_options() -> None:
    vector = VECTORS["cluster_options"]
    found = directory(vector["clusters"])
    message_id = bytes.fromhex(VECTORS["message_id"])
    options = [list(found.options(message_id, chunk, vector["count"])) for chunk in range(16)]
    assert options == vector["chunks"]
