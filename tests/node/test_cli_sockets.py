"""run, publish and listen as processes on the loopback interface.

Nothing here sleeps: every step waits for the record in which a process says
that it has come so far.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from bruit.node.identity import create_key_file, load_key_file, new_key
from bruit.topics.keys import peer_id_text

pytestmark = pytest.mark.sockets

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds for a whole test: a start takes about one
ANY_PORT = "/ip4/127.0.0.1/tcp/0"
NOBODY = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWJt1mrDQw6sUC4Xb3J6XN7RmRTj3jWuKHmmEVyS1XNNVV"


class Process:
    """A running command and the records that it has written."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.records: list[dict[str, Any]] = []
        self.output = ""
        self._news = trio.Condition()

    async def read_records(self) -> None:
        assert self.process.stderr is not None
        rest = b""
        async with self.process.stderr:
            async for chunk in self.process.stderr:
                *lines, rest = (rest + chunk).split(b"\n")
                async with self._news:
                    self.records += [json.loads(line) for line in lines]
                    self._news.notify_all()
        assert rest == b""

    async def read_output(self) -> None:
        assert self.process.stdout is not None
        async with self.process.stdout:
            async for chunk in self.process.stdout:
                async with self._news:
                    self.output += chunk.decode()
                    self._news.notify_all()

    async def record(self, event: str, **fields: object) -> dict[str, Any]:
        """The first record of that event with those fields, as soon as there is one."""
        async with self._news:
            while True:
                for record in self.records:
                    if record["event"] == event and fields.items() <= record.items():
                        return record
                await self._news.wait()

    async def printed(self, line: str) -> None:
        async with self._news:
            while line not in self.output.splitlines():
                await self._news.wait()

    async def address(self) -> str:
        address = (await self.record("listening"))["address"]
        assert isinstance(address, str)
        return address

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.process.wait()

    async def end(self) -> None:
        """Wait for the end, or force it when cancelled."""
        try:
            await self.process.wait()
        finally:
            self.process.kill()
            with trio.CancelScope(shield=True):
                await self.process.wait()


class Shell:
    """Starts commands in one folder; all are gone at the end of the test."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._nursery = nursery

    async def start(self, *arguments: str) -> Process:
        """``bruit`` with ``arguments``, logging JSON."""
        command = ["-m", "bruit.node.cli", arguments[0], "--log-format", "json", *arguments[1:]]
        return await self.start_python(*command)

    async def start_python(self, *arguments: str) -> Process:
        process = await trio.lowlevel.open_process(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environ,
        )
        started = Process(process)
        self._nursery.start_soon(started.end)
        self._nursery.start_soon(started.read_records)
        self._nursery.start_soon(started.read_output)
        return started

    async def complain(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit code and lines on standard error of a command that should fail."""
        done = await trio.run_process(
            [sys.executable, "-m", "bruit.node.cli", *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self.folder,
            env=self.environ,
        )
        assert done.stdout == b""
        return done.returncode, done.stderr.decode().splitlines()

    def node(self, name: str, text: str = "") -> str:
        """A new configuration file with a key beside it."""
        (self.folder / name).mkdir()
        create_key_file(self.folder / name / "node.key", new_key())
        (self.folder / name / "bruit.toml").write_text(text)
        return f"{name}/bruit.toml"

    def peer_id(self, name: str) -> str:
        key = load_key_file(self.folder / name / "node.key")
        return peer_id_text(key.public_key().peer_id())


@asynccontextmanager
async def shell(folder: Path) -> AsyncIterator[Shell]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            yield Shell(folder, nursery)
            nursery.cancel_scope.cancel()


HELLO = "[topics.hello]\n"


async def test_a_published_message_reaches_two_nodes_and_a_listener_and_all_stop_cleanly(
    tmp_path: Path,
) -> None:
    payload = b"to spread a report abroad"
    digest = hashlib.sha256(payload).hexdigest()
    (tmp_path / "note").write_bytes(payload)
    async with shell(tmp_path) as bruit:
        file_a, file_b = bruit.node("a", HELLO), bruit.node("b", HELLO)
        a = await bruit.start("run", "-c", file_a, "--listen", ANY_PORT)
        address_a = await a.address()
        assert address_a.endswith(f"/p2p/{bruit.peer_id('a')}")
        assert (await a.record("ready"))["topics"] == ["hello"]
        b = await bruit.start(
            "run", "-c", file_b, "--listen", ANY_PORT, "--peer", address_a, "--log-level", "debug"
        )
        await b.record("peer subscribed", peer=bruit.peer_id("a"), topic="hello")
        listener = await bruit.start(
            "listen",
            "hello",
            "--peer",
            await b.address(),
            "--count",
            "1",
            "--save",
            "got",
            "--json",
        )
        visitor = (await listener.record("ready"))["peer"]
        await b.record("peer subscribed", peer=visitor, topic="hello", subscribed=True)

        publisher = await bruit.start("publish", "hello", "note", "--peer", address_a)
        assert await publisher.process.wait() == 0
        told = [line.split() for line in publisher.output.splitlines()]
        (message_id,) = (line[1] for line in told if line[0] == "message")
        assert ["to", bruit.peer_id("a")] in told

        for node in (a, b):
            delivered = await node.record("delivered")
            assert delivered["message_id"] == message_id
            assert delivered["bytes"] == len(payload)
            assert delivered["sha256"] == digest[:16]
        assert (await b.record("delivered"))["source"] == bruit.peer_id("a")
        assert await listener.process.wait() == 0
        heard = json.loads(listener.output)
        assert (heard["topic"], heard["message_id"], heard["bytes"], heard["sha256"]) == (
            "hello",
            message_id,
            len(payload),
            digest,
        )
        assert (tmp_path / "got" / message_id).read_bytes() == payload

        assert await b.stop(signal.SIGTERM) == 0
        await a.record("peer left", peer=bruit.peer_id("b"))
        assert await a.stop(signal.SIGINT) == 0
        assert (await a.record("stopping"))["signal"] == "SIGINT"
        await a.record("stopped")
        assert (await a.record("summary"))["delivered"] == 1


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder for PYTHONPATH that makes bruit's own plugins installed ones."""
    info = tmp_path / "site" / "bruit-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bruit\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[bruit]\nzstd = bruit.plugins.zstd:ZstdPlugin\n")
    return str(info.parent)


