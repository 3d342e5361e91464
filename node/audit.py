"""What a relay node did, on disk: an SQLite file, and a JSON file for each dispute and proof.

One `Audit` writes, from any thread; any number of `bruit.node.audit_reader.AuditReader` read the
live file, in other processes, too. What the JSON files say is in no row, only where they are.

What survives: when `Audit.keep` has returned, a crash or a kill of the process loses nothing. A
loss of power may lose the latest witnesses, acknowledgements given and blocks (their rows are
brought to the disk with the next that are not of these, or at SQLite's next checkpoint), but no
stake, broadcast or dispute, nor their JSON files; and it leaves no half of a report.

Rows go when they are older than the retention. Where the file would outgrow its size the
oldest go, what there is most of first: a flood of chunks costs no dispute its row.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from bruit.node.config.relay import RelayConfig
from bruit.node.filing import Filing
from bruit.node.relay.actions import (
    Broadcasted,
    DeliverBlock,
    Dispute,
    StakeAttached,
    Witnessed,
)
from bruit.node.relay.evidence import Evidence, encode_evidence
from bruit.node.relay.proof import ProofOfBroadcast, encode_proof
from bruit.node.relay.wire import Acknowledgement, decode_acknowledgement
from bruit.topics.errors import LocalError

AuditReport = Witnessed | StakeAttached | Broadcasted | Dispute | DeliverBlock

APPLICATION = 0x62727569  # "brui": PRAGMA application_id, so that no other file is taken for ours
VERSION = 1  # PRAGMA user_version
SWEEP_INTERVAL = 60.0  # seconds between looks for rows that are too old; guess
SWEEP_ROWS = 1000  # rows written, after which there is a look in any case; guess
SWEEP_BATCH = 1000  # rows deleted in one transaction; guess: some milliseconds
# Rows deleted in one sweep at most, beside twice those written since the last: a file that is too
# large shrinks, and nobody waits for long; guess
SWEEP_ALLOWANCE = 4000
BUSY_TIMEOUT = 5.0  # seconds that a writer waits for another; guess
MAX_LOG = 4_194_304  # bytes that the write-ahead log keeps between checkpoints: SQLite's 1000 pages

_SCHEMA = """
CREATE TABLE witnesses (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, channel INTEGER NOT NULL,
    message_id BLOB NOT NULL, chunk INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    producer BLOB NOT NULL, stake_offset INTEGER NOT NULL, chunk_length INTEGER NOT NULL,
    chunk_hash BLOB NOT NULL, message_hash BLOB NOT NULL, witness BLOB NOT NULL);
CREATE TABLE acknowledgements (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, given INTEGER NOT NULL,
    channel INTEGER NOT NULL, message_id BLOB NOT NULL, chunk INTEGER NOT NULL,
    cluster INTEGER NOT NULL, timestamp INTEGER NOT NULL, producer BLOB NOT NULL,
    signature BLOB NOT NULL);
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, channel INTEGER NOT NULL,
    message_id BLOB NOT NULL, block_hash BLOB NOT NULL, size INTEGER NOT NULL,
    producers BLOB NOT NULL, first_chunk_at REAL NOT NULL, clusters TEXT NOT NULL);
CREATE TABLE stake (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, channel INTEGER NOT NULL,
    message_id BLOB NOT NULL, timestamp INTEGER NOT NULL, start INTEGER NOT NULL,
    stop INTEGER NOT NULL);
CREATE TABLE broadcasts (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, channel INTEGER NOT NULL,
    message_id BLOB NOT NULL, producer BLOB NOT NULL, timestamp INTEGER NOT NULL,
    chunks INTEGER NOT NULL, acknowledged INTEGER NOT NULL, proof_file TEXT NOT NULL);
CREATE TABLE disputes (
    id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
    found_at REAL NOT NULL, channel INTEGER NOT NULL, message_id BLOB NOT NULL,
    producers BLOB NOT NULL, culprits BLOB NOT NULL, evidence_file TEXT NOT NULL);
