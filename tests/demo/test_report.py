"""What a finished demonstration shows, counted from a run that is made up."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bruit.node.demo.coordinator import Progress
from bruit.node.demo.plan import Plan
from bruit.node.demo.protocol import Figures, Got, Listening, Refused, Sent
from bruit.node.demo.report import (
    Summary,
    hops,
    latency,
    percentile,
    refusals,
    summarise,
    table,
    view,
)

BLOCK = b"block"
DIGEST = "digest"
SENT_AT = 1_000_000.0  # Unix time, seconds

# 0 publishes; it has links to 1 and 2, 2 to 3, 3 to 4.
CHAIN = Plan(5, ((0, 1), (0, 2), (2, 3), (3, 4)), 0, (), ((0, 1, 2), (3, 4)))


def got(node: int, source: int, milliseconds: float, digest: str = DIGEST) -> Got:
    return Got(node, SENT_AT + milliseconds / 1000, f"peer{source}", digest, len(BLOCK), {})


def run_of(plan: Plan, *arrivals: Got) -> Progress:
    progress = Progress(plan, DIGEST)
    progress.addresses = {
        node: Listening(node, f"peer{node}", "/ip4/127.0.0.1/tcp/1") for node in range(plan.nodes)
    }
    progress.sent = Sent(plan.publisher, SENT_AT, 2, "")
    progress.got = {arrival.node: arrival for arrival in arrivals}
    progress.figures = {
        node: Figures(node, 100 + node, 1000 + node, node, 2, 1) for node in plan.survivors
    }
    return progress


FINISHED = (got(0, 0, 1), got(1, 0, 10), got(2, 0, 20.04), got(3, 2, 30), got(4, 3, 40))


# Percentiles


def nearest_rank(values: list[float], share: float) -> float:
    """The smallest value such that at least ``share`` percent of all are no larger."""
    return min(
        value
        for value in values
        if sum(other <= value for other in values) >= share / 100 * len(values)
    )


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_is_the_value_of_the_nearest_rank(values: list[float], share: int) -> None:
    assert percentile(sorted(values), share) == nearest_rank(values, share)


def test_percentiles_of_the_textbook_example() -> None:
    values = [15.0, 20.0, 35.0, 40.0, 50.0]  # Wikipedia, "Percentile", nearest-rank method
    assert [percentile(values, share) for share in (5, 30, 40, 50, 100)] == [
        15.0,
        20.0,
        20.0,
        35.0,
        50.0,
    ]


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 50) is None


# Latencies and hops


def test_a_latency_is_counted_in_milliseconds_from_publishing() -> None:
    progress = run_of(CHAIN, *FINISHED)
    assert [latency(progress, node) for node in range(5)] == [None, 10.0, 20.0, 30.0, 40.0]


def test_where_nothing_arrived_there_is_no_latency_and_no_way() -> None:
    progress = run_of(CHAIN, *FINISHED[:3])
    assert latency(progress, 4) is None
    assert hops(progress, 4) is None


def test_hops_are_links_along_the_copies_that_came_first() -> None:
    progress = run_of(CHAIN, *FINISHED)
    assert [hops(progress, node) for node in range(5)] == [0, 1, 1, 2, 3]


def test_copies_that_run_in_a_circle_lead_nowhere() -> None:
    assert hops(run_of(CHAIN, got(3, 4, 1), got(4, 3, 1)), 4) is None


# The summary


def test_the_summary_of_a_run_adds_up() -> None:
    assert summarise(run_of(CHAIN, *FINISHED), BLOCK, "hash", tampered=False) == Summary(
        nodes=5,
        alive=5,
        delivered=5,
        block_bytes=5,
        block_hash="hash",
        wire_bytes=1000 + 1001 + 1002 + 1003 + 1004,
        p50_ms=20.0,
        p95_ms=40.0,
        max_ms=40.0,
        duplicates=0 + 1 + 2 + 3 + 4,
        rejected=0,
    )


def test_who_was_killed_counts_neither_as_alive_nor_as_delivered() -> None:
    plan = msgspec.structs.replace(CHAIN, victims=(1,))
    progress = run_of(plan, *FINISHED)
    progress.killed = (1,)
    summary = summarise(progress, BLOCK, "hash", tampered=False)
    assert (summary.nodes, summary.alive, summary.delivered) == (5, 4, 4)
    assert summary.p50_ms == 30.0


def test_a_block_with_another_digest_is_not_delivered() -> None:
    progress = run_of(CHAIN, *FINISHED[:4], got(4, 3, 40, digest="another"))
    assert summarise(progress, BLOCK, "hash", tampered=False).delivered == 4


def test_a_publisher_that_tampered_does_not_count_as_somebody_who_took_it() -> None:
    progress = run_of(CHAIN, got(0, 0, 1))
    progress.refused = [Refused(1, "peer0", "peer0", "no"), Refused(2, "peer0", "peer0", "no")]
    summary = summarise(progress, BLOCK, "hash", tampered=True)
    assert (summary.delivered, summary.rejected, summary.p50_ms) == (0, 2, None)


def test_a_refusal_is_a_sentence_with_both_nodes_the_peer_and_the_reason() -> None:
    progress = run_of(CHAIN)
    progress.refused = [Refused(3, "peer2", "peer0", "the merkle root does not match")]
    assert refusals(progress) == [
        "node 3 refused the block from node 2 (peer2): the merkle root does not match"
    ]


# On the screen


def shown(progress: Progress, *, live: bool) -> list[str]:
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as capture:
        console.print(view(progress) if live else table(progress))
    return capture.get().splitlines()


@pytest.fixture
def mixed() -> Progress:
    """0 published, 1 was killed, 2 has it, 3 refused it, 4 heard nothing."""
    progress = run_of(msgspec.structs.replace(CHAIN, victims=(1,)), *FINISHED[:3])
    progress.killed = (1,)
    progress.refused = [Refused(3, "peer2", "peer0", "no")]
    progress.ready = dict.fromkeys(range(5))
    return progress


def test_the_table_tells_the_outcome_of_every_node(mixed: Progress) -> None:
    outcomes = ["published", "killed", "delivered", "refused", "nothing arrived"]
    rows = [line for line in shown(mixed, live=False) if "…peer" in line]
    assert [row.strip(" │").rsplit("│")[-1].strip() for row in rows] == outcomes


def test_the_table_has_the_figures_of_a_node_in_its_row(mixed: Progress) -> None:
    [row] = [line for line in shown(mixed, live=False) if "…peer2" in line]
    cells = [cell.strip() for cell in row.strip(" │").split("│")]
    assert cells == ["2", "…peer2", "20.0", "1", "102", "1,002", "2", "2", "delivered"]


def test_the_live_view_has_one_mark_a_node_and_the_counts(mixed: Progress) -> None:
    mixed.stage = "the block is on its way"
    stage, marks, counts = (line.strip() for line in shown(mixed, live=True))
    assert stage == "the block is on its way"
    assert marks == "● ✗ ● ⊘ ○"
    assert counts == "5 up, 5 meshed, 2 of 4 have the block, 1 refusals"
