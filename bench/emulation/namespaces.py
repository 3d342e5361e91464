"""Network namespaces of this machine: made, entered, and removed whatever happens.

Their names hold the number of the process that made them. What such a process left
behind, because it was killed, the next one removes.
"""

import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.remote import BenchError

PREFIX = "bruit-bench-"
NAMES = Path("/run/netns")  # where ip-netns(8) keeps them
_CLONE_NEWNET = 0x40000000  # sched.h
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count()


def missing() -> str:
    """What keeps this process from making namespaces; empty where nothing does."""
    if os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/net/tun").exists():
        return "needs /dev/net/tun"
    if not any(Path(folder, "ip").exists() for folder in os.get_exec_path()):
        return "needs ip (iproute2)"
    return ""


@contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """So many new namespaces, by name. Gone after the block, with the devices in them."""
    remove_stale()
    names = [f"{PREFIX}{os.getpid()}-{next(_numbers)}" for _ in range(count)]
    made: list[str] = []
    try:
        for name in names:
            ip(["netns", "add", name])
            made.append(name)
        yield names
    finally:
        for name in made:
            with suppress(BenchError):  # the others are to go in any case
                ip(["netns", "delete", name])


def remove_stale() -> None:
    """Remove namespaces whose maker is gone."""
    for path in NAMES.glob(f"{PREFIX}*"):
        maker = path.name.removeprefix(PREFIX).partition("-")[0]
        if maker.isdigit() and not Path("/proc", maker).exists():
            ip(["netns", "delete", path.name])


@contextmanager
def inside(name: str) -> Iterator[None]:
    """The calling thread is in the namespace during the block; so is what it starts there."""
    with (
        Path("/proc/thread-self/ns/net").open("rb") as outside,
        (NAMES / name).open("rb") as namespace,
    ):
        _enter(namespace.fileno())
        try:
            yield
        finally:
            _enter(outside.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def command_inside(name: str, command: Sequence[str]) -> list[str]:
    """The command that starts ``command`` in the namespace, as the same process."""
    return ["ip", "netns", "exec", name, *command]


def ip(arguments: Sequence[str]) -> None:
    run(["ip", *arguments])


def ip_batch(name: str, lines: Sequence[str]) -> None:
    """Commands of ip(8) in a namespace."""
    run(["ip", "-n", name, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def run(command: Sequence[str], text: str = "") -> None:
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: {done.stdout.strip()}")
