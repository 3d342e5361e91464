"""Scores by stake: shares worked out by hand, and files that come, change, break and go."""

import json
import logging
from fractions import Fraction
from pathlib import Path

import base58
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.plugins.registry import PluginRegistry
from bruit.plugins.stake import MAX_AMOUNT, MAX_FILE, StakeConfig, StakePlugin
from bruit.topics.errors import ConfigError
from bruit.topics.keys import PeerId, peer_id_text


def peer(number: int) -> PeerId:
    """The id of an Ed25519 key: identity multihash of 36 bytes (peer-ids.md)."""
    return bytes.fromhex("002408011220") + number.to_bytes(32, "big")


ALICE, BOB, CAROL, STRANGER = (peer(number) for number in range(1, 5))


def table(**amounts: float) -> dict[str, float]:
    names = {"alice": ALICE, "bob": BOB, "carol": CAROL}
    return {peer_id_text(names[name]): amount for name, amount in amounts.items()}


def cid(peer: PeerId) -> str:
    """The id as a CID in base58: version 1, libp2p-key, then the multihash (peer-ids.md)."""
    return "z" + base58.b58encode(b"\x01\x72" + peer).decode()


def refusal(settings: dict[str, object]) -> tuple[str, str]:
    """Path and text of the error that a start with these settings ends in."""
    with pytest.raises(ConfigError) as caught:
        PluginRegistry.discover({"stake": settings})
    return caught.value.path, str(caught.value)


# Shares


def test_a_score_is_the_weight_times_the_share_of_all_stake() -> None:
    plugin = StakePlugin(StakeConfig(stakes=table(alice=600, bob=300, carol=100), weight=50))
    assert [plugin.app_score(peer) for peer in (ALICE, BOB, CAROL)] == [30, 15, 5]


def test_a_peer_that_is_not_in_the_table_scores_nothing() -> None:
    assert StakePlugin(StakeConfig(stakes=table(alice=1))).app_score(STRANGER) == 0


def test_without_a_table_everybody_scores_nothing() -> None:
    assert StakePlugin(StakeConfig()).app_score(ALICE) == 0


def test_holders_of_nothing_score_nothing() -> None:
    plugin = StakePlugin(StakeConfig(stakes=table(alice=0, bob=0)))
    assert plugin.app_score(ALICE) == plugin.app_score(BOB) == 0


def test_the_cap_holds_back_those_who_have_most() -> None:
    plugin = StakePlugin(StakeConfig(stakes=table(alice=80, bob=20), weight=100, cap=50))
    assert (plugin.app_score(ALICE), plugin.app_score(BOB)) == (50, 20)


@given(
    st.lists(st.integers(0, int(MAX_AMOUNT)), min_size=1, max_size=20),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_scores_are_those_of_exact_fractions(amounts: list[int], weight: float, cap: float) -> None:
    stakes = {peer_id_text(peer(number)): amount for number, amount in enumerate(amounts)}
    settings = {"stakes": stakes, "weight": weight, "cap": cap}
    registry = PluginRegistry.discover({"stake": settings})  # as TOML gives them: whole numbers
    score = registry.app_scorer(["stake"], "scoring.app_scores")
    for number, amount in enumerate(amounts):
        expected = Fraction(weight) * amount / (sum(amounts) or 1)
        if cap:
            expected = min(expected, Fraction(cap))
        assert score(peer(number)) == pytest.approx(float(expected), rel=1e-12)


# Settings


@pytest.mark.parametrize(
    ("settings", "path", "problem"),
    [
        ({"stakes": {"alice": 1}}, "plugins.stake.stakes", "'alice' is not a peer id"),
        ({"stakes": {"alice": 0}}, "plugins.stake.stakes", "'alice' is not a peer id"),
        ({"stakes": table(alice=1) | {cid(ALICE): 1}}, "plugins.stake.stakes", "is named twice"),
        ({"stakes": table(alice=-1)}, "plugins.stake.stakes", ">= 0"),
        ({"stakes": table(alice=float("nan"))}, "plugins.stake.stakes", ">= 0"),
        ({"stakes": table(alice=float("inf"))}, "plugins.stake.stakes", "<= 1e+30"),
        ({"weight": -1}, "plugins.stake.weight", ">= 0"),
        ({"weight": float("inf")}, "plugins.stake.weight", "<= 1000000000000"),
        ({"cap": -1}, "plugins.stake.cap", ">= 0"),
        ({"stakes": table(alice=1), "file": "a"}, "plugins.stake", "keep one"),
    ],
)
def test_settings_that_cannot_work_are_refused_where_they_stand(
    settings: dict[str, object], path: str, problem: str
) -> None:
    where, text = refusal(settings)
    assert where.startswith(path)
    assert problem in text


# Files


def toml(stakes: dict[str, float]) -> str:
    return "\n".join(f"{name} = {amount}" for name, amount in stakes.items())


def plugin_of(file: Path) -> StakePlugin:
    return StakePlugin(StakeConfig(file=str(file), weight=1))


def replace(file: Path, text: str) -> None:
    """As a careful writer does: whoever reads finds the old content or the new."""
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)


