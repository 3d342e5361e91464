"""What connections are worth, and which are given up.

The numbers are those of go-libp2p-pubsub (tag_tracer_test.go,
gossipsub_connmgr_test.go).
"""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.gossip.tags import DELIVERY_CAP, GRACE, MESH_PEER, NEWCOMERS, Tags

TOPIC = "test"
MINUTE = 60.0
LATER = GRACE  # when those who came at 0 are newcomers no more


def tags(seed: int = 1, **options: int) -> Tags:
    return Tags(random.Random(seed), **options)


def names(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def connect(value: Tags, peers: list[bytes], now: float = 0.0, outbound: bool = False) -> None:
    for peer in peers:
        value.connected(peer, outbound, now)


# Worth


def test_a_peer_in_our_mesh_is_worth_keeping_until_it_is_pruned() -> None:
    value = tags()
    connect(value, [b"mesh", b"other"])
    value.grafted(b"mesh", TOPIC)
    assert value.worth(b"mesh") == MESH_PEER == 20
    assert value.surplus(1, LATER) == [b"other"]
    value.grafted(b"mesh", TOPIC)  # said twice, counted once
    value.grafted(b"mesh", "another")
    assert value.worth(b"mesh") == 2 * MESH_PEER
    value.pruned(b"mesh", "another")
    value.pruned(b"mesh", TOPIC)
    assert value.worth(b"mesh") == 0


def test_a_direct_peer_is_kept_whatever_it_is_worth() -> None:
    value = tags()
    connect(value, [b"1", b"2", b"3"])
    value.protect(b"1")
    for peer in (b"2", b"3"):
        value.grafted(peer, TOPIC)
    assert sorted(value.surplus(0, LATER)) == [b"2", b"3"]
    assert b"1" not in value.surplus(2, LATER)
    value.unprotect(b"1")
    assert value.surplus(2, LATER) == [b"1"]


def test_deliveries_count_up_to_a_cap_per_topic_and_fade_by_one_in_ten_minutes() -> None:
    value = tags()
    value.refresh(0.0)
    connect(value, [b"peer"])
    for _ in range(20):
        value.delivered([b"peer"], "topic-1")
    assert value.worth(b"peer") == DELIVERY_CAP == 15
    for _ in range(5):
        value.delivered([b"peer"], "topic-2")
    value.refresh(1 * MINUTE)
    assert value.worth(b"peer") == 15 + 5
    value.refresh(51 * MINUTE)
    assert value.worth(b"peer") == 10  # and nothing is left of topic-2
    value.left("topic-1")
    assert value.worth(b"peer") == 0


def test_whoever_brings_a_message_before_it_is_judged_is_as_good_as_the_first() -> None:
    value = tags()
    connect(value, [b"first", b"near", b"slow"])
    for _ in range(DELIVERY_CAP + 5):
        value.delivered([b"first", b"near"], TOPIC)
    assert [value.worth(peer) for peer in (b"first", b"near", b"slow")] == [15, 15, 0]


@pytest.mark.parametrize("beats", [1, 7, 600])
def test_fading_does_not_depend_on_how_often_the_clock_is_looked_at(beats: int) -> None:
    value = tags()
    start = 12_345.6
    value.refresh(start)
    connect(value, [b"peer"])
    for _ in range(10):
        value.delivered([b"peer"], TOPIC)
    for beat in range(1, beats + 1):
        value.refresh(start + 35 * MINUTE * beat / beats)
    assert value.worth(b"peer") == 7


def test_leaving_a_topic_takes_its_mesh_along() -> None:
    value = tags()
    connect(value, [b"peer"])
    value.grafted(b"peer", TOPIC)
    value.grafted(b"peer", "another")
    value.left(TOPIC)
    assert value.worth(b"peer") == MESH_PEER


def test_a_connection_that_ends_takes_its_worth_along() -> None:
    value = tags()
    connect(value, [b"peer"])
    value.grafted(b"peer", TOPIC)
    value.delivered([b"peer"], TOPIC)
    value.disconnected(b"peer")
    value.disconnected(b"peer")
    assert value.worth(b"peer") == 0
    connect(value, [b"peer"])
    assert value.worth(b"peer") == 0


def test_nothing_is_remembered_of_peers_that_are_not_connected() -> None:
    value = tags()
    value.grafted(b"peer", TOPIC)
    value.pruned(b"peer", TOPIC)
    value.delivered([b"peer"], TOPIC)
    connect(value, [b"peer"])
    assert value.worth(b"peer") == 0


def test_a_peer_connected_twice_is_no_newcomer_again() -> None:
    value = tags()
    connect(value, [b"old", *names("other", 8)])
    connect(value, [b"old"], now=LATER)
    for peer in names("other", 8):
        value.grafted(peer, TOPIC)
    assert value.surplus(8, LATER) == [b"old"]


# Whom to give up


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("limit", [10, 5], ids=["limit", "low water of go"])
def test_five_honest_nodes_keep_each_other_under_ten_sybils(seed: int, limit: int) -> None:
    honest, sybils = names("honest", 4), names("sybil", 10)  # the fifth honest one is us
    value = tags(seed, delivery_cap=50)
    connect(value, honest)
    for _ in range(2 * 50):
        for peer in honest:
            value.delivered([peer], TOPIC)
    connect(value, sybils, outbound=True)
    for peer in sybils[:3]:  # the whole mesh of d = 3
        value.grafted(peer, TOPIC)
    given_up = value.surplus(limit, LATER)
    assert len(given_up) == 14 - limit
    assert not set(given_up) & set(honest)
    assert len(sybils) - len(given_up) <= 10 - 4


@pytest.mark.parametrize("seed", range(20))
def test_with_the_default_cap_sybils_in_the_mesh_are_worth_less_than_deliverers_in_it(
    seed: int,
) -> None:
    honest, sybils = names("honest", 4), names("sybil", 10)
    value = tags(seed)
    connect(value, honest + sybils)
    for peer in honest:
        value.grafted(peer, TOPIC)
        value.delivered([peer], TOPIC)
    for peer in sybils:
        value.grafted(peer, TOPIC)
    assert not set(value.surplus(4, LATER)) & set(honest)


def test_nobody_is_given_up_while_there_is_room() -> None:
    value = tags()
    assert value.surplus(0, 0.0) == []
    connect(value, names("peer", 5))
    assert value.surplus(5, LATER) == []


def test_among_equals_those_we_dialled_ourselves_are_kept() -> None:
    value = tags()
    connect(value, [b"ours"], outbound=True)
    connect(value, names("theirs", 3))
    assert value.surplus(1, LATER) != []
    assert b"ours" not in value.surplus(1, LATER)
    value.delivered(names("theirs", 3), TOPIC)
    assert value.surplus(3, LATER) == [b"ours"]


def test_among_equals_the_dice_decide_and_no_name_or_order_of_arrival() -> None:
    chosen: Counter[bytes] = Counter()
    for seed in range(400):
        value = tags(seed)
        connect(value, names("peer", 4))
        chosen.update(value.surplus(3, LATER))
        assert tags(seed).surplus(3, LATER) == []
    assert len(chosen) == 4
    assert min(chosen.values()) > 60  # 100 expected; below 60 once in 500,000


def test_the_same_dice_give_up_the_same_peers() -> None:
    choices = []
    for _ in range(2):
        value = tags(seed=7)
        connect(value, names("peer", 20))
        choices.append(value.surplus(5, LATER))
    assert choices[0] == choices[1]


# Newcomers


def test_a_newcomer_is_spared_until_its_grace_is_over() -> None:
    value = tags()
    connect(value, names("idle", 8))
    connect(value, [b"new"], now=LATER)
    assert value.surplus(8, LATER)[0] in names("idle", 8)
    for peer in names("idle", 8):
        value.delivered([peer], TOPIC)
    [given_up] = value.surplus(8, LATER + GRACE - 0.1)
    assert given_up != b"new"
    assert value.surplus(8, LATER + GRACE) == [b"new"]


@pytest.mark.parametrize("seed", range(10))
def test_a_flood_of_newcomers_takes_no_more_than_its_share_of_the_places(seed: int) -> None:
    limit = 40
    value = tags(seed)
    useful = names("useful", limit)
    connect(value, useful)
    value.delivered(useful, TOPIC)
    flood = names("flood", 1000)
    connect(value, flood, now=LATER)
    given_up = value.surplus(limit, LATER + 1)
    assert len(given_up) == 1000
    assert sum(peer in useful for peer in given_up) == limit // NEWCOMERS
    # and they are gone again when they have brought nothing in their time
    for peer in given_up:
        value.disconnected(peer)
    connect(value, names("honest", 5), now=LATER + GRACE)
    value.delivered(names("honest", 5), TOPIC)
    for peer in value.surplus(limit, LATER + GRACE):
        assert peer in flood


def test_newcomers_go_last_but_before_direct_peers() -> None:
    value = tags()
    connect(value, [b"direct"])
    value.protect(b"direct")
    connect(value, names("old", 16))
    connect(value, [b"new"], now=LATER)
    assert value.surplus(16, LATER)[0] in names("old", 16)
    for peer in names("old", 16):
        value.protect(peer)
    assert value.surplus(16, LATER) == [b"new"]
    assert value.surplus(0, LATER) == [b"new"]


PEERS = st.lists(
    st.tuples(
        st.booleans(),  # outbound
        st.sampled_from([0.0, 100.0]),  # connected at
        st.booleans(),  # direct
        st.integers(0, 2),  # meshes
        st.integers(0, 20),  # deliveries
    ),
    max_size=30,
)


@given(PEERS, st.integers(0, 30), st.integers(0, 5))
def test_whoever_is_given_up_was_worth_no_more_than_anybody_kept(
    peers: list[tuple[bool, float, bool, int, int]], limit: int, seed: int
) -> None:
    value, now = tags(seed), 100.0
    for number, (outbound, since, direct, meshes, deliveries) in enumerate(peers):
        peer = bytes([number])
        value.connected(peer, outbound, since)
        if direct:
            value.protect(peer)
        for mesh in range(meshes):
            value.grafted(peer, f"topic-{mesh}")
        for _ in range(deliveries):
            value.delivered([peer], "topic-0")
    given_up = value.surplus(limit, now)
    free = [number for number, peer in enumerate(peers) if not peer[2]]
    assert len(set(given_up)) == len(given_up)
    assert len(given_up) == min(max(len(peers) - limit, 0), len(free))
    spared = [number for number in free if peers[number][1] == now][: limit // NEWCOMERS]
    lost = [peer[0] for peer in given_up]
    kept = [number for number in free if number not in lost]
    assert all(number in free for number in lost)

    def rank(number: int) -> tuple[int, bool]:
        outbound, _, _, meshes, deliveries = peers[number]
        return 20 * meshes + min(deliveries, 15), outbound

    judged_lost = [number for number in lost if number not in spared]
    judged_kept = [number for number in kept if number not in spared]
    if judged_lost and judged_kept:
        assert max(map(rank, judged_lost)) <= min(map(rank, judged_kept))
    if len(judged_lost) < len(lost):  # somebody spared had to go after all
        assert not judged_kept
