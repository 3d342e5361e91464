"""A direct peer beside an ordinary one: what only one of them gets."""

from typing import Any

import pytest

from bruit.node.gossip.actions import Connect, Grafted
from bruit.node.gossip.events import AddDirectPeer, PeerDisconnected
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import topologies
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, grafts, id_of, of, prunes, sent, subscriptions, told
from tests.gossip.neighbourhood import STEP, TOPIC, mesh, network, payloads


def pair(**params: Any) -> tuple[Handheld, PeerId, PeerId]:
    """A router with two peers, the first of them direct, that are in no topic yet."""
    handheld = Handheld(RouterConfig(params=GossipParams(**params)))
    direct, other = handheld.connect("direct"), handheld.connect("other")
    handheld.handle(AddDirectPeer(direct, ()))
    return handheld, direct, other


def asked_in(handheld: Handheld) -> set[PeerId]:
    """Whom the router has grafted so far, of its own accord."""
    return {report.peer for report in of(handheld.actions, Grafted) if not report.by_peer}


def test_a_direct_peer_that_we_do_not_know_is_dialled_once() -> None:
    handheld = Handheld()
    actions = handheld.handle(AddDirectPeer(id_of("friend"), ()))
    assert [dial.peer for dial in of(actions, Connect)] == [id_of("friend")]


def test_a_lost_direct_peer_is_dialled_at_every_second_heartbeat_if_told_so() -> None:
    handheld, direct, _ = pair(direct_connect_ticks=2)
    handheld.handle(PeerDisconnected(direct))
    assert of(handheld.beat(), Connect) == []
    assert [dial.peer for dial in of(handheld.beat(), Connect)] == [direct]


def test_of_two_peers_that_subscribe_the_direct_one_is_not_grafted() -> None:
    handheld, direct, other = pair()
    handheld.subscribe(TOPIC)
    for peer in (direct, other):
        handheld.receive(peer, subscriptions(TOPIC))
    assert handheld.mesh(TOPIC) == (other,)
    assert asked_in(handheld) == {other}


def test_of_two_subscribers_the_direct_one_is_not_grafted_when_we_subscribe() -> None:
    handheld, direct, other = pair()
    for peer in (direct, other):
        handheld.receive(peer, subscriptions(TOPIC))
    actions = handheld.subscribe(TOPIC)
    assert handheld.mesh(TOPIC) == (other,)
    assert told(actions, other).control.graft
    assert not told(actions, direct).control.graft


@pytest.mark.parametrize("flood_publish", [True, False])
def test_a_direct_peer_that_was_published_to_is_not_taken_into_the_mesh(
    flood_publish: bool,
) -> None:
    handheld, direct, other = pair(flood_publish=flood_publish)
    for peer in (direct, other):
        handheld.receive(peer, subscriptions(TOPIC))
    assert set(handheld.publish(TOPIC, b"data")[0].peers) == {direct, other}
    handheld.subscribe(TOPIC)
    assert handheld.mesh(TOPIC) == (other,)
    assert asked_in(handheld) == {other}


def test_a_lonely_direct_peer_is_not_grafted_at_a_heartbeat() -> None:
    handheld, direct, other = pair()
    handheld.handle(PeerDisconnected(other))
    handheld.subscribe(TOPIC)
    handheld.receive(direct, subscriptions(TOPIC))
    handheld.beat(3)
    assert handheld.mesh(TOPIC) == ()
    assert asked_in(handheld) == set()


def test_the_grafts_of_a_direct_peer_are_refused_in_every_topic_and_cost_it_nothing() -> None:
    handheld, direct, _ = pair()
    topics = ("topic1", "topic2")
    for topic in topics:
        handheld.subscribe(topic)
    actions = handheld.receive(direct, grafts(*topics))
    assert [entry.topic for entry in told(actions, direct).control.prune] == [*topics]
    assert [handheld.mesh(topic) for topic in topics] == [(), ()]
    assert handheld.scores.misbehaviours == []


def test_a_message_from_elsewhere_is_forwarded_once_to_a_direct_peer() -> None:
    handheld, direct, _ = pair()
    for topic in ("topic1", "topic2"):
        handheld.subscribe(topic)
        handheld.receive(direct, subscriptions(topic))
    message = handheld.write("author", "topic1", bytes([12]))
    actions = handheld.receive_message(handheld.connect("elsewhere"), message)
    assert len(sent(actions, direct)) == 1
    assert direct not in handheld.mesh("topic1")


def test_a_direct_peer_hears_no_gossip_in_three_heartbeats() -> None:
    handheld, direct, outsider = pair()
    handheld.subscribe(TOPIC)
    for peer in (direct, outsider):
        handheld.receive(peer, subscriptions(TOPIC))
    handheld.receive(outsider, prunes(TOPIC))
    message = handheld.write("author", TOPIC, b"")
    handheld.receive_message(handheld.connect("elsewhere"), message)
    for _ in range(3):
        actions = handheld.beat()
        assert told(actions, outsider).control.ihave
        assert not told(actions, direct).control.ihave


def test_a_message_passes_along_a_line_of_direct_peers_without_any_mesh() -> None:
    net = network()
    nodes = net.add_nodes(3)
    net.connect_all(topologies.line(3))
    for one, other in ((0, 1), (1, 2)):
        net.hand_in(nodes[one], AddDirectPeer(nodes[other].peer_id, ()))
        net.hand_in(nodes[other], AddDirectPeer(nodes[one].peer_id, ()))
    net.run_for(STEP)
    net.subscribe_all(TOPIC)
    net.run_for(STEP)
    assert net.publish(nodes[0], TOPIC, b"hello").peers == (nodes[1].peer_id,)
    net.run_for(STEP)
    assert payloads(nodes[2]) == [b"hello"]
    assert [mesh(node) for node in nodes] == [set()] * 3
