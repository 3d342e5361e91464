"""Every message reaches every subscriber, over every kind of network."""

import pytest

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import SimNetwork, SimNode, invariants, topologies
from tests.gossip.neighbourhood import (
    LATENCY,
    STEP,
    TOPIC,
    beating,
    ids,
    introduce,
    mesh,
    names,
    network,
    payloads,
    publish_from_anyone,
)

PAUSE = 0.2  # seconds between messages: more than they take, less than a heartbeat
SPARSE, DENSE = 3, 10  # neighbours per node
EAGER = RouterConfig(params=GossipParams(flood_publish=False))


def subscribed(degree: int, config: RouterConfig | None = None) -> tuple[SimNetwork, list[SimNode]]:
    """20 nodes, connected at random and subscribed, whose meshes have had 2 s to form."""
    net = network()
    nodes = net.add_nodes(20, config=config)
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.sparse_random(20, degree, net.rng))
    net.run_for(2.0)
    return net, nodes


def settled(net: SimNetwork) -> bool:
    return invariants.violations(net) == [] and invariants.asymmetric_meshes(net) == []


@pytest.mark.parametrize("config", [RouterConfig(), EAGER], ids=["flooding", "by the mesh"])
@pytest.mark.parametrize("degree", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_every_message_reaches_every_subscriber_once_and_before_the_next(
    degree: int, config: RouterConfig
) -> None:
    """go: TestSparseGossipsub, TestDenseGossipsub"""
    net, nodes = subscribed(degree, config)
    said = publish_from_anyone(net, nodes, 100, PAUSE)
    assert [payloads(node) for node in nodes] == [said] * 20
    assert settled(net)


def test_a_message_crosses_the_mesh_without_waiting_for_a_heartbeat() -> None:
    """Five hops in 0.2 s, between two heartbeats: nobody waits to be asked."""
    net, nodes = subscribed(DENSE, beating(flood_publish=False))
    sent = net.now
    net.publish(nodes[0], TOPIC, b"x")
    net.run_for(PAUSE)
    arrivals = [node.deliveries(TOPIC)[0].time - sent for node in nodes]
    assert arrivals[0] == 0.0
    assert all(LATENCY <= arrival <= 5 * LATENCY for arrival in arrivals[1:])


def test_messages_and_gossip_about_them_interleave() -> None:
    """go: TestGossipsubGossip"""
    net, nodes = subscribed(DENSE)
    said = publish_from_anyone(net, nodes, 100, 0.1)
    net.run_for(2.0)
    assert [payloads(node) for node in nodes] == [said] * 20
    assert sum(node.router.statistics().counters.get("IHAVE ids sent", 0) for node in nodes) > 100


def test_gossip_about_two_topics_leaves_in_one_frame() -> None:
    """go: TestGossipsubGossipPiggyback, which go skips"""
    net = network()
    [node] = net.add_nodes(1, config=beating())
    [stub] = introduce(net, node, ["stub"], topics=("foobar", "bazcrux"))
    net.subscribe(node, "foobar")
    net.subscribe(node, "bazcrux")
    net.run_for(STEP)
    for topic in ("foobar", "bazcrux"):  # out of both meshes, it is left to gossip
        stub.prune(node, topic)
    net.run_for(STEP)
    said = {topic: net.publish(node, topic, b"x").message_id for topic in ("foobar", "bazcrux")}
    stub.forget()
    net.run_until(1.5)
    [frame] = [frame for frame in stub.sent_to_me() if frame.rpc.control.ihave]
    offered = {entry.topic: list(entry.message_ids) for entry in frame.rpc.control.ihave}
    assert offered == {topic: [message_id] for topic, message_id in said.items()}


def test_who_subscribes_late_gets_the_last_messages_by_gossip() -> None:
    """go: TestGossipsubGossipPropagation

    The author is not subscribed and has only the early subscribers in its fanout.
    """
    net = network()
    nodes = net.add_nodes(20, config=EAGER)
    author, early, late = nodes[0], nodes[1:7], nodes[7:]
    net.connect_all(topologies.full(7), nodes[:7])
    net.connect_all(topologies.full(14), [*late, author])
    for node in early:
        net.subscribe(node, TOPIC)
    net.run_for(1.0)
    said = publish_from_anyone(net, [author], 10, 0.01)
    net.run_for(0.1)
    assert [payloads(node) for node in early] == [said] * 6
    for node in late:
        net.subscribe(node, TOPIC)
    net.run_for(2.5)
    assert [sorted(payloads(node)) for node in late] == [said] * 13
    served = author.router.statistics().counters["IWANT messages served"]
    assert served >= 10  # there is no other way from the author to the late ones


def test_a_message_is_advertised_for_three_heartbeats_and_served_for_five() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    net.subscribe(node, TOPIC)
    [stub] = introduce(net, node, ["stub"])
    stub.prune(node, TOPIC)
    net.run_until(1.5)
    stub.forget()
    message_id = net.publish(node, TOPIC, b"x").message_id
    net.run_until(5.5)
    assert [heard.time for heard in stub.heard("ihave")] == [at + LATENCY for at in (2, 3, 4)]
    stub.forget()
    stub.iwant(node, message_id)
    net.run_until(6.5)
    assert [message.data for message in stub.messages()] == [b"x"]
    stub.forget()
    stub.iwant(node, message_id)
    net.run_until(7.5)
    assert stub.messages() == []


def test_subscribers_that_leave_are_routed_around() -> None:
    """go: TestGossipsubPrune"""
    net, nodes = subscribed(DENSE)
    gone, left = nodes[:5], nodes[5:]
    for node in gone:
        net.unsubscribe(node, TOPIC)
    net.run_for(0.1)
    said = publish_from_anyone(net, left, 10, PAUSE)
    assert [payloads(node) for node in left] == [said] * 15
    assert [payloads(node) for node in gone] == [[]] * 5
    assert not any(mesh(node) & ids(gone) for node in left)
    assert settled(net)


def test_who_subscribes_one_after_the_other_is_in_the_mesh_at_once() -> None:
    """go: TestGossipsubGraft"""
    net = network()
    nodes = net.add_nodes(20)
    net.connect_all(topologies.sparse_random(20, SPARSE, net.rng))
    net.run_for(1.0)
    for node in nodes:
        net.subscribe(node, TOPIC)
        net.run_for(0.1)
    said = publish_from_anyone(net, nodes, 100, PAUSE)
    assert [payloads(node) for node in nodes] == [said] * 20
    assert settled(net)


def test_peers_that_vanish_are_routed_around() -> None:
    """go: TestGossipsubRemovePeer"""
    net = network(detection_delay=0.1)
    nodes = net.add_nodes(20)
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.sparse_random(20, DENSE, net.rng))
    net.run_for(2.0)
    gone, left = nodes[:5], nodes[5:]
    for node in gone:
        net.crash(node)
    net.run_for(1.0)
    said = publish_from_anyone(net, left, 10, PAUSE)
    assert [payloads(node) for node in left] == [said] * 15
    for node in left:
        statistics = node.router.statistics()
        assert not ids(gone) & {*statistics.peers, *statistics.subscribers[TOPIC], *mesh(node)}
    assert settled(net)


