"""Where log records go: standard error, for people or for programs.

The node writes through structlog, its pure rooms through the standard library,
as py-libp2p does. Both end in the same form here. Records of other packages
are taken from WARNING upwards, and only so many, for peers can cause them.
Tracebacks show no local variables, which may hold keys.
"""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from bruit.node.config.schema import LogConfig

FOREIGN_RECORDS = 100  # of other packages per interval; guess
FOREIGN_INTERVAL = 10.0  # seconds; guess
_MULTILINE = ("event", "exception")  # may hold a traceback: its lines are kept, indented


def set_up_logging(config: LogConfig) -> None:
    """Send all records of this process to standard error. Replaces an earlier set-up.

    To be called after libp2p has been imported, which silences itself.
    """
    level = logging.getLevelNamesMapping()[config.level.upper()]
    common: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    rendering: list[Processor]
    if config.format == "json":
        rendering = [
            _in_order,
            structlog.processors.JSONRenderer(),  # escapes everything outside ASCII
        ]
    else:
        rendering = [
            _printable,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    foreign_level = max(level, logging.WARNING)
    handler.addFilter(_Foreign(foreign_level))
    logging.basicConfig(handlers=[handler], level=foreign_level, force=True)
    logging.getLogger("bruit").setLevel(level)
    libp2p = logging.getLogger("libp2p")
    libp2p.propagate = not libp2p.handlers  # it has some where LIBP2P_DEBUG asks for them


class _Foreign(logging.Filter):
    """Of other packages, lets through the first FOREIGN_RECORDS in each FOREIGN_INTERVAL.

    Checks the level again, since some modules of libp2p set their own.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level
        self._ends = 0.0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "bruit":
            return True
        if record.levelno < self._level:
            return False
        now = time.monotonic()
        if now >= self._ends:
            self._ends, self._count = now + FOREIGN_INTERVAL, 0
        self._count += 1
        if self._count == FOREIGN_RECORDS:
            record.msg, record.args = f"{record.getMessage()} (further records are left out)", ()
        return self._count <= FOREIGN_RECORDS


def _in_order(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Time, level and event first, for those who read JSON after all."""
    first = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return {**first, **event}


def _printable(_logger: object, _method: str, event: EventDict) -> MutableMapping[str, Any]:
    """No peer's text may move the cursor or pass for a record of its own."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = value.splitlines() if name in _MULTILINE else [value]
            event[name] = "\n    ".join(_escape(line) for line in lines)
    return event


def _escape(text: str) -> str:
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
