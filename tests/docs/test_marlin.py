"""docs/marlin.md: what it points to is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "marlin.md").read_text()
REFERENCES = sorted(set(re.findall(r"`([a-z_]+/[A-Za-z0-9_./-]+(?::\w+)?)`", TEXT)))
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| the document", "| what |"))
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_file_and_name_exists(reference: str) -> None:
    path, _, name = reference.partition(":")
    assert (ROOT / path).exists()
    if name:
        module = import_module("bruit." + path.removesuffix(".py").replace("/", "."))
        assert hasattr(module, name)


def test_every_row_points_to_a_test_or_says_why_there_is_none() -> None:
    for document, here, shown in ROWS:
        outside = any(reason in here for reason in ("not offered", "outside of the document"))
        assert "`tests/" in shown or outside, document
