"""The commented file and the page of documentation say what the types say."""

import re
import tomllib
from pathlib import Path

import pytest

from bruit.node.config import ChannelConfig, NodeConfig, RelayConfig, TopicConfig, load_config
from bruit.node.config.fields import FIELDS, SECTIONS
from bruit.node.config.load import leaves
from bruit.node.config.reference import Setting, config_page, config_template, settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_every_setting_is_described_and_no_description_is_left_over() -> None:
    channel = ChannelConfig(id=1, topic="/a")
    everything = NodeConfig(
        topics={"NAME": TopicConfig()}, relay=RelayConfig(channels={"NAME": channel})
    )
    assert {path for path, _ in leaves(everything)} == set(FIELDS)
    described = {f"{section}.{row.name}" for section in SECTIONS for row in settings(section)}
    assert described == set(FIELDS)


def test_the_commented_file_gives_exactly_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(config_template())
    assert load_config(file).config == NodeConfig()


def test_the_commented_file_gives_the_defaults_when_every_setting_is_taken_in(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bruit.toml"
    taken_in = re.sub(
        r"^# (?=\w+ = |\[(?!plugins|scoring))", "", config_template(), flags=re.MULTILINE
    )
    file.write_text(taken_in)
    loaded = load_config(file)
    assert len(loaded.origins) == len(FIELDS)
    assert all(origin.startswith("file ") for origin in loaded.origins.values())
    (topic,) = loaded.config.topics.values()
    assert topic == TopicConfig()
    (channel,) = loaded.config.relay.channels.values()
    assert channel == ChannelConfig(id=channel.id, topic=channel.topic)
    relay = RelayConfig(channels=loaded.config.relay.channels)
    assert loaded.config == NodeConfig(topics=loaded.config.topics, relay=relay)


@pytest.mark.parametrize(
    "row",
    [row for section in SECTIONS for row in settings(section) if row.variable],
    ids=lambda row: row.variable,
)
def test_every_environment_variable_named_there_sets_its_setting(row: Setting) -> None:
    loaded = load_config(None, {row.variable: row.default})
    assert loaded.config == NodeConfig()
    origin = f"environment {row.variable}"
    (path,) = (path for path, source in loaded.origins.items() if source == origin)
    assert path.endswith(f".{row.name}")


def test_the_page_of_documentation_is_the_one_that_the_types_give() -> None:
    assert PAGE.read_text() == config_page(), (
        "docs/configuration.md is out of date: bruit config reference > docs/configuration.md"
    )


def test_the_examples_on_the_page_are_read_as_the_page_says() -> None:
    page = config_page()
    assert "`BRUIT_GOSSIP__D=8` sets `gossip.d`" in page
    assert load_config(None, {"BRUIT_GOSSIP__D": "8"}).config.gossip.d == 8


def test_the_commented_file_is_toml_of_known_tables_only() -> None:
    assert set(tomllib.loads(config_template())) <= set(NodeConfig.__struct_fields__)
