"""yamux over a connection: who waits, who is woken, and what being cancelled leaves whole."""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import libp2p
import pytest
import trio
import trio.testing
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.exceptions import StreamEOF, StreamError, StreamReset
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.stream_muxer.exceptions import (
    MuxedConnUnavailable,
    MuxedStreamClosed,
    MuxedStreamEOF,
    MuxedStreamReset,
)
from multiaddr import Multiaddr

from bruit.node.identity import new_key
from bruit.node.net.host import NETWORK_ERRORS, libp2p_keys, listening, new_host, open_connections
from bruit.node.net.secure import SecureConnection
from bruit.node.net.socket_io import DirectSocket
from bruit.node.net.yamux import PATIENCE, YamuxConnection, YamuxStream
from bruit.node.net.yamux_session import (
    DATA,
    GO_AWAY,
    INITIAL_WINDOW,
    MAX_INCOMING,
    MAX_OUTGOING,
    MAX_WINDOW,
    NORMAL,
    PING,
    PROTOCOL_ERROR,
    ROOM,
    RST,
    SYN,
    WINDOW_UPDATE,
)
from tests.net.wires import Wire, wires

PEER = ID(new_key().public_key().peer_id())
Pair = tuple[YamuxConnection, YamuxConnection]
Streams = tuple[YamuxStream, YamuxStream]


def frame(kind: int, flags: int = 0, stream: int = 0, length: int = 0) -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream, length)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Two ends that are served."""
    ends = [YamuxConnection(wire.secured, PEER) for wire in wires()]
    async with trio.open_nursery() as nursery:
        for end in ends:
            nursery.start_soon(end.start)
            await end.event_started.wait()
            assert end.is_established
        yield ends[0], ends[1]
        for end in ends:
            await end.close()
            assert end.is_closed
            assert not end.is_established


@asynccontextmanager
async def streams() -> AsyncIterator[Streams]:
    """Both ends of one stream."""
    async with pair() as (ours, theirs):
        stream = await ours.open_stream()
        yield stream, await theirs.accept_stream()


@asynccontextmanager
async def alone(**options: Any) -> AsyncIterator[tuple[YamuxConnection, Wire]]:
    """One end, and the bare wire for a peer of the test's own making."""
    wire, other = wires(**options)
    conn = YamuxConnection(wire.secured, PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conn.start)
        await conn.event_started.wait()
        yield conn, other
        await conn.close()


async def read_all(stream: Any, ends: type[Exception] = MuxedStreamEOF) -> bytes:
    """What comes until the stream ends, in this way."""
    data = b""
    try:
        while True:
            data += await stream.read(INITIAL_WINDOW)
    except ends:
        return data


async def raises(error: type[BaseException], call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(error):
        await call()


# Streams


async def test_bytes_go_both_ways_and_each_half_ends_by_itself() -> None:
    async with streams() as (ours, theirs):
        data = bytes(range(256)) * 20_000  # beyond any first window
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.write, data)
            got = b""
            while len(got) < len(data):
                got += await theirs.read(100_000)
        assert got == data
        await ours.close()
        await ours.close()
        with pytest.raises(MuxedStreamEOF):
            await theirs.read(1)
        with pytest.raises(MuxedStreamClosed):
            await ours.write(b"more")
        await theirs.write(b"answer")
        await theirs.close()
        assert await read_all(ours) == b"answer"


async def test_a_stream_that_is_gone_is_not_kept() -> None:
    async with pair() as (ours, theirs):
        for end in ("close", "reset"):
            stream = await ours.open_stream()
            other = await theirs.accept_stream()
            await getattr(stream, end)()
            await getattr(other, end)()
            await trio.testing.wait_all_tasks_blocked()
            assert not ours._streams
            assert not theirs._streams


async def test_a_read_gives_what_there_is() -> None:
    async with streams() as (ours, theirs):
        await ours.write(b"abcdef")
        assert await theirs.read(0) == b""
        assert await theirs.read(4) == b"abcd"
        assert await theirs.read() == b"ef"
        await ours.write(b"gh")
        assert await theirs.read(-1) == b"gh"


async def test_a_reset_wakes_the_reader_and_the_writer() -> None:
    async with streams() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises, MuxedStreamReset, lambda: ours.read(1))
            nursery.start_soon(
                raises, MuxedStreamReset, lambda: ours.write(bytes(INITIAL_WINDOW + 1))
            )
            await trio.testing.wait_all_tasks_blocked()
            await theirs.reset()
        for stream in (ours, theirs):
            await raises(MuxedStreamReset, lambda stream=stream: stream.write(b""))  # type: ignore[misc]
            await raises(MuxedStreamReset, lambda stream=stream: stream.read(1))  # type: ignore[misc]


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_ending_a_stream_wakes_whoever_writes_it(end: str) -> None:
    async with streams() as (ours, _), trio.open_nursery() as nursery:
        error = MuxedStreamClosed if end == "close" else MuxedStreamReset
        nursery.start_soon(raises, error, lambda: ours.write(bytes(INITIAL_WINDOW + 1)))
        await trio.testing.wait_all_tasks_blocked()
        await getattr(ours, end)()


