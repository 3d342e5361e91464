"""Links: every expected time is worked out by hand from latency, rate and frame sizes."""

import pytest

from bruit.node.gossip.actions import CancelQueued, Lane, SendControl, SendMessage
from bruit.node.gossip.events import FramesDropped
from bruit.node.gossip.sendqueue import DEFAULT_LIMITS
from bruit.node.sim import LinkModel, PeerStub, SimNetwork
from bruit.topics.errors import LocalError
from tests.sim.flooding import Flood


def pair(link: LinkModel, seed: int = 1) -> tuple[SimNetwork, PeerStub, PeerStub]:
    """Two stubs, connected, at 1 s."""
    net = SimNetwork(seed=seed, link=link)
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    alice.connect(bob)
    net.run_until(1.0)
    return net, alice, bob


def times(stub: PeerStub) -> list[float]:
    return [frame.time for frame in stub.sent_to_me()]


def message(node: PeerStub, to: PeerStub, name: bytes, size: int) -> SendMessage:
    return SendMessage((to.peer_id,), name, name * size, Lane.FORWARD)


def test_a_frame_arrives_after_the_latency_of_its_direction() -> None:
    net = SimNetwork(seed=1)
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    net.set_link(alice, bob, LinkModel(latency=0.25), back=LinkModel(latency=0.5))
    alice.connect(bob)
    net.run_until(1.0)
    alice.send(bob, b"there")
    bob.send(alice, b"back")
    net.run_until(2.0)
    assert times(bob) == [1.25]
    assert times(alice) == [1.5]


def test_a_dial_takes_one_round_trip() -> None:
    net = SimNetwork(seed=1)
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    net.set_link(alice, bob, LinkModel(latency=0.25), back=LinkModel(latency=0.5))
    alice.connect(bob)
    net.run_until(0.74)
    assert not net.connected(alice, bob)
    net.run_until(0.75)
    assert net.connected(alice, bob)
    assert net.connected(bob, alice)


def test_frames_on_a_link_with_a_rate_are_written_one_after_the_other() -> None:
    # 500 bytes at 1,000 bytes/s take 0.5 s each, then 0.25 s of latency.
    net, alice, bob = pair(LinkModel(latency=0.25, rate=1000.0))
    for _ in range(3):
        alice.send(bob, bytes(500))
    net.run_for(10.0)
    assert times(bob) == [1.75, 2.25, 2.75]


def test_a_link_with_a_rate_that_fell_idle_starts_afresh() -> None:
    net, alice, bob = pair(LinkModel(latency=0.25, rate=1000.0))
    alice.send(bob, bytes(500))
    net.run_until(3.0)
    alice.send(bob, bytes(250))
    net.run_until(4.0)
    assert times(bob) == [1.75, 3.5]


def test_both_directions_have_the_rate_to_themselves() -> None:
    net, alice, bob = pair(LinkModel(latency=0.0, rate=1000.0))
    alice.send(bob, bytes(500))
    bob.send(alice, bytes(500))
    net.run_for(1.0)
    assert times(alice) == times(bob) == [1.5]


def test_control_frames_overtake_messages_that_are_not_yet_being_written() -> None:
    net, alice, bob = pair(LinkModel(latency=0.0, rate=1000.0))
    messages = [message(alice, bob, name, 500) for name in (b"a", b"b")]
    net.perform(alice, [*messages, SendControl(bob.peer_id, bytes(100))])
    net.run_for(10.0)
    assert [(f.time, len(f.frame)) for f in bob.sent_to_me()] == [
        (1.5, 500),
        (1.6, 100),
        (2.1, 500),
    ]


def test_own_messages_overtake_those_that_are_forwarded() -> None:
    net, alice, bob = pair(LinkModel(latency=0.0, rate=1000.0))
    forwarded = [message(alice, bob, name, 500) for name in (b"a", b"b")]
    own = SendMessage((bob.peer_id,), b"c", b"c" * 500, Lane.OWN)
    net.perform(alice, [*forwarded, own])
    net.run_for(10.0)
    assert [frame.frame[:1] for frame in bob.sent_to_me()] == [b"a", b"c", b"b"]


def test_a_cancelled_message_that_waits_is_never_written() -> None:
    net, alice, bob = pair(LinkModel(latency=0.0, rate=1000.0))
    net.perform(alice, [message(alice, bob, name, 500) for name in (b"a", b"b", b"c")])
    net.run_until(1.25)  # a is being written
    net.perform(alice, [CancelQueued(bob.peer_id, (b"a", b"b"))])
    net.run_for(10.0)
    assert [(f.time, f.frame[:1]) for f in bob.sent_to_me()] == [(1.5, b"a"), (2.0, b"c")]
    statistics = net.statistics()
    assert (statistics.frames, statistics.frame_bytes) == (2, 1000)
    assert statistics.cancelled == 1


