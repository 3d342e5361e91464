"""Toolchains found on the machine, and the peers built with them."""

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.interop.peer import OURS

SOURCES = Path(__file__).parent
BUILT_STAMP = ".built"  # file in a build folder: what it was built from
BUILD_TIMEOUT = 1800  # seconds; rust takes minutes on a small machine


class Recipe(msgspec.Struct, frozen=True):
    """How a peer is built in a copy of its sources, and started from there."""

    tools: tuple[str, ...]  # executables that must be there
    build: tuple[str, ...]
    start: tuple[str, ...]  # {folder}: where it was built


RECIPES: dict[str, Recipe] = {
    "go": Recipe(("go",), ("go", "build", "-trimpath", "-o", "peer", "."), ("{folder}/peer",)),
    "js": Recipe(
        ("node", "npm"),
        ("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),
        ("node", "{folder}/peer.mjs"),
    ),
    "rust": Recipe(
        ("cargo",), ("cargo", "build", "--release", "--quiet"), ("{folder}/target/release/peer",)
    ),
}


class Built(msgspec.Struct, frozen=True):
    """A peer that can be started."""

    command: tuple[str, ...]
    seconds: float  # that building it took


class LeftOut(msgspec.Struct, frozen=True):
    """A peer that cannot be built for want of a toolchain."""

    reason: str


class BuildError(Exception):
    """The toolchain is there, and yet the peer was not built."""


def our_command() -> tuple[str, ...]:
    return (sys.executable, "-m", f"tests.interop.{OURS}")


def prepare(
    kind: str,
    builds: Path,
    recipes: Mapping[str, Recipe] = RECIPES,
    find: Callable[[str], str | None] = shutil.which,
) -> Built | LeftOut:
    """Build a peer under ``builds``, unless that was done before from the same sources.

    ``find`` tells where an executable is. Raises BuildError.
    """
    recipe = recipes[kind]
    missing = [tool for tool in recipe.tools if find(tool) is None]
    if missing:
        return LeftOut(f"{' and '.join(missing)} not found")
    sources, folder = SOURCES / kind, builds / kind
    command = tuple(part.format(folder=folder) for part in recipe.start)
    stamp, digest = folder / BUILT_STAMP, _digest(sources, recipe.build)
    if stamp.is_file() and stamp.read_text() == digest:
        return Built(command, 0.0)
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    start = time.monotonic()
    _run(kind, recipe.build, folder)
    stamp.write_text(digest)
    return Built(command, time.monotonic() - start)


def _digest(sources: Path, build: Sequence[str]) -> str:
    digest = hashlib.sha256(repr(build).encode())
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(sources)} {content}\n".encode())
    return digest.hexdigest()


def _run(kind: str, build: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            build,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{kind}: {' '.join(build)} took over {BUILD_TIMEOUT} s") from None
    if done.returncode:
        output = done.stdout.decode(errors="replace")
        raise BuildError(f"{kind}: {' '.join(build)} failed in {folder}:\n{output}")
