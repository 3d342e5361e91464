"""The control socket by itself: lines, limits, modes, and what stands in its way."""

import json
import logging
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.control import MAX_CLIENTS, MAX_LINE, control_socket
from bruit.topics.errors import ConfigError, LocalError

TIMEOUT = 10.0  # seconds, of a test that has gone wrong


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be: shorter than the folders of a test, for addresses are short."""
    with TemporaryDirectory() as folder:
        yield Path(folder, "bruit.sock")


async def echo(line: bytes) -> object:
    """Says what it was told, in hexadecimal; some words make it fail."""
    if line == b"refuse":
        raise LocalError("refused as told")
    if line == b"break":
        raise RuntimeError("a bug")
    return line.hex()


class Client:
    """One connection: what is said, and the answers as they come."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._rest = b""

    async def answer(self) -> dict[str, str] | None:
        """The next one, None when the node has hung up."""
        while b"\n" not in self._rest:
            chunk = await self.stream.receive_some()
            if not chunk:
                assert self._rest == b""
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, str] = json.loads(line)
        return answer

    async def ask(self, request: bytes) -> dict[str, str] | None:
        await self.stream.send_all(request + b"\n")
        return await self.answer()


@asynccontextmanager
async def client_of(path: Path) -> AsyncIterator[Client]:
    with trio.fail_after(TIMEOUT):
        async with await trio.open_unix_socket(path) as stream:
            yield Client(stream)


async def test_every_line_gets_an_answer_in_order(path: Path) -> None:
    async with control_socket(path, echo), client_of(path) as client:
        await client.stream.send_all(b"one\ntwo\n\nthr")
        await client.stream.send_all(b"ee\n")
        answers = [await client.answer() for _ in range(4)]
    assert answers == [{"result": word.encode().hex()} for word in ("one", "two", "", "three")]


async def test_a_refusal_is_an_answer_and_the_conversation_goes_on(path: Path) -> None:
    async with control_socket(path, echo), client_of(path) as client:
        assert await client.ask(b"refuse") == {"error": "refused as told"}
        assert await client.ask(b"on") == {"result": "6f6e"}


async def test_a_bug_in_an_answer_is_logged_and_ends_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with control_socket(path, echo), client_of(path) as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.ask(b"break")
        assert answer == {"error": "the node failed to answer; its log says why"}
        assert await client.ask(b"on") == {"result": "6f6e"}
    assert "RuntimeError: a bug" in caplog.text


async def test_clients_do_not_wait_for_each_other(path: Path) -> None:
    async with control_socket(path, echo), client_of(path) as idle, client_of(path) as busy:
        await idle.stream.send_all(b"half a li")
        assert await busy.ask(b"on") == {"result": "6f6e"}
        assert await idle.ask(b"ne") == {"result": b"half a line".hex()}


async def test_a_line_of_the_greatest_length_is_answered(path: Path) -> None:
    line = b"x" * MAX_LINE
    async with control_socket(path, echo), client_of(path) as client:
        assert await client.ask(line) == {"result": line.hex()}


@pytest.mark.parametrize("end", [b"", b"\n", b"\nmore\n"])
async def test_a_longer_line_is_refused_and_the_client_hung_up_on(path: Path, end: bytes) -> None:
    async with control_socket(path, echo):
        async with client_of(path) as client:
            assert await client.ask(b"first") == {"result": b"first".hex()}
            await client.stream.send_all(b"x" * (MAX_LINE + 1) + end)
            assert await client.answer() == {"error": f"a request has at most {MAX_LINE} bytes"}
            assert await client.answer() is None
        async with client_of(path) as other:
            assert await other.ask(b"on") == {"result": "6f6e"}


async def test_one_client_too_many_is_told_so_until_another_leaves(path: Path) -> None:
    async with control_socket(path, echo):
        clients = [Client(await trio.open_unix_socket(path)) for _ in range(MAX_CLIENTS)]
        for client in clients:
            assert await client.ask(b"on") == {"result": "6f6e"}
        async with client_of(path) as late:
            answer = await late.answer()
            assert answer == {"error": f"{MAX_CLIENTS} clients are connected: try again later"}
        await clients.pop().stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        async with client_of(path) as client:
            assert await client.ask(b"on") == {"result": "6f6e"}
        for client in clients:
            await client.stream.aclose()


async def test_a_client_that_leaves_before_its_answer_harms_nobody(path: Path) -> None:
    asked, may_answer = trio.Event(), trio.Event()

    async def slowly(line: bytes) -> object:
        asked.set()
        await may_answer.wait()
        return "x" * 10_000_000  # more than a socket takes before its reader does

    async with control_socket(path, slowly):
        async with client_of(path) as client:
            await client.stream.send_all(b"on\n")
            await asked.wait()
        may_answer.set()
        await trio.testing.wait_all_tasks_blocked()
        async with client_of(path) as client:
            assert await client.ask(b"on") is not None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=100), min_size=1, max_size=10))
async def test_any_bytes_are_cut_at_line_ends_and_nowhere_else(chunks: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "bruit.sock")
        async with control_socket(path, echo), client_of(path) as client:
            for chunk in chunks:
                await client.stream.send_all(chunk)
            await client.stream.send_all(b"\nend\n")
            lines = [*b"".join(chunks).split(b"\n"), b"end"]
            answers = [await client.answer() for _ in lines]
    assert answers == [{"result": line.hex()} for line in lines]


# The file


async def test_the_socket_is_its_owners_alone_and_goes_with_the_node(path: Path) -> None:
    async with control_socket(path, echo):
        mode = (await trio.Path(path).stat()).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not await trio.Path(path).exists()


async def test_a_socket_that_a_node_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert await trio.Path(path).exists()
    async with control_socket(path, echo), client_of(path) as client:
        assert await client.ask(b"on") == {"result": "6f6e"}


async def test_a_second_node_is_refused_and_the_first_keeps_its_socket(path: Path) -> None:
    async with control_socket(path, echo):
        with pytest.raises(LocalError, match=f"a running node answers at {path}: stop it, or"):
            async with control_socket(path, echo):
                pass
        async with client_of(path) as client:
            assert await client.ask(b"on") == {"result": "6f6e"}


async def test_a_node_that_hangs_still_has_its_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hung:
        hung.bind(str(path))
        hung.listen(0)
        waiting = []
        while True:  # until the queue of the socket is full
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            waiting.append(client)
            try:
                client.connect(str(path))
            except BlockingIOError:
                break
        with pytest.raises(LocalError, match="a running node answers"):
            async with control_socket(path, echo):
                pass
        for client in waiting:
            client.close()


async def test_whatever_else_stands_in_its_place_is_left_there(path: Path) -> None:
    await trio.Path(path).write_text("mine")
    with pytest.raises(ConfigError, match="exists and is no socket: choose another name") as caught:
        async with control_socket(path, echo):
            pass
    assert caught.value.path == "control.socket"
    assert await trio.Path(path).read_text() == "mine"


async def test_a_place_where_no_socket_can_be_is_a_configuration_error(path: Path) -> None:
    for place, problem in (
        (path.parent / "nowhere" / "bruit.sock", "No such file or directory"),
        (path.parent / ("x" * 200), "path too long"),
    ):
        with pytest.raises(ConfigError, match=problem):
            async with control_socket(place, echo):
                pass


async def test_a_long_path_will_do_where_the_way_from_here_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with control_socket(folder / "bruit.sock", echo), client_of(Path("bruit.sock")) as client:
        assert await client.ask(b"on") == {"result": "6f6e"}
