"""A node's topics: who joins and leaves them, what is published, and what plugins make of it."""

import msgspec
import pytest
import trio

from bruit import (
    LocalError,
    Node,
    NodeConfig,
    PluginError,
    PluginFailed,
    TopicConfig,
    Validation,
    hookimpl,
)
from bruit.node import subscription as subscription_module
from bruit.node.config.schema import PluginLimits
from bruit.node.gossip.actions import PeerSubscribed
from bruit.topics.validation import ACCEPTED, ignore, reject
from tests.net.loopback import TIMEOUT, TOPIC, config, first, mesh, until_connected

OTHER = "/lux/test/relay/headers/other"


class NoSettings(msgspec.Struct, frozen=True):
    pass


class Chain:
    """Judges by what a message says, and adds an exclamation mark on the wire."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        pass

    @hookimpl
    def pre_process(self, data: bytes) -> bytes:
        if data == b"unspeakable":
            raise RuntimeError("the codec is broken")
        if data == b"too much":
            raise LocalError("that cannot be encoded")
        return data + b"!"

    @hookimpl
    def post_process(self, data: bytes) -> bytes:
        return data[:-1]

    @hookimpl
    def validate(self, data: bytes) -> Validation:
        if data == b"broken":
            raise RuntimeError("the validator is broken")
        if data == b"bad":
            return reject("it is bad")
        if data == b"later":
            return ignore("not of this time")
        return ACCEPTED


def chain_config(**changes: object) -> NodeConfig:
    """TOPIC goes through Chain, OTHER through nothing; both are joined."""
    topics = {TOPIC: TopicConfig(codec="chain", validator="chain"), OTHER: TopicConfig()}
    return msgspec.structs.replace(config(), topics=topics, **changes)


def chain_node(**changes: object) -> Node:
    return Node(chain_config(**changes), plugins={"chain": Chain})


# Subscribing


@pytest.mark.sockets
async def test_the_last_subscriber_leaves_the_topic_and_only_the_last() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (node, watcher):
            reports = watcher.reports()

            async def told_of(topic: str) -> list[bool]:
                """What the watcher was told of OTHER before it is told of ``topic``."""
                node.subscribe(topic)
                told = []
                while (report := await first(reports, PeerSubscribed)).topic != topic:
                    assert (report.peer, report.topic) == (node.peer_id, OTHER)
                    told.append(report.subscribed)
                return told

            one, two = node.subscribe(OTHER), node.subscribe(OTHER)
            assert await told_of("/first") == [True]
            one.close()
            one.close()
            assert await told_of("/second") == []
            two.close()
            assert await told_of("/third") == [False]
            node.subscribe(OTHER)
            assert await told_of("/fourth") == [True]


@pytest.mark.sockets
async def test_a_topic_that_the_configuration_joins_is_not_left() -> None:
    async with Node(config()) as node:
        async with node.subscribe(TOPIC):
            pass
        assert list(node.statistics().router.mesh) == [TOPIC]


@pytest.mark.sockets
async def test_a_configured_topic_that_is_not_joined_is_joined_by_a_subscriber() -> None:
    async with Node(config(topic=TopicConfig(subscribe=False))) as node:
        assert node.statistics().router.mesh == {}
        async with node.subscribe(TOPIC):
            assert list(node.statistics().router.mesh) == [TOPIC]
        assert node.statistics().router.mesh == {}


@pytest.mark.sockets
@pytest.mark.parametrize("name", ["", "x" * 257, "with\nline"])
async def test_an_impossible_name_is_refused_and_changes_nothing(name: str) -> None:
    async with Node(config()) as node:
        before = node.statistics().router.mesh
        with pytest.raises(LocalError, match="topic"):
            node.subscribe(name)
        with pytest.raises(LocalError, match="topic"):
            await node.publish(name, b"data")
        assert node.statistics().router.mesh == before


@pytest.mark.sockets
async def test_a_message_carries_who_wrote_it_who_brought_it_and_its_id() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (writer, reader):
            messages, own = reader.subscribe(TOPIC), writer.subscribe(TOPIC)
            outcome = await writer.publish(TOPIC, b"hello")
            message, echo = await anext(messages), await anext(own)
            assert (message.topic, message.data) == (TOPIC, b"hello")
            assert (message.author, message.source) == (writer.peer_id, writer.peer_id)
            assert message.message_id == outcome.message_id == echo.message_id
            assert echo.source == writer.peer_id


@pytest.mark.sockets
async def test_a_subscriber_that_is_behind_loses_the_newest_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_module, "BACKLOG", 3)
    async with Node(config()) as node:
        idle, busy = node.subscribe(TOPIC), node.subscribe(TOPIC)
        for number in range(5):
            await node.publish(TOPIC, b"%d" % number)
            assert (await anext(busy)).data == b"%d" % number
        assert (idle.lost, busy.lost, node.statistics().subscribers_lost) == (2, 0, 2)
        idle.close()
        assert [message.data async for message in idle] == [b"0", b"1", b"2"]


@pytest.mark.sockets
async def test_a_closed_subscription_ends_after_what_it_has_received() -> None:
    async with Node(config()) as node:
        async with node.subscribe(TOPIC) as messages:
            await node.publish(TOPIC, b"in time")
        await node.publish(TOPIC, b"too late")
        assert [message.data async for message in messages] == [b"in time"]


# Publishing


@pytest.mark.sockets
async def test_a_message_that_nobody_wants_has_a_problem_and_is_delivered_at_home() -> None:
    async with Node(config()) as node:
        messages = node.subscribe(TOPIC)
        outcome = await node.publish(TOPIC, b"alone")
        assert (outcome.peers, outcome.dropped) == ((), ())
        assert "no connected peer is subscribed" in outcome.problem
        assert (await anext(messages)).data == b"alone"


@pytest.mark.sockets
async def test_a_topic_that_is_not_joined_can_be_published_to() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (visitor, member):
            messages = member.subscribe(OTHER)
            await visitor.wait_for_peers(OTHER)
            outcome = await visitor.publish(OTHER, b"from outside")
            assert outcome.peers == (member.peer_id,)
            assert (await anext(messages)).data == b"from outside"
            assert OTHER not in visitor.statistics().router.mesh


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("data", "reason"), [(b"bad", "it is bad"), (b"later", "not of this time")]
)
async def test_a_message_that_its_validator_does_not_accept_is_not_sent(
    data: bytes, reason: str
) -> None:
    async with chain_node() as node:
        outcome = await node.publish(TOPIC, data)
        assert outcome.problem == f"not valid on this topic: {reason}"
        assert (outcome.message_id, outcome.peers, outcome.dropped) == (b"", (), ())
        assert "messages published" not in node.statistics().router.counters


@pytest.mark.sockets
async def test_a_codec_works_on_both_sides_of_the_wire() -> None:
    with trio.fail_after(TIMEOUT):
        async with chain_node() as one, Node(config(peers=one.addresses)) as plain:
            await until_connected(one, plain)
            decoded, raw = one.subscribe(TOPIC), plain.subscribe(TOPIC)
            await one.publish(TOPIC, b"there")
            assert (await anext(raw)).data == b"there!"
            assert (await anext(decoded)).data == b"there"
            await plain.publish(TOPIC, b"back!")
            assert (await anext(decoded)).data == b"back"


@pytest.mark.sockets
async def test_a_codec_that_fails_is_the_plugins_error_and_is_reported_at_once() -> None:
    with trio.fail_after(TIMEOUT):
        async with chain_node() as node:
            reports = node.reports()
            with pytest.raises(PluginError, match="the codec is broken") as caught:
                await node.publish(TOPIC, b"unspeakable")
            assert (caught.value.plugin, caught.value.hook) == ("chain", "pre_process")
            event = (await first(reports, PluginFailed)).event
            assert (event.plugin, event.hook, event.topic) == ("chain", "pre_process", TOPIC)


@pytest.mark.sockets
async def test_data_that_its_codec_cannot_take_is_the_callers_mistake() -> None:
    async with chain_node() as node:
        with pytest.raises(LocalError, match="that cannot be encoded"):
            await node.publish(TOPIC, b"too much")
        assert [status.failures for status in node.statistics().plugins if status.failures] == []


@pytest.mark.sockets
async def test_a_plugin_that_keeps_failing_is_switched_off_and_the_node_goes_on() -> None:
    with trio.fail_after(TIMEOUT):
        async with (
            chain_node(plugin_limits=PluginLimits(max_failures=3)) as node,
            Node(config(peers=node.addresses)) as peer,
        ):
            await until_connected(node, peer)
            reports, others = node.reports(), node.subscribe(OTHER)
            judged = node.subscribe(TOPIC)
            await peer.publish(TOPIC, b"fine!")
            assert (await anext(judged)).data == b"fine"
            for _ in range(5):
                await peer.publish(TOPIC, b"broken!")
            events = [(await first(reports, PluginFailed)).event for _ in range(3)]
            assert [event.switched_off for event in events] == [False, False, True]
            assert {(event.plugin, event.hook) for event in events} == {("chain", "validate")}

            await peer.wait_for_peers(OTHER)
            await peer.publish(OTHER, b"elsewhere")
            assert (await anext(others)).data == b"elsewhere"
            [status] = [each for each in node.statistics().plugins if each.name == "chain"]
            assert (status.state, status.failures) == ("off", 3)
            outcome = await node.publish(TOPIC, b"fine")
            assert "switched off after 3 failures" in outcome.problem
