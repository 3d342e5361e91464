"""From file, environment and flags to one checked `NodeConfig`, and where each value came from.

A flag wins over an environment variable, that over the file, that over the
default. ``BRUIT_GOSSIP__D`` is ``gossip.d``; variables without a double
underscore are somebody else's. Topics and plugins carry names of their own
that a variable cannot spell: they come from the file or from ``--set``.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect

from bruit.node.config.schema import NodeConfig, Table
from bruit.node.config.scoring import lay_preset
from bruit.node.config.toml import (
    KeyPath,
    dotted,
    line_numbers,
    read_assignment,
    read_key,
    read_value,
    write_value,
)
from bruit.topics.errors import ConfigError

ENVIRONMENT_PREFIX = "BRUIT_"
# Sections whose keys are names that an operator chooses
NAMED_TABLES: tuple[KeyPath, ...] = (
    ("topics",),
    ("plugins",),
    ("scoring", "topics"),
    ("relay", "channels"),
)
_SHOWN = 80  # characters of a wrong value that an error repeats; guess, one line


class Override(msgspec.Struct, frozen=True):
    """One value that wins over file and environment. ``origin`` is such as "flag --listen"."""

    origin: str
    path: KeyPath
    value: object


class Loaded(msgspec.Struct, frozen=True):
    """A checked configuration.

    ``origins`` maps the dotted path of every value to "flag --set",
    "environment BRUIT_GOSSIP__D", "file bruit.toml:12" or "default";
    ``directory`` is the file's, or the working directory without a file.
    """

    config: NodeConfig
    origins: Mapping[str, str]
    directory: Path

    @property
    def key_path(self) -> Path:
        """``identity.key_file``, taken relative to ``directory``."""
        return self.directory / self.config.identity.key_file


def load_config(
    file: Path | None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
) -> Loaded:
    """Read, layer and check. Raises ConfigError naming path, value, rule and origin.

    ``environ`` is the environment to look into, none when left out.
    """
    tree: Table = {}
    origins: dict[str, str] = {}
    if file is not None:
        layer, lines = _read_file(file)
        _merge(tree, layer, origins, f"file {file}", lines)
    for name, path, value in _environment(environ or {}):
        _merge(tree, _nested(path, value), origins, f"environment {name}")
    for override in overrides:
        _merge(tree, _nested(override.path, override.value), origins, override.origin)
    lay_preset(tree, origins)
    try:
        config: NodeConfig = _convert(tree, NodeConfig, ())
        config.check()
    except ConfigError as error:
        raise located(error, origins) from None
    return Loaded(
        config,
        {path: origins.get(path, "default") for path, _ in leaves(config)},
        file.parent if file is not None else Path(),
    )


def set_override(text: str) -> Override:
    """The override of ``--set PATH=VALUE``. Raises ConfigError when ``text`` is none."""
    return Override("flag --set", *read_assignment(text))


def located(error: ConfigError, origins: Mapping[str, str]) -> ConfigError:
    """``error`` with the origin of its value, where the value has one beside the default."""
    try:
        path = dotted(read_key(re.sub(r"\[\d+\]$", "", error.path)))
    except tomllib.TOMLDecodeError:  # the path of a file, or of a flag's text
        return error
    origin = origins.get(path, "default")
    problem = str(error).removeprefix(f"{error.path}: ")
    return error if origin == "default" else ConfigError(error.path, f"{problem} ({origin})")


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[str, object]]:
    """Every setting under ``value`` with its dotted path, in the order of the types."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from leaves(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping) and (path in NAMED_TABLES or path[:-1] == ("plugins",)):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    else:
        yield dotted(path), value


def _read_file(file: Path) -> tuple[Table, dict[KeyPath, int]]:
    try:
        text = file.read_bytes().decode()
        return tomllib.loads(text), line_numbers(text)
    except FileNotFoundError:
        problem = "does not exist: write one with `bruit init`"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: {error.reason} at byte {error.start}"
    except tomllib.TOMLDecodeError as error:
        problem = f"is not TOML: {error}"
    raise ConfigError(str(file), problem)


