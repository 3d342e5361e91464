"""Small jobs run on the event loop in slices, large ones in threads, and who brings more waits."""

import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from bruit.node.net.relay.jobs import LARGE, MAX_WAITING, MAX_WAITING_BYTES, Job, Jobs


class Bench:
    def __init__(self) -> None:
        self.jobs = Jobs()
        self.answers: list[str] = []
        self.threads: dict[str, int] = {}

    def job(self, name: str) -> Job:
        def run() -> Callable[[], None]:
            self.threads[name] = threading.get_ident()
            return lambda: self.answers.append(name)

        return run


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_small_jobs_run_on_the_loop_in_order_and_urgent_ones_first(
    bench: Bench, nursery: trio.Nursery
) -> None:
    bench.jobs.add(bench.job("one"), 10)
    bench.jobs.add(bench.job("two"), 10)
    bench.jobs.add(bench.job("urgent"), 10, urgent=True)
    nursery.start_soon(bench.jobs.run)
    await wait_all_tasks_blocked()
    assert bench.answers == ["urgent", "one", "two"]
    assert set(bench.threads.values()) == {threading.get_ident()}
    assert bench.jobs.count == 0


async def test_large_jobs_run_in_a_thread_and_are_answered_on_the_loop(
    bench: Bench, nursery: trio.Nursery
) -> None:
    nursery.start_soon(bench.jobs.run)
    answered = trio.Event()
    bench.jobs.add(bench.job("large"), LARGE)
    bench.jobs.add(lambda: answered.set, LARGE)
    with trio.fail_after(5):
        await answered.wait()
    assert bench.answers == ["large"]
    assert bench.threads["large"] != threading.get_ident()


@pytest.mark.parametrize(
    ("count", "size"), [(MAX_WAITING, 0), (1, MAX_WAITING_BYTES)], ids=["many", "much"]
)
async def test_who_brings_more_waits_while_too_much_is_waiting(
    bench: Bench, nursery: trio.Nursery, count: int, size: int
) -> None:
    for number in range(count):
        bench.jobs.add(bench.job(str(number)), size)
    waited = trio.Event()

    async def wait() -> None:
        await bench.jobs.room()
        waited.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert not waited.is_set()
    nursery.start_soon(bench.jobs.run)
    with trio.fail_after(5):
        await waited.wait()
