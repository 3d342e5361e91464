"""A subscriber of blocks that is behind loses the newest, and holds up nobody."""

import msgspec
import pytest

from bruit.node.relay.actions import DeliverBlock
from bruit.node.relay_blocks import BACKLOG, BACKLOG_BYTES, BlockSubscription, ReceivedBlock

ACTION = DeliverBlock(7, b"abcd", b"block", bytes(32), (bytes(20),), {"size": 5}, 1.5, {3: 4})


def test_a_block_is_handed_on_with_all_that_is_known_of_it() -> None:
    received = msgspec.structs.asdict(ReceivedBlock.of(ACTION, 2.5))
    assert received == msgspec.structs.asdict(ACTION) | {"received_at": 2.5}


@pytest.mark.parametrize(
    ("size", "kept"), [(10, BACKLOG), (BACKLOG_BYTES // 2, 2), (BACKLOG_BYTES + 1, 1)]
)
async def test_a_subscriber_that_is_behind_loses_the_newest(size: int, kept: int) -> None:
    subscription = BlockSubscription(7, lambda each: None)
    received = ReceivedBlock.of(msgspec.structs.replace(ACTION, block=bytes(size)), 2.5)
    taken = [subscription.deliver(received) for _ in range(kept + 2)]
    assert taken == [True] * kept + [False] * 2
    assert subscription.lost == 2
    await anext(subscription)
    assert subscription.deliver(received)


async def test_a_closed_subscription_gives_what_came_before_and_ends() -> None:
    closed: list[BlockSubscription] = []
    async with BlockSubscription(7, closed.append) as subscription:
        subscription.deliver(ReceivedBlock.of(ACTION, 2.5))
    assert closed == [subscription]
    assert [received.block async for received in subscription] == [b"block"]
