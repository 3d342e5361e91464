"""Nodes on real sockets: everybody gets everything once, comes back, and forwards what is valid."""

import socket

import msgspec
import pytest
import trio

from bruit import Node, Received, Subscription, TopicConfig, Validation, Verdict, hookimpl
from bruit.node.gossip.actions import PeerLeft, Rejected
from bruit.node.identity import new_key
from bruit.node.reports import DialFailed
from bruit.topics.keys import KeyType
from bruit.topics.validation import reject
from tests.net.loopback import TIMEOUT, TOPIC, Visit, config, first, mesh, until_connected

pytestmark = pytest.mark.sockets

LAST = b"last"


class NoSettings(msgspec.Struct, frozen=True):
    pass


class Strict:
    """Takes what begins with "good"."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        pass

    @hookimpl
    def validate(self, data: bytes) -> Validation:
        if data.startswith(b"good"):
            return Validation(Verdict.ACCEPT, facts={"length": len(data)})
        return reject("not good")


async def until_last(subscription: Subscription, publishers: int) -> list[Received]:
    """What comes before every publisher's last message, and whatever else came meanwhile."""
    received: list[Received] = []
    async for message in subscription:
        received.append(message)
        if sum(each.data == LAST for each in received) == publishers:
            break
    return [message for message in received if message.data != LAST]


async def test_every_message_of_five_nodes_reaches_all_of_them_exactly_once() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(5) as nodes:
            subscriptions = [node.subscribe(TOPIC) for node in nodes]
            for node in nodes:
                outcome = await node.publish(TOPIC, b"from " + node.peer_id)
                others = {other.peer_id for other in nodes} - {node.peer_id}
                assert (set(outcome.peers), outcome.problem) == (others, "")
            for node in nodes:
                await node.publish(TOPIC, LAST)
            for node, subscription in zip(nodes, subscriptions, strict=True):
                received = await until_last(subscription, len(nodes))
                assert sorted(message.data for message in received) == sorted(
                    b"from " + each.peer_id for each in nodes
                )
                for message in received:
                    assert message.data == b"from " + message.author
                    assert (message.source == node.peer_id) == (message.author == node.peer_id)
                assert subscription.lost == 0


async def test_a_message_of_a_megabyte_arrives_whole() -> None:
    data = bytes(range(256)) * 4000
    with trio.fail_after(TIMEOUT):
        async with mesh(3) as (publisher, *others):
            subscriptions = [node.subscribe(TOPIC) for node in others]
            assert len((await publisher.publish(TOPIC, data)).peers) == 2
            for subscription in subscriptions:
                assert (await anext(subscription)).data == data


async def test_a_message_over_the_limit_of_its_topic_goes_to_nobody() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (publisher, _):
            outcome = await publisher.publish(TOPIC, bytes(1_048_576))
            assert outcome.peers == ()
            assert "the topic's limit is 1048576" in outcome.problem


async def test_a_message_reaches_who_is_not_connected_to_its_publisher() -> None:
    with trio.fail_after(TIMEOUT):
        async with (
            Node(config()) as left,
            Node(config(peers=left.addresses)) as middle,
            Node(config(peers=middle.addresses)) as right,
        ):
            await until_connected(left, middle)
            await right.wait_for_peers(TOPIC)
            await middle.wait_for_peers(TOPIC, 2)
            messages = right.subscribe(TOPIC)
            await left.publish(TOPIC, b"far")
            message = await anext(messages)
            assert (message.data, message.author, message.source) == (
                b"far",
                left.peer_id,
                middle.peer_id,
            )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_node_that_was_away_is_called_again_and_taken_back() -> None:
    key, port = new_key(KeyType.SECP256K1), free_port()
    away, back = Node(config(port=port), key), Node(config(port=port), key)
    visit = Visit(away)
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            await nursery.start(visit.run)
            configured = config(peers=away.addresses)
            async with (
                Node(configured) as one,
                Node(configured) as two,
                Node(configured) as three,
                Node(configured) as four,
            ):
                others = (one, two, three, four)
                await away.wait_for_peers(TOPIC, 4)
                losses = [node.reports() for node in others]
                visit.end()
                await visit.gone.wait()
                for reports in losses:  # everybody has tried in vain
                    assert (await first(reports, DialFailed)).peer == away.peer_id
                subscriptions = [node.subscribe(TOPIC) for node in others]
                async with back:
                    assert (back.peer_id, back.addresses) == (
                        away.peer_id,
                        [*configured.network.peers],
                    )
                    await back.wait_for_peers(TOPIC, 4)
                    outcome = await back.publish(TOPIC, b"back")
                    assert set(outcome.peers) == {node.peer_id for node in others}
                    for subscription in subscriptions:
                        assert (await anext(subscription)).data == b"back"


async def test_a_message_that_a_validator_rejects_is_not_forwarded_and_its_sender_is_named() -> (
    None
):
    strict = config(topic=TopicConfig(validator="strict"))
    with trio.fail_after(TIMEOUT):
        async with (
            Node(strict, plugins={"strict": Strict}) as judge,
            Node(config(peers=judge.addresses)) as careless,
            Node(config(peers=judge.addresses)) as listener,
        ):
            await judge.wait_for_peers(TOPIC, 2)
            await careless.wait_for_peers(TOPIC)
            await listener.wait_for_peers(TOPIC)
            reports, judged = judge.reports(), judge.subscribe(TOPIC)
            heard = listener.subscribe(TOPIC)
            bad = await careless.publish(TOPIC, b"bad")
            await careless.publish(TOPIC, b"good")

            rejected = await first(reports, Rejected)
            assert rejected == Rejected(
                careless.peer_id, careless.peer_id, TOPIC, bad.message_id, "not good"
            )
            assert (await anext(heard)).data == b"good"
            message = await anext(judged)
            assert (message.data, message.facts) == (b"good", {"length": 4})


async def test_a_node_that_stops_hangs_up_and_is_sent_nothing_more() -> None:
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery, Node(config()) as stays:
            leaves = Node(config(peers=stays.addresses))
            visit = Visit(leaves)
            await nursery.start(visit.run)
            await until_connected(stays, leaves)
            reports, kept = stays.reports(), stays.subscribe(TOPIC)
            visit.end()
            assert (await first(reports, PeerLeft)).peer == leaves.peer_id
            outcome = await stays.publish(TOPIC, b"alone")
            assert (outcome.peers, outcome.dropped) == ((), ())
            assert "no connected peer" in outcome.problem
            assert (await anext(kept)).data == b"alone"
            assert stays.statistics().router.peers == ()
