"""Turns at an uplink."""

import trio
import trio.testing

from bruit.node.net.relay.turns import Turns


async def test_only_so_many_write_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    turns = Turns(2, 1.0)
    await turns.take()
    await turns.take()
    with trio.move_on_after(0.9) as patience:
        await turns.take()
    assert patience.cancelled_caught


async def test_who_asked_first_is_next(autojump_clock: trio.testing.MockClock) -> None:
    turns = Turns(1, 1.0)
    first = await turns.take()
    began = trio.current_time()
    written: list[int] = []

    async def write(number: int) -> None:
        turn = await turns.take()
        written.append(number)
        turns.end(turn)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(write, number)
            await trio.testing.wait_all_tasks_blocked()
        turns.end(first)
    assert written == [0, 1, 2, 3, 4]
    assert trio.current_time() == began


async def test_who_is_slow_does_not_keep_others_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = Turns(1, 0.25)
    slow = await turns.take()
    began = trio.current_time()
    for _ in range(4):
        await turns.take()
    assert trio.current_time() == began + 1.0
    turns.end(slow)  # long over: gives nobody a turn
    with trio.move_on_after(0.2) as patience:
        await turns.take()
    assert patience.cancelled_caught


async def test_who_gives_up_waiting_loses_nobody_a_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = Turns(1, 10.0)
    turn = await turns.take()
    with trio.move_on_after(1.0):
        await turns.take()
    turns.end(turn)
    with trio.fail_after(1.0):
        await turns.take()
