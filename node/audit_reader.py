"""What the audit of a relay node says (`bruit.node.audit`), also while the node writes it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from bruit.node.audit import BUSY_TIMEOUT, TABLES, explained, stake_since, version_of
from bruit.node.relay.actions import StakeAttached
from bruit.node.relay.wire import ADDRESS_SIZE
from bruit.topics.errors import LocalError

MAX_READ = 10_000  # rows that a reader returns at most; guess: more than people read

Result = TypeVar("Result")

_decode_clusters = msgspec.json.Decoder(dict[int, int]).decode


class BroadcastRow(msgspec.Struct, frozen=True):
    kept_at: float  # Unix time, as all times here
    channel: int
    message_id: bytes
    producer: bytes
    timestamp: int
    chunks: int
    acknowledged: int  # of them
    proof_file: str  # in relay.proofs; empty where it could not be written


class DisputeRow(msgspec.Struct, frozen=True):
    kept_at: float
    kind: str
    reason: str
    found_at: float
    channel: int
    message_id: bytes
    producers: tuple[bytes, ...]
    culprits: tuple[bytes, ...]
    evidence_file: str  # in relay.disputes; empty where it could not be written


class BlockRow(msgspec.Struct, frozen=True):
    kept_at: float
    channel: int
    message_id: bytes
    block_hash: bytes
    size: int  # bytes
    producers: tuple[bytes, ...]
    first_chunk_at: float
    clusters: dict[int, int]  # cluster → chunks that it witnessed


class AuditReader:
    """A look into an audit, also while a node writes it. For one thread."""

    def __init__(self, path: Path) -> None:
        """Raises LocalError where there is no audit."""
        self._path = path
        if not path.exists():
            raise LocalError(
                f"audit file {path} does not exist: a node with a relay role makes it when it runs"
            )
        with explained(path):
            self._rows = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT
            )
            try:
                if version_of(self._rows, path) == 0:
                    raise LocalError(f"audit file {path} is empty: no node has written to it yet")
            except BaseException:
                self._rows.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.close()

    def counts(self) -> dict[str, int]:
        """Rows of each table."""
        with explained(self._path):
            return {
                table: self._rows.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in TABLES
            }

    def broadcasts(self, message_id: bytes | None = None) -> list[BroadcastRow]:
        """The latest, newest first."""
        return self._latest("broadcasts", message_id, lambda row: BroadcastRow(*row))

    def disputes(self, message_id: bytes | None = None) -> list[DisputeRow]:
        """The latest, newest first."""
        return self._latest(
            "disputes",
            message_id,
            lambda row: DisputeRow(*[*row[:6], _addresses(row[6]), _addresses(row[7]), row[8]]),
        )

    def blocks(self, message_id: bytes | None = None) -> list[BlockRow]:
        """The latest, newest first."""
        return self._latest(
            "blocks",
            message_id,
            lambda row: BlockRow(*[*row[:5], _addresses(row[5]), row[6], _decode_clusters(row[7])]),
        )

    def stake(self, since: float) -> list[StakeAttached]:
        """Stake attached at ``since`` or later, by start."""
        with explained(self._path):
            return stake_since(self._rows, since)

    def _latest(
        self, table: str, message_id: bytes | None, row: Callable[[Any], Result]
    ) -> list[Result]:
        where = "" if message_id is None else "WHERE message_id = ?"
        values = (MAX_READ,) if message_id is None else (message_id, MAX_READ)
        with explained(self._path):
            found = self._rows.execute(
                f"SELECT * FROM {table} {where} ORDER BY id DESC LIMIT ?", values
            ).fetchall()
        return [row(each[1:]) for each in found]


def _addresses(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[at : at + ADDRESS_SIZE] for at in range(0, len(joined), ADDRESS_SIZE))
