"""Does the wheel work where nothing else of the project is?

Run from the root of the project, with the tools of the lock installed:

1. build the source archive and the wheel, the wheel once from the archive and
   once from the checkout: both must hold the same bytes;
2. the wheel holds every module of the five rooms, under bruit/ and nowhere else;
3. install it, with what it declares and nothing more, in an empty environment;
   there, import all of it, run the command, and load the entry points;
4. everything that it imports is declared, not merely brought along by another.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOMS = ("node", "plugins", "scoring", "spark", "topics")
GROUP = "bruit"  # of the entry points
# Rooms that only an extra makes importable, and what it brings.
EXTRA_ROOMS = {"bruit.spark": {"pyarrow", "pyspark"}}

# Runs in the empty environment; prints one JSON object.
REPORT = """
import importlib, importlib.metadata, json, sys
modules, group = json.loads(sys.argv[1])
failed = {}
for module in modules:
    try:
        importlib.import_module(module)
    except BaseException as error:
        missing = getattr(error, "name", None) or ""
        failed[module] = [missing.partition(".")[0], f"{type(error).__name__}: {error}"]
plugins = {}
for entry in importlib.metadata.entry_points(group=group):
    try:
        plugins[entry.name] = repr(entry.load())
    except Exception as error:
        plugins[entry.name] = None
        failed[f"entry point {entry.name}"] = ["", f"{type(error).__name__}: {error}"]
json.dump({
    "failed": failed,
    "plugins": plugins,
    "version": importlib.metadata.version("bruit"),
    "requires": importlib.metadata.requires("bruit"),
    "origins": importlib.metadata.packages_distributions(),
}, sys.stdout)
"""


class WheelError(Exception):
    """The check failed; the message says at what, and what to do."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The standard output of a command; `WheelError` with all that it said if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, check=False, capture_output=True, text=True)
    if done.returncode:
        raise WheelError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(root: Path, where: Path) -> Path:
    """Build both wheels and compare them; return the one that came by the archive."""
    command = (sys.executable, "-m", "build", "--no-isolation", root)
    run(*command, "--outdir", where / "by-archive")
    run(*command, "--outdir", where / "direct", "--wheel")
    [by_archive] = (where / "by-archive").glob("*.whl")
    [direct] = (where / "direct").glob("*.whl")
    ours, theirs = contents(by_archive), contents(direct)
    if differing := sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name)):
        raise WheelError(
            f"the wheel built from the source archive differs in {', '.join(differing)}:"
            " mend [tool.hatch.build.targets] in pyproject.toml"
        )
    return by_archive


def contents(wheel: Path) -> dict[str, int]:
    """Name and checksum of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def check_names(root: Path, names: set[str]) -> None:
    strays = sorted(name for name in names if not re.match(r"bruit/|bruit-[^/]+\.dist-info/", name))
    if strays:
        raise WheelError(f"the wheel holds {', '.join(strays)}: only bruit/ may be installed")
    ours = {
        f"bruit/{path.relative_to(root).as_posix()}"
        for room in ROOMS
        for pattern in ("*.py", "*.pyi")
        for path in (root / room).rglob(pattern)
    } | {"bruit/__init__.py", "bruit/py.typed"}
    if absent := sorted(ours - names):
        raise WheelError(f"the wheel lacks {', '.join(absent)}: is the link in bruit/ in place?")


def install(root: Path, where: Path, wheel: Path) -> Path:
    """Install the wheel in an environment of its own; return that environment's bin/.

    The versions are those of the lock; which packages come is for the wheel to say.
    """
    locked = (root / "requirements.lock").read_text(encoding="utf-8")
    constraints = where / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^[a-z].*?(?= \\$)", locked, re.MULTILINE)))
    environment = where / "environment"
    python = environment / "bin" / "python"
    if uv := shutil.which("uv"):
        run(uv, "venv", "--quiet", "--python", sys.executable, environment)
        run(uv, "pip", "install", "--python", python, "--constraint", constraints, wheel)
        run(uv, "pip", "check", "--python", python)
    else:
        run(sys.executable, "-m", "venv", environment)
        pip = (python, "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "--constraint", constraints, wheel)
        run(*pip, "check")
    return environment / "bin"


def modules_of(names: set[str]) -> list[str]:
    """Dotted names of all the modules in the wheel, but those that run on import."""
    return sorted(
        ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
        for name in names
        if name.endswith(".py") and not name.endswith("__main__.py")
    )


def ask(where: Path, binaries: Path, names: set[str]) -> dict[str, Any]:
    """Import everything there is, in the empty environment, and return its report."""
    question = json.dumps([modules_of(names), GROUP])
    # -I and a working directory elsewhere: nothing is found in the checkout.
    report: dict[str, Any] = json.loads(
        run(binaries / "python", "-I", "-c", REPORT, question, cwd=where)
    )
    return report


def check_imports(report: dict[str, Any]) -> None:
    failed = [
        f"  {name}: {error}"
        for name, (missing, error) in report["failed"].items()
        if missing not in brought_by_extra(name)
    ]
    if failed:
        raise WheelError("\n".join(["the installed wheel does not import:", *failed]))
    if not report["plugins"]:
        raise WheelError(
            f"no entry point in group {GROUP!r}: see [project.entry-points] in pyproject.toml"
        )


def brought_by_extra(module: str) -> set[str]:
    """The packages that ``module`` may lack in an environment without extras."""
    return EXTRA_ROOMS.get(".".join(module.split(".")[:2]), set())


def check_declared(wheel: Path, report: dict[str, Any]) -> None:
    declared = {
        normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        for requirement in report["requires"]
        if "extra ==" not in requirement
    }
    undeclared = []
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".py"):
                continue
            module = name.removesuffix(".py").replace("/", ".")
            for package in third_parties(archive.read(name)) - brought_by_extra(module):
                origins = {normal(origin) for origin in report["origins"].get(package, [])}
                if not origins & declared:
                    undeclared.append(f"  {name} imports {package}, of {sorted(origins)}")
    if undeclared:
        heading = "imported, but not in dependencies of pyproject.toml:"
        raise WheelError("\n".join([heading, *undeclared]))


def third_parties(source: bytes) -> set[str]:
    """Top-level names of the packages that ``source`` imports from elsewhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"bruit"}


def normal(distribution: str) -> str:
    """A distribution's name as it is compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def check(root: Path, where: Path) -> None:
    wheel = build(root, where)
    names = set(contents(wheel))
    check_names(root, names)
    print(f"{wheel.name}: {len(names)} files, the same from the archive and from the checkout")

    binaries = install(root, where, wheel)
    report = ask(where, binaries, names)
    check_imports(report)
    imported = len(modules_of(names)) - len(report["failed"])
    print(f"imported in an empty environment: {imported} modules")
    for name, (missing, _) in report["failed"].items():
        print(f"  not {name}: {missing} comes with an extra")
    check_declared(wheel, report)

    said = run(binaries / "bruit", "--version", cwd=where).strip()
    if report["version"] not in said:
        raise WheelError(f"bruit --version says {said!r}; the wheel is version {report['version']}")
    print(said)
    for name, loaded in report["plugins"].items():
        print(f"plugin {name}: {loaded}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bruit-wheel-") as folder:
        os.environ["TMPDIR"] = folder  # what the build tools leave behind goes with the rest
        try:
            check(Path.cwd(), Path(folder))
        except WheelError as error:
            print(f"wheel-check: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
