"""Writing to a stream without the connection's writer: what it takes, and what it leaves it."""

import random

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.net.yamux import YamuxConnection, YamuxStream
from bruit.node.net.yamux_session import (
    DATA,
    GO_AWAY,
    INITIAL_WINDOW,
    MAX_BODY,
    NORMAL,
    ROOM,
    SYN,
    WINDOW_UPDATE,
)
from tests.net.sockets import (
    PEER,
    has_come,
    muxed_pair,
    read_exactly,
    secured_pair,
    stream_pair,
)
from tests.net.test_yamux import frame, pair, read_all, streams


async def test_what_the_socket_takes_is_written_without_a_pass_of_the_scheduler() -> None:
    async with stream_pair() as (ours, theirs):
        ours.write_now(b"at once")
        assert has_come(theirs.muxed_conn.secured_conn)
        assert await theirs.read() == b"at once"


async def test_a_rest_that_the_socket_does_not_take_arrives_first_and_frames_are_whole() -> None:
    async with secured_pair() as (secured, other), trio.open_nursery() as nursery:
        conn = YamuxConnection(secured, PEER)
        nursery.start_soon(conn.start)
        stream = await conn.open_stream()
        await trio.testing.wait_all_tasks_blocked()
        sent = [random.Random(1).randbytes(60_000), b"second", b"third", b"fourth"]
        stream.write_now(sent[0])
        assert secured.unwritten
        stream.write_now(sent[1])  # the writer has its turn before it is parked again
        await stream.write(sent[2])
        await trio.testing.wait_all_tasks_blocked()
        stream.write_now(sent[3])  # while the writer waits for the socket
        nursery.start_soon(conn.close)
        await trio.testing.wait_all_tasks_blocked()
        assert stream.room == 0  # what came after the goodbye would not be read
        frames = [frame(DATA, 0, 1, len(data)) + data for data in sent]
        expected = [frame(WINDOW_UPDATE, SYN, 1), *frames, frame(GO_AWAY, length=NORMAL)]
        size = sum(map(len, expected))
        with trio.fail_after(5):
            assert await read_exactly(other, size) == b"".join(expected)


async def test_without_a_socket_the_writer_writes_it() -> None:
    async with streams() as (ours, theirs):
        await trio.testing.wait_all_tasks_blocked()
        ours.write_now(b"soon")
        assert await theirs.read() == b"soon"


async def test_room_is_for_one_frame_and_no_more_than_window_and_queue_take() -> None:
    async with pair() as (conn, _):
        first, second, third = [await conn.open_stream() for _ in range(3)]
        assert first.room == MAX_BODY
        await first.write(bytes(INITIAL_WINDOW - 10))
        await trio.testing.wait_all_tasks_blocked()
        assert first.room == 10
        first.write_now(bytes(10))
        assert first.room == 0
        assert second.room == MAX_BODY
        await second.write(bytes(ROOM))
        assert third.room == 0
        await trio.testing.wait_all_tasks_blocked()  # the writer has emptied the queue
        assert third.room == MAX_BODY


@pytest.mark.parametrize("end", ["close", "reset", "their reset", "connection", "their connection"])
async def test_there_is_no_room_on_a_stream_that_has_ended(end: str) -> None:
    async with stream_pair() as (ours, theirs):
        assert ours.room == MAX_BODY
        stream = theirs if end.startswith("their") else ours
        if end.endswith("connection"):
            await stream.muxed_conn.close()
        else:
            await getattr(stream, end.removeprefix("their "))()
        await trio.testing.wait_all_tasks_blocked()
        assert ours.room == 0


async def test_a_connection_that_cannot_be_written_at_once_ends() -> None:
    async with secured_pair() as (secured, other), trio.open_nursery() as nursery:
        conn = YamuxConnection(secured, PEER)
        nursery.start_soon(conn.start)
        stream = await conn.open_stream()
        await trio.testing.wait_all_tasks_blocked()
        await other.close()
        stream.write_now(b"for nobody")
        with trio.fail_after(5):
            await conn.event_closed.wait()
        assert stream.room == 0


STEP = st.tuples(
    st.sampled_from(["now", "now", "write", "pass", "listen"]),
    st.integers(0, 2),  # which stream
    st.integers(1, MAX_BODY),
)


@given(st.lists(STEP, max_size=25))
@settings(max_examples=50, deadline=None)
async def test_every_streams_bytes_arrive_in_order_however_they_were_written(
    steps: list[tuple[str, int, int]],
) -> None:
    """One task at a time writes a stream, as a link does; who reads may begin late."""
    listening = trio.Event()
    written, heard = [b""] * 3, [b""] * 3
    busy: set[int] = set()

    async def write(stream: YamuxStream, at: int, data: bytes) -> None:
        await stream.write(data)
        busy.remove(at)

    async def listen(stream: YamuxStream, at: int) -> None:
        await listening.wait()
        heard[at] = await read_all(stream)

    with trio.fail_after(20):
        async with muxed_pair() as (ours, theirs), trio.open_nursery() as listeners:
            streams = [await ours.open_stream() for _ in written]
            for at in range(3):
                listeners.start_soon(listen, await theirs.accept_stream(), at)
            async with trio.open_nursery() as writers:
                for seed, (kind, at, size) in enumerate(steps):
                    data = random.Random(seed).randbytes(size)
                    if kind == "now" and at not in busy:
                        data = data[: streams[at].room]
                        streams[at].write_now(data)
                        written[at] += data
                    elif kind == "write" and at not in busy:
                        busy.add(at)
                        written[at] += data
                        writers.start_soon(write, streams[at], at, data)
                    elif kind == "listen":
                        listening.set()
                    else:
                        await trio.lowlevel.checkpoint()
                listening.set()
            for stream in streams:
                await stream.close()
    assert heard == written