async def test_a_codec_packs_and_unpacks_and_what_it_cannot_unpack_is_rejected(
    tmp_path: Path, installed: str
) -> None:
    payload = b"again " * 20_000
    (tmp_path / "long").write_bytes(payload)
    async with shell(tmp_path) as bruit:
        bruit.environ["PYTHONPATH"] += os.pathsep + installed
        file = bruit.node("a", '[topics.packed]\ncodec = "zstd"\nmax_message_size = 1000\n')
        a = await bruit.start("run", "-c", file, "--listen", ANY_PORT)
        peer = ["--peer", await a.address()]
        packed = await bruit.start("publish", "packed", "long", "--codec", "zstd", *peer)
        assert await packed.process.wait() == 0
        assert (await a.record("delivered"))["bytes"] == len(payload)

        (tmp_path / "raw").write_bytes(b"not zstd")
        raw = await bruit.start("publish", "packed", "raw", *peer)
        assert await raw.process.wait() == 0
        rejected = await a.record("rejected", topic="packed")
        assert rejected["peer"] == rejected["author"]
        assert rejected["reason"]


async def test_publishing_what_nobody_wants_fails_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "note").write_bytes(b"x")
    async with shell(tmp_path) as bruit:
        a = await bruit.start("run", "-c", bruit.node("a"), "--listen", ANY_PORT)
        arguments = ["--peer", await a.address(), "--timeout", "0.5"]
        code, lines = await bruit.complain("publish", "hello", "note", *arguments)
        assert code == 1
        assert lines == [
            "Error: not published: of 1 connected peers none subscribed to 'hello' within 0.5 s"
        ]


async def test_publishing_to_a_peer_that_is_not_there_fails_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "note").write_bytes(b"x")
    async with shell(tmp_path) as bruit:
        # libp2p gives up on an address after about a second
        arguments = ["--peer", NOBODY, "--timeout", "3"]
        code, lines = await bruit.complain("publish", "hello", "note", *arguments)
        assert code == 1
        assert any("dial failed" in line for line in lines)
        assert lines[-1].startswith("Error: not published: of 0 connected peers")


async def test_a_node_is_not_started_with_a_key_that_others_can_read(tmp_path: Path) -> None:
    async with shell(tmp_path) as bruit:
        file = bruit.node("a")
        (tmp_path / "a/node.key").chmod(0o644)
        code, lines = await bruit.complain("run", "-c", file)
        assert code == 2
        assert len(lines) == 1
        assert lines[0].startswith("Error: identity.key_file: ")
        assert lines[0].endswith("run chmod 600 a/node.key")


async def test_a_node_is_not_started_on_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    async with shell(tmp_path) as bruit:
        file = bruit.node("a", '[topics.blocks]\nvalidator = "nosuch"\n')
        code, lines = await bruit.complain("run", "-c", file)
        assert code == 2
        assert len(lines) == 1
        assert "no plugin 'nosuch' is installed" in lines[0]
        assert lines[0].endswith("(file a/bruit.toml:2)")


STUCK = f"""
import trio
from bruit.node.cli.options import Flags
from bruit.node.cli.process import run_node
from bruit.node.identity import new_key

async def work(node):
    print("working", flush=True)
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

flags = Flags(listen=({ANY_PORT!r},), log_format="json", assignments=("shutdown.grace={{grace}}",))
run_node(flags.load(), new_key(), work)
"""


async def start_stuck(bruit: Shell, grace: float) -> Process:
    stuck = await bruit.start_python("-c", STUCK.format(grace=grace))
    await stuck.printed("working")
    return stuck


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_a_node_that_hangs_at_once(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with shell(tmp_path) as bruit:
        stuck = await start_stuck(bruit, grace=1000)
        stuck.process.send_signal(signal.SIGTERM)
        await stuck.record("stopping")
        # By the shell's convention 130 and 143.
        assert await stuck.stop(number) == 128 + number


async def test_a_node_that_hangs_is_cut_off_after_its_grace(tmp_path: Path) -> None:
    async with shell(tmp_path) as bruit:
        stuck = await start_stuck(bruit, grace=0)
        assert await stuck.stop() == 1
        await stuck.record("cut off")
