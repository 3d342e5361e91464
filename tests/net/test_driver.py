"""What the driver does for each action, with a real router and a host that is made up."""

import random

import pytest
import trio
from libp2p.abc import INetwork
from libp2p.peer.envelope import seal_record
from libp2p.peer.id import ID
from libp2p.peer.peer_record import PeerRecord
from libp2p.rcmgr import Direction
from multiaddr import Multiaddr
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver, Dropped, Lane, Report
from bruit.node.gossip.events import AddDirectPeer, Subscribe
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.gossip.router import Router
from bruit.node.gossip.rpc_pb2 import Control, Graft, IDontWant, Rpc, Subscription
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.gossip.wire import message_frame
from bruit.node.identity import new_key
from bruit.node.net.dialer import Dialer
from bruit.node.net.driver import PATIENCE, Driver, Outcome
from bruit.node.net.host import libp2p_keys
from bruit.node.net.link import Link
from bruit.node.net.verifiers import Verifiers
from bruit.topics.keys import PeerId
from bruit.topics.message import Author, Message, SignaturePolicy
from tests.net.made_up_host import Host, Inbound, Outbound
from tests.net.recorder import on_the_wire, varint

TOPIC = "topic"
ONE: PeerId = b"\x00\x01a"
TWO: PeerId = b"\x00\x01b"


class Bench:
    """A driver that is subscribed to TOPIC, what it tells, and peers that a test speaks for."""

    def __init__(self, nursery: trio.Nursery, params: GossipParams) -> None:
        self.host = Host()
        self.reports: list[Report] = []
        self.deliveries: list[Deliver] = []
        self.author = Author(new_key(), SignaturePolicy.STRICT_SIGN, 1)
        config = RouterConfig(params=params)
        rng = random.Random(1)
        self.driver = Driver(
            self.host.host,
            Router(config, self.author.peer_id, rng),
            {},
            Dialer(self.host.host, rng, lambda peer, reason: None),
            config.max_frame(),
            10,
            self.deliveries.append,
            self.reports.append,
            Verifiers(),
        )
        self._nursery = nursery

    async def start(self) -> None:
        await self._nursery.start(self.driver.run)
        self.driver.feed(Subscribe(TOPIC))

    async def connect(self, peer: PeerId) -> tuple[Link, Outbound, Inbound]:
        """A subscribed peer: its link, our stream to it, and its stream to us."""
        outbound, inbound = Outbound(), Inbound(peer)
        self.host.outbound.append(outbound)
        conn = self.host.connection(peer, Direction.INBOUND)
        await self.driver.streams.connected(NETWORK, conn)
        await wait_all_tasks_blocked()
        handler = self.host.handlers[outbound.get_protocol()]
        self._nursery.start_soon(handler, inbound.net)
        await say(inbound, Rpc(subscriptions=[Subscription(subscribe=True, topic=TOPIC)]))
        return self.driver.streams.links[peer], outbound, inbound

    def message(self, size: int = 100) -> Message:
        return self.author.write(TOPIC, bytes(size))


NETWORK: INetwork = None  # type: ignore[assignment]  # what a notifee is told and never looks at


async def say(stream: Inbound, rpc: Rpc) -> None:
    await stream.say.send(on_the_wire([rpc.SerializeToString()]))
    await wait_all_tasks_blocked()


def heard(stream: Outbound) -> list[Rpc]:
    """What was written to a stream, frame by frame."""
    wire, frames = stream.wire, []
    while wire:
        length = next(n for n in range(len(wire)) if wire.startswith(varint(n)))
        start = len(varint(length))
        frames.append(Rpc.FromString(wire[start : start + length]))
        wire = wire[start + length :]
    return frames


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench(nursery, GossipParams())
    await bench.start()
    return bench


# Messages


async def test_an_own_message_goes_to_every_subscriber_and_to_the_application(
    bench: Bench,
) -> None:
    streams = [(await bench.connect(peer))[1] for peer in (ONE, TWO)]
    message = bench.message()
    [outcome] = await bench.driver.publish([(message, b"before the codec")])
    await wait_all_tasks_blocked()
    message_id = message.author + message.seqno
    assert outcome == Outcome(message_id, (ONE, TWO), ())
    for stream in streams:
        assert [*heard(stream)[-1].publish] == [message.raw]
    [delivery] = bench.deliveries
    assert (delivery.payload, delivery.message_id) == (b"before the codec", message_id)


