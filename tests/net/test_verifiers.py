"""Verifier processes: the answers are those of `signature_valid`, whatever becomes of them."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.identity import new_key
from bruit.node.net.verifiers import (
    ANSWER_TIMEOUT,
    DEPTH,
    LARGE,
    MAX_FAILURES,
    MAX_PIECE,
    MAX_PIECE_BYTES,
    MIN_PIECE,
    START_TIMEOUT,
    WORTH_BYTES,
    WORTH_MESSAGES,
    Verifiers,
    cut,
    environment,
    shared_verifiers,
)
from bruit.node.net.verifying import question, signed_by_author
from bruit.topics.keys import KeyType
from bruit.topics.message import Author, SignaturePolicy, decode_message, signature_valid
from bruit.topics.message_pb2 import PubsubMessage

TIMEOUT = 30.0  # seconds, of a test that has gone wrong
AUTHOR = Author(new_key(KeyType.ED25519), SignaturePolicy.STRICT_SIGN, 1)
OTHER = Author(new_key(KeyType.SECP256K1), SignaturePolicy.STRICT_SIGN, 1)
NOBODY = Author(new_key(KeyType.ED25519), SignaturePolicy.STRICT_NO_SIGN, 1)


def signed(data: bytes = b"data", author: Author = AUTHOR) -> bytes:
    return author.write("/topic", data).raw


def forged(data: bytes = b"data", author: Author = AUTHOR) -> bytes:
    body = PubsubMessage.FromString(signed(data, author))
    body.data += b"!"
    return body.SerializeToString()


BATCH = [signed(bytes([at])) for at in range(WORTH_MESSAGES)]
MIXED = [signed(), forged(), b"\xff", signed(author=OTHER), forged(author=OTHER), b"", *BATCH]
OF_MIXED = [True, False, False, True, False, False, *[True] * len(BATCH)]


async def until_running(verifiers: Verifiers, count: int) -> None:
    """Ask until so many processes take batches: several at once, or a second never starts."""
    with trio.fail_after(TIMEOUT):
        while verifiers.running < count:
            async with trio.open_nursery() as nursery:
                for _ in range(count + 1):
                    nursery.start_soon(verifiers.verify, BATCH)
            await trio.sleep(0.01)


class Started:
    """Notes the processes that are started."""

    def __init__(self) -> None:
        self.processes: list[trio.Process] = []
        self._open = trio.lowlevel.open_process

    async def open(self, *args: object, **options: object) -> trio.Process:
        process: trio.Process = await self._open(*args, **options)  # type: ignore[call-overload]
        self.processes.append(process)
        return process

    def signal(self, number: signal.Signals) -> None:
        self.processes[-1].send_signal(number)

    def all_reaped(self) -> bool:
        for process in self.processes:
            try:
                os.kill(process.pid, 0)  # finds a process that has ended and was not waited for
            except ProcessLookupError:
                continue
            return False
        return True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    monkeypatch.setattr(trio.lowlevel, "open_process", started.open)
    return started


# What is answered


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[Sequence[bytes]], list[bool]]]:
    """Asks one process that runs through all of the module, from outside of trio."""
    ready = threading.Event()
    finish = trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []
    pools: list[Verifiers] = []

    async def main() -> None:
        async with shared_verifiers(1) as verifiers:
            await until_running(verifiers, 1)
            tokens.append(trio.lowlevel.current_trio_token())
            pools.append(verifiers)
            ready.set()
            await finish.wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(TIMEOUT)
    yield lambda raws: trio.from_thread.run(pools[0].verify, raws, trio_token=tokens[0])
    running, failures = pools[0].running, pools[0].failures
    trio.from_thread.run_sync(finish.set, trio_token=tokens[0])
    thread.join(TIMEOUT)
    assert (running, failures) == (1, 0)


authors = st.sampled_from([AUTHOR, OTHER, NOBODY])
messages = st.one_of(
    st.builds(signed, st.binary(max_size=2000), authors),
    st.builds(forged, st.binary(max_size=2000), authors),
    st.binary(max_size=100),
    st.builds(
        lambda raw, at, byte: raw[: at % len(raw)] + bytes([byte]) + raw[at % len(raw) + 1 :],
        st.builds(signed, st.binary(max_size=50), authors),
        st.integers(0, 1000),
        st.integers(0, 255),
    ),
)


@given(raws=st.lists(messages, max_size=40))
@settings(deadline=None)
def test_a_process_answers_what_a_check_here_would(
    raws: list[bytes], ask: Callable[[Sequence[bytes]], list[bool]]
) -> None:
    assert ask(raws) == [signed_by_author(raw) for raw in raws]


def test_what_does_not_parse_is_not_signed() -> None:
    assert signature_valid(decode_message(signed()))
    assert [signed_by_author(raw) for raw in MIXED] == OF_MIXED


async def test_the_first_batch_is_answered_before_a_process_is_there_and_later_ones_by_it() -> None:
    async with shared_verifiers(1) as verifiers:
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.running == 0
        await until_running(verifiers, 1)
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert await verifiers.verify([]) == []
        assert (verifiers.running, verifiers.failures, verifiers.trouble) == (1, 0, "")


async def test_batches_far_larger_than_a_socket_holds_pass() -> None:
    large = [signed(bytes(3_000_000)), forged(bytes(3_000_000)), signed(bytes(6_000_000))]
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        with trio.fail_after(TIMEOUT):
            assert await verifiers.verify(large) == [True, False, True]
            assert await verifiers.verify(MIXED * 100) == OF_MIXED * 100
        assert verifiers.failures == 0


async def test_tasks_share_the_processes_and_each_gets_its_own_answers() -> None:
    got: dict[int, list[bool]] = {}
    async with shared_verifiers(2) as verifiers:
        await until_running(verifiers, 2)

        async def ask(task: int) -> None:
            got[task] = await verifiers.verify([forged(), *BATCH[:task], forged(), signed()])

        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                for task in range(12):
                    nursery.start_soon(ask, task)
                nursery.start_soon(verifiers.verify, MIXED * 4)
        assert got == {task: [False, *[True] * task, False, True] for task in range(12)}
        assert (verifiers.running, verifiers.failures) == (2, 0)


@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 5), st.integers(MAX_PIECE_BYTES - 5, MAX_PIECE_BYTES + 5)),
        max_size=8,
    ),
    many=st.integers(0, 3 * MAX_PIECE),
    processes=st.integers(0, 8),
)
@settings(deadline=None, max_examples=50)
def test_pieces_keep_the_order_and_their_limits(
    sizes: list[int], many: int, processes: int
) -> None:
    raws = [bytes(size) for size in sizes] + [b"message"] * many
    pieces = list(cut(raws, processes))
    assert [raw for piece in pieces for raw in piece] == raws
    for piece in pieces:
        assert 0 < len(piece) <= MAX_PIECE
        assert len(piece) == 1 or sum(map(len, piece)) <= MAX_PIECE_BYTES


@pytest.mark.parametrize(
    ("messages", "processes", "pieces"),
    [
        (MIN_PIECE, 2, [MIN_PIECE]),
        (2 * MIN_PIECE - 1, 2, [2 * MIN_PIECE - 1]),
        (2 * MIN_PIECE, 2, [MIN_PIECE, MIN_PIECE]),
        (2 * MIN_PIECE + 1, 8, [MIN_PIECE + 1, MIN_PIECE]),
        (2 * MIN_PIECE, 0, [2 * MIN_PIECE]),
        (MAX_PIECE + 1, 0, [MAX_PIECE, 1]),
    ],
)
def test_a_batch_is_shared_by_idle_processes_where_each_gets_enough(
    messages: int, processes: int, pieces: list[int]
) -> None:
    assert [len(piece) for piece in cut([b"message"] * messages, processes)] == pieces


# When processes start and end


async def test_none_is_started_for_little(started: Started) -> None:
    async with shared_verifiers(2) as verifiers:
        assert await verifiers.verify(BATCH[:-1]) == [True] * (len(BATCH) - 1)
        assert not started.processes
        assert await verifiers.verify([signed(bytes(WORTH_BYTES))]) == [True]
        assert len(started.processes) == 1
    assert started.all_reaped()


async def test_none_is_started_where_none_is_wanted(started: Started) -> None:
    async with shared_verifiers(1) as others:
        await until_running(others, 1)
        async with shared_verifiers(0) as verifiers:
            assert verifiers is not others
            assert await verifiers.verify(MIXED) == OF_MIXED
            assert verifiers.running == 0
    assert len(started.processes) == 1


async def test_no_more_are_started_than_wanted(started: Started) -> None:
    async with shared_verifiers(2) as verifiers:
        await until_running(verifiers, 2)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(verifiers.verify, MIXED)
        assert verifiers.running == len(started.processes) == 2


async def test_nodes_share_them_until_the_last_one_leaves(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        async with shared_verifiers(2) as same:
            assert same is verifiers
            assert verifiers.count == 2
            await until_running(verifiers, 2)
        assert verifiers.running == 2
        assert await verifiers.verify(MIXED) == OF_MIXED
    assert verifiers.running == 0
    assert started.all_reaped()
    assert await verifiers.verify(MIXED) == OF_MIXED  # a straggler is served, by a thread
    assert len(started.processes) == 2
    async with shared_verifiers(1) as later:
        assert later is not verifiers


async def test_they_end_even_when_their_user_is_cancelled(started: Started) -> None:
    with trio.CancelScope() as scope:
        async with shared_verifiers(1) as verifiers:
            await until_running(verifiers, 1)
            scope.cancel()
            await trio.sleep_forever()
    assert len(started.processes) == 1
    assert started.all_reaped()


async def test_one_that_still_starts_ends_with_the_others(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        await verifiers.verify(BATCH)
        assert (verifiers.running, len(started.processes)) == (0, 1)
    assert started.all_reaped()


async def test_it_does_not_import_from_where_the_node_was_started(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("msgspec.py", "struct.py", "bruit.py"):
        (tmp_path / name).write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        assert verifiers.failures == 0


def test_what_the_environment_says_to_python_is_for_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONINSPECT", "1")
    monkeypatch.setenv("PYTHONHOME", "/python")
    monkeypatch.setattr(sys, "path", ["", "/here"])
    got = environment()
    assert "PYTHONINSPECT" not in got
    assert got["PYTHONHOME"] == "/python"  # without it Python may not find its own modules
    assert got["PYTHONPATH"] == f"{Path.cwd()}{os.pathsep}/here"


async def test_ctrl_c_is_not_for_it(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        assert os.getpgid(started.processes[0].pid) != os.getpgid(0)
        started.signal(signal.SIGINT)
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.failures == 0


NODE = """
import sys, trio
from bruit.node.net.verifiers import shared_verifiers
from bruit.node.net.verifying import signed_by_author

