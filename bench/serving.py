"""What every Python peer of the bench does alike: commands, runs and payloads of PROTOCOL.md."""

import hashlib
import json
import os
import struct
import sys
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
import trio

HEAD = struct.Struct(">IIQ")  # run, index, time of publication: PROTOCOL.md, "Commands"
TAIL = struct.Struct(">I")  # the index again
SMALLEST = 24  # bytes of a payload, same place
LOOK_INTERVAL = 0.02  # seconds between looks of a `wait`; guess: nothing beside a run
PATTERN = bytes(7 * position & 0xFF for position in range(256))  # of a payload, repeated

Take = Callable[[bytes], None]


class Settings(msgspec.Struct, frozen=True):
    """The argument of a process."""

    nodes: int = 1
    policy: str = "sign"  # or "nosign"
    heartbeats: bool = False
    listen: str = "127.0.0.1"  # IPv4 address


class Order(msgspec.Struct, frozen=True):
    """A command, with the fields that some of them have."""

    id: int
    do: str
    node: int = 0
    address: str = ""
    topics: tuple[str, ...] = ()
    topic: str = ""
    run: int = 0
    count: int = 0
    size: int = 0
    rate: float = 0.0
    silence: float = 0.0
    path: str = ""
    sha256: str = ""
    timeout: float = 0.0


class Node(Protocol):
    """One node of an implementation."""

    peer: str
    address: str

    async def connect(self, address: str) -> None: ...

    async def subscribe(self, topic: str, take: Take) -> None:
        """Hand every message of others to ``take``."""

    def peers(self, topic: str) -> int: ...

    async def publish(self, topic: str, data: bytes) -> bool:
        """Whether it was taken."""


class Hosting(msgspec.Struct):
    """The nodes of a process."""

    nodes: Sequence[Node]
    versions: dict[str, str]
    heartbeats: list[float] = []  # seconds that those of node 0 took, as they come


class Run:
    """Messages of one run, as far as they have come."""

    def __init__(self, nodes: int, length: int) -> None:
        self.length = length
        self.counts = [0] * nodes
        self.repeated = self.wrong = self.last = 0
        self.delays = array("q")  # nanoseconds
        self._marks = [bytearray() for _ in range(nodes)]

    def take(self, node: int, data: bytes, index: int, sent: int) -> None:
        now = time.time_ns()
        if len(data) != self.length or TAIL.unpack_from(data, len(data) - 4)[0] != index:
            self.wrong += 1
            return
        marks = self._marks[node]
        if index >= len(marks):
            marks.extend(bytes(index + 1024))
        if marks[index]:
            self.repeated += 1
            return
        marks[index] = 1
        self.counts[node] += 1
        self.last = now
        self.delays.append(now - sent)

    def tally(self) -> dict[str, object]:
        return {
            "counts": self.counts,
            "repeated": self.repeated,
            "wrong": self.wrong,
            "last": self.last,
        }


class Expected:
    """A message that is known beforehand, as far as it has come."""

    def __init__(self, nodes: int, size: int) -> None:
        self.size = size
        self.times = [0] * nodes  # ns of the clock
        self.next = trio.Event()  # another node has it

    def come(self, node: int) -> None:
        if not self.times[node]:
            self.times[node] = time.time_ns()
            self.next.set()
            self.next = trio.Event()