async def test_a_message_of_a_peer_is_verified_delivered_and_passed_on(bench: Bench) -> None:
    _, to_one, from_one = await bench.connect(ONE)
    _, to_two, _ = await bench.connect(TWO)
    message = Author(new_key(), SignaturePolicy.STRICT_SIGN, 1).write(TOPIC, b"news")
    await say(from_one, Rpc(publish=[message.raw]))
    assert [delivery.payload for delivery in bench.deliveries] == [b"news"]
    assert [*heard(to_two)[-1].publish] == [message.raw]
    assert not any(rpc.publish for rpc in heard(to_one))


async def test_what_a_peer_does_not_want_is_taken_out_of_its_queue(bench: Bench) -> None:
    _, to_one, from_one = await bench.connect(ONE)
    to_one.hold()
    first, second, third = (bench.message() for _ in range(3))
    for message in (first, second, third):
        await bench.driver.publish([(message, b"")])
        await wait_all_tasks_blocked()  # the first is in the writer's hands
    unwanted = [message.author + message.seqno for message in (first, second)]
    await say(from_one, Rpc(control=Control(idontwant=[IDontWant(message_ids=unwanted)])))
    to_one.let_go()
    await wait_all_tasks_blocked()
    sent = [raw for rpc in heard(to_one) for raw in rpc.publish]
    assert sent == [first.raw, third.raw]


# Queues that are full


def one_message(bench: Bench) -> int:
    """Bytes of one message's frame."""
    return len(message_frame(bench.message().raw))


async def test_publishers_share_the_room_and_nothing_is_lost_while_peers_read(
    autojump_clock: MockClock, bench: Bench
) -> None:
    size, outcomes = one_message(bench), list[Outcome]()
    for peer, pace in ((ONE, 0.001), (TWO, 0.003)):
        link, stream, _ = await bench.connect(peer)
        link.queue = SendQueue(dict.fromkeys(Lane, size))  # room for one at a time
        stream.take_time(pace)

    async def publish() -> None:
        for _ in range(5):
            outcomes.extend(await bench.driver.publish([(bench.message(), b"")]))

    async with trio.open_nursery() as publishers:
        for _ in range(4):
            publishers.start_soon(publish)
    assert [(outcome.peers, outcome.dropped) for outcome in outcomes] == [((ONE, TWO), ())] * 20


async def test_a_peer_that_does_not_read_is_left_out_after_one_wait(
    autojump_clock: MockClock, bench: Bench
) -> None:
    size = one_message(bench)
    slow, stalled, _ = await bench.connect(ONE)
    stalled.hold()
    slow.queue = SendQueue(dict.fromkeys(Lane, size))
    await bench.connect(TWO)
    outcomes, times = [], []
    for _ in range(5):
        outcomes += await bench.driver.publish([(bench.message(), b"")])
        await wait_all_tasks_blocked()
        times.append(trio.current_time())
    # One is in the writer's hands, one in the queue; the third waits in vain.
    assert times == [0, 0, PATIENCE, PATIENCE, PATIENCE]
    assert [(outcome.peers, outcome.dropped) for outcome in outcomes] == (
        [((ONE, TWO), ())] * 2 + [((TWO,), (ONE,))] * 3
    )
    assert bench.reports[-3:] == [Dropped(ONE, "", drops.SLOW_PEER)] * 3


async def test_where_every_queue_is_full_the_publisher_is_told_to_slow_down(
    autojump_clock: MockClock, bench: Bench
) -> None:
    link, stalled, _ = await bench.connect(ONE)
    stalled.hold()
    link.queue = SendQueue(dict.fromkeys(Lane, one_message(bench)))
    outcomes = []
    for _ in range(3):
        outcomes += await bench.driver.publish([(bench.message(), b"")])
        await wait_all_tasks_blocked()
    assert [outcome.problem for outcome in outcomes[:2]] == ["", ""]
    assert outcomes[2].problem == "the send queue of every peer is full: publish more slowly"


