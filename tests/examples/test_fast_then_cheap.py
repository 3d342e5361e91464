"""The example of a cluster selector: built, installed, configured and asked as by its users."""

import importlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bruit.plugins.hookspecs import ClusterOption, Selection
from bruit.plugins.registry import PluginRegistry

NAME = "fast-then-cheap"
EXAMPLE = Path(__file__).parents[2] / "examples" / NAME
TIMEOUT = 60  # seconds, of a build that has gone wrong

FAST, CHEAP, FAILING = (
    ClusterOption(1, 9, 0.1, 1.0, (), 0),
    ClusterOption(2, 1, 0.8, 1.0, (), 0),
    ClusterOption(3, 0, 0.0, 0.5, (), 2),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package, built into a wheel and unpacked onto the path."""
    pytest.importorskip("hatchling", reason="the example package is built with hatchling")
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / NAME, ignore=shutil.ignore_patterns("__pycache__", "dist"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=folder / NAME,
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    [wheel] = (folder / NAME / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder / "site"), *sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)
        importlib.invalidate_caches()
        yield
    sys.modules.pop("fast_then_cheap", None)


def chosen(chunk: int, *options: ClusterOption, **settings: float) -> list[int]:
    registry = PluginRegistry.discover({NAME: settings})
    select = registry.selector(NAME, "relay.selector")
    rng = Random(1)
    asked = Selection(bytes(20), bytes(4), chunk, 1200, options)
    return [select(asked, rng) for _ in range(200)]


@pytest.mark.usefixtures("installed")
def test_the_first_chunks_go_the_fast_way_and_the_others_the_cheap_one() -> None:
    for chunk, cluster in ((0, 1), (31, 1), (32, 2), (47, 2)):
        assert set(chosen(chunk, CHEAP, FAST, FAILING, explore=0)) == {cluster}
    assert set(chosen(32, CHEAP, FAST, fast=33, explore=0)) == {1}


@pytest.mark.usefixtures("installed")
def test_some_chunks_try_any_cluster() -> None:
    tried = chosen(0, CHEAP, FAST, FAILING)
    assert set(tried) == {1, 2, 3}
    assert tried.count(1) > 170
