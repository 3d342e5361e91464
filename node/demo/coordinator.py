"""Runs the demonstration: starts the processes, publishes, kills, waits, and adds up."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from bruit.node.demo.plan import Plan
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
from bruit.node.demo.worker import lines
from bruit.topics.errors import BruitError
from bruit.topics.names import RelayTopic

TOPIC = str(RelayTopic("demo", "blocks", "bitcoin"))
START_TIMEOUT = 60.0  # seconds until every node has its mesh; guess, for a slow machine
RUN_TIMEOUT = 60.0  # seconds from publishing to the last delivery; guess, likewise
SETTLE = 1.5  # seconds to see that a refused block goes nowhere: two heartbeats
EXIT_TIMEOUT = 5.0  # seconds for a worker to end by itself


class DemoError(BruitError):
    """The demonstration could not be carried through."""


class Progress:
    """What is known of a run so far. Node numbers are keys."""

    def __init__(self, plan: Plan, digest: str) -> None:
        self.plan = plan
        self.digest = digest
        self.stage = "starting the nodes"
        self.addresses: dict[int, Listening] = {}
        self.ready: dict[int, None] = {}
        self.sent: Sent | None = None
        self.got: dict[int, Got] = {}
        self.refused: list[Refused] = []
        self.killed: tuple[int, ...] = ()
        self.figures: dict[int, Figures] = {}

    @property
    def delivered(self) -> list[int]:
        """Living nodes that have exactly the block that was published."""
        return [
            node
            for node in self.plan.survivors
            if node in self.got and self.got[node].digest == self.digest
        ]

    def node_of(self, peer: str) -> int:
        """The number of a peer id."""
        return next(
            number for number, listening in self.addresses.items() if listening.peer == peer
        )


async def run_demo(
    plan: Plan,
    block: bytes,
    network: str,
    tampered: bool,
    show: Callable[[Progress], None],
) -> Progress:
    """Carry out a plan with a block. ``show`` is called whenever something has changed.

    Raises DemoError when the nodes do not come up or a process fails; a block
    that does not arrive is no error but a result.
    """
    progress = Progress(plan, hashlib.sha256(block).hexdigest())
    with tempfile.TemporaryDirectory(prefix="bruit-demo-") as directory:
        path = Path(directory) / "block"
        path.write_bytes(block)
        try:
            async with trio.open_nursery() as nursery:
                run = _Run(progress, nursery, show)
                try:
                    await run.start(network, tampered)
                    await run.publish(path, tampered)
                    await run.account()
                finally:
                    await run.end()
        except* DemoError as errors:
            raise DemoError(str(errors.exceptions[0])) from None
    return progress


class _Run:
    def __init__(
        self, progress: Progress, nursery: trio.Nursery, show: Callable[[Progress], None]
    ) -> None:
        self._progress = progress
        self._plan = progress.plan
        self._nursery = nursery
        self._show = show
        self._processes: dict[tuple[int, ...], trio.Process] = {}
        self._heard = trio.lowlevel.ParkingLot()
        self._ending = False

    async def start(self, network: str, tampered: bool) -> None:
        """Bring up every node, connect them as planned, wait for their meshes."""
        neighbours = {node: len(each) for node, each in self._plan.neighbours().items()}
        for group in self._plan.groups:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "bruit.node.demo.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._processes[group] = process
            self._nursery.start_soon(self._listen, group, process)
            careless = self._plan.publisher if tampered else -1
            await self._tell(group[0], Begin(group, neighbours, TOPIC, network, careless))
        progress, nodes = self._progress, self._plan.nodes
        await self._until(lambda: len(progress.addresses) == nodes, START_TIMEOUT)
        progress.stage = "connecting"
        for dialer, listener in self._plan.pairs:
            await self._tell(dialer, Dial(dialer, progress.addresses[listener].address))
        await self._until(lambda: len(progress.ready) == nodes, START_TIMEOUT)

    async def publish(self, path: Path, tampered: bool) -> None:
        """Publish, kill whom the plan wants killed, and wait until it is decided."""
        progress, plan = self._progress, self._plan
        progress.stage = "publishing"
        self._show(progress)
        await self._tell(plan.publisher, Send(plan.publisher, str(path)))
        await self._until(lambda: progress.sent is not None, START_TIMEOUT)
        if progress.sent is not None and progress.sent.problem:
            raise DemoError(f"the block could not be published: {progress.sent.problem}")
        progress.stage = "the block is on its way"
        if tampered:
            first_hop = len(plan.neighbours()[plan.publisher])
            await self._until(
                lambda: len(progress.refused) >= first_hop, RUN_TIMEOUT, required=False
            )
            await trio.sleep(SETTLE)
            return
        if plan.victims:
            await self._until(lambda: len(progress.got) > 1, RUN_TIMEOUT, required=False)
            progress.killed = plan.victims
            for victim in plan.victims:
                self._processes[victim,].kill()
        alive = len(plan.survivors)
        await self._until(lambda: len(progress.delivered) == alive, RUN_TIMEOUT, required=False)

    async def account(self) -> None:
        progress = self._progress
        progress.stage = "adding up"
        for group in self._plan.groups:
            if group[0] not in progress.killed:
                await self._tell(group[0], Account())
        survivors = self._plan.nodes - len(progress.killed)
        await self._until(lambda: len(progress.figures) == survivors, START_TIMEOUT)
        progress.stage = "done"
        self._show(progress)

    async def end(self) -> None:
        """Close every worker's input, which ends it; kill what does not."""
        self._ending = True
        with trio.CancelScope(shield=True):
            for process in self._processes.values():
                assert process.stdin is not None  # opened as a pipe
                await process.stdin.aclose()
            with trio.move_on_after(EXIT_TIMEOUT):
                for process in self._processes.values():
                    await process.wait()
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()

    async def _tell(self, node: int, order: Order | Begin) -> None:
        group = next(group for group in self._plan.groups if node in group)
        stdin = self._processes[group].stdin
        assert stdin is not None  # opened as a pipe
        try:
            await stdin.send_all(msgspec.json.encode(order) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise DemoError(f"the process of nodes {group} has ended") from None

    async def _listen(self, group: tuple[int, ...], process: trio.Process) -> None:
        assert process.stdout is not None  # opened as a pipe
        async for line in lines(process.stdout):
            self._take(msgspec.json.decode(line, type=Word))
            self._show(self._progress)
            self._heard.unpark_all()
        if not self._ending and group[0] not in self._progress.killed:
            raise DemoError(f"the process of nodes {group} ended unexpectedly")

    def _take(self, word: Word) -> None:
        progress = self._progress
        match word:
            case Listening():
                progress.addresses[word.node] = word
            case Ready():
                progress.ready[word.node] = None
            case Sent():
                progress.sent = word
            case Got():
                progress.got[word.node] = word
            case Refused():
                progress.refused.append(word)
            case Figures():
                progress.figures[word.node] = word
            case Failed():
                raise DemoError(f"a node failed: {word.problem}")

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
