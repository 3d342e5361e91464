"""docs/plugins.md says what the code says, and its example works."""

import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bruit.plugins.hookspecs import ClusterOption, HookSpecs, Selection
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.plugins.registry import HOOKS, PluginRegistry
from bruit.topics.errors import ConfigError
from bruit.topics.keys import peer_id_from_text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
BUILT_IN: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]["entry-points"]["bruit"]


# The reference


def signature(hook: str) -> str:
    """Name, arguments and types, without the modules that the types are from."""
    shown = str(inspect.signature(getattr(HookSpecs, hook)))
    return hook + re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", shown)


def docstring(hook: str) -> str:
    return (inspect.getdoc(getattr(HookSpecs, hook)) or "").replace("``", "`")


def source(struct: type) -> str:
    """The fields of a struct, without its methods."""
    return inspect.getsource(struct).partition("\n    def ")[0].rstrip() + "\n"


def hook_reference() -> str:
    """The section on hooks, as it must stand in the page."""
    parts = [
        f"### {hook}\n\n```python\n{signature(hook)}\n```\n\n{docstring(hook)}\n" for hook in HOOKS
    ]
    parts += [
        f"### {struct.__name__}\n\n```python\n{source(struct)}```\n"
        for struct in (Selection, ClusterOption, Marketplace, Producer, Cluster, Member)
    ]
    return "\n".join(parts)


def test_every_hook_stands_in_the_page_with_its_signature_and_docstring() -> None:
    assert list(HOOKS) == [
        "pre_process",
        "post_process",
        "validate",
        "select_cluster",
        "marketplace",
        "app_score",
    ]
    expected = hook_reference()
    assert expected in PAGE, f"put this into docs/plugins.md, in place of the hooks:\n\n{expected}"


def kind_text(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.IntType(ge=least, le=most) if least is not None and most is not None:
            return f"integer, {least} to {most}"
        case msgspec.inspect.LiteralType(values=values):
            return ", ".join(f"`{msgspec.json.encode(value).decode()}`" for value in values)
        case msgspec.inspect.FloatType(gt=least, le=most) if least is not None and most is not None:
            return f"number, over {least:g} to {most:g}"
        case msgspec.inspect.FloatType(ge=least, le=most) if least is not None and most is not None:
            return f"number, {least:g} to {most:g}"
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return f"table from {kind_text(key)} to {kind_text(value)}"
    raise NotImplementedError(f"say here how the page writes {kind}")


def setting_rows(name: str) -> list[str]:
    """How the row of each setting of a built-in plugin begins."""
    module, _, attribute = BUILT_IN[name].partition(":")
    config: Any = getattr(importlib.import_module(module), attribute).Config
    return [
        f"| `{field.encode_name}` | {kind_text(msgspec.inspect.type_info(field.type))} "
        f"| {default_text(field)} | "
        for field in msgspec.structs.fields(config)
    ]


def default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{msgspec.json.encode(default).decode()}`"


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_setting_of_a_built_in_plugin_stands_in_the_page(name: str) -> None:
    [section] = re.findall(rf"^### `{name}`$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = setting_rows(name)
    assert rows or "It has no settings." in section
    lines = section.splitlines()
    for row in rows:
        assert any(line.startswith(row) for line in lines), f"{name} lacks the row {row}"
    assert len([line for line in lines if line.startswith("| `")]) == len(rows)


def test_the_stakes_of_the_page_come_to_the_scores_that_it_says(tmp_path: Path) -> None:
    [settings] = [tomllib.loads(block) for block in blocks("toml") if "[plugins.stake]" in block]
    [stakes] = [block for block in blocks("toml") if "/stake.toml: peer id" in block]
    file = tmp_path / "stake.toml"
    file.write_text(stakes, encoding="utf-8")
    settings["plugins"]["stake"]["file"] = str(file)
    score = PluginRegistry.discover(settings["plugins"]).app_scorer(
        settings["scoring"]["app_scores"], "scoring.app_scores"
    )
    peers = [peer_id_from_text(text) for text in tomllib.loads(stakes)]
    assert [score(peer) for peer in peers] == [40, 40]


# The example


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def example_files() -> dict[str, str]:
    """Blocks that begin with a comment naming their file."""
    files = {}
    for block in blocks("python") + blocks("toml"):
        if found := re.match(r"# (acme-bruit/\S+)\n", block):
            files[found[1]] = block
    return files


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the example package was built for and installed into."""
    pytest.importorskip("hatchling", reason="the example package is built with hatchling")
    folder = tmp_path_factory.mktemp("example")
    for name, text in example_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    run(["-m", "hatchling", "build", "-t", "wheel"], folder / "acme-bruit")
    [wheel] = (folder / "acme-bruit" / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder


def run(arguments: list[str], folder: Path, *path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_is_complete() -> None:
    assert list(example_files()) == [
        "acme-bruit/acme_bruit/__init__.py",
        "acme-bruit/acme_bruit/selector.py",
        "acme-bruit/tests/test_acme.py",
        "acme-bruit/pyproject.toml",
    ]


def test_the_example_package_installs_and_its_own_tests_pass(site: Path) -> None:
    run(["-m", "pytest", "-q", "-W", "error", "tests"], site / "acme-bruit", site / "site", ROOT)


def test_the_example_configuration_is_accepted_and_its_mistake_is_found(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(site / "site"), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    [config] = [tomllib.loads(block) for block in blocks("toml") if "[plugins.acme]" in block]
    registry = PluginRegistry.discover(config["plugins"])
    registry.selector(config["relay"]["selector"], "relay.selector")
    for topic, settings in config["topics"].items():
        registry.topic_pipeline(topic, max_size=1000, **settings)
    [mistake] = [block for block in blocks("text") if block.startswith("plugins.acme.")]
    with pytest.raises(ConfigError) as caught:
        PluginRegistry.discover({"acme": {"work_bit": 12}})
    assert str(caught.value) == mistake.strip()
    for module in [name for name in sys.modules if name.partition(".")[0] == "acme_bruit"]:
        del sys.modules[module]
