"""Stubs: what a test makes a peer say arrives, and what it hears can be asked for."""

import pytest

from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.sim import LinkModel, PeerStub, SimNetwork, SimNode
from bruit.topics.errors import LocalError

LARGE = bytes(2000)  # above the threshold of IDONTWANT


def scene() -> tuple[SimNetwork, SimNode, PeerStub]:
    """A router subscribed to t and a stub connected to it, at 0.5 s, between two heartbeats."""
    net = SimNetwork(seed=1, link=LinkModel(latency=0.01))
    (node,) = net.add_nodes(1)
    stub = net.add_peer_stub("stub")
    net.subscribe(node, "t")
    stub.connect(node)
    net.run_until(0.5)
    return net, node, stub


def test_a_stub_hears_the_subscriptions_of_a_node() -> None:
    _, node, stub = scene()
    (heard,) = stub.heard("subscriptions")
    assert (heard.entry.topic, heard.entry.subscribe) == ("t", True)
    assert heard.source == node.peer_id
    assert heard.time == pytest.approx(0.03)  # a round trip, and one way more


def test_a_stub_that_subscribes_is_grafted_and_one_that_unsubscribes_is_forgotten() -> None:
    net, node, stub = scene()
    stub.subscribe(node, "t")
    net.run_for(0.1)
    assert [heard.entry.topic for heard in stub.heard("graft")] == ["t"]
    assert node.router.statistics().mesh == {"t": (stub.peer_id,)}
    stub.unsubscribe(node, "t")
    net.run_for(0.1)
    assert node.router.statistics().subscribers == {}


def test_a_stub_can_graft_and_prune() -> None:
    net, node, stub = scene()
    stub.subscribe(node, "t")
    net.run_for(0.1)
    stub.prune(node, "t", backoff=30)
    net.run_for(0.1)
    assert node.router.statistics().mesh == {"t": ()}
    stub.graft(node, "t")
    net.run_for(0.1)
    (heard,) = stub.heard("prune", node)  # it came too early
    assert heard.entry.topic == "t"


def test_a_stub_offers_peers_with_their_records() -> None:
    net = SimNetwork(seed=1)
    stub = net.add_peer_stub("stub")
    other, friend = net.add_peer_stub("other"), net.add_peer_stub("friend")
    other.connect(friend)
    net.run_for(1.0)
    other.prune(friend, "t", offered=[stub])
    net.run_for(1.0)
    (heard,) = friend.heard("prune")
    (offered,) = heard.entry.peers
    assert (offered.peer_id, offered.signed_peer_record) == (stub.peer_id, stub.record)
    assert not heard.entry.HasField("backoff")


def test_a_stub_gets_what_it_wants_by_ihave_and_iwant() -> None:
    net, node, stub = scene()
    outcome = net.publish(node, "t", b"x")
    assert outcome.peers == ()
    stub.subscribe(node, "t")
    net.run_for(0.1)
    stub.prune(node, "t")  # gossip goes to those outside of the mesh
    net.run_for(1.0)
    (heard, *_) = stub.heard("ihave")
    assert list(heard.entry.message_ids) == [outcome.message_id]
    stub.iwant(node, outcome.message_id)
    net.run_for(0.1)
    assert [message.data for message in stub.messages(node)] == [b"x"]


def test_a_stub_that_advertises_a_message_is_asked_for_it() -> None:
    net, node, stub = scene()
    stub.ihave(node, "t", b"an id")
    net.run_for(0.1)
    assert [list(heard.entry.message_ids) for heard in stub.heard("iwant")] == [[b"an id"]]


def test_a_stub_that_does_not_want_a_message_is_not_sent_it() -> None:
    net, node, stub = scene()
    source = net.add_peer_stub("source")
    source.connect(node)
    stub.subscribe(node, "t")
    net.run_for(0.1)
    message = source.author.write("t", LARGE)
    stub.idontwant(node, message.author + message.seqno)
    net.run_for(0.1)
    source.publish(node, message)
    source.publish(node, source.author.write("t", b"another"))
    net.run_for(0.1)
    assert [message.data for message in stub.messages()] == [b"another"]
    assert [list(heard.entry.message_ids) for heard in stub.heard("idontwant")] == [
        [message.author + message.seqno]
    ]


def test_a_stub_sends_any_bytes_at_all() -> None:
    net, node, stub = scene()
    stub.send(node, b"\xff" * 10)
    stub.send(node, Rpc(publish=[b"\xff"]))
    net.run_for(0.1)
    assert node.router.statistics().counters["malformed frame"] == 2


def test_a_stub_tells_who_sent_it_what_and_when_and_can_forget_it() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=0.5))
    one, two, hub = (net.add_peer_stub(name) for name in ("one", "two", "hub"))
    one.connect(hub)
    two.connect(hub)
    net.run_until(1.0)
    one.send(hub, b"first")
    net.run_until(2.0)
    two.send(hub, b"second")
    net.run_until(3.0)
    assert [(f.time, f.source, f.frame) for f in hub.sent_to_me()] == [
        (1.5, one.peer_id, b"first"),
        (2.5, two.peer_id, b"second"),
    ]
    assert [frame.frame for frame in hub.sent_to_me(two)] == [b"second"]
    hub.forget()
    assert hub.sent_to_me() == []


def test_a_stub_that_is_not_connected_cannot_send_and_one_that_closed_is_not_any_more() -> None:
    net, node, stub = scene()
    stranger = net.add_peer_stub("stranger")
    with pytest.raises(LocalError, match="stranger is not connected to n0"):
        stranger.send(node, b"x")
    stub.disconnect(node)
    net.run_for(0.1)
    with pytest.raises(LocalError, match="stub is not connected to n0"):
        stub.send(node, b"x")
    assert node.peers() == []


def test_a_stub_knows_only_the_kinds_there_are() -> None:
    _, _, stub = scene()
    with pytest.raises(LocalError, match="'publish'"):
        stub.heard("publish")


def test_a_stub_has_no_router() -> None:
    _, node, stub = scene()
    assert node.router.statistics().peers == (stub.peer_id,)
    with pytest.raises(LocalError, match="stub runs a PeerStub"):
        _ = stub.router


def test_stubs_share_an_address_when_told_to() -> None:
    net = SimNetwork(seed=1)
    listener = net.add_peer_stub("listener")
    for name in ("one", "two"):
        net.add_peer_stub(name, address="/ip4/192.0.2.1/tcp/1").connect(listener)
    net.run_for(1.0)
    assert [event.addresses for event in listener.connections.values()] == [
        ("/ip4/192.0.2.1/tcp/1",)
    ] * 2


def test_stubs_take_no_part_in_what_is_done_to_all_nodes() -> None:
    net, node, stub = scene()
    net.add_nodes(1)
    net.subscribe_all("everywhere")
    net.run_for(0.1)
    assert [heard.entry.topic for heard in stub.heard("subscriptions")] == ["t", "everywhere"]
    assert stub not in net.nodes
    assert [each.name for each in net.nodes] == [node.name, "n1"]