"""
TABLES = ("witnesses", "acknowledgements", "blocks", "stake", "broadcasts", "disputes")


class Audit:
    """The writer. ``path`` None: no database, JSON files alone."""

    def __init__(
        self,
        path: Path | None,
        disputes: Filing,
        proofs: Filing,
        *,
        retention: float,
        max_size: int,
    ) -> None:
        """Raises LocalError for a file that is no audit, or cannot be read or written."""
        self._path = path
        self._disputes = disputes
        self._proofs = proofs
        self._retention = retention
        self._max_size = max_size
        self._lock = threading.Lock()
        self._swept_at = float("-inf")
        self._unswept = 0  # rows written since the last sweep
        self._connection = None if path is None else self._open(path)

    @classmethod
    def open(cls, config: RelayConfig, directory: Path) -> Self:
        """The audit of a node with its files in ``directory``. Raises LocalError."""
        return cls(
            config.audit_path(directory),
            Filing(directory / config.disputes),
            Filing(directory / config.proofs),
            retention=config.retention,
            max_size=config.audit_size,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def keep(self, report: AuditReport, now: float) -> Path | None:
        """Write a report down; where its JSON file is, if it has one. ``now``: Unix time.

        Raises LocalError where the disk does not take it. Where only the JSON file could not be
        written, the rows are there all the same.
        """
        with self._lock:
            match report:
                case Witnessed():
                    self._write(now, lambda rows: _add_witness(rows, report, now))
                case DeliverBlock():
                    self._write(now, lambda rows: _add_block(rows, report, now))
                case StakeAttached():
                    self._write(now, lambda rows: _add_stake(rows, report, now), durably=True)
                case Dispute(evidence):
                    data = encode_evidence(evidence)
                    kind, message_id = evidence.kind.value, evidence.message_id
                    with self._filed(self._disputes, data, kind, message_id, now) as file:
                        self._write(
                            now,
                            lambda rows: _add_dispute(rows, evidence, now, file),
                            durably=True,
                        )
                    return file
                case Broadcasted(proof=proof):
                    data = encode_proof(proof)
                    with self._filed(self._proofs, data, "proof", proof.message_id, now) as file:
                        self._write(
                            now, lambda rows: _add_broadcast(rows, proof, now, file), durably=True
                        )
                    return file
        return None

    @contextmanager
    def _filed(
        self, filing: Filing, data: bytes, kind: str, message_id: bytes, now: float
    ) -> Iterator[Path | None]:
        """The file; where it cannot be written None, and the error after the block."""
        try:
            file = filing.write(data, kind, message_id, now)
        except LocalError as problem:
            yield None
            raise problem
        yield file

    def _open(self, path: Path) -> sqlite3.Connection:
        with explained(path):
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, check_same_thread=False)
            try:
                fresh = version_of(connection, path) == 0
                if fresh:
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before any table
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG}")
                if fresh:
                    connection.executescript(
                        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION};"
                        f"PRAGMA user_version = {VERSION}; COMMIT;"
                    )
            except BaseException:
                connection.close()
                raise
            return connection

    def attached(self, since: float) -> list[StakeAttached]:
        """Stake attached at ``since``, Unix time, or later: for the next `Producer` to know.

        Nothing without a database.
        """
        with self._lock:
            if self._connection is None or self._path is None:
                return []
            with explained(self._path):
                return stake_since(self._connection, since)

    def _write(
        self, now: float, add: Callable[[sqlite3.Connection], int], *, durably: bool = False
    ) -> None:
        """Run ``add``, which says how many rows it wrote, as one transaction; sweep when due."""
        if self._connection is None or self._path is None:
            return
        with explained(self._path):
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
            with self._connection:
                self._unswept += add(self._connection)
            if self._unswept >= SWEEP_ROWS or now - self._swept_at >= SWEEP_INTERVAL:
                self._sweep(self._connection, now)

    def _sweep(self, rows: sqlite3.Connection, now: float) -> None:
        allowance = SWEEP_ALLOWANCE + 2 * self._unswept
        self._swept_at, self._unswept = now, 0
        for table in TABLES:
            while allowance > 0 and (gone := _delete_oldest(rows, table, now - self._retention)):
                allowance -= gone
        while allowance > 0 and _used(rows) > self._max_size:
            fullest = max(TABLES, key=lambda table: _rows_of(rows, table))
            gone = _delete_oldest(rows, fullest)
            if not gone:
                break
            allowance -= gone
        rows.execute("PRAGMA incremental_vacuum").fetchall()


def _add_witness(rows: sqlite3.Connection, report: Witnessed, now: float) -> int:
    checked = report.checked
    attested = checked.attested
    rows.execute(
        "INSERT INTO witnesses VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now,
            attested.channel,
            attested.message_id,
            checked.chunk,
            attested.timestamp,
            checked.producer,
            attested.stake_offset,
            attested.chunk_length,
            checked.chunk_hash,
            checked.message_hash,
            report.witness,
        ),
    )
    _add_acknowledgement(rows, now, True, attested.channel, report.acknowledgement)
    return 2


def _add_block(rows: sqlite3.Connection, report: DeliverBlock, now: float) -> int:
    rows.execute(
        "INSERT INTO blocks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now,
            report.channel,
            report.message_id,
            report.block_hash,
            len(report.block),
            b"".join(report.producers),
            report.first_chunk_at,
            msgspec.json.encode(report.clusters).decode(),
        ),
    )
    return 1


def _add_stake(rows: sqlite3.Connection, report: StakeAttached, now: float) -> int:
    rows.execute(
        "INSERT INTO stake VALUES (NULL, ?, ?, ?, ?, ?, ?)",
        (
            now,
            report.channel,
            report.message_id,
            report.timestamp,
            report.start,
            report.end,
        ),
    )
    return 1


def _add_dispute(
    rows: sqlite3.Connection, evidence: Evidence, now: float, file: Path | None
) -> int:
    rows.execute(
        "INSERT INTO disputes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now,
            evidence.kind.value,
            evidence.reason,
            evidence.found_at,
            evidence.channel.id,
            evidence.message_id,
            b"".join(evidence.producers),
            b"".join(evidence.culprits),
            file.name if file else "",
        ),
    )
    return 1


def _add_broadcast(
    rows: sqlite3.Connection, proof: ProofOfBroadcast, now: float, file: Path | None
) -> int:
    receipts = [each.acknowledgement for each in proof.receipts if each.acknowledgement]
    rows.execute(
        "INSERT INTO broadcasts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now,
            proof.channel.id,
            proof.message_id,
            proof.producer,
            proof.timestamp,
            len(proof.receipts),
            len(receipts),
            file.name if file else "",
        ),
    )
    for frame in receipts:
        _add_acknowledgement(rows, now, False, proof.channel.id, decode_acknowledgement(frame))
    return 1 + len(receipts)


def _add_acknowledgement(
    rows: sqlite3.Connection, now: float, given: bool, channel: int, said: Acknowledgement
) -> None:
    rows.execute(
        "INSERT INTO acknowledgements VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now,
            given,
            channel,
            said.message_id,
            said.chunk,
            said.cluster,
            said.timestamp,
            said.producer,
            said.signature,
        ),
    )


def _delete_oldest(rows: sqlite3.Connection, table: str, before: float = float("inf")) -> int:
    """Delete a batch of the oldest rows, those kept before a time; how many there were."""
    with rows:
        oldest = f"SELECT id FROM {table} ORDER BY id LIMIT {SWEEP_BATCH}"
        return rows.execute(
            f"DELETE FROM {table} WHERE id IN ({oldest}) AND kept_at < ?", (before,)
        ).rowcount


def _rows_of(rows: sqlite3.Connection, table: str) -> int:
    """How many there are, told by their ids without counting."""
    ids = rows.execute(f"SELECT max(id) - min(id) + 1 FROM {table}").fetchone()
    return int(ids[0] or 0)


def _used(rows: sqlite3.Connection) -> int:
    """Bytes of the pages that hold something."""
    number = {
        name: int(rows.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    }
    return (number["page_count"] - number["freelist_count"]) * number["page_size"]


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Of the schema; 0 for an empty file. Raises LocalError for what is no audit of ours."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION:
        raise LocalError(
            f"{path} is a database of another program: name another file as relay.audit"
        )
    if version != VERSION:
        raise LocalError(
            f"audit file {path} has version {version}, of which this program knows nothing: "
            "move it away to start a new one"
        )
    return VERSION


def stake_since(rows: sqlite3.Connection, since: float) -> list[StakeAttached]:
    """By start."""
    found = rows.execute(
        "SELECT channel, message_id, timestamp, start, stop FROM stake WHERE timestamp >= ?"
        " ORDER BY start, timestamp",
        (since,),
    ).fetchall()
    return [StakeAttached(*row) for row in found]


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into a LocalError."""
    try:
        yield
    except sqlite3.DatabaseError as problem:
        raise LocalError(
            f"audit file {path} cannot be used: {problem}: if there is room on the disk and the "
            "node may write there, move it away to start a new one"
        ) from None
