"""The commands and the program of docs/scoring.md print what the page says."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from bruit.node.config import load_config, scoring_of
from bruit.scoring.presets import PRESETS, preset

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scoring.md").read_text()
PATIENCE = 60.0  # seconds for all commands; they take about five
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    language: str
    source: str
    output: str


def examples() -> list[Example]:
    """Each command or program with the output that follows it."""
    blocks: list[tuple[str, str]] = BLOCK.findall(PAGE)
    followers = [*blocks[1:], ("", "")]
    return [
        Example(language, source, output)
        for (language, source), (kind, output) in zip(blocks, followers, strict=True)
        if language in {"sh", "python"} and kind == "text"
    ]


def test_every_command_of_the_page_prints_what_stands_below_it(tmp_path: Path) -> None:
    commands = [example for example in examples() if example.language == "sh"]
    assert len(commands) == len([block for block in BLOCK.findall(PAGE) if block[0] == "sh"])
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command.source],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,  # the linter exits with 1 where it finds something
        )
        assert done.stderr == ""
        assert done.stdout == command.output


def test_the_program_of_the_page_prints_what_stands_below_it() -> None:
    [program] = [example for example in examples() if example.language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", program.source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == program.output


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    [text] = [source for language, source in BLOCK.findall(PAGE) if language == "toml"]
    file = tmp_path / "bruit.toml"
    file.write_text(text)
    thresholds, params = scoring_of(load_config(file).config)
    assert thresholds.mesh == tomllib.loads(text)["scoring"]["thresholds"]["mesh"]
    headers = params.topic("/lux/mainnet/relay/headers/global")
    assert headers is not None
    assert headers.invalid_message_deliveries_weight == -50
    assert headers.first_message_deliveries_cap == 200


@pytest.mark.parametrize("name", PRESETS)
def test_the_table_of_presets_has_their_thresholds(name: str) -> None:
    [row] = re.findall(rf"^\| `{name}`(?: \(default\))? \| (.*?) \|", PAGE, re.MULTILINE)
    values = [
        float("-inf") if cell == "never" else float(cell.replace("−", "-"))
        for cell in row.split(", ")
    ]
    thresholds = preset(name).thresholds
    assert values == [
        thresholds.gossip,
        thresholds.publish,
        thresholds.mesh,
        thresholds.graylist,
        thresholds.disconnect,
    ]
