"""Where log records go: standard error, for people or for programs.

The node writes through structlog, its pure rooms through the standard library,
as py-libp2p does. Both end in the same form here. Records of other packages
are taken from WARNING upwards. Tracebacks show no local variables, which may
hold keys.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from bruit.node.config.schema import LogConfig

_MULTILINE = ("event", "exception")  # may hold a traceback: its lines are kept, indented


def set_up_logging(config: LogConfig) -> None:
    """Send all records of this process to standard error. Replaces an earlier set-up."""
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
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    logging.getLogger("bruit").setLevel(level)


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
