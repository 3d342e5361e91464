"""Processes that check signatures, so that the event loop has its processor to itself.

A check takes some 50 µs without the GIL, but a thread must take the GIL back after
each one, and while the event loop is busy that lasts up to a switch interval (5 ms,
`sys.getswitchinterval`). Processes share no GIL.

They start when there is first something worth it. Until one is ready, and wherever
one fails, batches are checked in a worker thread, so no answer is ever lost.
"""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from bruit.node.net.verifying import READY, question, signed_by_author

# Measured: asking a process costs the event loop 50 µs, and 2 µs for each message of 1 KB.
# That is less than a thread costs for any batch, so these say only from when on a node is
# no longer so quiet that a process (0.2 s to start, 14 MB of its own) is waste; guesses.
WORTH_MESSAGES = 16
WORTH_BYTES = 16_384
# Bytes of a message, on average, from which on a thread is better: the GIL is taken back once
# in 200 µs or more, and copying a message to a process costs the event loop more than that.
LARGE = 65_536  # guess, of an order that was measured: at 500,000 the loop's time is halved
MIN_PIECE = 32  # messages, 2 ms; a batch is cut over idle processes while no piece has fewer
MAX_PIECE = 512  # messages, some 30 ms of a processor; guess
MAX_PIECE_BYTES = 4_194_304  # or one message; guess
# Batches that a process has been asked at a time: while the event loop deals with the
# answers to one it checks the next.
DEPTH = 2
START_TIMEOUT = 30.0  # seconds until a process is ready, 0.2 on an idle machine; guess
ANSWER_TIMEOUT = 10.0  # seconds for a piece, hundreds of times what the largest takes; guess
MAX_FAILURES = 3  # in a row, until no more processes are started; guess


class Verifiers:
    """Up to ``count`` processes, of one trio run. Any number of tasks may ask at once.

    `shared_verifiers` makes them and closes them.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.failures = 0  # of processes, ever
        self.trouble = ""  # what the last failure was
        self._failures_in_a_row = 0
        self._ready: list[_Process] = []
        self._newcomer: _Process | None = None  # still loading its modules
        self._starting = False
        self._closed = False
        self._freed = trio.lowlevel.ParkingLot()  # who waits for a process

    @property
    def running(self) -> int:
        """Processes that take batches."""
        return len(self._ready)

    @property
    def given_up(self) -> bool:
        """Whether failures keep more processes from being started."""
        return self._failures_in_a_row >= MAX_FAILURES

    async def verify(self, raws: Sequence[bytes]) -> list[bool]:
        """Whether each of ``raws`` is a message that its author signed, in their order.

        Never raises for what a peer has sent. When cancelled, the processes at work
        on ``raws`` are killed; others take their places when there is need.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._newcomer is not None:
            await self._look_at_newcomer()
        if sum(map(len, raws)) >= len(raws) * LARGE:
            return await _in_thread(raws)
        if self._want_another(raws):
            await self._start()
        if not self._ready:
            return await _in_thread(raws)
        pieces = list(cut(raws, self._idle))
        if len(pieces) == 1:
            return await self._check(raws)
        answers: list[list[bool]] = [[] for _ in pieces]

        async def check(at: int) -> None:
            answers[at] = await self._check(pieces[at])

        async with trio.open_nursery() as nursery:
            for at in range(len(pieces)):
                nursery.start_soon(check, at)
        return [valid for answer in answers for valid in answer]

    async def close(self) -> None:
        """End every process, and wait until all have ended."""
        self._closed = True
        ending = [*self._ready, *([self._newcomer] if self._newcomer else [])]
        self._ready, self._newcomer = [], None
        self._freed.unpark_all()
        for process in ending:
            process.kill()
        for process in ending:
            await process.end()

    async def _check(self, raws: Sequence[bytes]) -> list[bool]:
        """Ask the process that has least to do, or a thread where none is left or it fails."""
        while self._ready and min(process.asked for process in self._ready) >= DEPTH:
            await self._freed.park()
        if not self._ready:
            return await _in_thread(raws)
        process = min(self._ready, key=lambda process: process.asked)
        try:
            answer = await process.ask(raws)
        except OSError as problem:
            if process in self._ready:  # nobody else has noticed
                await self._fail(process, problem)
            return await _in_thread(raws)
        except BaseException:  # cancelled, for one: its answer would be taken for the next one's
            await self._remove(process)
            raise
        self._failures_in_a_row = 0
        self._freed.unpark()
        return answer

    @property
    def _idle(self) -> int:
        """Processes that nobody is asking."""
        return sum(not process.asked for process in self._ready)

    def _want_another(self, raws: Sequence[bytes]) -> bool:
        return (
            not (self._idle or self._newcomer or self._starting or self._closed or self.given_up)
            and len(self._ready) < self.count
            and (len(raws) >= WORTH_MESSAGES or sum(map(len, raws)) >= WORTH_BYTES)
        )

    async def _start(self) -> None:
        """Start a process. It takes batches from a later `_look_at_newcomer` on."""
        self._starting = True
        try:
            process = await _Process.start()
        except OSError as problem:
            self._note(f"a verifier process could not be started: {problem}")
            return
        finally:
            self._starting = False
        if self._closed:
            await process.end()
        else:
            self._newcomer = process

    async def _look_at_newcomer(self) -> None:
        process = self._newcomer
        if process is None:
            return
        try:
            if not process.is_ready():
                return
        except OSError as problem:
            self._newcomer = None
            await self._fail(process, problem)
            return
        self._newcomer = None
        self._ready.append(process)
        self._freed.unpark_all()

    async def _fail(self, process: "_Process", problem: OSError) -> None:
        self._note(str(problem))
        status = await self._remove(process)
        if isinstance(problem, ConnectionError):  # rather than for having been killed here
            self.trouble = f"{problem} (exit status {status})"

    def _note(self, trouble: str) -> None:
        self.failures += 1
        self._failures_in_a_row += 1
        self.trouble = trouble

    async def _remove(self, process: "_Process") -> int | None:
        """Kill a process; whoever else is asking it is told so. Its exit status."""
        if process in self._ready:
            self._ready.remove(process)
        self._freed.unpark_all()
        return await process.end()


