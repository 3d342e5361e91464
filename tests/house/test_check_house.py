"""The checks of tools/check_house.py, each against a small tree that breaks one rule."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.check_house import MAX_LINES, check

Findings = Callable[[str, str], list[str]]


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    """Check a project whose only file is ``name``, and say what was found."""

    def check_one_file(name: str, source: str) -> list[str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(source, encoding="utf-8")
        return [str(finding) for finding in check(tmp_path)]

    return check_one_file


# --- imports between the rooms ----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("topics/keys.py", "import bruit.topics.errors\n"),
        ("scoring/p1.py", "from bruit.topics.keys import PeerId\n"),
        ("plugins/zstd.py", "from bruit.topics.errors import RemoteError\n"),
        ("node/gossip/mesh.py", "from bruit.scoring import thresholds\n"),
        ("node/relay/sender.py", "from bruit.node.gossip.events import Timer\n"),
        ("node/net/driver.py", "import trio\nfrom bruit.node.gossip import mesh\n"),
        ("node/sim/world.py", "from bruit.node import gossip\n"),
        ("node/cli.py", "import time\nfrom bruit import __version__\nimport bruit.node.net.host\n"),
        ("spark/decay.py", "from bruit.scoring.history import Row\n"),
        ("bruit/__init__.py", "from bruit.node.api import Node\n"),
        ("tests/topics/test_keys.py", "import time\nfrom bruit.node.net import driver\n"),
    ],
)
def test_an_import_that_runs_downwards_is_fine(findings: Findings, name: str, source: str) -> None:
    assert findings(name, source) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("topics/keys.py", "import bruit.scoring.thresholds\n"),
        ("scoring/p1.py", "from bruit.plugins import hookspecs\n"),
        ("plugins/zstd.py", "from bruit.node.config import Config\n"),
        ("node/gossip/mesh.py", "from bruit.node.net.driver import run\n"),
        ("node/gossip/mesh.py", "from ..sim import world\n"),
        ("node/gossip/mesh.py", "from bruit.node import config\n"),
        ("node/gossip/mesh.py", "from bruit import Node\n"),
        ("node/gossip/mesh.py", "from bruit import spark\n"),
        ("node/sim/world.py", "import bruit.node.net.driver\n"),
        ("node/net/driver.py", "from bruit.node.cli import main\n"),
        ("node/cli.py", "from bruit.spark import decay\n"),
        ("spark/decay.py", "from bruit.scoring import thresholds\n"),
        ("spark/decay.py", "def late():\n    from bruit.node import config\n"),
    ],
)
def test_an_import_that_runs_upwards_is_found(findings: Findings, name: str, source: str) -> None:
    [finding] = findings(name, source)

    line = len(source.splitlines())
    assert finding.startswith(f"{name}:{line}: ")
    assert "it may import" in finding


@pytest.mark.parametrize("name", ["node/cli.py", "tests/test_cli.py", "examples/chat.py"])
def test_a_room_imported_without_bruit_is_found_because_the_wheel_has_no_such_package(
    findings: Findings, name: str
) -> None:
    [finding] = findings(name, "from topics.keys import PeerId\n")

    assert finding.startswith(f"{name}:1: imports topics.keys.PeerId: no such package")


def test_the_package_must_not_import_what_the_wheel_leaves_out(findings: Findings) -> None:
    assert findings("node/cli.py", "from tests.blocks import BLOCK\n") == [
        "node/cli.py:1: imports tests.blocks.BLOCK: tests/ is not in the wheel, move what is needed"
    ]


# --- purity -----------------------------------------------------------------------


PURE_ROOMS = [
    "topics",
    "scoring",
    "plugins",
    "node/gossip",
    "node/members",
    "node/relay",
    "node/remp",
]


@pytest.mark.parametrize("room", PURE_ROOMS)
@pytest.mark.parametrize(
    "source",
    [
        "import trio\n",
        "import time as clock\n",
        "from libp2p.peer.id import ID\n",
        "import os, socket\n",
        "import concurrent.futures\n",
        "def late():\n    import threading\n",
    ],
)
def test_a_pure_room_importing_the_outside_is_found(
    findings: Findings, room: str, source: str
) -> None:
    [finding] = findings(f"{room}/deep/machine.py", source)

    assert "a pure room imports" in finding


@pytest.mark.parametrize(
    "source",
    [
        "import random\nx = random.random()\n",
        "import random as chance\nx = chance.shuffle\n",
        "from random import choice\n",
        "from random import SystemRandom\n",
        "from random import Random\nx = Random()\n",
        "import os\nx = os.urandom(32)\n",
    ],
)
def test_a_pure_room_rolling_its_own_dice_is_found(findings: Findings, source: str) -> None:
    [finding] = findings("node/gossip/mesh.py", source)

    assert finding.startswith(f"node/gossip/mesh.py:{len(source.splitlines())}: ")


def test_a_pure_room_may_use_a_generator_that_it_is_handed_or_seeds(findings: Findings) -> None:
    source = (
        "import random\n"
        "def fork(rng: random.Random) -> random.Random:\n"
        "    return random.Random(rng.random())\n"
    )

    assert findings("node/gossip/mesh.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime, UTC\nx = datetime.now(UTC)\n",
        "import datetime\nx = datetime.datetime.utcnow()\n",
        "import datetime\nx = datetime.date.today()\n",
    ],
)
def test_a_pure_room_reading_the_date_is_found(findings: Findings, source: str) -> None:
    [finding] = findings("scoring/p1.py", source)

    assert finding.startswith("scoring/p1.py:2: ")
    assert "reads a clock" in finding


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}:\n    print(x)\n",
        "for x in set(y):\n    print(x)\n",
        "z = [x for x in frozenset(y)]\n",
        "z = {x: 0 for x in {w for w in y}}\n",
        "z = list(x for x in set(y))\n",
    ],
)
def test_a_loop_over_a_set_is_found_in_a_pure_room(findings: Findings, source: str) -> None:
    [finding] = findings("node/gossip/mesh.py", source)

    assert finding.startswith("node/gossip/mesh.py:1: iterates a set")


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({2, 1}):\n    print(x)\n",
        "z = sorted(x + 1 for x in set(y))\n",
        "z = any(x > 1 for x in {1, 2})\n",
        "z = {x + 1 for x in set(y)}\n",
        "for x in dict.fromkeys(y):\n    print(x)\n",
    ],
)
def test_a_set_whose_order_cannot_show_is_fine(findings: Findings, source: str) -> None:
    assert findings("node/gossip/mesh.py", source) == []


def test_the_driver_may_read_clocks_and_loop_over_sets(findings: Findings) -> None:
    source = "import time\nimport random\nfor x in {random.random(), time.time()}:\n    print(x)\n"

    assert findings("node/net/driver.py", source) == []


# --- files ------------------------------------------------------------------------


def test_a_file_of_the_greatest_length_is_fine(findings: Findings) -> None:
    assert findings("node/config.py", "x = 0\n" * MAX_LINES) == []


def test_a_file_one_line_too_long_is_found(findings: Findings) -> None:
    assert findings("node/config.py", "x = 0\n" * (MAX_LINES + 1)) == [
        "node/config.py:601: 601 lines, over 600: split it by subject"
    ]


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "base.py"])
def test_a_file_named_after_no_subject_is_found(findings: Findings, name: str) -> None:
    [finding] = findings(f"tests/{name}", "")

    assert finding.startswith(f"tests/{name}:1: a name that says no subject")


def test_a_file_that_does_not_parse_is_found(findings: Findings) -> None:
    [finding] = findings("topics/keys.py", "x = 0\ndef\n")

    assert finding.startswith("topics/keys.py:2: does not parse")


def test_generated_code_answers_to_no_rule(findings: Findings) -> None:
    assert findings("topics/message_pb2.py", "import time\n" * (MAX_LINES + 1)) == []


def test_the_links_of_the_package_are_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "clock.py").write_text("import time\n", encoding="utf-8")
    (tmp_path / "bruit").mkdir()
    (tmp_path / "bruit" / "topics").symlink_to("../topics")

    assert [finding.path for finding in check(tmp_path)] == ["topics/clock.py"]


def test_findings_come_in_the_order_of_paths_and_lines(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "b.py").write_text("import trio\nimport time\n", encoding="utf-8")
    (tmp_path / "topics" / "a.py").write_text("import socket\n", encoding="utf-8")

    assert [(finding.path, finding.line) for finding in check(tmp_path)] == [
        ("topics/a.py", 1),
        ("topics/b.py", 1),
        ("topics/b.py", 2),
    ]
