"""What `bruit run` leaves out of its log, so that peers cannot fill the disk."""

import pytest
import structlog.testing
import trio
import trio.testing

from bruit import Node
from bruit.node.cli.watch import MAX_RECORDS, Tally, Watch
from bruit.node.config import ScoringConfig
from bruit.node.reports import ScoreCrossed
from bruit.topics.keys import peer_id_text
from tests.net.loopback import TIMEOUT, config, first
from tests.node.test_node_scores import chain, judging


def test_an_interval_in_which_nothing_happened_has_no_summary() -> None:
    assert Tally().take() is None


def test_records_of_a_kind_are_limited_and_the_rest_counted_for_each_kind() -> None:
    tally = Tally()
    admitted = [tally.admit("rejected") for _ in range(MAX_RECORDS + 7)]
    assert admitted == [True] * MAX_RECORDS + [False] * 7
    assert tally.admit("delivered")
    assert tally.take() == {
        "delivered": 1,
        "rejected": MAX_RECORDS + 7,
        "dropped": {},
        "left_out": {"rejected": 7},
    }


def test_the_next_interval_starts_afresh() -> None:
    tally = Tally()
    for _ in range(MAX_RECORDS + 1):
        tally.admit("delivered")
    tally.take()
    assert tally.take() is None
    assert tally.admit("delivered")


def test_drops_are_counted_by_reason() -> None:
    tally = Tally()
    for reason in ("duplicate", "send queue full", "duplicate"):
        tally.drop(reason)
    summary = tally.take()
    assert summary is not None
    assert summary["dropped"] == {"duplicate": 2, "send queue full": 1}


def test_reports_that_came_too_fast_are_left_out_by_number() -> None:
    tally = Tally()
    tally.lose(12)
    tally.lose(3)
    summary = tally.take()
    assert summary is not None
    assert summary["left_out"] == {"reports": 15}


@pytest.mark.sockets
async def test_a_score_below_a_threshold_is_logged_with_what_it_is_the_sum_of() -> None:
    settings = judging(ScoringConfig(app_scores=("chain",)))
    with trio.fail_after(TIMEOUT), structlog.testing.capture_logs() as records:
        async with (
            Node(settings, plugins=chain(lambda peer: -700)) as node,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(Watch(settings).work, node)
            reports = node.reports()
            async with Node(config(peers=node.addresses)) as peer:
                crossed = await first(reports, ScoreCrossed)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    [record, *_] = [record for record in records if record["event"] == "score below"]
    assert record["log_level"] == "warning"
    assert record["peer"] == peer_id_text(peer.peer_id)
    assert record["threshold"] == crossed.threshold
    assert record["why"]["app_specific"] == -700
    assert sum(record["why"].values()) == pytest.approx(record["score"])