class _Process:
    """A verifier process and the socket to it. Its methods raise OSError where it fails."""

    def __init__(self, process: trio.Process, end: socket.socket) -> None:
        self._process = process
        self._end = end
        self._ended = False
        self.asked = 0  # batches under way
        self._sending, self._receiving = trio.Lock(), trio.Lock()  # in the same order
        self._start_deadline = trio.current_time() + START_TIMEOUT

    @classmethod
    async def start(cls) -> "_Process":
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await trio.lowlevel.open_process(
                    # -P: nothing is imported from where the node happens to be started
                    [sys.executable, "-P", "-m", "bruit.node.net.verifying"],
                    stdin=theirs,
                    stdout=subprocess.DEVNULL,
                    env=environment(),
                    process_group=0,  # signals to the node's group are for the node
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return cls(process, ours)

    def is_ready(self) -> bool:
        try:
            word = self._end.recv(len(READY))
        except BlockingIOError:
            if trio.current_time() >= self._start_deadline:
                raise TimeoutError(
                    f"a verifier process was not ready in {START_TIMEOUT:g} s"
                ) from None
            return False
        if word != READY:
            raise ConnectionError("a verifier process ended before it was ready")
        return True

    async def ask(self, raws: Sequence[bytes]) -> list[bool]:
        """``raws`` is not empty."""
        answer = b""
        self.asked += 1
        try:
            with trio.move_on_after(ANSWER_TIMEOUT):
                async with self._sending:
                    await self._send(question(raws))
                async with self._receiving:
                    answer = await self._receive(len(raws) + len(READY))
        except trio.ClosedResourceError:
            raise ConnectionError("a verifier process was given up meanwhile") from None
        finally:
            self.asked -= 1
        if not answer:
            raise TimeoutError(f"a verifier process did not answer in {ANSWER_TIMEOUT:g} s")
        said = answer.removesuffix(READY)
        if len(said) != len(raws) or said.strip(b"\x00\x01"):
            raise ConnectionError("a verifier process answered what it was not asked")
        return [byte == 1 for byte in said]

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._end.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._end)

    async def _receive(self, count: int) -> bytes:
        answer = b""
        while len(answer) < count:
            if self._ended:
                raise ConnectionError("a verifier process was given up meanwhile")
            await trio.lowlevel.wait_readable(self._end)
            part = self._end.recv(count - len(answer))
            if not part:
                raise ConnectionError("a verifier process ended")
            answer += part
        return answer

    def kill(self) -> None:
        if not self._ended:
            self._ended = True
            trio.lowlevel.notify_closing(self._end)
            self._end.close()
        self._process.kill()

    async def end(self) -> int | None:
        """Kill it and wait for its end, whoever is cancelled meanwhile. Its exit status."""
        self.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()
        return self._process.returncode


def environment() -> dict[str, str]:
    """What a process gets: it imports from where this one does, however that came about."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name == "PYTHONHOME"
    }
    # An empty entry is the working directory, as in `sys.path`.
    return kept | {"PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}


def cut(raws: Sequence[bytes], processes: int) -> Iterator[Sequence[bytes]]:
    """Split a batch so that ``processes`` share it evenly, within the limits of a piece."""
    shares = max(1, min(processes, len(raws) // MIN_PIECE))
    most = min(-(-len(raws) // shares), MAX_PIECE)
    start = size = 0
    for at, raw in enumerate(raws):
        if at > start and (at - start >= most or size + len(raw) > MAX_PIECE_BYTES):
            yield raws[start:at]
            start, size = at, 0
        size += len(raw)
    if start < len(raws):
        yield raws[start:]


async def _in_thread(raws: Sequence[bytes]) -> list[bool]:
    return await trio.to_thread.run_sync(
        lambda: [signed_by_author(raw) for raw in raws], abandon_on_cancel=True
    )


class _Sharing:
    """The verifiers of a trio run, and how many use them."""

    def __init__(self) -> None:
        self.verifiers = Verifiers()
        self.users = 0


_sharing: trio.lowlevel.RunVar[_Sharing | None] = trio.lowlevel.RunVar("verifiers", None)


@asynccontextmanager
async def shared_verifiers(count: int) -> AsyncIterator[Verifiers]:
    """The verifiers that all nodes of this trio run share, until the last one leaves.

    They are as many processes as whoever wants most of them. Who wants none shares none.
    """
    if count == 0:
        yield Verifiers()
        return
    sharing = _sharing.get()
    if sharing is None:
        sharing = _Sharing()
        _sharing.set(sharing)
    sharing.users += 1
    sharing.verifiers.count = max(sharing.verifiers.count, count)
    try:
        yield sharing.verifiers
    finally:
        sharing.users -= 1
        if not sharing.users:
            _sharing.set(None)
            await sharing.verifiers.close()