def test_messages_survive_the_time_until_vanished_peers_are_missed() -> None:
    """A quarter of every mesh is dead and nobody knows: the rest of the mesh carries on."""
    net, nodes = subscribed(DENSE)
    for node in nodes[:5]:
        net.crash(node)  # noticed after 10 s
    said = publish_from_anyone(net, nodes[5:], 10, PAUSE)
    net.run_for(1.0)
    assert [sorted(payloads(node)) for node in nodes[5:]] == [said] * 15


def test_a_message_passes_along_a_line_from_an_author_who_is_not_subscribed() -> None:
    """go: TestGossipsubMultihops"""
    net = network()
    nodes = net.add_nodes(6)
    net.connect_all(topologies.line(6))
    for node in nodes[1:]:
        net.subscribe(node, TOPIC)
    net.run_for(2.0)
    sent = net.now
    net.publish(nodes[0], TOPIC, b"i like cats")
    net.run_for(5.0)
    [delivery] = nodes[5].deliveries(TOPIC)
    assert delivery.payload == b"i like cats"
    assert delivery.time == sent + 5 * LATENCY
    assert payloads(nodes[0]) == []


def test_messages_pass_from_leaf_to_leaf_of_a_tree() -> None:
    """go: TestGossipsubTreeTopology, with the same tree"""
    net = network()
    nodes = net.add_nodes(10)
    tree = [(0, 1), (1, 2), (1, 4), (2, 3), (0, 5), (5, 6), (5, 8), (6, 7), (8, 9)]
    net.connect_all(tree)
    net.subscribe_all(TOPIC)
    net.run_for(2.0)
    for index, neighbours in ((0, (1, 5)), (1, (0, 2, 4)), (2, (1, 3))):
        expected = {nodes[neighbour].peer_id for neighbour in neighbours}
        assert mesh(nodes[index]) == expected
    net.publish(nodes[9], TOPIC, b"from nine")
    net.run_for(PAUSE)
    net.publish(nodes[3], TOPIC, b"from three")
    net.run_for(PAUSE)
    assert [payloads(node) for node in nodes] == [[b"from nine", b"from three"]] * 10


