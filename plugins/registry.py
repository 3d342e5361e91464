"""The plugins of one node: found, configured, built, and handed to topics by name.

Every installed plugin is loaded in containment: one that cannot be imported,
declares no configuration, implements a hook wrongly or fails to build is listed
as "not loaded" with the reason, and the others work. What an operator wrote
wrongly, on the other hand, is a ConfigError: the node must not start on it.

pluggy registers and validates each plugin. Topics name their plugins, so hooks
are never broadcast; each is taken out once and called directly, which leaves
nothing for a hook wrapper to wrap. Wrappers are therefore refused.
"""

import difflib
import importlib.metadata
import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Literal

import msgspec
import pluggy

from bruit.plugins.app_scores import AppScorer, checked_score
from bruit.plugins.containment import MAX_EVENTS, ContainedHook, Containment, PluginEvent, describe
from bruit.plugins.hookspecs import GROUP, HookSpecs, Selection
from bruit.plugins.marketplace import Marketplace
from bruit.plugins.pipeline import TopicPipeline, checked_bytes, checked_validation
from bruit.topics.errors import ConfigError, LocalError, RemoteError
from bruit.topics.keys import PeerId

MAX_FAILURES = 10  # in a row, until a plugin is switched off; guess

# Each hook and its arguments, in the order of the specification.
HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)[1:]
    for name, function in vars(HookSpecs).items()
    if not name.startswith("_")
}

HookFunction = Callable[..., object]

_log = logging.getLogger(__name__)
_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")  # where a msgspec error is
_ENTRY_POINTS = "entry_points.txt"  # packaging.python.org, "Entry points specification"


class PluginStatus(msgspec.Struct, frozen=True):
    """What became of one plugin."""

    name: str
    distribution: str  # package that installs it; empty when the program registered it
    version: str  # of the package
    hooks: tuple[str, ...]  # implemented, in the order of the specification
    state: Literal["active", "off", "not loaded"]
    failures: int  # of all hooks since the start
    last_error: str  # of a hook, or why it is not loaded; empty when all is well


class _NotLoadedError(Exception):
    """Why a plugin is not loaded, found by us."""


class _Candidate(msgspec.Struct, frozen=True):
    name: str
    load: Callable[[], object]  # gives the plugin class, or raises
    distribution: str = ""
    version: str = ""


class _Plugin(msgspec.Struct, frozen=True):
    """A plugin as the registry keeps it; without functions when it is not loaded."""

    candidate: _Candidate
    containment: Containment
    functions: dict[str, HookFunction] = {}
    problem: str = ""  # why it is not loaded

    def status(self) -> PluginStatus:
        state: Literal["active", "off", "not loaded"] = "active"
        if self.problem:
            state = "not loaded"
        elif self.containment.off:
            state = "off"
        return PluginStatus(
            self.candidate.name,
            self.candidate.distribution,
            self.candidate.version,
            tuple(self.functions),
            state,
            self.containment.failures,
            self.problem or self.containment.last_error,
        )


