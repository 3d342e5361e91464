"""The network: time and order, connections, cuts and healing, leaving and crashing."""

import pytest

from bruit.node.gossip.actions import Action, CheckSignature, Connect, SetTimer
from bruit.node.gossip.events import (
    PROTOCOLS,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Protocol,
    RecordLearnt,
    SignaturesChecked,
    Start,
    Stop,
    Timer,
    TimerFired,
)
from bruit.node.sim import LinkModel, SimNetwork, SimNode, topologies
from bruit.topics.errors import LocalError
from bruit.topics.keys import is_peer_id, public_key_of
from tests.sim.flooding import GOODBYE, Flood

LATENCY = 0.125  # seconds; binary fractions keep sums exact


def flooding(count: int, detection_delay: float = 10.0) -> tuple[SimNetwork, list[SimNode]]:
    net = SimNetwork(seed=1, link=LinkModel(latency=LATENCY), detection_delay=detection_delay)
    return net, net.add_nodes(count, machine=Flood)


def events(node: SimNode, kind: type[Event]) -> list[tuple[float, Event]]:
    assert isinstance(node.machine, Flood)
    return [(time, event) for time, event in node.machine.events if isinstance(event, kind)]


def payloads(node: SimNode) -> list[bytes]:
    return [delivery.payload for delivery in node.deliveries("t")]


# Time


def test_a_message_takes_one_latency_per_hop() -> None:
    net, nodes = flooding(4)
    net.connect_all(topologies.line(4))
    net.run_until(1.0)
    net.publish(nodes[0], "t", b"x")
    net.run_until(2.0)
    assert [node.deliveries("t")[0].time for node in nodes] == [1.0, 1.125, 1.25, 1.375]
    assert [node.deliveries("t")[0].source for node in nodes] == [
        nodes[0].peer_id,
        nodes[0].peer_id,
        nodes[1].peer_id,
        nodes[2].peer_id,
    ]


def test_the_outcome_of_a_publication_is_returned_and_kept() -> None:
    net, nodes = flooding(2)
    net.connect_all([(0, 1)])
    net.run_until(1.0)
    outcome = net.publish(nodes[0], "t", b"x")
    assert outcome.peers == (nodes[1].peer_id,)
    assert outcome.message_id == nodes[0].deliveries("t")[0].message_id
    assert nodes[0].published == [outcome]


def test_timers_fire_at_their_time_and_ties_in_the_order_of_arming() -> None:
    net, (node,) = flooding(1)
    armed = [(3.0, "c"), (2.0, "b"), (3.0, "d"), (1.0, "a"), (0.0, "past")]
    net.run_until(0.5)
    net.perform(node, [SetTimer(Timer(name, 0), at) for at, name in armed])
    net.run_until(2.0)
    fired = [(0.5, "past"), (1.0, "a"), (2.0, "b")]
    assert events(node, TimerFired) == [(at, TimerFired(Timer(name, 0))) for at, name in fired]
    net.run_until(3.0)
    fired += [(3.0, "c"), (3.0, "d")]
    assert events(node, TimerFired) == [(at, TimerFired(Timer(name, 0))) for at, name in fired]


def test_time_stops_where_it_was_told_to_and_does_not_run_back() -> None:
    net, _ = flooding(1)
    net.run_for(1.5)
    net.run_for(0.25)
    assert net.now == 1.75
    with pytest.raises(LocalError, match=r"1\.75 s"):
        net.run_until(1.0)


def test_what_a_machine_raises_says_where_and_when_it_happened() -> None:
    class Faulty:
        def handle(self, event: Event, now: float) -> list[Action]:
            if isinstance(event, Stop):
                raise ZeroDivisionError
            return []

    net = SimNetwork(seed=42)
    (node,) = net.add_nodes(1, machine=lambda peer, rng: Faulty())
    net.run_for(2.0)
    with pytest.raises(ZeroDivisionError) as caught:
        net.leave(node)
    assert caught.value.__notes__ == ["n0 at 2.0 s, Stop, seed 42"]


