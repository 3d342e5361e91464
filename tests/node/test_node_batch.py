"""Publishing several messages at once, and publishing that is given up half-way."""

import pytest
import trio

from tests.net.loopback import TIMEOUT, TOPIC, mesh
from tests.node.test_node_topics import chain_node

pytestmark = pytest.mark.sockets


async def test_a_batch_arrives_whole_and_has_an_outcome_for_each_message() -> None:
    said = [b"message %d" % number for number in range(50)]
    with trio.fail_after(TIMEOUT):
        async with mesh(3) as nodes:
            subscriptions = [node.subscribe(TOPIC) for node in nodes]
            outcomes = await nodes[0].publish_batch(TOPIC, said)
            assert [len(outcome.peers) for outcome in outcomes] == [2] * 50
            for subscription in subscriptions:
                got = [(await anext(subscription)).data for _ in said]
                assert sorted(got) == sorted(said)


async def test_what_is_not_valid_does_not_keep_the_rest_of_a_batch_back() -> None:
    with trio.fail_after(TIMEOUT):
        async with chain_node() as node:
            heard = node.subscribe(TOPIC)
            good, bad, also_good = await node.publish_batch(TOPIC, [b"good", b"bad", b"also good"])
            assert bad.problem == "not valid on this topic: it is bad"
            assert good.message_id != also_good.message_id
            assert [(await anext(heard)).data for _ in range(2)] == [b"good", b"also good"]


async def test_a_publication_that_is_cancelled_leaves_the_node_as_it_was() -> None:
    """go: TestGossipsubSyncEvalAmidstCancellation, as far as it applies: callers may give up."""
    with trio.fail_after(TIMEOUT):
        async with chain_node() as node:
            heard = node.subscribe(TOPIC)
            with trio.CancelScope() as given_up:
                given_up.cancel()
                await node.publish(TOPIC, b"given up")
            assert given_up.cancelled_caught
            await node.publish(TOPIC, b"good")
            assert (await anext(heard)).data == b"good"