class PluginRegistry:
    """The plugins of one node. Build it with `discover`; one thread owns it.

    Pipelines, selectors, marketplaces and scorers taken from it may be called in other threads.
    """

    def __init__(self, plugins: Iterable[_Plugin], events: deque[PluginEvent]) -> None:
        self._plugins = {plugin.candidate.name: plugin for plugin in plugins}
        self._events = events
        self._pipelines: dict[tuple[str, str, str, int], TopicPipeline] = {}

    @classmethod
    def discover(
        cls,
        configs: Mapping[str, object] = {},
        *,
        max_failures: int = MAX_FAILURES,
        extra: Mapping[str, type] = {},
    ) -> "PluginRegistry":
        """Load and build every installed plugin, once.

        ``configs`` are the tables ``[plugins.<name>]``. ``max_failures``: in a
        row, until a plugin is switched off, ≥ 1. ``extra`` are plugin classes
        that no package installs; each takes the place of an installed namesake.

        Raises ConfigError for a table of no installed plugin, and for a field
        that the plugin does not have, lacks, or finds wrong; LocalError when
        ``max_failures`` is not positive.
        """
        if max_failures < 1:
            raise LocalError(f"max_failures {max_failures} must be ≥ 1")
        candidates = _installed() | {
            name: _Candidate(name, _giving(found)) for name, found in extra.items()
        }
        for name in configs:
            if name not in candidates:
                raise ConfigError(
                    f"plugins.{name}", f"no such plugin is installed; {_choices(name, candidates)}"
                )
        events: deque[PluginEvent] = deque(maxlen=MAX_EVENTS)
        plugins = []
        for name, candidate in sorted(candidates.items()):
            containment = Containment(name, max_failures, events)
            plugins.append(_load(candidate, configs.get(name), containment))
        return cls(plugins, events)

    def statuses(self) -> list[PluginStatus]:
        """All plugins, loaded or not, by name."""
        return [plugin.status() for plugin in self._plugins.values()]

    def drain_events(self) -> list[PluginEvent]:
        """Failures since the last call, oldest first; beyond MAX_EVENTS the oldest are lost."""
        drained = []
        while self._events:
            drained.append(self._events.popleft())
        return drained

    def topic_pipeline(
        self,
        topic: str,
        *,
        codec: str = "",
        validator: str = "",
        max_size: int,
        path: str = "",
    ) -> TopicPipeline:
        """The pipeline of ``topic``; asking again gives the same one.

        ``codec`` and ``validator`` are plugin names, empty for none; ``max_size``
        is in bytes, of data before encoding. Raises ConfigError when a name is
        unknown or its plugin is not loaded or has not the hooks; ``path`` is the
        table that it points to, by default the topic's.
        """
        path = path or f'topics."{topic}"'
        key = (topic, codec, validator, max_size)
        if key in self._pipelines:
            return self._pipelines[key]
        pre_process = post_process = validate = None
        if codec:
            plugin = self._find(codec, ("pre_process", "post_process"), f"{path}.codec", "codec")
            pre_process = ContainedHook(
                plugin.containment,
                "pre_process",
                _encoder(plugin.functions["pre_process"], topic),
                topic=topic,
                allowed=LocalError,
            )
            post_process = ContainedHook(
                plugin.containment,
                "post_process",
                _decoder(plugin.functions["post_process"], topic, max_size),
                topic=topic,
                allowed=RemoteError,
            )
        if validator:
            plugin = self._find(validator, ("validate",), f"{path}.validator", "validator")
            function = plugin.functions["validate"]
            validate = ContainedHook(
                plugin.containment,
                "validate",
                lambda data: checked_validation(function(topic, data)),
                topic=topic,
                allowed=RemoteError,
            )
        pipeline = TopicPipeline(topic, max_size, pre_process, post_process, validate)
        if codec or validator:
            self._pipelines[key] = pipeline
        return pipeline

    def selector(self, name: str, path: str) -> Callable[[Selection, Random], int]:
        """The cluster selector of plugin ``name``, for one thread at a time.

        It raises PluginError when the plugin fails, answers with a cluster that
        is no option, or is switched off. ``path`` is where the configuration
        names the plugin; the ConfigError about an unfit one points there. Take a
        selector once and keep it: each counts its own failures in a row.
        """
        plugin = self._find(name, ("select_cluster",), path, "cluster selector")
        return ContainedHook(
            plugin.containment, "select_cluster", _chooser(plugin.functions["select_cluster"])
        )

    def marketplace(self, name: str, path: str) -> Callable[[], Marketplace | None]:
        """What plugin ``name`` tells of the marketplace, for one thread at a time.

        It gives None while nothing has changed, and raises PluginError when the plugin
        fails, tells what is no marketplace, or is switched off. ``path`` as for `selector`.
        Take it once and keep it: to the plugin, every call is that of the same listener.
        """
        plugin = self._find(name, ("marketplace",), path, "marketplace")
        return ContainedHook(
            plugin.containment, "marketplace", _teller(plugin.functions["marketplace"])
        )

    def app_scorer(self, names: Sequence[str], path: str) -> AppScorer:
        """What the plugins ``names`` together think of a peer, for one thread at a time.

        ``path`` is where the configuration lists them. Raises ConfigError for one
        that is listed twice, unknown or not loaded, or has not the hook. Take a
        scorer once and keep it: each counts its own failures in a row.
        """
        hooks = []
        for index, name in enumerate(names):
            here = f"{path}[{index}]"
            if name in names[:index]:
                raise ConfigError(here, f"{name!r} stands in the list twice: keep one")
            plugin = self._find(name, ("app_score",), here, "judge of peers")
            hooks.append(
                ContainedHook(
                    plugin.containment, "app_score", _scorer(plugin.functions["app_score"])
                )
            )
        return AppScorer(hooks)

    def _find(self, name: str, hooks: Sequence[str], path: str, role: str) -> _Plugin:
        plugin = self._plugins.get(name)
        if plugin is None:
            raise ConfigError(
                path, f"no plugin {name!r} is installed; {_choices(name, self._fit(hooks))}"
            )
        if plugin.problem:
            raise ConfigError(path, f"plugin {name!r} is not loaded: {plugin.problem}")
        missing = [hook for hook in hooks if hook not in plugin.functions]
        if missing:
            raise ConfigError(
                path,
                f"plugin {name!r} is no {role}, for it has no {' and no '.join(missing)}; "
                f"{_choices(name, self._fit(hooks))}",
            )
        return plugin

    def _fit(self, hooks: Sequence[str]) -> list[str]:
        return [
            name
            for name, plugin in self._plugins.items()
            if all(hook in plugin.functions for hook in hooks)
        ]


