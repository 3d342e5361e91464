"""One process of the demonstration: runs some of the nodes and does what it is told.

Orders come in on standard input, words go out on standard output, a JSON
object a line (`protocol`). It ends when its input does.
"""

import hashlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator

import msgspec
import trio

from bruit.node.config import NodeConfig, TopicConfig
from bruit.node.config.schema import NetworkConfig, ShutdownConfig
from bruit.node.demo.protocol import (
    Account,
    Begin,
    Dial,
    Failed,
    Figures,
    Got,
    Listening,
    Order,
    Ready,
    Refused,
    Send,
    Sent,
    Word,
)
from bruit.node.gossip import drops
from bruit.node.gossip.actions import Grafted, PeerSubscribed, Rejected
from bruit.node.node import Node
from bruit.topics.errors import BruitError
from bruit.topics.keys import peer_id_text

MAX_MESSAGE = 4_194_304  # bytes on the wire: a block of 4,000,000 that does not compress


class Worker:
    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._nodes: dict[int, Node] = {}

    async def run(self, orders: AsyncIterator[Order]) -> None:
        async with trio.open_nursery() as nursery:
            for index in self._begin.nodes:
                await nursery.start(self._run_node, index)
            async for order in orders:
                match order:
                    case Dial():
                        nursery.start_soon(self._nodes[order.node].connect, order.address)
                    case Send():
                        nursery.start_soon(self._send, order)
                    case Account():
                        for index in self._nodes:
                            say(self._figures(index))
                    case Begin():
                        raise ValueError("begun already")
            nursery.cancel_scope.cancel()

    async def _run_node(self, index: int, task_status: trio.TaskStatus[None]) -> None:
        config = NodeConfig(
            network=NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), min_peers=0),
            topics={
                self._begin.topic: TopicConfig(
                    codec="zstd",
                    validator="" if index == self._begin.careless else "bitcoin",
                    max_message_size=MAX_MESSAGE,
                )
            },
            plugins={"bitcoin": {"network": self._begin.network}},
            shutdown=ShutdownConfig(grace=0.5),
        )
        async with Node(config) as node, trio.open_nursery() as nursery:
            self._nodes[index] = node
            nursery.start_soon(self._watch, index, node)
            nursery.start_soon(self._receive, index, node)
            say(Listening(index, node.peer_id_text, node.addresses[0]))
            task_status.started()

    async def _watch(self, index: int, node: Node) -> None:
        ready = False
        async for report in node.reports():
            if isinstance(report, Rejected):
                who, author = peer_id_text(report.peer), peer_id_text(report.author)
                say(Refused(index, who, author, report.reason))
            elif isinstance(report, PeerSubscribed | Grafted) and not ready:
                ready = self._is_ready(index, node)
                if ready:
                    say(Ready(index))

    def _is_ready(self, index: int, node: Node) -> bool:
        router, topic = node.statistics().router, self._begin.topic
        neighbours = len(router.subscribers.get(topic, ()))
        return neighbours >= self._begin.neighbours[index] and bool(router.mesh[topic])

    async def _receive(self, index: int, node: Node) -> None:
        async with node.subscribe(self._begin.topic) as messages:
            async for message in messages:
                say(
                    Got(
                        index,
                        message.received_at,
                        peer_id_text(message.source),
                        hashlib.sha256(message.data).hexdigest(),
                        len(message.data),
                        message.facts,
                    )
                )

    async def _send(self, order: Send) -> None:
        data = await trio.Path(order.path).read_bytes()
        at = time.time()
        outcome = await self._nodes[order.node].publish(self._begin.topic, data)
        say(Sent(order.node, at, len(outcome.peers), outcome.problem))

    def _figures(self, index: int) -> Figures:
        statistics = self._nodes[index].statistics()
        counters = statistics.router.counters
        return Figures(
            index,
            statistics.traffic.bytes_in,
            statistics.traffic.bytes_out,
            counters.get(drops.DUPLICATE, 0),
            len(statistics.router.mesh[self._begin.topic]),
            counters.get("messages forwarded", 0),
        )


def say(word: Word) -> None:
    """Write one line. It is short, and the coordinator always reads."""
    sys.stdout.buffer.write(msgspec.json.encode(word) + b"\n")
    sys.stdout.buffer.flush()


async def lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends."""
    buffer = b""
    async for chunk in stream:
        *complete, buffer = (buffer + chunk).split(b"\n")
        for line in complete:
            yield line


async def main() -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        words = lines(stream)
        begin = msgspec.json.decode(await anext(words), type=Begin)

        async def orders() -> AsyncIterator[Order]:
            async for line in words:
                yield msgspec.json.decode(line, type=Order)

        try:
            await Worker(begin).run(orders())
        except* BruitError as problems:
            say(Failed("; ".join(str(problem) for problem in problems.exceptions)))


if __name__ == "__main__":
    # Neighbours are killed on purpose: what libp2p says of that is no news.
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    trio.run(main)
