"""The examples, run as their users run them."""

import ast
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 60  # seconds, of a run that has gone wrong


@contextmanager
def running(example: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "dev", str(EXAMPLES / example), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        killer = threading.Timer(TIMEOUT, process.kill)
        killer.start()
        try:
            yield process
        finally:
            killer.cancel()
            process.kill()


def line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode().rstrip("\n")


@pytest.mark.sockets
@pytest.mark.parametrize("topic", [[], ["/lux/test/relay/blocks/example"]])
def test_the_listener_prints_what_the_publisher_reads(topic: list[str]) -> None:
    with running("listener.py", *topic) as listener:
        address = line(listener.stdout)
        for text in ("first", "second, with ünïcödé"):
            with running("publisher.py", address, *topic) as publisher:
                output, errors = publisher.communicate(text.encode())
                assert (publisher.returncode, errors) == (0, b"")
            assert output.split() == [b"sent", b"to", b"1", b"peers"]
            assert line(listener.stdout) == text


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_needs_nothing_but_the_public_interface(example: Path) -> None:
    tree = ast.parse(example.read_text())
    modules = [
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    ]
    assert "bruit" in modules
    assert [module for module in modules if module.startswith("bruit.")] == []
