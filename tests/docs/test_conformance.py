"""tools/conformance.py: rows that name no test are found, and the page follows the rows."""

from pathlib import Path

import pytest

from tools.conformance import main

TABLE = """\
repository = "somebody/router"
version = "v1.2.3"
commit = "0123456789abcdef"

[[files]]
path = "router_test.go"
listed = 3
"""
GOOD = """\
[[files.rows]]
name = "TestMesh"
tests = ["tests/test_mesh.py::test_a_mesh_has_a_degree", "tests/test_mesh.py::test_waiting[2]"]

[[files.rows]]
name = "TestOrder"
tests = ["tests/test_mesh.py::test_a_mesh_has_a_degree"]
not_applicable = "our order is another: a | b"

[[files.rows]]
name = "TestRelay"
not_applicable = "there are no relays"
"""
OUR_TESTS = """\
def test_a_mesh_has_a_degree() -> None: ...
async def test_waiting() -> None: ...
def not_a_test() -> None:
    def test_inside() -> None: ...
"""


class Project:
    def __init__(self, root: Path) -> None:
        self.table = root / "tests/conformance/somebody.toml"
        self.page = root / "docs/conformance.md"
        for folder in (self.table.parent, self.page.parent):
            folder.mkdir(parents=True)
        self.table.write_text(TABLE + GOOD)
        (root / "tests/test_mesh.py").write_text(OUR_TESTS)

    def add(self, row: str) -> None:
        self.table.write_text(self.table.read_text() + f"\n[[files.rows]]\n{row}\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def test_the_page_lists_every_row_with_its_tests_and_reasons(project: Project) -> None:
    assert main([]) == 0
    page = project.page.read_text()
    assert "| somebody/router | v1.2.3 (0123456) | 3 | 1 | 1 | 1 |" in page
    first, second = "`test_mesh.py::test_a_mesh_has_a_degree`", "`test_mesh.py::test_waiting[2]`"
    for row in (
        f"| `TestMesh` | {first}<br>{second} |  |",
        f"| `TestOrder` | {first} | our order is another: a \\| b |",
        "| `TestRelay` |  | there are no relays |",
    ):
        assert row in page.splitlines()


def test_a_page_that_is_up_to_date_passes_and_another_does_not(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 1  # there is none yet
    main([])
    assert main(["--check"]) == 0
    project.page.write_text(project.page.read_text().replace("TestMesh", "TestMash"))
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == (
        "docs/conformance.md: not what tests/conformance gives: run python tools/conformance.py\n"
    )
    assert "TestMash" in project.page.read_text()  # --check writes nothing


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ('name = "T"', "T: name tests, or say in not_applicable why there are none"),
        ('name = "T"\ntests = []', "T: name tests, or say in not_applicable why there are none"),
        ('name = "T"\nnot_applicable = " "', "T: not_applicable without a reason"),
        (
            'name = "T"\ntests = ["tests/test_mesh.py::test_waiting"]\nnot_applicable = ""',
            "T: not_applicable without a reason",
        ),
        *(
            (f'name = "T"\ntests = ["{test}"]', f"T: there is no test {test}")
            for test in (
                "tests/test_mesh.py::test_a_mesh_has_no_degree",
                "tests/test_mesh.py::test_inside",
                "tests/test_mesh.py::not_a_test",
                "tests/test_mesh.py",
                "tests/test_nowhere.py::test_waiting",
            )
        ),
        ('name = "TestMesh"\nnot_applicable = "x"', "TestMesh: listed twice"),
    ],
)
def test_a_row_that_proves_nothing_is_named(
    project: Project, capsys: pytest.CaptureFixture[str], row: str, finding: str
) -> None:
    project.table.write_text(project.table.read_text().replace("listed = 3", "listed = 4"))
    project.add(row)
    for arguments in (["--check"], []):
        assert main(arguments) == 1
        place = "tests/conformance/somebody.toml: router_test.go: "
        assert capsys.readouterr().out == f"{place}{finding}\n"
    assert not project.page.exists()


@pytest.mark.parametrize("listed", [2, 4])
def test_a_file_of_more_or_fewer_tests_than_rows_is_named(
    project: Project, capsys: pytest.CaptureFixture[str], listed: int
) -> None:
    project.table.write_text(project.table.read_text().replace("listed = 3", f"listed = {listed}"))
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == (
        "tests/conformance/somebody.toml: router_test.go: "
        f"3 rows for {listed} tests: every test has one row\n"
    )


@pytest.mark.parametrize(
    "row", ['name = "T"\ntest = ["a"]', "tests = []", 'name = "T"\ntests = "a"', "name = "]
)
def test_a_table_of_another_form_is_refused_with_its_name(
    project: Project, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    project.add(row)
    assert main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("tests/conformance/somebody.toml: ")
