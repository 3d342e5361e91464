"""The heartbeat keeps every mesh at its degree, its quality and its share of outbound peers."""

from collections.abc import Callable
from typing import Any

import pytest

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import PeerStub, SimNetwork, SimNode, invariants, topologies
from bruit.scoring.thresholds import Thresholds
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.neighbourhood import (
    STEP,
    TOPIC,
    beating,
    ids,
    introduce,
    mesh,
    names,
    network,
    payloads,
)

BOOTSTRAPPER: dict[str, Any] = {"d": 0, "d_lo": 0, "d_hi": 0, "d_score": 0, "d_out": 0}


def subscribed_node(
    seed: int = 1, thresholds: Thresholds | None = None, **params: Any
) -> tuple[SimNetwork, SimNode, FixedScores]:
    """One node, subscribed, whose heartbeats are at 1 s, 2 s, …"""
    net, scores = network(seed), FixedScores()
    [node] = net.add_nodes(
        1, config=beating(**params), scores=lambda: scores, thresholds=thresholds
    )
    net.subscribe(node, TOPIC)
    return net, node, scores


def graft_all(net: SimNetwork, node: SimNode, stubs: list[PeerStub]) -> None:
    for stub in stubs:
        stub.graft(node, TOPIC)
    net.run_for(STEP)


def grafts(stubs: list[PeerStub]) -> list[PeerStub]:
    """Those who were asked into the mesh."""
    return [stub for stub in stubs if stub.heard("graft")]


# On subscribing, one's own and a peer's


def test_who_subscribes_grafts_d_random_subscribers_at_once() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    stubs = introduce(net, node, names("stub", 30))
    net.subscribe(node, TOPIC)
    net.run_for(STEP)
    assert len(mesh(node)) == 6
    assert ids(grafts(stubs)) == mesh(node)
    assert mesh(node) != ids(stubs[:6])


def test_who_subscribes_with_few_peers_grafts_them_all() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    stubs = introduce(net, node, names("stub", 3))
    net.subscribe(node, TOPIC)
    net.run_for(STEP)
    assert mesh(node) == ids(grafts(stubs)) == ids(stubs)


def test_a_peer_that_subscribes_is_grafted_at_once_only_below_d_lo() -> None:
    """Unlike go, which waits for the heartbeat; as rust and js do."""
    net, node, _ = subscribed_node()
    stubs = []
    for name in names("stub", 6):
        stubs += introduce(net, node, [name])
    assert net.now < 1.0
    assert mesh(node) == ids(stubs[:4])
    net.run_until(3.5)
    assert mesh(node) == ids(stubs[:4])  # 4 is d_lo: nothing is missing
    assert grafts(stubs) == stubs[:4]


def test_a_peer_with_a_negative_score_is_not_grafted_on_subscribing() -> None:
    net, node, scores = subscribed_node()
    [stub] = [net.add_peer_stub("stub")]
    scores.table[stub.peer_id] = -0.1
    stub.connect(node)
    net.run_for(STEP)
    stub.subscribe(node, TOPIC)
    net.run_until(5.5)
    assert mesh(node) == set()
    assert not stub.heard("graft")


def test_a_peer_that_unsubscribes_or_disconnects_is_out_of_the_mesh_without_a_prune() -> None:
    net, node, _ = subscribed_node()
    stubs = introduce(net, node, names("stub", 4))
    stubs[0].unsubscribe(node, TOPIC)
    stubs[1].disconnect(node)
    net.run_for(STEP)
    assert mesh(node) == ids(stubs[2:])
    assert not stubs[0].heard("prune")


def test_a_peer_that_grafts_without_having_subscribed_counts_as_subscribed() -> None:
    """Its subscription may have been lost on the way; as in rust. Leaving works as ever."""
    net, node, _ = subscribed_node()
    [stub] = introduce(net, node, ["stub"], topics=())
    stub.graft(node, TOPIC)
    net.run_for(STEP)
    assert mesh(node) == ids([stub])
    assert node.router.subscribers(TOPIC) == (stub.peer_id,)
    assert invariants.violations(net) == []
    stub.unsubscribe(node, TOPIC)
    net.run_for(STEP)
    assert mesh(node) == set()


# Too few


