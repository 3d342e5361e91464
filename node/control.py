"""The control socket: how commands on the same machine ask a running node.

A Unix-domain stream socket of mode 0600, so that nobody but the node's user (and
root) gets in; there is no other authentication. A client sends JSON objects, one
a line, and gets a line for each, in order: ``{"result": …}`` or ``{"error": "…"}``.
What can be asked stands in `bruit.node.control_requests`.

A line has at most MAX_LINE bytes; a longer one is answered with an error and
ends the connection. A client that does not read its answers waits for itself.
"""

import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import trio

from bruit.topics.errors import BruitError, ConfigError, LocalError

MAX_LINE = 64 * 1024  # bytes of one request; guess: far more than any has
MAX_CLIENTS = 16  # at once; guess: people and a collector or two
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)

Answer = Callable[[bytes], Awaitable[object]]  # a request to what msgspec writes as JSON

_log = logging.getLogger(__name__)


def address_of(path: Path) -> str:
    """``path`` as the shorter of its names: an address has room for some 100 characters."""
    return min(str(path), os.path.relpath(path), key=len)


@asynccontextmanager
async def control_socket(path: Path, answer: Answer) -> AsyncIterator[None]:
    """Answer clients at ``path`` while in the context.

    ``answer`` may raise BruitError, which is told to the client. A socket that a
    node left behind is replaced. Raises LocalError where a running node answers
    at ``path``, and ConfigError where no socket can be there.
    """
    _make_room(path)
    listener = _listen(path)
    clients = trio.CapacityLimiter(MAX_CLIENTS)
    try:
        async with trio.open_nursery() as nursery:
            serve = partial(_serve, answer=answer, clients=clients)
            await nursery.start(trio.serve_listeners, serve, [listener])
            yield
            nursery.cancel_scope.cancel()
    finally:
        _leave(listener, path)


def _make_room(path: Path) -> None:
    """Take away what a node left behind."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(
                "control.socket", f"{path} exists and is no socket: choose another name"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(address_of(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:  # nobody has it open
        path.unlink(missing_ok=True)
        return
    except BlockingIOError:  # somebody has, and more are waiting than it takes
        pass
    except OSError as problem:
        said = problem.strerror or str(problem)  # a path too long has no number
        raise ConfigError("control.socket", f"{path}: {said}") from None
    raise LocalError(
        f"a running node answers at {path}: stop it, or give this one another control.socket"
    )


def _listen(path: Path) -> trio.SocketListener:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)  # so that the socket is nobody else's from the first moment
    try:
        sock.bind(address_of(path))
    except OSError as problem:
        sock.close()
        said = problem.strerror or str(problem)
        raise ConfigError("control.socket", f"cannot listen at {path}: {said}") from None
    finally:
        os.umask(mask)
    sock.listen(MAX_CLIENTS)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _leave(listener: trio.SocketListener, path: Path) -> None:
    listener.socket.close()
    path.unlink(missing_ok=True)


async def _serve(stream: trio.SocketStream, answer: Answer, clients: trio.CapacityLimiter) -> None:
    with suppress(*GONE):
        async with stream:
            try:
                clients.acquire_nowait()
            except trio.WouldBlock:
                await _send(stream, error=f"{MAX_CLIENTS} clients are connected: try again later")
                return
            try:
                await _converse(stream, answer)
            finally:
                clients.release()


async def _converse(stream: trio.SocketStream, answer: Answer) -> None:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if len(line) > MAX_LINE:
                break
            await _respond(stream, line, answer)
        else:
            if len(rest) <= MAX_LINE:
                continue
        await _send(stream, error=f"a request has at most {MAX_LINE} bytes")
        return


async def _respond(stream: trio.SocketStream, line: bytes, answer: Answer) -> None:
    try:
        result = await answer(line)
    except BruitError as problem:
        await _send(stream, error=str(problem))
    except Exception:  # noqa: BLE001 - the node stays up; whoever asked may ask for less
        _log.exception("a request on the control socket failed")
        await _send(stream, error="the node failed to answer; its log says why")
    else:
        await _send(stream, result=result)


async def _send(stream: trio.SocketStream, **message: object) -> None:
    await stream.send_all(msgspec.json.encode(message) + b"\n")
