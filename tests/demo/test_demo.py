"""``bruit demo`` as its users run it: processes, sockets, and one line of JSON at the end."""

import bz2
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bruit.node.cli import main
from bruit.plugins.bitcoin import block_hash
from bruit.plugins.bitcoin.generate import generate_block

TIMEOUT = 120  # seconds, of a run that has gone wrong
KEYS = [
    "nodes",
    "alive",
    "delivered",
    "block_bytes",
    "block_hash",
    "wire_bytes",
    "p50_ms",
    "p95_ms",
    "max_ms",
    "duplicates",
    "rejected",
]


def demo(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a small demonstration."""
    command = [sys.executable, "-m", "bruit.node.cli", "demo", "--nodes", "5", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return done.returncode, done.stdout, done.stderr


def figures(output: str) -> dict[str, Any]:
    """The line of JSON."""
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert list(summary) == KEYS
    return summary


def block_of(seed: int) -> bytes:
    return generate_block(random.Random(seed), 20)


@pytest.mark.sockets
def test_every_node_has_the_block_and_the_last_line_says_so() -> None:
    code, output, errors = demo("--txs", "20", "--json")
    assert (code, errors) == (0, "")
    summary = figures(output)
    assert (summary["nodes"], summary["alive"], summary["delivered"]) == (5, 5, 5)
    assert summary["rejected"] == 0
    assert 0 < summary["p50_ms"] <= summary["p95_ms"] <= summary["max_ms"]
    # The block does not compress to a tenth, and four nodes must have it from somebody.
    assert summary["wire_bytes"] > 4 * summary["block_bytes"] / 10
    assert summary["block_hash"] in output.splitlines()[0]
    assert output.count("delivered") == 4 + 1  # a row each, but for the publisher; the JSON
    assert "5 of 5 living nodes have the identical block" in output


@pytest.mark.sockets
def test_the_living_have_the_block_when_others_are_killed() -> None:
    code, output, _ = demo("--txs", "20", "--kill", "1", "--json")
    assert code == 0
    summary = figures(output)
    assert (summary["nodes"], summary["alive"], summary["delivered"]) == (5, 4, 4)
    assert output.count("killed") == 1


@pytest.mark.sockets
def test_a_tampered_block_is_taken_by_nobody_and_refused_for_its_hashes() -> None:
    code, output, _ = demo("--txs", "20", "--tamper", "--json")
    assert code == 0
    summary = figures(output)
    assert (summary["alive"], summary["delivered"]) == (5, 0)
    assert summary["rejected"] >= 1
    assert [summary[key] for key in ("p50_ms", "p95_ms", "max_ms")] == [None] * 3
    refusals = [line for line in output.splitlines() if " refused the block from node " in line]
    assert len(refusals) == summary["rejected"]
    for sentence in refusals:
        assert "merkle root" in sentence or "witness commitment" in sentence


@pytest.mark.sockets
def test_a_block_may_come_from_a_packed_file_of_hexadecimal(tmp_path: Path) -> None:
    block, path = block_of(7), tmp_path / "block.hex.bz2"
    path.write_bytes(bz2.compress(block.hex().encode()))
    code, output, _ = demo("--block", str(path), "--network", "regtest", "--json")
    assert code == 0
    summary = figures(output)
    assert (summary["delivered"], summary["block_bytes"]) == (5, len(block))
    assert summary["block_hash"] == block_hash(block)


@pytest.mark.sockets
def test_a_block_without_the_work_of_its_network_is_not_even_published(tmp_path: Path) -> None:
    path = tmp_path / "block.raw"
    path.write_bytes(block_of(7))
    code, output, errors = demo("--block", str(path), "--network", "main", "--json")
    assert code == 1
    assert "{" not in output
    [line] = errors.splitlines()
    assert line.startswith("Error: the block could not be published: not valid on this topic: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kill", "1", "--tamper"], "--kill and --tamper are two demonstrations: use either"),
        (["--txs", "3", "--block", __file__], "--txs makes a block and --block names one"),
        (["--txs", "0"], "0 is not in the range"),
        (["--nodes", "1"], "--nodes 1: use 2 to 64"),
        (["--nodes", "1000"], "--nodes 1000: use 2 to 64"),
        (["--nodes", "5", "--kill", "4"], "of 5 nodes, at most 3 can be killed"),
        (["--kill", "-1"], "--kill -1: of 16 nodes"),
        (["--network", "moon"], "'moon' is not one of"),
        (["--block", "/does/not/exist"], "does not exist"),
        (["--blocks", "1"], "No such option"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_why(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["demo", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def unpackable(folder: Path) -> Path:
    path = folder / "block.xz"
    path.write_bytes(b"no xz")
    return path


def tiny(folder: Path) -> Path:
    path = folder / "block"
    path.write_bytes(b"tiny")
    return path


@pytest.mark.parametrize(
    ("write", "message"), [(unpackable, "cannot be read"), (tiny, "4 bytes, a header has 80")]
)
def test_a_file_that_is_no_block_ends_with_1_before_anything_is_started(
    tmp_path: Path, write: Callable[[Path], Path], message: str
) -> None:
    result = CliRunner().invoke(main, ["demo", "--tamper", "--block", str(write(tmp_path))])
    assert result.exit_code == 1
    assert message in result.output
    assert "processes" not in result.output