@pytest.mark.parametrize(("name", "write"), [("stake.toml", toml), ("stake.json", json.dumps)])
def test_a_table_may_stand_in_a_file(tmp_path: Path, name: str, write: object) -> None:
    assert callable(write)
    file = tmp_path / name
    file.write_text(write(table(alice=1, bob=3)))
    plugin = plugin_of(file)
    assert (plugin.app_score(ALICE), plugin.app_score(BOB)) == (0.25, 0.75)


def test_a_file_is_read_again_when_it_has_changed_and_not_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "stake.toml"
    file.write_text(toml(table(alice=1)))
    plugin = plugin_of(file)
    with caplog.at_level(logging.INFO):
        assert [plugin.app_score(ALICE) for _ in range(3)] == [1, 1, 1]
        assert caplog.messages == []
        replace(file, toml(table(alice=1, bob=1)))
        assert [plugin.app_score(peer) for peer in (ALICE, BOB, ALICE)] == [0.5, 0.5, 0.5]
    assert caplog.messages == [f"stake: {file} was read again: 2 peers"]


BAD = {
    "not TOML": "alice 1",
    "Expected `float`, got `str`": 'alice = "much"',
    "Expected `float` >= 0": "alice = -1",
    "'alice' is not a peer id": "alice = 1",
    "is no table": "[validators]\nalice = 1",
    "more than": "#" * (MAX_FILE + 1),
}


@pytest.mark.parametrize("problem", BAD)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "stake.toml"
    file.write_text(BAD[problem])
    path, text = refusal({"file": str(file)})
    assert path == "plugins.stake.file"
    assert problem in text


def test_json_that_is_none_or_no_table_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "stake.json"
    for text in ("{", "[" * 100_000, "[]", '{"alice": NaN}', "\xff"):
        file.write_bytes(text.encode("latin-1"))
        assert refusal({"file": str(file)})[0] == "plugins.stake.file"


def test_a_file_that_does_not_exist_stops_the_start(tmp_path: Path) -> None:
    path, text = refusal({"file": str(tmp_path / "stake.toml")})
    assert path == "plugins.stake.file"
    assert "cannot be read: No such file" in text


@pytest.mark.parametrize("problem", BAD)
def test_a_file_that_goes_bad_leaves_the_last_good_amounts_in_force_and_says_so_once(
    tmp_path: Path, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "stake.toml"
    file.write_text(toml(table(alice=1)))
    plugin = plugin_of(file)
    replace(file, BAD[problem])
    with caplog.at_level(logging.WARNING):
        assert [plugin.app_score(ALICE) for _ in range(3)] == [1, 1, 1]
    [record] = caplog.records
    assert problem in record.getMessage()
    assert "the amounts read before stay in force" in record.getMessage()
    replace(file, toml(table(bob=1)))
    assert (plugin.app_score(ALICE), plugin.app_score(BOB)) == (0, 1)


def test_a_file_that_goes_away_leaves_the_last_good_amounts_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "stake.toml"
    file.write_text(toml(table(alice=1)))
    plugin = plugin_of(file)
    file.unlink()
    with caplog.at_level(logging.WARNING):
        assert [plugin.app_score(ALICE) for _ in range(3)] == [1, 1, 1]
    assert len(caplog.records) == 1
    file.write_text(toml(table(bob=1)))
    assert plugin.app_score(BOB) == 1
