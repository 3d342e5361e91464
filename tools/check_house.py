"""The rules of the house, read from the source.

Run from the root of the project; every finding is one line,
``path:line: what, and what to do``, and any finding is a failure.

- Imports run one way between the rooms (`MAY_IMPORT`).
- Pure rooms know no clock, no socket, no task and no chance but the
  `random.Random` they are handed, and no loop in them takes its order from a set.
- A file stays under `MAX_LINES` and is named after its subject.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MAX_LINES = 600
NAMES_OF_NO_SUBJECT = {"base.py", "helpers.py", "utils.py"}
OUTSIDE = {"bench", "examples", "tests", "tools"}  # not in the wheel

MACHINES = {"node/gossip", "node/members", "node/relay", "node/remp"}
BELOW_MACHINES = {"topics", "scoring", "plugins"}
BELOW_DRIVERS = BELOW_MACHINES | MACHINES

# Room -> the rooms that it may import (itself not repeated), or single modules by full name.
MAY_IMPORT: dict[str, set[str]] = {
    "topics": set(),
    "scoring": {"topics"},
    "plugins": {"topics", "scoring"},
    **dict.fromkeys(MACHINES, BELOW_DRIVERS),
    "node/net": BELOW_DRIVERS,
    "node/sim": BELOW_DRIVERS,
    "node": BELOW_DRIVERS | {"node/net", "node/sim", "bruit"},
    "bruit": BELOW_DRIVERS | {"node/net", "node/sim", "node"},
    "spark": {"bruit.scoring.history"},  # the schema of the exported rows, and no more
}
TOP_ROOMS = {room.partition("/")[0] for room in MAY_IMPORT} - {"bruit"}

PURE = BELOW_MACHINES | MACHINES
IMPURE_MODULES = {
    "anyio",
    "asyncio",
    "concurrent",
    "libp2p",
    "multiprocessing",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "trio",
}
CLOCK_METHODS = {"now", "today", "utcnow"}  # of datetime.datetime and datetime.date
OS_RANDOMNESS = {"getrandom", "urandom"}
ORDER_FREE = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}


class Finding(NamedTuple):
    path: str  # from the root, with slashes
    line: int  # 1-based
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check(root: Path) -> list[Finding]:
    """Every finding under ``root``, in the order of paths and lines."""
    findings: list[Finding] = []
    for path in python_files(root):
        name = path.relative_to(root).as_posix()
        if name.endswith("_pb2.py"):
            continue
        text = path.read_text(encoding="utf-8")
        findings += check_shape(name, text)
        try:
            tree = ast.parse(text, name)
        except SyntaxError as error:
            findings.append(Finding(name, error.lineno or 1, f"does not parse: {error.msg}"))
            continue
        findings += check_imports(name, tree)
        if room_of_path(name) in PURE:
            findings += check_purity(name, tree)
    return sorted(findings)


def python_files(root: Path) -> Iterator[Path]:
    """Python files of the project; the links in bruit/ are not followed."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if not name.startswith(".") and name not in {"__pycache__", "build", "dist"}
        )
        yield from (Path(folder, file) for file in sorted(files) if file.endswith(".py"))


def check_shape(name: str, text: str) -> Iterator[Finding]:
    lines = len(text.splitlines())
    if lines > MAX_LINES:
        yield Finding(name, MAX_LINES + 1, f"{lines} lines, over {MAX_LINES}: split it by subject")
    if PurePosixPath(name).name in NAMES_OF_NO_SUBJECT:
        yield Finding(name, 1, "a name that says no subject: name the file after what it holds")


# --- rooms and imports ------------------------------------------------------------


def room_of_path(name: str) -> str:
    """The room of a file: ``node/gossip/mesh.py`` is in ``node/gossip``."""
    return room_of_parts(PurePosixPath(name).parts)


def room_of_parts(parts: tuple[str, ...]) -> str:
    """The deepest room that ``parts`` lie in, or their first part where there is none."""
    below = "/".join(parts[:2])
    return below if below in MAY_IMPORT else parts[0]


def imported(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that the file imports."""
    package = PurePosixPath(name).parts[:-1]
    if package and package[0] in TOP_ROOMS:
        package = ("bruit", *package)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def check_imports(name: str, tree: ast.AST) -> Iterator[Finding]:
    room = room_of_path(name)
    for line, target in imported(name, tree):
        top, *inner = target.split(".")
        if top in TOP_ROOMS:
            yield Finding(
                name, line, f"imports {target}: no such package is installed, write bruit.{target}"
            )
        if room not in MAY_IMPORT:
            continue
        if top in OUTSIDE:
            yield Finding(
                name, line, f"imports {target}: {top}/ is not in the wheel, move what is needed"
            )
        if top != "bruit":
            continue
        # `from bruit import Node` is the public API; `from bruit import node` a room.
        target_room = room_of_parts(tuple(inner)) if inner and inner[0] in TOP_ROOMS else "bruit"
        allowed = MAY_IMPORT[room]
        if target_room == room or target_room in allowed:
            continue
        if any("." in module and f"{target}.".startswith(f"{module}.") for module in allowed):
            continue
        yield Finding(
            name,
            line,
            f"{room} imports {target}: it may import {', '.join(sorted(allowed)) or 'no room'};"
            " move the code up, or hand in what it needs",
        )


# --- purity -----------------------------------------------------------------------


def check_purity(name: str, tree: ast.AST) -> Iterator[Finding]:
    for line, target in imported(name, tree):
        module, _, attribute = target.partition(".")
        if module in IMPURE_MODULES:
            yield Finding(
                name,
                line,
                f"a pure room imports {module}: take the time or the bytes as an argument,"
                " or emit an action for the driver",
            )
        elif problem := impure_attribute(module, attribute):
            yield Finding(name, line, problem)

    aliases = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if owner in aliases and (
                problem := impure_attribute(aliases[owner], attribute)
            ):
                yield Finding(name, node.lineno, problem)
            case ast.Attribute(value=owner, attr=method) if method in CLOCK_METHODS and last_name(
                owner
            ) in {"date", "datetime"}:
                yield Finding(
                    name, node.lineno, f"{method}() reads a clock: take `now` as an argument"
                )
            case ast.Call(func=function, args=[], keywords=[]) if last_name(function) == "Random":
                yield Finding(
                    name,
                    node.lineno,
                    "Random() seeds itself from the system: pass a seed, or take a Random",
                )
    yield from check_set_order(name, tree)


def impure_attribute(module: str, attribute: str) -> str | None:
    """What is wrong with ``module.attribute`` in a pure room, if anything."""
    if module == "random" and attribute not in {"", "Random"}:
        return f"random.{attribute} is shared or unseeded chance: use the Random handed in"
    if module == "os" and attribute in OS_RANDOMNESS:
        return f"os.{attribute} is chance from outside: use the Random handed in"
    return None


def check_set_order(name: str, tree: ast.AST) -> Iterator[Finding]:
    excused: set[ast.AST] = set()  # what they yield goes where order is lost anyway
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ORDER_FREE:
            excused.update(node.args)
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=iterated):
                sources = [iterated]
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() if node not in excused:
                sources = [generator.iter for generator in node.generators]
            case _:
                continue
        for source in sources:
            if is_set(source):
                yield Finding(
                    name,
                    source.lineno,
                    "iterates a set, whose order changes from run to run: sort it, or keep"
                    " the keys in a dict",
                )


def is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {"frozenset", "set"}
    return isinstance(node, ast.Set | ast.SetComp)


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c`` and of ``c``; nothing of other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def main() -> int:
    findings = check(Path.cwd())
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} findings; the rules stand in tools/check_house.py")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
