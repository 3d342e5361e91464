"""Nodes on the loopback interface, and what a test waits for."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import trio

from bruit import Node, NodeConfig, TopicConfig
from bruit.node.config.schema import NetworkConfig, ShutdownConfig
from bruit.node.identity import new_key
from bruit.topics.keys import KeyType

TOPIC = "/lux/test/relay/blocks/loopback"
TIMEOUT = 30.0  # seconds, of a test that has gone wrong
Kind = TypeVar("Kind")


def config(
    *, port: int = 0, peers: Sequence[str] = (), topic: TopicConfig | None = None
) -> NodeConfig:
    """A node that listens on the loopback interface and joins TOPIC."""
    return NodeConfig(
        network=NetworkConfig(listen=(f"/ip4/127.0.0.1/tcp/{port}",), peers=tuple(peers)),
        topics={TOPIC: topic or TopicConfig()},
        shutdown=ShutdownConfig(grace=1.0),
    )


@asynccontextmanager
async def mesh(count: int) -> AsyncIterator[list[Node]]:
    """So many nodes, every one connected to every other and subscribed to TOPIC.

    Their keys are Ed25519 and secp256k1 by turns.
    """
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for number in range(count):
            kind = (KeyType.ED25519, KeyType.SECP256K1)[number % 2]
            peers = [node.addresses[0] for node in nodes]
            nodes.append(await stack.enter_async_context(Node(config(peers=peers), new_key(kind))))
        for node in nodes:
            await node.wait_for_peers(TOPIC, count - 1)
        yield nodes


class Visit:
    """A node that runs in a task of its own, and so can end before others that began later."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.gone = trio.Event()
        self._over = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self.node:
            task_status.started()
            await self._over.wait()
        self.gone.set()

    def end(self) -> None:
        self._over.set()


async def first(reports: AsyncIterable[object], kind: type[Kind]) -> Kind:
    """The next report of a kind."""
    async for report in reports:
        if isinstance(report, kind):
            return report
    raise AssertionError(f"the reports ended without a {kind.__name__}")


async def until_connected(*nodes: Node) -> None:
    """Wait until each knows every other to be subscribed to TOPIC."""
    with trio.fail_after(TIMEOUT):
        for node in nodes:
            await node.wait_for_peers(TOPIC, len(nodes) - 1)
