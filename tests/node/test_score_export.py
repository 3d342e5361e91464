"""The file that scores are exported to: whole snapshots, bounded, and no reason to stop a node."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from bruit.node import score_export
from bruit.node.score_export import INTERVAL, Snapshot, append, export_scores
from bruit.scoring.history import SCHEMA_VERSION, PeerScoreRow, TopicScoreRow, rows
from bruit.scoring.params import PeerScoreParams, TopicScoreParams, params_hash
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.thresholds import Thresholds

TOPIC = "/lux/test/relay/blocks/exported"


def snapshot(time: float = 1000.0, peers: int = 2) -> Snapshot:
    """Peers of real scores: each has brought as many messages as its number says."""
    topic = TopicScoreParams(first_message_deliveries_weight=1.0)
    params = PeerScoreParams(default_topic=topic)
    scores = PeerScores(params, Thresholds())
    for number in range(1, peers + 1):
        peer = bytes.fromhex("002408011220") + number.to_bytes(32, "big")
        scores.connected(peer, (f"/ip4/192.0.2.{number}/tcp/4001",), 0.0)
        for count in range(number):
            message_id = bytes([number, count])
            scores.validating(message_id, 0.0)
            scores.first_delivery(peer, TOPIC, message_id, 0.0)
    return rows(scores.snapshot(0.0), time, params_hash(params, Thresholds()))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_a_row_with_its_kind_and_the_version_of_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    peers, topics = snapshot()
    append(path, peers, topics)
    written = lines(path)
    assert [line.pop("row") for line in written] == ["peer", "peer", "topic", "topic"]
    assert {line.pop("schema") for line in written} == {SCHEMA_VERSION}
    assert [msgspec.convert(line, PeerScoreRow) for line in written[:2]] == peers
    assert [msgspec.convert(line, TopicScoreRow) for line in written[2:]] == topics
    assert [row.score for row in peers] == [1, 2]


def test_every_snapshot_is_added_to_those_before(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    for time in (1000.0, 1060.0):
        append(path, *snapshot(time))
    assert [line["time"] for line in lines(path)] == [1000.0] * 4 + [1060.0] * 4


def test_of_nobody_nothing_is_written(tmp_path: Path) -> None:
    append(tmp_path / "scores.jsonl", [], [])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_grown_too_large_makes_way_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = tmp_path / "scores.jsonl", tmp_path / "scores.jsonl.1"
    append(path, *snapshot(1.0))
    monkeypatch.setattr(score_export, "MAX_BYTES", 2 * path.stat().st_size)
    append(path, *snapshot(2.0))
    assert not old.exists()
    append(path, *snapshot(3.0))
    assert not path.exists()
    assert [line["time"] for line in lines(old)] == [1.0] * 4 + [2.0] * 4 + [3.0] * 4
    for time in (4.0, 5.0, 6.0):
        append(path, *snapshot(time))
    assert {line["time"] for line in lines(old)} == {4.0, 5.0, 6.0}
    assert sorted(tmp_path.iterdir()) == [old]


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.node.test_score_export import snapshot
from bruit.node.score_export import append

path = Path(sys.argv[1])
append(path, *snapshot(1.0))
size = path.stat().st_size
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    append(path, *snapshot(2.0))
except OSError as problem:
    print(problem.errno)
"""


def test_a_snapshot_that_does_not_fit_leaves_no_part_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == errno.EFBIG
    assert [line["time"] for line in lines(path)] == [1.0] * 4


class Scores:
    """Snapshots for the asking, and when they were asked for."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.asked = trio.lowlevel.ParkingLot()

    async def take(self) -> Snapshot:
        self.times.append(trio.current_time())
        self.asked.unpark_all()
        return snapshot(float(len(self.times)))


async def test_a_snapshot_is_written_at_once_and_every_minute(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, scores = tmp_path / "scores.jsonl", Scores()
    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        nursery.start_soon(export_scores, path, scores.take)
        for _ in range(3):
            await scores.asked.park()
        nursery.cancel_scope.cancel()
    assert scores.times == [start, start + INTERVAL, start + 2 * INTERVAL]
    assert [line["time"] for line in lines(path)][:8] == [1.0] * 4 + [2.0] * 4


async def test_a_file_that_cannot_be_written_is_complained_of_once_and_tried_again(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, scores = tmp_path / "missing" / "scores.jsonl", Scores()
    with caplog.at_level(logging.ERROR):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(export_scores, path, scores.take)
            for _ in range(3):
                await scores.asked.park()
            await trio.Path(path.parent).mkdir()
            for _ in range(2):
                await scores.asked.park()
            written = lines(path)
            await trio.Path(path.parent).rename(tmp_path / "gone")
            for _ in range(3):
                await scores.asked.park()
            nursery.cancel_scope.cancel()
    assert written
    complaint = f"scores cannot be written to {path}: {os.strerror(errno.ENOENT)}"
    assert caplog.messages == [complaint, complaint]
