"""Direct peers: always connected, always trusted, never in a mesh (v1.1, "Explicit Peering")."""

from typing import Any

import pytest

from bruit.node.gossip.actions import Connect
from bruit.node.gossip.events import AddDirectPeer, RemoveDirectPeer
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.node.sim import PeerStub, SimNetwork, SimNode
from bruit.scoring.thresholds import Thresholds
from bruit.topics.validation import ACCEPTED
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.neighbourhood import (
    LATENCY,
    STEP,
    TOPIC,
    beating,
    fanout,
    ids,
    introduce,
    mesh,
    names,
    network,
    payloads,
)


def befriend(net: SimNetwork, one: SimNode, other: SimNode) -> None:
    """Make two nodes direct peers of each other."""
    net.hand_in(one, AddDirectPeer(other.peer_id, ()))
    net.hand_in(other, AddDirectPeer(one.peer_id, ()))


def node_and_direct_stub(
    scores: FixedScores | None = None, thresholds: Thresholds | None = None, **params: Any
) -> tuple[SimNetwork, SimNode, PeerStub]:
    """A subscribed node with heartbeats at 1 s, 2 s, …, connected to its direct peer."""
    net, table = network(), scores or FixedScores()
    [node] = net.add_nodes(1, config=beating(**params), scores=lambda: table, thresholds=thresholds)
    net.subscribe(node, TOPIC)
    stub = net.add_peer_stub("direct")
    net.hand_in(node, AddDirectPeer(stub.peer_id, ()))
    net.run_for(STEP)
    stub.subscribe(node, TOPIC)
    net.run_for(STEP)
    return net, node, stub


# Keeping in touch


def test_direct_peers_are_connected_reconnected_and_exchange_messages() -> None:
    """go: TestGossipsubDirectPeers"""
    net = network()
    nodes = net.add_nodes(3, config=beating(direct_connect_ticks=2))
    befriend(net, nodes[1], nodes[2])
    net.connect_all([(0, 1), (0, 2)])
    net.run_for(2.0)
    assert net.connected(nodes[1], nodes[2])
    net.subscribe_all(TOPIC)
    net.run_for(1.0)
    before, after = [b"a", b"b", b"c"], [b"d", b"e", b"f"]
    for node, data in zip(nodes, before, strict=True):
        net.publish(node, TOPIC, data)
        net.run_for(STEP)
    assert [payloads(node) for node in nodes] == [before] * 3
    net.disconnect(nodes[1], nodes[2])
    net.run_for(STEP)
    assert not net.connected(nodes[1], nodes[2])
    net.run_for(5.0)
    assert net.connected(nodes[1], nodes[2])
    for node, data in zip(nodes, after, strict=True):
        net.publish(node, TOPIC, data)
        net.run_for(STEP)
    assert [payloads(node) for node in nodes] == [before + after] * 3


def test_a_direct_peer_is_dialled_at_once_at_its_addresses() -> None:
    net = network()
    [node] = net.add_nodes(1)
    stub = net.add_peer_stub("stub")
    actions = node.router.handle(AddDirectPeer(stub.peer_id, ("/dns4/a/tcp/1",)), net.now)
    assert actions == [Connect(stub.peer_id, ("/dns4/a/tcp/1",))]


def test_a_direct_peer_that_is_connected_is_not_dialled() -> None:
    net = network()
    [node] = net.add_nodes(1)
    [stub] = introduce(net, node, ["stub"])
    assert node.router.handle(AddDirectPeer(stub.peer_id, ()), net.now) == []


def test_a_lost_direct_peer_is_redialled_every_three_hundred_heartbeats() -> None:
    net, node, stub = node_and_direct_stub()
    for tick in (300, 600):
        net.run_until(tick - 50.0)
        stub.disconnect(node)
        net.run_until(tick - 0.1)
        assert not stub.connections
        net.run_until(tick + 0.1)
        assert list(stub.connections) == [node.peer_id]
        assert not stub.connections[node.peer_id].outbound  # it was the node that dialled


