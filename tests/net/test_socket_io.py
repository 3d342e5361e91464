"""A socket read and written without py-libp2p's locks: what arrives, and how it ends."""

import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.network.connection.raw_connection import RawConnection

from bruit.node.net.socket_io import DirectSocket, direct
from tests.net.sockets import narrow_pair, tcp_pair
from tests.net.wires import wires

pytestmark = pytest.mark.sockets

SIZE = 65_536  # asked of the socket at a time
LONG = 8_000_000  # bytes: more than the kernel holds
Ends = tuple[DirectSocket, DirectSocket]


def both(pair: tuple[RawConnection, RawConnection]) -> Ends:
    left, right = (direct(end) for end in pair)
    assert isinstance(left, DirectSocket)
    assert isinstance(right, DirectSocket)
    return left, right


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    async with tcp_pair() as pair:
        yield both(pair)


def some(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


async def read_exactly(end: DirectSocket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await end.read(min(SIZE, size - len(data)))
        assert part
        data += part
    return bytes(data)


async def fill(end: DirectSocket) -> bytes:
    """What the kernel takes until it takes no more."""
    data = some(LONG)
    sent = 0
    while taken := end.write_now(data[sent:]):
        sent += taken
        await trio.testing.wait_all_tasks_blocked(0.01)  # the kernel moves it to the other end
    assert sent < LONG
    return data[:sent]


async def break_off(raw: RawConnection) -> None:
    """End a connection the hard way, as a peer's kernel does when its process has gone."""
    stream = raw.stream.stream  # type: ignore[attr-defined]
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await raw.close()


@given(sizes=st.lists(st.tuples(st.booleans(), st.integers(1, 40_000)), max_size=12))
@settings(max_examples=30, deadline=None)
async def test_bytes_arrive_in_order_both_ways(sizes: list[tuple[bool, int]]) -> None:
    async with narrow_pair() as pair:
        left, right = both(pair)
        ways: dict[bool, list[bytes]] = {True: [], False: []}
        for seed, (forth, size) in enumerate(sizes):
            ways[forth].append(some(size, seed))

        async def send(end: DirectSocket, parts: list[bytes]) -> None:
            for part in parts:
                await end.write(part)

        async def receive(end: DirectSocket, parts: list[bytes]) -> None:
            data = b"".join(parts)
            assert await read_exactly(end, len(data)) == data

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, left, ways[True])
                nursery.start_soon(send, right, ways[False])
                nursery.start_soon(receive, right, ways[True])
                nursery.start_soon(receive, left, ways[False])


@pytest.mark.parametrize("size", [1, SIZE, LONG])
async def test_a_reader_that_starts_late_gets_all_of_it(ends: Ends, size: int) -> None:
    left, right = ends
    data = some(size)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(left.write, data)
            await trio.testing.wait_all_tasks_blocked()
            assert bool(nursery.child_tasks) == (size == LONG)  # waits for the kernel
            assert await read_exactly(right, size) == data


async def test_a_read_gives_what_there_is_and_no_more_than_asked(ends: Ends) -> None:
    left, right = ends
    await left.write(b"abcdef")
    assert await right.read(4) == b"abcd"
    assert await right.read(SIZE) == b"ef"


async def test_a_write_that_the_kernel_takes_does_not_yield(ends: Ends) -> None:
    left, right = ends
    with trio.CancelScope() as scope:
        scope.cancel()
        await left.write(b"all of it")
    assert not scope.cancelled_caught
    assert await right.read(SIZE) == b"all of it"


async def test_the_peers_end_is_an_end(ends: Ends) -> None:
    left, right = ends
    await left.write(b"the last")
    await left.close()
    assert await right.read(SIZE) == b"the last"
    for _ in range(2):
        assert await right.read(SIZE) == b""


async def test_closed_here_is_an_end_to_who_reads_and_an_error_to_who_writes(ends: Ends) -> None:
    left, _ = ends
    await left.close()
    assert await left.read(SIZE) == b""
    with pytest.raises(ConnectionClosedError):
        await left.write(b"more")
    assert left.write_now(b"more") == 0


async def test_closing_here_wakes_who_waits(ends: Ends) -> None:
    left, _ = ends
    got: list[bytes] = []

    async def read() -> None:
        got.append(await left.read(SIZE))

    async def write() -> None:
        with pytest.raises(ConnectionClosedError):
            await left.write(some(LONG))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            await left.close()
    assert got == [b""]


async def test_closing_here_just_when_something_has_come_is_an_end_too(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ends
    wait = trio.lowlevel.wait_readable

    async def wait_and_close(sock: int | socket.socket) -> None:
        await wait(sock)
        await left.close()

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_and_close)
    await right.write(b"too late")
    assert await left.read(SIZE) == b""


async def test_a_socket_that_has_the_number_of_a_closed_one_is_left_alone(ends: Ends) -> None:
    left, _ = ends
    number = left._socket.fileno()
    await left.close()
    others = [trio.socket.socketpair() for _ in range(3)]
    try:
        assert number in [end.fileno() for pair in others for end in pair]
        assert left.write_now(b"for nobody") == 0
        assert await left.read(SIZE) == b""
        for pair in others:
            for end in pair:
                with pytest.raises(BlockingIOError):
                    end._sock.recv(1)  # type: ignore[attr-defined]
    finally:
        for pair in others:
            for end in pair:
                end.close()


@pytest.mark.parametrize(
    "call", [lambda end: end.read(SIZE), lambda end: end.write(some(LONG))], ids=["read", "write"]
)
@pytest.mark.parametrize("waiting", [True, False])
async def test_a_connection_that_the_peer_breaks_is_closed(
    call: Callable[[DirectSocket], Awaitable[object]], waiting: bool
) -> None:
    async with tcp_pair() as pair:
        left, _ = both(pair)

        async def run() -> None:
            with pytest.raises(ConnectionClosedError):
                await call(left)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                if waiting:
                    nursery.start_soon(run)
                    await trio.testing.wait_all_tasks_blocked()
                await break_off(pair[1])
                await trio.testing.wait_all_tasks_blocked(0.01)
                if not waiting:
                    nursery.start_soon(run)


async def test_a_broken_connection_takes_nothing_at_once_and_the_next_write_says_why() -> None:
    async with tcp_pair() as pair:
        left, _ = both(pair)
        await break_off(pair[1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert left.write_now(b"data") == 0
        with pytest.raises(ConnectionClosedError):
            await left.write(b"data")


async def test_what_the_kernel_takes_at_once_arrives_and_the_rest_is_left(ends: Ends) -> None:
    left, right = ends
    assert left.write_now(b"") == 0
    assert left.write_now(b"small") == 5
    assert await right.read(SIZE) == b"small"
    sent = await fill(left)
    assert left.write_now(b"full") == 0
    assert await read_exactly(right, len(sent)) == sent
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert left.write_now(b"again") == 5
    assert await right.read(SIZE) == b"again"


async def test_a_cancelled_read_loses_nothing(ends: Ends) -> None:
    left, right = ends
    for number in range(3):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(right.read, SIZE)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        await left.write(b"%d" % number)
        assert await right.read(SIZE) == b"%d" % number
        await right.write(b"answer")
        assert await left.read(SIZE) == b"answer"


async def test_only_tcp_of_py_libp2p_is_taken_over() -> None:
    left, _ = wires()
    assert direct(left.raw) is left.raw


async def test_addresses_are_those_of_the_connection_taken_over() -> None:
    async with tcp_pair() as pair:
        left, right = both(pair)
        assert left.is_initiator
        assert not right.is_initiator
        assert left.get_remote_address() == pair[0].get_remote_address() is not None
        assert left.get_transport_addresses() == pair[0].get_transport_addresses()
        assert left.get_connection_type() == pair[0].get_connection_type()
