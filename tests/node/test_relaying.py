"""Nodes with parts in the relay on real sockets: blocks go through, and what breaks is told."""

import os
from pathlib import Path

import msgspec
import pytest
import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID

from bruit import LocalError, Node, Validation, hookimpl
from bruit.node.control_requests import answer
from bruit.node.net.host import NETWORK_ERRORS
from bruit.node.net.relay.protocols import RelayProtocol
from bruit.node.relay import drops
from bruit.node.relay.evidence import Kind, decode_evidence
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import Attesting
from bruit.node.reports import Disputed
from bruit.plugins.marketplace import Marketplace, Producer
from bruit.topics.validation import ACCEPTED, reject
from tests.net.loopback import TIMEOUT, Visit, config, first
from tests.net.recorder import on_the_wire
from tests.node.relay_network import CHANNEL, TOPIC, Network, NoSettings, relay_of, running

pytestmark = pytest.mark.sockets


class Strict:
    """Takes what begins with "good"."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        pass

    @hookimpl
    def validate(self, data: bytes) -> Validation:
        return ACCEPTED if data.startswith(b"good") else reject("not good")


@pytest.mark.parametrize("attesting", Attesting)
async def test_a_block_goes_through_two_clusters_to_two_consumers(attesting: Attesting) -> None:
    network, block = Network(clusters=2, members=2, consumers=2), os.urandom(300_000)
    channel = msgspec.structs.replace(CHANNEL, attesting=attesting)
    producer = network.producer.node(network.market, ["producer"], channel=channel)
    members = [place.node(network.market, ["member"], channel=channel) for place in network.members]
    consumers = [
        place.node(network.market, ["consumer"], channel=channel, peers=network.members)
        for place in network.consumers
    ]
    with trio.fail_after(TIMEOUT):
        async with running([producer, *members, *consumers]):
            for member in members:
                await member.wait_for_peers(TOPIC, len(consumers))
            blocks = [relay_of(consumer).blocks("blocks") for consumer in consumers]
            proof = await relay_of(producer).broadcast("blocks", block)
            assert len(proof.receipts) == CHANNEL.num_chunks
            assert all(receipt.acknowledgement for receipt in proof.receipts)
            for received in [await anext(each) for each in blocks]:
                assert received.block == block
                assert received.block_hash == keccak256(block)
                assert received.producers == (network.producer.address,)
                assert set(received.clusters) <= {1, 2}
            statuses = [relay_of(member).status() for member in members]
            assert sum(status.witnessed for status in statuses) == CHANNEL.num_chunks
            assert [status.cluster for status in statuses] == [1, 1, 2, 2]
            assert [relay_of(each).status().delivered for each in consumers] == [1, 1]
            stake = relay_of(producer).status().stake
            assert stake is not None
            assert stake.in_use > 300_000


async def test_a_block_goes_through_where_a_member_dies() -> None:
    network = Network(clusters=1, members=2, consumers=1)
    producer = network.producer.node(network.market, ["producer"])
    visit = Visit(network.members[0].node(network.market, ["member"]))
    survivor = network.members[1].node(network.market, ["member"])
    consumer = network.consumers[0].node(network.market, ["consumer"], peers=network.members)
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            await nursery.start(visit.run)
            async with running([producer, survivor, consumer]):
                for member in (visit.node, survivor):
                    await member.wait_for_peers(TOPIC)
                blocks = relay_of(consumer).blocks(TOPIC)
                await relay_of(producer).broadcast(CHANNEL.id, b"first")
                assert (await anext(blocks)).block == b"first"
                visit.end()
                await visit.gone.wait()
                proof = await relay_of(producer).broadcast(CHANNEL.id, b"second")
                assert all(receipt.acknowledgement for receipt in proof.receipts)
                assert (await anext(blocks)).block == b"second"


async def test_a_proof_says_which_chunks_nobody_acknowledged() -> None:
    network = Network(clusters=2, members=1, consumers=0)  # and nobody is there
    async with network.producer.node(network.market, ["producer"]) as producer:
        with trio.fail_after(TIMEOUT):
            proof = await relay_of(producer).broadcast("blocks", b"lost")
        assert [receipt.acknowledgement for receipt in proof.receipts] == [b""] * 8
        assert all(receipt.tried for receipt in proof.receipts)


async def flood(stream: INetStream, garbage: bytes) -> None:
    """Write it all, and wait until the other end breaks off."""
    await stream.write(garbage)
    while await stream.read(1):
        pass


async def test_who_floods_a_member_with_garbage_is_cut_off_and_nobody_else() -> None:
    network = Network(clusters=1, members=1, consumers=0)
    member = network.members[0].node(network.market, ["member"])
    producer = network.producer.node(network.market, ["producer"])
    submit = [TProtocol(RelayProtocol.SUBMIT.value)]
    garbage = on_the_wire([b"abcd\x00\x07\x00\x01" + bytes(200)] * 100)  # no signature is all 0
    with trio.fail_after(TIMEOUT):
        async with running([member, producer]), Node(config()) as flooder:
            await flooder.connect(member.addresses[0])
            host = flooder._started_host()
            stream = await host.new_stream(ID(member.peer_id), submit)
            with pytest.raises(NETWORK_ERRORS):
                await flood(stream, garbage)
            status = relay_of(member).status()
            assert status.stream_faults["too much that was wrong"] >= 1
            assert status.dropped[drops.BAD_SIGNATURE] > 16
            assert member.scores()[flooder.peer_id] < 0
            proof = await relay_of(producer).broadcast("blocks", b"block")
            assert all(receipt.acknowledgement for receipt in proof.receipts)


async def test_a_banned_producer_cannot_submit() -> None:
    network = Network(clusters=1, members=1, consumers=0)
    member = network.members[0].node(network.market, ["member"])
    producer = network.producer.node(network.market, ["producer"])
    with trio.fail_after(TIMEOUT):
        async with running([member, producer]):
            await member.ban(producer.peer_id_text, None, "on purpose")
            proof = await relay_of(producer).broadcast("blocks", b"block")
            assert not any(receipt.acknowledgement for receipt in proof.receipts)
            assert relay_of(member).status().witnessed == 0


async def test_an_invalid_block_is_disputed_with_its_evidence_in_a_file(tmp_path: Path) -> None:
    network = Network(clusters=1, members=1, consumers=1)
    strict = msgspec.structs.replace(CHANNEL, validator="strict")
    producer = network.producer.node(network.market, ["producer"])
    member = network.members[0].node(network.market, ["member"])
    consumer = network.consumers[0].node(
        network.market,
        ["consumer"],
        peers=network.members,
        channel=strict,
        plugins={"strict": Strict},
        directory=tmp_path,
    )
    with trio.fail_after(TIMEOUT):
        async with running([producer, member, consumer]):
            await member.wait_for_peers(TOPIC)
            reports, blocks = consumer.reports(), relay_of(consumer).blocks("blocks")
            await relay_of(producer).broadcast("blocks", b"bad")
            disputed = await first(reports, Disputed)
            assert disputed.evidence.kind is Kind.INVALID_BLOCK
            assert disputed.evidence.producers == (network.producer.address,)
            assert disputed.evidence.validator == "strict"
            assert disputed.file is not None
            assert disputed.file.is_relative_to(tmp_path)
            written = decode_evidence(disputed.file.read_bytes())
            assert len(written.exhibits) >= CHANNEL.min_chunks
            assert disputed.evidence == msgspec.structs.replace(written, exhibits=())
            assert relay_of(consumer).status().disputes == {"invalid-block": 1}
            await relay_of(producer).broadcast("blocks", b"good")
            assert (await anext(blocks)).block == b"good"  # and the bad one never came


async def test_a_restarted_producer_does_not_attach_its_stake_twice(tmp_path: Path) -> None:
    network = Network(clusters=1, members=1, consumers=0)  # and nobody is there
    market = network.market
    block = os.urandom(1000)
    needed = 8 * (251 + 81)  # a quarter of block and header, and an attestation, each
    market.now = Marketplace((Producer(network.producer.address, needed),), market.now.clusters)
    with trio.fail_after(TIMEOUT):
        async with network.producer.node(market, ["producer"], directory=tmp_path) as producer:
            await relay_of(producer).broadcast("blocks", block)
        async with network.producer.node(market, ["producer"], directory=tmp_path) as producer:
            with pytest.raises(LocalError, match="not enough stake"):
                await relay_of(producer).broadcast("blocks", b"one byte is too much")


async def test_a_producers_own_validator_keeps_a_bad_block_back() -> None:
    network = Network(clusters=1, members=1, consumers=0)
    strict = msgspec.structs.replace(CHANNEL, validator="strict")
    producer = network.producer.node(
        network.market, ["producer"], channel=strict, plugins={"strict": Strict}
    )
    async with producer:
        with pytest.raises(LocalError, match="not valid on this channel: not good"):
            await relay_of(producer).broadcast("blocks", b"bad")


async def test_the_marketplace_is_asked_again_and_again() -> None:
    network = Network(clusters=1, members=1, consumers=0)
    there, network.market.now = network.market.now, Marketplace()
    async with network.producer.node(network.market, ["producer"]) as producer:
        with pytest.raises(LocalError, match="no producer in the marketplace"):
            await relay_of(producer).broadcast("blocks", b"block")
        network.market.now = there
        with trio.fail_after(TIMEOUT):
            for _ in range(3):  # asked, told, and asked again when that had been dealt with
                await network.market.asked()
            assert relay_of(producer).status().producers == 1
            await relay_of(producer).broadcast("blocks", b"block")


async def test_a_part_that_a_node_does_not_play_is_refused_with_what_to_do() -> None:
    network = Network(clusters=1, members=1, consumers=1)
    producer = network.producer.node(network.market, ["producer"])
    consumer = network.consumers[0].node(network.market, ["consumer"])
    with pytest.raises(LocalError, match="the node is not running"):
        await relay_of(producer).broadcast("blocks", b"block")
    async with running([producer, consumer]):
        with pytest.raises(LocalError, match="this node is no consumer"):
            relay_of(producer).blocks("blocks")
        with pytest.raises(LocalError, match="this node is no producer"):
            await relay_of(consumer).broadcast("blocks", b"block")
        with pytest.raises(LocalError, match=r"channel 8 is not configured; configured: 7 \(bl"):
            relay_of(consumer).blocks(8)
        blocks = relay_of(consumer).blocks("blocks")
    assert [block async for block in blocks] == []  # a node that stops ends its subscriptions


async def test_the_control_socket_tells_of_the_relay() -> None:
    network = Network(clusters=2, members=1, consumers=0)
    async with network.producer.node(network.market, ["producer"]) as producer:
        said = await answer(producer, b'{"do": "relay.status"}')
        told = msgspec.json.decode(msgspec.json.encode(said))
        assert told["roles"] == ["producer"]
        assert told["address"] == network.producer.address.hex()
        assert [cluster["id"] for cluster in told["clusters"]] == [1, 2]
        assert told["stake"] == {"registered": 100_000_000, "in_use": 0}


async def test_a_node_without_a_role_has_no_relay() -> None:
    async with Node(config()) as node:
        assert node.relay is None
        with pytest.raises(LocalError, match=r"no part in the relay: set relay\.roles"):
            await answer(node, b'{"do": "relay.status"}')
