"""Uplinks and downlinks: every expected time is worked out by hand from rates and sizes.

Rates are 16,384 bytes/s, so that a piece takes a second; latencies are binary fractions.
"""

import pytest

from bruit.node.gossip.actions import CancelQueued, Lane, SendControl, SendMessage
from bruit.node.sim import LinkModel, PeerStub, SimNetwork
from bruit.node.sim.bandwidth import MIN_WINDOW, PIECE
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId

RATE = float(PIECE)  # bytes per second
START = 10.0  # seconds; everybody is connected


def stubs(
    link: LinkModel, **bandwidths: tuple[float | None, float | None]
) -> tuple[SimNetwork, list[PeerStub]]:
    """Stubs with an uplink and a downlink each, all connected to the first."""
    net = SimNetwork(seed=1, link=link)
    found = []
    for name, (up, down) in bandwidths.items():
        stub = net.add_peer_stub(name)
        net.set_bandwidth(stub, up=up, down=down)
        found.append(stub)
    for other in found[1:]:
        found[0].connect(other)
    net.run_until(START)
    return net, found


def times(stub: PeerStub) -> list[float]:
    return [frame.time - START for frame in stub.sent_to_me()]


def message(to: PeerStub, name: bytes, size: int) -> SendMessage:
    return SendMessage((to.peer_id,), name, name * size, Lane.FORWARD)


def test_an_uplink_is_shared_by_all_channels_of_a_node() -> None:
    # Two frames of a second each through one uplink: the later one is there after two.
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.25), alice=(RATE, None), bob=(None, None), carol=(None, None)
    )
    alice.send(bob, bytes(PIECE))
    alice.send(carol, bytes(PIECE))
    net.run_for(10.0)
    assert (times(bob), times(carol)) == ([1.25], [2.25])


def test_a_downlink_is_shared_by_all_channels_to_a_node() -> None:
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.25), alice=(None, RATE), bob=(None, None), carol=(None, None)
    )
    bob.send(alice, bytes(PIECE))
    carol.send(alice, bytes(PIECE))
    net.run_for(10.0)
    assert times(alice) == [1.25, 2.25]


def test_the_other_direction_is_not_slowed_down() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(RATE, None), bob=(None, None))
    alice.send(bob, bytes(4 * PIECE))
    bob.send(alice, bytes(4 * PIECE))
    net.run_for(10.0)
    assert (times(alice), times(bob)) == ([0.25], [4.25])


def test_what_is_read_as_fast_as_it_is_written_takes_its_time_once() -> None:
    # The first bit is there after the latency; the last a second later.
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(RATE, None), bob=(None, RATE))
    alice.send(bob, bytes(PIECE))
    net.run_for(10.0)
    assert times(bob) == [1.25]


@pytest.mark.parametrize("up", [RATE, 2 * RATE])
@pytest.mark.parametrize("down", [RATE, 2 * RATE])
def test_the_slower_end_decides(up: float, down: float) -> None:
    # Four pieces in a row, at the slower of the two rates. Where the reader is the slower one, it
    # begins with the first bit and is kept busy until the end.
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(up, None), bob=(None, down))
    alice.send(bob, bytes(4 * PIECE))
    net.run_for(10.0)
    assert times(bob) == [0.25 + 4 * RATE / min(up, down)]


def test_a_large_frame_lets_the_control_frames_of_other_channels_through() -> None:
    # Bob's frame has eight pieces. Carol's frame comes while the first one is written, waits for
    # its end, and takes half a second.
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.0), alice=(RATE, None), bob=(None, None), carol=(None, None)
    )
    alice.send(bob, bytes(8 * PIECE))
    net.run_for(0.5)
    alice.send(carol, bytes(PIECE // 2))
    net.run_for(20.0)
    assert (times(carol), times(bob)) == ([1.5], [8.5])


def test_two_channels_with_much_to_send_take_turns_by_pieces() -> None:
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.0), alice=(RATE, None), bob=(None, None), carol=(None, None)
    )
    alice.send(bob, bytes(3 * PIECE))
    alice.send(carol, bytes(3 * PIECE))
    net.run_for(20.0)
    assert (times(bob), times(carol)) == ([5.0], [6.0])