async def main():
    async with shared_verifiers(1) as verifiers:
        while not verifiers.running:
            await verifiers.verify([b""] * 16)
            await trio.sleep(0.01)
        print("running", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def test_it_ends_when_its_node_is_killed() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", NODE],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as node:
        assert node.stdout is not None
        assert node.stderr is not None
        assert node.stdout.readline() == b"running\n"
        node.kill()
        # Both write to this pipe: it ends when the second one has ended.
        assert node.stderr.read() == b""


# When processes fail


async def test_one_killed_amid_a_batch_costs_no_answer(started: Started) -> None:
    got: list[list[bool]] = []
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)

        async def ask() -> None:
            got.append(await verifiers.verify(MIXED))

        started.signal(signal.SIGSTOP)
        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                for _ in range(3):  # one is asked, two wait for it
                    nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                assert got == []
                started.signal(signal.SIGKILL)
        assert got == [OF_MIXED] * 3
        assert (verifiers.running, verifiers.failures) == (0, 1)
        assert verifiers.trouble.endswith("(exit status -9)")
        assert started.all_reaped()
        await until_running(verifiers, 1)
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert (len(started.processes), verifiers.failures) == (2, 1)


async def test_one_killed_while_idle_is_replaced(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        started.signal(signal.SIGKILL)
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.failures == 1
        assert started.all_reaped()
        await until_running(verifiers, 1)


# A socket of Linux holds 212,992 bytes (net.core.wmem_default).
@pytest.mark.parametrize(
    "batch", [MIXED, [signed(bytes(LARGE // 2))] * 32], ids=["unread", "unsent"]
)
async def test_one_that_hangs_is_given_up_in_time(
    batch: list[bytes], started: Started, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        started.signal(signal.SIGSTOP)
        mock_clock.rate = 0.0
        got: list[list[bool]] = []

        async def ask() -> None:
            got.append(await verifiers.verify(batch))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            mock_clock.jump(ANSWER_TIMEOUT - 0.1)
            await wait_all_tasks_blocked()
            assert got == []
            mock_clock.jump(0.1)
        assert got == [[signed_by_author(raw) for raw in batch]]
        assert (verifiers.running, verifiers.failures) == (0, 1)
        assert "did not answer in 10 s" in verifiers.trouble
        assert started.all_reaped()


async def test_one_that_never_gets_ready_is_given_up_in_time(
    started: Started, mock_clock: MockClock
) -> None:
    async with shared_verifiers(1) as verifiers:
        await verifiers.verify(BATCH)
        started.signal(signal.SIGSTOP)
        mock_clock.jump(START_TIMEOUT - 0.1)
        await verifiers.verify(BATCH)
        assert (verifiers.failures, len(started.processes)) == (0, 1)
        mock_clock.jump(0.1)
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert (verifiers.failures, len(started.processes)) == (1, 2)
        assert "not ready in 30 s" in verifiers.trouble


async def test_a_cancelled_batch_is_no_failure_and_leaves_no_stale_answer(
    started: Started,
) -> None:
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        started.signal(signal.SIGSTOP)
        with trio.move_on_after(0.05) as limit:
            await verifiers.verify(BATCH)
        assert limit.cancelled_caught
        assert (verifiers.running, verifiers.failures) == (0, 0)
        assert started.all_reaped()
        with trio.CancelScope() as scope:  # before anything is sent
            scope.cancel()
            await verifiers.verify(BATCH)
        assert await verifiers.verify([forged()]) == [False]
        await until_running(verifiers, 1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await verifiers.verify(BATCH)
        assert verifiers.running == 1
        assert await verifiers.verify(MIXED) == OF_MIXED


async def test_one_that_waits_for_its_turn_may_be_cancelled(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        await until_running(verifiers, 1)
        started.signal(signal.SIGSTOP)
        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                for _ in range(DEPTH):
                    nursery.start_soon(verifiers.verify, BATCH)
                await wait_all_tasks_blocked()
                with trio.move_on_after(0.05) as limit:
                    await verifiers.verify(BATCH)
                assert limit.cancelled_caught
                started.signal(signal.SIGCONT)
        assert (verifiers.running, verifiers.failures) == (1, 0)
        assert await verifiers.verify(MIXED) == OF_MIXED


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
    """Put ``program`` in the place of Python, and return the log of its starts."""
    script, log = tmp_path / "python", tmp_path / "log"
    script.write_text(
        f"#!{sys.executable}\nimport os\n"
        f"with open({str(log)!r}, 'a') as log: log.write('started\\n')\n{program}\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(script))
    return log


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        ("b'\\1' * 23", "what it was not asked"),
        ("b'\\1' * 21 + b'\\3\\2'", "what it was not asked"),
        ("b'\\1' * 21", "ended (exit status 0)"),
        ("b''", "ended (exit status 0)"),
    ],
    ids=["too long", "neither yes nor no", "too short", "none"],
)
async def test_a_wrong_answer_is_not_believed(
    answer: str,
    trouble: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: Started,
) -> None:
    size = len(question(MIXED))
    stand_in(
        tmp_path,
        monkeypatch,
        f"os.write(0, b'\\2')\nwith open(0, 'rb', closefd=False) as s: s.read({size})\n"
        f"os.write(0, {answer})",
    )
    async with shared_verifiers(1) as verifiers:
        await verifiers.verify(BATCH)
        with trio.fail_after(TIMEOUT):
            while not verifiers.running:
                await trio.sleep(0.01)
                await verifiers.verify([])  # is not asked of anybody
        assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.failures == 1
        assert trouble in verifiers.trouble
        assert started.all_reaped()


async def test_after_failures_in_a_row_no_more_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    log = stand_in(tmp_path, monkeypatch, "raise SystemExit(7)")
    async with shared_verifiers(1) as verifiers:
        with trio.fail_after(TIMEOUT):
            while not verifiers.given_up:
                assert await verifiers.verify(MIXED) == OF_MIXED
                await trio.sleep(0.01)
        for _ in range(3):
            assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.failures == MAX_FAILURES
        assert verifiers.trouble.endswith("ended before it was ready (exit status 7)")
        assert log.read_text().count("started") == MAX_FAILURES
        assert started.all_reaped()


async def test_a_success_forgives_failures(started: Started) -> None:
    async with shared_verifiers(1) as verifiers:
        for _ in range(MAX_FAILURES + 1):
            await until_running(verifiers, 1)
            assert await verifiers.verify(BATCH) == [True] * len(BATCH)
            started.signal(signal.SIGKILL)
            assert await verifiers.verify(BATCH) == [True] * len(BATCH)
        assert verifiers.failures == MAX_FAILURES + 1
        assert not verifiers.given_up


async def test_without_a_python_to_start_threads_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    async with shared_verifiers(1) as verifiers:
        for _ in range(MAX_FAILURES + 1):
            assert await verifiers.verify(MIXED) == OF_MIXED
        assert verifiers.given_up
        assert "could not be started" in verifiers.trouble


async def test_no_socket_is_left_open(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    pair = socket.socketpair

    def socketpair() -> tuple[socket.socket, socket.socket]:
        made.extend(pair())
        return made[-2], made[-1]

    monkeypatch.setattr(socket, "socketpair", socketpair)
    async with shared_verifiers(2) as verifiers:
        await until_running(verifiers, 2)
        started.signal(signal.SIGKILL)
        await verifiers.verify(MIXED * 4)
        await until_running(verifiers, 2)
        monkeypatch.setattr(sys, "executable", "/nonexistent")
        started.signal(signal.SIGKILL)
        await verifiers.verify(MIXED * 4)
        await verifiers.verify(MIXED * 4)
    assert len(made) >= 6
    assert [end.fileno() for end in made] == [-1] * len(made)