def test_what_a_machine_raises_leaves_nothing_behind_for_the_next_one() -> None:
    class Faulty(Flood):
        def handle(self, event: Event, now: float) -> list[Action]:
            if isinstance(event, SignaturesChecked):
                raise ZeroDivisionError
            super().handle(event, now)
            return []

    net = SimNetwork(seed=1)
    faulty, sound = net.add_nodes(2, machine=Faulty)
    message = sound.author.write("t", b"x")
    with pytest.raises(ZeroDivisionError):
        net.perform(faulty, [CheckSignature(1, message), CheckSignature(2, message)])
    net.hand_in(sound, Stop())
    assert [event for _, event in sound.machine.events] == [Start(), Stop()]  # type: ignore[attr-defined]


# Identities


def test_identities_are_real_ones_that_the_seed_decides() -> None:
    ids = [[node.peer_id for node in SimNetwork(seed=seed).add_nodes(3)] for seed in (1, 1, 2)]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 6
    assert all(is_peer_id(peer) and public_key_of(peer) is not None for peer in ids[0])


def test_every_node_has_an_address_of_its_own() -> None:
    _, nodes = flooding(300)
    assert len({node.address for node in nodes}) == 300


def test_two_nodes_of_one_name_are_refused() -> None:
    net = SimNetwork(seed=1)
    net.add_peer_stub("alice")
    with pytest.raises(LocalError, match="'alice'"):
        net.add_peer_stub("alice")
    net.add_peer_stub("n0")
    with pytest.raises(LocalError, match="'n0'"):
        net.add_nodes(1)


# Connections


def test_both_ends_learn_of_a_connection_and_of_each_others_record() -> None:
    net, (one, other) = flooding(2)
    net.connect(one, other)
    net.run_for(1.0)
    protocol = Protocol.GOSSIPSUB_12
    assert events(one, PeerConnected) == [
        (0.25, PeerConnected(other.peer_id, protocol, True, (other.address,)))
    ]
    assert events(other, PeerConnected) == [
        (0.25, PeerConnected(one.peer_id, protocol, False, (one.address,)))
    ]
    assert events(one, RecordLearnt) == [(0.25, RecordLearnt(other.peer_id, other.record))]
    assert events(other, RecordLearnt) == [(0.25, RecordLearnt(one.peer_id, one.record))]


def test_a_pair_that_dials_each_other_twice_is_connected_once() -> None:
    net, (one, other) = flooding(2)
    net.connect(one, other)
    net.connect(other, one)
    net.run_for(1.0)
    net.connect(other, one)
    net.run_for(1.0)
    assert len(events(one, PeerConnected)) == len(events(other, PeerConnected)) == 1


@pytest.mark.parametrize("older", PROTOCOLS)
@pytest.mark.parametrize("newer", PROTOCOLS)
def test_two_peers_speak_the_older_of_their_protocols(newer: Protocol, older: Protocol) -> None:
    if PROTOCOLS.index(newer) > PROTOCOLS.index(older):
        newer, older = older, newer
    net = SimNetwork(seed=1)
    one = net.add_peer_stub("one", protocol=newer)
    other = net.add_peer_stub("other", protocol=older)
    one.connect(other)
    net.run_for(1.0)
    assert one.connections[other.peer_id].protocol is older
    assert other.connections[one.peer_id].protocol is older


def test_who_closes_knows_at_once_and_the_other_end_after_what_was_sent() -> None:
    net, (one, other) = flooding(2)
    net.connect(one, other)
    net.run_until(1.0)
    net.publish(one, "t", b"last words")
    net.disconnect(one, other)
    net.publish(other, "t", b"to nobody")
    net.run_until(2.0)
    assert events(one, PeerDisconnected) == [(1.0, PeerDisconnected(other.peer_id))]
    assert events(other, PeerDisconnected) == [(1.125, PeerDisconnected(one.peer_id))]
    assert payloads(other) == [b"to nobody", b"last words"]
    assert payloads(one) == [b"last words"]


def test_the_end_of_a_connection_waits_for_what_is_queued_before_it() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=0.0, rate=1000.0))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    alice.connect(bob)
    net.run_until(1.0)
    for _ in range(3):
        alice.send(bob, bytes(500))
    alice.disconnect(bob)
    net.run_until(2.25)
    assert alice.peer_id in bob.connections
    net.run_until(2.5)
    assert len(bob.sent_to_me()) == 3
    assert alice.peer_id not in bob.connections


