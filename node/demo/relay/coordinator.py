"""Runs the demonstration: starts the processes, broadcasts, waits, and adds up."""

import hashlib
import multiprocessing
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import trio

from bruit.node.demo.coordinator import DemoError
from bruit.node.demo.relay.folders import Folders, write_marketplace
from bruit.node.demo.relay.plan import Plan, Role, Variant
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
from bruit.node.demo.relay.worker import serve
from bruit.node.demo.worker import lines
from bruit.node.relay.evidence import Kind

PRELOAD = "bruit.node.demo.relay.preload"
START_TIMEOUT = 60.0  # seconds until every node is ready; guess, for a slow machine
RUN_TIMEOUT = 40.0  # seconds from a broadcast to the end of what it leads to; guess, likewise
SETTLE = 1.0  # seconds to see that nothing more comes: a heartbeat; guess
EXIT_TIMEOUT = 5.0  # seconds for a worker to end by itself


class Progress:
    """What is known of a run so far. Keys are indices of the plan's places."""

    def __init__(self, plan: Plan, digests: Sequence[str]) -> None:
        self.plan = plan
        self.digests = tuple(digests)  # SHA-256 of the blocks, in order
        self.stage = "starting the nodes"
        self.started = 0
        self.listening: dict[int, Listening] = {}
        self.ready: dict[int, None] = {}
        self.sent: list[Sent] = []
        self.got: list[Got] = []
        self.found: list[Found] = []
        self.relayed: dict[int, Relayed] = {}
        self.misdeeds: list[Misdeed] = []
        self.figures: dict[int, Figures] = {}

    def delivery(self, consumer: int, block: int = 0) -> Got | None:
        """How a consumer got a block."""
        digest = self.digests[block] if block < len(self.digests) else ""
        return next(
            (each for each in self.got if (each.place, each.digest) == (consumer, digest)), None
        )

    def delivered(self, block: int = 0) -> list[int]:
        """The consumers that have a block."""
        return [
            index
            for index in self.plan.of(Role.CONSUMER)
            if self.delivery(index, block) is not None
        ]

    def finders(self, kind: Kind) -> list[int]:
        """Who has disputed for a reason, each once."""
        return list(dict.fromkeys(each.place for each in self.found if each.kind == kind.value))

    def place_of(self, peer: str) -> int | None:
        """Whose peer id it is."""
        return next(
            (index for index, each in self.listening.items() if each.peer == peer),
            None,
        )


async def run_demo(
    plan: Plan, folders: Folders, blocks: Sequence[Path], show: Callable[[Progress], None]
) -> Progress:
    """Carry out a plan. ``blocks``: files, the second for a producer that sends two.

    ``show`` is called whenever something has changed. Raises DemoError when the nodes do not come
    up or a process fails; a block that does not arrive is no error but a result.
    """
    digests = [hashlib.sha256(await trio.Path(each).read_bytes()).hexdigest() for each in blocks]
    progress = Progress(plan, digests)
    try:
        async with trio.open_nursery() as nursery:
            run = _Run(progress, folders, nursery, show)
            try:
                await run.start()
                await run.broadcast(blocks)
                await run.account()
            finally:
                await run.end()
    except* DemoError as errors:
        raise DemoError(str(errors.exceptions[0])) from None
    return progress