def test_a_single_channel_fills_a_link_however_long_it_is() -> None:
    # Ten seconds there, ten back: a window of its own keeps 22 pieces in flight.
    net, (alice, bob) = stubs(LinkModel(latency=10.0), alice=(RATE, None), bob=(None, RATE))
    net.run_until(START + 30.0)  # the dial took 20 s
    net.perform(alice, [message(bob, b"%c" % number, PIECE) for number in range(100)])
    net.run_for(200.0)
    assert times(bob) == [30.0 + 10.0 + number for number in range(1, 101)]


def test_what_exceeds_the_window_waits_and_can_still_be_cancelled() -> None:
    # The uplink is fast, the downlink takes 4 s for the window of 4 pieces; the window is open
    # again when a piece is read and its acknowledgement is back, after 1, 2 … seconds.
    net, (alice, bob) = stubs(LinkModel(latency=0.0), alice=(None, None), bob=(None, RATE))
    assert MIN_WINDOW == 4 * PIECE
    names = [b"%c" % letter for letter in range(ord("a"), ord("i"))]
    net.perform(alice, [message(bob, name, PIECE) for name in names])
    net.run_for(0.5)
    net.perform(alice, [CancelQueued(bob.peer_id, tuple(names))])
    net.run_for(20.0)
    assert [frame.frame[:1] for frame in bob.sent_to_me()] == [b"a", b"b", b"c", b"d"]
    assert times(bob) == [1.0, 2.0, 3.0, 4.0]
    assert net.statistics().cancelled == 4


def test_control_frames_overtake_messages_that_wait_for_the_window() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.0), alice=(None, None), bob=(None, RATE))
    net.perform(alice, [message(bob, b"%d" % number, PIECE) for number in range(6)])
    net.run_for(0.5)
    net.perform(alice, [SendControl(bob.peer_id, b"control" + bytes(PIECE - 7))])
    net.run_for(20.0)
    assert [frame.frame[:1] for frame in bob.sent_to_me()] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"c",
        b"4",
        b"5",
    ]
    assert times(bob) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_senders_to_one_downlink_share_its_window() -> None:
    def in_flight(busy: bool) -> int:
        net, (alice, bob, carol) = stubs(
            LinkModel(latency=4.0), alice=(None, RATE), bob=(None, None), carol=(None, None)
        )
        if busy:
            carol.send(alice, bytes(2 * PIECE))
        net.perform(bob, [message(alice, b"%c" % n, PIECE) for n in range(100)])
        net.run_for(1.0)
        before = net.statistics().cancelled
        net.perform(bob, [CancelQueued(alice.peer_id, tuple(b"%c" % n for n in range(100)))])
        return 100 - (net.statistics().cancelled - before)

    # 8 s of round trip at the whole rate and at half of it, and two pieces.
    assert (in_flight(busy=False), in_flight(busy=True)) == (10, 6)


def test_a_link_may_be_slower_than_both_ends() -> None:
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.0), alice=(4 * RATE, None), bob=(None, None), carol=(None, None)
    )
    net.set_link(alice, bob, LinkModel(latency=0.0, rate=RATE))
    alice.send(bob, bytes(2 * PIECE))
    alice.send(carol, bytes(2 * PIECE))
    net.run_for(10.0)
    # Bob's pieces take a second each on their way; between them the uplink is carol's, whose
    # second piece is through after 3 × 0.25 s.
    assert (times(bob), times(carol)) == ([2.0], [0.75])


def test_the_end_of_a_connection_comes_behind_what_was_sent() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(RATE, None), bob=(None, RATE / 2))
    alice.send(bob, bytes(2 * PIECE))
    alice.send(bob, b"")
    alice.disconnect(bob)
    net.run_until(START + 4.0)
    assert alice.peer_id in bob.connections
    net.run_for(10.0)
    assert times(bob) == [4.25, 4.25]
    assert bob.connections == {}


def test_who_crashes_writes_nothing_more() -> None:
    net, (alice, bob, carol) = stubs(
        LinkModel(latency=0.0), alice=(RATE, None), bob=(None, None), carol=(None, None)
    )
    alice.send(bob, bytes(PIECE))
    alice.send(carol, bytes(2 * PIECE))
    net.run_for(1.5)
    net.crash(alice)
    net.run_for(20.0)
    assert (times(bob), times(carol)) == ([1.0], [])


