"""Backoff after PRUNE, on both sides, and control frames that a full queue lost."""

from typing import Any

import pytest

from bruit.node.gossip.actions import Lane, SendControl
from bruit.node.gossip.backoff import Backoffs
from bruit.node.gossip.events import FramesDropped, Protocol
from bruit.node.gossip.params import (
    MAX_BACKOFFS_PER_TOPIC,
    MAX_LOST_CONTROL,
    GossipParams,
    RouterConfig,
)
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.sendqueue import DEFAULT_LIMITS
from bruit.node.sim import LinkModel, PeerStub, SimNetwork, SimNode, invariants, topologies
from bruit.scoring.thresholds import Thresholds
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.neighbourhood import (
    LATENCY,
    STEP,
    TOPIC,
    beating,
    ids,
    introduce,
    mesh,
    network,
    payloads,
    publish_from_anyone,
)

SWEEP = 15  # heartbeats between sweeps of the backoff table (go)
SLACK = 2.0  # seconds: two heartbeats of go


def node_and_stub(
    protocol: Protocol = Protocol.GOSSIPSUB_12, **params: Any
) -> tuple[SimNetwork, SimNode, PeerStub, FixedScores]:
    """A subscribed node with heartbeats at 1 s, 2 s, … and its only peer, in its mesh."""
    net, scores = network(), FixedScores()
    [node] = net.add_nodes(1, config=beating(**params), scores=lambda: scores)
    net.subscribe(node, TOPIC)
    [stub] = introduce(net, node, ["stub"], protocol=protocol)
    assert mesh(node) == ids([stub])
    return net, node, stub, scores


def graft_times(stub: PeerStub) -> list[float]:
    """When the node sent it GRAFTs, seconds."""
    return [heard.time - LATENCY for heard in stub.heard("graft")]


def swept(end: float) -> float:
    """The first sweep, with heartbeats every second, after a backoff until ``end`` and slack."""
    beat = SWEEP
    while beat <= end + SLACK:
        beat += SWEEP
    return float(beat)


# Our own GRAFTs


def test_a_pruned_peer_is_not_grafted_for_sixty_seconds_and_the_slack() -> None:
    """go: TestGossipsubPruneBackoffTime, seen by the peer"""
    net, node, stub, scores = node_and_stub()
    scores.table[stub.peer_id] = -1.0
    net.run_until(1.5)
    [pruned] = stub.heard("prune")
    assert (pruned.time, pruned.entry.backoff) == (1.0 + LATENCY, 60)
    del scores.table[stub.peer_id]
    stub.forget()
    net.run_until(100.5)
    assert graft_times(stub) == [75.0] == [swept(61.0)]
    assert mesh(node) == ids([stub])


def test_everybody_holds_off_a_peer_that_all_pruned_and_messages_pass_it_by() -> None:
    """go: TestGossipsubPruneBackoffTime"""
    net = network()
    table: dict[bytes, float] = {}
    config = RouterConfig(params=GossipParams(heartbeat_delay=0.01, heartbeat_interval=0.1))
    nodes = net.add_nodes(
        10,
        config=config,
        scores=lambda: FixedScores(table),
        thresholds=Thresholds(gossip=-1.0, publish=-1.0, graylist=-1.0),
    )
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.full(10))
    net.run_for(1.0)
    shunned, others = nodes[0], nodes[1:]
    partners = [node for node in others if shunned.peer_id in mesh(node)]
    assert len(partners) >= 5
    backoffs = {node.name: node.router.statistics().backoffs for node in nodes}
    table[shunned.peer_id] = -1000.0
    net.run_for(1.0)
    assert not any(shunned.peer_id in mesh(node) for node in others)
    for node in partners:
        assert node.router.statistics().backoffs > backoffs[node.name]
    said = publish_from_anyone(net, others, 10, 0.2)
    assert [payloads(node) for node in others] == [said] * 9
    assert payloads(shunned) == []
    table[shunned.peer_id] = 0.0
    net.run_until(61.9)  # pruned at 1.01 s or later
    assert not any(shunned.peer_id in mesh(node) for node in others)
    net.run_until(61.01 + SLACK + SWEEP * 0.1 + 1.0)
    assert mesh(shunned)
    assert invariants.asymmetric_meshes(net) == []