def test_a_peer_that_is_direct_no_more_is_not_redialled_and_may_join_the_mesh() -> None:
    """go: TestGossipsubDynamicDirectPeers"""
    net, node, stub = node_and_direct_stub(direct_connect_ticks=2)
    assert mesh(node) == set()
    net.hand_in(node, RemoveDirectPeer(stub.peer_id))
    net.run_until(1.1)
    assert mesh(node) == ids([stub])
    stub.disconnect(node)
    net.run_until(20.0)
    assert not stub.connections


def test_removing_somebody_who_is_not_direct_changes_nothing() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    net.subscribe(node, TOPIC)
    [stub] = introduce(net, node, ["stub"])
    net.hand_in(node, RemoveDirectPeer(stub.peer_id))
    net.run_until(2.5)
    assert mesh(node) == ids([stub])


# Outside of every mesh


def test_a_direct_peer_is_never_grafted() -> None:
    net, node, stub = node_and_direct_stub(d_out=1, d_lo=2)  # it would be outbound, too
    net.unsubscribe(node, TOPIC)
    net.subscribe(node, TOPIC)
    net.run_until(100.5)
    assert mesh(node) == set()
    assert not stub.heard("graft")


def test_a_direct_peer_is_not_grafted_opportunistically_however_well_it_scores() -> None:
    scores = FixedScores()
    net, node, stub = node_and_direct_stub(
        scores, Thresholds(opportunistic_graft=1.0), opportunistic_graft_ticks=1
    )
    others = introduce(net, node, names("other", 5))
    for other in others:
        other.graft(node, TOPIC)
    scores.table[stub.peer_id] = 10.0
    net.run_until(5.5)
    assert mesh(node) == ids(others)


def test_a_graft_from_a_direct_peer_is_answered_by_prune_without_peers() -> None:
    net, node, stub = node_and_direct_stub(peer_exchange=True)
    introduce(net, node, names("other", 3))
    for _ in range(2):
        stub.graft(node, TOPIC)
        net.run_for(STEP)
    assert stub.peer_id not in mesh(node)
    assert [list(heard.entry.peers) for heard in stub.heard("prune")] == [[], []]
    assert node.router.statistics().backoffs == 0  # nobody is punished for it


def test_a_member_that_is_made_direct_leaves_the_mesh_and_is_told() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating(peer_exchange=True))
    topics = ["one", "two"]
    for topic in topics:
        net.subscribe(node, topic)
    stubs = introduce(net, node, names("stub", 4), topics=topics)
    net.hand_in(node, AddDirectPeer(stubs[0].peer_id, ()))
    net.run_for(STEP)
    for topic in topics:
        assert mesh(node, topic) == ids(stubs[1:])
    pruned = stubs[0].heard("prune")
    assert [heard.entry.topic for heard in pruned] == topics
    assert [(heard.entry.backoff, list(heard.entry.peers)) for heard in pruned] == [(60, [])] * 2
    net.run_until(100.5)
    for topic in topics:
        assert mesh(node, topic) == ids(stubs[1:])


def test_a_direct_peer_is_neither_in_the_fanout_nor_in_the_mesh_that_follows() -> None:
    """go: TestGossipsubDirectPeersFanout"""
    net = network()
    nodes = net.add_nodes(3, config=beating(flood_publish=False))
    befriend(net, nodes[1], nodes[2])
    net.connect_all([(0, 1), (0, 2)])
    for node in nodes[:2]:
        net.subscribe(node, TOPIC)
    net.run_for(1.0)
    said = [b"message %d" % number for number in range(3)]
    for data in said:
        assert set(net.publish(nodes[2], TOPIC, data).peers) == ids(nodes[:2])
        net.run_for(STEP)
    assert [payloads(node) for node in nodes] == [said, said, []]
    assert fanout(nodes[2]) == ids([nodes[0]])
    net.subscribe(nodes[2], TOPIC)
    net.run_for(2.0)
    assert mesh(nodes[2]) == ids([nodes[0]])
    assert mesh(nodes[0]) == ids(nodes[1:])
    assert mesh(nodes[1]) == ids([nodes[0]])


# Messages