def _line(lines: Mapping[KeyPath, int], path: KeyPath) -> str:
    for end in range(len(path), 0, -1):  # a value in an inline table stands on its table's line
        if number := lines.get(path[:end]):
            return f":{number}"
    return ""


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, KeyPath, object]]:
    for name, text in sorted(environ.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or "__" not in name:
            continue
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        for table in NAMED_TABLES:
            if path[: len(table)] == table:
                raise ConfigError(
                    name, f"a variable cannot name one of the {table[-1]}: use the file or --set"
                )
        yield name, path, read_value(text)


def _nested(path: KeyPath, value: object) -> Table:
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _merge(
    tree: Table,
    layer: Table,
    origins: dict[str, str],
    origin: str,
    lines: Mapping[KeyPath, int] | None = None,
    path: KeyPath = (),
) -> None:
    for name, value in layer.items():
        here = (*path, name)
        if isinstance(value, dict):
            below = tree.get(name)
            if not isinstance(below, dict):
                below = tree[name] = {}
            _merge(below, value, origins, origin, lines, here)
        else:
            tree[name] = value
        origins[dotted(here)] = origin + _line(lines or {}, here)


def _convert(value: object, kind: Any, path: KeyPath) -> Any:  # the type of `kind`
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        table = _table(value, path)
        kinds = get_type_hints(kind, include_extras=True)
        for name in table:
            if name not in kinds:
                raise ConfigError(dotted((*path, name)), _unknown(name, kinds, path))
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in table:
                raise ConfigError(
                    dotted((*path, field.name)),
                    f"has no default: set it to {describe(kinds[field.name])}",
                )
        return kind(
            **{name: _convert(item, kinds[name], (*path, name)) for name, item in table.items()}
        )
    if get_origin(kind) is dict:
        item_kind = get_args(kind)[1]
        return {
            name: _convert(item, item_kind, (*path, name))
            for name, item in _table(value, path).items()
        }
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        shown = write_value(value)
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}…"
        raise ConfigError(dotted(path), f"{shown} must be {describe(kind)}") from None


def _table(value: object, path: KeyPath) -> Table:
    if isinstance(value, dict):
        return value
    raise ConfigError(dotted(path), f"{write_value(value)[:_SHOWN]} must be a table of settings")


def _unknown(name: str, known: Iterable[str], path: KeyPath) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {dotted((*path, close[0]))}? " if close else ""
    place = f"[{dotted(path)}] has" if path else "the sections are"
    return f"there is no such setting: {hint}{place} {', '.join(known)}"


def describe(kind: Any) -> str:
    """What values a setting of this type takes, in words."""
    if get_origin(kind) is Literal:
        return _choice(get_args(kind))
    match msgspec.inspect.type_info(kind):
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number{_bounds(low, high)}"
        case msgspec.inspect.FloatType(gt=float() | int() as low, le=float() | int() as high):
            return f"a number above {low:,}, up to {high:,}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"a number{_bounds(low, high)}"
        case msgspec.inspect.StrType(min_length=least):
            return "a text that is not empty" if least else "a text"
        case msgspec.inspect.EnumType(cls=enum):
            return _choice([member.value for member in enum])
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.LiteralType(values=values)):
            return "a list of " + ", ".join(write_value(value) for value in values)
        case msgspec.inspect.VarTupleType():
            return "a list of texts"
        case msgspec.inspect.DictType():
            return "a table of numbers"
        case other:
            raise TypeError(f"a setting cannot be of type {other}")


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f", {low:,} or more" if high is None else f" from {low:,} to {high:,}"


def _choice(values: Iterable[object]) -> str:
    return "one of " + ", ".join(write_value(value) for value in values)