def test_what_is_queued_for_a_peer_that_went_is_not_written_any_more() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=0.125, rate=1000.0))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    alice.connect(bob)
    net.run_until(1.0)
    for _ in range(10):
        alice.send(bob, bytes(500))
    bob.disconnect(alice)  # alice knows at 1.125, while she writes the first frame
    net.run_until(20.0)
    assert net.statistics().frames == 1


def test_a_peer_that_comes_back_before_its_end_was_noticed_is_disconnected_first() -> None:
    net, (one, other) = flooding(2)
    net.set_link(one, other, LinkModel(latency=1.0, rate=1.0), back=LinkModel(latency=0.0))
    net.connect(one, other)
    net.run_until(1.0)
    net.publish(one, "t", bytes(100))  # keeps the link busy for more than 100 s
    net.disconnect(one, other)
    net.connect(one, other)
    net.run_until(2.0)
    assert net.connected(one, other)
    both = [
        event
        for _, event in events(other, Event)  # type: ignore[arg-type]
        if isinstance(event, PeerConnected | PeerDisconnected)
    ]
    assert [type(event) for event in both] == [PeerConnected, PeerDisconnected, PeerConnected]
    net.run_until(500.0)
    assert net.connected(one, other)
    assert payloads(other) == []


def test_nobody_dials_itself_or_closes_what_is_not_open() -> None:
    net, (one, other) = flooding(2)
    with pytest.raises(LocalError, match="itself"):
        net.connect(one, one)
    with pytest.raises(LocalError, match="n0 is not connected to n1"):
        net.disconnect(one, other)


# Connect, the action


def test_a_machine_that_asks_for_a_peer_by_its_record_is_connected_to_it() -> None:
    net, (one, other) = flooding(2)
    net.perform(one, [Connect(other.peer_id, (), other.record)])
    net.run_for(1.0)
    assert net.connected(one, other)
    assert one.channels[other.peer_id].outbound


def test_a_direct_peer_needs_no_record() -> None:
    net, (one, other) = flooding(2)
    net.perform(one, [Connect(other.peer_id, ("/ip4/10.0.0.1/tcp/4001",))])
    net.run_for(1.0)
    assert net.connected(one, other)


def test_a_record_that_is_forged_or_of_another_peer_is_not_dialled() -> None:
    net, (one, two, three) = flooding(3)
    net.perform(one, [Connect(two.peer_id, (), b"forged"), Connect(two.peer_id, (), three.record)])
    net.run_for(1.0)
    assert one.peers() == []
    assert net.statistics().refused_records == 2


def test_a_peer_that_nobody_has_heard_of_is_not_dialled() -> None:
    net, (one,) = flooding(1)
    net.perform(one, [Connect(b"\x00\x01x", ("/ip4/10.9.9.9/tcp/4001",))])
    net.run_for(1.0)
    assert one.peers() == []


# Partitions


def test_a_partition_lets_nothing_through_and_both_ends_notice_after_the_delay() -> None:
    net, nodes = flooding(4, detection_delay=5.0)
    net.connect_all(topologies.line(4))
    net.run_until(1.0)
    net.partition(nodes[:2])
    net.publish(nodes[0], "t", b"left")
    net.publish(nodes[3], "t", b"right")
    net.run_until(5.875)
    assert [payloads(node) for node in nodes] == [[b"left"], [b"left"], [b"right"], [b"right"]]
    assert events(nodes[1], PeerDisconnected) == []
    net.run_until(6.0)
    assert events(nodes[1], PeerDisconnected) == [(6.0, PeerDisconnected(nodes[2].peer_id))]
    assert events(nodes[2], PeerDisconnected) == [(6.0, PeerDisconnected(nodes[1].peer_id))]
    assert events(nodes[0], PeerDisconnected) == events(nodes[3], PeerDisconnected) == []


def test_frames_under_way_when_the_partition_begins_vanish() -> None:
    net, nodes = flooding(2)
    net.connect_all([(0, 1)])
    net.run_until(1.0)
    net.publish(nodes[0], "t", b"x")
    net.run_for(LATENCY / 2)
    net.partition([nodes[0]])
    net.run_for(20.0)
    assert payloads(nodes[1]) == []


