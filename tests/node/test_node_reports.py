"""Reports to those who listen: everybody hears everything, and whoever is slow learns it."""

import gc

import pytest
import trio
import trio.testing

from bruit.node import reports as reports_module
from bruit.node.gossip.actions import PeerLeft
from bruit.node.reports import DialFailed, NodeReport, ReportFeed, ReportsLost

PEER = b"peer"


def reports(count: int, start: int = 0) -> list[NodeReport]:
    return [DialFailed(PEER, str(number)) for number in range(start, start + count)]


async def test_every_listener_hears_every_report_from_when_it_began_to_listen() -> None:
    feed = ReportFeed()
    early = feed.listen()
    feed.tell(PeerLeft(PEER))
    late = feed.listen()
    feed.tell(DialFailed(PEER, "why"))
    feed.close()
    assert [report async for report in early] == [PeerLeft(PEER), DialFailed(PEER, "why")]
    assert [report async for report in late] == [DialFailed(PEER, "why")]


async def test_a_slow_listener_learns_how_many_reports_it_has_missed_and_others_miss_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports_module, "BACKLOG", 5)
    feed = ReportFeed()
    slow, quick = feed.listen(), feed.listen()
    heard = []
    for report in reports(8):
        feed.tell(report)
        heard.append(await anext(quick))
    assert heard == reports(8)
    assert [await anext(slow) for _ in range(5)] == reports(5)
    for report in reports(2, start=8):
        feed.tell(report)
    feed.close()
    assert [report async for report in slow] == [ReportsLost(3), *reports(2, start=8)]


async def test_where_only_the_word_of_the_loss_fits_the_report_behind_it_counts_as_the_next_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports_module, "BACKLOG", 2)
    feed = ReportFeed()
    slow = feed.listen()
    for report in reports(4):
        feed.tell(report)
    assert await anext(slow) == DialFailed(PEER, "0")
    feed.tell(DialFailed(PEER, "4"))
    assert [await anext(slow) for _ in range(2)] == [DialFailed(PEER, "1"), ReportsLost(2)]
    feed.tell(DialFailed(PEER, "5"))
    assert [await anext(slow) for _ in range(2)] == [ReportsLost(1), DialFailed(PEER, "5")]


async def test_a_listener_that_walked_away_is_forgotten() -> None:
    feed = ReportFeed()
    feed.tell(PeerLeft(PEER))
    async for _ in _one_of(feed):
        break
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, reports_module.Reports)]
    assert kept == []


def _one_of(feed: ReportFeed) -> reports_module.Reports:
    listener = feed.listen()
    feed.tell(PeerLeft(PEER))
    return listener


async def test_a_closed_feed_ends_the_iteration_of_whoever_waits() -> None:
    feed = ReportFeed()

    async def listen() -> None:
        assert [report async for report in feed.listen()] == []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        feed.close()