async def test_a_forwarded_message_waits_for_nobody(
    autojump_clock: MockClock, bench: Bench
) -> None:
    _, _, from_one = await bench.connect(ONE)
    slow, stalled, _ = await bench.connect(TWO)
    author = Author(new_key(), SignaturePolicy.STRICT_SIGN, 1)
    messages = [author.write(TOPIC, bytes(100)) for _ in range(5)]
    stalled.hold()
    slow.queue = SendQueue(dict.fromkeys(Lane, len(message_frame(messages[0].raw))))
    for message in messages:
        await say(from_one, Rpc(publish=[message.raw]))
    assert len(bench.deliveries) == 5
    assert trio.current_time() == 0
    assert bench.driver.statistics().counters[drops.SLOW_PEER] == 3


async def test_control_that_did_not_fit_is_said_again(
    autojump_clock: MockClock, bench: Bench
) -> None:
    link, stream, _ = await bench.connect(ONE)
    stream.hold()
    link.send_control(b"")  # what the writer is busy with
    await wait_all_tasks_blocked()
    link.queue = SendQueue(dict.fromkeys(Lane, 1))
    link.send_control(b"?")  # and what fills the queue
    bench.driver.feed(Subscribe("another"))
    assert bench.driver.statistics().counters[drops.SLOW_PEER] == 1
    link.queue = SendQueue()
    stream.let_go()
    await trio.sleep(2 * GossipParams().heartbeat_interval)
    again = [entry for rpc in heard(stream)[1:] for entry in rpc.subscriptions]
    assert [(entry.topic, entry.subscribe) for entry in again if entry.topic == "another"] == [
        ("another", True)
    ]


# Time, dialling, records


async def test_the_heart_beats(autojump_clock: MockClock, bench: Bench) -> None:
    params = GossipParams()
    await trio.sleep(params.heartbeat_delay + 10.5 * params.heartbeat_interval)
    assert bench.driver.statistics().heartbeats == 11


async def test_a_direct_peer_is_called(bench: Bench) -> None:
    bench.driver.feed(AddDirectPeer(ONE, ("/ip4/192.0.2.1/tcp/4001",)))
    await wait_all_tasks_blocked()
    assert bench.host.dialled == [(ONE, "/ip4/192.0.2.1/tcp/4001")]


async def test_a_record_that_identify_has_brought_is_handed_on_when_a_peer_is_pruned(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench(
        nursery, GossipParams(d=1, d_lo=1, d_hi=1, d_score=0, d_out=0, peer_exchange=True)
    )
    await bench.start()
    key = new_key()
    known, asking = key.public_key().peer_id(), ONE
    _, _, from_known = await bench.connect(known)
    await say(from_known, Rpc(control=Control(graft=[Graft(topic=TOPIC)])))
    addresses = [Multiaddr("/ip4/8.8.8.8/tcp/4001")]
    record = seal_record(PeerRecord(ID(known), addresses), libp2p_keys(key).private_key)
    bench.host.records[known] = record
    await trio.sleep(1)  # a heartbeat

    _, to_asking, from_asking = await bench.connect(asking)
    await say(from_asking, Rpc(control=Control(graft=[Graft(topic=TOPIC)])))
    [prune] = [prune for rpc in heard(to_asking) for prune in rpc.control.prune]
    assert [(peer.peer_id, peer.signed_peer_record) for peer in prune.peers] == [
        (known, record.marshal_envelope())
    ]


# The end


async def test_a_stopping_node_says_what_is_queued_ends_its_streams_and_announces_nothing(
    autojump_clock: MockClock, bench: Bench
) -> None:
    link, stream, _ = await bench.connect(ONE)
    stream.hold()
    link.send_control(
        Rpc(subscriptions=[Subscription(subscribe=True, topic="last")]).SerializeToString()
    )
    link.go()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.driver.stop, 5)
        await wait_all_tasks_blocked()
        assert not stream.ended.is_set()
        stream.let_go()
        await wait_all_tasks_blocked()
        assert stream.ended.is_set()
        stream.answered.set()
    said = [(entry.topic, entry.subscribe) for rpc in heard(stream) for entry in rpc.subscriptions]
    assert said == [(TOPIC, True), ("last", True)]
    assert not any(rpc.control.prune for rpc in heard(stream))
    assert trio.current_time() == 0


async def test_a_stopping_node_waits_for_a_peer_that_does_not_read_no_longer_than_it_should(
    autojump_clock: MockClock, bench: Bench
) -> None:
    link, stream, _ = await bench.connect(ONE)
    stream.hold()
    link.send_control(b"")
    link.go()
    await bench.driver.stop(grace=5)
    assert trio.current_time() == 5
