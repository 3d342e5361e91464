"""Fanout: publishing to topics that one is not subscribed to, without flooding."""

import pytest

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import MAX_FANOUT_TOPICS, GossipParams, RouterConfig
from bruit.node.sim import PeerStub, SimNetwork, SimNode, invariants, topologies
from bruit.scoring.thresholds import Thresholds
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.neighbourhood import (
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
    publish_from_anyone,
)

PAUSE = 0.2  # seconds
EAGER = RouterConfig(params=GossipParams(flood_publish=False))


def author_and_subscribers() -> tuple[SimNetwork, SimNode, list[SimNode]]:
    """A dense network of 20 in which all but one are subscribed."""
    net = network()
    author, *others = net.add_nodes(20, config=EAGER)
    for node in others:
        net.subscribe(node, TOPIC)
    net.connect_all(topologies.sparse_random(20, 10, net.rng))
    net.run_for(2.0)
    return net, author, others


def publisher(
    count: int, scores: FixedScores | None = None, thresholds: Thresholds | None = None
) -> tuple[SimNetwork, SimNode, list[PeerStub]]:
    """A node that is not subscribed among ``count`` that are, at 0.125 s."""
    net = network()
    table = scores or FixedScores()
    [node] = net.add_nodes(
        1, config=beating(flood_publish=False), scores=lambda: table, thresholds=thresholds
    )
    return net, node, introduce(net, node, names("stub", count))


def test_an_author_who_is_not_subscribed_reaches_everybody_then_joins_them() -> None:
    """go: TestGossipsubFanout"""
    net, author, others = author_and_subscribers()
    said = publish_from_anyone(net, [author], 100, PAUSE)
    assert [payloads(node) for node in others] == [said] * 19
    assert payloads(author) == []
    net.subscribe(author, TOPIC)
    net.run_for(1.0)
    said += publish_from_anyone(net, [author], 100, PAUSE)
    assert [payloads(node) for node in others] == [said] * 19
    assert payloads(author) == said[100:]
    assert invariants.violations(net) == []


def test_a_fanout_forgets_who_left_and_finds_who_came() -> None:
    """go: TestGossipsubFanoutMaintenance"""
    net, author, others = author_and_subscribers()
    said = publish_from_anyone(net, [author], 100, PAUSE)
    for node in others:
        net.unsubscribe(node, TOPIC)
    net.run_for(2.0)
    assert fanout(author) == set()
    for node in others:
        net.subscribe(node, TOPIC)
    net.run_for(2.0)
    assert len(fanout(author)) == 6
    # The backoff after leaving keeps the others' meshes apart for 10 s and until
    # the table is swept, every 15 heartbeats: gossip bridges that time.
    said += publish_from_anyone(net, [author], 100, PAUSE)
    net.run_for(2.0)
    assert [sorted(payloads(node)) for node in others] == [sorted(said)] * 19
    assert invariants.violations(net) == []


def test_a_fanout_expires_when_nothing_is_published_for_its_time_to_live() -> None:
    """go: TestGossipsubFanoutExpiry"""
    net = network()
    config = RouterConfig(params=GossipParams(flood_publish=False, fanout_ttl=1.0))
    author, *others = net.add_nodes(10, config=config)
    for node in others:
        net.subscribe(node, TOPIC)
    net.connect_all(topologies.full(10))
    net.run_for(2.0)
    said = publish_from_anyone(net, [author], 5, PAUSE)
    assert [payloads(node) for node in others] == [said] * 9
    assert len(fanout(author)) == 6
    net.run_for(2.0)
    assert author.router.statistics().fanout == {}


def test_a_fanout_lives_for_sixty_seconds_after_the_last_publication() -> None:
    net, node, _ = publisher(6)
    net.run_until(5.0)
    net.publish(node, TOPIC, b"first")
    net.run_until(40.0)
    net.publish(node, TOPIC, b"last")
    net.run_until(100.5)
    assert len(fanout(node)) == 6
    net.run_until(101.5)
    assert node.router.statistics().fanout == {}


def test_a_fanout_is_d_random_subscribers_that_all_get_the_message() -> None:
    net, node, stubs = publisher(30)
    outcome = net.publish(node, TOPIC, b"x")
    net.run_for(STEP)
    assert len(outcome.peers) == 6
    assert set(outcome.peers) == fanout(node)
    assert {stub.peer_id for stub in stubs if stub.messages()} == fanout(node)
    assert fanout(node) != ids(stubs[:6])


def test_a_fanout_stays_the_same_from_message_to_message() -> None:
    net, node, _ = publisher(30)
    outcomes = []
    for number in range(10):
        outcomes.append(set(net.publish(node, TOPIC, b"%d" % number).peers))
        net.run_for(1.0)
    assert outcomes == [fanout(node)] * 10


def test_a_subscriber_that_leaves_is_replaced_at_the_next_heartbeat() -> None:
    net, node, stubs = publisher(30)
    net.publish(node, TOPIC, b"x")
    before = fanout(node)
    leaver = next(stub for stub in stubs if stub.peer_id in before)
    leaver.unsubscribe(node, TOPIC)
    net.run_until(0.9)
    assert fanout(node) == before - {leaver.peer_id}
    net.run_until(1.1)
    assert fanout(node) > before - {leaver.peer_id}
    assert len(fanout(node)) == 6


