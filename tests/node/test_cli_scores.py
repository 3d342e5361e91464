"""``bruit scores``, and the [scoring] table that it reads."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
from click.testing import CliRunner, Result

from bruit.node.cli import main
from bruit.node.config import (
    Loaded,
    NodeConfig,
    ScoringConfig,
    load_config,
    scoring_of,
    set_override,
)
from bruit.scoring.params import PeerScoreParams, TopicScoreParams, params_hash
from bruit.scoring.presets import DEFAULT_PRESET, PRESETS, preset
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError

Bruit = Callable[..., Result]

BLOCKS = "/fil/blocks/testnetnet"
BLOCKS_PATH = f'scoring.topics."{BLOCKS}"'


@pytest.fixture
def bruit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bruit:
    """Runs the command line in an empty folder; environment variables as keywords."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(main, arguments, env=environ)

    return run


def loaded(*assignments: str) -> Loaded:
    return load_config(None, {}, [set_override(text) for text in assignments])


def scoring(*assignments: str) -> tuple[Thresholds, PeerScoreParams]:
    return scoring_of(loaded(*assignments).config)


# The configuration


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_alone_gives_its_thresholds_and_parameters(name: str) -> None:
    chosen = preset(name)
    assert scoring(f"scoring.preset={name}") == (chosen.thresholds, chosen.params)
    by_hand = NodeConfig(scoring=msgspec.convert({"preset": name}, ScoringConfig))
    assert scoring_of(by_hand) == (chosen.thresholds, chosen.params)


def test_without_a_word_the_preset_is_lux() -> None:
    lux = preset("lux")
    assert scoring_of(NodeConfig()) == scoring() == (lux.thresholds, lux.params)


def test_every_preset_can_be_named_in_the_configuration() -> None:
    assert get_args(get_type_hints(ScoringConfig)["preset"]) == tuple(PRESETS)
    assert ScoringConfig().preset == DEFAULT_PRESET


def test_what_a_table_says_wins_over_the_preset_and_the_rest_stays() -> None:
    thresholds, params = scoring(
        "scoring.preset=filecoin",
        "scoring.thresholds.gossip=-100",
        "scoring.peer.topic_score_cap=50",
        "scoring.topic.time_in_mesh_cap=7",
        f"{BLOCKS_PATH}.topic_weight=0.2",
    )
    assert (thresholds.gossip, thresholds.publish) == (-100, -1000)
    assert (params.topic_score_cap, params.behaviour_penalty_weight) == (50, -10)
    assert {topic.time_in_mesh_cap for topic in params.topics.values()} == {7}
    weights = [topic.topic_weight for topic in params.topics.values()]
    assert weights == [0.2, 0.1, 0.5]
    assert params.topics[BLOCKS].first_message_deliveries_weight == 5


def test_one_topic_wins_over_all_topics_wherever_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(
        '[scoring.topics."x"]\ntopic_weight = 3\n\n[scoring.topic]\ntopic_weight = 2\n'
        "time_in_mesh_cap = 5\n"
    )
    _, params = scoring_of(load_config(file).config)
    lux = preset("lux").params.default_topic
    assert lux is not None
    assert (params.topics["x"].topic_weight, params.topics["x"].time_in_mesh_cap) == (3, 5)
    assert (
        params.topics["x"].first_message_deliveries_cap
        == params.default_topic.first_message_deliveries_cap  # type: ignore[union-attr]
        == lux.first_message_deliveries_cap
    )
    assert params.topic("y") == params.default_topic


def test_topics_that_a_preset_does_not_name_count_once_something_is_said_of_all() -> None:
    assert scoring("scoring.preset=filecoin")[1].default_topic is None
    _, params = scoring("scoring.preset=filecoin", "scoring.topic.time_in_mesh_weight=0.1")
    assert params.default_topic == TopicScoreParams(time_in_mesh_weight=0.1)


def test_a_table_written_in_a_program_replaces_the_presets_as_a_whole() -> None:
    config = NodeConfig(
        scoring=ScoringConfig(preset="ethereum", thresholds=Thresholds(graylist=-7))
    )
    thresholds, params = scoring_of(config)
    assert thresholds == Thresholds(graylist=-7)
    assert params == preset("ethereum").params


