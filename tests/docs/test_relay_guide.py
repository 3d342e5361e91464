"""The commands of docs/relay.md, run as they stand there."""

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from bruit.node.filing import MAX_BYTES, MAX_FILES
from bruit.node.relay import drops
from bruit.node.relay.evidence import Kind
from tests.docs.test_readme import open_terminal

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "relay.md").read_text()
PATIENCE = 240.0  # seconds for the whole walk; 54 on a busy machine, 23 starts of Python among them


def scripts() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.sockets
async def test_three_nodes_relay_a_block_as_the_walk_through_says(tmp_path: Path) -> None:
    keys, marketplace, configurations, bob, carol, broadcast, look, verify = scripts()
    with ExitStack() as stack, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def done(script: str) -> str:
                process = await trio.run_process(
                    ["bash", "-euc", script],
                    cwd=tmp_path,
                    env=dict(os.environ, PATH=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"),
                    capture_stdout=True,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
                said = process.stdout.decode()
                assert process.returncode == 0, said
                return said

            await done(keys)
            await done(marketplace)
            assert (await done(configurations)).count("ok, peer id") == 3
            bobs = await open_terminal(nursery, bob, tmp_path)
            stack.callback(bobs.process.kill)
            await bobs.says("ready")
            carols = await open_terminal(nursery, carol, tmp_path)
            stack.callback(carols.process.kill)
            await bobs.says("peer joined")
            await carols.says("ready")
            sent = await done(broadcast)
            assert "48 of 48 acknowledged" in sent
            await carols.says("bytes=300000")
            seen = await done(look)
            assert "48 chunks witnessed" in seen
            assert '"delivered": 1' in seen
            assert "300,000" in seen
            assert "holds" in seen
            assert "5,000,000 tokens, " in seen
            assert "There is no dispute in the audit." in seen
            assert "it holds" in await done(verify)
            for terminal in (bobs, carols):
                terminal.process.terminate()
                assert await terminal.process.wait() == 0, terminal.said


def test_the_guide_names_every_kind_of_dispute_and_says_the_folders_bounds() -> None:
    for kind in Kind:
        assert f"| `{kind.value}` |" in GUIDE
    assert f"{MAX_FILES:,} files, {MAX_BYTES >> 30} GiB" in GUIDE


def test_reasons_in_the_guide_are_those_that_are_counted() -> None:
    known = {value for name, value in vars(drops).items() if name.isupper()}
    said = re.findall(r"`dropped N: ([^`]+)`", GUIDE)
    assert len(said) == 3
    assert set(said) <= known
