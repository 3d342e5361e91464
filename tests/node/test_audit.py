"""The audit: what is written can be read, for how long, and what outlives an accident."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bruit.node import audit as module
from bruit.node.audit import Audit, AuditReport
from bruit.node.audit_reader import AuditReader
from bruit.node.config import RelayConfig
from bruit.node.filing import Filing
from bruit.node.relay.evidence import decode_evidence
from bruit.node.relay.proof import decode_proof
from bruit.node.relay.signing import address_of_secret
from bruit.topics.errors import LocalError
from tests.node.relay_records import (
    AT,
    BLOCK,
    CHANNEL,
    CLUSTER,
    MESSAGE,
    NOW,
    OTHER,
    PRODUCER,
    broadcasted,
    delivered,
    dispute,
    stake_attached,
    witnessed,
)

ROOT = Path(__file__).parents[2]
DAY = 86_400.0  # seconds
PATIENCE = 60.0  # seconds for a process to start and write; it takes about one

REPORTS = (witnessed(), stake_attached(), broadcasted(), dispute(), delivered())


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Audit]:
    with Audit.open(RelayConfig(), tmp_path) as opened:
        yield opened


def reader(folder: Path) -> AuditReader:
    return AuditReader(folder / "relay.sqlite")


def counts(folder: Path) -> dict[str, int]:
    with reader(folder) as opened:
        return {table: count for table, count in opened.counts().items() if count}


# Round trips


def test_a_broadcast_is_kept_with_its_acknowledgements_and_its_proof(
    audit: Audit, tmp_path: Path
) -> None:
    file = audit.keep(broadcasted(2), NOW)
    assert file is not None
    assert file.parent == tmp_path / "proofs"
    assert decode_proof(file.read_bytes()) == broadcasted(2).proof
    with reader(tmp_path) as opened:
        [row] = opened.broadcasts()
    assert (row.kept_at, row.channel, row.message_id) == (NOW, CHANNEL.id, MESSAGE)
    assert (row.producer, row.timestamp) == (address_of_secret(PRODUCER), AT)
    assert (row.chunks, row.acknowledged, row.proof_file) == (3, 2, file.name)
    assert counts(tmp_path) == {"broadcasts": 1, "acknowledgements": 2}


def test_a_dispute_is_kept_with_its_evidence(audit: Audit, tmp_path: Path) -> None:
    file = audit.keep(dispute(), NOW)
    assert file is not None
    assert file.parent == tmp_path / "disputes"
    assert decode_evidence(file.read_bytes()) == dispute().evidence
    with reader(tmp_path) as opened:
        [row] = opened.disputes()
    assert (row.kind, row.reason) == ("overlapping-stake", dispute().evidence.reason)
    assert (row.found_at, row.channel, row.message_id) == (NOW, CHANNEL.id, MESSAGE)
    assert (row.producers, row.culprits) == ((address_of_secret(PRODUCER),), ())
    assert row.evidence_file == file.name


def test_a_block_is_kept_without_its_bytes(audit: Audit, tmp_path: Path) -> None:
    assert audit.keep(delivered(), NOW) is None
    with reader(tmp_path) as opened:
        [row] = opened.blocks()
    assert (row.message_id, row.block_hash, row.size) == (
        MESSAGE,
        delivered().block_hash,
        len(BLOCK),
    )
    assert row.producers == (address_of_secret(PRODUCER), address_of_secret(OTHER))
    assert row.clusters == {CLUSTER: 2, 9: 1}
    assert BLOCK not in (tmp_path / "relay.sqlite-wal").read_bytes()


def test_a_witness_is_kept_as_it_was_signed(audit: Audit, tmp_path: Path) -> None:
    report = witnessed(1)
    assert audit.keep(report, NOW) is None
    rows = sqlite3.connect(tmp_path / "relay.sqlite")
    [witness] = rows.execute(
        "SELECT message_id, chunk, timestamp, producer, stake_offset, message_hash, witness"
        " FROM witnesses"
    ).fetchall()
    [given] = rows.execute(
        "SELECT given, chunk, cluster, timestamp, producer, signature FROM acknowledgements"
    ).fetchall()
    rows.close()
    producer = address_of_secret(PRODUCER)
    assert witness == (MESSAGE, 1, AT, producer, 1000, report.checked.message_hash, report.witness)
    assert given == (1, 1, CLUSTER, AT + 1, producer, report.acknowledgement.signature)


def test_stake_in_use_is_known_to_the_next_run(tmp_path: Path) -> None:
    reports = [stake_attached(0, 100, AT - 60), stake_attached(500, 600), stake_attached(0, 500)]
    with Audit.open(RelayConfig(), tmp_path) as first:
        for report in reports:
            first.keep(report, NOW)
    with Audit.open(RelayConfig(), tmp_path) as second:
        assert second.attached(NOW - 60) == [reports[2], reports[1]]
    with reader(tmp_path) as opened:
        assert opened.stake(0) == [reports[0], reports[2], reports[1]]


def test_rows_are_found_by_message_and_the_newest_come_first(audit: Audit, tmp_path: Path) -> None:
    for count in range(3):
        audit.keep(broadcasted(count), NOW + count)
    with reader(tmp_path) as opened:
        assert [row.acknowledged for row in opened.broadcasts()] == [2, 1, 0]
        assert [row.acknowledged for row in opened.broadcasts(MESSAGE)] == [2, 1, 0]
        assert opened.broadcasts(b"none") == []
        assert opened.disputes(b"none") == []
        assert opened.blocks(b"none") == []


def test_an_audit_goes_on_where_it_was_left(tmp_path: Path) -> None:
    for _ in range(2):
        with Audit.open(RelayConfig(), tmp_path) as opened:
            opened.keep(dispute(), NOW)
    assert counts(tmp_path) == {"disputes": 2}
    assert len(list((tmp_path / "disputes").iterdir())) == 2


def test_without_a_database_evidence_and_proofs_are_written_all_the_same(tmp_path: Path) -> None:
    with Audit.open(RelayConfig(audit=""), tmp_path) as opened:
        files = [opened.keep(report, NOW) for report in REPORTS]
        assert opened.attached(0) == []
    assert [file is not None for file in files] == [False, False, True, True, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disputes", "proofs"]


def test_reports_may_come_from_any_thread(audit: Audit, tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(20):
            audit.keep(witnessed(), NOW)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(tmp_path) == {"witnesses": 80, "acknowledgements": 80}


# Retention


def test_rows_go_when_they_are_older_than_the_retention(tmp_path: Path) -> None:
    with Audit.open(RelayConfig(retention=DAY), tmp_path) as opened:
        for report in REPORTS:
            opened.keep(report, NOW)
        opened.keep(delivered(), NOW + DAY - 1)
        assert counts(tmp_path)["disputes"] == 1
        opened.keep(delivered(), NOW + DAY + 100)
    assert counts(tmp_path) == {"blocks": 2}


def test_a_files_row_stays_when_the_file_goes_and_the_file_when_the_row_goes(
    tmp_path: Path,
) -> None:
    filing = Filing(tmp_path / "disputes", max_files=1)
    proofs = Filing(tmp_path / "proofs")
    path = tmp_path / "relay.sqlite"
    with Audit(path, filing, proofs, retention=DAY, max_size=1 << 20) as opened:
        first, second = (opened.keep(dispute(), NOW + count) for count in range(2))
        assert first is not None
        assert second is not None
        assert not first.exists()
        assert counts(tmp_path) == {"disputes": 2}
        opened.keep(delivered(), NOW + 2 * DAY)
    assert counts(tmp_path) == {"blocks": 1}
    assert second.exists()


def test_a_flood_of_chunks_costs_no_dispute_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_ROWS", 100)
    monkeypatch.setattr(module, "SWEEP_BATCH", 100)
    monkeypatch.setattr(module, "SWEEP_ALLOWANCE", 100)
    limit = 100_000
    disputes, proofs = Filing(tmp_path / "disputes"), Filing(tmp_path / "proofs")
    path = tmp_path / "relay.sqlite"
    report = witnessed()
    with Audit(path, disputes, proofs, retention=DAY, max_size=limit) as opened:
        opened.keep(dispute(), NOW)
        opened.keep(broadcasted(), NOW)
        for _ in range(1500):  # some 500 bytes each
            opened.keep(report, NOW)
    left = counts(tmp_path)
    assert left["disputes"] == left["broadcasts"] == 1
    assert 0 < left["witnesses"] < 500
    room = 100 * 600  # bytes of what was written since the last sweep
    assert path.stat().st_size < limit + room


# Accidents

WRITER = """
import sys
from pathlib import Path
from bruit.node.audit import Audit
from bruit.node.config import RelayConfig
from tests.node.relay_records import NOW, dispute, stake_attached, witnessed