async def test_a_stalled_stream_holds_up_no_other() -> None:
    async with pair() as (ours, theirs), trio.open_nursery() as nursery:
        stalled, other = await ours.open_stream(), await ours.open_stream()
        nursery.start_soon(stalled.write, bytes(3 * INITIAL_WINDOW))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other.write, bytes(3 * INITIAL_WINDOW))
        late, quick = await theirs.accept_stream(), await theirs.accept_stream()
        for stream in (quick, late):
            got = 0
            while got < 3 * INITIAL_WINDOW:
                got += len(await stream.read())


async def test_a_frame_of_the_largest_size_stalls_no_more_once_the_window_has_grown() -> None:
    async with streams() as (ours, theirs):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.write, bytes(3 * MAX_WINDOW))
            got = 0
            while got < 3 * MAX_WINDOW:
                got += len(await theirs.read())
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await ours.write(bytes(MAX_WINDOW // 2))  # nobody reads
        assert len(await theirs.read()) > 0


# Cancellation


@pytest.mark.parametrize("size", [INITIAL_WINDOW + 100_000, MAX_WINDOW])
async def test_a_cancelled_write_leaves_whole_frames(size: int) -> None:
    async with streams() as (ours, theirs):
        data = struct.pack(">I", 7) * (size // 4)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.write, data)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        await ours.close()
        got = await read_all(theirs)
        assert INITIAL_WINDOW <= len(got) < len(data)
        assert data.startswith(got)


async def test_a_cancelled_read_loses_nothing() -> None:
    async with streams() as (ours, theirs):
        for _ in range(3):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(theirs.read, 10)
                    await trio.testing.wait_all_tasks_blocked()
                    await ours.write(b"0123456789")
                    scope.cancel()  # when the data may be there already
            with trio.move_on_after(0.1):
                await theirs.read(10)
        await ours.write(b"the last")
        await ours.close()
        assert (await read_all(theirs)).endswith(b"the last")


async def test_cancelled_opening_and_accepting_take_nothing() -> None:
    async with pair() as (ours, theirs):
        opened = [await ours.open_stream() for _ in range(MAX_OUTGOING)]
        for call in (ours.open_stream, ours.accept_stream):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.open_stream)
            await trio.testing.wait_all_tasks_blocked()
            await opened[0].close()
        back = await theirs.open_stream()
        await back.write(b"hello")
        assert await (await ours.accept_stream()).read(5) == b"hello"


# The end of the connection


async def test_closing_writes_what_is_queued_and_says_goodbye() -> None:
    async with alone() as (conn, wire):
        stream = await conn.open_stream()
        await stream.write(bytes(1000))
        await conn.close()
        heard = b""
        while piece := await wire.read(65_536):
            heard += piece
        assert len(heard) == 12 + 12 + 1000 + 12
        assert heard.endswith(frame(GO_AWAY, length=NORMAL))


async def test_closing_waits_for_no_peer_that_reads_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with alone(pair=trio.testing.lockstep_stream_pair) as (conn, _):
        stream = await conn.open_stream()
        await trio.testing.wait_all_tasks_blocked()
        await stream.write(bytes(ROOM))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises, MuxedStreamReset, lambda: stream.write(bytes(10)))
            nursery.start_soon(raises, MuxedStreamReset, lambda: stream.read(1))
            nursery.start_soon(raises, MuxedConnUnavailable, conn.accept_stream)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            nursery.start_soon(conn.close)
            await conn.close()  # both wait for the same end
        assert trio.current_time() - began == pytest.approx(PATIENCE, abs=0.01)


async def test_two_that_close_at_once_wait_for_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()
    async with pair() as ends, trio.open_nursery() as nursery:
        for end in ends:
            nursery.start_soon(end.close)
    assert trio.current_time() == began


async def test_a_reset_wakes_a_writer_that_waits_for_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with alone(pair=trio.testing.lockstep_stream_pair) as (conn, wire):
        stream = await conn.open_stream()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises, MuxedStreamReset, lambda: stream.write(bytes(4 * ROOM)))
            await wire.write(frame(WINDOW_UPDATE, 0, 1, MAX_WINDOW))
            await trio.testing.wait_all_tasks_blocked()
            await wire.write(frame(WINDOW_UPDATE, RST, 1))