def thin_out(net: SimNetwork, node: SimNode, stubs: list[PeerStub], left: int) -> list[PeerStub]:
    """Have mesh members leave until ``left`` remain; returns those."""
    members = [stub for stub in stubs if stub.peer_id in mesh(node)]
    for stub in members[left:]:
        stub.prune(node, TOPIC, backoff=1000)
    net.run_for(STEP)
    assert mesh(node) == ids(members[:left])
    return members[:left]


@pytest.mark.parametrize(("left", "after"), [(0, 6), (1, 6), (3, 6), (4, 4), (5, 5)])
def test_a_mesh_below_d_lo_is_filled_up_to_d_at_the_heartbeat(left: int, after: int) -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating(d_out=0))
    stubs = introduce(net, node, names("stub", 30))
    net.subscribe(node, TOPIC)
    net.run_for(STEP)
    stayed = thin_out(net, node, stubs, left)
    net.run_until(0.9)
    assert mesh(node) == ids(stayed)
    net.run_until(1.1)
    assert mesh(node) >= ids(stayed)
    assert len(mesh(node)) == after


def test_floodsub_peers_strangers_and_bad_scorers_do_not_fill_a_mesh() -> None:
    net = network()
    scores = FixedScores()
    [node] = net.add_nodes(1, config=beating(), scores=lambda: scores)
    introduce(net, node, ["flooder"], protocol=Protocol.FLOODSUB)
    introduce(net, node, ["elsewhere"], topics=["another topic"])
    [bad] = introduce(net, node, ["bad"])
    scores.table[bad.peer_id] = -1.0
    [good] = introduce(net, node, ["good"])
    net.subscribe(node, TOPIC)
    net.run_until(5.5)
    assert mesh(node) == {good.peer_id}


# Too many


def test_a_mesh_below_d_hi_is_left_alone() -> None:
    net, node, _ = subscribed_node(d_out=0)
    stubs = introduce(net, node, names("stub", 11))
    graft_all(net, node, stubs)
    net.run_until(5.5)
    assert mesh(node) == ids(stubs)


def test_a_mesh_that_reaches_d_hi_shrinks_to_d_at_the_heartbeat() -> None:
    """``≥ d_hi`` as in go, where the specification says ``>``."""
    net, node, _ = subscribed_node()
    stubs = introduce(net, node, names("stub", 12))
    graft_all(net, node, stubs)
    net.run_until(0.9)
    assert mesh(node) == ids(stubs)
    net.run_until(1.1)
    assert len(mesh(node)) == 6
    pruned = [stub for stub in stubs if stub.heard("prune")]
    assert ids(pruned) == ids(stubs) - mesh(node)
    assert [heard.entry.backoff for stub in pruned for heard in stub.heard("prune")] == [60] * 6


def test_eight_peers_at_a_d_hi_of_eight_are_pruned_to_d_and_stay_there() -> None:
    """go: TestGossipsubPruneMeshCorrectly"""
    net = network()
    nodes = net.add_nodes(9, config=RouterConfig(params=GossipParams(d_hi=8)))
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.star(9))
    net.run_until(0.09)
    assert len(mesh(nodes[0])) == 8
    net.run_until(0.1 + 2 * 0.7)
    assert len(mesh(nodes[0])) == 6
    net.run_for(30.0)
    assert len(mesh(nodes[0])) == 6
    assert invariants.asymmetric_meshes(net) == []


def test_a_full_mesh_takes_in_peers_that_it_dialled_but_none_that_dialled_it() -> None:
    net, node, _ = subscribed_node()
    graft_all(net, node, introduce(net, node, names("stub", 12)))
    [inbound] = introduce(net, node, ["inbound"])
    [outbound] = introduce(net, node, ["outbound"], dialled=True)
    graft_all(net, node, [inbound, outbound])
    assert net.now < 1.0
    assert inbound.peer_id not in mesh(node)
    assert outbound.peer_id in mesh(node)
    assert [heard.entry.topic for heard in inbound.heard("prune")] == [TOPIC]
    assert not outbound.heard("prune")


def test_the_twelfth_peer_is_taken_and_the_thirteenth_refused() -> None:
    net, node, _ = subscribed_node()
    stubs = introduce(net, node, names("stub", 13))
    graft_all(net, node, stubs)
    assert mesh(node) == ids(stubs[:12])
    assert [stub.name for stub in stubs if stub.heard("prune")] == ["stub12"]