def test_nobody_dials_across_a_partition() -> None:
    net, nodes = flooding(3)
    net.partition([nodes[0]], [nodes[1]])
    net.connect_all(topologies.full(3))
    net.run_for(1.0)
    assert [node.peers() for node in nodes] == [[], [], []]


def test_a_dial_under_way_when_the_partition_begins_fails() -> None:
    net, nodes = flooding(2)
    net.connect(nodes[0], nodes[1])
    net.run_for(LATENCY)
    net.partition([nodes[0]])
    net.run_for(1.0)
    assert nodes[0].peers() == []


@pytest.mark.parametrize("noticed", [False, True])
def test_healing_restores_the_connections_that_were_cut(noticed: bool) -> None:
    net, nodes = flooding(4, detection_delay=5.0)
    net.connect_all(topologies.line(4))
    net.run_until(1.0)
    net.partition(nodes[:2])
    net.run_until(7.0 if noticed else 2.0)
    net.heal()
    net.run_until(8.0)
    net.publish(nodes[0], "t", b"x")
    net.run_until(20.0)
    assert [payloads(node) for node in nodes] == [[b"x"]] * 4
    for one, other in ((nodes[1], nodes[2]), (nodes[2], nodes[1])):
        (at, event), *more = events(one, PeerDisconnected)
        assert event == PeerDisconnected(other.peer_id)
        assert at == (6.0 if noticed else 2.25)
        assert more == []
    assert nodes[2].channels[nodes[1].peer_id].outbound  # who dialled first dialled again


# Leaving and crashing


def test_who_leaves_says_goodbye_and_is_gone_after_one_latency() -> None:
    net, (one, other) = flooding(2)
    net.connect(one, other)
    net.run_until(1.0)
    net.leave(other)
    net.run_until(2.0)
    assert not other.up
    assert events(other, Stop) == [(1.0, Stop())]
    assert events(one, FrameReceived) == [(1.125, FrameReceived(other.peer_id, GOODBYE))]
    assert events(one, PeerDisconnected) == [(1.125, PeerDisconnected(other.peer_id))]


def test_who_crashes_says_nothing_and_is_missed_after_the_detection_delay() -> None:
    net, (one, other) = flooding(2, detection_delay=5.0)
    net.connect(one, other)
    net.run_until(1.0)
    net.crash(other)
    net.publish(one, "t", b"into the void")
    net.run_until(10.0)
    assert events(other, Stop) == []
    assert payloads(other) == []
    assert events(one, FrameReceived) == []
    assert events(one, PeerDisconnected) == [(6.0, PeerDisconnected(other.peer_id))]


def test_what_was_sent_before_a_crash_still_arrives_but_not_what_was_queued() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=LATENCY, rate=1000.0))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    alice.connect(bob)
    net.run_until(1.0)
    alice.send(bob, b"1" * 500)
    alice.send(bob, b"2" * 500)
    net.run_until(1.25)
    net.crash(alice)
    net.run_until(30.0)
    assert [frame.frame[:1] for frame in bob.sent_to_me()] == [b"1"]


def test_a_node_that_is_gone_does_nothing_more() -> None:
    net, (one, other) = flooding(2)
    net.perform(one, [SetTimer(Timer("late", 0), 5.0)])
    net.crash(one)
    net.connect(other, one)
    net.run_until(10.0)
    assert events(one, TimerFired) == []
    assert other.peers() == []
    for forbidden in (net.leave, net.crash):
        with pytest.raises(LocalError, match="n0 has left or crashed"):
            forbidden(one)
    with pytest.raises(LocalError, match="n0 has left or crashed"):
        net.publish(one, "t", b"x")


def test_a_node_may_join_at_any_time() -> None:
    net, (old,) = flooding(1)
    net.run_until(3.0)
    (late,) = net.add_nodes(1, machine=Flood)
    net.connect(late, old)
    net.run_until(4.0)
    net.publish(old, "t", b"welcome")
    net.run_until(5.0)
    assert events(late, Start) == [(3.0, Start())]
    assert payloads(late) == [b"welcome"]
