"""The marketplace out of a file: TOML, or SQLite where its name ends in .sqlite or .db.

TOML::

    [[producers]]
    id = "0x…"  # 20 bytes in hexadecimal
    stake = 5_000_000  # tokens

    [[clusters]]
    id = 1  # 0 to 65535
    price = 3  # tokens per byte, 0 for free

    [[clusters.members]]
    id = "0x…"
    addresses = ["/ip4/192.0.2.1/tcp/4001/p2p/12D3KooW…"]

SQLite: the tables of `SCHEMA`, which may have further columns, and in any mode of journal. They
are read in one transaction, read-only, so that a writer's commit is seen whole or not at all.
Where the journal is a write-ahead log, its reader needs a folder that it may write to.

The file is looked at with every question and read again when it has changed. While a changed file
cannot be used, the marketplace read before stays in force and the log says why, once for each
change. Nothing here knows where stakes come from: whoever writes the file answers for it.
"""

import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import msgspec
from multiaddr import Multiaddr

from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.marketplace import (
    MAX_CLUSTERS,
    MAX_MEMBERS,
    MAX_PRICE,
    MAX_PRODUCERS,
    MAX_STAKE,
    Cluster,
    Marketplace,
    Member,
    Producer,
)
from bruit.plugins.watched_file import BusyFileError, WatchedFile, read_bounded
from bruit.topics.errors import ConfigError, LocalError

NAME = "marketplace-file"
MAX_FILE = 64 * 1024 * 1024  # bytes; guess: 200,000 members at 300 bytes each
MAX_ALL_MEMBERS = 262_144  # guess: as MAX_FILE
MAX_ADDRESSES = 16  # of one member; guess: a few networks and transports
MAX_ADDRESS = 512  # characters; guess: the longest in use have about 200
LOCK_TIMEOUT = 1.0  # seconds to wait for a writer of SQLite; guess: asked again in a few anyway
SQLITE_SUFFIXES = (".sqlite", ".db")

SCHEMA = """
CREATE TABLE IF NOT EXISTS producers (id TEXT PRIMARY KEY, stake INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS clusters (id INTEGER PRIMARY KEY, price INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS members (
    id TEXT PRIMARY KEY, cluster INTEGER NOT NULL REFERENCES clusters (id)
);
CREATE TABLE IF NOT EXISTS member_addresses (
    member TEXT NOT NULL REFERENCES members (id), address TEXT NOT NULL,
    PRIMARY KEY (member, address)
);
"""

Id = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{40}$")]
Address = Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS)]


class _Producer(msgspec.Struct, forbid_unknown_fields=True):
    id: Id
    stake: Annotated[int, msgspec.Meta(ge=0, le=MAX_STAKE)]


class _Member(msgspec.Struct, forbid_unknown_fields=True):
    id: Id
    addresses: Annotated[list[Address], msgspec.Meta(min_length=1, max_length=MAX_ADDRESSES)]


class _Cluster(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[int, msgspec.Meta(ge=0, lt=MAX_CLUSTERS)]
    price: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRICE)]
    members: Annotated[list[_Member], msgspec.Meta(max_length=MAX_MEMBERS)] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    producers: Annotated[list[_Producer], msgspec.Meta(max_length=MAX_PRODUCERS)] = []
    clusters: Annotated[list[_Cluster], msgspec.Meta(max_length=MAX_CLUSTERS)] = []


class MarketplaceFileConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the marketplace-file plugin."""

    # Relative to the working directory; SQLite where it ends in .sqlite or .db, else TOML.
    file: str


class MarketplaceFilePlugin:
    """Tells the marketplace that stands in a file."""

    Config = MarketplaceFileConfig

    def __init__(self, config: MarketplaceFileConfig) -> None:
        """Raises ConfigError for a file that cannot be used."""
        file = Path(config.file)
        log = file.with_name(file.name + "-wal")  # sqlite.org/wal.html: commits not yet in the file
        companions = [log] if file.suffix in SQLITE_SUFFIXES else []
        try:
            self._file = WatchedFile(NAME, file, read_marketplace, companions)
        except LocalError as problem:
            raise ConfigError(f"plugins.{NAME}.file", str(problem)) from None
        self._told: Marketplace | None = None

    @hookimpl
    def marketplace(self) -> Marketplace | None:
        self._file.refresh()
        if self._file.value == self._told:
            return None
        self._told = self._file.value
        return self._told


# Reading


def read_marketplace(file: Path) -> Marketplace:
    """The marketplace in a file. Raises LocalError that says what is wrong with it."""
    try:
        if file.suffix in SQLITE_SUFFIXES:
            table = _sqlite_table(file)
        else:
            table = tomllib.loads(read_bounded(file, MAX_FILE).decode())
        return _marketplace(msgspec.convert(table, _File))
    except msgspec.ValidationError as problem:
        raise LocalError(f"{file} is no marketplace: {problem}") from None
    except (ValueError, RecursionError) as problem:  # tomllib's and decode's own errors
        raise LocalError(f"{file} is not TOML: {problem}") from None
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF  # sqlite.org/rescode.html: primary
        if code == sqlite3.SQLITE_BUSY:
            raise BusyFileError(f"{file} is locked by a writer: try again") from None
        raise LocalError(f"{file} cannot be read as SQLite: {problem}") from None


def _marketplace(found: _File) -> Marketplace:
    return Marketplace(
        tuple(Producer(_bytes(each.id), each.stake) for each in found.producers),
        tuple(
            Cluster(
                cluster.id,
                cluster.price,
                tuple(
                    Member(_bytes(member.id), tuple(_checked(text) for text in member.addresses))
                    for member in cluster.members
                ),
            )
            for cluster in found.clusters
        ),
    )


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _checked(address: str) -> str:
    try:
        Multiaddr(address)
    except Exception:  # noqa: BLE001 - the library promises no type of error
        raise LocalError(
            f"{address!r} is no multiaddr: expected /ip4/192.0.2.1/tcp/4001/p2p/12D3KooW… or alike"
        ) from None
    return address


def _sqlite_table(file: Path) -> dict[str, list[dict[str, Any]]]:
    """What stands in a database, in the form that TOML has. Raises LocalError, sqlite3.Error."""
    with closing(
        sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=LOCK_TIMEOUT,
            isolation_level=None,
        )
    ) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ADDRESS * 64)  # bytes of a row; guess
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("BEGIN")
        kinds = database.execute("SELECT name, type FROM sqlite_schema WHERE type <> 'index'")
        there = [name for name, kind in kinds if kind == "table"]  # a view could run for ever
        for name in ("producers", "clusters", "members", "member_addresses"):
            if name not in there:
                raise LocalError(f"{file} has no table {name}: see docs/plugins.md for all four")
        most = MAX_ALL_MEMBERS
        addresses: dict[str, list[str]] = {}
        for member, address in _rows(
            database, "member, address", "member_addresses", most * MAX_ADDRESSES
        ):
            addresses.setdefault(member, []).append(address)
        members: dict[int, list[dict[str, Any]]] = {}
        for name, cluster in _rows(database, "id, cluster", "members", most):
            theirs = addresses.pop(name, [])
            members.setdefault(cluster, []).append({"id": name, "addresses": theirs})
        clusters = [
            {"id": number, "price": price, "members": members.pop(number, [])}
            for number, price in _rows(database, "id, price", "clusters", MAX_CLUSTERS)
        ]
        producers = [
            {"id": name, "stake": stake}
            for name, stake in _rows(database, "id, stake", "producers", MAX_PRODUCERS)
        ]
    nowhere = [f"member {name!r}" for name in addresses] + [f"cluster {name!r}" for name in members]
    if nowhere:
        raise LocalError(f"{file} has rows for {nowhere[0]}, which stands in no table")
    return {"producers": producers, "clusters": clusters}


def _rows(
    database: sqlite3.Connection, columns: str, table: str, most: int
) -> Iterator[tuple[Any, Any]]:
    """Rows in the order of their insertion. Raises LocalError for more than ``most``."""
    found = database.execute(f"SELECT {columns} FROM {table} ORDER BY rowid LIMIT {most + 1}")
    for count, row in enumerate(found):
        if count == most:
            raise LocalError(f"table {table} has more than {most} rows")
        yield row


# Writing


def to_toml(marketplace: Marketplace) -> str:
    """The file that says ``marketplace``."""
    lines: list[str] = []
    for producer in marketplace.producers:
        lines += [
            "[[producers]]",
            f'id = "{_text(producer.address)}"',
            f"stake = {producer.stake}",
            "",
        ]
    for cluster in marketplace.clusters:
        lines += ["[[clusters]]", f"id = {cluster.id}", f"price = {cluster.price}", ""]
        for member in cluster.members:
            addresses = ", ".join(_quoted(address) for address in member.addresses)
            lines += [
                "[[clusters.members]]",
                f'id = "{_text(member.address)}"',
                f"addresses = [{addresses}]",
                "",
            ]
    return "\n".join(lines)


def write_sqlite(marketplace: Marketplace, path: Path) -> None:
    """Make ``marketplace`` what the database says; the database need not exist.

    One transaction: a node that reads meanwhile finds the old marketplace or the new one. Raises
    sqlite3.Error where the file cannot be written.
    """
    members = [(each, cluster.id) for cluster in marketplace.clusters for each in cluster.members]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("BEGIN IMMEDIATE;" + SCHEMA)
        for table in ("member_addresses", "members", "clusters", "producers"):
            database.execute(f"DELETE FROM {table}")
        database.executemany(
            "INSERT INTO producers (id, stake) VALUES (?, ?)",
            [(_text(each.address), each.stake) for each in marketplace.producers],
        )
        database.executemany(
            "INSERT INTO clusters (id, price) VALUES (?, ?)",
            [(each.id, each.price) for each in marketplace.clusters],
        )
        database.executemany(
            "INSERT INTO members (id, cluster) VALUES (?, ?)",
            [(_text(member.address), cluster) for member, cluster in members],
        )
        database.executemany(
            "INSERT INTO member_addresses (member, address) VALUES (?, ?)",
            [(_text(each.address), address) for each, _ in members for address in each.addresses],
        )
        database.execute("COMMIT")


def _text(address: bytes) -> str:
    return "0x" + address.hex()


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are JSON's, and one more that must be escaped."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
