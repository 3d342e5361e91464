"""One process of the demonstration: one node, which does what it is told, and cheats if it must.

Orders come and words go over one socket, a JSON object a line (`protocol`). It ends when that does.
"""

import contextlib
import hashlib
import logging
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import trio

from bruit.node.demo.relay.faults import (
    CheatingNode,
    CorruptingMember,
    DroppingMember,
    WithholdingMember,
    Wrap,
    forged,
)
from bruit.node.demo.relay.folders import CHANNEL, CONFIG, RELAY_KEY, TOPIC
from bruit.node.demo.relay.plan import Fault, Role
from bruit.node.demo.relay.protocol import (
    Account,
    Connect,
    Failed,
    Figures,
    Found,
    Got,
    Listening,
    Misdeed,
    Order,
    Ready,
    Relayed,
    Send,
    Sent,
    Task,
    Word,
)
from bruit.node.demo.worker import lines
from bruit.node.gossip.actions import Rejected
from bruit.node.identity import load_key_file
from bruit.node.node import Node
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.wire import (
    ATTESTATION_SIZE,
    decode_acknowledgement,
    decode_attestation,
)
from bruit.node.relaying import Relay
from bruit.node.reports import Disputed
from bruit.topics.errors import BruitError, LocalError
from bruit.topics.keys import peer_id_text

LOOK_INTERVAL = 0.2  # seconds between looks at what changes without a report; guess
CONNECT_ATTEMPTS = 3  # guess: many nodes that start at once are slow
FORGED = 4  # chunks that an outsider witnesses; guess: it has lost its peers by then
# Seconds after which a chunk is too old that it is passed on again: timestamps are whole seconds,
# and members bear with one more.
OVERDUE = 1.5

Say = Callable[[Word], None]


