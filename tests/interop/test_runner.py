"""The runner by itself: no toolchain is needed for any of this."""

import io
import sys
from pathlib import Path

import msgspec
import pytest

from tests.interop.mixed import EACH, MESSAGES, Account, links
from tests.interop.peer import OURS, InteropError, network
from tests.interop.protocol import payload
from tests.interop.report import Report, Result
from tests.interop.scenarios import SCENARIOS, verify
from tests.interop.toolchains import (
    RECIPES,
    BuildError,
    Built,
    LeftOut,
    Recipe,
    our_command,
    prepare,
)

PASSED = Result(True, 1.5, "as promised")
LOST = Result(False, 20.0, "go-1: not in 20 s: 200 of small")
COMPLETE = Account(
    nodes=12,
    sent=12 * 11 * 200,
    delivered=12 * 11 * 200,
    duplicates=0,
    wrong=0,
    missing={},
    lowest_score_of_ours=0.0,
)


def new_report() -> tuple[Report, io.StringIO, io.StringIO]:
    out, errors = io.StringIO(), io.StringIO()
    return Report(out, errors), out, errors


def recipe(command: str) -> dict[str, Recipe]:
    """One that builds js with a line of Python."""
    return {"js": Recipe((), (sys.executable, "-c", command), ("run", "{folder}/peer"))}


# --- toolchains -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "missing"), [("go", "go"), ("js", "node and npm"), ("rust", "cargo")]
)
def test_a_peer_without_its_toolchain_is_left_out_and_the_toolchain_named(
    kind: str, missing: str, tmp_path: Path
) -> None:
    found = prepare(kind, tmp_path, find=lambda tool: None)
    assert found == LeftOut(f"{missing} not found")
    assert not list(tmp_path.iterdir())


def test_only_what_is_missing_of_a_toolchain_is_named(tmp_path: Path) -> None:
    found = prepare("js", tmp_path, find=lambda tool: None if tool == "npm" else f"/bin/{tool}")
    assert found == LeftOut("npm not found")


def test_a_peer_is_built_in_a_copy_of_its_sources(tmp_path: Path) -> None:
    build = "import pathlib; pathlib.Path('peer').write_text('built')"
    built = prepare("js", tmp_path, recipe(build))
    assert isinstance(built, Built)
    assert built.command == ("run", f"{tmp_path}/js/peer")
    assert (tmp_path / "js" / "peer").read_text() == "built"
    assert (tmp_path / "js" / "peer.mjs").is_file()
    assert not (Path(__file__).parent / "js" / "peer").exists()


def test_a_peer_is_built_again_only_when_its_recipe_or_its_sources_change(tmp_path: Path) -> None:
    build = "open('times', 'a').write('x')"
    for _ in range(2):
        prepare("js", tmp_path, recipe(build))
    assert (tmp_path / "js" / "times").read_text() == "x"
    prepare("js", tmp_path, recipe(build + "  # changed"))
    assert (tmp_path / "js" / "times").read_text() == "xx"


def test_a_build_that_fails_says_what_it_wrote_and_is_tried_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(BuildError, match="no such module"):
            prepare("js", tmp_path, recipe("raise SystemExit('no such module')"))


# --- the report -------------------------------------------------------------------


def test_who_is_left_out_is_said_loudly_and_in_the_last_line() -> None:
    report, out, errors = new_report()
    report.left_out("rust", LeftOut("cargo not found"))
    report.pair("go", "signed", PASSED)
    report.end()
    assert "rust is left out: cargo not found" in errors.getvalue()
    last = msgspec.json.decode(out.getvalue().splitlines()[-1])
    assert last == {
        "pairs": {"go": {"passed": 1, "failed": {}}, "rust": {"left_out": "cargo not found"}},
        "mixed": None,
    }
    assert not report.failed


def test_a_scenario_that_fails_fails_the_run_and_its_reason_is_in_the_last_line() -> None:
    report, _, _ = new_report()
    report.pair("go", "unsigned", PASSED)
    report.pair("go", "signed", LOST)
    assert report.failed
    assert report.summary()["pairs"] == {"go": {"passed": 1, "failed": {"signed": LOST.text}}}


def test_a_peer_that_was_not_built_fails_the_run() -> None:
    report, _, errors = new_report()
    report.pair("go", "signed", PASSED)
    report.not_built("js", "js: npm ci failed:\nnetwork unreachable")
    assert report.failed
    assert "network unreachable" in errors.getvalue()


def test_a_run_of_nothing_has_failed() -> None:
    report, _, _ = new_report()
    report.left_out("go", LeftOut("go not found"))
    assert report.failed


def test_the_mixed_mesh_is_reported_with_its_account() -> None:
    report, _, _ = new_report()
    report.mixed(PASSED, COMPLETE)
    mixed = report.summary()["mixed"]
    assert isinstance(mixed, dict)
    assert mixed["sent"] == mixed["delivered"] == 26_400
    assert mixed["duplicates"] == 0
    assert not report.failed


# --- the mixed mesh ---------------------------------------------------------------


@pytest.mark.parametrize("difference", [{"delivered": 26_399}, {"duplicates": 1}, {"wrong": 1}])
def test_a_message_lost_doubled_or_changed_is_an_error(difference: dict[str, int]) -> None:
    COMPLETE.check()
    with pytest.raises(InteropError):
        msgspec.structs.replace(COMPLETE, **difference).check()


@pytest.mark.parametrize("kinds", [4, 3, 2])
def test_every_node_has_four_links_to_all_kinds_and_is_far_from_some_node(kinds: int) -> None:
    nodes = kinds * EACH
    near: dict[int, set[int]] = {node: set() for node in range(nodes)}
    for dialler, dialled in links(nodes):
        near[dialler].add(dialled)
        near[dialled].add(dialler)
    for node, neighbours in near.items():
        assert len(neighbours) == 4
        assert {each % kinds for each in neighbours} >= set(range(kinds)) - {node % kinds}
        assert len(neighbours) < nodes - 1  # the rest gets its messages from relays


def test_every_node_of_twelve_sends_two_hundred() -> None:
    assert (len(RECIPES) + 1) * EACH * MESSAGES == 2400


# --- the protocol -----------------------------------------------------------------


def test_a_payload_is_its_name_and_a_pattern_of_its_positions() -> None:
    data = payload("a", 17, 600)
    assert data[:5] == b"a:17:"
    assert all(byte == 7 * position % 256 for position, byte in enumerate(data) if position >= 5)
    assert len(data) == 600


@pytest.mark.sockets
async def test_two_processes_of_ours_pass_a_scenario(tmp_path: Path) -> None:
    async with network({OURS: our_command()}, tmp_path) as peers:
        assert await SCENARIOS["ours-killed"](peers, OURS) == "taken back"
        await verify(peers)
    assert not peers.running()


@pytest.mark.sockets
async def test_a_process_that_cannot_start_is_an_error_that_names_its_log(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such key')")
    with pytest.raises(InteropError, match=r"go-1 exited with status 1, see .*go-1\.log"):
        async with network({"go": command}, tmp_path) as peers:
            await peers.start("go")
    assert (tmp_path / "go-1.log").read_text() == "no such key\n"
