"""A peer that breaks the rules on real streams: it is counted, and everybody else is served."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.envelope import seal_record
from libp2p.peer.pb.peer_record_pb2 import PeerRecord as RecordBody
from libp2p.peer.peer_record import PeerRecord

from bruit import Node, Subscription
from bruit.node.gossip import drops
from bruit.node.gossip.actions import Dropped, PeerJoined, PeerLeft, PeerSubscribed
from bruit.node.net.driver import PATIENCE
from tests.net.hostile import hostile_peer, until_reset
from tests.net.loopback import TIMEOUT, TOPIC, config, first, until_connected
from tests.net.recorder import on_the_wire, varint

pytestmark = pytest.mark.sockets

MEGABYTE = 1_000_000  # bytes


class Pair:
    """The node under attack and an honest peer of it."""

    def __init__(self, node: Node, honest: Node) -> None:
        self.node = node
        self.honest = honest
        self.address = node.addresses[0]
        self._received: Subscription = node.subscribe(TOPIC)
        self._number = 0

    async def still_works(self) -> None:
        """The honest peer publishes, and the node has it."""
        self._number += 1
        data = b"honest %d" % self._number
        outcome = await self.honest.publish(TOPIC, data)
        assert self.node.peer_id in outcome.peers
        while (await anext(self._received)).data != data:
            pass  # what the node published itself


@asynccontextmanager
async def attacked() -> AsyncIterator[Pair]:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node, Node(config(peers=node.addresses)) as honest:
            await until_connected(node, honest)
            pair = Pair(node, honest)
            await pair.still_works()
            yield pair
            await pair.still_works()


@pytest.mark.parametrize(
    "prefix", [varint(2**34), varint(100_000_000), b"\xff" * 64], ids=["16 GB", "100 MB", "endless"]
)
async def test_a_length_that_is_too_large_costs_the_peer_its_stream(prefix: bytes) -> None:
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        stream = await hostile.open()
        await stream.write(prefix)
        await until_reset(stream)
        await pair.still_works()
        assert pair.node.statistics().stream_faults["malformed frame length"] == 1


async def test_garbage_in_frames_is_counted_frame_by_frame() -> None:
    rng = random.Random(1)
    garbage = [b"\xff" + rng.randbytes(rng.randrange(300)) for _ in range(200)]
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        reports = pair.node.reports()
        stream = await hostile.open()
        await stream.write(on_the_wire(garbage))
        for _ in garbage:
            assert await first(reports, Dropped) == Dropped(hostile.peer, "", drops.MALFORMED_FRAME)
        await pair.still_works()
        assert pair.node.statistics().router.counters[drops.MALFORMED_FRAME] == len(garbage)


async def test_a_good_frame_after_garbage_is_still_read() -> None:
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        reports = pair.node.reports()
        stream = await hostile.open()
        await stream.write(on_the_wire([b"\xff garbage", b""]))
        await hostile.subscribe(stream, TOPIC)
        subscribed = await first(reports, PeerSubscribed)
        assert subscribed == PeerSubscribed(hostile.peer, TOPIC, subscribed=True)


async def test_half_a_frame_that_stalls_holds_up_nobody() -> None:
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        reports = pair.node.reports()
        stream = await hostile.open()
        await hostile.subscribe(stream, TOPIC)
        await stream.write(varint(MEGABYTE) + bytes(100_000))
        await first(reports, PeerSubscribed)
        await pair.still_works()
        await stream.write(bytes(MEGABYTE - 100_000 - 1))
        await pair.still_works()
        await stream.write(b"\xff")  # the frame is whole: zeros, which no message begins with
        assert (await first(reports, Dropped)).reason == drops.MALFORMED_FRAME


async def test_of_many_streams_with_half_frames_one_is_kept() -> None:
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        reports = pair.node.reports()
        streams: list[INetStream] = []
        for _ in range(20):
            streams.append(await hostile.open())
            await streams[-1].write(varint(MEGABYTE) + bytes(1000))
        for stream in streams[:-1]:
            await until_reset(stream)
        await pair.still_works()
        newest = await hostile.open()
        await hostile.subscribe(newest, TOPIC)
        await first(reports, PeerSubscribed)
        assert pair.node.statistics().stream_faults["second stream"] == 20


async def test_a_peer_that_speaks_no_gossipsub_is_none_of_our_business() -> None:
    async with attacked() as pair, hostile_peer(pair.address, accepts=False) as hostile:
        stream = await hostile.open()
        await stream.write(on_the_wire([b"unheard"]))
        await pair.still_works()
        statistics = pair.node.statistics()
        assert statistics.router.peers == (pair.honest.peer_id,)
        assert drops.MALFORMED_FRAME not in statistics.router.counters
        assert statistics.stream_faults["stream not opened"] >= 1


async def test_a_peer_that_never_says_anything_is_a_peer_without_topics() -> None:
    async with attacked() as pair:
        reports = pair.node.reports()
        async with hostile_peer(pair.address) as hostile:
            assert (await first(reports, PeerJoined)).peer == hostile.peer
            await hostile.stream_of_the_victim()
            await pair.still_works()
            assert pair.node.statistics().router.subscribers == {TOPIC: (pair.honest.peer_id,)}
        while (left := await first(reports, PeerLeft)).peer != hostile.peer:
            pass
        assert left.peer == hostile.peer


async def test_a_peer_that_hangs_up_in_the_middle_of_a_frame_is_forgotten() -> None:
    async with attacked() as pair:
        reports = pair.node.reports()
        async with hostile_peer(pair.address) as hostile:
            stream = await hostile.open()
            await hostile.subscribe(stream, TOPIC)
            await stream.write(varint(MEGABYTE) + bytes(1000))
            await first(reports, PeerSubscribed)
        assert (await first(reports, PeerLeft)).peer == hostile.peer
        assert pair.node.statistics().router.peers == (pair.honest.peer_id,)


async def test_a_peer_that_never_reads_is_left_behind_and_the_others_get_everything() -> None:
    async with attacked() as pair, hostile_peer(pair.address) as hostile:
        node, heard = pair.node, pair.honest.subscribe(TOPIC)
        reports = node.reports()
        stream = await hostile.open()
        await hostile.subscribe(stream, TOPIC)
        await first(reports, PeerSubscribed)

        async def publish(number: int) -> tuple[bool, float]:
            """Whether the hostile peer was left out, and how long it took, in seconds."""
            data, start = number.to_bytes(4, "big") * (MEGABYTE // 4), trio.current_time()
            outcome = await node.publish(TOPIC, data)
            took = trio.current_time() - start
            assert pair.honest.peer_id in outcome.peers
            assert outcome.problem == ""
            assert (await anext(heard)).data == data
            assert (hostile.peer in outcome.peers) == (hostile.peer not in outcome.dropped)
            return outcome.dropped == (hostile.peer,), took

        number = 0
        while True:  # its queue takes 16 messages, and the connection some more
            number += 1
            left_out, took = await publish(number)
            if left_out:
                break
        assert number > 16
        assert took >= PATIENCE
        times = []
        for further in range(number + 1, number + 6):
            left_out, took = await publish(further)
            assert left_out
            times.append(took)
        assert sum(times) < PATIENCE  # five times not waited for

        dropped = await first(reports, Dropped)
        assert (dropped.peer, dropped.reason) == (hostile.peer, drops.SLOW_PEER)
        assert node.statistics().router.counters[drops.SLOW_PEER] >= 6
        assert node.statistics().peers[hostile.peer].queued_bytes > 15 * MEGABYTE


class Garbled(PeerRecord):
    """A record with an address that is no multiaddr: its name of 1 byte is not UTF-8."""

    def marshal_record(self) -> bytes:
        body = RecordBody.FromString(super().marshal_record())
        body.addresses.add(multiaddr=b"\x36\x01\xff")
        return body.SerializeToString()


async def test_a_signed_record_of_garbage_does_not_stop_the_node() -> None:
    async with attacked() as pair, hostile_peer(pair.address, connect=False) as hostile:
        identified = trio.Event()
        record = Garbled(hostile.host.get_id(), [])
        envelope = seal_record(record, hostile.host.get_private_key()).marshal_envelope()

        async def identify(stream: INetStream) -> None:
            message = Identify(signedPeerRecord=envelope)
            await stream.write(on_the_wire([message.SerializeToString()]))
            await until_reset(stream)
            identified.set()

        hostile.host.set_stream_handler(IDENTIFY, identify)
        await hostile.connect()
        await identified.wait()
        before = pair.node.statistics().router.heartbeats
        while pair.node.statistics().router.heartbeats < before + 2:  # they read the record
            await pair.still_works()