@pytest.mark.parametrize("end", ["close", "go away"])
async def test_the_peers_end_wakes_everybody_and_is_told_once(end: str) -> None:
    async with alone() as (conn, wire):
        told: list[bool] = []

        async def on_close() -> None:
            told.append(conn.is_closed)
            await conn.close()

        conn.on_close = on_close
        stream = await conn.open_stream()
        await wire.write(frame(DATA, 0, 1, 5) + b"first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises, MuxedConnUnavailable, conn.accept_stream)
            nursery.start_soon(
                raises, MuxedStreamReset, lambda: stream.write(bytes(INITIAL_WINDOW + 1))
            )
            await trio.testing.wait_all_tasks_blocked()
            if end == "close":
                await wire.close()
            else:
                await wire.write(frame(GO_AWAY, length=NORMAL))
        await conn.event_closed.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [True]
        assert await stream.read(5) == b"first"
        await raises(MuxedStreamReset, lambda: stream.read(1))
        await raises(MuxedConnUnavailable, conn.open_stream)
        await stream.close()
        await stream.reset()


async def test_a_half_that_ended_before_the_connection_has_an_end() -> None:
    async with pair() as (ours, theirs):
        stream = await ours.open_stream()
        await stream.write(b"all")
        await stream.close()
        other = await theirs.accept_stream()
        await ours.close()
        await theirs.event_closed.wait()
        assert await read_all(other) == b"all"


async def test_a_connection_that_is_closed_before_it_starts_never_does() -> None:
    wire, _ = wires()
    conn = YamuxConnection(wire.secured, PEER)
    await conn.close()
    assert wire.closed
    await conn.start()
    assert conn.event_started.is_set()
    assert conn.is_closed
    assert not conn.is_established


async def test_a_fault_of_our_own_ends_one_connection_and_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with alone() as (conn, wire):

        def fail(data: bytes) -> int:
            raise ZeroDivisionError

        monkeypatch.setattr(conn._session, "receive", fail)
        await wire.write(b"anything")
        await conn.event_closed.wait()


# Peers that break the rules


async def test_a_breach_is_answered_with_its_code() -> None:
    async with alone() as (conn, wire):
        await wire.write(frame(7))
        await conn.event_closed.wait()
        assert await wire.read(100) == frame(GO_AWAY, length=PROTOCOL_ERROR)


async def test_a_storm_of_streams_and_resets_reaches_nobody() -> None:
    async with alone() as (conn, wire):
        for number in range(MAX_INCOMING):
            stream = 2 * number + 2
            await wire.write(frame(DATA, SYN, stream) + frame(DATA, RST, stream))
        await wire.write(frame(DATA, SYN, 9998))
        assert (await conn.accept_stream()).stream_id == 9998


async def test_a_stream_refused_is_told_so() -> None:
    async with alone() as (conn, wire):
        for number in range(MAX_INCOMING + 1):
            await wire.write(frame(WINDOW_UPDATE, SYN, 2 * number + 2))
        await trio.testing.wait_all_tasks_blocked()
        heard = await wire.read(65_536)
        assert frame(WINDOW_UPDATE, RST, 2 * MAX_INCOMING + 2) in heard
        assert (await conn.accept_stream()).stream_id == 2


async def test_pings_are_answered_among_everything_else() -> None:
    async with alone() as (_, wire):
        await wire.write(frame(PING, SYN, 0, 77))
        assert await wire.read(100) == frame(PING, 2, 0, 77)


# Within a host


ECHO = TProtocol("/echo/1")
SIZE = 3_000_000


def py_libp2p_host() -> IHost:
    """A host with everything as py-libp2p has it."""
    return libp2p.new_host(
        key_pair=libp2p_keys(new_key()), muxer_opt=libp2p.create_yamux_muxer_option()
    )


async def echo(stream: INetStream) -> None:
    try:
        while True:
            await stream.write(await stream.read(65_536))
    except StreamEOF:
        await stream.close()
    except NETWORK_ERRORS:
        return


@pytest.mark.sockets
@pytest.mark.parametrize("theirs", ["ours", "dials", "listens"])
async def test_a_host_talks_with_its_like_and_with_py_libp2p(theirs: str) -> None:
    ours = new_host(new_key(), 10)
    other = new_host(new_key(), 10) if theirs == "ours" else py_libp2p_host()
    listener, dialler = (other, ours) if theirs == "listens" else (ours, other)
    listener.set_stream_handler(ECHO, echo)
    anywhere = ("/ip4/127.0.0.1/tcp/0",)
    data = bytes(range(250)) * (SIZE // 250)
    with trio.fail_after(30):
        async with listening(listener, anywhere), listening(dialler, anywhere):
            address = Multiaddr(str(listener.get_addrs()[0]))
            await dialler.connect(info_from_p2p_addr(address))
            (conn,) = open_connections(ours, other.get_id().to_bytes())
            assert isinstance(conn.muxed_conn, YamuxConnection)
            secured = conn.muxed_conn.secured_conn
            assert isinstance(secured, SecureConnection)
            assert isinstance(secured._raw, DirectSocket)
            stream = await dialler.new_stream(listener.get_id(), [ECHO])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.write, data)
                got = b""
                while len(got) < len(data):
                    got += await stream.read(65_536)
            assert got == data
            await stream.close()
            await raises(StreamEOF, lambda: stream.read(1))
            broken = await dialler.new_stream(listener.get_id(), [ECHO])
            await broken.reset()
            await raises(StreamReset, lambda: broken.read(1))
            last = await dialler.new_stream(listener.get_id(), [ECHO])
            (gone,) = open_connections(dialler, listener.get_id().to_bytes())
            await listener.disconnect(dialler.get_id())
            assert await read_all(last, StreamError) == b""
            await cast(SwarmConn, gone).event_closed.wait()
