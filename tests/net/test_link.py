"""The link to one peer: what leaves in which write, and who waits for it how long."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.net.link import FAREWELL, Link
from tests.net.recorder import Recorder, on_the_wire

PEER = b"peer"
PATIENCE = 5.0  # seconds of virtual time


def small_link(room: int) -> Link:
    """A link whose lanes hold ``room`` bytes each."""
    link = Link(PEER)
    link.queue = SendQueue(dict.fromkeys(Lane, room))
    return link


async def test_all_queued_frames_leave_in_one_write(nursery: trio.Nursery) -> None:
    link, stream = Link(PEER), Recorder()
    frames = [b"frame %d" % number for number in range(100)]
    for frame in frames:
        link.send_message(frame, frame, Lane.FORWARD)
    nursery.start_soon(link.write_frames, stream.net)
    await wait_all_tasks_blocked()
    assert stream.writes == [on_the_wire(frames)]


async def test_a_write_gathers_frames_until_it_is_full(nursery: trio.Nursery) -> None:
    link, stream = Link(PEER), Recorder()
    frames = [bytes([number]) * 10_000 for number in range(60)]
    for frame in frames:
        link.send_message(frame, frame, Lane.OWN)
    nursery.start_soon(link.write_frames, stream.net)
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire(frames)
    # Four noise records: each has 65,535 bytes, 16 of them its tag, and yamux's header takes
    # 12 (their specifications). The 27th frame of 10,002 bytes goes beyond 4 × 65,507.
    assert [len(write) // 10_002 for write in stream.writes] == [27, 27, 6]


async def test_what_is_queued_while_the_peer_stalls_leaves_in_the_next_write(
    nursery: trio.Nursery,
) -> None:
    link, stream = Link(PEER), Recorder()
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    link.send_control(b"first")
    await wait_all_tasks_blocked()
    for frame in (b"second", b"third"):
        link.send_control(frame)
        link.go()
    await wait_all_tasks_blocked()
    stream.let_go()
    await wait_all_tasks_blocked()
    assert stream.writes == [on_the_wire([b"first"]), on_the_wire([b"second", b"third"])]


async def test_control_goes_before_own_messages_and_those_before_forwarded_ones(
    nursery: trio.Nursery,
) -> None:
    link, stream = Link(PEER), Recorder()
    link.send_message(b"1", b"forwarded", Lane.FORWARD)
    link.send_message(b"2", b"own", Lane.OWN)
    link.send_message(b"3", b"forwarded later", Lane.FORWARD)
    link.send_control(b"control")
    nursery.start_soon(link.write_frames, stream.net)
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([b"control", b"own", b"forwarded", b"forwarded later"])


async def test_a_message_cancelled_before_it_was_written_never_leaves(
    nursery: trio.Nursery,
) -> None:
    link, stream = Link(PEER), Recorder()
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    link.send_message(b"1", b"under way", Lane.FORWARD)
    await wait_all_tasks_blocked()
    link.send_message(b"2", b"unwanted", Lane.FORWARD)
    link.send_message(b"3", b"wanted", Lane.FORWARD)
    assert link.queue.cancel([b"1", b"2"]) == 1
    stream.let_go()
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([b"under way", b"wanted"])


async def test_traffic_counts_what_was_written_with_its_prefixes(nursery: trio.Nursery) -> None:
    link, stream = Link(PEER), Recorder()
    nursery.start_soon(link.write_frames, stream.net)
    for frame in (b"short", bytes(200)):
        link.send_control(frame)
    await wait_all_tasks_blocked()
    assert link.traffic.frames_out == 2
    assert link.traffic.bytes_out == (1 + 5) + (2 + 200) == len(stream.wire)


async def test_nobody_waits_where_there_is_room(autojump_clock: MockClock) -> None:
    link = small_link(100)
    link.send_message(b"1", bytes(60), Lane.OWN)
    await link.wait_for_room(40, PATIENCE)
    assert (trio.current_time(), link.slow) == (0.0, False)


async def test_a_publisher_waits_until_the_peer_has_read_enough(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    link, stream = small_link(100), Recorder()
    link.send_message(b"1", bytes(100), Lane.OWN)

    async def read_after_a_while() -> None:
        await trio.sleep(PATIENCE / 2)
        nursery.start_soon(link.write_frames, stream.net)

    nursery.start_soon(read_after_a_while)
    await link.wait_for_room(50, PATIENCE)
    assert trio.current_time() == PATIENCE / 2
    assert not link.slow
    assert link.send_message(b"2", bytes(50), Lane.OWN)


async def test_a_slow_peer_is_waited_for_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    link, stream = small_link(100), Recorder()
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    link.send_message(b"1", bytes(100), Lane.OWN)
    await wait_all_tasks_blocked()  # that one is in the writer's hands
    link.send_message(b"2", bytes(100), Lane.OWN)

    await link.wait_for_room(100, PATIENCE)
    assert (trio.current_time(), link.slow) == (PATIENCE, True)
    await link.wait_for_room(100, PATIENCE)
    assert trio.current_time() == PATIENCE
    assert not link.send_message(b"3", bytes(100), Lane.OWN)


async def test_a_peer_that_has_caught_up_is_waited_for_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    link, stream = small_link(100), Recorder()
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    link.send_message(b"1", bytes(100), Lane.OWN)
    await wait_all_tasks_blocked()
    link.send_message(b"2", bytes(100), Lane.OWN)
    await link.wait_for_room(100, PATIENCE)
    was_slow = link.slow
    stream.let_go()
    await wait_all_tasks_blocked()
    assert (was_slow, link.slow) == (True, False)

    stream.hold()
    link.send_message(b"3", bytes(100), Lane.OWN)
    await wait_all_tasks_blocked()
    link.send_message(b"4", bytes(100), Lane.OWN)
    await link.wait_for_room(100, PATIENCE)
    assert trio.current_time() == 2 * PATIENCE


async def test_a_message_larger_than_the_lane_fits_when_the_lane_is_empty() -> None:
    link = small_link(100)
    with trio.fail_after(0):
        await link.wait_for_room(1_000_000, PATIENCE)
    assert link.send_message(b"1", bytes(1_000_000), Lane.OWN)


async def test_flush_returns_when_the_last_write_has_returned(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    link, stream = Link(PEER), Recorder()
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    link.send_control(b"under way")
    await wait_all_tasks_blocked()
    link.send_control(b"queued")
    with trio.move_on_after(3) as stalled:
        await link.flush()
    assert stalled.cancelled_caught
    stream.let_go()
    with trio.fail_after(3):
        await link.flush()
    assert stream.wire == on_the_wire([b"under way", b"queued"])


async def test_flush_returns_at_once_where_nothing_is_queued() -> None:
    with trio.fail_after(0):
        await Link(PEER).flush()


async def test_our_stream_ends_behind_what_was_queued_and_the_peers_answer_is_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    link, stream = Link(PEER), Recorder()
    link.outbound = stream.net
    stream.hold()
    nursery.start_soon(link.write_frames, stream.net)
    nursery.start_soon(link.watch, stream.net, nursery.cancel_scope)
    link.send_control(b"the last")
    finished = trio.Event()

    async def finish() -> None:
        await link.finish()
        finished.set()

    nursery.start_soon(finish)
    await wait_all_tasks_blocked()
    states = [(stream.ended.is_set(), finished.is_set())]
    stream.let_go()
    await wait_all_tasks_blocked()
    states.append((stream.ended.is_set(), finished.is_set()))
    stream.answered.set()
    await wait_all_tasks_blocked()
    states.append((stream.ended.is_set(), finished.is_set()))
    assert states == [(False, False), (True, False), (True, True)]
    assert stream.wire == on_the_wire([b"the last"])


async def test_a_peer_that_does_not_answer_our_end_is_not_waited_for_long(
    autojump_clock: MockClock,
) -> None:
    link, stream = Link(PEER), Recorder()
    link.outbound = stream.net
    await link.finish()
    assert trio.current_time() == FAREWELL


async def test_a_stream_that_is_lost_while_it_ends_is_no_error(autojump_clock: MockClock) -> None:
    link = Link(PEER)

    class Vanishing(Recorder):
        async def close(self) -> None:
            link.outbound = None  # as the writer does when a write fails
            await super().close()

    link.outbound = Vanishing().net
    await link.finish()
    assert trio.current_time() == FAREWELL


async def test_a_link_without_a_stream_has_nothing_to_end() -> None:
    with trio.fail_after(0):
        await Link(PEER).finish()


@pytest.mark.parametrize("give_up", [Link.close, Link.lose])
async def test_who_waits_for_a_lost_peer_is_released(
    give_up: Callable[[Link], None], autojump_clock: MockClock
) -> None:
    link = small_link(100)
    link.send_message(b"1", bytes(100), Lane.OWN)
    async with trio.open_nursery() as waiters:
        waiters.start_soon(link.wait_for_room, 100, PATIENCE)
        waiters.start_soon(link.flush)
        await wait_all_tasks_blocked()
        give_up(link)
    assert trio.current_time() == 0.0
    assert link.queue.empty


async def test_closing_a_link_stops_its_writer_and_nobody_waits_for_it_again() -> None:
    link, stream = Link(PEER), Recorder()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            with link.scope:
                await link.write_frames(stream.net)

        nursery.start_soon(serve)
        await wait_all_tasks_blocked()
        link.close()
    assert link.closed
    assert link.slow