def test_gossipsub_and_floodsub_nodes_serve_each_other() -> None:
    """go: TestMixedGossipsub"""
    net = network()
    gossiping = net.add_nodes(20)
    flooding = net.add_nodes(10, protocol=Protocol.FLOODSUB)
    net.subscribe_all(TOPIC)
    net.connect_all(topologies.sparse_random(30, SPARSE, net.rng))
    net.run_for(2.0)
    said = publish_from_anyone(net, net.nodes, 100, PAUSE)
    assert [payloads(node) for node in net.nodes] == [said] * 30
    assert not any(mesh(node) & ids(flooding) for node in gossiping)
    assert not any(mesh(node) for node in flooding)


def test_a_floodsub_peer_is_sent_messages_and_subscriptions_but_no_control() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating(flood_publish=False))
    [flooder] = introduce(net, node, ["flooder"], protocol=Protocol.FLOODSUB)
    others = introduce(net, node, names("other", 8))
    net.subscribe(node, TOPIC)
    net.run_for(1.5)
    net.publish(node, TOPIC, b"own")
    others[0].publish(node, others[0].author.write(TOPIC, b"forwarded"))
    net.run_for(5.0)
    net.unsubscribe(node, TOPIC)
    net.run_for(1.0)
    assert [message.data for message in flooder.messages()] == [b"own", b"forwarded"]
    assert [heard.entry.subscribe for heard in flooder.heard("subscriptions")] == [True, False]
    assert not any(frame.rpc.HasField("control") for frame in flooder.sent_to_me())


def test_the_outcome_of_publishing_says_whether_there_are_enough_peers() -> None:
    """go: TestGossipsubEnoughPeers, where bruit tells at each publication"""
    net = network()
    nodes = net.add_nodes(20)
    net.subscribe_all(TOPIC)
    alone = net.publish(nodes[0], TOPIC, b"nobody hears")
    assert alone.peers == ()
    assert alone.problem == "no connected peer is subscribed to the topic and would take it"
    net.connect_all(topologies.sparse_random(20, DENSE, net.rng))
    net.run_for(3.0)
    crowded = net.publish(nodes[0], TOPIC, b"all hear")
    assert crowded.problem == ""
    assert set(crowded.peers) == set(nodes[0].router.subscribers(TOPIC))
    assert len(crowded.peers) >= DENSE


def test_a_gossip_factor_decides_how_many_peers_hear_of_a_message() -> None:
    """go: TestGossipsubCustomParams, by what the parameter does"""
    told = {}
    for factor in (0.25, 0.5):
        net = network()
        config = beating(gossip_factor=factor, d=0, d_lo=0, d_hi=0, d_score=0, d_out=0)
        [node] = net.add_nodes(1, config=config)
        net.subscribe(node, TOPIC)
        stubs = introduce(net, node, names("stub", 40))
        net.publish(node, TOPIC, b"x")
        net.run_until(1.5)
        told[factor] = sum(1 for stub in stubs if stub.heard("ihave"))
    assert told == {0.25: 10, 0.5: 20}  # of 40 outside of the mesh, which is empty


def test_a_shorter_followup_time_charges_a_broken_promise_earlier() -> None:
    """go: TestGossipsubCustomParams, by what the parameter does"""
    charged = {}
    for followup in (1.0, 3.0):
        net = network()
        [node] = net.add_nodes(1, config=beating(iwant_followup=followup))
        net.subscribe(node, TOPIC)
        [liar] = introduce(net, node, ["liar"])
        liar.ihave(node, TOPIC, b"a message that nobody wrote")  # asked for before 1 s
        while "broken promises" not in node.router.statistics().counters:
            net.run_for(0.5)
            assert net.now < 10.0
        charged[followup] = net.now // 1
    assert charged == {1.0: 2.0, 3.0: 4.0}  # the first heartbeat after the time is up