@pytest.mark.parametrize("backoff", [1, 30, 100])
def test_the_backoff_that_a_peer_asks_for_is_kept(backoff: int) -> None:
    net, node, stub, _ = node_and_stub()
    stub.forget()
    stub.prune(node, TOPIC, backoff=backoff)
    pruned = net.now + LATENCY
    net.run_until(200.5)
    assert graft_times(stub) == [swept(pruned + backoff)]


@pytest.mark.parametrize("backoff", [None, 0])
def test_a_prune_that_names_no_backoff_means_our_own(backoff: int | None) -> None:
    net, node, stub, _ = node_and_stub(prune_backoff=40.0)
    stub.forget()
    stub.prune(node, TOPIC, backoff=backoff)
    pruned = net.now + LATENCY
    net.run_until(100.5)
    assert graft_times(stub) == [swept(pruned + 40.0)] == [45.0]


@pytest.mark.parametrize("backoff", [3601, 1 << 32, (1 << 64) - 1])
def test_a_backoff_longer_than_an_hour_is_an_hour(backoff: int) -> None:
    net, node, stub, _ = node_and_stub()
    stub.forget()
    stub.prune(node, TOPIC, backoff=backoff)
    pruned = net.now + LATENCY
    net.run_until(3700.5)
    assert graft_times(stub) == [swept(pruned + 3600.0)] == [3615.0]


def test_a_second_prune_does_not_shorten_the_backoff_of_the_first() -> None:
    net, node, stub, _ = node_and_stub()
    stub.forget()
    stub.prune(node, TOPIC, backoff=100)
    pruned = net.now + LATENCY
    net.run_for(STEP)
    stub.prune(node, TOPIC, backoff=5)
    net.run_until(200.5)
    assert graft_times(stub) == [swept(pruned + 100.0)]


def test_a_peer_in_backoff_that_subscribes_anew_is_not_grafted() -> None:
    net, node, stub, _ = node_and_stub()
    stub.prune(node, TOPIC, backoff=1000)
    net.run_for(STEP)
    stub.unsubscribe(node, TOPIC)
    net.run_for(STEP)
    stub.forget()
    stub.subscribe(node, TOPIC)
    net.run_until(100.5)
    assert graft_times(stub) == []


def test_a_peer_that_reconnects_is_still_held_off() -> None:
    net, node, stub, _ = node_and_stub()
    stub.prune(node, TOPIC, backoff=1000)
    net.run_for(STEP)
    stub.disconnect(node)
    net.run_for(STEP)
    stub.connect(node)
    net.run_for(STEP)
    stub.forget()
    stub.subscribe(node, TOPIC)
    net.run_until(100.5)
    assert graft_times(stub) == []


# A peer's GRAFTs


def pruned_stub(net: SimNetwork, node: SimNode, stub: PeerStub, scores: FixedScores) -> None:
    """Have the node prune the stub for 60 s, at 1 s; it is 1.5 s then."""
    scores.table[stub.peer_id] = -1.0
    net.run_until(1.5)
    del scores.table[stub.peer_id]
    stub.forget()
    assert mesh(node) == set()


@pytest.mark.parametrize(
    ("at", "penalty"),
    [
        (2.0, 2),
        (10.75, 2),
        (11.25, 1),  # more than graft_flood_threshold = 10 s after the PRUNE at 1 s
        (60.75, 1),
    ],
)
def test_a_graft_in_backoff_is_penalised_refused_and_holds_off_anew(
    at: float, penalty: int
) -> None:
    net, node, stub, scores = node_and_stub()
    pruned_stub(net, node, stub, scores)
    net.run_until(at - LATENCY)
    stub.graft(node, TOPIC)
    net.run_for(STEP)
    assert scores.misbehaviour == [(stub.peer_id, penalty, "GRAFT in backoff")]
    assert [heard.entry.backoff for heard in stub.heard("prune")] == [60]
    assert mesh(node) == set()
    net.run_until(at + 59.75)  # had the first backoff remained, it would be over
    stub.graft(node, TOPIC)
    net.run_for(STEP)
    assert len(scores.misbehaviour) == 2
    assert mesh(node) == set()


def test_a_graft_after_the_promised_time_is_taken_even_within_our_slack() -> None:
    net, node, stub, scores = node_and_stub()
    pruned_stub(net, node, stub, scores)
    net.run_until(61.0)
    stub.graft(node, TOPIC)
    net.run_for(STEP)
    assert mesh(node) == ids([stub])
    assert scores.misbehaviour == []
    assert stub.sent_to_me() == []


