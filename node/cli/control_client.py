"""A question to the running node of a configuration, over its control socket."""

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bruit.node.control import address_of
from bruit.topics.errors import LocalError

if TYPE_CHECKING:
    from bruit.node.config import Loaded

TIMEOUT = 10.0  # seconds without a byte from the node; guess


class NoNodeError(LocalError):
    """No node answers: none is running, or it is somebody else's, or it has no socket."""


def ask(loaded: "Loaded", what: str, **arguments: object) -> Any:  # whatever JSON can say
    """The node's answer to the request ``what``. Raises LocalError when it says no.

    Raises NoNodeError when there is nobody to ask.
    """
    path = loaded.config.control.path(loaded.directory)
    if path is None:
        raise NoNodeError('the node has no control socket: control.socket is ""')
    request = json.dumps({"do": what} | arguments).encode() + b"\n"
    try:
        answer = _exchange(path, request)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoNodeError(f"no node is running: nobody answers at {path}") from None
    except TimeoutError:
        raise LocalError(f"the node at {path} did not answer within {TIMEOUT:g} s") from None
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoNodeError(f"the node at {path} cannot be asked: {reason}") from None
    if not answer.endswith(b"\n"):
        raise LocalError(f"the node at {path} hung up before it had answered")
    said = json.loads(answer)
    if "error" in said:
        raise LocalError(said["error"])
    return said["result"]


def _exchange(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(address_of(path))
        with suppress(BrokenPipeError):  # it has hung up, and may have said why
            connection.sendall(request)
        with connection.makefile("rb") as answers:
            return answers.readline()
