"""Publishing: who gets an own message, who does not, and what the publisher is told."""

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver, Lane, SendControl, SendMessage
from bruit.node.gossip.events import AddDirectPeer, PeerDisconnected, Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.sim import LinkModel, SimNetwork, topologies
from bruit.scoring.thresholds import Thresholds
from bruit.topics.message import id_from_content, id_from_origin
from bruit.topics.validation import ACCEPTED
from tests.gossip.handheld import (
    Handheld,
    grafts,
    id_of,
    idontwant,
    of,
    sent,
    subscriptions,
    told,
)
from tests.gossip.neighbourhood import STEP, TOPIC, introduce, names, network, payloads

QUIET = GossipParams(flood_publish=False)
BY_CONTENT = TopicParams(message_id=id_from_content)


def neighbours(handheld: Handheld, count: int, *topics: str) -> list[bytes]:
    return [handheld.connect(f"peer {number}", *topics) for number in range(count)]


def reached(handheld: Handheld, data: bytes = b"data") -> tuple[bytes, ...]:
    """Publish, check that the outcome tells the truth, and say who it was sent to."""
    outcome, actions = handheld.publish(TOPIC, data)
    sends = of(actions, SendMessage)
    assert tuple(peer for send in sends for peer in send.peers) == outcome.peers
    assert len(set(outcome.peers)) == len(outcome.peers)
    assert bool(outcome.peers) == (not outcome.problem)
    return outcome.peers


# To whom


def test_a_flooded_message_reaches_every_point_of_a_star_in_one_hop() -> None:
    """go: TestGossipsubFloodPublish (20 nodes, 20 messages)."""
    net = SimNetwork(seed=1, link=LinkModel(latency=0.05))
    nodes = net.add_nodes(20)
    net.connect_all(topologies.star(20))
    net.subscribe_all(TOPIC)
    net.run_for(1.0)
    assert len(nodes[0].router.statistics().mesh[TOPIC]) < 19
    said = [b"message %d" % number for number in range(20)]
    for data in said:
        net.publish(nodes[0], TOPIC, data)
    net.run_for(0.05)
    for node in nodes:
        assert payloads(node) == said


def test_without_flooding_only_the_mesh_is_sent_an_own_message() -> None:
    handheld = Handheld(RouterConfig(params=QUIET))
    peers = neighbours(handheld, 15, TOPIC)
    handheld.subscribe(TOPIC)
    mesh = handheld.mesh(TOPIC)
    assert len(mesh) == 6 < len(peers)
    assert set(reached(handheld)) == set(mesh)


def test_with_flooding_every_subscriber_is_sent_it_and_nobody_else() -> None:
    handheld = Handheld()
    peers = neighbours(handheld, 15, TOPIC)
    handheld.connect("not interested", "another topic")
    handheld.subscribe(TOPIC)
    assert set(reached(handheld)) == set(peers)


def test_flooding_reaches_peers_from_the_publish_threshold_on_and_direct_ones_below() -> None:
    handheld = Handheld(thresholds=Thresholds(gossip=-10, publish=-50, graylist=-80))
    good, just, below, direct = (
        handheld.connect(name, TOPIC) for name in ("good", "just", "below", "direct")
    )
    handheld.handle(AddDirectPeer(direct, ()))
    handheld.scores.values |= {just: -50.0, below: -50.1, direct: -1000.0}
    assert set(reached(handheld)) == {good, just, direct}


def test_without_flooding_floodsub_and_direct_peers_are_sent_it_beside_the_mesh() -> None:
    handheld = Handheld(RouterConfig(params=QUIET), Thresholds(publish=-50))
    handheld.subscribe(TOPIC)
    member = handheld.connect("member", TOPIC)
    simple = handheld.connect("simple", TOPIC, protocol=Protocol.FLOODSUB)
    poor = handheld.connect("poor", TOPIC, protocol=Protocol.FLOODSUB)
    direct = handheld.connect("direct", TOPIC)
    handheld.handle(AddDirectPeer(direct, ()))
    handheld.scores.values[poor] = -50.1
    assert handheld.mesh(TOPIC) == (member,)
    assert set(reached(handheld)) == {member, simple, direct}


def test_who_does_not_want_a_message_is_not_sent_it() -> None:
    for params in (QUIET, GossipParams()):
        handheld = Handheld(RouterConfig(params=params))
        handheld.subscribe(TOPIC)
        willing, unwilling = handheld.connect("willing", TOPIC), handheld.connect("un", TOPIC)
        message = handheld.write("own", TOPIC, b"data")
        handheld.receive(unwilling, idontwant(id_from_origin(message)))
        outcome, actions = handheld.publish_message(message)
        assert outcome.peers == (willing,)
        assert not sent(actions, unwilling)


