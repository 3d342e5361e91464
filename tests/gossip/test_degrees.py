"""The degree of a mesh, by numbers: who is taken in, who is put out, who never comes in."""

from typing import Any

from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import PeerId
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.handheld import Handheld, grafts, prunes, told
from tests.gossip.neighbourhood import STEP, TOPIC, beating, mesh, names, network

HOUR = 3600  # seconds


def joined(thresholds: Thresholds | None = None, **params: Any) -> Handheld:
    """A router that is in the topic, with heartbeats every second."""
    config = RouterConfig(params=GossipParams(heartbeat_interval=1.0, **params))
    handheld = Handheld(config, thresholds)
    handheld.subscribe(TOPIC)
    return handheld


def subscribers(
    handheld: Handheld, prefix: str, count: int, outbound: bool = False
) -> list[PeerId]:
    return [handheld.connect(name, TOPIC, outbound=outbound) for name in names(prefix, count)]


def members(handheld: Handheld, prefix: str, count: int, outbound: bool = False) -> list[PeerId]:
    """Peers that are taken into the mesh, because they ask."""
    peers = subscribers(handheld, prefix, count, outbound)
    for peer in peers:
        handheld.receive(peer, grafts(TOPIC))
    assert set(peers) <= set(handheld.mesh(TOPIC))
    return peers


def refused(handheld: Handheld, peer: PeerId) -> bool:
    """Whether a GRAFT of the peer is answered by PRUNE."""
    return bool(told(handheld.receive(peer, grafts(TOPIC)), peer).control.prune)


# Filling


def test_of_fifteen_subscribers_six_are_taken_into_an_empty_mesh() -> None:
    handheld = Handheld()
    peers = subscribers(handheld, "peer", 15)
    handheld.subscribe(TOPIC)
    handheld.beat()
    assert len(handheld.mesh(TOPIC)) == 6
    assert set(handheld.mesh(TOPIC)) < set(peers)


def test_of_fifteen_peers_scored_from_minus_11_to_3_four_are_taken() -> None:
    handheld = Handheld()
    peers = subscribers(handheld, "peer", 15)
    handheld.scores.values |= {peer: float(rank - 11) for rank, peer in enumerate(peers)}
    handheld.subscribe(TOPIC)
    handheld.beat()
    assert set(handheld.mesh(TOPIC)) == set(peers[11:])


def test_when_all_members_leave_only_a_peer_without_a_negative_score_takes_their_place() -> None:
    handheld = joined()
    full = members(handheld, "member", 12)
    bad, good = subscribers(handheld, "late", 2)
    handheld.scores.values[bad] = -10.0
    for peer in full:
        handheld.receive(peer, prunes(TOPIC))
    handheld.beat()
    assert handheld.mesh(TOPIC) == (good,)


# Nobody to take


def test_fifteen_peers_that_we_hold_off_are_refused_and_not_taken() -> None:
    handheld = joined()
    peers = members(handheld, "peer", 12) + subscribers(handheld, "more", 3)
    for peer in peers:
        handheld.receive(peer, prunes(TOPIC, backoff=HOUR))
    assert [refused(handheld, peer) for peer in peers] == [True] * 15
    handheld.beat(20)
    assert handheld.mesh(TOPIC) == ()


def test_fifteen_peers_that_hold_us_off_are_not_taken_again() -> None:
    handheld = Handheld()
    peers = subscribers(handheld, "peer", 15)
    handheld.subscribe(TOPIC)
    handheld.beat()
    assert handheld.mesh(TOPIC) != ()
    for peer in peers:
        handheld.receive(peer, prunes(TOPIC, backoff=60))
    assert handheld.mesh(TOPIC) == ()
    handheld.beat(20)
    assert handheld.mesh(TOPIC) == ()


def test_a_peer_that_prunes_us_for_five_minutes_is_left_alone_for_two_seconds_more() -> None:
    """Pruned a little more than 13 s after the first heartbeat, until 313 s and then 315 s.

    The table is swept every 15 heartbeats: that of 314 s must not find it over.
    """
    handheld = joined()
    [peer] = members(handheld, "peer", 1)
    handheld.beat(14)
    first = handheld.now - 13.0
    handheld.now += 0.5
    handheld.receive(peer, prunes(TOPIC, backoff=300))
    assert handheld.mesh(TOPIC) == ()
    while not handheld.mesh(TOPIC):
        handheld.beat()
    assert round(handheld.now - first) == 330 - 1


