"""A peer of this project's own node for the interoperation runs: see README.md."""

import base64
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec
import trio

from bruit.node.config import NetworkConfig, NodeConfig, TopicConfig
from bruit.node.config.schema import GossipConfig, ShutdownConfig
from bruit.node.config.scoring import ScoringConfig
from bruit.node.gossip import drops
from bruit.node.gossip.actions import PeerJoined
from bruit.node.identity import decode_private_key
from bruit.node.node import Node
from bruit.plugins.hookspecs import hookimpl
from bruit.scoring.params import PeerTerms, TopicScoreParams
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import BruitError, LocalError
from bruit.topics.keys import PeerId, peer_id_text
from bruit.topics.message import SignaturePolicy
from bruit.topics.validation import ACCEPTED, Validation
from tests.interop.protocol import Control, Neighbour, Order, Settings, Status, Tally, payload

LOOK_INTERVAL = 0.25  # seconds between looks at the scores


class DelayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: float


class Delay:
    """A plugin that accepts every message after a while."""

    Config = DelayConfig

    def __init__(self, config: DelayConfig) -> None:
        self._seconds = config.seconds

    @hookimpl
    def validate(self) -> Validation:
        time.sleep(self._seconds)
        return ACCEPTED


def scoring(settings: Settings) -> ScoringConfig:
    """The scores of README.md."""
    deliveries = -1.0 if settings.expected_deliveries else 0.0  # P3's weight
    return ScoringConfig(
        thresholds=Thresholds(gossip=-10.0, publish=-50.0, graylist=-100.0),
        peer=PeerTerms(
            behaviour_penalty_weight=-10.0,
            behaviour_penalty_decay=0.9999,
            decay_interval=1.0,
            decay_to_zero=0.01,
        ),
        topic=TopicScoreParams(
            mesh_message_deliveries_weight=deliveries,
            mesh_message_deliveries_threshold=max(1, settings.expected_deliveries),
            mesh_message_deliveries_cap=1000.0,
            mesh_message_deliveries_decay=0.999,
            mesh_message_deliveries_window=2.0,
            mesh_message_deliveries_activation=settings.activation,
            mesh_failure_penalty_weight=deliveries,
            mesh_failure_penalty_decay=0.999,
            invalid_message_deliveries_weight=-10.0,
            invalid_message_deliveries_decay=0.9999,
        ),
        topics={},
    )


def node_config(settings: Settings) -> NodeConfig:
    signed = settings.policy == "sign"
    topic = TopicConfig(
        subscribe=False,
        message_id="origin" if signed else "content",
        validator="delay" if settings.validation_delay else "",
    )
    return NodeConfig(
        network=NetworkConfig(
            listen=(f"/ip4/127.0.0.1/tcp/{settings.port}",), peers=settings.peers, min_peers=0
        ),
        gossip=GossipConfig(
            signature_policy=(
                SignaturePolicy.STRICT_SIGN if signed else SignaturePolicy.STRICT_NO_SIGN
            ),
            flood_publish=settings.flood_publish,
            idontwant_threshold=settings.idontwant_threshold,
            d=settings.d,
            d_lo=settings.d_lo,
            d_hi=settings.d_hi,
            d_score=min(4, settings.d),
            d_out=settings.d_out,
            d_lazy=settings.d_lazy,
            heartbeat_interval=settings.heartbeat,
            prune_backoff=settings.prune_backoff,
            unsubscribe_backoff=settings.unsubscribe_backoff,
        ),
        scoring=scoring(settings),
        topics={settings.topic: topic},
        plugins={"delay": {"seconds": settings.validation_delay}},
        shutdown=ShutdownConfig(grace=1.0),
    )