def test_a_forwarded_message_goes_neither_to_its_forwarder_nor_to_its_author() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    forwarder, author, third = (handheld.connect(name, TOPIC) for name in ("f", "author", "t"))
    assert set(handheld.mesh(TOPIC)) == {forwarder, author, third}
    message = handheld.write("author", TOPIC, b"data")
    actions = handheld.receive_message(forwarder, message)
    (send,) = of(actions, SendMessage)
    assert send.peers == (third,)
    assert send.lane is Lane.FORWARD


def test_a_message_is_not_forwarded_to_whoever_sent_it_during_validation() -> None:
    topic = TopicParams(validated=True)
    net = network()
    (node,) = net.add_nodes(1, config=RouterConfig(topics={TOPIC: topic}))
    node.set_validator(TOPIC, lambda topic, data: ACCEPTED, delay=1.0)
    net.subscribe(node, TOPIC)
    first, second, third = introduce(net, node, ["first", "second", "third"])
    message = net.add_peer_stub("author").author.write(TOPIC, b"data")
    first.publish(node, message)
    net.run_for(STEP)
    second.publish(node, message)
    net.run_for(2.0)
    assert payloads(node) == [b"data"]
    assert [len(stub.messages()) for stub in (first, second, third)] == [0, 0, 1]


def test_a_peer_that_left_is_sent_nothing() -> None:
    handheld = Handheld()
    stays, leaves = neighbours(handheld, 2, TOPIC)
    handheld.handle(PeerDisconnected(leaves))
    assert reached(handheld) == (stays,)


# Outcomes


def test_with_nobody_to_send_to_the_publisher_is_told_and_hears_itself() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    handheld.connect("not interested", "another topic")
    outcome, actions = handheld.publish(TOPIC, b"data")
    assert outcome.peers == ()
    assert "no connected peer" in outcome.problem
    (delivery,) = of(actions, Deliver)
    assert (delivery.payload, delivery.source) == (b"data", handheld.own_id)


def test_when_every_peer_declines_the_publisher_is_told() -> None:
    handheld = Handheld()
    peers = neighbours(handheld, 3, TOPIC)
    message = handheld.write("own", TOPIC, b"data")
    for peer in peers:
        handheld.receive(peer, idontwant(id_from_origin(message)))
    outcome, actions = handheld.publish_message(message)
    assert outcome.peers == ()
    assert outcome.problem
    assert not of(actions, SendMessage)


def test_an_oversized_message_is_sent_to_nobody_and_leaves_no_trace() -> None:
    handheld = Handheld(RouterConfig(default_topic=TopicParams(max_message_size=500)))
    handheld.subscribe(TOPIC)
    neighbours(handheld, 2, TOPIC)
    before = handheld.router.statistics()
    outcome, actions = handheld.publish(TOPIC, bytes(500))
    assert outcome.problem.endswith("bytes on the wire, the topic's limit is 500")
    assert outcome.peers == ()
    assert actions == [outcome]
    assert handheld.router.statistics() == before


def test_a_message_of_exactly_the_limit_is_sent() -> None:
    wrapping = len(Handheld().write("own", TOPIC, bytes(300)).raw) - 300
    for limit, fits in ((300 + wrapping, True), (300 + wrapping - 1, False)):
        handheld = Handheld(RouterConfig(default_topic=TopicParams(max_message_size=limit)))
        neighbours(handheld, 1, TOPIC)
        outcome, _ = handheld.publish(TOPIC, bytes(300))
        assert bool(outcome.peers) is fits


def test_the_same_message_published_twice_is_sent_once() -> None:
    """go: TestPublishDuplicateMessage."""
    handheld = Handheld(RouterConfig(default_topic=BY_CONTENT))
    handheld.subscribe(TOPIC)
    neighbours(handheld, 2, TOPIC)
    first, _ = handheld.publish(TOPIC, b"hello")
    again, actions = handheld.publish(TOPIC, b"hello")
    assert len(first.peers) == 2
    assert again.message_id == first.message_id
    assert again.peers == ()
    assert "before" in again.problem
    assert actions == [again]


def test_what_came_from_a_peer_is_not_published_again() -> None:
    handheld = Handheld(RouterConfig(default_topic=BY_CONTENT))
    handheld.subscribe(TOPIC)
    peer, _ = neighbours(handheld, 2, TOPIC)
    handheld.receive_message(peer, handheld.write("author", TOPIC, b"hello"))
    outcome, actions = handheld.publish(TOPIC, b"hello")
    assert "before" in outcome.problem
    assert actions == [outcome]


