"""The bench of two processes: what it prints, and that it would notice a loss."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.payloads import checksum, payloads

ROOT = Path(__file__).parents[2]
TIMEOUT = 120  # seconds; a run takes about five
FIGURES = {"msgs_per_s", "mb_per_s", "delivered", "sent", "cpu_us_per_msg"}


@pytest.mark.sockets
def test_a_short_run_of_ours_loses_nothing_and_ends_with_its_figures_as_json() -> None:
    arguments = ["--only", "ours", "--messages-1k", "200", "--messages-500k", "3", "--rounds", "2"]
    run = subprocess.run(
        [sys.executable, "-m", "bench.pair", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert result.keys() >= {"ours", "inputs", "versions", "machine"}
    small, large = result["ours"], result["ours"]["500k"]
    assert small.keys() >= FIGURES
    assert large.keys() >= FIGURES
    assert small["delivered"] == small["sent"] == 2 * 200
    assert large["delivered"] == large["sent"] == 2 * 3
    assert small["msgs_per_s"] > 0
    assert large["mb_per_s"] == pytest.approx(large["msgs_per_s"] * 0.5, rel=0.01)
    assert result["ratio_1k"] is None  # there is nothing to compare with


def test_the_checksum_knows_no_order() -> None:
    sent = payloads(size=100, count=5)
    assert checksum(reversed(sent)) == checksum(sent)


def test_a_lost_a_changed_and_a_doubled_payload_each_change_the_checksum() -> None:
    sent = payloads(size=100, count=5)
    changed = bytes([sent[0][0] ^ 1]) + sent[0][1:]
    received = [sent[1:], [changed, *sent[1:]], [*sent, sent[0]]]
    assert len({checksum(each) for each in [sent, *received]}) == 4


def test_payloads_are_the_same_each_time_and_all_different() -> None:
    assert payloads(size=1024, count=20) == payloads(size=1024, count=20)
    assert {len(each) for each in payloads(size=1024, count=20)} == {1024}
    assert len(set(payloads(size=1024, count=20))) == 20
