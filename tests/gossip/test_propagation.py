"""Propagation over networks of any shape, and in the order of batches."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.gossip.actions import SendMessage
from bruit.node.gossip.events import Publish, PublishBatch
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import LinkModel, SimNetwork, topologies
from tests.gossip.handheld import Handheld, of
from tests.gossip.neighbourhood import (
    LATENCY,
    STEP,
    TOPIC,
    mesh,
    names,
    network,
    payloads,
    publish_from_anyone,
)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 50), st.integers(0, 2**32), st.booleans())
def test_one_message_reaches_everybody_over_any_random_tree(
    count: int, seed: int, flood_publish: bool
) -> None:
    """Each node is connected to one of those before it, and the first of all publishes."""
    net = SimNetwork(seed=seed, link=LinkModel(latency=LATENCY))
    brisk = GossipParams(
        heartbeat_delay=0.1,
        heartbeat_interval=0.2,
        history_length=10,
        history_gossip=10,
        flood_publish=flood_publish,
    )
    nodes = net.add_nodes(count, config=RouterConfig(params=brisk))
    net.connect_all([(number, net.rng.randrange(number)) for number in range(1, count)])
    net.subscribe_all(TOPIC)
    net.run_for(2.0)
    net.publish(nodes[0], TOPIC, bytes([1, 2, 3]))
    net.run_for(10.0)
    assert [payloads(node) for node in nodes] == [[bytes([1, 2, 3])]] * count


def test_messages_on_two_topics_reach_everybody_with_gossip_between_them() -> None:
    net = network()
    nodes = net.add_nodes(20)
    topics = ("foobar", "bazcrux")
    for topic in topics:
        net.subscribe_all(topic)
    net.connect_all(topologies.sparse_random(20, 10, net.rng))
    net.run_for(2.0)
    said = [b"message %d" % number for number in range(100)]
    for data in said:
        author = net.rng.choice(nodes)
        for topic in topics:
            net.publish(author, topic, data)
        net.run_for(0.1)
    net.run_for(2.0)
    for topic in topics:
        assert [payloads(node, topic) for node in nodes] == [said] * 20
    assert sum(node.router.statistics().counters.get("IHAVE ids sent", 0) for node in nodes) > 200


def test_two_nodes_are_in_each_others_mesh_and_nobodys_fanout() -> None:
    net = network()
    one, other = net.add_nodes(2)
    net.connect(one, other)
    net.subscribe_all(TOPIC)
    net.run_for(1.0)
    net.publish(one, TOPIC, b"hello")
    net.run_for(STEP)
    assert payloads(other) == [b"hello"]
    assert (mesh(one), mesh(other)) == ({other.peer_id}, {one.peer_id})
    for node in (one, other):
        assert node.router.statistics().fanout == {}
        assert len(node.router.subscribers(TOPIC)) == 1


def test_where_meshes_have_one_or_two_members_gossip_reaches_the_others() -> None:
    """Ten nodes whose meshes shrink to one as soon as they have three."""
    net = network()
    thin = GossipParams(d=1, d_lo=1, d_hi=3, d_score=1, d_out=0, flood_publish=False)
    nodes = net.add_nodes(10, config=RouterConfig(params=thin))
    net.connect_all(topologies.sparse_random(10, 4, net.rng))
    for node in nodes:
        net.subscribe(node, TOPIC)
        net.run_for(0.1)
    net.run_for(2.0)
    outcome = net.publish(nodes[0], TOPIC, b"hello")
    assert 1 <= len(outcome.peers) < 10
    net.run_for(10.0)
    assert [payloads(node) for node in nodes] == [[b"hello"]] * 10


def test_nobody_is_sent_a_message_that_it_wrote_or_that_it_sent() -> None:
    """A ring of three: each frame with the message goes onward or crosses another."""
    net = network()
    nodes = net.add_nodes(3)
    net.connect_all(topologies.ring(3))
    net.subscribe_all(TOPIC)
    net.run_for(1.0)
    assert len(net.publish(nodes[0], TOPIC, b"hello").peers) == 2
    net.run_for(1.0)
    assert [payloads(node) for node in nodes] == [[b"hello"]] * 3
    assert nodes[0].router.statistics().counters.get("duplicate", 0) == 0
    said = publish_from_anyone(net, nodes, 10, 0.2)
    assert [payloads(node)[1:] for node in nodes] == [said] * 3


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 24), st.integers(0, 60))
def test_a_batch_begins_with_another_message_for_each_peer_and_is_whole_for_all(
    peer_count: int, message_count: int
) -> None:
    handheld = Handheld()
    peers = [handheld.connect(name, TOPIC) for name in names("peer", peer_count)]
    messages = [handheld.write("own", TOPIC, b"%d" % number) for number in range(message_count)]
    items = tuple(Publish(number, each, each.data) for number, each in enumerate(messages))
    orders: dict[bytes, list[bytes]] = {peer: [] for peer in peers}
    for send in of(handheld.handle(PublishBatch(items)), SendMessage):
        for peer in send.peers:
            orders[peer].append(send.message_id)
    ids = [message.author + message.seqno for message in messages]
    assert all(sorted(order) == sorted(ids) for order in orders.values())
    # However far all peers have got together, no message has gone out to one peer more
    # than to another while there was one that had gone out to nobody.
    for sent_so_far in range(message_count):
        firsts = [order[sent_so_far] for order in orders.values()]
        counts = [firsts.count(message_id) for message_id in ids]
        assert max(counts) - min(counts) <= 1
