"""What reaches standard error, seen from outside: each test runs a process that logs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def written(body: str, log_format: str, level: str = "info") -> str:
    program = (
        "import logging, structlog\n"
        "from bruit.node.config.schema import LogConfig\n"
        "from bruit.node.logs import set_up_logging\n"
        f"set_up_logging(LogConfig(format={log_format!r}, level={level!r}))\n"
        f"log = structlog.get_logger()\n{body}"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == ""
    return done.stderr


def records(body: str, level: str = "info") -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(body, "json", level).splitlines()]


def test_json_is_one_object_per_line_with_time_level_and_event_first() -> None:
    (record,) = records("log.info('listening', address='/ip4/127.0.0.1/tcp/1')")
    assert list(record) == ["timestamp", "level", "event", "address"]
    assert record["timestamp"].endswith("Z")
    assert (record["level"], record["event"]) == ("info", "listening")


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
@pytest.mark.parametrize("logger", ["log", "logging.getLogger('bruit.gossip')"])
def test_records_below_the_level_are_not_written(logger: str, level: str, shown: list[str]) -> None:
    body = f"for name in 'debug', 'info', 'warning', 'error': getattr({logger}, name)('x')"
    assert [record["level"] for record in records(body, level)] == shown


def test_other_packages_are_heard_from_warning_upwards_even_at_debug() -> None:
    body = (
        "other = logging.getLogger('libp2p.host')\nother.setLevel('DEBUG')\n"
        "other.info('chatter')\nother.warning('bad')"
    )
    (record,) = records(body, "debug")
    assert (record["event"], record["logger"]) == ("bad", "libp2p.host")


def test_other_packages_cannot_flood_the_log() -> None:
    body = "for number in range(1000): logging.getLogger('libp2p').warning('bad peer %d', number)"
    shown = records(body + "\nlog.info('own')")
    assert [record["event"] for record in shown[:2]] == ["bad peer 0", "bad peer 1"]
    assert shown[-2]["event"] == "bad peer 99 (further records are left out)"
    assert shown[-1]["event"] == "own"
    assert len(shown) == 101


def test_libp2p_which_silences_itself_is_heard() -> None:
    body = (
        "logging.getLogger('libp2p').propagate = False\n"
        "set_up_logging(LogConfig(format='json'))\n"
        "logging.getLogger('libp2p.tcp').error('failed')"
    )
    (record,) = records(body)
    assert record["event"] == "failed"


@pytest.mark.parametrize("logger", ["log", "logging.getLogger('bruit')"])
@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_is_shown_without_local_variables(logger: str, log_format: str) -> None:
    body = (
        f"def use(secret):\n    1 / 0\ntry:\n    use('hun' + 'ter2')\n"
        f"except ZeroDivisionError:\n    {logger}.exception('failed')"
    )
    text = written(body, log_format)
    assert "ZeroDivisionError" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "statement",
    [
        "log.info('joined', agent=hostile)",
        "log.info(hostile)",
        "logging.getLogger('libp2p').warning('agent %s', hostile)",
        "try: raise ValueError(hostile)\nexcept ValueError: log.exception('failed')",
    ],
)
def test_a_peers_text_can_neither_move_the_cursor_nor_begin_a_record(statement: str) -> None:
    text = written(f"hostile = 'a\\n2026 forged\\x1b[2J\\r\\u202e'\n{statement}", "console")
    assert "forged" in text
    assert not any(letter in text for letter in "\x1b\r\u202e")
    assert not any(line.startswith("2026 forged") for line in text.splitlines())