# Finding


def _giving(found: object) -> Callable[[], object]:
    return lambda: found


def _failing(problem: str) -> Callable[[], object]:
    def fail() -> object:
        raise _NotLoadedError(problem)

    return fail


def _installed() -> dict[str, _Candidate]:
    """The entry points of the group, by name.

    `importlib.metadata.entry_points` would fail as a whole when one package's
    file is malformed. As there, the first on the path wins where a package is
    found twice.
    """
    candidates: dict[str, _Candidate] = {}
    packages: dict[str, None] = {}
    for distribution in importlib.metadata.distributions():
        for candidate in _of_package(distribution, packages):
            namesake = candidates.get(candidate.name)
            candidates[candidate.name] = _neither(namesake, candidate) if namesake else candidate
    return candidates


def _of_package(
    distribution: importlib.metadata.Distribution, packages: dict[str, None]
) -> list[_Candidate]:
    """The package's entry points of the group; notes the package in ``packages``."""
    package = version = ""
    try:
        text = distribution.read_text(_ENTRY_POINTS) or ""
        if not re.search(rf"^\s*\[\s*{GROUP}\s*\]", text, re.MULTILINE):
            return []
        package, version = distribution.metadata["Name"], distribution.metadata["Version"]
        normalized = re.sub(r"[-_.]+", "-", package).lower()  # PEP 503
        if normalized in packages:
            return []
        packages[normalized] = None
        return [
            _Candidate(entry_point.name, entry_point.load, package, version)
            for entry_point in distribution.entry_points
            if entry_point.group == GROUP
        ]
    except Exception as error:  # noqa: BLE001 - a broken package promises no type of error
        name = package or "unnamed package"
        problem = f"metadata of the package cannot be read: {describe(error)}"
        return [_Candidate(name, _failing(problem), name, version or "")]


def _neither(one: _Candidate, other: _Candidate) -> _Candidate:
    """Two packages claim a name: taking either would let one pass for the other."""
    claimants = f"{one.distribution}, {other.distribution}"
    return _Candidate(
        one.name, _failing(f"the name is claimed by {claimants}: uninstall all but one"), claimants
    )


# Loading


def _load(candidate: _Candidate, table: object, containment: Containment) -> _Plugin:
    """Build the plugin and take its hooks. Raises ConfigError, and only about a given table."""
    name = candidate.name
    try:
        plugin_class, config_class = _classes(candidate.load())
        config = _configured(name, {} if table is None else table, config_class)
        return _Plugin(candidate, containment, _hook_functions(name, plugin_class(config)))
    except ConfigError as error:
        if table is not None:
            raise
        problem = f"it needs a table [plugins.{name}] ({error})"
        _log.debug("plugin %s is not loaded: %s", name, problem)  # nobody asked for it
        return _Plugin(candidate, containment, problem=problem)
    except _NotLoadedError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - containing whatever a plugin raises is the job
        problem = describe(error)
    _log.warning("plugin %s is not loaded: %s", name, problem)
    return _Plugin(candidate, containment, problem=problem)


def _classes(found: object) -> tuple[type, type[msgspec.Struct]]:
    """The plugin class ``found`` and the class of its configuration."""
    if not isinstance(found, type):
        raise _NotLoadedError(f"the entry point gives {type(found).__name__}, not a class")
    config_class = getattr(found, "Config", None)
    if not (isinstance(config_class, type) and issubclass(config_class, msgspec.Struct)):
        raise _NotLoadedError(
            "the class has no Config: set it to the msgspec.Struct of its settings"
        )
    return found, config_class


def _configured(name: str, table: object, config_class: type[msgspec.Struct]) -> msgspec.Struct:
    path = f"plugins.{name}"
    if not isinstance(table, Mapping):
        raise ConfigError(path, f"must be a table, not {type(table).__name__}")
    fields = {field.encode_name: field for field in msgspec.structs.fields(config_class)}
    for key in table:
        if key not in fields:
            raise ConfigError(f"{path}.{key}", f"no such setting; {_choices(str(key), fields)}")
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{path}.{key}", "is missing: this setting has no default")
    try:
        return msgspec.convert(dict(table), config_class, strict=True)
    except msgspec.ValidationError as error:
        problem = str(error)
        place = ""
        if found := _PLACE.search(problem):
            problem, place = problem[: found.start()], found[1]
        key = place.removeprefix(".")
        if key in fields and (allowed := _allowed(msgspec.inspect.type_info(fields[key].type))):
            problem += f"; {_choices(str(table[key]), allowed)}"
        raise ConfigError(path + place, problem) from None


