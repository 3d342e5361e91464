"""Calls into plugins, such that a plugin's fault stays the plugin's.

An `Exception` out of a hook becomes a `PluginError` that names plugin and hook,
and is counted against the plugin; so is a result of the wrong kind. The same
hook failing ``max_failures`` times in a row on the same topic switches the
plugin off, in all its hooks, for as long as its registry lives: a codec that
works does not hide a validator that never does. A hook that raises the error
its specification allows has done its work and does not fail.

What is no `Exception` passes through untouched and uncounted: KeyboardInterrupt,
SystemExit, GeneratorExit, trio.Cancelled, and panics of Rust extensions made
with PyO3. Nothing here can stop a hook that never returns.

No lock is needed. A `ContainedHook` is called by one thread at a time (the
node's promise: per topic, one call at a time), so its counters have one writer;
a plugin's total is the sum over its hooks. Should a driver break the promise, a
count may be one too low, and no worse. What the threads of several topics share
is written whole: a text that is set once, a text where the last one may win,
and a deque, whose ends are thread-safe.
"""

import logging
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from bruit.topics.errors import BruitError, PluginError

MAX_TEXT = 300  # characters kept of what a plugin says, which may quote a peer; guess
MAX_EVENTS = 1000  # kept until drained, oldest dropped first; guess
LOGGED_FRAMES = 5  # innermost frames of a logged traceback; guess

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class PluginEvent(msgspec.Struct, frozen=True):
    """A hook failed, and whether that was once too often."""

    plugin: str
    hook: str
    topic: str  # empty for hooks that serve no topic
    problem: str  # one line
    switched_off: bool  # this failure switched the plugin off


def printable(text: str) -> str:
    """``text`` as one printable line of at most MAX_TEXT characters."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def message_of(error: Exception) -> str:
    """What ``error`` says, as one line. Survives an exception that cannot be printed."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plugin's __str__ is plugin code as well
        text = "(its text cannot be had)"
    return printable(text)


def describe(error: Exception) -> str:
    """Type and message of ``error`` as one line."""
    return printable(f"{type(error).__name__}: {message_of(error)}")


class Containment:
    """What is held against one plugin."""

    def __init__(self, plugin: str, max_failures: int, events: deque[PluginEvent]) -> None:
        self.plugin = plugin
        self.max_failures = max_failures
        self.off = ""  # why it is switched off; empty while it is on
        self.last_error = ""
        self._events = events
        self._hooks: list[ContainedHook[Any]] = []

    @property
    def failures(self) -> int:
        """Failures of all hooks since the start."""
        return sum(hook.failures for hook in self._hooks)

    def add(self, hook: "ContainedHook[Any]") -> None:
        self._hooks.append(hook)

    def record(self, hook: str, topic: str, problem: str, run: int) -> None:
        """Take note of a failure, the ``run``-th in a row of its hook and topic."""
        self.last_error = f"{hook}: {problem}"
        switched_off = not self.off and run >= self.max_failures
        if switched_off:
            self.off = f"it is switched off after {run} failures in a row, the last: {problem}"
            _log.error("plugin %s is switched off after %d failures in a row", self.plugin, run)
        self._events.append(PluginEvent(self.plugin, hook, topic, problem, switched_off))


class ContainedHook(Generic[Result]):
    """One hook of one plugin, on one topic, as a plain call."""

    def __init__(
        self,
        containment: Containment,
        hook: str,
        function: Callable[..., Result],
        *,
        topic: str = "",
        allowed: type[BruitError] | tuple[type[BruitError], ...] = (),
    ) -> None:
        """``function`` calls the plugin and raises TypeError or ValueError on a wrong result.

        An ``allowed`` error is an answer: it is passed on and counts as success.
        """
        self.failures = 0
        self._run = 0  # failures since the last success
        self._containment = containment
        self._hook = hook
        self._function = function
        self._topic = topic
        self._allowed = allowed
        containment.add(self)

    def __call__(self, *arguments: object) -> Result:
        """Raises PluginError when the plugin fails or is switched off, else what is allowed."""
        if self._containment.off:
            raise PluginError(self._containment.plugin, self._hook, self._containment.off)
        try:
            result = self._function(*arguments)
        except self._allowed:
            self._run = 0
            raise
        except Exception as error:
            raise self._failed(error) from error
        self._run = 0
        return result

    def _failed(self, error: Exception) -> PluginError:
        self.failures += 1
        self._run += 1
        plugin, problem = self._containment.plugin, describe(error)
        if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th…: peers can cause it
            _log.warning(
                "plugin %s failed in %s on topic %r (%d times): %s\n%s",
                plugin,
                self._hook,
                self._topic,
                self.failures,
                problem,
                "".join(traceback.format_tb(error.__traceback__, -LOGGED_FRAMES)),
            )
        self._containment.record(self._hook, self._topic, problem, self._run)
        return PluginError(plugin, self._hook, problem)
