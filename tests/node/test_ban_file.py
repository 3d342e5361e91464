"""The ban file: what is written stays, whoever writes at the same time, whatever breaks."""

import json
import multiprocessing
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.ban_file import BanFile
from bruit.scoring.bans import Ban, Bans
from bruit.topics.errors import LocalError

PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
NOW = 1_700_000_000.0
ENTRY = '{"version": 1, "bans": [{"target": "%s", "since": %s, "until": null}]}'


def targets(bans: Bans) -> list[str]:
    return [ban.target for ban in bans]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bans.json"


def ban(path: Path, *new: str) -> BanFile:
    file = BanFile(path)
    with file.edit() as bans:
        for target in new:
            bans.ban(target, None, "", NOW)
    return file


def test_bans_outlive_the_process(path: Path) -> None:
    file = BanFile(path)
    with file.edit() as bans:
        bans.ban(PEER, 3600.0, "spam", NOW)
        bans.ban("192.0.2.0/24", None, "", NOW)
    another = BanFile(path)
    assert another.reload()
    assert list(another.bans) == list(file.bans) == [
        Ban(target=PEER, since=NOW, until=NOW + 3600, reason="spam"),
        Ban(target="192.0.2.0/24", since=NOW, until=None, reason=""),
    ]  # fmt: skip


def test_the_file_is_json_that_its_owner_alone_can_read(path: Path) -> None:
    ban(path, "192.0.2.1")
    assert json.loads(path.read_text()) == {
        "version": 1,
        "bans": [{"target": "192.0.2.1", "since": NOW, "until": None, "reason": ""}],
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_bans_nobody(path: Path) -> None:
    file = BanFile(path)
    assert not file.reload()
    assert len(file.bans) == 0


def test_a_change_by_another_process_is_noticed_and_no_change_is_not_read(path: Path) -> None:
    file = BanFile(path)
    ban(path, "192.0.2.1")
    assert file.reload()
    assert targets(file.bans) == ["192.0.2.1"]
    assert not file.reload()
    ban(path, "192.0.2.2")
    assert file.reload()
    assert targets(file.bans) == ["192.0.2.1", "192.0.2.2"]
    path.unlink()
    assert file.reload()
    assert len(file.bans) == 0
    assert not file.reload()


def test_a_writer_need_not_read_what_it_wrote(path: Path) -> None:
    file = ban(path, "192.0.2.1")
    assert targets(file.bans) == ["192.0.2.1"]
    assert not file.reload()


def test_a_change_is_made_to_what_the_file_holds_now(path: Path) -> None:
    ours = ban(path, "192.0.2.1", "192.0.2.2")
    theirs = BanFile(path)
    with theirs.edit() as bans:
        assert bans.lift("192.0.2.1")
    with ours.edit() as bans:
        bans.ban("192.0.2.3", None, "", NOW)
    assert targets(ours.bans) == ["192.0.2.2", "192.0.2.3"]


def test_a_change_that_fails_half_way_changes_nothing(path: Path) -> None:
    file = ban(path, "192.0.2.1")
    ban(path, "192.0.2.2")
    before = path.read_bytes()
    with pytest.raises(LocalError, match="cannot be banned"):
        ban(path, "192.0.2.9", "nonsense")
    assert path.read_bytes() == before
    assert targets(file.bans) == ["192.0.2.1"]
    assert file.reload()
    assert targets(file.bans) == ["192.0.2.1", "192.0.2.2"]


def _ban_many(path: Path, third: int) -> None:
    for fourth in range(20):
        ban(path, f"10.0.{third}.{fourth}")


def test_writers_in_several_processes_lose_no_entry(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_ban_many, args=(path, third)) for third in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    file = BanFile(path)
    file.reload()
    expected = [f"10.0.{third}.{fourth}" for third in range(2) for fourth in range(20)]
    assert sorted(targets(file.bans)) == sorted(expected)


# What breaks


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ("", "truncated"),
        ("not json", "malformed"),
        ('{"version": 1, "bans": [', "truncated"),
        ('{"version": 2, "bans": []}', "version 2"),
        ('{"version": 1, "bans": [], "more": 1}', "more"),
        (ENTRY % ("nobody", "0"), "cannot be banned"),
        (ENTRY % ("0.0.0.0/0", "0"), "everybody"),
        (ENTRY % ("192.0.2.1", "true"), r"bans\[0\]"),
    ],
)  # fmt: skip
def test_a_broken_file_is_neither_believed_nor_replaced(
    path: Path, contents: str, problem: str
) -> None:
    file = ban(path, "192.0.2.1")
    path.write_text(contents)
    with pytest.raises(LocalError, match=f"(?s){path}.*{problem}.*move it away"):
        file.reload()
    assert targets(file.bans) == ["192.0.2.1"]
    assert not file.reload()  # complained of once
    with pytest.raises(LocalError, match=problem), file.edit():
        pytest.fail("an edit would replace what nobody has seen")
    assert path.read_text() == contents

    path.unlink()
    ban(path, "192.0.2.2")
    assert file.reload()
    assert targets(file.bans) == ["192.0.2.2"]


@given(st.binary() | st.recursive(
    st.none() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["version", "bans", "target", "since", "until"]), inner),
).map(msgspec.json.encode))  # fmt: skip
def test_any_contents_are_bans_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, contents: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_bytes(contents)
    file = BanFile(path)
    try:
        file.reload()
    except LocalError as problem:
        assert str(path) in str(problem)  # noqa: PT017, both outcomes are right
    assert path.read_bytes() == contents


def test_a_crash_before_the_last_step_leaves_the_old_file(path: Path) -> None:
    ban(path, "192.0.2.1")
    new = path.with_name("bans.json.new")
    new.write_text('{"version": 1, "bans": [{"targ')
    new.chmod(0o644)
    file = BanFile(path)
    file.reload()
    assert targets(file.bans) == ["192.0.2.1"]
    ban(path, "192.0.2.2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not new.exists()
    assert file.reload()
    assert targets(file.bans) == ["192.0.2.1", "192.0.2.2"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="nowhere"), BanFile(tmp_path / "nowhere" / "b").edit():
        pytest.fail("there is nowhere to write")


def test_a_path_that_is_no_file_is_an_error_of_both_ways(tmp_path: Path) -> None:
    folder = tmp_path / "bans.json"
    folder.mkdir()
    with pytest.raises(LocalError, match="cannot be read"):
        BanFile(folder).reload()
    with pytest.raises(LocalError, match="cannot be read"), BanFile(folder).edit():
        pytest.fail("there is nothing to edit")


def test_a_file_that_cannot_be_written_is_an_error_and_the_bans_stay(path: Path) -> None:
    file = ban(path, "192.0.2.1")
    path.with_name("bans.json.new").mkdir()
    with pytest.raises(LocalError, match="cannot be written"), file.edit() as bans:
        bans.ban("192.0.2.2", None, "", NOW)
    assert targets(file.bans) == ["192.0.2.1"]
    assert not file.reload()