def _allowed(kind: msgspec.inspect.Type) -> list[str]:
    """The values of an enumeration or Literal; empty for any other type."""
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return [str(value) for value in values]
        case msgspec.inspect.EnumType(cls=enumeration):
            return [str(member.value) for member in enumeration]
        case msgspec.inspect.UnionType(types=kinds):
            return [value for member in kinds for value in _allowed(member)]
        case _:
            return []


def _hook_functions(name: str, plugin: object) -> dict[str, HookFunction]:
    """The plugin's hooks, each callable with exactly the arguments of its specification.

    Each plugin has a pluggy manager to itself, so that none can see or upset
    another's registration. Raises whatever is wrong with an implementation.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(HookSpecs)
    manager.register(plugin, name)
    manager.check_pending()
    functions: dict[str, HookFunction] = {}
    for hook, arguments in HOOKS.items():
        implementations = getattr(manager.hook, hook).get_hookimpls()
        if len(implementations) > 1:
            raise _NotLoadedError(f"{hook} is implemented {len(implementations)} times: keep one")
        for implementation in implementations:
            functions[hook] = _plain(implementation, hook, arguments)
    if not functions:
        raise _NotLoadedError("the class implements no hook: mark its methods with @hookimpl")
    return functions


def _plain(implementation: Any, hook: str, arguments: tuple[str, ...]) -> HookFunction:
    """``implementation`` as a function of all ``arguments``, whichever of them it takes."""
    function: HookFunction = implementation.function
    if implementation.wrapper or implementation.hookwrapper:
        raise _NotLoadedError(
            f"{hook} is a hook wrapper, which nothing here calls: write a plain method"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise _NotLoadedError(f"{hook} is async or a generator: write a plain method")
    for argument in implementation.kwargnames:
        if argument in arguments:  # pluggy would never pass it
            raise _NotLoadedError(f"{hook} gives argument {argument!r} a default: take it away")
    taken: tuple[str, ...] = implementation.argnames
    inspect.signature(function).bind(*taken)  # TypeError where it requires keywords
    if taken == arguments:
        return function
    places = [arguments.index(argument) for argument in taken]
    return lambda *values: function(*[values[place] for place in places])


# Calling


def _encoder(function: HookFunction, topic: str) -> Callable[[bytes], bytes]:
    return lambda data: checked_bytes(function(topic, data))


def _decoder(function: HookFunction, topic: str, max_size: int) -> Callable[[bytes], bytes]:
    def decode(data: bytes) -> bytes:
        decoded = checked_bytes(function(topic, data, max_size))
        if len(decoded) > max_size:
            raise ValueError(f"returned {len(decoded)} bytes where {max_size} are allowed")
        return decoded

    return decode


def _chooser(function: HookFunction) -> Callable[[Selection, Random], int]:
    def choose(selection: Selection, rng: Random) -> int:
        cluster = function(selection, rng)
        if not isinstance(cluster, int) or isinstance(cluster, bool):
            raise TypeError(f"returned {type(cluster).__name__} where a cluster id is due")
        if all(cluster != option.cluster for option in selection.options):
            raise ValueError(f"chose cluster {cluster}, which is none of the options")
        return cluster

    return choose


def _teller(function: HookFunction) -> Callable[[], Marketplace | None]:
    def tell() -> Marketplace | None:
        told = function()
        if told is None:
            return None
        if not isinstance(told, Marketplace):
            raise TypeError(f"returned {type(told).__name__} where a Marketplace or None is due")
        # A Struct that is made by hand takes values of any type; this checks all of them.
        fields = msgspec.to_builtins(told, builtin_types=(bytes,))
        return msgspec.convert(fields, Marketplace, builtin_types=(bytes,))

    return tell


def _scorer(function: HookFunction) -> Callable[[PeerId], float]:
    return lambda peer: checked_score(function(peer))


def _choices(wrong: str, allowed: Iterable[str]) -> str:
    """What would be right, the closest first, as a clause."""
    names = list(allowed)
    if not names:
        return "there are none"
    closest = difflib.get_close_matches(wrong, names, n=1)
    hint = f"did you mean {closest[0]!r}? " if closest else ""
    return f"{hint}possible: {', '.join(names)}"
