"""The little of TOML's grammar that the standard library reads but does not lend or write."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import Enum

from bruit.topics.errors import ConfigError

KeyPath = tuple[str, ...]

_BARE = r"[A-Za-z0-9_-]+"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'"
_SEGMENT = rf"(?:{_BARE}|{_QUOTED})"
_KEY = rf"{_SEGMENT}(?:\s*\.\s*{_SEGMENT})*"
_ASSIGNMENT = re.compile(rf"\s*({_KEY})\s*=\s*(.*)", re.DOTALL)
_HEADER = re.compile(rf"\s*\[\s*({_KEY})\s*\]")


def dotted(path: Iterable[str]) -> str:
    """``("topics", "/a", "codec")`` as ``topics."/a".codec``."""
    return ".".join(
        segment if re.fullmatch(_BARE, segment) else _quote(segment) for segment in path
    )


def write_value(value: object) -> str:
    """``value`` as TOML writes it, on one line."""
    match value:
        case Enum():
            return write_value(value.value)
        case str():
            return _quote(value)
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(write_value(item) for item in value)}]"
        case Mapping():
            pairs = (f"{dotted((key,))} = {write_value(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            return str(value)  # whole numbers, numbers, dates


def _quote(text: str) -> str:
    """A text as JSON writes it, which is TOML but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_value(text: str) -> object:
    """A TOML value, or ``text`` itself where it is none, so that words need no quotes."""
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text


def read_assignment(text: str) -> tuple[KeyPath, object]:
    """``gossip.d=8`` as path and value. Raises ConfigError when it is no assignment."""
    match = _ASSIGNMENT.fullmatch(text)
    try:
        if match is not None:
            return read_key(match[1]), read_value(match[2])
    except tomllib.TOMLDecodeError:  # an escape that TOML does not know
        pass
    raise ConfigError(text, 'is not PATH=VALUE, such as gossip.d=8 or topics."/a".codec=zstd')


def read_key(text: str) -> KeyPath:
    """Inverse of `dotted`. Raises tomllib.TOMLDecodeError when ``text`` is no key."""
    node: object = tomllib.loads(f"{text} = 0")
    path: list[str] = []
    while isinstance(node, dict):
        key, node = next(iter(node.items()))
        path.append(key)
    return tuple(path)


def line_numbers(text: str) -> dict[KeyPath, int]:
    """Where each table and key of a valid TOML document stands: path → line, counted from 1.

    Reads line by line, which suffices to tell a person where to look: a line
    inside a multi-line text may be taken for a key.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            if header := _HEADER.match(line):
                table = read_key(header[1])
                lines.setdefault(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                lines.setdefault((*table, *read_key(assignment[1])), number)
        except tomllib.TOMLDecodeError:
            continue
    return lines