def test_lost_frames_take_bandwidth_all_the_same() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.0), alice=(RATE, None), bob=(None, None))
    net.set_link(alice, bob, LinkModel(latency=0.0, loss=1.0))
    alice.send(bob, bytes(PIECE))
    net.run_for(0.5)
    net.set_link(alice, bob, LinkModel(latency=0.0))
    alice.send(bob, bytes(PIECE))
    net.run_for(5.0)
    assert times(bob) == [2.0]
    assert net.statistics().lost == 1


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_bandwidth_is_refused(rate: float) -> None:
    net = SimNetwork(seed=1)
    with pytest.raises(LocalError, match="bandwidth"):
        net.set_bandwidth(net.add_peer_stub("alice"), up=rate)


# Frames outside of gossip


class Ear:
    """Writes down what it hears."""

    def __init__(self, net: SimNetwork, stub: PeerStub) -> None:
        self.heard: list[tuple[float, PeerId, str, bytes]] = []
        self.lost: list[tuple[float, PeerId, str]] = []
        self._net = net
        stub.direct = self

    def on_frame(self, peer: PeerId, protocol: str, frame: bytes) -> None:
        self.heard.append((self._net.now - START, peer, protocol, frame))

    def on_lost(self, peer: PeerId, protocol: str) -> None:
        self.lost.append((self._net.now - START, peer, protocol))


def test_a_direct_frame_reaches_the_handler_of_the_peer() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(None, None), bob=(None, None))
    ear = Ear(net, bob)
    assert net.send_direct(alice, bob.peer_id, "/submit", b"chunk")
    net.run_for(1.0)
    assert ear.heard == [(0.25, alice.peer_id, "/submit", b"chunk")]
    assert bob.sent_to_me() == []


def test_a_peer_that_is_not_connected_is_dialled_and_frames_wait_in_order() -> None:
    # A round trip for the dial, and the way there.
    net = SimNetwork(seed=1, link=LinkModel(latency=0.25))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    ear = Ear(net, bob)
    net.run_until(START)
    for frame in (b"1", b"2"):
        net.send_direct(alice, bob.peer_id, "/submit", frame)
    net.run_for(1.0)
    assert [(time, frame) for time, _, _, frame in ear.heard] == [(0.75, b"1"), (0.75, b"2")]


def test_who_cannot_be_dialled_is_reported_after_a_while() -> None:
    net = SimNetwork(seed=1, link=LinkModel(latency=0.25))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    ear = Ear(net, alice)
    net.crash(bob)
    net.run_until(START)
    net.send_direct(alice, bob.peer_id, "/submit", b"chunk")
    net.run_for(10.0)
    assert ear.lost == [(5.0, bob.peer_id, "/submit")]


def test_the_end_of_a_connection_is_reported_to_who_sent_direct_frames_over_it() -> None:
    net, (alice, bob) = stubs(LinkModel(latency=0.25), alice=(None, None), bob=(None, None))
    ears = [Ear(net, alice), Ear(net, bob)]
    net.send_direct(alice, bob.peer_id, "/submit", b"chunk")
    net.run_for(1.0)
    net.disconnect(bob, alice)
    net.run_for(1.0)
    assert [ear.lost for ear in ears] == [[(1.25, bob.peer_id, "/submit")], []]


@pytest.mark.parametrize("per_node", [True, False])
def test_direct_frames_and_gossip_take_turns_on_a_connection(per_node: bool) -> None:
    bandwidth = (RATE, None) if per_node else (None, None)
    net, (alice, bob) = stubs(LinkModel(latency=0.0), alice=bandwidth, bob=(None, None))
    if not per_node:
        net.set_link(alice, bob, LinkModel(latency=0.0, rate=RATE))
    ear = Ear(net, bob)
    net.perform(alice, [message(bob, b"%d" % number, PIECE) for number in range(3)])
    net.send_direct(alice, bob.peer_id, "/submit", bytes(PIECE))
    net.run_for(10.0)
    assert [time for time, *_ in ear.heard] == [2.0]
    assert times(bob) == [1.0, 3.0, 4.0]