def test_a_full_lane_refuses_the_frame_and_the_machine_is_told() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=0.0, rate=1e6))
    (node,) = net.add_nodes(1, machine=Flood)
    bob = net.add_peer_stub("bob")
    net.connect(node, bob)
    net.run_until(1.0)
    size = DEFAULT_LIMITS[Lane.CONTROL] // 2 + 1  # two of them exceed the lane
    frames = [bytes((number,)) * size for number in range(3)]
    net.perform(node, [SendControl(bob.peer_id, frame) for frame in frames])
    assert isinstance(node.machine, Flood)
    assert node.machine.events[-1] == (1.0, FramesDropped(bob.peer_id, 1, (frames[2],)))
    net.run_for(10.0)
    assert [frame.frame for frame in bob.sent_to_me()] == frames[:2]
    assert net.statistics().dropped == 1


def test_a_full_message_lane_leaves_the_control_lane_open() -> None:
    net, alice, bob = pair(LinkModel(latency=0.0, rate=1e6))
    size = DEFAULT_LIMITS[Lane.FORWARD] // 2 + 1
    net.perform(alice, [message(alice, bob, name, size) for name in (b"x", b"y", b"z")])
    alice.send(bob, b"control")
    net.run_for(100.0)
    assert [frame.frame[:1] for frame in bob.sent_to_me()] == [b"x", b"c", b"y"]
    assert net.statistics().dropped == 1


def test_jitter_delays_within_its_bound_and_keeps_the_order() -> None:
    net, alice, bob = pair(LinkModel(latency=0.5, jitter=0.2))
    for number in range(200):
        alice.send(bob, b"%03d" % number)
        net.run_for(0.01)
    net.run_for(1.0)
    frames = bob.sent_to_me()
    assert [frame.frame for frame in frames] == [b"%03d" % number for number in range(200)]
    delays = [frame.time - (1.0 + 0.01 * number) for number, frame in enumerate(frames)]
    assert min(delays) >= 0.5 - 1e-9
    assert max(delays) <= 0.7 + 1e-9
    assert max(delays) - min(delays) > 0.1


def test_the_end_of_a_connection_overtakes_no_frame() -> None:
    net, alice, bob = pair(LinkModel(latency=0.1, jitter=5.0))
    for _ in range(20):
        alice.send(bob, b"frame")
    alice.disconnect(bob)
    net.run_for(20.0)
    assert len(bob.sent_to_me()) == 20
    assert bob.connections == {}


def test_loss_takes_its_share_of_the_frames_and_nobody_is_told() -> None:
    net, alice, bob = pair(LinkModel(loss=0.2))
    for _ in range(2000):
        alice.send(bob, b"frame")
    net.run_for(1.0)
    arrived = len(bob.sent_to_me())
    assert 1510 <= arrived <= 1690  # binomial: 1,600 ± 5 standard deviations of 17.9
    assert net.statistics().lost == 2000 - arrived


def test_a_link_that_loses_everything_delivers_nothing() -> None:
    net, alice, bob = pair(LinkModel(loss=1.0))
    alice.send(bob, b"frame")
    net.run_for(1.0)
    assert bob.sent_to_me() == []


def test_the_dice_of_one_link_do_not_depend_on_the_traffic_of_another() -> None:
    arrivals = []
    for busy in (False, True):
        net = SimNetwork(seed=3, link=LinkModel(loss=0.5))
        alice, bob, carol = (net.add_peer_stub(name) for name in ("alice", "bob", "carol"))
        alice.connect(bob)
        alice.connect(carol)
        net.run_for(1.0)
        for number in range(50):
            alice.send(bob, b"%d" % number)
            if busy:
                alice.send(carol, b"noise")
        net.run_for(1.0)
        arrivals.append([frame.frame for frame in bob.sent_to_me()])
    assert arrivals[0] == arrivals[1]


def test_two_links_do_not_roll_the_same_dice() -> None:
    net = SimNetwork(seed=3, link=LinkModel(loss=0.5))
    alice, bob, carol = (net.add_peer_stub(name) for name in ("alice", "bob", "carol"))
    alice.connect(bob)
    alice.connect(carol)
    net.run_for(1.0)
    for number in range(50):
        for other in (bob, carol):
            alice.send(other, b"%d" % number)
    net.run_for(1.0)
    assert {f.frame for f in bob.sent_to_me()} != {f.frame for f in carol.sent_to_me()}


def test_a_link_can_change_under_a_connection() -> None:
    net, alice, bob = pair(LinkModel(latency=0.25))
    net.set_link(alice, bob, LinkModel(latency=0.5, rate=1000.0))
    alice.send(bob, bytes(1000))
    alice.send(bob, bytes(1000))
    net.run_until(1.5)
    net.set_link(alice, bob, LinkModel(latency=0.5))  # the frame that waits goes out at once
    net.run_until(5.0)
    alice.send(bob, b"")
    net.run_until(6.0)
    assert times(bob) == [2.5, 2.5, 5.5]


@pytest.mark.parametrize(
    "field", [{"latency": -1.0}, {"jitter": float("inf")}, {"rate": 0.0}, {"loss": 1.5}]
)
def test_a_link_with_an_impossible_value_is_refused(field: dict[str, float]) -> None:
    with pytest.raises(LocalError, match=next(iter(field))):
        LinkModel(**field)
