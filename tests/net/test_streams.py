"""From libp2p's notifications to events and links, against a host that is made up."""

from typing import cast

import pytest
import trio
from libp2p.abc import INetConn, INetwork
from libp2p.network.stream.exceptions import StreamReset
from libp2p.rcmgr import Direction
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.events import (
    PROTOCOLS,
    Event,
    FramesDropped,
    FramesReceived,
    PeerConnected,
    PeerDisconnected,
    PeerRenewed,
    Protocol,
)
from bruit.node.net.judging import Judging
from bruit.node.net.streams import (
    HELLO_TIMEOUT,
    OPEN_ATTEMPTS,
    OPEN_PAUSE,
    REOPEN_TIMEOUT,
    STEADY,
    Streams,
)
from bruit.node.net.verifiers import Verifiers
from bruit.topics.keys import PeerId
from tests.net.made_up_host import Host, Inbound, Outbound
from tests.net.recorder import on_the_wire, varint

PEER: PeerId = b"\x00\x01p"
OTHER: PeerId = b"\x00\x01q"
MAX_FRAME = 1000
MAX_PEERS = 2
NETWORK = cast(INetwork, None)  # what a notifee is told and never looks at


class Bench:
    """Streams over a made-up host, and the events that come out."""

    def __init__(self) -> None:
        self.host = Host()
        self.events: list[Event] = []
        self.refused: dict[PeerId, str] = {}  # whom not to admit, and why
        self.streams = Streams(
            self.host.host,
            Judging(self.events.append, {}, Verifiers()),
            self.events.append,
            MAX_FRAME,
            MAX_PEERS,
            lambda peer, addresses: self.refused.get(peer, ""),
        )

    async def connect(
        self, peer: PeerId = PEER, direction: Direction = Direction.INBOUND
    ) -> INetConn:
        conn = self.host.connection(peer, direction)
        await self.streams.connected(NETWORK, conn)
        await wait_all_tasks_blocked()
        return conn

    async def disconnect(self, conn: INetConn) -> None:
        self.host.connections[conn.muxed_conn.peer_id.to_bytes()].remove(conn)
        await self.streams.disconnected(NETWORK, conn)

    def say(self, frame: bytes) -> None:
        """Send the peer a control frame, as the driver does."""
        link = self.streams.links[PEER]
        assert link.send_control(frame)
        link.go()

    def open(self, nursery: trio.Nursery, peer: PeerId = PEER, connection: int = 0) -> Inbound:
        """The peer opens a stream on its connection of that number."""
        stream = Inbound(peer, connection)
        nursery.start_soon(self.host.handlers[Protocol.GOSSIPSUB_12.value], stream.net)
        return stream

    @property
    def frames(self) -> list[bytes]:
        received = [event for event in self.events if isinstance(event, FramesReceived)]
        return [frame for event in received for frame in event.frames]

    @property
    def comings_and_goings(self) -> list[str]:
        return [
            type(event).__name__
            for event in self.events
            if isinstance(event, PeerConnected | PeerRenewed | PeerDisconnected)
        ]


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    await nursery.start(bench.streams.run)
    return bench


UP, AGAIN, DOWN = "PeerConnected", "PeerRenewed", "PeerDisconnected"


# Opening


@pytest.mark.parametrize("direction", [Direction.INBOUND, Direction.OUTBOUND])
@pytest.mark.parametrize("protocol", Protocol)
async def test_a_connected_peer_is_what_our_stream_to_it_was_negotiated_to(
    bench: Bench, direction: Direction, protocol: Protocol
) -> None:
    bench.host.outbound = [Outbound(protocol)]
    await bench.connect(PEER, direction)
    outbound = direction is Direction.OUTBOUND
    assert bench.events == [PeerConnected(PEER, protocol, outbound, ("/ip4/192.0.2.1/tcp/4001",))]


async def test_a_peer_that_is_hung_up_on_when_it_comes_has_come_and_gone(
    bench: Bench, nursery: trio.Nursery
) -> None:
    """As one is whose score was below the disconnect threshold when it left."""

    def feed(event: Event) -> None:
        bench.events.append(event)
        if isinstance(event, PeerConnected):
            streams.disconnect(event.peer)

    judging = Judging(feed, {}, Verifiers())
    streams = Streams(bench.host.host, judging, feed, MAX_FRAME, MAX_PEERS, lambda *_: "")
    bench.streams, bench.host.outbound = streams, [Outbound(), Outbound()]
    await nursery.start(streams.run)
    for _ in range(2):
        await bench.disconnect(await bench.connect())
    assert bench.comings_and_goings == [UP, DOWN, UP, DOWN]
    assert streams.links == {}


async def test_every_protocol_of_a_peer_is_served(bench: Bench) -> None:
    assert list(bench.host.handlers) == [protocol.value for protocol in PROTOCOLS]
    assert bench.host.notifees == [bench.streams]


