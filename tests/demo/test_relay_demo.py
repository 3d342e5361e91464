"""``bruit relay demo`` as its users run it: processes, sockets, evidence, and one line of JSON."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bruit.node.cli import main

TIMEOUT = 120  # seconds, of a run that has gone wrong
COMMAND = [sys.executable, "-m", "bruit.node.cli", "relay", "demo"]
SMALL = ["--members", "1", "--consumers", "2", "--txs", "100", "--json"]
# Of 32 chunks, one cluster of three is all but certain to get some and to leave others 8.
THREE = ["--clusters", "3", "--chunks", "8/32"]
KEYS = [
    "consumers",
    "delivered",
    "chunks_sent",
    "acks",
    "disputes",
    "evidence",
    "p50_ms",
    "max_ms",
    "selector",
]


def demo(*arguments: str) -> tuple[str, dict[str, Any]]:
    """Standard output, and its line of JSON, of a small demonstration that ends as it should."""
    done = subprocess.run(
        [*COMMAND, *SMALL, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(summary) == KEYS
    return done.stdout, summary


def kinds(summary: dict[str, Any]) -> set[str]:
    """Of the evidence, all of which must hold."""
    assert summary["disputes"] == len(summary["evidence"])
    assert all(each["holds"] for each in summary["evidence"])
    return {each["kind"] for each in summary["evidence"]}


def relay_address(folder: Path) -> str:
    """As another command of ours tells it."""
    done = CliRunner().invoke(main, ["relay", "key", "show", str(folder / "relay.key")])
    assert done.exit_code == 0
    return done.output.strip()


@pytest.mark.sockets
def test_every_consumer_has_the_block_and_every_chunk_is_acknowledged() -> None:
    output, summary = demo(
        "--clusters", "2", "--members", "2", "--attest", "merkle", "--selector", "qos"
    )
    assert (summary["consumers"], summary["delivered"]) == (2, 2)
    assert (summary["acks"], summary["disputes"]) == (64, 0)
    assert summary["chunks_sent"] >= 64
    assert 0 < summary["p50_ms"] <= summary["max_ms"]
    assert summary["selector"] == "qos"
    assert output.count("│ delivered │") == 2
    assert "FAIL" not in output


@pytest.mark.sockets
def test_a_block_gets_through_where_a_cluster_forwards_nothing() -> None:
    output, summary = demo(*THREE, "--drop-clusters", "1")
    assert (summary["delivered"], summary["acks"], summary["disputes"]) == (2, 32, 0)
    assert "and brought 0" in output


@pytest.mark.sockets
def test_a_block_gets_through_where_a_cluster_corrupts_it_and_its_peers_are_blamed() -> None:
    output, summary = demo(*THREE, "--corrupt-cluster", "1")
    assert (summary["delivered"], summary["disputes"]) == (2, 0)
    assert "messages refused; its score is below 0" in output


@pytest.mark.sockets
def test_a_false_witness_is_refused_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    _, summary = demo("--clusters", "2", "--false-witness", "--keep", str(folder))
    assert kinds(summary) == {"false-witness"}
    assert summary["delivered"] == 2
    outsider = relay_address(folder / "outsider")
    assert all(each["culprits"] == [outsider] for each in summary["evidence"])
    # What was kept can be checked by anybody: with the marketplace it holds, without it does not.
    command = ["relay", "verify-evidence", str(folder / summary["evidence"][0]["file"])]
    given = ["--marketplace", str(folder / "marketplace.toml")]
    assert CliRunner().invoke(main, [*command, *given]).exit_code == 0
    assert CliRunner().invoke(main, command).exit_code == 1


@pytest.mark.sockets
def test_a_chunk_that_is_passed_on_too_late_is_dropped_and_disputed() -> None:
    output, summary = demo("--clusters", "2", "--replay")
    assert kinds(summary) == {"replay"}
    assert summary["delivered"] == 2
    assert "older than the tolerable latency" in output


@pytest.mark.sockets
def test_stake_behind_two_blocks_is_disputed_and_the_second_goes_nowhere() -> None:
    # One attestation for all chunks: whoever has seen any of the first block refuses the second.
    _, summary = demo("--clusters", "2", "--overspend-stake", "--attest", "merkle")
    assert kinds(summary) == {"overlapping-stake"}
    assert summary["delivered"] == 2  # of the first
    assert summary["acks"] == 64  # of the first


@pytest.mark.sockets
def test_a_bad_block_is_disputed_by_every_consumer_and_delivered_to_none(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    output, summary = demo("--clusters", "2", "--bad-block", "--keep", str(folder))
    assert kinds(summary) == {"invalid-block"}
    assert (summary["delivered"], summary["disputes"]) == (0, 2)
    assert (summary["p50_ms"], summary["max_ms"]) == (None, None)
    producer = relay_address(folder / "producer")
    assert all(each["producers"] == [producer] for each in summary["evidence"])
    assert f"invalid-block: producers {producer} (producer)" in output


@pytest.mark.sockets
def test_an_interrupt_leaves_no_process_and_no_file_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*COMMAND, *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "processes" not in process.stdout.readline():
            pass
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(TIMEOUT) == 1
    for left in in_group(process.pid):
        await_end(left)
    assert not list(tmp_path.glob("bruit-relay-demo-*"))


def in_group(group: int) -> list[int]:
    """Processes of a group that have not ended; see proc(5), stat."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended meanwhile
        if int(member) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def await_end(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], TIMEOUT)[0], "a process was left behind"
    finally:
        os.close(descriptor)


# What is refused before anything starts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay", "--bad-block"], "several demonstrations"),
        (["--drop-clusters", "4"], "1 to 3 can cheat"),
        (["--drop-clusters", "0"], "1 to 3 can cheat"),
        (["--chunks", "64"], "--chunks 64"),
        (["--selector", "best"], "best"),
        (["--txs", "5", "--block", __file__], "use either"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["relay", "demo", *arguments])
    assert done.exit_code == 2
    assert said in done.output


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["relay", "demo", "--keep", str(tmp_path)])
    assert done.exit_code == 1
    assert "cannot be made" in done.output
    assert not list(tmp_path.iterdir())