class Server:
    """Does what the commands say."""

    def __init__(self, hosting: Hosting, nursery: trio.Nursery) -> None:
        self._hosting = hosting
        self._nursery = nursery
        self._runs: dict[int, Run] = {}
        self._subscribed: dict[int, None] = {}
        self._expected: dict[str, Expected] = {}  # by SHA-256, in hexadecimal

    async def serve(self, orders: AsyncIterator[Order]) -> None:
        async for order in orders:
            match order.do:
                case "connect" | "publish" | "publish_file" | "wait" | "arrived":
                    self._nursery.start_soon(self._answer, order)
                case _:
                    await self._answer(order)

    async def _answer(self, order: Order) -> None:
        try:
            answer = await self._obey(order)
        except Exception as problem:  # noqa: BLE001, whatever a library raises is the answer
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        say({"answer": order.id} | answer)

    async def _obey(self, order: Order) -> dict[str, object]:
        node = self._hosting.nodes[order.node]
        match order.do:
            case "connect":
                await node.connect(order.address)
            case "subscribe":
                self._subscribed[order.node] = None
                for topic in order.topics:
                    await node.subscribe(topic, self._taker(order.node))
            case "peers":
                return {"count": node.peers(order.topic)}
            case "publish":
                return await publish(node, order)
            case "publish_file":
                return await publish_file(node, order)
            case "expect":
                self._expected[order.sha256] = Expected(len(self._hosting.nodes), order.size)
            case "arrived":
                return await self._arrived(order)
            case "received":
                return self._run(order.run).tally()
            case "wait":
                return await self._wait(order)
            case "latencies":
                return {"ns": self._run(order.run).delays.tolist()}
            case "heartbeats":
                seconds = self._hosting.heartbeats.copy()
                self._hosting.heartbeats.clear()
                return {"seconds": seconds}
            case "forget":
                self._runs.pop(order.run, None)
            case unknown:
                return {"error": f"no such command: {unknown}"}
        return {}

    def _run(self, number: int) -> Run:
        return self._runs.get(number) or Run(len(self._hosting.nodes), 0)

    def _taker(self, node: int) -> Take:
        runs, nodes = self._runs, len(self._hosting.nodes)

        def take(data: bytes) -> None:
            if self._expected and self._is_expected(node, data):
                return
            if len(data) < SMALLEST:
                number, index, sent = 0, 0, 0  # wrong in the run that there is not
            else:
                number, index, sent = HEAD.unpack_from(data)
            run = runs.get(number)
            if run is None:
                run = runs[number] = Run(nodes, len(data))
            run.take(node, data, index, sent)

        return take

    def _is_expected(self, node: int, data: bytes) -> bool:
        if all(len(data) != each.size for each in self._expected.values()):
            return False
        expected = self._expected.get(hashlib.sha256(data).hexdigest())
        if expected is None:
            return False
        expected.come(node)
        return True

    async def _arrived(self, order: Order) -> dict[str, object]:
        expected = self._expected[order.sha256]
        with trio.move_on_after(order.timeout):
            while not all(expected.times[node] for node in self._subscribed):
                await expected.next.wait()
        return {"times": expected.times}

    async def _wait(self, order: Order) -> dict[str, object]:
        since, seen = trio.current_time(), -1
        while True:
            run = self._run(order.run)
            if all(run.counts[node] >= order.count for node in self._subscribed):
                return run.tally()
            came = sum(run.counts)
            if came != seen:
                since, seen = trio.current_time(), came
            elif trio.current_time() - since >= order.silence:
                return run.tally()
            await trio.sleep(LOOK_INTERVAL)


def bodies(count: int, size: int) -> list[bytes]:
    """What follows the time in each payload."""
    if size < SMALLEST:
        raise ValueError(f"payload of {size} bytes: {SMALLEST} at least")
    filling = (PATTERN * (size // len(PATTERN) + 1))[HEAD.size : size - TAIL.size]
    return [filling + TAIL.pack(index) for index in range(count)]


async def publish(node: Node, order: Order) -> dict[str, object]:
    topic, run, rate = order.topic, order.run, order.rate
    payloads = bodies(order.count, order.size)
    taken, began = 0, time.time_ns()
    for index, body in enumerate(payloads):
        if rate:
            ahead = began / 1e9 + index / rate - time.time()
            if ahead > 0:
                await trio.sleep(ahead)
        taken += await node.publish(topic, HEAD.pack(run, index, time.time_ns()) + body)
    return {"taken": taken, "began": began, "ended": time.time_ns()}


async def publish_file(node: Node, order: Order) -> dict[str, object]:
    data = await trio.Path(order.path).read_bytes()
    began = time.time_ns()
    taken = await node.publish(order.topic, data)
    return {"taken": int(taken), "began": began, "ended": time.time_ns()}


def say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def orders_of(stream: trio.abc.ReceiveStream) -> AsyncIterator[Order]:
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=Order)


def listening(nodes: Sequence[Node], versions: dict[str, str]) -> dict[str, object]:
    """The first line of a process."""
    named = [{"peer": node.peer, "address": node.address} for node in nodes]
    return {"event": "listening", "nodes": named, "versions": versions}


def start(host: Callable[[Settings], AbstractAsyncContextManager[Hosting]]) -> None:
    """Run the peer of this process. ``host`` starts its nodes."""

    async def main() -> None:
        async with (
            host(msgspec.json.decode(sys.argv[1], type=Settings)) as hosting,
            trio.open_nursery() as nursery,
            trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream,
        ):
            say(listening(hosting.nodes, hosting.versions))
            await Server(hosting, nursery).serve(orders_of(stream))
            os._exit(0)  # at once, as PROTOCOL.md has it: no goodbyes

    run(main)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """As trio does; an exception is said before it ends the process."""
    try:
        trio.run(main)
    except BaseException as problem:
        first = next(_leaves(problem))
        say({"event": "fatal", "error": f"{type(first).__name__}: {first}"})
        raise


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for each in problem.exceptions:
            yield from _leaves(each)
    else:
        yield problem