@pytest.mark.parametrize("seed", range(5))
def test_pruning_keeps_the_best_d_score_peers(seed: int) -> None:
    net, node, scores = subscribed_node(seed, d_out=0)
    stubs = introduce(net, node, names("stub", 12))
    graft_all(net, node, stubs)
    best = net.rng.sample(stubs, 4)
    scores.table.update({stub.peer_id: 1.0 + number for number, stub in enumerate(best)})
    net.run_until(1.1)
    assert mesh(node) > ids(best)
    assert len(mesh(node)) == 6


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("outbound_count", [2, 3])
def test_pruning_keeps_d_out_outbound_peers_and_the_best_however_badly_the_outbound_score(
    seed: int, outbound_count: int
) -> None:
    net, node, scores = subscribed_node(seed)
    outbound = introduce(net, node, names("outbound", outbound_count), dialled=True)
    inbound = introduce(net, node, names("inbound", 12 - outbound_count))
    graft_all(net, node, outbound + inbound)
    scores.table.update({stub.peer_id: 1.0 for stub in inbound})
    best = net.rng.sample(inbound, 4)
    scores.table.update({stub.peer_id: 5.0 for stub in best})
    net.run_until(1.1)
    assert len(mesh(node)) == 6
    assert mesh(node) > ids(best)
    assert len(mesh(node) & ids(outbound)) == 2


def test_who_else_stays_is_left_to_chance() -> None:
    """Without scores nobody has a claim to stay, and no order of arrival helps."""
    kept: set[str] = set()
    for seed in range(10):
        net, node, _ = subscribed_node(seed, d_out=0)
        stubs = introduce(net, node, names("stub", 12))
        graft_all(net, node, stubs)
        net.run_until(1.1)
        kept |= {stub.name for stub in stubs if stub.peer_id in mesh(node)}
    assert kept == set(names("stub", 12))  # by fair dice all but 1 in 85 runs of this


def test_beyond_the_best_even_the_worst_scorer_has_a_chance_to_stay() -> None:
    """So that those who score best together cannot fill the whole mesh."""
    kept: set[str] = set()
    for seed in range(20):
        net, node, scores = subscribed_node(seed, d_out=0)
        stubs = introduce(net, node, names("stub", 12))
        graft_all(net, node, stubs)
        scores.table.update({stub.peer_id: float(rank) for rank, stub in enumerate(stubs)})
        net.run_until(1.1)
        assert mesh(node) > ids(stubs[-4:])
        kept |= {stub.name for stub in stubs if stub.peer_id in mesh(node)}
    assert kept == set(names("stub", 12))  # by fair dice all but 1 in 39 runs of this


# Outbound


def test_a_mesh_without_outbound_peers_grafts_d_out_of_them() -> None:
    net, node, _ = subscribed_node()
    inbound = introduce(net, node, names("inbound", 6))
    graft_all(net, node, inbound)
    outbound = introduce(net, node, names("outbound", 5), dialled=True)
    assert mesh(node) == ids(inbound)
    net.run_until(1.1)
    assert mesh(node) > ids(inbound)
    assert len(mesh(node) & ids(outbound)) == 2
    net.run_until(9.5)
    assert len(mesh(node)) == 8


def test_outbound_peers_are_not_grafted_beyond_the_quota_nor_inbound_ones_for_it() -> None:
    net, node, _ = subscribed_node()
    [outbound] = introduce(net, node, ["outbound"], dialled=True)
    inbound = introduce(net, node, names("inbound", 8))  # the first three are grafted
    graft_all(net, node, inbound[:6])
    before = mesh(node)
    assert len(before) == 7
    net.run_until(5.5)
    assert mesh(node) == before == ids([outbound, *inbound[:6]])


def test_an_outbound_peer_with_a_negative_score_or_in_backoff_does_not_fill_the_quota() -> None:
    net, node, scores = subscribed_node()
    graft_all(net, node, introduce(net, node, names("inbound", 6)))
    bad, held_off = introduce(net, node, ["bad", "held off"], dialled=True)
    scores.table[bad.peer_id] = -1.0
    held_off.prune(node, TOPIC)
    net.run_until(5.5)
    assert not mesh(node) & ids([bad, held_off])


