"""Commands that need no network: init, keys, config, plugins, and the help."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bruit.node.cli import main
from bruit.node.cli.reference import cli_page
from bruit.node.config import NodeConfig, load_config
from bruit.node.identity import load_key_file
from bruit.topics.keys import peer_id_text

ROOT = Path(__file__).parents[2]

Bruit = Callable[..., Result]

CHAIN = """
import msgspec
from bruit.plugins.hookspecs import hookimpl
from bruit.topics.validation import ACCEPTED

class Config(msgspec.Struct, forbid_unknown_fields=True):
    level: int = 3

class Chain:
    Config = Config
    def __init__(self, config): ...
    @hookimpl
    def validate(self, topic, data):
        return ACCEPTED
"""


@pytest.fixture
def bruit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bruit:
    """Runs the command line in an empty folder; environment variables as keywords."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(main, arguments, env=environ)

    return run


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a package with a plugin "chain", and one with a plugin that cannot be imported."""
    site = tmp_path / "site"
    for name, target in (("chain", "testchain:Chain"), ("broken", "nosuchmodule:Plugin")):
        info = site / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[bruit]\n{name} = {target}\n")
    (site / "testchain.py").write_text(CHAIN)
    monkeypatch.syspath_prepend(site)


def commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []

    def collect(command: click.Command, ctx: click.Context) -> None:
        found.append((ctx.command_path, command))
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                assert below is not None
                collect(below, click.Context(below, info_name=name, parent=ctx))

    collect(main, click.Context(main, info_name="bruit", **main.context_settings))
    return found


# Help


@pytest.mark.parametrize(("path", "command"), commands(), ids=[path for path, _ in commands()])
def test_the_help_of_every_command_shows_an_example_of_it(
    path: str, command: click.Command
) -> None:
    assert command.help is not None
    examples = [line.strip() for line in command.help.splitlines() if f"{path} " in line]
    assert any(line.startswith("bruit ") or "=" in line.split()[0] for line in examples), path


def test_the_page_of_documentation_is_what_help_says() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == cli_page(), (
        "docs/cli.md is out of date: python -m bruit.node.cli.reference > docs/cli.md"
    )


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom bruit.node.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'libp2p', 'trio', 'structlog', 'nacl', 'multiaddr', 'msgspec'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "publish" in done.stdout


def test_version_is_the_packages(bruit: Bruit) -> None:
    from bruit import __version__

    assert bruit("--version").output == f"bruit {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["swim"], ["run", "--wet"], ["listen"], ["config", "show", "x"], ["publish", "a"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str], bruit: Bruit) -> None:
    assert bruit(*arguments).exit_code == 2


# init


def test_init_writes_a_configuration_of_defaults_and_a_key(bruit: Bruit, tmp_path: Path) -> None:
    result = bruit("init", "relay/a")
    assert result.exit_code == 0
    loaded = load_config(tmp_path / "relay/a/bruit.toml")
    assert loaded.config == NodeConfig()
    assert stat.S_IMODE(loaded.key_path.stat().st_mode) == 0o600
    key = load_key_file(loaded.key_path)
    assert key.kind.name == "ED25519"
    assert peer_id_text(key.public_key().peer_id()) in result.output


def test_init_makes_the_kind_of_key_that_is_wanted(bruit: Bruit, tmp_path: Path) -> None:
    assert bruit("init", "--key-type", "secp256k1").exit_code == 0
    assert load_key_file(tmp_path / "node.key").kind.name == "SECP256K1"


@pytest.mark.parametrize("existing", ["bruit.toml", "node.key"])
def test_init_overwrites_nothing_and_leaves_nothing_behind(
    existing: str, bruit: Bruit, tmp_path: Path
) -> None:
    (tmp_path / existing).write_text("mine")
    result = bruit("init")
    assert result.exit_code == 1
    assert result.output == (
        f"Error: {existing} exists and is never overwritten: nothing was written\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "mine"


def test_init_into_a_file_says_why_not(bruit: Bruit, tmp_path: Path) -> None:
    (tmp_path / "relay").write_text("")
    result = bruit("init", "relay")
    assert result.exit_code == 1
    assert result.output == "Error: relay cannot be written to: File exists\n"


# keys


def test_keys_new_and_show_agree_on_the_peer_id_and_show_no_key(
    bruit: Bruit, tmp_path: Path
) -> None:
    made = bruit("keys", "new", "a.key", "--key-type", "secp256k1").output.strip()
    shown = bruit("keys", "show", "a.key").output
    assert shown == f"peer id  {made}\nkind     secp256k1\n"
    assert bruit("keys", "show", "--id", "a.key").output == f"{made}\n"
    assert bruit("keys", "new", "a.key").exit_code == 1
    assert (tmp_path / "a.key").read_text().strip() not in shown


def test_keys_show_refuses_a_key_that_others_can_read(bruit: Bruit, tmp_path: Path) -> None:
    bruit("keys", "new", "a.key")
    (tmp_path / "a.key").chmod(0o644)
    result = bruit("keys", "show", "a.key")
    assert result.exit_code == 1
    assert "run chmod 600 a.key" in result.output


# config


def test_config_show_prints_toml_that_means_the_same(bruit: Bruit, tmp_path: Path) -> None:
    (tmp_path / "bruit.toml").write_text('[topics."/a b"]\ncodec = "zstd"\n[plugins.x]\ny = [1]\n')
    output = bruit("config", "show", "--set", "gossip.d=8", BRUIT_LOG__LEVEL="debug").output
    (tmp_path / "again.toml").write_text(output)
    config = load_config(tmp_path / "again.toml").config
    assert config.topics["/a b"].codec == "zstd"
    assert config.plugins == {"x": {"y": [1]}}
    assert (config.gossip.d, config.log.level) == (8, "debug")
    assert tomllib.loads(output)["gossip"]["d_hi"] == 12


def test_config_show_says_where_each_value_comes_from(bruit: Bruit, tmp_path: Path) -> None:
    (tmp_path / "bruit.toml").write_text("[gossip]\nd_hi = 13\n")
    lines = bruit(
        "config", "show", "--origin", "--set", "gossip.d=8", BRUIT_LOG__LEVEL="debug"
    ).output.splitlines()
    assert "gossip.d = 8  # flag --set" in lines
    assert "gossip.d_hi = 13  # file bruit.toml:2" in lines
    assert 'log.level = "debug"  # environment BRUIT_LOG__LEVEL' in lines
    assert "gossip.d_lo = 4  # default" in lines


def test_config_show_as_json_has_the_same_paths(bruit: Bruit) -> None:
    bruit("init")
    lines = bruit("config", "show").output.splitlines()
    values = json.loads(bruit("config", "show", "--json").output)
    assert list(values) == [line.split(" = ")[0] for line in lines]
    assert values["gossip.signature_policy"] == "strict-sign"
    origins = json.loads(bruit("config", "show", "--json", "--origin").output)
    assert origins["gossip.d"] == {"value": 6, "origin": "default"}


@pytest.mark.parametrize("command", [["config", "show"], ["config", "check"], ["run"]])
def test_without_a_file_the_way_to_one_is_shown(command: list[str], bruit: Bruit) -> None:
    result = bruit(*command)
    assert result.exit_code == 2
    assert result.output == "Error: bruit.toml: does not exist: write one with `bruit init`\n"


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_wrong_setting_is_one_line_and_exit_code_2(command: str, bruit: Bruit) -> None:
    bruit("init")
    result = bruit("config", command, "--set", "gossip.d=many")
    assert result.exit_code == 2
    assert result.output == ('Error: gossip.d: "many" must be a whole number (flag --set)\n')


def test_config_check_prints_the_peer_id_when_all_is_well(bruit: Bruit) -> None:
    bruit("init")
    result = bruit("config", "check")
    assert result.exit_code == 0
    assert result.output.removeprefix("ok, ") in bruit("keys", "show").output.replace("  ", " ")


def test_config_check_looks_at_the_key(bruit: Bruit, tmp_path: Path) -> None:
    bruit("init", "relay")
    (tmp_path / "relay/node.key").unlink()
    result = bruit("config", "check", "-c", "relay/bruit.toml")
    assert result.exit_code == 2
    assert result.output == (
        "Error: identity.key_file: key file relay/node.key does not exist: "
        "make one with `bruit keys new relay/node.key`\n"
    )


@pytest.mark.usefixtures("chain")
@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("topics.blocks.validator=chian", ["topics.", "no plugin 'chian'", "mean 'chain'?"]),
        ("topics.blocks.codec=chain", ["'chain' is no codec"]),
        ("topics.blocks.validator=broken", ["'broken' is not loaded", "nosuchmodule"]),
        ("plugins.chain.level=high", ["plugins.chain.level"]),
        ("plugins.chain.levle=3", ["plugins.chain.levle", "level"]),
        ("plugins.chian.level=3", ["plugins.chian", "chain"]),
    ],
)
def test_config_check_asks_the_plugins(assignment: str, parts: list[str], bruit: Bruit) -> None:
    bruit("init")
    result = bruit("config", "check", "--set", assignment)
    assert result.exit_code == 2
    for part in parts:
        assert part in result.output
    assert result.output.count("\n") == 1


@pytest.mark.usefixtures("chain")
def test_config_check_passes_a_topic_with_an_installed_validator(bruit: Bruit) -> None:
    bruit("init")
    result = bruit(
        "config", "check", "--set", "topics.a.validator=chain", "--set", "plugins.chain.level=4"
    )
    assert result.exit_code == 0, result.output


def test_config_reference_is_the_page_of_documentation(bruit: Bruit) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert bruit("config", "reference").output == page


# plugins


@pytest.mark.usefixtures("chain")
def test_plugins_list_shows_hooks_and_why_one_is_not_loaded(bruit: Bruit) -> None:
    lines = bruit("plugins", "list").output.splitlines()
    assert "chain  (chain 1.2)  active: validate" in lines
    (broken,) = (line for line in lines if line.startswith("broken  (broken 1.2)  not loaded: "))
    assert "nosuchmodule" in broken


@pytest.mark.usefixtures("chain")
def test_plugins_list_as_json_has_an_object_per_plugin(bruit: Bruit) -> None:
    result = bruit("plugins", "list", "--json", "--set", "plugins.chain.level=4")
    plugins = {plugin["name"]: plugin for plugin in json.loads(result.stdout)}
    assert plugins["chain"]["hooks"] == ["validate"]
    assert plugins["chain"]["state"] == "active"
    assert plugins["broken"]["state"] == "not loaded"