class Worker:
    def __init__(self, task: Task, say: Say) -> None:
        self._index = task.place
        self._plan = task.plan
        self._place = task.plan.places[task.place]
        self._folder = Path(task.folder)
        self._say = say
        self._node: Node
        self._nursery: trio.Nursery
        self._broadcasts = 0
        self._refused: dict[str, int] = {}  # peer → messages of it that broke the rules

    async def run(self, orders: AsyncIterator[Order]) -> None:
        async with self._make_node() as node, trio.open_nursery() as nursery:
            self._node, self._nursery = node, nursery
            nursery.start_soon(self._watch_reports)
            nursery.start_soon(self._watch_readiness)
            match self._place.role:
                case Role.MEMBER:
                    nursery.start_soon(self._watch_relay)
                case Role.CONSUMER:
                    nursery.start_soon(self._receive)
                case Role.OUTSIDER:
                    nursery.start_soon(self._forge)
                case Role.PRODUCER:
                    pass
            self._say(Listening(self._index, node.peer_id_text, node.addresses[0]))
            async for order in orders:
                match order:
                    case Connect():
                        nursery.start_soon(self._connect, order.addresses)
                    case Send():
                        nursery.start_soon(self._send, Path(order.path))
                    case Account():
                        nursery.start_soon(self._account)
            nursery.cancel_scope.cancel()

    def _make_node(self) -> Node:
        config = self._folder / CONFIG
        wraps: dict[Fault, Wrap] = {
            Fault.DROPS: DroppingMember,
            Fault.CORRUPTS: CorruptingMember,
            Fault.WITHHOLDS: lambda honest: WithholdingMember(honest, self._withhold),
        }
        wrap = wraps.get(self._place.fault)
        return Node(config) if wrap is None else CheatingNode(config, wrap)

    @property
    def _relay(self) -> Relay:
        if self._node.relay is None:
            raise LocalError(f"{self._place.name} has no part in the relay")
        return self._node.relay

    # Getting ready

    async def _connect(self, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            for attempt in range(1, CONNECT_ATTEMPTS + 1):
                try:
                    await self._node.connect(address)
                    break
                except LocalError:
                    if attempt == CONNECT_ATTEMPTS:
                        raise

    async def _watch_readiness(self) -> None:
        while True:
            if self._is_ready():
                self._say(Ready(self._index))
                return
            await trio.sleep(LOOK_INTERVAL)

    def _is_ready(self) -> bool:
        plan, neighbours = self._plan, self._plan.neighbours(self._index)
        if len(self._node.peers()) < len(neighbours):
            return False
        listeners = [each for each in neighbours if _listens(plan.places[each].role)]
        router = self._node.statistics().router
        if len(router.subscribers.get(TOPIC, ())) < len(listeners):
            return False
        if _listens(self._place.role) and listeners and not router.mesh.get(TOPIC):
            return False
        if self._node.relay is None:
            return True
        known = sum(each.members for each in self._node.relay.status().clusters)
        return known == len(plan.of(Role.MEMBER))

    # What happens

    async def _watch_reports(self) -> None:
        async for report in self._node.reports():
            if isinstance(report, Rejected):
                peer = peer_id_text(report.peer)
                self._refused[peer] = self._refused.get(peer, 0) + 1
            elif isinstance(report, Disputed):
                evidence = report.evidence
                self._say(
                    Found(
                        self._index,
                        evidence.kind.value,
                        evidence.reason,
                        evidence.message_id.hex(),
                        tuple(each.hex() for each in evidence.producers),
                        tuple(each.hex() for each in evidence.culprits),
                        str(report.file or ""),
                    )
                )

    async def _watch_relay(self) -> None:
        told = (0, 0)
        while True:
            status = self._relay.status()
            if (now := (status.witnessed, status.published)) != told:
                told = now
                self._say(Relayed(self._index, *now))
            await trio.sleep(LOOK_INTERVAL)

    async def _receive(self) -> None:
        async with self._relay.blocks(CHANNEL) as blocks:
            async for block in blocks:
                digest = hashlib.sha256(block.block).hexdigest()
                self._say(Got(self._index, block.received_at, digest, block.clusters))

    async def _account(self) -> None:
        known = await self._node.explanations()  # of those who have left, too
        blamed = {peer_id_text(each.peer): round(each.score, 2) for each in known if each.score < 0}
        dropped = {} if self._node.relay is None else dict(self._relay.status().dropped)
        self._say(Figures(self._index, dropped, dict(self._refused), blamed))

    # A producer's

    async def _send(self, path: Path) -> None:
        block = await trio.Path(path).read_bytes()
        self._broadcasts += 1
        at = time.time()
        try:
            if self._place.fault is Fault.FORGETS and self._broadcasts > 1:
                proof = await self._send_anew(block)
            else:
                proof = await self._relay.broadcast(CHANNEL, block)
        except BruitError as problem:
            self._say(Sent(at, str(problem)))
            return
        given = [
            decode_acknowledgement(each.acknowledgement).cluster
            for each in proof.receipts
            if each.acknowledgement
        ]
        self._say(
            Sent(
                at,
                "",
                proof.message_id.hex(),
                len(proof.receipts),
                sum(len(each.tried) for each in proof.receipts),
                {cluster: given.count(cluster) for cluster in sorted(given)},
            )
        )

    async def _send_anew(self, block: bytes) -> ProofOfBroadcast:
        """Broadcast from a second node with the same keys, which knows of no stake in use."""
        self._say(Misdeed(self._index, "attaches to a second block the stake of the first"))
        async with Node(self._folder / CONFIG) as second:
            if second.relay is None:
                raise LocalError(f"{self._place.name} has no part in the relay")
            return await second.relay.broadcast(CHANNEL, block)

    # Cheating

    def _withhold(self, frame: bytes) -> None:
        self._nursery.start_soon(self._replay, frame)

    async def _replay(self, frame: bytes) -> None:
        attestation = decode_attestation(frame[:ATTESTATION_SIZE])
        due = attestation.timestamp + self._plan.params.tolerable_latency + OVERDUE
        await trio.sleep(max(due - time.time(), 0.0))
        age = time.time() - attestation.timestamp
        self._say(
            Misdeed(self._index, f"publishes chunk {attestation.chunk} when it is {age:.1f} s old")
        )
        await self._node.publish(TOPIC, frame)

    async def _forge(self) -> None:
        key = load_key_file(self._folder / RELAY_KEY)
        plan = self._plan
        channel = ChannelParams(
            id=1,
            topic=TOPIC,
            min_chunks=plan.min_chunks,
            num_chunks=plan.num_chunks,
            attesting=plan.attesting,
        )
        seen: dict[int, None] = {}
        async with self._node.subscribe(TOPIC) as messages:
            while len(seen) < FORGED:
                frame = (await anext(messages)).data
                chunk = decode_attestation(frame[:ATTESTATION_SIZE]).chunk
                if chunk not in seen:
                    seen[chunk] = None
                    self._say(Misdeed(self._index, f"witnesses chunk {chunk}, and publishes it"))
                    await self._node.publish(TOPIC, forged(frame, channel, key.secret))


def _listens(role: Role) -> bool:
    """Whether a node of this role is subscribed to the channel's topic."""
    return role in (Role.CONSUMER, Role.OUTSIDER)


def serve(connection: socket.socket, task: Task) -> None:
    """The life of a process. ``connection``: to the coordinator."""
    # An interrupt reaches all processes of a terminal; the coordinator's end is enough for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)  # neighbours cheat and leave on purpose: that is no news
    trio.run(_serve, connection, task)


async def _serve(connection: socket.socket, task: Task) -> None:
    connection.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    send, receive = trio.open_memory_channel[Word](math.inf)

    async def write() -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the coordinator has ended
            async for word in receive:
                await stream.send_all(msgspec.json.encode(word) + b"\n")

    async def orders() -> AsyncIterator[Order]:
        async for line in lines(stream):
            yield msgspec.json.decode(line, type=Order)

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(write)
        with contextlib.suppress(trio.BrokenResourceError):
            try:
                await Worker(task, send.send_nowait).run(orders())
            except* BruitError as problems:
                text = "; ".join(str(problem) for problem in problems.exceptions)
                send.send_nowait(Failed(task.place, text))
        send.close()
