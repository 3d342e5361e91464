"""Subscriptions: what every peer is told of ours, and what is noted of theirs."""

from bruit.node.gossip.actions import Grafted, SendControl
from bruit.node.gossip.events import PeerConnected, PeerDisconnected, Protocol, Unsubscribe
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, grafts, id_of, of, subscriptions, told
from tests.gossip.neighbourhood import TOPIC, names

TWO = ("topic1", "topic2")


def peers(handheld: Handheld, count: int, *topics: str) -> list[PeerId]:
    return [handheld.connect(name, *topics) for name in names("peer ", count)]


def said(actions: list[SendControl], peer: PeerId) -> list[tuple[str, bool]]:
    """What the actions tell one peer of subscriptions, in order."""
    return [(each.topic, each.subscribe) for each in told([*actions], peer).subscriptions]


def grafted(actions: list[SendControl], peer: PeerId) -> bool:
    return bool(told([*actions], peer).control.graft)


# Ours


def test_a_subscription_is_told_to_every_peer_and_begins_a_mesh() -> None:
    handheld = Handheld()
    everybody = peers(handheld, 20)
    assert TOPIC not in handheld.router.statistics().mesh
    actions = of(handheld.subscribe(TOPIC), SendControl)
    assert [said(actions, peer) for peer in everybody] == [[(TOPIC, True)]] * 20
    assert handheld.router.statistics().mesh == {TOPIC: ()}


def test_leaving_topics_is_told_to_every_peer_and_leaves_no_mesh_behind() -> None:
    handheld = Handheld()
    for topic in TWO:
        handheld.subscribe(topic)
    everybody = peers(handheld, 20, *TWO)
    assert set(handheld.router.statistics().mesh) == set(TWO)
    told_so = 0
    for topic in TWO:
        actions = of(handheld.handle(Unsubscribe(topic)), SendControl)
        assert [said(actions, peer) for peer in everybody] == [[(topic, False)]] * 20
        told_so += sum(bool(Rpc.FromString(action.frame).subscriptions) for action in actions)
    assert told_so == 40
    assert handheld.router.statistics().mesh == {}


def test_who_joins_grafts_six_and_takes_three_of_a_fanout_among_them() -> None:
    handheld = Handheld(RouterConfig(params=GossipParams(flood_publish=False)))
    everybody = peers(handheld, 20, "topic1")
    actions = of(handheld.subscribe("topic1"), SendControl)
    assert len(handheld.mesh("topic1")) == 6
    assert [peer for peer in everybody if grafted(actions, peer)] == sorted(
        handheld.mesh("topic1"), key=everybody.index
    )
    new = [handheld.connect(name, "topic2") for name in names("new ", 3)]
    handheld.publish("topic2", b"data")
    assert set(handheld.router.statistics().fanout["topic2"]) == set(new)
    for peer in everybody:
        handheld.receive(peer, subscriptions("topic2"))
    actions = of(handheld.subscribe("topic2"), SendControl)
    assert len(handheld.mesh("topic2")) == 6
    assert set(handheld.mesh("topic2")) > set(new)
    assert sum(grafted(actions, peer) for peer in [*everybody, *new]) == 6
    assert handheld.router.statistics().fanout == {}


def test_a_peer_that_connects_is_told_every_subscription_in_one_frame() -> None:
    handheld = Handheld()
    topics = ["alpha", "beta", "gamma"]
    for topic in topics:
        handheld.subscribe(topic)
    for name in names("peer ", 20):
        greeting = handheld.handle(PeerConnected(id_of(name), Protocol.GOSSIPSUB_12, False))
        [hello] = of(greeting, SendControl)
        assert hello.peer == id_of(name)
        rpc = Rpc.FromString(hello.frame)
        assert [(each.topic, each.subscribe) for each in rpc.subscriptions] == [
            (topic, True) for topic in topics
        ]
        assert not rpc.HasField("control")


def test_a_router_without_subscriptions_greets_nobody() -> None:
    greeting = Handheld().handle(PeerConnected(id_of("peer"), Protocol.GOSSIPSUB_12, False))
    assert of(greeting, SendControl) == []


def test_topics_and_mesh_peers_can_be_read() -> None:
    handheld = Handheld()
    handheld.subscribe("topic1")
    everybody = peers(handheld, 4, "topic1")
    statistics = handheld.router.statistics()
    assert list(statistics.mesh) == ["topic1"]
    assert set(statistics.mesh["topic1"]) == set(everybody)
    assert set(statistics.peers) == set(everybody)


# Theirs


def test_what_peers_subscribe_to_and_leave_is_noted_by_peer_and_by_topic() -> None:
    handheld = Handheld()
    first, second, *_ = peers(handheld, 20)
    rpc = subscriptions("topic1", "topic2", "topic3")
    rpc.MergeFrom(subscriptions("topic4", wanted=False))  # never subscribed to
    for peer in (first, second, id_of("a stranger")):
        handheld.receive(peer, rpc)
    noted = handheld.router.statistics().subscribers
    assert noted == dict.fromkeys(("topic1", "topic2", "topic3"), (first, second))
    assert id_of("a stranger") not in handheld.router.statistics().peers
    handheld.receive(first, subscriptions("topic1", wanted=False))
    noted = handheld.router.statistics().subscribers
    assert noted["topic1"] == (second,)
    assert noted["topic2"] == noted["topic3"] == (first, second)


# GRAFT, as far as it concerns subscriptions


def test_a_graft_for_our_topic_is_taken() -> None:
    handheld = Handheld()
    handheld.subscribe("topic1")
    everybody = peers(handheld, 20, "topic1")
    assert everybody[7] not in handheld.mesh("topic1")
    assert of(handheld.receive(everybody[7], grafts("topic1")), Grafted)
    assert everybody[7] in handheld.mesh("topic1")


def test_a_graft_for_a_topic_that_we_are_not_in_is_not_taken_for_another() -> None:
    handheld = Handheld()
    handheld.subscribe("topic1")
    everybody = peers(handheld, 20, "topic1")
    assert handheld.receive(everybody[7], grafts("unsubscribed topic")) == []
    assert everybody[7] not in handheld.mesh("topic1")
    assert list(handheld.router.statistics().mesh) == ["topic1"]


def test_of_the_grafts_in_one_frame_those_for_our_topics_are_taken() -> None:
    """Theirs are topics 1 to 3, ours 1, 2 and 4."""
    handheld = Handheld()
    for topic in ("topic1", "topic2", "topic3", "topic4"):
        handheld.subscribe(topic)
    everybody = peers(handheld, 20, "topic1", "topic2", "topic3", "topic4")
    handheld.handle(Unsubscribe("topic3"))
    handheld.receive(everybody[7], grafts("topic1", "topic2", "topic3"))
    assert everybody[7] in handheld.mesh("topic1")
    assert everybody[7] in handheld.mesh("topic2")
    assert everybody[7] not in handheld.mesh("topic4")
    assert "topic3" not in handheld.router.statistics().mesh


def test_who_grafts_without_subscribing_leaves_nothing_behind_when_it_goes() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer")
    handheld.receive(peer, grafts(TOPIC))
    assert handheld.mesh(TOPIC) == (peer,)
    handheld.handle(PeerDisconnected(peer))
    assert handheld.mesh(TOPIC) == ()
    handheld.handle(Unsubscribe(TOPIC))
    statistics = handheld.router.statistics()
    assert (statistics.mesh, statistics.subscribers, statistics.peers) == ({}, {}, ())