async def test_what_is_queued_is_written_to_our_stream(bench: Bench) -> None:
    stream = Outbound()
    bench.host.outbound = [stream]
    await bench.connect()
    bench.say(b"hello")
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([b"hello"])


async def test_a_peer_that_speaks_none_of_the_protocols_is_given_up_after_some_attempts(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.host.outbound = [StreamReset() for _ in range(10)]
    await bench.connect()
    await trio.sleep(1000)
    assert bench.host.opened == OPEN_ATTEMPTS
    assert bench.streams.faults == {"stream not opened": OPEN_ATTEMPTS}
    assert (bench.events, bench.streams.links) == ([], {})


async def test_a_stream_that_breaks_is_opened_again_after_a_pause(
    autojump_clock: MockClock, bench: Bench
) -> None:
    first, second = Outbound(), Outbound()
    bench.host.outbound = [first, second]
    await bench.connect()
    first.break_off()
    bench.say(b"lost")
    await wait_all_tasks_blocked()
    assert bench.host.opened == 1
    await trio.sleep(OPEN_PAUSE)
    await wait_all_tasks_blocked()
    assert bench.comings_and_goings == [UP, AGAIN]
    bench.say(b"anew")
    await wait_all_tasks_blocked()
    assert second.wire == on_the_wire([b"anew"])


async def test_the_router_is_told_what_a_broken_stream_may_have_lost(
    autojump_clock: MockClock, bench: Bench
) -> None:
    first, second = Outbound(), Outbound()
    bench.host.outbound = [first, second]
    await bench.connect()
    first.hold()
    link = bench.streams.links[PEER]
    link.send_message(b"1", b"in the write", Lane.FORWARD)
    link.send_control(b"control in the write")
    link.go()
    await wait_all_tasks_blocked()
    link.send_message(b"2", b"queued", Lane.OWN)
    link.send_control(b"control queued")
    first.break_off()
    await trio.sleep(2 * OPEN_PAUSE)
    assert bench.events[1:] == [
        FramesDropped(PEER, 4, (b"control in the write", b"control queued")),
        PeerRenewed(PEER, ("/ip4/192.0.2.1/tcp/4001",)),
    ]
    assert (link.queue.empty, second.writes) == (True, [])


async def test_a_peer_that_breaks_every_stream_is_hung_up_on(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.host.outbound = []
    for _ in range(10):
        stream = Outbound()
        stream.break_off()
        bench.host.outbound.append(stream)
    await bench.connect()
    for _ in range(10):
        if PEER in bench.streams.links:
            bench.say(b"hello")
        await trio.sleep(10)
    assert bench.host.opened == OPEN_ATTEMPTS
    assert bench.host.hung_up == [PEER]
    assert bench.comings_and_goings == [UP, *[AGAIN] * (OPEN_ATTEMPTS - 1), DOWN]
    assert bench.streams.links == {}


async def test_streams_that_last_are_replaced_for_ever(
    autojump_clock: MockClock, bench: Bench
) -> None:
    streams = [Outbound() for _ in range(10)]
    bench.host.outbound = [*streams]
    await bench.connect()
    for stream in streams[:-1]:
        await trio.sleep(STEADY + 1)
        stream.break_off()
        bench.say(b"hello")
        await trio.sleep(2 * OPEN_PAUSE)
    assert bench.comings_and_goings == [UP, *[AGAIN] * 9]
    assert bench.host.hung_up == []


# Reading


async def test_frames_arrive_in_order_without_their_prefixes(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    stream = bench.open(nursery)
    frames = [b"one", b"", bytes(MAX_FRAME)]
    for byte in on_the_wire(frames):
        await stream.say.send(bytes([byte]))
    await wait_all_tasks_blocked()
    assert bench.frames == frames
    traffic = bench.streams.links[PEER].traffic
    assert (traffic.frames_in, traffic.bytes_in) == (3, len(on_the_wire(frames)))


async def test_a_peer_is_not_read_before_the_router_knows_it(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.negotiating = trio.Event()
    bench.host.outbound = [Outbound()]
    await bench.connect()
    stream = bench.open(nursery)
    await stream.say.send(on_the_wire([b"early"]))
    await wait_all_tasks_blocked()
    assert bench.events == []
    bench.host.negotiating.set()
    await wait_all_tasks_blocked()
    assert [type(event) for event in bench.events] == [PeerConnected, FramesReceived]


async def test_a_peer_whose_stream_comes_before_its_notification_is_linked_by_it(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    conn = bench.host.connection(PEER, Direction.INBOUND)
    stream = bench.open(nursery)
    await stream.say.send(on_the_wire([b"early"]))
    await wait_all_tasks_blocked()
    await bench.streams.connected(NETWORK, conn)
    await wait_all_tasks_blocked()
    assert bench.frames == [b"early"]
    assert bench.host.opened == 1


@pytest.mark.parametrize(
    "bytes_sent", [varint(MAX_FRAME + 1), b"\xff" * 5], ids=["too long", "endless"]
)
async def test_a_length_that_breaks_the_rules_ends_the_stream_and_not_the_peer(
    bench: Bench, nursery: trio.Nursery, bytes_sent: bytes
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    stream = bench.open(nursery)
    await stream.say.send(on_the_wire([b"good"]))
    await wait_all_tasks_blocked()
    await stream.say.send(bytes_sent)
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert bench.streams.faults == {"malformed frame length": 1}
    assert (bench.frames, bench.comings_and_goings) == ([b"good"], [UP])


async def test_of_several_streams_on_a_connection_only_the_newest_is_read(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    streams = []
    for _ in range(5):
        streams.append(bench.open(nursery))
        await streams[-1].say.send(varint(MAX_FRAME) + b"half a frame")
        await wait_all_tasks_blocked()
    assert [stream.was_reset for stream in streams] == [True] * 4 + [False]
    assert bench.streams.faults["second stream"] == 4
    await streams[-1].say.send(bytes(MAX_FRAME - len(b"half a frame")))
    await wait_all_tasks_blocked()
    assert bench.frames == [b"half a frame" + bytes(MAX_FRAME - len(b"half a frame"))]


async def test_a_peer_with_two_connections_is_read_on_both(
    bench: Bench, nursery: trio.Nursery
) -> None:
    """rust-libp2p writes on all connections of a peer, out of one queue."""
    bench.host.outbound = [Outbound()]
    await bench.connect()
    one, two = (bench.open(nursery, connection=number) for number in range(2))
    for number in range(3):
        await one.say.send(on_the_wire([b"one %d" % number]))
        await two.say.send(on_the_wire([b"two %d" % number]))
        await wait_all_tasks_blocked()
    assert len(bench.frames) == 6
    assert not one.was_reset
    assert bench.comings_and_goings == [UP]
    one.say.close()
    await two.say.send(on_the_wire([b"last"]))
    await wait_all_tasks_blocked()
    assert bench.frames[-1] == b"last"


async def test_while_one_of_two_streams_is_read_the_end_of_the_other_is_no_reason_to_hang_up(
    autojump_clock: MockClock, bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    one, two = (bench.open(nursery, connection=number) for number in range(2))
    await wait_all_tasks_blocked()
    one.say.close()
    await trio.sleep(10 * REOPEN_TIMEOUT)
    assert bench.host.hung_up == []
    two.say.close()
    await trio.sleep(REOPEN_TIMEOUT + 1)
    assert bench.host.hung_up == [PEER]


async def test_a_peer_that_ends_its_half_of_our_stream_gets_another_and_is_told_everything_again(
    autojump_clock: MockClock, bench: Bench
) -> None:
    """rust-libp2p ends it where it refuses a frame, and drops what comes after silently."""
    first, second = Outbound(), Outbound()
    bench.host.outbound = [first, second]
    await bench.connect()
    first.answered.set()
    await trio.sleep(OPEN_PAUSE + 1)
    assert first.was_reset
    assert bench.comings_and_goings == [UP, AGAIN]
    bench.say(b"hello")
    await wait_all_tasks_blocked()
    assert (first.wire, second.wire) == (b"", on_the_wire([b"hello"]))


async def test_a_stream_that_we_have_ended_is_not_replaced(
    autojump_clock: MockClock, bench: Bench
) -> None:
    stream = Outbound()
    bench.host.outbound = [stream]
    await bench.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.streams.links[PEER].finish)
        await wait_all_tasks_blocked()
        stream.answered.set()
    await trio.sleep(100)
    assert bench.host.opened == 1
    assert bench.host.hung_up == []


async def test_a_peer_that_leaves_our_stream_unnegotiated_is_not_listened_to_for_ever(
    autojump_clock: MockClock, bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.negotiating = trio.Event()
    await bench.connect()
    stream = bench.open(nursery)
    await trio.sleep(HELLO_TIMEOUT + 1)
    assert stream.was_reset
    assert bench.streams.faults["peer with no stream for us"] == 1
    assert bench.events == []


async def test_a_peer_that_ends_its_stream_and_opens_no_other_is_hung_up_on(
    autojump_clock: MockClock, bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    stream = bench.open(nursery)
    await trio.sleep(1000)
    assert bench.host.hung_up == []
    stream.say.close()
    await trio.sleep(REOPEN_TIMEOUT + 1)
    assert bench.host.hung_up == [PEER]


async def test_a_peer_may_end_its_stream_and_open_another(
    autojump_clock: MockClock, bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    for frame in (b"first", b"second"):
        stream = bench.open(nursery)
        await stream.say.send(on_the_wire([frame]))
        await wait_all_tasks_blocked()
        stream.say.close()
        await trio.sleep(REOPEN_TIMEOUT / 2)
    bench.open(nursery)
    await trio.sleep(2 * REOPEN_TIMEOUT)
    assert bench.frames == [b"first", b"second"]
    assert bench.comings_and_goings == [UP, AGAIN, AGAIN]
    assert "second stream" not in bench.streams.faults
    assert bench.host.hung_up == []


async def test_the_end_of_a_peers_stream_is_answered_when_all_of_it_was_read(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    stream = bench.open(nursery)
    await stream.say.send(on_the_wire([b"last"]))
    await wait_all_tasks_blocked()
    was_closed = stream.was_closed
    stream.say.close()
    await wait_all_tasks_blocked()
    assert (was_closed, stream.was_closed) == (False, True)
    assert (bench.frames, bench.streams.faults) == ([b"last"], {})


# Going


async def test_a_disconnected_peer_is_forgotten_and_its_traffic_is_kept(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound()]
    conn = await bench.connect()
    stream = bench.open(nursery)
    await stream.say.send(on_the_wire([b"frame"]))
    await wait_all_tasks_blocked()
    await bench.disconnect(conn)
    await wait_all_tasks_blocked()
    assert bench.comings_and_goings == [UP, DOWN]
    assert bench.streams.links == {}
    assert bench.streams.past_traffic.bytes_in == 6


async def test_a_stream_on_a_lost_connection_is_opened_again_on_the_one_that_remains(
    autojump_clock: MockClock, bench: Bench
) -> None:
    first, second = Outbound(), Outbound()
    bench.host.outbound = [first, second]
    conn = await bench.connect()
    await bench.connect()
    assert bench.host.opened == 1
    first.break_off()
    await bench.disconnect(conn)
    await trio.sleep(2 * OPEN_PAUSE)
    assert bench.comings_and_goings == [UP, AGAIN]
    bench.say(b"anew")
    await wait_all_tasks_blocked()
    assert second.wire == on_the_wire([b"anew"])


async def test_a_working_stream_stays_when_another_connection_of_the_peer_is_lost(
    bench: Bench,
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect()
    await bench.disconnect(await bench.connect())
    await wait_all_tasks_blocked()
    assert (bench.host.opened, bench.comings_and_goings) == (1, [UP])


async def test_a_peer_that_comes_back_while_it_is_let_go_gets_a_new_link(bench: Bench) -> None:
    bench.host.outbound = [Outbound(), Outbound()]
    await bench.disconnect(await bench.connect())  # what follows from it has not run yet
    await bench.connect()
    assert bench.comings_and_goings == [UP, DOWN, UP]
    assert not bench.streams.links[PEER].closed


async def test_no_more_peers_are_taken_than_there_is_room_for(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.host.outbound = [Outbound(), Outbound()]
    for name in (b"a", b"b", b"c"):
        await bench.connect(b"\x00\x01" + name)
    assert list(bench.streams.links) == [b"\x00\x01a", b"\x00\x01b"]
    assert bench.host.hung_up == [b"\x00\x01c"]
    assert bench.streams.faults == {"too many peers": 1, "hung up": 1}
    stream = bench.open(nursery, b"\x00\x01c")
    await wait_all_tasks_blocked()
    assert stream.was_reset


async def test_who_is_not_admitted_is_hung_up_on_and_not_listened_to(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.refused[PEER] = "banned"
    await bench.connect(PEER)
    stream = bench.open(nursery, PEER)
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert bench.streams.links == {}
    assert bench.events == []
    assert bench.host.opened == 0
    assert set(bench.host.hung_up) == {PEER}


async def test_whom_the_router_wants_gone_is_gone_for_it_at_once_and_hung_up_on(
    bench: Bench,
) -> None:
    bench.host.outbound = [Outbound()]
    await bench.connect(PEER)
    bench.streams.disconnect(PEER)
    assert bench.comings_and_goings == [UP, DOWN]
    await wait_all_tasks_blocked()
    assert bench.host.hung_up == [PEER]
    bench.streams.disconnect(OTHER)  # nobody
    await wait_all_tasks_blocked()
    assert bench.host.hung_up == [PEER]


async def test_the_end_of_the_driver_lets_every_peer_go() -> None:
    bench = Bench()
    bench.host.outbound = [Outbound(), Outbound()]
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.streams.run)
        await bench.connect(PEER)
        await bench.connect(OTHER)
        nursery.cancel_scope.cancel()
    assert sorted(bench.comings_and_goings) == [UP, UP, DOWN, DOWN]
    assert bench.streams.links == {}