class OurPeer:
    """Does what the orders say."""

    def __init__(self, settings: Settings, node: Node) -> None:
        self._topic = settings.topic
        self._node = node
        self._subscribed = trio.CancelScope()  # cancelled to unsubscribe
        self._protocols: dict[PeerId, str] = {}
        self._lowest: dict[PeerId, float] = {}  # score
        self._tallies: dict[str, Tally] = {}
        self._indices: dict[str, set[int]] = {}

    async def serve(self, orders: AsyncIterator[Order], nursery: trio.Nursery) -> int:
        """Return the number of the order to stop, or 0 where the orders ended.

        A subscriber in the nursery outlives this: it has to end after the node, since
        one that goes first leaves the topic, and a node that stops does not.
        """
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch)
            watching.start_soon(self._look_at_scores)
            number = await self._obey(orders, nursery)
            watching.cancel_scope.cancel()
        return number

    async def _obey(self, orders: AsyncIterator[Order], nursery: trio.Nursery) -> int:
        async for order in orders:
            match order.do:
                case "connect" | "publish":
                    nursery.start_soon(self._answer, order)
                case "subscribe":
                    await nursery.start(self._receive)
                    say({"answer": order.id})
                case "unsubscribe":
                    self._subscribed.cancel()
                    say({"answer": order.id})
                case "status":
                    say({"answer": order.id} | msgspec.to_builtins(self._status()))
                case "stop":
                    return order.id
                case unknown:
                    say({"answer": order.id, "error": f"no such command: {unknown}"})
        return 0

    async def _answer(self, order: Order) -> None:
        answer: dict[str, object] = {"answer": order.id}
        try:
            if order.do == "connect":
                await self._node.connect(order.address)
            else:
                await self._publish(order)
                answer["published"] = order.count
        except BruitError as problem:
            answer["error"] = str(problem)
        say(answer)

    async def _publish(self, order: Order) -> None:
        start = trio.current_time()
        for index in range(order.count):
            if order.rate:
                await trio.sleep_until(start + index / order.rate)
            data = payload(order.tag, index, order.size)
            outcome = await self._node.publish(self._topic, data)
            if outcome.dropped:
                raise LocalError(f"message {index} did not fit into every queue")

    async def _receive(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._subscribed:
            async with self._node.subscribe(self._topic) as messages:
                task_status.started()
                async for message in messages:
                    if message.source != self._node.peer_id:
                        self._count(message.data)

    def _count(self, data: bytes) -> None:
        tag, number = data[:100].decode("latin-1").split(":")[:2]
        index = int(number)
        tally = self._tallies.setdefault(tag, Tally())
        seen = self._indices.setdefault(tag, set())
        if data != payload(tag, index, len(data)):
            tally.wrong += 1
        elif index in seen:
            tally.repeated += 1
        else:
            seen.add(index)
            tally.distinct += 1

    async def _watch(self) -> None:
        async for report in self._node.reports():
            if isinstance(report, PeerJoined):
                self._protocols[report.peer] = report.protocol.value

    async def _look_at_scores(self) -> None:
        while True:
            self._scores()
            await trio.sleep(LOOK_INTERVAL)

    def _scores(self) -> dict[PeerId, float]:
        scores = self._node.scores()
        for peer, score in scores.items():
            self._lowest[peer] = min(score, self._lowest.get(peer, score))
        return scores

    def _status(self) -> Status:
        scores = self._scores()
        router = self._node.statistics().router
        counters = router.counters
        subscribers = router.subscribers.get(self._topic, ())
        mesh = router.mesh.get(self._topic, ())
        return Status(
            received=self._tallies,
            peers={
                peer_id_text(peer): Neighbour(
                    protocol=self._protocols.get(peer),
                    subscribed=peer in subscribers,
                    mesh=peer in mesh,
                    score=scores.get(peer),
                    lowest=self._lowest.get(peer),
                )
                for peer in router.peers
            },
            sent=Control(
                ihave=counters.get("IHAVE ids sent", 0),
                iwant=counters.get("IWANT ids sent", 0),
                idontwant=counters.get("IDONTWANT ids sent", 0),
            ),
            got=Control(),
            duplicates=counters.get(drops.DUPLICATE, 0),
            rejected=counters.get("messages rejected", 0),
            forwarded=counters.get("messages forwarded", 0),
        )


def say(line: dict[str, object]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def orders_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[Order, None]:
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=Order)


async def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    key = decode_private_key(base64.b64decode(settings.secret))
    async with trio.open_nursery() as nursery:
        async with Node(node_config(settings), key, plugins={"delay": Delay}) as node:
            say({"event": "listening", "peer": node.peer_id_text, "address": node.addresses[0]})
            async with (
                trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream,
                contextlib.aclosing(orders_of(stream)) as orders,
            ):
                stop = await OurPeer(settings, node).serve(orders, nursery)
        nursery.cancel_scope.cancel()
    if stop:
        say({"answer": stop})


if __name__ == "__main__":
    trio.run(main)