def test_a_graft_from_a_peer_that_is_in_the_mesh_changes_nothing() -> None:
    net, node, stub, scores = node_and_stub()
    stub.forget()
    for _ in range(3):
        stub.graft(node, TOPIC)
    net.run_for(STEP)
    assert mesh(node) == ids([stub])
    assert stub.sent_to_me() == []
    assert scores.misbehaviour == []


def test_a_graft_for_an_unknown_topic_is_not_answered_nor_remembered() -> None:
    """go: TestGossipsubAttackGRAFTNonExistentTopic"""
    net, node, stub, scores = node_and_stub()
    stub.forget()
    stub.graft(node, "unheard of")
    stub.prune(node, "never joined", backoff=1000)
    net.run_for(STEP)
    assert stub.sent_to_me() == []
    assert scores.misbehaviour == []
    assert node.router.statistics().backoffs == 0
    assert set(node.router.statistics().subscribers) == {TOPIC}


def test_a_v10_peer_is_pruned_without_a_backoff_and_held_off_all_the_same() -> None:
    net, _, stub, scores = node_and_stub(Protocol.GOSSIPSUB_10)
    scores.table[stub.peer_id] = -1.0
    net.run_until(1.5)
    [pruned] = stub.heard("prune")
    assert not pruned.entry.HasField("backoff")
    del scores.table[stub.peer_id]
    stub.forget()
    net.run_until(100.5)
    assert graft_times(stub) == [75.0]


# Leaving and joining


def test_who_leaves_a_topic_is_held_off_for_ten_seconds_by_both_sides() -> None:
    """go: TestGossipSubLeaveTopic"""
    net = network()
    nodes = net.add_nodes(2, config=beating())
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.line(2))
    net.run_until(5.25)
    assert mesh(nodes[0]) == ids([nodes[1]])
    net.unsubscribe(nodes[0], TOPIC)
    left = net.now
    net.run_for(STEP)
    assert [node.router.statistics().backoffs for node in nodes] == [1, 1]
    net.subscribe(nodes[0], TOPIC)
    rejoined = swept(left + 10.0)
    assert rejoined == 30.0
    net.run_until(rejoined - 0.1)
    assert [mesh(node) for node in nodes] == [set(), set()]
    net.run_until(rejoined + 0.1)
    assert mesh(nodes[0]) == ids([nodes[1]])
    assert mesh(nodes[1]) == ids([nodes[0]])


def test_who_leaves_a_topic_prunes_the_mesh_before_it_says_so() -> None:
    """rust-libp2p would else note a backoff of its own, not that of the PRUNE."""
    net, node, stub, _ = node_and_stub()
    [outsider] = introduce(net, node, ["outsider"], topics=())
    stub.forget()
    outsider.forget()
    net.unsubscribe(node, TOPIC)
    net.run_for(STEP)
    first, second = stub.sent_to_me()
    [prune], [subscription] = first.rpc.control.prune, second.rpc.subscriptions
    assert not first.rpc.subscriptions
    assert (subscription.subscribe, subscription.topic) == (False, TOPIC)
    assert (prune.topic, prune.backoff) == (TOPIC, 10)
    [frame] = outsider.sent_to_me()
    assert len(frame.rpc.subscriptions) == 1
    assert not frame.rpc.HasField("control")


def test_who_joins_a_topic_does_not_graft_peers_in_backoff() -> None:
    """go: TestGossipSubJoinTopic"""
    net = network()
    nodes = net.add_nodes(3)
    net.subscribe_all(TOPIC)
    net.connect(nodes[1], nodes[0])
    net.run_for(1.0)
    net.unsubscribe(nodes[0], TOPIC)
    net.connect(nodes[2], nodes[0])
    net.run_for(1.0)
    net.subscribe(nodes[0], TOPIC)
    net.run_for(1.0)
    assert set(nodes[0].router.subscribers(TOPIC)) == ids(nodes[1:])
    assert mesh(nodes[0]) == ids([nodes[2]])


def test_a_fanout_peer_in_backoff_is_not_taken_into_the_mesh() -> None:
    net, node, stub, _ = node_and_stub(flood_publish=False)
    net.unsubscribe(node, TOPIC)
    [other] = introduce(net, node, ["other"])
    assert set(net.publish(node, TOPIC, b"x").peers) == ids([stub, other])
    net.subscribe(node, TOPIC)
    assert mesh(node) == ids([other])