# Scores


def test_a_member_whose_score_turns_negative_is_pruned_at_the_heartbeat() -> None:
    net, node, scores = subscribed_node()
    bad, *good = introduce(net, node, names("stub", 4))
    scores.table[bad.peer_id] = -0.001
    net.run_until(0.9)
    assert bad.peer_id in mesh(node)
    net.run_until(1.1)
    assert mesh(node) == ids(good)
    [heard] = bad.heard("prune")
    assert (heard.entry.topic, heard.entry.backoff) == (TOPIC, 60)


def test_a_graft_from_a_peer_with_a_negative_score_is_refused_and_holds_it_off() -> None:
    net, node, scores = subscribed_node()
    [stub] = introduce(net, node, ["stub"], topics=())
    scores.table[stub.peer_id] = -0.001
    graft_all(net, node, [stub])
    assert mesh(node) == set()
    [heard] = stub.heard("prune")
    assert (heard.entry.topic, heard.entry.backoff) == (TOPIC, 60)
    scores.table[stub.peer_id] = 0.0
    graft_all(net, node, [stub])
    assert mesh(node) == set()  # in backoff now
    assert len(stub.heard("prune")) == 2


def test_a_score_of_zero_is_good_enough_for_a_mesh() -> None:
    net, node, scores = subscribed_node()
    [stub] = introduce(net, node, ["stub"])
    scores.table[stub.peer_id] = 0.0
    net.run_until(5.5)
    assert mesh(node) == ids([stub])


def test_a_peer_that_everybody_scores_down_neither_gets_nor_passes_on_messages() -> None:
    """go: TestGossipsubNegativeScore"""
    net = network()
    table: dict[bytes, float] = {}
    nodes = net.add_nodes(
        20,
        config=RouterConfig(params=GossipParams(flood_publish=False)),
        scores=lambda: FixedScores(table),
        thresholds=Thresholds(gossip=-10.0, publish=-100.0, graylist=-10_000.0),
    )
    sunk, others = nodes[0], nodes[1:]
    table[sunk.peer_id] = -1000.0
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.sparse_random(20, 10, net.rng))
    net.run_for(3.0)
    for number, node in enumerate(nodes):
        net.publish(node, TOPIC, b"message %d" % number)
        net.run_for(0.02)
    net.run_for(2.0)
    assert payloads(sunk) == [b"message 0"]
    expected = sorted(b"message %d" % number for number in range(1, 20))
    assert [sorted(payloads(node)) for node in others] == [expected] * 19
    sources = {delivery.source for node in others for delivery in node.deliveries(TOPIC)}
    assert sunk.peer_id not in sources


# Opportunistic grafting


WANTED = Thresholds(opportunistic_graft=1.0)


def poor_mesh(
    member_scores: list[float], candidate_scores: list[float], **params: Any
) -> tuple[SimNetwork, SimNode, list[PeerStub], list[PeerStub]]:
    """A mesh of peers with these scores, and peers outside with those."""
    net, node, scores = subscribed_node(thresholds=WANTED, d_out=0, **params)
    members = introduce(net, node, names("member", len(member_scores)))
    graft_all(net, node, members)
    others = introduce(net, node, names("other", len(candidate_scores)))
    assert mesh(node) == ids(members)
    for stubs, values in ((members, member_scores), (others, candidate_scores)):
        for stub, value in zip(stubs, values, strict=True):
            scores.table[stub.peer_id] = value
    return net, node, members, others


def test_a_mesh_of_poor_score_takes_in_two_better_peers_every_sixty_heartbeats() -> None:
    net, node, members, others = poor_mesh([0.0] * 5, [2.0] * 10)
    net.run_until(59.5)
    assert mesh(node) == ids(members)
    net.run_until(60.5)
    assert mesh(node) > ids(members)
    assert len(mesh(node) & ids(others)) == 2
    net.run_until(119.5)
    assert len(mesh(node)) == 7
    net.run_until(120.5)
    assert len(mesh(node)) == 9  # the median of 5 × 0 and 2 × 2 is 0 still
    net.run_until(180.5)
    assert len(mesh(node)) == 11  # and so is that of 5 × 0 and 4 × 2: ascending[4] = 0


