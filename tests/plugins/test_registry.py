"""Finding, configuring and building plugins, with real packages on the import path."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.registry import PluginRegistry, PluginStatus
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.validation import ACCEPTED, Validation

GOOD = """
import msgspec
from bruit.plugins.hookspecs import hookimpl
from bruit.topics.validation import ACCEPTED

class Config(msgspec.Struct, frozen=True):
    depth: int = 7

class Plugin:
    Config = Config

    def __init__(self, config):
        self.config = config

    @hookimpl
    def validate(self, topic, data):
        return ACCEPTED
"""


class Site:
    """A folder on the import path that packages are installed into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def install(
        self,
        package: str,
        entry_points: dict[str, str],
        *,
        source: str = GOOD,
        version: str = "1.2.3",
        metadata: bool = True,
    ) -> None:
        """Write module ``<package>_module`` and the package's dist-info."""
        module = f"{package}_module"
        self.modules.append(module)
        (self.folder / f"{module}.py").write_text(source)
        lines = [f"{name} = {module}:{attribute}" for name, attribute in entry_points.items()]
        self.describe(package, "\n".join(["[bruit]", *lines, ""]), version, metadata)

    def describe(
        self, package: str, entry_points: str, version: str = "1.2.3", metadata: bool = True
    ) -> None:
        info = self.folder / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(entry_points)
        if metadata:
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
            )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    yield site
    for module in site.modules:
        sys.modules.pop(module, None)


def status(registry: PluginRegistry, name: str) -> PluginStatus:
    [found] = [status for status in registry.statuses() if status.name == name]
    return found


# Finding


def test_an_installed_plugin_is_listed_with_its_package_version_and_hooks(site: Site) -> None:
    site.install("goodchain", {"good": "Plugin"})
    assert status(PluginRegistry.discover(), "good") == PluginStatus(
        "good", "goodchain", "1.2.3", ("validate",), "active", 0, ""
    )


def test_plugins_are_listed_by_name_wherever_they_come_from(site: Site) -> None:
    site.install("manychain", {"b": "Plugin", "d": "Plugin"})
    extra: dict[str, type] = {"e": Configurable, "c": Demanding, "a": Configurable}
    names = [status.name for status in PluginRegistry.discover(extra=extra).statuses()]
    assert names == sorted(names)
    assert {"a", "b", "c", "d", "e"} <= set(names)


def test_a_plugin_is_built_once_per_registry_and_anew_for_each(site: Site) -> None:
    site.install(
        "counting",
        {"good": "Plugin"},
        source=GOOD.replace("self.config = config", "built.append(self)") + "\nbuilt = []\n",
    )
    registries = [PluginRegistry.discover() for _ in range(2)]
    for registry in registries:
        for topic in ("a", "b"):
            registry.topic_pipeline(topic, validator="good", max_size=10)
    built = sys.modules["counting_module"].built
    assert len(built) == 2
    assert built[0] is not built[1]


