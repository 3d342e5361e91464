"""A TCP connection of py-libp2p, read and written without passes of the scheduler in between.

py-libp2p's TrioTCPStream takes a lock for each read and write, and trio's SocketStream
yields after each that succeeds: four passes of trio's scheduler for what is one system
call. A message that is forwarded by itself spent a third of its time with them.
"""

import os

import trio
from libp2p.abc import IRawConnection
from libp2p.connection_types import ConnectionType
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from multiaddr import Multiaddr


class DirectSocket(IRawConnection):
    """For one reader and one writer at a time, after the handshake.

    Raises ConnectionClosedError where the connection is broken, as what it stands for does.
    """

    def __init__(self, raw: RawConnection, stream: TrioTCPStream) -> None:
        self.is_initiator = raw.is_initiator
        self._raw = raw
        self._socket = stream.stream.socket

    async def read(self, n: int | None = None) -> bytes:
        """Up to ``n`` bytes, waiting for the first; none at the end, or when closed here."""
        assert n is not None  # who reads knows how much
        try:
            while self._socket.fileno() >= 0:
                await trio.lowlevel.wait_readable(self._socket)
                try:
                    return os.read(self._socket.fileno(), n)
                except BlockingIOError:
                    continue
        except trio.ClosedResourceError:
            pass
        except OSError as problem:
            if self._socket.fileno() >= 0:  # not closed here since there was something to read
                raise _broken(problem) from problem
        return b""

    async def write(self, data: bytes) -> None:
        """All of ``data``, without yielding while the kernel takes it."""
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._socket.fileno(), rest) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
        except (OSError, trio.ClosedResourceError) as problem:
            raise _broken(problem) from problem

    def write_now(self, data: bytes) -> int:
        """How many bytes of ``data`` the kernel takes at once; none where it fails, too."""
        try:
            return os.write(self._socket.fileno(), data)
        except OSError:  # the next write that waits will say why
            return 0

    async def close(self) -> None:
        await self._raw.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._raw.get_remote_address()

    def get_transport_addresses(self) -> list[Multiaddr]:
        return self._raw.get_transport_addresses()

    def get_connection_type(self) -> ConnectionType:
        return self._raw.get_connection_type()


def direct(raw: IRawConnection) -> IRawConnection:
    """The connection itself where it is not TCP of py-libp2p."""
    if isinstance(raw, RawConnection) and isinstance(raw.stream, TrioTCPStream):
        return DirectSocket(raw, raw.stream)
    return raw


def _broken(problem: Exception) -> ConnectionClosedError:
    return ConnectionClosedError(f"TCP connection broken: {problem}", transport="tcp")
