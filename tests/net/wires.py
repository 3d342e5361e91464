"""Connections in memory: what the layers of a connection stand on in tests."""

from collections.abc import Callable
from typing import cast

import trio
import trio.testing
from libp2p.abc import IRawConnection, ISecureConn
from libp2p.io.exceptions import ConnectionClosedError
from multiaddr import Multiaddr


class Wire:
    """One end of a connection in memory: raw, and a secured one for those who ask no more."""

    def __init__(self, stream: trio.abc.Stream, is_initiator: bool) -> None:
        self.stream = stream
        self.is_initiator = is_initiator
        self.closed = False

    @property
    def raw(self) -> IRawConnection:
        return cast(IRawConnection, self)

    @property
    def secured(self) -> ISecureConn:
        return cast(ISecureConn, self)

    async def read(self, n: int | None = None) -> bytes:
        try:
            return bytes(await self.stream.receive_some(n))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as problem:
            raise ConnectionClosedError("closed") from problem

    async def write(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as problem:
            raise ConnectionClosedError("closed") from problem

    async def close(self) -> None:
        self.closed = True
        await self.stream.aclose()

    def get_remote_address(self) -> tuple[str, int] | None:
        return ("192.0.2.1", 4001)

    def get_transport_addresses(self) -> list[Multiaddr]:
        return [Multiaddr("/ip4/192.0.2.1/tcp/4001")]


def wires(
    pair: Callable[[], tuple[trio.abc.Stream, trio.abc.Stream]] = trio.testing.memory_stream_pair,
) -> tuple[Wire, Wire]:
    """Both ends, the initiator's first."""
    left, right = pair()
    return Wire(left, is_initiator=True), Wire(right, is_initiator=False)
