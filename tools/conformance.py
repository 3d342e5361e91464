"""The table of conformance: every test of other implementations, and the tests here for it.

`tests/conformance/<reference>.toml` lists the tests of one implementation, file
by file. This writes docs/conformance.md from them; with ``--check`` it says what
is wrong with a row, or that the page is not the one these files give. Run from
the root of the project.

A row names tests that check the same, or says why there can be none, or both
where a difference is meant and the tests show what happens here instead.
"""

import ast
import sys
import tomllib
from functools import cache
from pathlib import Path

import msgspec

ROWS = Path("tests/conformance")
PAGE = Path("docs/conformance.md")
COMMAND = "python tools/conformance.py"

HEAD = f"""\
# Conformance

<!-- Written by `{COMMAND}` from tests/conformance/*.toml: change those. -->

What the tests of other gossipsub implementations ask, and the tests here that ask the same with
the same numbers. A row that names tests and says nothing else passes as it does there: its tests
are part of `make test`, which is green. A row with a reason does not apply, or differs by choice;
where it names tests too, they show what happens here instead.

| reference | version | tests listed | the same here | differ by choice | do not apply |
|---|---|---|---|---|---|
"""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One test of a reference."""

    name: str
    tests: tuple[str, ...] = ()  # path::function, from the root of the project
    not_applicable: str | None = None  # why it is not the same here; None where it is


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str  # in the reference's repository
    listed: int  # tests that it has
    rows: tuple[Row, ...] = ()


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repository: str  # owner/name on GitHub
    version: str
    commit: str
    files: tuple[File, ...]


def read(root: Path) -> dict[str, Reference]:
    """The references by the name of their file. Raises ValueError, naming it, for another form."""
    references = {}
    for path in sorted((root / ROWS).glob("*.toml")):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            references[path.name] = msgspec.convert(table, Reference)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{(ROWS / path.name).as_posix()}: {error}") from None
    return references


def findings(root: Path, references: dict[str, Reference]) -> list[str]:
    """What is wrong with the rows, one line for each."""
    return [
        f"{(ROWS / name).as_posix()}: {file.path}: {finding}"
        for name, reference in references.items()
        for file in reference.files
        for finding in findings_of_file(root, file)
    ]


def findings_of_file(root: Path, file: File) -> list[str]:
    found = []
    if len(file.rows) != file.listed:
        found.append(f"{len(file.rows)} rows for {file.listed} tests: every test has one row")
    seen: dict[str, None] = {}
    for row in file.rows:
        if row.name in seen:
            found.append(f"{row.name}: listed twice")
        seen[row.name] = None
        if row.not_applicable is None and not row.tests:
            found.append(f"{row.name}: name tests, or say in not_applicable why there are none")
        elif row.not_applicable is not None and not row.not_applicable.strip():
            found.append(f"{row.name}: not_applicable without a reason")
        for test in row.tests:
            path, _, function = test.partition("::")
            if function.partition("[")[0] not in functions_of(root / path):
                found.append(f"{row.name}: there is no test {test}")
    return found


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The test functions of a file; none where there is no file."""
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def page(references: dict[str, Reference]) -> str:
    lines = [HEAD.rstrip(), *map(totals, references.values())]
    for reference in references.values():
        lines += ["", f"## {reference.repository}"]
        for file in reference.files:
            lines += ["", f"### {file.path}", "", "| test | here | not the same, because |"]
            lines += ["|---|---|---|", *map(line_of_row, file.rows)]
    return "\n".join(lines) + "\n"


def totals(reference: Reference) -> str:
    rows = [row for file in reference.files for row in file.rows]
    listed = sum(file.listed for file in reference.files)
    same = sum(row.not_applicable is None for row in rows)
    differ = sum(row.not_applicable is not None and bool(row.tests) for row in rows)
    return (
        f"| {reference.repository} | {reference.version} ({reference.commit[:7]}) | {listed}"
        f" | {same} | {differ} | {len(rows) - same - differ} |"
    )


def line_of_row(row: Row) -> str:
    tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in row.tests)
    reason = (row.not_applicable or "").replace("|", "\\|")
    return f"| `{row.name}` | {tests} | {reason} |"


def main(arguments: list[str]) -> int:
    root = Path.cwd()
    try:
        references = read(root)
        found = findings(root, references)
    except ValueError as error:
        found = [str(error)]
    if not found:
        text = page(references)
        if "--check" not in arguments:
            (root / PAGE).write_text(text, encoding="utf-8")
        elif not (root / PAGE).is_file() or (root / PAGE).read_text(encoding="utf-8") != text:
            found = [f"{PAGE.as_posix()}: not what tests/conformance gives: run {COMMAND}"]
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
