"""Processes of the bench: started, given orders, watched in /proc, ended.

What a process takes includes its children: ours checks signatures in processes of
their own. CPU time is user and system time in /proc/PID/stat: it counts every thread,
ended ones and ended children too, which /proc/PID/task/*/schedstat does not, in steps
of 10 ms. Resident memory is Rss of /proc/PID/smaps_rollup, which is exact; the counters
in /proc/PID/status are kept per processor, and lag. Pages that a child shares with its
parent count twice.
"""

import itertools
import json
import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "build" / "bench" / "logs"
START_TIMEOUT = 60.0  # seconds until a process listens; 200 nodes of Python take ten
ANSWER_TIMEOUT = 30.0  # seconds until a command without a length of its own is answered
END_TIMEOUT = 2.0  # seconds that a process has to end by itself
_TICKS = os.sysconf("SC_CLK_TCK")  # per second of CPU time

Answer = dict[str, Any]
_numbers = itertools.count(1)


class BenchError(Exception):
    """A process could not do its part."""


class Remote:
    """One process of PROTOCOL.md. A context manager: it does not outlive the block."""

    def __init__(self, name: str, command: Sequence[str], settings: dict[str, object]) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = f"{name}-{next(_numbers)}"
        self.log = LOGS / f"{self.name}.log"
        with self.log.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [*command, json.dumps(settings)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as problem:
                raise BenchError(f"{self.name} does not start: {problem}") from None
        self.addresses: list[str] = []
        self.versions: dict[str, str] = {}
        self._first: Future[Answer] = Future()  # the line that says that it listens
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Answer]] = {}
        self._ended = ""
        # Orders are written by a thread of their own: a process that hangs takes none.
        self._orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Remote":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def listen(self) -> None:
        """Wait until its nodes do."""
        line = self.result(self._first, START_TIMEOUT, "sign of life")
        self.addresses = [node["address"] for node in line["nodes"]]
        self.versions = line["versions"]

    def order(self, do: str, **fields: object) -> Future[Answer]:
        """Give a command; its answer comes when it comes."""
        answer: Future[Answer] = Future()
        number = next(self._ids)
        with self._lock:
            if self._ended:
                answer.set_exception(BenchError(self._ended))
                return answer
            self._pending[number] = answer
        self._orders.put(json.dumps({"id": number, "do": do} | fields).encode() + b"\n")
        return answer

    def ask(self, do: str, timeout: float = ANSWER_TIMEOUT, **fields: object) -> Answer:
        """Give a command and wait for its answer. Raises BenchError where there is none."""
        return self.result(self.order(do, **fields), timeout, f"answer to {do}")

    def result(self, answer: Future[Answer], timeout: float, what: str) -> Answer:
        try:
            line = answer.result(timeout)
        except NotInTime:
            raise BenchError(f"{self.name}: no {what} in {timeout:g} s, see {self._log}") from None
        if error := line.get("error"):
            raise BenchError(f"{self.name}: no {what}: {error}")
        return line

    @property
    def _log(self) -> str:
        return str(self.log.relative_to(ROOT))

    def _read(self) -> None:
        assert self._process.stdout is not None  # opened as a pipe
        with self._process.stdout as lines:
            for text in lines:
                try:
                    self._take(json.loads(text))
                except (ValueError, AttributeError):
                    self._fail(f"{self.name} wrote {text[:100]!r}: no line of the protocol")
        status = self._process.wait()
        self._fail(f"{self.name} ended with status {status}, see {self._log}")

    def _take(self, line: Answer) -> None:
        if number := line.get("answer"):
            with self._lock:
                answer = self._pending.pop(number, None)
            if answer is not None:
                answer.set_result(line)
        elif line.get("event") == "listening":
            self._first.set_result(line)
        elif line.get("event") == "fatal":
            self._fail(f"{self.name} ended: {line.get('error')}")

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason
            waiting = list(self._pending.values())
            self._pending.clear()
        for answer in [self._first, *waiting]:
            if not answer.done():
                answer.set_exception(BenchError(self._ended))

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # opened as a pipe
        with suppress(OSError), stdin:  # of one that has ended: the reading thread tells
            while line := self._orders.get():
                stdin.write(line)
                stdin.flush()

    def cpu(self) -> float:
        """Seconds of CPU time that it and its children have taken so far."""
        # After the name, which may hold anything, and its parenthesis: fields 3 and on.
        fields = [text.rpartition(")")[2].split() for text in self._family("stat")]
        # utime, stime, and those of children that were waited for: proc(5)
        return sum(int(each) for found in fields for each in found[11:15]) / _TICKS

    def rss_mb(self) -> float:
        """Resident memory of it and its children, MB of 1,000,000 bytes."""
        lines = (line for text in self._family("smaps_rollup") for line in text.splitlines())
        return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024 / 1e6

    def _family(self, file: str) -> list[str]:
        """A file in /proc of the process and of all below it."""
        processes, texts = [self._process.pid], list[str]()
        for process in processes:  # which grows meanwhile
            with suppress(OSError):  # of a child that has just ended
                texts.append(Path(f"/proc/{process}/{file}").read_text())
            for task in Path(f"/proc/{process}/task").glob("*/children"):
                with suppress(OSError):
                    processes += map(int, task.read_text().split())
        if not texts:
            raise BenchError(f"{self.name} has ended, see {self._log}")
        return texts

    def end(self) -> None:
        """End of its standard input, which it ends at; where it does not, a signal."""
        self._orders.put(b"")
        try:
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(END_TIMEOUT)
