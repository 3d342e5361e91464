"""Topic names and the relay hierarchy (LP-6420 §2).

A topic is any short text to gossipsub. The hierarchy gives names a meaning:
``/lux/<network>/relay/<topic_type>/<identifier>``.
"""

import re

import msgspec

from bruit.topics.errors import LocalError

MAX_TOPIC_BYTES = 256  # guess: the longest name of the hierarchy is 101 bytes
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_topic(topic: str) -> str:
    """Return ``topic``, or raise LocalError when no peer would take it as a name."""
    if not topic.isprintable():  # asked first: what prints can be encoded
        raise LocalError(f"topic {topic[:40]!r}: use printable characters only")
    if not 0 < len(topic.encode()) <= MAX_TOPIC_BYTES:
        raise LocalError(f"topic {topic[:40]!r}…: a name has 1 to {MAX_TOPIC_BYTES} bytes")
    return topic


class RelayTopic(msgspec.Struct, frozen=True):
    """One name of the hierarchy: ``network`` (mainnet), ``kind`` (headers), ``identifier``."""

    network: str
    kind: str
    identifier: str

    def __post_init__(self) -> None:
        for segment in (self.network, self.kind, self.identifier):
            if not _SEGMENT.fullmatch(segment):
                raise LocalError(
                    f"topic segment {segment[:70]!r}: use 1 to 64 of letters, digits, '.', '_', '-'"
                )

    def __str__(self) -> str:
        return f"/lux/{self.network}/relay/{self.kind}/{self.identifier}"


def parse_relay_topic(topic: str) -> RelayTopic:
    """Split a name of the hierarchy. Raises LocalError when it is none."""
    parts = topic.split("/")
    if len(parts) != 6 or parts[:2] != ["", "lux"] or parts[3] != "relay":
        raise LocalError(f"{topic!r} is not of the form /lux/<network>/relay/<type>/<identifier>")
    return RelayTopic(parts[2], parts[4], parts[5])
