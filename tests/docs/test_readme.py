"""The README's commands, run as they stand there."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest
import trio

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PATIENCE = 90.0  # seconds for the whole walk; it takes about five


def blocks(section: str, language: str = "sh") -> list[str]:
    """The code blocks under a heading, in order. The part before the first heading is ""."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)
    texts = dict(zip(["", *parts[1::2]], [parts[0], *parts[2::2]], strict=True))
    return re.findall(rf"^```{language}\n(.*?)^```$", texts[section], re.MULTILINE | re.DOTALL)


class Terminal:
    """A shell that runs one block, and what it has said on both outputs so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = ""
        self._heard = trio.Event()

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            self.said += chunk.decode()
            self._heard.set()
            self._heard = trio.Event()
        self._heard.set()

    async def says(self, text: str) -> None:
        while text not in self.said:
            assert self.process.returncode is None, self.said
            await self._heard.wait()


async def open_terminal(nursery: trio.Nursery, command: str, folder: Path) -> Terminal:
    environment = dict(os.environ, PATH=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}")
    process = await trio.lowlevel.open_process(
        ["bash", "-euc", "exec " + command if command.startswith("bruit run") else command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    terminal = Terminal(process)
    nursery.start_soon(terminal.listen)
    return terminal


def test_the_first_commands_are_demo_and_test() -> None:
    assert blocks("")[0].split("\n")[:2] == ["make demo", "make test"]


@pytest.mark.sockets
async def test_blocks_go_through_clusters_as_it_says(tmp_path: Path) -> None:
    (demos,) = blocks("Blocks through clusters")
    with trio.fail_after(len(demos.splitlines()) * PATIENCE):
        async with trio.open_nursery() as nursery:
            terminal = await open_terminal(nursery, demos, tmp_path)
            assert await terminal.process.wait() == 0, terminal.said
    assert "6 of 6 consumers have the block" in terminal.said
    assert '"holds":true' in terminal.said.replace(" ", "")


@pytest.mark.sockets
async def test_two_nodes_talk_as_the_walk_through_says(tmp_path: Path) -> None:
    paths, configuration, alice, bob, listen, publish = blocks("Two nodes that talk")
    (tmp_path / "README.md").write_text(README)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for script in (paths.partition("\n")[2], configuration):  # PATH is set for us
                setup = await open_terminal(nursery, script, tmp_path)
                assert await setup.process.wait() == 0, setup.said
            alice_terminal = await open_terminal(nursery, alice, tmp_path)
            await alice_terminal.says("listening")
            bob_terminal = await open_terminal(nursery, bob, tmp_path)
            await alice_terminal.says("peer joined")
            await bob_terminal.says("peer joined")
            listener = await open_terminal(nursery, listen, tmp_path)
            await bob_terminal.says("outbound=False")  # the listener has come
            publisher = await open_terminal(nursery, publish, tmp_path)
            assert await publisher.process.wait() == 0, publisher.said
            assert await listener.process.wait() == 0, listener.said
            await alice_terminal.says("delivered")
            await bob_terminal.says("delivered")
            for script in blocks("What it thinks of its peers"):
                asked = await open_terminal(nursery, script, tmp_path)
                assert await asked.process.wait() == 0, asked.said
            for terminal in (alice_terminal, bob_terminal):
                terminal.process.terminate()
                assert await terminal.process.wait() == 0, terminal.said
    received = list((tmp_path / "received").iterdir())
    assert [file.read_text() for file in received] == [README]


def test_the_configuration_commands_show_where_values_come_from(tmp_path: Path) -> None:
    init, configuration = blocks("Two nodes that talk")[:2]
    script = "\n".join([init, configuration, *blocks("Configuration")])
    shown = subprocess.run(
        ["bash", "-euc", script.replace("$PWD/.venv", f"{ROOT}/.venv")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    ).stdout
    assert "environment BRUIT_GOSSIP__D" in shown
    assert "flag --set" in shown
    assert "file bob/bruit.toml" in shown


def test_the_linter_finds_what_the_readme_says_it_finds(tmp_path: Path) -> None:
    command = ".venv/bin/bruit scores lint --preset ethereum"
    assert command.removeprefix(".venv/bin/") in README
    found = subprocess.run(
        command.split(), cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert found.returncode == 1
    assert "silent" in found.stdout


def test_the_python_in_the_readme_compiles() -> None:
    for program in blocks("In a program", "python"):
        compile(program, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
