"""Ours beside go, js and rust: every scenario with each of them, then one mesh of all.

    python -m tests.interop [--peers go,js,rust] [--only SCENARIO]

`make interop` runs it. The last line of output is one JSON object; the exit
status is 1 where anything failed. README.md says what is checked.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import trio

from tests.interop.mixed import Account, mixed
from tests.interop.peer import OURS, ROOT, InteropError, network
from tests.interop.report import Report, Result
from tests.interop.scenarios import SCENARIOS, Scenario, verify
from tests.interop.toolchains import RECIPES, BuildError, LeftOut, our_command, prepare

BUILDS = ROOT / "build" / "interop"
MIXED = "mixed"
TIMEOUT = 240.0  # seconds for one scenario, beyond all the deadlines in it

Commands = dict[str, Sequence[str]]


def build(kinds: Sequence[str], report: Report) -> Commands:
    """Commands of ours and of every peer that can be built."""
    commands: Commands = {OURS: our_command()}
    for kind in kinds:
        try:
            built = prepare(kind, BUILDS)
        except BuildError as problem:
            report.not_built(kind, str(problem))
            continue
        if isinstance(built, LeftOut):
            report.left_out(kind, built)
        else:
            report.built(kind, built.seconds)
            commands[kind] = built.command
    return commands


async def run_pair(commands: Commands, kind: str, name: str, scenario: Scenario) -> Result:
    start = time.monotonic()
    try:
        with trio.fail_after(TIMEOUT):
            async with network(commands, BUILDS / "logs" / f"{kind}.{name}") as peers:
                text = await scenario(peers, kind)
                await verify(peers)
    except (InteropError, trio.TooSlowError) as problem:
        return Result(False, time.monotonic() - start, str(problem) or f"over {TIMEOUT:g} s")
    return Result(True, time.monotonic() - start, text)


async def run_mixed(commands: Commands) -> tuple[Result, Account | None]:
    start = time.monotonic()
    account: Account | None = None
    try:
        with trio.fail_after(TIMEOUT):
            async with network(commands, BUILDS / "logs" / MIXED) as peers:
                account = await mixed(peers, [kind for kind in commands if kind != OURS])
                account.check()
                await verify(peers)
    except (InteropError, trio.TooSlowError) as problem:
        text = str(problem) or f"over {TIMEOUT:g} s"
        return Result(False, time.monotonic() - start, text), account
    text = f"{account.nodes} nodes, {account.delivered} of {account.sent} messages, each once"
    return Result(True, time.monotonic() - start, text), account


async def run(kinds: Sequence[str], names: Sequence[str], report: Report) -> None:
    commands = build(kinds, report)
    built = [kind for kind in kinds if kind in commands]
    for kind in built:
        for name, scenario in SCENARIOS.items():
            if name in names:
                report.pair(kind, name, await run_pair(commands, kind, name, scenario))
    if built and MIXED in names:
        report.mixed(*await run_mixed(commands))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--peers", default=",".join(RECIPES), help="implementations, comma-separated (all)"
    )
    parser.add_argument("--only", choices=[*SCENARIOS, MIXED], help="one scenario by itself")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    if unknown := [kind for kind in arguments.peers if kind not in RECIPES]:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    names = [arguments.only] if arguments.only else [*SCENARIOS, MIXED]
    report = Report()
    trio.run(run, arguments.peers, names, report)
    report.end()
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
