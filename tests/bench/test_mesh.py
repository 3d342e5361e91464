"""The bench in small, ours against ours: nothing is lost, and every figure is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.lab import Lab, Result, Scale, until
from bench.loads import flood, heartbeat
from bench.mesh import IMPLEMENTATIONS, KEYS, OURS, PYTHON_PEERS, Record
from bench.networks import graph, hop3, percentile, regular_graph
from bench.pairs import pair_1k, pair_1k_fanout, pair_1k_nosign, pair_500k
from bench.remote import BenchError, Remote
from bench.serving import HEAD, Run, bodies

ROOT = Path(__file__).parents[2]
TIMEOUT = 120  # seconds; the run takes about eight
SCALE = Scale(
    small=200,
    large=4,
    hop_seconds=0.5,
    warm_up=1.0,
    graph_step=0.5,
    graph_rate=24.0,
    graph_steps=1,
    crowd=3,
    crowd_topics=2,
    heartbeats=2,
    heartbeat_delay=0.1,
    flood_seconds=0.5,
)


@pytest.fixture
def lab() -> Lab:
    return Lab(PYTHON_PEERS, SCALE)


@pytest.mark.sockets
@pytest.mark.parametrize("case", [pair_1k, pair_1k_fanout, pair_1k_nosign, pair_500k])
def test_a_pair_delivers_all_that_was_taken(case: object, lab: Lab) -> None:
    assert callable(case)
    result: Result = case(lab, OURS)
    key = next(iter(result.figures))
    count = SCALE.large if key == "pair_500k" else SCALE.small
    for what in ("offered", "taken", "delivered"):
        assert result.counts[f"{key}_{what}"] == count
    assert result.counts[f"{key}_repeated"] == 0
    assert not result.lost
    assert result.figures[key] > 0
    assert all(value >= 0 for value in result.figures.values())  # CPU time in steps of 10 ms


@pytest.mark.sockets
def test_over_three_hops_everything_arrives(lab: Lab) -> None:
    result = hop3(lab, OURS)
    assert result.counts == {"hop3_taken": 25, "hop3_delivered": 25}
    assert 0 < result.figures["hop3_p50_ms"] <= result.figures["hop3_p99_ms"]


@pytest.mark.sockets
def test_a_rate_that_the_graph_carries_holds(lab: Lab) -> None:
    figures = graph(lab, OURS).figures
    assert figures["graph_rate"] == SCALE.graph_rate
    assert figures["rss_mb_first"] > 10
    assert figures["rss_mb_per_node"] > 0


@pytest.mark.sockets
def test_heartbeats_are_timed(lab: Lab) -> None:
    figures = heartbeat(lab, OURS).figures
    assert 0 < figures["heartbeat_ms"] <= figures["heartbeat_ms_longest"]


@pytest.mark.sockets
def test_the_flood_is_written_and_none_of_it_delivered(lab: Lab) -> None:
    lab.rates[OURS] = [100.0]
    result = flood(lab, OURS)
    assert result.figures["flood_goodput_ratio"] > 0
    assert result.figures["flood_written_per_s"] > 0
    assert result.counts["flood_delivered"] <= result.counts["flood_offered"] == 25


@pytest.mark.sockets
def test_the_last_line_has_every_key() -> None:
    arguments = ["--quick", "--rounds", "2", "--only", "ours", "--cases", "pair_500k"]
    run = subprocess.run(
        [sys.executable, "-m", "bench.mesh", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    for kind in IMPLEMENTATIONS:
        assert result[kind].keys() >= set(KEYS)
    assert result.keys() >= {"ratios", "left_out", "inputs", "versions", "machine"}
    ours = result[OURS]
    assert ours["pair_500k"] > 0
    assert ours["pair_500k_delivered"] == ours["pair_500k_taken"] == 2 * 40
    assert ours["pair_1k"] is result["go"]["pair_500k"] is None
    assert result["versions"][OURS]["python"]


def test_a_loss_fails_the_run_and_names_whose_it_was() -> None:
    record = Record()
    record.add("go", "pair_1k", 1, Result({"pair_1k": 1.0}, lost="pair_1k: 9 of 10 delivered"))
    assert record.lost == ["go: pair_1k: 9 of 10 delivered"]


def test_figures_are_medians_counts_sums_and_ratios_taken_within_a_round() -> None:
    record = Record()
    for number, (ours, theirs) in enumerate([(10.0, 1.0), (90.0, 10.0), (20.0, 10.0)]):
        record.add(OURS, "pair_1k", number, Result({"pair_1k": ours}, {"n": 5}))
        record.add("js", "pair_1k", number, Result({"pair_1k": theirs}, {"n": 5}))
    assert record.figures(OURS)["pair_1k"] == 20.0
    assert record.figures(OURS)["n"] == 15
    assert record.ratios("js") == {"pair_1k": 9.0}


def test_a_process_that_ends_is_an_error_that_says_how() -> None:
    with (
        pytest.raises(BenchError, match="ended with status 3"),
        Remote("none", [sys.executable, "-c", "raise SystemExit(3)"], {}) as remote,
    ):
        remote.listen()


def test_cpu_time_and_memory_of_children_count() -> None:
    child = "import time; held = b'x' * 50_000_000; end = time.process_time() + 0.3\n"
    child += "while time.process_time() < end: pass\ntime.sleep(5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], timeout=9)"
    with Remote("parent", [sys.executable, "-c", parent], {}) as remote:
        until(lambda: remote.cpu() > 0.3, 10.0, "CPU time of the child")
        assert remote.rss_mb() > 50


def test_a_lost_a_changed_and_a_doubled_payload_are_noticed() -> None:
    good = [HEAD.pack(1, index, 7) + body for index, body in enumerate(bodies(3, 100))]
    assert {len(payload) for payload in good} == {100}
    assert good[0][16:96] == bytes(7 * position & 0xFF for position in range(16, 96))
    run = Run(nodes=1, length=100)
    for payload in (good[0], good[0], good[2][:-1], good[1][:-1] + b"\xff"):
        number, index, sent = HEAD.unpack_from(payload)
        assert number == 1
        run.take(0, payload, index, sent)
    assert (run.counts, run.repeated, run.wrong) == ([1], 1, 2)


def test_the_graph_has_four_neighbours_for_each_of_twelve() -> None:
    pairs = regular_graph()
    assert pairs == regular_graph()
    assert [sum(node in pair for pair in pairs) for node in range(12)] == [4] * 12


def test_a_percentile_is_a_value_that_was_measured() -> None:
    ordered = list(range(1, 101))
    assert (percentile(ordered, 0.5), percentile(ordered, 0.99)) == (50, 99)
    assert percentile([5], 0.99) == 5
