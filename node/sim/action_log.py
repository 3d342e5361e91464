"""Every action of every node, in order, one JSON object per line.

A line is ``{"time": seconds, "node": name, "action": name, …fields}`` with the
fields as `bruit.node.gossip.actions`, or the module of another machine, names
them. Bytes that are the id of a node are written as its name, other bytes as
hexadecimal, and those longer than 64 as their length and the first eight bytes
of their SHA-256, so that 1,024 zeros are ``1024:5f70bf18a0860070``. The same
seed gives the same log to the byte.
"""

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import BinaryIO

import msgspec

from bruit.topics.keys import PeerId

_WHOLE = 64  # bytes up to which a value stands whole: ids and signatures do


class ActionLog:
    """Writes lines to ``sink``, if there is one, and hashes them all the same."""

    def __init__(self, sink: BinaryIO | None = None) -> None:
        self._sink = sink
        self._hash = hashlib.sha256()
        self._encoder = msgspec.json.Encoder()

    def write(
        self, now: float, node: str, action: msgspec.Struct, names: Mapping[PeerId, str]
    ) -> None:
        line: dict[str, object] = {"time": now, "node": node, "action": type(action).__name__}
        for field in action.__struct_fields__:
            line[field] = _plain(getattr(action, field), names)
        encoded = self._encoder.encode(line) + b"\n"
        self._hash.update(encoded)
        if self._sink is not None:
            self._sink.write(encoded)

    def digest(self) -> str:
        """SHA-256 of everything written so far, in hexadecimal: equal logs, equal digests."""
        return self._hash.hexdigest()


def _plain(value: object, names: Mapping[PeerId, str]) -> object:
    match value:
        case bytes():
            return names.get(value) or _short(value)
        case tuple() | list():
            return [_plain(each, names) for each in value]
        case dict():
            return {str(_plain(key, names)): _plain(each, names) for key, each in value.items()}
        case msgspec.Struct():
            return {
                field: _plain(getattr(value, field), names) for field in value.__struct_fields__
            }
        case Enum():
            return value.name
        case _:
            return value


def _short(value: bytes) -> str:
    if len(value) <= _WHOLE:
        return value.hex()
    return f"{len(value)}:{hashlib.sha256(value).hexdigest()[:16]}"
