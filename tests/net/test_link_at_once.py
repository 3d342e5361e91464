"""A link that writes without its writer: what leaves at once, and what goes to the writer."""

import random
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.abc import INetStream

from bruit.node.gossip.actions import Lane
from bruit.node.net.framing import MAX_PREFIX, FrameSplitter
from bruit.node.net.host import NETWORK_ERRORS
from bruit.node.net.link import Link
from bruit.node.net.yamux import YamuxStream
from bruit.node.net.yamux_session import INITIAL_WINDOW, MAX_BODY
from tests.net.recorder import Recorder, on_the_wire
from tests.net.sockets import has_come, stream_pair

PEER = b"peer"
MAX_FRAME = 1_000_000


def net(stream: YamuxStream) -> INetStream:
    """py-libp2p's stream around one of the muxer, as far as a link looks at it."""
    return cast(INetStream, SimpleNamespace(muxed_stream=stream))


async def read_frames(stream: YamuxStream, count: int) -> list[bytes]:
    splitter, frames = FrameSplitter(MAX_FRAME), list[bytes]()
    while len(frames) < count:
        frames += splitter.feed(await stream.read(INITIAL_WINDOW))
    assert splitter.buffered == 0
    return frames


async def serve(link: Link, stream: YamuxStream, nursery: trio.Nursery) -> None:
    """Start the link's writer, which finds nothing to do."""
    nursery.start_soon(link.write_frames, net(stream))
    await trio.testing.wait_all_tasks_blocked()


async def test_what_is_queued_leaves_at_once_while_the_writer_is_idle(
    nursery: trio.Nursery,
) -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        await serve(link, ours, nursery)
        frames = [b"control", b"own", b"forwarded"]
        link.send_message(b"2", frames[2], Lane.FORWARD)
        link.send_message(b"1", frames[1], Lane.OWN)
        link.send_control(frames[0])
        assert not has_come(theirs.muxed_conn.secured_conn)
        link.go()
        assert has_come(theirs.muxed_conn.secured_conn)
        assert link.queue.empty
        assert link.traffic.frames_out == 3
        assert link.traffic.bytes_out == len(on_the_wire(frames))
        with trio.fail_after(0):
            await link.flush()
        assert link.lose() == (0, ())
        assert await read_frames(theirs, 3) == frames


@pytest.mark.parametrize("spare", [0, -1], ids=["all the room", "one byte more"])
async def test_more_than_there_is_room_for_is_left_to_the_writer(
    spare: int, nursery: trio.Nursery
) -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        await serve(link, ours, nursery)
        frames = [b"small", bytes(MAX_BODY - 2 * MAX_PREFIX - len(b"small") - spare)]
        for frame in frames:
            link.send_message(frame, frame, Lane.FORWARD)
        link.go()
        at_once = has_come(theirs.muxed_conn.secured_conn)
        assert (at_once, link.queue.empty) == ((True, True) if spare == 0 else (False, False))
        assert await read_frames(theirs, 2) == frames
        assert link.traffic.frames_out == 2
        assert link.traffic.bytes_out == len(on_the_wire(frames))


async def test_where_the_window_is_used_up_the_writer_waits_for_it(nursery: trio.Nursery) -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        await serve(link, ours, nursery)
        frames = [bytes([number]) * 50_000 for number in range(10)]
        for frame in frames:
            link.send_message(frame, frame, Lane.FORWARD)
            link.go()
            await trio.testing.wait_all_tasks_blocked()
        assert not link.queue.empty
        with trio.move_on_after(0.05) as scope:
            await link.flush()
        assert scope.cancelled_caught
        assert await read_frames(theirs, len(frames)) == frames
        with trio.fail_after(5):
            await link.flush()


STEP = st.tuples(
    st.sampled_from(["go", "go", "wake", "pass", "wait", "listen"]), st.integers(0, 90_000)
)


@given(st.lists(STEP, max_size=20))
@settings(max_examples=50, deadline=None)
async def test_frames_arrive_in_their_order_whoever_writes_them(
    steps: list[tuple[str, int]],
) -> None:
    link, sent = Link(PEER), list[bytes]()
    got: list[bytes] = []
    listening = trio.Event()
    with trio.fail_after(20):
        async with stream_pair() as (ours, theirs), trio.open_nursery() as nursery:
            await serve(link, ours, nursery)
            count = sum(kind in ("go", "wake") for kind, _ in steps)

            async def listen() -> None:
                await listening.wait()
                got.extend(await read_frames(theirs, count))

            async with trio.open_nursery() as listener:
                listener.start_soon(listen)
                for number, (kind, size) in enumerate(steps):
                    if kind in ("go", "wake"):
                        sent.append(random.Random(number).randbytes(size))
                        assert link.send_message(b"%d" % number, sent[-1], Lane.FORWARD)
                        link.go() if kind == "go" else link.wake()
                    elif kind == "listen":
                        listening.set()
                    elif kind == "wait":
                        await trio.testing.wait_all_tasks_blocked()
                    else:
                        await trio.lowlevel.checkpoint()
                listening.set()
            await link.flush()
            nursery.cancel_scope.cancel()
    assert got == sent
    assert link.traffic.frames_out == len(sent)
    assert link.traffic.bytes_out == len(on_the_wire(sent))


async def test_a_stream_of_another_muxer_is_written_by_the_writer(nursery: trio.Nursery) -> None:
    link, stream = Link(PEER), Recorder()
    nursery.start_soon(link.write_frames, stream.net)
    await trio.testing.wait_all_tasks_blocked()
    link.send_control(b"hello")
    link.go()
    assert stream.writes == []
    await trio.testing.wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([b"hello"])


async def test_without_a_stream_frames_wait_for_one(nursery: trio.Nursery) -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        link.send_control(b"early")
        link.go()
        await serve(link, ours, nursery)
        assert await read_frames(theirs, 1) == [b"early"]


async def test_nothing_is_written_to_a_stream_that_was_lost() -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        async with trio.open_nursery() as nursery:
            await serve(link, ours, nursery)
            nursery.cancel_scope.cancel()
            link.send_control(b"when the writer is cancelled")
            link.go()
        assert link.lose() == (1, (b"when the writer is cancelled",))
        link.send_control(b"later")
        link.go()
        assert not link.queue.empty
        assert not has_come(theirs.muxed_conn.secured_conn)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_the_writer_finds_out_that_the_stream_has_ended(end: str) -> None:
    async with stream_pair() as (ours, _):
        link = Link(PEER)
        failed = trio.Event()

        async def write() -> None:
            with pytest.raises(NETWORK_ERRORS):
                await link.write_frames(net(ours))
            failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            await getattr(ours, end)()
            link.send_control(b"lost")
            link.go()
            assert link.traffic.frames_out == 0
            with trio.fail_after(5):
                await failed.wait()
        assert link.lose() == (1, (b"lost",))


async def test_with_nothing_queued_nothing_is_written() -> None:
    async with stream_pair() as (ours, theirs):
        link = Link(PEER)
        async with trio.open_nursery() as nursery:
            await serve(link, ours, nursery)
            link.go()
            await trio.testing.wait_all_tasks_blocked()
            assert link.traffic.frames_out == 0
            link.send_control(b"after")
            link.go()
            assert await read_frames(theirs, 1) == [b"after"]
            nursery.cancel_scope.cancel()