BROKEN: dict[str, tuple[str, str]] = {
    "a module that cannot be imported": (
        "import no_such_module_anywhere",
        "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    ),
    "a syntax error": ("def Plugin(:", "SyntaxError"),
    "an exception while it is imported": ("1 / 0", "ZeroDivisionError: division by zero"),
    "a missing class": ("", "has no attribute 'Plugin'"),
    "an instance for a class": (
        GOOD.replace("class Plugin", "class Other") + "\nPlugin = 3",
        "gives int, not a class",
    ),
    "no Config": (GOOD.replace("    Config = Config", ""), "no Config"),
    "a Config that is no struct": (GOOD.replace("Config = Config", "Config = dict"), "no Config"),
    "a Config of a type that cannot be read": (
        GOOD.replace("depth: int = 7", "depth: memoryview | range | None = None"),
        "TypeError",
    ),
    "a constructor that raises": (
        GOOD.replace("self.config = config", "raise OSError('no database')"),
        "OSError: no database",
    ),
    "a constructor without parameters": (GOOD.replace("self, config", "self"), "TypeError"),
    "no hook": (GOOD.replace("@hookimpl", ""), "no hook"),
    "an unknown hook": (GOOD.replace("def validate", "def valdiate"), "valdiate"),
    "an unknown argument": (GOOD.replace("self, topic, data", "self, topic, body"), "body"),
    "a default that hides an argument": (GOOD.replace("data)", "data=b'')"), "'data' a default"),
    "a required keyword": (GOOD.replace("topic, data", "topic, data, *, strict"), "strict"),
    "a hook twice": (
        GOOD + "    @hookimpl(specname='validate')\n    def again(self, data): ...\n",
        "implemented 2 times",
    ),
    "a wrapper": (
        GOOD.replace("@hookimpl", "@hookimpl(wrapper=True)").replace("return", "return (yield) or"),
        "validate is a hook wrapper",
    ),
    "an old wrapper": (
        GOOD.replace("@hookimpl", "@hookimpl(hookwrapper=True)").replace("return", "yield"),
        "validate is a hook wrapper",
    ),
    "a coroutine": (GOOD.replace("def validate", "async def validate"), "async"),
    "a generator": (GOOD.replace("return", "yield"), "generator"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plugin_is_listed_with_the_reason_and_the_others_work(
    site: Site, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, reason = BROKEN[fault]
    site.install("badchain", {"bad": "Plugin"}, source=source)
    site.install("goodchain", {"good": "Plugin"})
    with caplog.at_level(logging.WARNING, "bruit"):
        registry = PluginRegistry.discover({"good": {"depth": 1}})
    bad = status(registry, "bad")
    assert (bad.state, bad.hooks, bad.distribution) == ("not loaded", (), "badchain")
    assert reason in bad.last_error
    assert "plugin bad is not loaded" in caplog.text
    pipeline = registry.topic_pipeline("t", validator="good", max_size=10)
    assert pipeline.judge(b"x") == (ACCEPTED, b"x")


def test_a_table_for_a_plugin_that_cannot_be_loaded_does_not_stop_the_node(site: Site) -> None:
    site.install("badchain", {"bad": "Plugin"}, source="1 / 0")
    registry = PluginRegistry.discover({"bad": {"depth": 1}})
    assert status(registry, "bad").state == "not loaded"


def test_a_malformed_entry_points_file_costs_only_its_own_package(site: Site) -> None:
    site.describe("garbled", "[bruit]\nbad\n")
    site.install("goodchain", {"good": "Plugin"})
    registry = PluginRegistry.discover()
    [garbled] = [status for status in registry.statuses() if status.distribution == "garbled"]
    assert garbled.state == "not loaded"
    assert status(registry, "good").state == "active"


def test_an_entry_points_file_that_is_no_text_costs_only_its_own_package(site: Site) -> None:
    site.describe("binary", "")
    (site.folder / "binary-1.2.3.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[bruit]")
    site.install("goodchain", {"good": "Plugin"})
    registry = PluginRegistry.discover()
    assert status(registry, "unnamed package").state == "not loaded"
    assert status(registry, "good").state == "active"


def test_a_package_without_metadata_costs_only_itself(site: Site) -> None:
    site.install("nameless", {"bad": "Plugin"}, metadata=False)
    site.install("goodchain", {"good": "Plugin"})
    registry = PluginRegistry.discover()
    assert status(registry, "unnamed package").state == "not loaded"
    assert status(registry, "good").state == "active"


def test_a_name_that_two_packages_claim_goes_to_neither(site: Site) -> None:
    site.install("first", {"good": "Plugin"})
    site.install("second", {"good": "Plugin"})
    found = status(PluginRegistry.discover(), "good")
    assert found.state == "not loaded"
    assert "first" in found.last_error
    assert "second" in found.last_error
    assert "first_module" not in sys.modules
    assert "second_module" not in sys.modules


def test_a_package_found_twice_on_the_path_is_taken_from_the_first_place(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("good_chain", {"good": "Plugin"}, version="2.0")
    behind = Site(tmp_path / "behind")
    behind.folder.mkdir()
    behind.describe("Good-Chain", "[bruit]\ngood = elsewhere:Plugin\n", version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(behind.folder)])
    found = status(PluginRegistry.discover(), "good")
    assert (found.state, found.version) == ("active", "2.0")


def test_a_class_handed_in_takes_the_place_of_an_installed_namesake(site: Site) -> None:
    site.install("badchain", {"good": "Plugin"}, source="1 / 0")
    found = status(PluginRegistry.discover(extra={"good": Configurable}), "good")
    assert (found.state, found.distribution, found.version) == ("active", "", "")


def test_entry_points_of_other_groups_are_left_alone(site: Site) -> None:
    site.describe("stranger", "[bruit.other]\nbad = stranger_module:Plugin\n")
    assert "stranger" not in [
        status.distribution for status in PluginRegistry.discover().statuses()
    ]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit"])
def test_a_request_to_stop_while_a_plugin_is_imported_is_obeyed(site: Site, error: str) -> None:
    site.install("stopping", {"bad": "Plugin"}, source=f"raise {error}")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        PluginRegistry.discover()


# Configuring


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Limits(msgspec.Struct, frozen=True):
    size: int = 1


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[int, msgspec.Meta(ge=1, le=22)] = 3
    network: Literal["main", "test"] | None = None
    colour: Colour = Colour.RED
    limits: Limits = Limits()
    ports: list[int] = []

    def __post_init__(self) -> None:
        if self.level == 13:
            raise ValueError("level 13 is unlucky: use another")


class Configurable:
    Config = Settings

    def __init__(self, config: Settings) -> None:
        self._config = config

    @hookimpl
    def validate(self) -> Validation:
        return Validation(ACCEPTED.verdict, facts={"level": self._config.level})


class Demanding(Configurable):
    class Config(msgspec.Struct):
        genesis: str
        level: int = 0


class Particular(Configurable):
    def __init__(self, config: Settings) -> None:
        raise ConfigError("plugins.particular.level", "no such device")


def discover(**configs: object) -> PluginRegistry:
    extra: dict[str, type] = {"configurable": Configurable, "demanding": Demanding}
    return PluginRegistry.discover(configs, extra=extra)


def test_a_plugin_gets_the_values_of_its_table_and_the_defaults_of_the_rest() -> None:
    for table, level in (({"level": 9}, 9), ({}, 3)):
        pipeline = discover(configurable=table).topic_pipeline(
            "t", validator="configurable", max_size=1
        )
        assert pipeline.check(b"").facts == {"level": level}


WRONG: list[tuple[str, object, str, str]] = [
    ("configurable", {"levle": 3}, ".levle", "no such setting; did you mean 'level'?"),
    ("configurable", {"level": "3"}, ".level", "Expected `int`, got `str`"),
    ("configurable", {"level": 23}, ".level", "Expected `int` <= 22"),
    ("configurable", {"level": 13}, "", "level 13 is unlucky: use another"),
    ("configurable", {"network": "tset"}, ".network", "did you mean 'test'? possible: main, test"),
    ("configurable", {"colour": "grene"}, ".colour", "did you mean 'green'? possible: red, green"),
    ("configurable", {"limits": {"size": "big"}}, ".limits.size", "Expected `int`, got `str`"),
    ("configurable", {"ports": [1, "2"]}, ".ports[1]", "Expected `int`, got `str`"),
    ("configurable", 7, "", "must be a table, not int"),
    ("demanding", {"level": 1}, ".genesis", "is missing: this setting has no default"),
]


@pytest.mark.parametrize(("name", "table", "place", "problem"), WRONG)
def test_a_wrong_setting_is_refused_by_its_place_with_what_would_be_right(
    name: str, table: object, place: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        discover(**{name: table})
    assert caught.value.path == f"plugins.{name}{place}"
    assert problem in str(caught.value)


def test_a_table_of_no_installed_plugin_is_refused_and_the_installed_ones_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'configurable'") as caught:
        discover(configurabel={})
    assert caught.value.path == "plugins.configurabel"
    assert "demanding" in str(caught.value)


def test_a_plugin_that_needs_settings_and_has_none_is_not_loaded_and_nobody_minds() -> None:
    found = status(discover(), "demanding")
    assert found.state == "not loaded"
    assert "[plugins.demanding]" in found.last_error
    assert "plugins.demanding.genesis" in found.last_error


def test_a_constructor_may_refuse_a_value_of_the_table() -> None:
    with pytest.raises(ConfigError, match="no such device"):
        PluginRegistry.discover({"particular": {}}, extra={"particular": Particular})


def test_a_constructor_that_refuses_the_defaults_is_not_loaded_and_nobody_minds() -> None:
    registry = PluginRegistry.discover(extra={"particular": Particular})
    assert status(registry, "particular").state == "not loaded"


@pytest.mark.parametrize("max_failures", [0, -1])
def test_a_plugin_must_be_allowed_at_least_one_failure(max_failures: int) -> None:
    with pytest.raises(LocalError, match="max_failures"):
        PluginRegistry.discover(max_failures=max_failures)


# Naming plugins for topics


def refusal(action: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        action()
    return caught.value.path, str(caught.value)


def test_a_topic_that_names_an_unknown_plugin_is_refused_with_those_that_would_do() -> None:
    path, text = refusal(
        lambda: discover().topic_pipeline("/a/b", validator="configurabl", max_size=1)
    )
    assert path == 'topics."/a/b".validator'
    assert "did you mean 'configurable'?" in text
    assert "demanding" not in text  # it is not loaded


def test_a_topic_that_names_a_plugin_without_the_hooks_is_refused() -> None:
    path, text = refusal(lambda: discover().topic_pipeline("t", codec="configurable", max_size=1))
    assert path == 'topics."t".codec'
    assert "no pre_process and no post_process" in text


def test_a_topic_that_names_a_plugin_that_is_not_loaded_is_refused_with_the_reason() -> None:
    path, text = refusal(lambda: discover().topic_pipeline("t", validator="demanding", max_size=1))
    assert path == 'topics."t".validator'
    assert "[plugins.demanding]" in text


def test_a_selector_that_cannot_be_had_is_refused_at_the_path_that_named_it() -> None:
    path, text = refusal(lambda: discover().selector("configurable", "relay.selector"))
    assert path == "relay.selector"
    assert "no select_cluster" in text
