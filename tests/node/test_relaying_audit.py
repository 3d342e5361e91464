"""Reports of the relay are written in order; a slow disk costs rows of chunks, and nothing else."""

import threading
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from bruit.node.audit import Audit, AuditReport
from bruit.node.auditing import BACKLOG, BACKLOG_BYTES, Auditing
from bruit.node.relay.actions import DeliverBlock, StakeAttached
from bruit.topics.errors import LocalError

STAKE = StakeAttached(7, b"abcd", 1, 0, 100)


def a_block(size: int) -> DeliverBlock:
    return DeliverBlock(7, b"abcd", bytes(size), bytes(32), (), {}, 1.0, {})


class Disk:
    """An audit that writes when a test lets it."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.problem = ""
        self.written: list[tuple[AuditReport, float]] = []

    def keep(self, report: AuditReport, now: float) -> Path:
        assert self.free.wait(10)
        if self.problem:
            raise LocalError(self.problem)
        self.written.append((report, now))
        return Path("file")


class Bench:
    def __init__(self) -> None:
        self.disk = Disk()
        self.kept: list[tuple[AuditReport, Path | None]] = []
        self.auditing = Auditing(
            cast(Audit, self.disk), lambda report, file: self.kept.append((report, file))
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_without_an_audit_everything_is_kept_at_once() -> None:
    kept: list[object] = []
    auditing = Auditing(None, lambda report, file: kept.append((report, file)))
    await auditing.keep_first(STAKE, 1.0)
    assert kept == [(STAKE, None)]


async def test_who_must_wait_for_the_disk_does(bench: Bench, nursery: trio.Nursery) -> None:
    nursery.start_soon(bench.auditing.run)
    bench.auditing.keep(a_block(5), 1.0)
    with trio.fail_after(5):
        await bench.auditing.keep_first(STAKE, 2.0)
    assert bench.disk.written == [(a_block(5), 1.0), (STAKE, 2.0)]


@pytest.mark.parametrize(
    ("count", "size"), [(BACKLOG, 1), (2, BACKLOG_BYTES // 2)], ids=["many", "much"]
)
async def test_a_slow_disk_costs_rows_of_blocks_and_never_stake(
    bench: Bench, count: int, size: int
) -> None:
    block = a_block(size)
    for _ in range(count + 1):
        bench.auditing.keep(block, 1.0)
    bench.auditing.keep(STAKE, 1.0)
    await bench.auditing.finish()
    assert len(bench.disk.written) == count + 1
    assert bench.disk.written[-1] == (STAKE, 1.0)
    assert bench.auditing.left_out == 1
    assert len(bench.kept) == count + 2


async def test_a_full_disk_is_told_once_and_stops_nothing(
    bench: Bench, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    nursery.start_soon(bench.auditing.run)
    bench.disk.problem = "no room"
    with trio.fail_after(5):
        for _ in range(3):
            await bench.auditing.keep_first(STAKE, 1.0)
        bench.disk.problem = ""
        await bench.auditing.keep_first(STAKE, 2.0)
    assert bench.disk.written == [(STAKE, 2.0)]
    assert [record.getMessage() for record in caplog.records if "audit" in record.name] == [
        "the audit misses a StakeAttached: no room"
    ]


async def test_what_is_under_way_when_the_node_stops_is_written_once(bench: Bench) -> None:
    bench.disk.free.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.auditing.run)
        bench.auditing.keep(STAKE, 1.0)
        await wait_all_tasks_blocked()
        bench.auditing.keep(STAKE, 2.0)
        nursery.cancel_scope.cancel()
        bench.disk.free.set()
    await bench.auditing.finish()
    assert bench.disk.written == [(STAKE, 1.0), (STAKE, 2.0)]
    assert len(bench.kept) == 2