def test_origins_tell_preset_file_and_flag_apart(tmp_path: Path) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(
        '[scoring]\npreset = "filecoin"\n[scoring.topic]\ntime_in_mesh_cap = 5\n'
        f'[scoring.topics."{BLOCKS}"]\ntopic_weight = 2\n'
    )
    origins = load_config(file, {}, [set_override("scoring.peer.retain_score=9")]).origins
    assert origins["scoring.preset"] == f"file {file}:2"
    assert origins["scoring.thresholds.gossip"] == "preset filecoin"
    assert origins["scoring.peer.retain_score"] == "flag --set"
    assert origins[f"{BLOCKS_PATH}.topic_weight"] == f"file {file}:6"
    assert origins[f"{BLOCKS_PATH}.time_in_mesh_cap"] == f"file {file}:4"
    assert origins[f"{BLOCKS_PATH}.time_in_mesh_weight"] == "preset filecoin"


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("scoring.preset=filecoyn", ['"filecoyn" must be one of "lux", "filecoin"']),
        ("scoring.preset=[1]", ["scoring.preset: [1] must be one of"]),
        ("scoring.pier.x=1", ["did you mean scoring.peer?"]),
        ("scoring.peer.topic_scor_cap=1", ["did you mean scoring.peer.topic_score_cap?"]),
        ("scoring.topic.topic_wait=1", ["scoring.topic.topic_wait: ", "did you mean"]),
        (
            "scoring.topics.x.topic_wait=1",
            ["scoring.topics.x.topic_wait: ", "did you mean scoring.topics.x.topic_weight?"],
        ),
        ("scoring.topic=1", ["scoring.topic: 1 must be a table"]),
        ("scoring.topics=1", ["scoring.topics: 1 must be a table"]),
        ("scoring.topics.x=1", ["scoring.topics.x: 1 must be a table"]),
        ("scoring=1", ["scoring: 1 must be a table"]),
        ("scoring.peer.decay_interval=0.5", ["scoring.peer.decay_interval: 0.5 must be ≥ 1"]),
        (
            "scoring.peer.ip_colocation_factor_whitelist=['x']",
            ["scoring.peer.ip_colocation_factor_whitelist[0]: 'x' must be a CIDR"],
        ),
        ("scoring.topic.topic_weight=-1", ["scoring.topic.topic_weight: -1.0 must be ≥ 0"]),
        (
            "scoring.topics.'/a'.topic_weight=-1",
            ['scoring.topics."/a".topic_weight: -1.0 must be ≥ 0'],
        ),
        ("scoring.topics.''.topic_weight=1", ['scoring.topics."": topic']),
        ("scoring.thresholds.mesh=1", ["scoring.thresholds.mesh: 1.0 must be ≤ 0"]),
        ("scoring.topic.topic_weight=nan", ["scoring.topic.topic_weight: nan must be a finite"]),
    ],
)
def test_what_is_wrong_is_refused_with_path_rule_and_origin(
    assignment: str, parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(assignment)
    for part in parts:
        assert part in str(caught.value)
    if "topics.''" not in assignment:  # the path of a topic without a name has no value
        assert str(caught.value).endswith("(flag --set)")


def test_an_error_that_the_table_of_all_topics_makes_in_one_names_the_former(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(
        '[scoring]\npreset = "ethereum"\n\n[scoring.topic]\nmesh_message_deliveries_cap = 1\n'
    )
    with pytest.raises(ConfigError, match=r"mesh_message_deliveries_cap: 1.0 .*bruit.toml:5\)$"):
        load_config(file)


def test_a_variable_cannot_name_a_topic() -> None:
    with pytest.raises(ConfigError, match="cannot name one of the topics"):
        load_config(None, {"BRUIT_SCORING__TOPICS__X__TOPIC_WEIGHT": "1"})
    config = load_config(None, {"BRUIT_SCORING__TOPIC__TOPIC_WEIGHT": "2"}).config
    assert config.scoring.topic.topic_weight == 2


# bruit scores show


@pytest.mark.parametrize("name", PRESETS)
def test_show_prints_toml_that_means_the_same(name: str, bruit: Bruit, tmp_path: Path) -> None:
    shown = bruit("scores", "show", "--preset", name)
    assert shown.exit_code == 0, shown.output
    chosen = preset(name)
    assert shown.stdout.startswith(f"# hash {params_hash(chosen.params, chosen.thresholds)}\n")
    tables = tomllib.loads(shown.stdout)["scoring"]
    assert tables["thresholds"]["graylist"] == chosen.thresholds.graylist
    assert tables["peer"]["topic_score_cap"] == chosen.params.topic_score_cap
    assert len(tables.get("topics", {})) == len(set(chosen.params.topics.values()))
    file = tmp_path / "again.toml"
    file.write_text(shown.stdout)
    assert scoring_of(load_config(file).config) == (chosen.thresholds, chosen.params)


def test_show_says_which_topics_count_alike(bruit: Bruit) -> None:
    shown = bruit("scores", "show", "--preset", "ethereum").stdout
    assert "# and 63 alike, up to /eth2/4a26c58b/beacon_attestation_63/ssz_snappy" in shown


def test_show_reads_the_file_the_environment_and_the_flags(bruit: Bruit, tmp_path: Path) -> None:
    (tmp_path / "bruit.toml").write_text("[scoring.thresholds]\ngossip = -1\n")
    for arguments in ([], ["bruit.toml"]):
        shown = bruit(
            "scores",
            "show",
            *arguments,
            "--set",
            "scoring.thresholds.accept_px=4",
            BRUIT_SCORING__THRESHOLDS__PUBLISH="-2",
        )
        thresholds = tomllib.loads(shown.stdout)["scoring"]["thresholds"]
        assert (thresholds["gossip"], thresholds["publish"]) == (-1, -2)
        assert (thresholds["accept_px"], thresholds["mesh"]) == (4, -1000)


# bruit scores lint


@pytest.mark.parametrize(("name", "code"), [("lux", 0), ("filecoin", 0), ("ethereum", 1)])
def test_lint_fails_where_there_is_a_finding(name: str, code: int, bruit: Bruit) -> None:
    linted = bruit("scores", "lint", "--preset", name)
    assert linted.exit_code == code, linted.output
    last = linted.stdout.splitlines()[-1]
    assert last == ("2 findings" if code else "no findings")


def test_a_finding_names_topic_setting_reason_and_remedy_and_draws_the_score(bruit: Bruit) -> None:
    text = bruit("scores", "lint", "--preset", "ethereum").stdout
    words = " ".join(text.split())
    name = "/eth2/4a26c58b/beacon_block/ssz_snappy"
    assert f"finding a peer can be silent for ever, in {name}" in words
    assert f'setting scoring.topics."{name}".mesh_message_deliveries_weight = -0.5' in words
    assert "why that costs 0.1173 at most" in words
    assert f'remedy scoring.topics."{name}".mesh_message_deliveries_weight = -' in words
    bars = [line for line in text.splitlines() if line.endswith("█")]
    assert len(bars) == 24  # twelve for each finding
    assert all("53.75" in line for line in bars)
    assert text.count("and so on for ever") == 2
    assert max(map(len, text.splitlines())) <= 110


def test_a_curve_shows_scores_below_zero_to_the_left(bruit: Bruit) -> None:
    text = bruit(
        "scores",
        "lint",
        "--preset=lux",
        "--set=scoring.topic.mesh_message_deliveries_weight=-1",
        "--set=scoring.topic.mesh_message_deliveries_decay=0.99",
    ).stdout
    assert "an honest peer falls below 0" in text
    assert any("-" in line and "█" in line for line in text.splitlines())


def test_the_remedy_that_lint_prints_mends_what_it_found(bruit: Bruit) -> None:
    found = json.loads(bruit("scores", "lint", "--preset", "ethereum", "--json").stdout)
    assert len(found["findings"]) == 2
    remedies = [
        f"--set={remedy['setting']}={remedy['value']}"
        for finding in found["findings"]
        for remedy in finding["remedies"]
    ]
    names = found["findings"][1]["topics"]["names"]
    assert len(names) == 64
    alike = [
        each.replace("attestation_0", f"attestation_{subnet}")
        for each in remedies
        if "attestation_0" in each
        for subnet in range(1, 64)
    ]
    mended = bruit("scores", "lint", "--preset", "ethereum", *remedies, *alike)
    assert "a peer can be silent" not in mended.stdout


def test_lint_as_json_has_the_whole_report(bruit: Bruit) -> None:
    linted = bruit("scores", "lint", "--preset", "filecoin", "--json")
    report = json.loads(linted.stdout)
    assert linted.exit_code == 0
    assert report["findings"] == []
    assert [note["text"] for note in report["notes"]] == ["silence is not scored"] * 3
    assert {each["behaviour"]["kind"] for each in report["tolerances"]} == {
        "sends invalid messages",
        "violates the protocol",
    }


def test_lint_counts_the_topics_of_the_node(bruit: Bruit, tmp_path: Path) -> None:
    """paper2020 has no cap on what topics add: more of them outweigh more."""
    tables = "".join(f'[topics."t{number}"]\n' for number in range(30))
    (tmp_path / "few.toml").write_text('[scoring]\npreset = "paper2020"\n')
    (tmp_path / "many.toml").write_text(f'[scoring]\npreset = "paper2020"\n{tables}')
    gains = [
        " ".join(bruit("scores", "lint", file).stdout.split()).partition("all else can add ")[2]
        for file in ("few.toml", "many.toml")
    ]
    assert float(gains[1].split(":")[0]) > 10 * float(gains[0].split(":")[0])


def test_lint_of_a_wrong_configuration_exits_with_2(bruit: Bruit) -> None:
    for arguments in (["--preset", "luxx"], ["nowhere.toml"], ["--set", "scoring.preset=1"]):
        refused = bruit("scores", "lint", *arguments)
        assert refused.exit_code == 2, refused.output
        assert refused.stderr.startswith("Error: ")