# Shrinking


def test_sixty_members_shrink_to_thirty_with_the_twenty_nine_best_among_them() -> None:
    handheld = joined(d_lo=15, d=30, d_hi=60, d_score=29)
    peers = members(handheld, "peer", 60)
    handheld.scores.values |= {peer: float(rank) for rank, peer in enumerate(peers)}
    handheld.beat()
    assert len(handheld.mesh(TOPIC)) == 30
    assert set(handheld.mesh(TOPIC)) > set(peers[31:])


def test_six_well_scored_dialling_peers_do_not_push_out_the_dialled_ones() -> None:
    """Six inbound at 40 and seven outbound at 10 above a ``d_hi`` of 12; four best are kept."""
    handheld = joined(d=7, d_lo=4, d_hi=12, d_score=4, d_out=3)
    inbound = members(handheld, "inbound", 6)
    outbound = members(handheld, "outbound", 7, outbound=True)
    assert len(handheld.mesh(TOPIC)) == 13
    handheld.scores.values |= dict.fromkeys(inbound, 40.0) | dict.fromkeys(outbound, 10.0)
    handheld.beat()
    assert len(handheld.mesh(TOPIC)) == 7
    assert len(set(handheld.mesh(TOPIC)) & set(outbound)) >= 3
    assert len(set(handheld.mesh(TOPIC)) & set(inbound)) >= 4


# A full mesh


def test_a_full_mesh_of_five_refuses_who_dialled_us_and_takes_whom_we_dialled() -> None:
    for outbound in (False, True):
        handheld = joined(d=5, d_lo=3, d_hi=5, d_out=2)
        full = members(handheld, "member", 5)
        late = handheld.connect("late", TOPIC, outbound=outbound)
        assert refused(handheld, late) is not outbound
        assert set(handheld.mesh(TOPIC)) == {*full, *([late] if outbound else [])}


def test_a_full_mesh_takes_in_a_peer_that_we_dialled_however_many_of_those_it_has() -> None:
    handheld = joined(d=5, d_lo=3, d_hi=5, d_out=2)
    members(handheld, "outbound", 2, outbound=True)
    members(handheld, "inbound", 3)
    late = handheld.connect("late", TOPIC, outbound=True)
    assert not refused(handheld, late)
    assert late in handheld.mesh(TOPIC)


# Opportunistic grafting


def test_a_median_of_two_is_good_enough_for_a_threshold_of_two_and_one_of_one_is_not() -> None:
    """Five members and five others, scored 0 to 4 each; grafting at every second heartbeat."""
    handheld = joined(
        Thresholds(opportunistic_graft=2.0),
        d_lo=3,
        d=5,
        d_hi=7,
        d_out=0,
        opportunistic_graft_ticks=2,
    )
    inside = members(handheld, "member", 5)
    others = subscribers(handheld, "other", 5)
    for peers in (inside, others):
        handheld.scores.values |= {peer: float(rank) for rank, peer in enumerate(peers)}
    handheld.beat(2)
    assert set(handheld.mesh(TOPIC)) == set(inside)
    handheld.scores.values[inside[2]] = 1.0
    handheld.beat()
    assert set(handheld.mesh(TOPIC)) == set(inside)
    handheld.beat()
    assert set(handheld.mesh(TOPIC)) > set(inside)
    assert len(handheld.mesh(TOPIC)) == 7
    assert not set(handheld.mesh(TOPIC)) & set(others[:2])


# Two views of one mesh


def test_a_badly_scored_peer_that_asks_again_and_again_keeps_the_rules_and_pays_nothing() -> None:
    """It does not know its score: it subscribes, is refused, and waits for its turn each time."""
    net = network()
    sceptic, asking = FixedScores(), FixedScores()
    [one] = net.add_nodes(1, config=beating(), scores=lambda: sceptic)
    [other] = net.add_nodes(1, config=beating(), scores=lambda: asking)
    sceptic.table[other.peer_id] = -10.0
    net.subscribe(one, TOPIC)
    net.connect(one, other)
    net.run_for(STEP)
    net.subscribe(other, TOPIC)
    net.run_until(200.5)
    assert mesh(one) == mesh(other) == set()
    assert other.router.statistics().backoffs == 1
    assert sceptic.misbehaviour == asking.misbehaviour == []