with Audit.open(RelayConfig(), Path(sys.argv[1])) as audit:
    reports = witnessed(), stake_attached(), dispute()
    for count in range(1_000_000):
        for report in reports:
            audit.keep(report, NOW)
        print(count + 1, flush=True)
"""


def test_a_kill_in_the_middle_loses_nothing_that_was_kept_and_leaves_no_half(
    tmp_path: Path,
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert writer.stdout is not None
    with writer.stdout:
        kept = 0
        for line in writer.stdout:
            kept = int(line)
            if kept == 20:
                with reader(tmp_path) as live:  # beside the writer
                    assert live.counts()["disputes"] >= 20
                writer.send_signal(signal.SIGKILL)
    assert writer.wait(PATIENCE) == -signal.SIGKILL
    assert kept >= 20
    with Audit.open(RelayConfig(), tmp_path) as opened:
        found = counts(tmp_path)
        assert kept <= found["disputes"] <= found["stake"] <= found["witnesses"] <= kept + 1
        assert found["acknowledgements"] == found["witnesses"]
        files = list((tmp_path / "disputes").iterdir())
        assert kept <= len(files) <= kept + 1
        for file in files:
            assert decode_evidence(file.read_bytes()) == dispute().evidence
        opened.keep(dispute(), NOW)
    assert counts(tmp_path)["disputes"] == found["disputes"] + 1


def test_a_reader_keeps_its_view_and_the_writer_its_pace(audit: Audit, tmp_path: Path) -> None:
    audit.keep(dispute(), NOW)
    with reader(tmp_path) as opened:
        assert len(opened.disputes()) == 1
        audit.keep(dispute(), NOW)
        assert len(opened.disputes()) == 2


def test_evidence_that_cannot_be_written_leaves_a_row_and_an_error(
    audit: Audit, tmp_path: Path
) -> None:
    (tmp_path / "disputes").rmdir()
    (tmp_path / "disputes").write_text("in the way")
    with pytest.raises(LocalError, match=r"disputes cannot be written to: .*make room"):
        audit.keep(dispute(), NOW)
    with reader(tmp_path) as opened:
        assert [row.evidence_file for row in opened.disputes()] == [""]


@pytest.mark.parametrize("use", [reader, lambda folder: Audit.open(RelayConfig(), folder)])
@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"not a database, but long enough for its header to be looked at " * 20, "move it away"),
        (b"SQLite format 3\x00" + bytes(50), "move it away"),
    ],
)
def test_a_damaged_file_is_refused_and_left_alone(
    tmp_path: Path, use: object, contents: bytes, said: str
) -> None:
    path = tmp_path / "relay.sqlite"
    path.write_bytes(contents)
    assert callable(use)
    with pytest.raises(LocalError, match=said):
        use(tmp_path)
    assert path.read_bytes() == contents


def test_damage_that_shows_later_is_an_error_with_the_path(tmp_path: Path) -> None:
    with Audit.open(RelayConfig(), tmp_path) as opened:
        for _ in range(50):
            opened.keep(witnessed(), NOW)
    path = tmp_path / "relay.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with Audit.open(RelayConfig(), tmp_path) as opened, pytest.raises(LocalError) as caught:
        opened.keep(witnessed(), NOW)
    assert f"audit file {path} cannot be used: database disk image is malformed" in str(
        caught.value
    )


def test_another_programs_database_and_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "relay.sqlite"
    rows = sqlite3.connect(path)
    rows.execute("CREATE TABLE theirs (id)")
    rows.commit()
    with pytest.raises(
        LocalError, match=r"database of another program: name another.*relay\.audit"
    ):
        Audit.open(RelayConfig(), tmp_path)
    rows.execute(f"PRAGMA application_id = {module.APPLICATION}")
    rows.execute("PRAGMA user_version = 99")
    rows.close()
    for use in (reader, lambda folder: Audit.open(RelayConfig(), folder)):
        with pytest.raises(LocalError, match="has version 99, of which this program knows nothing"):
            use(tmp_path)


def test_a_reader_of_what_is_not_there_says_who_makes_it(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"does not exist: a node with a relay role makes it"):
        reader(tmp_path)
    (tmp_path / "relay.sqlite").touch()
    with pytest.raises(LocalError, match="is empty: no node has written to it yet"):
        reader(tmp_path)


# Folders of files


def test_files_are_named_by_time_kind_and_message_and_may_be_shown_to_anybody(
    tmp_path: Path,
) -> None:
    filing = Filing(tmp_path / "proofs")
    mask = os.umask(0o077)
    try:
        paths = [filing.write(b"{}", "proof", MESSAGE, NOW) for _ in range(2)]
    finally:
        os.umask(mask)
    assert [path.name for path in paths] == [  # 1,800,000,000 s: 2027-01-15 08:00:00 UTC
        f"20270115T080000.250000Z-proof-{MESSAGE.hex()}.json",
        f"20270115T080000.250000Z-proof-{MESSAGE.hex()}-2.json",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o644}


def test_the_oldest_files_go_where_there_are_too_many_or_too_large(tmp_path: Path) -> None:
    many = Filing(tmp_path / "many", max_files=2)
    paths = [many.write(b"{}", "proof", MESSAGE, NOW + count) for count in range(4)]
    assert [path.exists() for path in paths] == [False, False, True, True]
    large = Filing(tmp_path / "large", max_bytes=10)
    paths = [large.write(bytes(4), "proof", MESSAGE, NOW + count) for count in range(3)]
    assert [path.exists() for path in paths] == [False, True, True]
    huge = large.write(bytes(100), "proof", MESSAGE, NOW + 3)
    assert [path.exists() for path in [*paths, huge]] == [False, False, False, True]


def test_what_an_earlier_run_left_counts_and_what_it_left_unfinished_goes(tmp_path: Path) -> None:
    folder = tmp_path / "proofs"
    old = Filing(folder).write(b"{}", "proof", MESSAGE, NOW)
    half = folder / f"{old.name}.new"
    half.write_bytes(b"{")
    Filing(folder)
    assert half.exists()  # somebody may be writing it
    os.utime(half, (NOW - 1e9, NOW - 1e9))
    other = folder / "notes.txt"
    other.write_text("somebody's own")
    filing = Filing(folder, max_files=1)
    assert not half.exists()
    assert old.exists()
    filing.write(b"{}", "proof", MESSAGE, NOW + 1)
    assert not old.exists()
    assert other.exists()


def test_every_report_of_a_node_can_be_kept(audit: Audit, tmp_path: Path) -> None:
    kept: list[AuditReport] = list(REPORTS)
    for report in kept:
        audit.keep(report, NOW)
    assert counts(tmp_path) == {
        "witnesses": 1,
        "acknowledgements": 4,
        "stake": 1,
        "broadcasts": 1,
        "disputes": 1,
        "blocks": 1,
    }
