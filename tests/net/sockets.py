"""Connections over real sockets, as py-libp2p makes them, and secured ones on top."""

import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import trio
import trio.testing
from libp2p.abc import ISecureConn
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.security.secure_session import SecureSession

from bruit.node.identity import new_key
from bruit.node.net.secure import Records, SecureConnection
from bruit.node.net.socket_io import DirectSocket, direct
from bruit.node.net.yamux import YamuxConnection, YamuxStream

PEER = ID(new_key().public_key().peer_id())
KEYS = bytes(range(32)), bytes(range(32, 64))
SMALL = 4096  # bytes for the kernel to hold, of which Linux makes twice as many
LARGE = 262_144  # where it would grow


def raw(stream: trio.SocketStream, *, initiator: bool) -> RawConnection:
    return RawConnection(TrioTCPStream(stream), initiator)


@asynccontextmanager
async def tcp_pair() -> AsyncIterator[tuple[RawConnection, RawConnection]]:
    """Both ends of a TCP connection, the initiator's first."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        # Those that the listener accepts have it, too.
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE)
        port = listener.socket.getsockname()[1]
        left = await trio.open_tcp_stream("127.0.0.1", port)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE)
        right = await listener.accept()
    async with left, right:
        yield raw(left, initiator=True), raw(right, initiator=False)


@asynccontextmanager
async def narrow_pair() -> AsyncIterator[tuple[RawConnection, RawConnection]]:
    """Both ends of a connection on which the kernel holds little."""
    ends = trio.socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    left, right = (trio.SocketStream(end) for end in ends)
    async with left, right:
        yield raw(left, initiator=True), raw(right, initiator=False)


@asynccontextmanager
async def secured_pair() -> AsyncIterator[tuple[SecureConnection, SecureConnection]]:
    """Both ends of a secured connection on which the kernel holds little."""
    async with narrow_pair() as ends:
        left, right = (
            SecureConnection(session(end.is_initiator), direct(end), Records(*keys))
            for end, keys in zip(ends, (KEYS, KEYS[::-1]), strict=True)
        )
        yield left, right


@asynccontextmanager
async def muxed_pair() -> AsyncIterator[tuple[YamuxConnection, YamuxConnection]]:
    """Both ends of a connection with streams on which the kernel holds little, served."""
    async with secured_pair() as secured:
        left, right = (YamuxConnection(end, PEER) for end in secured)
        async with trio.open_nursery() as nursery:
            for end in (left, right):
                nursery.start_soon(end.start)
                await end.event_started.wait()
            yield left, right
            for end in (left, right):
                await end.close()


@asynccontextmanager
async def stream_pair() -> AsyncIterator[tuple[YamuxStream, YamuxStream]]:
    """Both ends of one stream, whoever serves them with nothing to do."""
    async with muxed_pair() as (ours, theirs):
        stream = await ours.open_stream()
        other = await theirs.accept_stream()
        await trio.testing.wait_all_tasks_blocked()
        yield stream, other


def has_come(conn: ISecureConn) -> bool:
    """Whether something waits to be read from the socket beneath ``conn``."""
    assert isinstance(conn, SecureConnection)
    assert isinstance(conn._raw, DirectSocket)
    return bool(select.select([conn._raw._socket], [], [], 0)[0])


def session(is_initiator: bool) -> SecureSession:
    """As much of py-libp2p's session as ours asks of it."""
    return cast(
        SecureSession,
        SimpleNamespace(
            local_peer=PEER,
            local_private_key=None,
            remote_peer=PEER,
            remote_permanent_pubkey=None,
            is_initiator=is_initiator,
        ),
    )


async def read_exactly(conn: ISecureConn, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await conn.read(size - len(data))
    return data