def test_only_peers_better_than_the_median_are_grafted_opportunistically() -> None:
    net, node, members, others = poor_mesh(
        [0.5] * 5, [0.4, 0.5, 0.6, -1.0], opportunistic_graft_ticks=2
    )
    net.run_until(10.5)
    assert mesh(node) == ids([*members, others[2]])


@pytest.mark.parametrize(
    ("member_scores", "grows"),
    [
        ([0.0, 0.0, 0.0, 2.0], True),  # ascending[2] is 0
        ([0.0, 0.0, 2.0, 2.0], False),  # ascending[2] is 2: the upper of the two in the middle
        ([0.0, 0.0, 0.0, 2.0, 2.0], True),
        ([0.0, 0.0, 2.0, 2.0, 2.0], False),
        ([0.99] * 4, True),
        ([1.0] * 4, False),  # the threshold itself is good enough
    ],
)
def test_the_median_decides_whether_a_mesh_is_poor(member_scores: list[float], grows: bool) -> None:
    net, node, members, _ = poor_mesh(member_scores, [3.0] * 5, opportunistic_graft_ticks=1)
    net.run_until(1.1)
    assert len(mesh(node)) == len(members) + (2 if grows else 0)


def test_a_mesh_of_one_has_no_median_to_improve() -> None:
    net, node, members, _ = poor_mesh(
        [0.0], [2.0], d=1, d_lo=1, d_score=1, opportunistic_graft_ticks=1
    )
    net.run_until(5.5)
    assert mesh(node) == ids(members)


def test_opportunistic_grafting_gets_honest_peers_past_forty_squatters() -> None:
    """go: TestGossipsubOpportunisticGrafting, with scores that tell who is honest"""
    net = network()
    table: dict[bytes, float] = {}
    config = RouterConfig(
        params=GossipParams(
            prune_backoff=0.5, graft_flood_threshold=0.1, opportunistic_graft_ticks=2
        )
    )
    honest = net.add_nodes(
        10,
        config=config,
        scores=lambda: FixedScores(table),
        thresholds=Thresholds(
            gossip=-10.0, publish=-100.0, graylist=-10_000.0, opportunistic_graft=1.0
        ),
    )
    net.connect_all(topologies.sparse_random(10, 5, net.rng))
    squatters = [net.add_peer_stub(name) for name in names("squatter", 40)]
    for squatter in squatters:
        for node in honest:
            squatter.connect(node)
    net.run_for(1.0)
    for squatter in squatters:
        for node in honest:
            squatter.subscribe(node, TOPIC)
    net.run_for(1.0)
    net.subscribe_all(TOPIC)
    net.run_for(1.0)
    neighbours = {node: ids(honest) & set(node.peers()) for node in honest}
    assert any(not mesh(node) >= neighbours[node] for node in honest)
    table.update({node.peer_id: 1.5 for node in honest})
    net.run_for(27.0)
    assert all(len(mesh(node) & ids(honest)) >= 3 for node in honest)  # as many as go asks for


# Degrees of zero


@pytest.mark.parametrize("dialled", [False, True], ids=["inbound", "outbound"])
def test_a_bootstrapper_keeps_no_mesh(dialled: bool) -> None:
    net, node, _ = subscribed_node(**BOOTSTRAPPER)
    stubs = introduce(net, node, names("stub", 5), dialled=dialled)
    graft_all(net, node, stubs)
    net.run_until(1.1)
    assert mesh(node) == set()
    assert [len(stub.heard("prune")) for stub in stubs] == [1] * 5
    assert not grafts(stubs)


# Several topics


def in_each(node: SimNode, topics: list[str], what: Callable[[set[bytes]], bool]) -> bool:
    return all(what(mesh(node, topic)) for topic in topics)


def test_each_topic_has_a_mesh_of_its_own() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    topics = ["one", "two", "three"]
    stubs = introduce(net, node, names("stub", 30), topics=topics)
    for topic in topics:
        net.subscribe(node, topic)
    assert in_each(node, topics, lambda members: len(members) == 6)
    assert len({frozenset(mesh(node, topic)) for topic in topics}) == 3
    for stub in stubs:
        stub.unsubscribe(node, "two")
    net.run_for(STEP)
    assert mesh(node, "two") == set()
    assert in_each(node, ["one", "three"], lambda members: len(members) == 6)
