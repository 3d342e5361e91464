"""The way of a topic's messages through its plugins: codec and validator.

    publish:  data ── check ──▶ encode ──▶ wire
    receive:  wire ── judge: post_process, then validate ──▶ verdict and data

A plugin that fails closes its topic: what arrives is ignored, since nobody
judged it and no peer is to blame, and publishing fails with PluginError. The
topic opens again with the next success, unless the plugin is switched off by
then (`bruit.plugins.containment`).
"""

from typing import Any

import msgspec

from bruit.plugins.containment import ContainedHook, message_of, printable
from bruit.topics.errors import LocalError, PluginError, RemoteError
from bruit.topics.validation import ACCEPTED, Fact, Validation, Verdict, ignore, reject


class TopicPipeline:
    """Codec and validator of one topic, either of which may be missing.

    Safe in a worker thread, for one call at a time; pipelines of different
    topics may run in parallel even where they share a plugin.
    """

    def __init__(
        self,
        topic: str,
        max_size: int,
        pre_process: ContainedHook[bytes] | None = None,
        post_process: ContainedHook[bytes] | None = None,
        validate: ContainedHook[Validation] | None = None,
    ) -> None:
        """Made by `PluginRegistry.topic_pipeline`. ``max_size``: bytes of data before encoding."""
        self._topic = topic
        self._max_size = max_size
        self._pre_process = pre_process
        self._post_process = post_process
        self._validate = validate

    def encode(self, data: bytes) -> bytes:
        """What goes on the wire for ``data``; ``data`` itself where the topic has no codec.

        Raises PluginError when the codec fails, and LocalError when it says that
        ``data`` cannot be encoded or when no receiver would take so much.
        """
        if self._pre_process is None:
            return data
        if len(data) > self._max_size:
            raise LocalError(
                f"{len(data)} bytes for topic {self._topic!r}: at most {self._max_size} are allowed"
            )
        return self._pre_process(data)

    def judge(self, data: bytes) -> tuple[Validation, bytes]:
        """Verdict on what came from the wire, and the decoded data (empty unless accepted)."""
        try:
            if self._post_process is not None:
                data = self._post_process(data)
        except RemoteError as error:
            return reject(message_of(error)), b""
        except PluginError as error:
            return ignore(str(error)), b""
        validation = self.check(data)
        return validation, data if validation.verdict is Verdict.ACCEPT else b""

    def check(self, data: bytes) -> Validation:
        """Verdict on decoded data, such as an own publication before it is encoded."""
        if self._validate is None:
            return ACCEPTED
        try:
            return self._validate(data)
        except RemoteError as error:
            return reject(message_of(error))
        except PluginError as error:
            return ignore(str(error))


def checked_bytes(result: object) -> bytes:
    """``result``, or TypeError when it is anything but bytes."""
    if isinstance(result, bytes):
        return result
    raise TypeError(f"returned {type(result).__name__} where bytes are due")


def checked_validation(result: object) -> Validation:
    """``result`` with a printable reason, or TypeError when it is no well-formed Validation."""
    if not isinstance(result, Validation):
        raise TypeError(f"returned {type(result).__name__} where a Validation is due")
    match msgspec.structs.astuple(result):
        case (Verdict(), str() as text, dict() as facts, *_) if _are_facts(facts):
            reason = printable(text)
            return result if reason == text else msgspec.structs.replace(result, reason=reason)
    raise TypeError("returned a Validation with a field of a wrong type")


def _are_facts(facts: dict[Any, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(fact, Fact) for name, fact in facts.items())
