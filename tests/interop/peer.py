"""Peer processes: started, told what to do, watched, killed."""

import base64
import itertools
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from bruit.node.identity import encode_private_key, new_key
from tests.interop.protocol import Line, Order, Settings, Status

ROOT = Path(__file__).parents[2]
OURS = "ours"
START_TIMEOUT = 30.0  # seconds until a process listens; Node and Python start slowly on a busy core
ANSWER_TIMEOUT = 60.0  # seconds until a command is answered, a long publish included
POLL_INTERVAL = 0.1  # seconds between looks at a status


class InteropError(Exception):
    """Something promised did not happen."""


class Heard(NamedTuple):
    at: float  # trio's clock, seconds
    line: Line


class Peer:
    """One process, and what it has said."""

    def __init__(self, kind: str, name: str, settings: Settings, process: trio.Process) -> None:
        self.kind = kind
        self.name = name
        self.settings = settings
        self.id = ""
        self.address = ""
        self._process = process
        self._events: list[Heard] = []
        self._answers: dict[int, dict[str, object]] = {}
        self._numbers = itertools.count(1)
        self._heard = trio.lowlevel.ParkingLot()
        self._ended = ""

    def __str__(self) -> str:
        return self.name

    @property
    def running(self) -> bool:
        return not self._ended and self._process.returncode is None

    # What it says

    async def listen(self, errors: Path) -> None:
        """Take its lines until it ends. ``errors`` is where its standard error goes."""
        stdout = self._process.stdout
        assert stdout is not None  # opened as a pipe
        buffer = b""
        async for chunk in stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            self._heard.unpark_all()
        status = await self._process.wait()
        self._ended = self._ended or f"exited with status {status}, see {errors}"
        self._heard.unpark_all()

    def _take(self, text: bytes) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError as problem:
            raise InteropError(f"{self} wrote {text[:200]!r}: {problem}") from None
        if line.answer:
            self._answers[line.answer] = json.loads(text)
            return
        if line.event == "fatal":
            self._ended = line.error
        elif line.event == "listening":
            self.id, self.address = line.peer, line.address
        self._events.append(Heard(trio.current_time(), line))

    async def _until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        with trio.move_on_after(seconds):
            while not holds():
                if self._ended:
                    raise InteropError(f"{self} {self._ended}, while waiting for {what}")
                await self._heard.park()
            return
        raise InteropError(f"{self}: no {what} in {seconds:g} s")

    async def until_listening(self) -> None:
        await self._until(lambda: bool(self.address), START_TIMEOUT, "sign of life")

    def heard(self, event: str, of: "Peer", since: float = 0.0) -> Iterator[Heard]:
        """Its events of a kind about a peer."""
        for heard in self._events:
            if heard.line.event == event and heard.line.peer == of.id and heard.at >= since:
                yield heard

    async def hear(self, event: str, of: "Peer", since: float, seconds: float) -> Heard:
        """The first event of a kind about a peer since a time."""

        def found() -> bool:
            return next(self.heard(event, of, since), None) is not None

        await self._until(found, seconds, f"{event} of {of}")
        return next(self.heard(event, of, since))

    # What it is told

    async def order(
        self,
        do: str,
        *,
        address: str = "",
        tag: str = "",
        count: int = 0,
        size: int = 0,
        rate: float = 0.0,
    ) -> dict[str, object]:
        """Give a command and return its answer. Raises InteropError where that is an error."""
        number = next(self._numbers)
        order = Order(id=number, do=do, address=address, tag=tag, count=count, size=size, rate=rate)
        assert self._process.stdin is not None  # opened as a pipe
        try:
            await self._process.stdin.send_all(msgspec.json.encode(order) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise InteropError(f"{self} has ended, and cannot {do}") from None
        await self._until(lambda: number in self._answers, ANSWER_TIMEOUT, f"answer to {do}")
        answer = self._answers.pop(number)
        if error := answer.get("error"):
            raise InteropError(f"{self} could not {do}: {error}")
        return answer

    async def connect(self, other: "Peer") -> None:
        await self.order("connect", address=other.address)

    async def publish(self, tag: str, count: int, size: int, rate: float = 0.0) -> None:
        """Publish, and see that all was taken."""
        answer = await self.order("publish", tag=tag, count=count, size=size, rate=rate)
        if answer.get("published") != count:
            raise InteropError(f"{self} published {answer.get('published')} of {count} ({tag})")

    async def status(self) -> Status:
        return msgspec.convert(await self.order("status"), Status)

    async def reaches(self, holds: Callable[[Status], bool], seconds: float) -> bool:
        """Ask for its status until something holds, or for so long."""
        with trio.move_on_after(seconds):
            while True:
                if holds(await self.status()):
                    return True
                await trio.sleep(POLL_INTERVAL)
        return False

    async def until(self, holds: Callable[[Status], bool], seconds: float, what: str) -> None:
        if not await self.reaches(holds, seconds):
            last = msgspec.json.encode(await self.status()).decode()
            raise InteropError(f"{self}: not in {seconds:g} s: {what}; its status: {last}")

    async def until_meshed(self, *others: "Peer", seconds: float = 15.0) -> None:
        """Wait until others are in its mesh, over the newest protocol."""

        def meshed(status: Status) -> bool:
            near = [status.neighbour(other.id) for other in others]
            return all(each.ready and each.mesh for each in near)

        await self.until(meshed, seconds, f"{', '.join(map(str, others))} in its mesh")

    async def until_received(self, tag: str, count: int, seconds: float) -> None:
        await self.until(
            lambda status: status.tally(tag).distinct >= count, seconds, f"{count} of {tag}"
        )

    # How it ends

    async def stop(self) -> None:
        """Let it close host and connections."""
        await self.order("stop")
        await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Network:
    """The peers of one scenario."""

    def __init__(
        self, nursery: trio.Nursery, commands: dict[str, Sequence[str]], errors: Path
    ) -> None:
        self.peers: list[Peer] = []
        self._nursery = nursery
        self._commands = commands
        self._errors = errors
        self._counts: dict[str, int] = {}

    async def start(self, kind: str, **settings: object) -> Peer:
        """Start a peer. It has an identity of its own; other settings have defaults."""
        secret = base64.b64encode(encode_private_key(new_key())).decode()
        return await self._run(kind, msgspec.convert({"secret": secret} | settings, Settings))

    async def restart(self, peer: Peer, **changes: object) -> Peer:
        """Start a peer anew that has ended, with the same identity at the same address."""
        port = int(peer.address.split("/")[4])
        settings = msgspec.structs.replace(peer.settings, port=port, **changes)
        return await self._run(peer.kind, settings)

    async def _run(self, kind: str, settings: Settings) -> Peer:
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        name = f"{kind}-{number}"
        errors = self._errors / f"{name}.log"
        with errors.open("wb") as stderr:
            process = await trio.lowlevel.open_process(
                [*self._commands[kind], msgspec.json.encode(settings).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,  # where Python finds this package
            )
        peer = Peer(kind, name, settings, process)
        self.peers.append(peer)
        self._nursery.start_soon(peer.listen, errors)
        await peer.until_listening()
        return peer

    def running(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.running]

    async def end(self) -> None:
        for peer in self.peers:
            await peer.kill()


@asynccontextmanager
async def network(commands: dict[str, Sequence[str]], errors: Path) -> AsyncIterator[Network]:
    """A network without peers, whose processes do not outlive it.

    ``commands``: kind of peer → how to start one; ``errors``: folder for what
    processes write to standard error. Raises InteropError for whatever goes wrong
    between it and a process.
    """
    await trio.Path(errors).mkdir(parents=True, exist_ok=True)
    try:
        async with trio.open_nursery() as nursery:
            running = Network(nursery, commands, errors)
            try:
                yield running
            finally:
                with trio.CancelScope(shield=True):
                    await running.end()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem
