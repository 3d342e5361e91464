"""The marketplace in a file: what it may say, what is refused, and when it is read again."""

import logging
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.plugins.marketplace import (
    MAX_PRICE,
    MAX_STAKE,
    Cluster,
    Marketplace,
    Member,
    Producer,
)
from bruit.plugins.marketplace_file import (
    MAX_ADDRESS,
    MAX_ADDRESSES,
    MAX_FILE,
    SCHEMA,
    read_marketplace,
    to_toml,
    write_sqlite,
)
from bruit.plugins.registry import PluginRegistry
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.keys import peer_id_text

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def peer(number: int) -> str:
    """An identity multihash of an Ed25519 key (peer-ids.md)."""
    return peer_id_text(bytes.fromhex("002408011220") + number.to_bytes(32, "big"))


def member(number: int) -> Member:
    addresses = (
        f"/ip4/192.0.2.1/tcp/{number}/p2p/{peer(number)}",
        f"/dns4/marlin.example/tcp/4001/p2p/{peer(number)}",
    )
    return Member(number.to_bytes(20, "big"), addresses)


ONE = Marketplace(
    (Producer(b"\xab" * 20, 0), Producer(b"\x01" * 20, MAX_STAKE)),
    (
        Cluster(0, MAX_PRICE, ()),
        Cluster(7, 0, (member(3), member(1))),
        Cluster(0xFFFF, 2, (member(2),)),
    ),
)
OTHER = Marketplace((Producer(b"\x02" * 20, 9),))

Write = Callable[[Marketplace, Path], object]
WRITERS: dict[str, Write] = {
    "market.toml": lambda marketplace, file: file.write_text(to_toml(marketplace)),
    "market.sqlite": write_sqlite,
    "market.db": write_sqlite,
}
both = pytest.mark.parametrize(("name", "write"), WRITERS.items())


def teller(file: Path) -> Callable[[], Marketplace | None]:
    registry = PluginRegistry.discover({"marketplace-file": {"file": str(file)}})
    return registry.marketplace("marketplace-file", "relay.marketplace")


def refusal(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        teller(file)
    assert caught.value.path == "plugins.marketplace-file.file"
    return str(caught.value)


# What it says


@both
@pytest.mark.parametrize("marketplace", [ONE, OTHER, Marketplace()])
def test_what_is_written_is_what_is_read(
    tmp_path: Path, name: str, write: Write, marketplace: Marketplace
) -> None:
    write(marketplace, tmp_path / name)
    assert teller(tmp_path / name)() == marketplace


numbers = st.integers(1, 40_000)


@given(
    st.lists(st.builds(Producer, st.binary(min_size=20, max_size=20), st.integers(0, MAX_STAKE))),
    st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, MAX_PRICE)), max_size=5),
    st.lists(st.lists(numbers, max_size=4), min_size=5, max_size=5),
)
def test_any_marketplace_survives_both_formats(
    tmp_path_factory: pytest.TempPathFactory,
    producers: list[Producer],
    clusters: list[tuple[int, int]],
    members: list[list[int]],
) -> None:
    once = {producer.address: producer for producer in producers}
    seen: set[int] = set()
    found = []
    for (number, price), theirs in zip(sorted(dict(clusters).items()), members, strict=False):
        mine = [each for each in dict.fromkeys(theirs) if each not in seen]
        seen.update(mine)
        found.append(Cluster(number, price, tuple(map(member, mine))))
    marketplace = Marketplace(tuple(once.values()), tuple(found))
    folder = tmp_path_factory.mktemp("market")
    for name, write in WRITERS.items():
        write(marketplace, folder / name)
        assert read_marketplace(folder / name) == marketplace


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    [text] = re.findall(r"^```toml\n(# marketplace.toml\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "marketplace.toml"
    file.write_text(text)
    found = read_marketplace(file)
    assert [each.stake for each in found.producers] == [5_000_000]
    assert [(each.id, each.price, len(each.members)) for each in found.clusters] == [(1, 3, 1)]


def test_the_tables_of_the_page_are_those_that_are_written() -> None:
    [shown] = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    columns = []
    for schema in (shown, SCHEMA):
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(schema)
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema")]
            columns.append(
                [database.execute(f"PRAGMA table_info({name})").fetchall() for name in tables]
            )
    assert columns[0] == columns[1]


# What is refused

ID = '"0x' + "ab" * 20 + '"'
BAD = {
    "is not TOML": "producers = 5 5",
    "Expected `array`, got `int` - at `$.producers`": "producers = 5",
    "Object contains unknown field `producer`": "[[producer]]",
    "Object missing required field `stake`": f"[[producers]]\nid = {ID}",
    "Expected `str` matching regex": '[[producers]]\nid = "abab"\nstake = 1',
    "Expected `int` >= 0": f"[[producers]]\nid = {ID}\nstake = -1",
    "Expected `int` <= 4294967295": f"[[producers]]\nid = {ID}\nstake = 4_294_967_296",
    "Expected `int`, got `float`": f"[[producers]]\nid = {ID}\nstake = 1.0",
    "stands in the marketplace twice": f"[[producers]]\nid = {ID}\nstake = 1\n" * 2,
    "Expected `int` <= 65535": "[[clusters]]\nid = 65_536\nprice = 0",
    "Expected `array` of length >= 1": (
        f"[[clusters]]\nid = 1\nprice = 0\nmembers = [{{id = {ID}, addresses = []}}]"
    ),
    "Expected `array` of length <= 16": (
        f"[[clusters]]\nid = 1\nprice = 0\nmembers = [{{id = {ID}, addresses = "
        f"{['/x'] * (MAX_ADDRESSES + 1)}}}]"
    ),
    "Expected `str` of length <= 512": (
        f"[[clusters]]\nid = 1\nprice = 0\nmembers = [{{id = {ID}, addresses = "
        f"['{'/' * (MAX_ADDRESS + 1)}']}}]"
    ),
    "is no multiaddr": (
        f"[[clusters]]\nid = 1\nprice = 0\nmembers = [{{id = {ID}, addresses = ['nowhere']}}]"
    ),
    "ending in /p2p/": (
        f"[[clusters]]\nid = 1\nprice = 0\nmembers = [{{id = {ID}, addresses = ['/tcp/1']}}]"
    ),
}


@pytest.mark.parametrize("problem", BAD)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "market.toml"
    file.write_text(BAD[problem])
    assert problem in refusal(file)


def test_a_file_that_is_too_large_or_no_text_or_not_there_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "market.toml"
    with file.open("wb") as stream:
        stream.truncate(MAX_FILE + 1)
    assert f"has more than {MAX_FILE} bytes" in refusal(file)
    file.write_bytes(b"\xff")
    assert "is not TOML" in refusal(file)
    file.unlink()
    assert "cannot be read: No such file" in refusal(file)


@pytest.mark.parametrize("data", [b"", b"no database at all", b"SQLite format 3\0" + bytes(200)])
def test_a_database_that_is_none_stops_the_start(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "market.db"
    file.write_bytes(data)
    assert re.search("has no table producers|cannot be read as SQLite", refusal(file))
    file.unlink()
    assert "unable to open database file" in refusal(file)
    assert not file.exists()


SQL = {
    "has no table members": "DROP TABLE members",
    "no such column: price": "ALTER TABLE clusters RENAME price TO cost",
    "has rows for member '0x00'": "INSERT INTO member_addresses VALUES ('0x00', '/x')",
    "has rows for cluster 99": f"INSERT INTO members VALUES ('0x{'00' * 20}', 99)",
    "Expected `array` of length >= 1": f"INSERT INTO members VALUES ('0x{'00' * 20}', 7)",
    "Expected `str`, got `bytes`": "UPDATE producers SET id = x'00' WHERE stake = 0",
    "Expected `int`, got `str`": "UPDATE producers SET stake = 'much'",
    "Expected `int` >= 0": "UPDATE producers SET stake = -1",
    "too big": f"UPDATE producers SET id = '{'0' * 100_000}' WHERE stake = 0",
    "has no table producers": "DROP TABLE producers; CREATE VIEW producers AS SELECT 1",
}


@pytest.mark.parametrize("problem", SQL)
def test_a_database_that_says_something_else_stops_the_start(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "market.db"
    write_sqlite(ONE, file)
    change(file, SQL[problem])
    assert problem in refusal(file)


def change(file: Path, script: str) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(script)


# When it is read again


def replace(write: Write, marketplace: Marketplace, file: Path) -> None:
    new = file.with_name("new" + file.suffix)
    write(marketplace, new)
    new.rename(file)


@both
def test_a_file_is_told_anew_when_it_says_something_else(
    tmp_path: Path, name: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / name
    write(ONE, file)
    tell = teller(file)
    assert [tell(), tell(), tell()] == [ONE, None, None]
    replace(write, OTHER, file)
    assert [tell(), tell()] == [OTHER, None]
    with caplog.at_level(logging.INFO):
        replace(write, OTHER, file)
        assert [tell(), tell()] == [None, None]  # another file that says the same
    assert caplog.messages == [f"marketplace-file: {file} was read again"]


@both
def test_a_file_that_goes_bad_leaves_the_last_good_marketplace_and_says_so_once(
    tmp_path: Path, name: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / name
    write(ONE, file)
    tell = teller(file)
    assert tell() == ONE
    file.write_text("spoilt")
    with caplog.at_level(logging.WARNING):
        assert [tell(), tell()] == [None, None]
        assert len(caplog.records) == 1
        assert "what was read before stays in force" in caplog.text
        file.unlink()
        assert [tell(), tell()] == [None, None]
        assert len(caplog.records) == 2
    write(OTHER, file)
    assert tell() == OTHER


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_commit_to_a_database_is_seen_while_its_writer_stays(
    tmp_path: Path, journal: str
) -> None:
    file = tmp_path / "market.sqlite"
    write_sqlite(ONE, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {journal}")
        tell = teller(file)
        assert tell() == ONE
        for stake in (5, 6):
            writer.execute("BEGIN")
            writer.execute(f"UPDATE producers SET stake = {stake}")
            assert tell() is None
            writer.execute("COMMIT")
            told = tell()
            assert told is not None
            assert [producer.stake for producer in told.producers] == [stake, stake]
    assert tell() is None


def test_a_marketplace_that_cannot_be_written_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "market.sqlite"
    write_sqlite(ONE, file)
    change(file, "CREATE TRIGGER stop AFTER INSERT ON members BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(sqlite3.Error):
        write_sqlite(Marketplace((Producer(bytes(20), 1),), (Cluster(1, 1, (member(9),)),)), file)
    assert read_marketplace(file) == ONE


def test_a_database_that_is_locked_is_read_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bruit.plugins.marketplace_file.LOCK_TIMEOUT", 0)
    file = tmp_path / "market.sqlite"
    write_sqlite(ONE, file)
    tell = teller(file)
    assert tell() == ONE
    write_sqlite(OTHER, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LocalError, match="is locked by a writer"):
            read_marketplace(file)
        assert [tell(), tell()] == [None, None]
        writer.execute("ROLLBACK")
    assert tell() == OTHER
    assert caplog.messages == []