def test_a_peer_that_disconnects_is_replaced_at_the_next_heartbeat() -> None:
    net, node, stubs = publisher(30)
    net.publish(node, TOPIC, b"x")
    before = fanout(node)
    leaver = next(stub for stub in stubs if stub.peer_id in before)
    leaver.disconnect(node)
    net.run_until(1.1)
    assert fanout(node) > before - {leaver.peer_id}
    assert len(fanout(node)) == 6


@pytest.mark.parametrize(("score", "chosen"), [(-50.0, True), (-50.5, False)])
def test_only_peers_from_the_publish_threshold_on_are_in_a_fanout(
    score: float, chosen: bool
) -> None:
    scores = FixedScores()
    net, node, [stub] = publisher(1, scores, Thresholds(gossip=-10.0, publish=-50.0))
    scores.table[stub.peer_id] = score
    outcome = net.publish(node, TOPIC, b"x")
    assert (outcome.peers == (stub.peer_id,)) is chosen
    assert (outcome.problem == "") is chosen


def test_a_peer_that_falls_below_the_publish_threshold_leaves_the_fanout() -> None:
    scores = FixedScores()
    net, node, stubs = publisher(30, scores, Thresholds(gossip=-10.0, publish=-50.0))
    net.publish(node, TOPIC, b"x")
    before = fanout(node)
    fallen = next(stub for stub in stubs if stub.peer_id in before)
    scores.table[fallen.peer_id] = -51.0
    net.run_until(1.1)
    assert fallen.peer_id not in fanout(node)
    assert len(fanout(node)) == 6


def test_with_nobody_to_publish_to_there_is_no_fanout_but_there_will_be() -> None:
    net, node, _ = publisher(0)
    assert net.publish(node, TOPIC, b"early").problem
    assert node.router.statistics().fanout == {}
    introduce(net, node, ["stub"])
    assert net.publish(node, TOPIC, b"late").problem == ""
    assert len(fanout(node)) == 1


def test_with_flooding_there_is_no_fanout_to_keep() -> None:
    net = network()
    [node] = net.add_nodes(1, config=beating())
    stubs = introduce(net, node, names("stub", 30))
    assert set(net.publish(node, TOPIC, b"x").peers) == ids(stubs)
    assert node.router.statistics().fanout == {}


def test_floodsub_peers_get_messages_without_being_in_the_fanout() -> None:
    net, node, stubs = publisher(3)
    flooders = introduce(net, node, names("flooder", 2), protocol=Protocol.FLOODSUB)
    outcome = net.publish(node, TOPIC, b"x")
    assert fanout(node) == ids(stubs)
    assert set(outcome.peers) == ids([*stubs, *flooders])
    assert len(outcome.peers) == 5


def test_who_subscribes_takes_its_fanout_into_the_mesh_and_no_more_than_d() -> None:
    net, node, stubs = publisher(30)
    net.publish(node, TOPIC, b"x")
    before = fanout(node)
    net.subscribe(node, TOPIC)
    assert mesh(node) == before
    assert node.router.statistics().fanout == {}
    net.run_for(STEP)
    assert {stub.peer_id for stub in stubs if stub.heard("graft")} == before


def test_a_fanout_smaller_than_d_is_filled_up_to_d_on_subscribing() -> None:
    net, node, stubs = publisher(2)
    net.publish(node, TOPIC, b"x")
    more = introduce(net, node, names("more", 30))
    net.subscribe(node, TOPIC)
    assert mesh(node) > ids(stubs)
    assert len(mesh(node) & ids(more)) == 4


def test_a_fanout_peer_with_a_negative_score_is_not_taken_into_the_mesh() -> None:
    scores = FixedScores()
    net, node, stubs = publisher(3, scores, Thresholds(gossip=-10.0, publish=-50.0))
    scores.table[stubs[0].peer_id] = -1.0  # good enough to publish to
    net.publish(node, TOPIC, b"x")
    assert fanout(node) == ids(stubs)
    net.subscribe(node, TOPIC)
    assert mesh(node) == ids(stubs[1:])


def test_messages_to_a_fanout_are_advertised_to_other_subscribers() -> None:
    net, node, stubs = publisher(30)
    message_id = net.publish(node, TOPIC, b"x").message_id
    net.run_until(1.5)
    told = [stub for stub in stubs if stub.heard("ihave")]
    assert len(told) == 6  # d_lazy; a quarter of the 24 others would be no more
    assert not ids(told) & fanout(node)
    for stub in told:
        [heard] = stub.heard("ihave")
        assert list(heard.entry.message_ids) == [message_id]


def test_the_number_of_fanout_topics_is_bounded_and_the_quietest_goes() -> None:
    net, node, _ = publisher(0)
    topics = [f"topic {number}" for number in range(MAX_FANOUT_TOPICS)]
    [stub] = introduce(net, node, ["stub"], topics=topics[:-1])
    [other] = introduce(net, node, ["other"], topics=[topics[-1], "one more"])
    for topic in topics:
        net.publish(node, topic, b"x")
        net.run_for(0.001)
    net.publish(node, topics[0], b"so that the second is the quietest")
    assert set(node.router.statistics().fanout) == set(topics)
    net.publish(node, "one more", b"x")
    assert set(node.router.statistics().fanout) == {*topics, "one more"} - {topics[1]}
    assert fanout(node, topics[0]) == ids([stub])
    assert fanout(node, "one more") == ids([other])