def test_who_publishes_without_subscribing_hears_nothing_of_itself_or_others() -> None:
    """go: TestGossipsubFanoutOnly, where the topic is joined for its fanout alone."""
    for params in (QUIET, GossipParams()):
        net = network()
        (author,) = net.add_nodes(1, config=RouterConfig(params=params))
        others = net.add_nodes(4)
        net.connect_all(topologies.full(5))
        net.run_for(STEP)
        for node in others:
            net.subscribe(node, TOPIC)
        net.run_for(2.0)
        net.publish(author, TOPIC, b"from outside")
        net.run_for(STEP)
        net.publish(others[0], TOPIC, b"from inside")
        net.run_for(2.0)
        for node in others:
            assert payloads(node) == [b"from outside", b"from inside"]
            assert author.peer_id not in node.router.subscribers(TOPIC)
        assert payloads(author) == []
        assert author.router.statistics().mesh == {}


def test_an_own_message_is_delivered_at_home_and_what_peers_echo_is_a_duplicate() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    message = handheld.write("own", TOPIC, b"data")
    _, actions = handheld.publish_message(message)
    assert [delivery.payload for delivery in of(actions, Deliver)] == [b"data"]
    assert handheld.receive_message(peer, message) == []
    assert handheld.count(drops.DUPLICATE) == 1


# Per topic


def test_each_topic_has_an_id_function_of_its_own() -> None:
    handheld = Handheld(RouterConfig(topics={"by content": BY_CONTENT}))
    neighbours(handheld, 1, "by content", "by origin")
    assert handheld.publish("by content", b"same")[0].peers
    assert not handheld.publish("by content", b"same")[0].peers
    assert handheld.publish("by origin", b"same")[0].peers
    assert handheld.publish("by origin", b"same")[0].peers


def test_each_topic_has_a_maximum_size_of_its_own() -> None:
    handheld = Handheld(
        RouterConfig(
            topics={"small": TopicParams(max_message_size=1000)},
            default_topic=TopicParams(max_message_size=100_000),
        )
    )
    neighbours(handheld, 1, "small", "large")
    assert not handheld.publish("small", bytes(50_000))[0].peers
    assert handheld.publish("large", bytes(50_000))[0].peers


def test_one_frame_grafts_into_the_meshes_of_several_topics() -> None:
    """go: TestGossipsubMultipleGraftTopics."""
    handheld = Handheld()
    topics = ("one", "two", "three")
    for topic in topics:
        handheld.subscribe(topic)
    peer = handheld.connect("peer")
    handheld.receive(peer, grafts(*topics))
    assert [handheld.mesh(topic) for topic in topics] == [(peer,)] * 3


def test_grafts_for_several_topics_leave_in_one_frame() -> None:
    """go: TestGossipsubMultipleGraftTopics, from the other side."""
    handheld = Handheld()
    topics = ["one", "two", "three"]
    for topic in topics:
        handheld.subscribe(topic)
    peer = handheld.connect("peer")
    actions = handheld.receive(peer, subscriptions(*topics))
    assert len(of(actions, SendControl)) == 1
    assert [graft.topic for graft in told(actions, peer).control.graft] == topics


# Slow peers


def test_a_peer_that_reads_too_slowly_loses_messages_and_nobody_else_does() -> None:
    """20 messages of 1 MB at 1 MB/s: one on the wire, 16 MiB in the queue, the rest dropped."""
    net = network()
    (node,) = net.add_nodes(1)
    slow, fast = introduce(net, node, ["slow", "fast"])
    net.set_link(node, slow, LinkModel(rate=1_000_000.0), back=LinkModel())
    outcomes = [net.publish(node, TOPIC, bytes(1_000_000)) for _ in range(20)]
    assert all(set(each.peers) == {slow.peer_id, fast.peer_id} for each in outcomes)
    net.run_for(30.0)
    assert len(fast.messages()) == 20
    assert len(slow.messages()) == 1 + 16
    assert node.router.statistics().counters[drops.SLOW_PEER] == 3
    assert net.statistics().dropped == 3


def test_a_slow_peer_still_hears_control_before_the_messages_that_wait() -> None:
    net = network()
    (node,) = net.add_nodes(1)
    (slow,) = introduce(net, node, names("slow", 1))
    net.set_link(node, slow, LinkModel(latency=0.0, rate=1000.0), back=LinkModel())
    for _ in range(3):
        net.publish(node, TOPIC, bytes(1000))
    net.subscribe(node, "another topic")
    net.run_for(10.0)
    kinds = ["message" if frame.rpc.publish else "control" for frame in slow.sent_to_me()]
    assert kinds == ["message", "control", "message", "message"]


def test_a_delivery_names_the_author_and_the_neighbour_that_brought_it() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    forwarder = handheld.connect("forwarder", TOPIC)
    message = handheld.write("author", TOPIC, b"data")
    (delivery,) = of(handheld.receive_message(forwarder, message), Deliver)
    assert delivery.message.author == id_of("author")
    assert delivery.source == forwarder