# The table


def test_the_table_of_backoffs_is_bounded_and_forgets_the_oldest() -> None:
    backoffs = Backoffs(slack=SLACK)
    everybody = [b"peer %d" % number for number in range(MAX_BACKOFFS_PER_TOPIC + 1)]
    for peer in everybody[:-1]:
        backoffs.add(TOPIC, peer, 60.0, now=0.0)
    assert all(backoffs.holds(TOPIC, peer) for peer in everybody[:-1])
    backoffs.add(TOPIC, everybody[-1], 60.0, now=1.0)
    assert len(backoffs) == MAX_BACKOFFS_PER_TOPIC
    assert [peer for peer in everybody if not backoffs.holds(TOPIC, peer)] == everybody[:1]


def test_the_table_of_backoffs_empties_when_they_are_over() -> None:
    net, node, stub, _ = node_and_stub()
    stub.prune(node, TOPIC, backoff=20)
    net.run_for(STEP)
    assert node.router.statistics().backoffs == 1
    stub.disconnect(node)
    net.run_until(29.5)
    assert node.router.statistics().backoffs == 1
    net.run_until(30.5)
    assert node.router.statistics().backoffs == 0


# Meshes under load


def test_meshes_of_many_topics_form_at_once() -> None:
    """go: TestGossipsubGraftPruneRetry"""
    net = network()
    nodes = net.add_nodes(10)
    net.connect_all(topologies.full(10))
    topics = [f"topic{number}" for number in range(35)]
    for topic in topics:
        net.subscribe_all(topic)
    net.run_for(5.0)
    assert invariants.asymmetric_meshes(net) == []
    for number, topic in enumerate(topics):
        said = publish_from_anyone(net, nodes, 1, 0.1, topic)
        assert [payloads(node, topic) for node in nodes] == [said] * 10, number


