"""Whole networks of routers: what gossip repairs, and what an overlay becomes.

The seed comes from the environment as ``SEED``, so that a scenario can be tried
with another; failures of the network name it.
"""

import os
from random import Random

import pytest

from bruit.node.gossip.actions import Published
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import LinkModel, SimNetwork, SimNode, invariants, topologies

SEED = int(os.environ.get("SEED", "7"))


def missing(nodes: list[SimNode], sent: list[Published], topic: str) -> list[tuple[str, int]]:
    """Who lacks which messages, by number."""
    found = []
    for node in nodes:
        have = {delivery.message_id for delivery in node.deliveries(topic)}
        found += [(node.name, n) for n, each in enumerate(sent) if each.message_id not in have]
    return found


def test_three_hundred_messages_reach_everybody_exactly_once() -> None:
    net = SimNetwork(seed=SEED, link=LinkModel(jitter=0.02))
    nodes = net.add_nodes(40)
    net.connect_all(topologies.sparse_random(40, 10, net.rng))
    net.subscribe_all("t")
    net.run_for(2.0)
    sent = []
    for number in range(300):
        sent.append(net.publish(nodes[number % 40], "t", b"%d" % number))
        net.run_for(0.001)
    net.run_for(3.0)
    expected = sorted(each.message_id for each in sent)
    for node in nodes:
        assert sorted(delivery.message_id for delivery in node.deliveries("t")) == expected
    assert invariants.violations(net) == []


@pytest.mark.parametrize("gossip", [True, False])
def test_gossip_brings_what_the_mesh_lost(gossip: bool) -> None:
    """Bad links for half a second: whoever missed every copy asks for it, if it hears of it."""
    params = GossipParams() if gossip else GossipParams(d_lazy=0, gossip_factor=0.0)
    net = SimNetwork(seed=SEED)
    nodes = net.add_nodes(40, config=RouterConfig(params=params))
    pairs = topologies.sparse_random(40, 10, net.rng)
    net.connect_all(pairs)
    net.subscribe_all("t")
    net.run_for(3.0)
    for one, other in pairs:
        net.set_link(nodes[one], nodes[other], LinkModel(loss=0.5))
    sent = []
    for number in range(20):
        sent.append(net.publish(nodes[number], "t", b"%d" % number))
        net.run_for(0.02)
    net.run_for(0.1)
    assert len(missing(nodes, sent, "t")) > 5
    for one, other in pairs:
        net.set_link(nodes[one], nodes[other], LinkModel())
    net.run_for(4.0)  # the heartbeats that a message is advertised for, and two more
    assert (missing(nodes, sent, "t") == []) is gossip


def test_two_hundred_nodes_with_loss_and_leavers() -> None:
    """Everybody who stays gets everything that was published by those who stay."""
    net = SimNetwork(
        seed=SEED, link=LinkModel(latency=0.04, jitter=0.04, loss=0.01), detection_delay=5.0
    )
    nodes = net.add_nodes(200)
    net.connect_all(topologies.sparse_random(200, 10, net.rng))
    net.subscribe_all("blocks")
    net.run_for(3.0)
    assert invariants.violations(net) == []

    dice = Random(SEED)
    leavers = dice.sample(nodes, 60)
    stayers = [node for node in nodes if node not in leavers]
    sent = []
    for number in range(120):
        sent.append(net.publish(dice.choice(stayers), "blocks", b"block %d" % number))
        if number % 2:
            leaver = leavers[number // 2]
            net.publish(leaver, "blocks", b"last words")  # may get through or not
            (net.leave if number % 4 == 1 else net.crash)(leaver)
        net.run_for(0.1)
        if number % 20 == 0:
            assert invariants.violations(net) == []
    net.run_for(6.0)  # eight heartbeats: all gossip about the last message is over

    assert [node.up for node in leavers] == [False] * 60
    assert missing(stayers, sent, "blocks") == []
    assert invariants.violations(net) == []
    statistics = net.statistics()
    assert 0.008 < statistics.lost / statistics.frames < 0.012


def test_a_partitioned_network_is_one_again_after_healing() -> None:
    net = SimNetwork(seed=SEED, detection_delay=2.0)
    nodes = net.add_nodes(40)
    net.connect_all(topologies.sparse_random(40, 10, net.rng))
    net.subscribe_all("t")
    net.run_for(3.0)
    left, right = nodes[:15], nodes[15:]
    net.partition(left)
    net.run_for(5.0)
    apart = net.publish(left[0], "t", b"apart")
    net.run_for(3.0)
    assert missing(left, [apart], "t") == []
    assert len(missing(right, [apart], "t")) == len(right)
    net.heal()
    net.run_for(5.0)
    together = net.publish(left[0], "t", b"together")
    net.run_for(3.0)
    assert missing(nodes, [together], "t") == []
    assert invariants.violations(net) == []


def test_peer_exchange_turns_a_star_into_an_overlay() -> None:
    """Thirty spokes that only know the hub find each other through its PRUNEs."""
    params = GossipParams(peer_exchange=True)
    net = SimNetwork(seed=SEED)
    nodes = net.add_nodes(31, config=RouterConfig(params=params))
    net.connect_all(topologies.star(31))
    net.subscribe_all("t")
    net.run_for(30.0)
    connections = sorted(len(node.peers()) for node in nodes[1:])
    assert connections[0] >= 1
    assert connections[len(connections) // 2] >= 4
    assert net.statistics().refused_records == 0
    net.crash(nodes[0])
    net.run_for(30.0)
    outcome = net.publish(nodes[1], "t", b"without the hub")
    net.run_for(5.0)
    assert missing(nodes[1:], [outcome], "t") == []


@pytest.mark.parametrize("heard", [False, True])
def test_idontwant_saves_the_bandwidth_of_a_message_that_waits_on_a_slow_link(heard: bool) -> None:
    # 20,000 bytes at 10,000 bytes/s take two seconds, so the second message has
    # not begun when the peer says that it has it.
    net = SimNetwork(seed=SEED, link=LinkModel(latency=0.0))
    (node,) = net.add_nodes(1)
    slow = net.add_peer_stub("slow")
    net.set_link(node, slow, LinkModel(latency=0.0, rate=10_000.0), back=LinkModel(latency=0.0))
    slow.connect(node)
    net.subscribe(node, "t")
    net.run_until(1.0)
    slow.subscribe(node, "t")
    net.run_until(3.0)
    slow.forget()
    outcomes = [net.publish(node, "t", letter * 20_000) for letter in (b"a", b"b", b"c")]
    net.run_until(4.0)
    if heard:
        slow.idontwant(node, outcomes[1].message_id)
    net.run_until(20.0)
    frames = [frame for frame in slow.sent_to_me() if frame.rpc.publish]
    assert [message.data[:1] for message in slow.messages()] == (
        [b"a", b"c"] if heard else [b"a", b"b", b"c"]
    )
    written = sum(len(frame.frame) for frame in frames)
    assert frames[-1].time == pytest.approx(3.0 + written / 10_000, abs=0.1)  # 0.1: control frames
    assert net.statistics().cancelled == heard