def test_a_direct_peer_gets_every_message_without_being_in_the_mesh() -> None:
    net, node, stub = node_and_direct_stub(flood_publish=False)
    [member] = introduce(net, node, ["member"])
    assert mesh(node) == ids([member])
    net.publish(node, TOPIC, b"own")
    member.publish(node, member.author.write(TOPIC, b"forwarded"))
    net.run_for(STEP)
    assert [message.data for message in stub.messages()] == [b"own", b"forwarded"]


def test_a_direct_peer_gets_nothing_of_topics_that_it_is_not_subscribed_to() -> None:
    net, node, stub = node_and_direct_stub()
    [member] = introduce(net, node, ["member"], topics=["another topic"])
    net.subscribe(node, "another topic")
    net.publish(node, "another topic", b"own")
    member.publish(node, member.author.write("another topic", b"forwarded"))
    net.run_for(STEP)
    assert payloads(node, "another topic") == [b"own", b"forwarded"]
    assert stub.messages() == []


def test_a_message_does_not_go_back_to_the_direct_peer_that_sent_it() -> None:
    net, node, stub = node_and_direct_stub()
    [member] = introduce(net, node, ["member"])
    stub.publish(node, stub.author.write(TOPIC, b"x"))
    net.run_for(STEP)
    assert [message.data for message in member.messages()] == [b"x"]
    assert stub.messages() == []


def test_a_message_does_not_go_to_a_direct_peer_that_sent_it_while_it_was_judged() -> None:
    """Unlike go, which knows only of the first to send it."""
    net = network()
    config = RouterConfig(default_topic=TopicParams(validated=True))
    [node] = net.add_nodes(1, config=config)
    node.set_validator(TOPIC, lambda topic, data: ACCEPTED, delay=1.0)
    net.subscribe(node, TOPIC)
    first, second, third = introduce(net, node, ["first", "second", "third"])
    for stub in (first, second, third):
        net.hand_in(node, AddDirectPeer(stub.peer_id, ()))
    message = first.author.write(TOPIC, b"x")
    first.publish(node, message)
    net.run_for(0.5)
    second.publish(node, message)
    net.run_for(1.0)
    assert payloads(node) == [b"x"]
    assert [len(stub.messages()) for stub in (first, second, third)] == [0, 0, 1]


@pytest.mark.parametrize("direct", [True, False])
def test_a_direct_peer_is_listened_and_published_to_whatever_its_score(direct: bool) -> None:
    scores = FixedScores()
    net, node, stub = node_and_direct_stub(
        scores, Thresholds(gossip=-10.0, publish=-100.0, graylist=-1000.0)
    )
    if not direct:
        net.hand_in(node, RemoveDirectPeer(stub.peer_id))
    scores.table[stub.peer_id] = -2000.0
    stub.publish(node, stub.author.write(TOPIC, b"heard"))
    net.run_for(STEP)
    outcome = net.publish(node, TOPIC, b"said")
    net.run_for(STEP)
    assert payloads(node) == ([b"heard", b"said"] if direct else [b"said"])
    assert outcome.peers == ((stub.peer_id,) if direct else ())


def test_a_direct_peer_is_sent_no_gossip_for_it_has_the_messages() -> None:
    net, node, stub = node_and_direct_stub()
    [other] = introduce(net, node, ["other"])
    other.prune(node, TOPIC)
    net.run_for(STEP)
    net.publish(node, TOPIC, b"x")
    net.run_until(3.5)
    assert [heard.time for heard in other.heard("ihave")] == [at + LATENCY for at in (1, 2, 3)]
    assert not stub.heard("ihave")


def test_direct_peers_on_one_side_only_do_not_make_a_mesh_of_one_side() -> None:
    """The other side grafts us and is told PRUNE: both meshes stay empty."""
    net = network()
    nodes = net.add_nodes(2, config=beating())
    net.hand_in(nodes[0], AddDirectPeer(nodes[1].peer_id, ()))
    net.subscribe_all(TOPIC)
    net.run_until(50.5)
    assert [mesh(node) for node in nodes] == [set(), set()]
    net.publish(nodes[1], TOPIC, b"x")
    net.run_for(STEP)
    assert payloads(nodes[0]) == [b"x"]
