"""Several messages published at once: each peer gets all of them, each in another order."""

from bruit.node.gossip.actions import Lane, Published, SendMessage
from bruit.node.gossip.events import Publish, PublishBatch
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.node.sim import SimNetwork, topologies
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, id_from_content
from tests.gossip.handheld import Handheld, of
from tests.gossip.neighbourhood import TOPIC, payloads


def batch(messages: list[Message]) -> PublishBatch:
    return PublishBatch(
        tuple(Publish(number, message, message.data) for number, message in enumerate(messages))
    )


def orders(sends: list[SendMessage]) -> dict[PeerId, list[bytes]]:
    """The ids in the order in which each peer is sent them."""
    sequences: dict[PeerId, list[bytes]] = {}
    for send in sends:
        for peer in send.peers:
            sequences.setdefault(peer, []).append(send.message_id)
    return sequences


def test_every_peer_is_sent_the_whole_batch_beginning_with_another_message() -> None:
    """go: TestRoundRobinMessageIDScheduler."""
    router = Handheld()
    peers = [router.connect(f"peer {number}", TOPIC) for number in range(5)]
    messages = [router.write("own", TOPIC, b"message %d" % number) for number in range(3)]
    actions = router.handle(batch(messages))
    ids = [message.author + message.seqno for message in messages]
    turns = [ids, ids[1:] + ids[:1], ids[2:] + ids[:2]]
    expected = dict(zip(peers, [*turns, *turns[:2]], strict=True))
    assert orders(of(actions, SendMessage)) == expected
    assert {send.lane for send in of(actions, SendMessage)} == {Lane.OWN}


def test_every_message_of_a_batch_has_an_outcome_of_its_own() -> None:
    config = RouterConfig(default_topic=TopicParams(message_id=id_from_content))
    router = Handheld(config)
    peer = router.connect("peer", TOPIC)
    said = [router.write("own", TOPIC, data) for data in (b"one", b"one", b"two")]
    outcomes = of(router.handle(batch(said)), Published)
    assert [outcome.ticket for outcome in outcomes] == [0, 1, 2]
    assert [outcome.peers for outcome in outcomes] == [(peer,), (), (peer,)]
    assert "before" in outcomes[1].problem


def test_an_empty_batch_is_nothing() -> None:
    assert Handheld().handle(PublishBatch(())) == []


def test_a_batch_reaches_every_node_of_a_sparse_network_exactly_once() -> None:
    """go: TestGossipsubMessageBatchPublish (20 nodes, 100 messages)."""
    net = SimNetwork(seed=3)
    nodes = net.add_nodes(20)
    net.connect_all(topologies.sparse_random(20, 4, net.rng))
    net.subscribe_all(TOPIC)
    net.run_for(2.0)
    said = [b"message %d" % number for number in range(100)]
    author = nodes[0].author
    net.hand_in(nodes[0], batch([author.write(TOPIC, data) for data in said]))
    net.run_for(2.0)
    for node in nodes:
        assert sorted(payloads(node)) == sorted(said)