def test_meshes_form_while_a_flood_of_messages_overflows_the_queues() -> None:
    """go: TestGossipsubControlPiggyback

    Control has a lane of its own here, so that messages cannot crowd it out.
    """
    net = SimNetwork(seed=1, link=LinkModel(latency=LATENCY, rate=10e6))
    nodes = net.add_nodes(10)
    net.connect_all(topologies.full(10))
    net.subscribe_all("flood")
    net.run_for(1.0)
    topics = [f"topic{number}" for number in range(5)]
    data = bytes(DEFAULT_LIMITS[Lane.OWN] // 64)
    for topic in topics:
        for _ in range(20):
            net.publish(nodes[0], "flood", data)
        net.subscribe_all(topic)
        net.run_for(0.01)
    assert net.statistics().dropped > 0
    net.run_for(0.5)
    for node in nodes:
        for topic in topics:
            assert set(node.router.subscribers(topic)) == ids(nodes) - {node.peer_id}
            assert len(mesh(node, topic)) >= 4
    flooded = len(payloads(nodes[1], "flood"))
    net.run_for(10.0)
    assert len(payloads(nodes[1], "flood")) > flooded + 10  # the queues were far from empty
    for topic in topics:
        said = publish_from_anyone(net, nodes, 1, 0.5, topic)
        assert [payloads(node, topic) for node in nodes] == [said] * 10
    assert invariants.asymmetric_meshes(net) == []


# Lost control


def control(
    grafts: list[str] | None = None,
    prunes: dict[str, int] | None = None,
    subscriptions: dict[str, bool] | None = None,
) -> bytes:
    rpc = Rpc()
    for topic in grafts or []:
        rpc.control.graft.add(topic=topic)
    for topic, backoff in (prunes or {}).items():
        rpc.control.prune.add(topic=topic, backoff=backoff)
    for topic, wanted in (subscriptions or {}).items():
        rpc.subscriptions.add(topic=topic, subscribe=wanted)
    return rpc.SerializeToString()


def said(stub: PeerStub, kind: str) -> list[str]:
    return [heard.entry.topic for heard in stub.heard(kind)]


def test_lost_grafts_and_prunes_are_said_again_where_they_still_hold() -> None:
    """go: TestGossipsubPiggybackControl"""
    net, node, stub, _ = node_and_stub()  # in its mesh of TOPIC
    net.subscribe(node, "joined")  # where the stub is not
    net.run_for(STEP)
    stub.forget()
    topics = [TOPIC, "joined", "not joined"]
    frame = control(grafts=topics, prunes=dict.fromkeys(topics, 60))
    net.hand_in(node, FramesDropped(stub.peer_id, 1, (frame,)))
    net.run_until(0.9)
    assert stub.sent_to_me() == []
    net.run_until(1.5)
    assert said(stub, "graft") == [TOPIC]
    assert said(stub, "prune") == ["joined", "not joined"]
    stub.forget()
    net.run_until(10.5)
    assert stub.sent_to_me() == []  # once is enough


def test_lost_subscriptions_are_said_again_as_they_are_now() -> None:
    net, node, stub, _ = node_and_stub()
    stub.forget()
    frames = (control(subscriptions={TOPIC: False}), control(subscriptions={"left": True}))
    net.hand_in(node, FramesDropped(stub.peer_id, 2, frames))
    net.run_until(1.5)
    entries = [heard.entry for heard in stub.heard("subscriptions")]
    assert {entry.topic: entry.subscribe for entry in entries} == {TOPIC: True, "left": False}


def test_a_lost_prune_is_said_again_with_its_own_backoff() -> None:
    net, node, stub, _ = node_and_stub()
    net.unsubscribe(node, TOPIC)
    net.run_for(STEP)
    [frame] = [each.frame for each in stub.sent_to_me() if each.rpc.control.prune]
    stub.forget()
    net.hand_in(node, FramesDropped(stub.peer_id, 1, (frame,)))
    net.run_until(1.5)
    [again] = stub.heard("prune")
    assert (again.entry.topic, again.entry.backoff) == (TOPIC, 10)  # not the 60 s of others


def test_a_lost_prune_is_not_said_to_a_peer_that_came_back_meanwhile() -> None:
    net, node, stub, scores = node_and_stub(prune_backoff=0.25)
    scores.table[stub.peer_id] = -1.0
    net.run_until(1.5)
    [frame] = [each.frame for each in stub.sent_to_me() if each.rpc.control.prune]
    del scores.table[stub.peer_id]
    stub.forget()
    net.hand_in(node, FramesDropped(stub.peer_id, 1, (frame,)))
    stub.graft(node, TOPIC)
    net.run_until(5.5)
    assert mesh(node) == ids([stub])
    assert stub.sent_to_me() == []


def test_what_a_peer_lost_is_forgotten_when_it_disconnects() -> None:
    net, node, stub, _ = node_and_stub()
    net.hand_in(node, FramesDropped(stub.peer_id, 1, (control(prunes={"a": 60}),)))
    stub.disconnect(node)
    net.run_for(STEP)
    stub.connect(node)
    net.run_until(5.5)
    assert not stub.heard("prune")


def test_of_lost_frames_a_bounded_number_is_kept() -> None:
    net, node, stub, _ = node_and_stub()
    topics = [f"topic{number}" for number in range(MAX_LOST_CONTROL + 10)]
    frames = tuple(control(prunes={topic: 60}) for topic in topics)
    net.hand_in(node, FramesDropped(stub.peer_id, len(frames), frames))
    net.run_until(1.5)
    assert sorted(said(stub, "prune")) == sorted(topics[:MAX_LOST_CONTROL])
    assert node.router.statistics().counters["send queue full"] == len(frames)


def test_a_queue_that_was_full_of_control_loses_nothing_for_good() -> None:
    """The queue is full for 3 s; what was lost is tried at each heartbeat until it is said."""
    net = network()
    [node] = net.add_nodes(1, config=beating())
    [stub] = introduce(net, node, ["stub"], topics=("a", "b", "c"))
    filler = Rpc(publish=[bytes(1 << 20)]).SerializeToString()
    net.set_link(node, stub, LinkModel(latency=LATENCY, rate=len(filler) / 3.0))
    net.perform(node, [SendControl(stub.peer_id, filler)] * 2)  # one is written, one waits
    for topic in ("a", "b", "c"):
        net.subscribe(node, topic)
    net.unsubscribe(node, "b")
    assert net.statistics().dropped >= 4
    net.run_until(2.9)
    assert not stub.heard("subscriptions")
    net.run_until(20.0)
    entries = [heard.entry for heard in stub.heard("subscriptions")]
    assert {entry.topic: entry.subscribe for entry in entries} == {"a": True, "b": False, "c": True}
    assert set(said(stub, "graft")) == {"a", "c"}
    assert set(said(stub, "prune")) == {"b"}