class _Run:
    def __init__(
        self,
        progress: Progress,
        folders: Folders,
        nursery: trio.Nursery,
        show: Callable[[Progress], None],
    ) -> None:
        self._progress = progress
        self._plan = progress.plan
        self._folders = folders
        self._nursery = nursery
        self._show = show
        self._processes: list[ForkServerProcess] = []
        self._streams: dict[int, trio.SocketStream] = {}
        self._heard = trio.lowlevel.ParkingLot()
        self._ending = False

    async def start(self) -> None:
        """Bring up every node, tell the marketplace where they are, and connect them as planned."""
        plan, progress, count = self._plan, self._progress, len(self._plan.places)
        for index in range(count):
            await self._start_worker(index)
            progress.started += 1
            self._show(progress)
        await self._until(lambda: len(progress.listening) == count, START_TIMEOUT)
        progress.stage = "connecting"
        addresses = {index: each.address for index, each in progress.listening.items()}
        write_marketplace(self._folders, plan, addresses)
        for dialer in range(count):
            listeners = tuple(addresses[other] for one, other in plan.pairs if one == dialer)
            await self._tell(dialer, Connect(listeners))
        await self._until(lambda: len(progress.ready) == count, START_TIMEOUT)

    async def _start_worker(self, index: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOAD])
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._streams[index] = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        task = Task(self._plan, index, str(self._folders.nodes[index]))
        with theirs:
            process = context.Process(target=serve, args=(theirs, task), daemon=True)
            self._processes.append(process)
            await trio.to_thread.run_sync(process.start)
        self._nursery.start_soon(self._listen, index)

    async def broadcast(self, blocks: Sequence[Path]) -> None:
        """Broadcast the blocks, and wait until it is decided what comes of them."""
        progress = self._progress
        [producer] = self._plan.of(Role.PRODUCER)
        for number, block in enumerate(blocks):
            progress.stage = f"block {number + 1} is on its way" if number else "on its way"
            self._show(progress)
            await self._tell(producer, Send(str(block)))
            await self._until(lambda: len(progress.sent) > number, RUN_TIMEOUT)  # noqa: B023, here
            if progress.sent[-1].problem:
                raise DemoError(f"the block could not be sent: {progress.sent[-1].problem}")
            await self._until(self._is_decided, RUN_TIMEOUT, required=False)
        progress.stage = "looking for what comes late"
        self._show(progress)
        await trio.sleep(SETTLE)

    def _is_decided(self) -> bool:
        progress = self._progress
        consumers = self._plan.of(Role.CONSUMER)
        if len(progress.sent) > 1:
            return bool(progress.finders(Kind.OVERLAPPING_STAKE))
        match self._plan.variant:
            case Variant.BAD_BLOCK:
                return _all_in(consumers, progress.finders(Kind.INVALID_BLOCK))
            case Variant.FALSE_WITNESS:
                done = _all_in(consumers, progress.finders(Kind.FALSE_WITNESS))
            case Variant.REPLAY:
                done = bool(progress.finders(Kind.REPLAY))
            case _:
                done = True
        given_up = progress.finders(Kind.TOO_FEW_CHUNKS)
        return done and _all_in(consumers, [*progress.delivered(), *given_up])

    async def account(self) -> None:
        progress = self._progress
        progress.stage = "adding up"
        for index in range(len(self._plan.places)):
            await self._tell(index, Account())
        await self._until(lambda: len(progress.figures) == len(self._plan.places), START_TIMEOUT)
        progress.stage = "done"
        self._show(progress)

    async def end(self) -> None:
        """Close every worker's socket, which ends it; kill what does not end."""
        self._ending = True
        with trio.CancelScope(shield=True):
            for stream in self._streams.values():
                await stream.aclose()
            deadline = trio.current_time() + EXIT_TIMEOUT
            for process in self._processes:
                if process.pid is None:
                    continue  # it has not been started
                left = max(deadline - trio.current_time(), 0.0)
                await trio.to_thread.run_sync(process.join, left)
                if process.is_alive():
                    process.kill()
                    await trio.to_thread.run_sync(process.join)

    async def _tell(self, index: int, order: Order) -> None:
        try:
            await self._streams[index].send_all(msgspec.json.encode(order) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise DemoError(f"the process of {self._name(index)} has ended") from None

    async def _listen(self, index: int) -> None:
        try:
            async for line in lines(self._streams[index]):
                self._take(msgspec.json.decode(line, type=Word))
                self._show(self._progress)
                self._heard.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # its end, or ours
        if not self._ending:
            raise DemoError(f"the process of {self._name(index)} ended unexpectedly")

    def _name(self, index: int) -> str:
        return self._plan.places[index].name

    def _take(self, word: Word) -> None:
        progress = self._progress
        match word:
            case Listening(place):
                progress.listening[place] = word
            case Ready(place):
                progress.ready[place] = None
            case Sent():
                progress.sent.append(word)
            case Got():
                progress.got.append(word)
            case Found():
                progress.found.append(word)
            case Relayed(place):
                progress.relayed[place] = word
            case Misdeed():
                progress.misdeeds.append(word)
            case Figures(place):
                progress.figures[place] = word
            case Failed(place, problem):
                raise DemoError(f"{self._name(place)} failed: {problem}")

    async def _until(
        self, holds: Callable[[], bool], seconds: float, *, required: bool = True
    ) -> None:
        """Wait. When it takes too long, raise DemoError, or go on where it is not ``required``."""
        with trio.move_on_after(seconds):
            while not holds():
                await self._heard.park()
            return
        if required:
            raise DemoError(f"{self._progress.stage} took more than {seconds:g} s")


def _all_in(wanted: Sequence[int], found: Sequence[int]) -> bool:
    return all(each in found for each in wanted)
