"""Ours beside py-libp2p, js, go and rust: rates, latencies, costs, a network, a flood.

    python -m bench.mesh [--only ours,go] [--cases pair_1k,graph] [--rounds N] [--quick]

The implementations take turns within each case of a round, with new processes
every time. Figures are medians over the rounds. The last line of output is one
JSON object; the exit status is 1 where a message that was taken was not delivered
in a case of a pair. README.md says what is measured.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NoReturn

import msgspec

from bench import loads, networks, pairs
from bench.lab import FULL, LARGE, QUICK, SEED, SLOW, SMALL, Lab, Result, Scale
from bench.remote import ROOT, BenchError
from tests.interop.toolchains import BuildError, LeftOut, prepare

Case = Callable[[Lab, str], Result]

PAIRS: dict[str, Case] = {
    "pair_1k": pairs.pair_1k,
    "pair_1k_fanout": pairs.pair_1k_fanout,
    "pair_500k": pairs.pair_500k,
    "pair_1k_nosign": pairs.pair_1k_nosign,
}
ONCE: dict[str, Case] = {  # in the first round only: each takes half a minute and more
    "hop3": networks.hop3,
    "graph": networks.graph,
    "heartbeat": loads.heartbeat,
    "flood": loads.flood,
}
CASES = PAIRS | ONCE
OURS = "ours"
PYTHON_PEERS = {
    OURS: (sys.executable, "-m", "bench.peer_ours"),
    "py-libp2p": (sys.executable, "-m", "bench.peer_py_libp2p"),
}
IMPLEMENTATIONS = (*PYTHON_PEERS, "js", "go", "rust")
# Figures that are always there, None where they could not be had.
KEYS = (
    "pair_1k",
    "pair_500k",
    "pair_1k_nosign",
    "hop3_p50_ms",
    "hop3_p99_ms",
    "graph_rate",
    "cpu_us_per_msg",
    "rss_mb_per_node",
    "heartbeat_ms",
    "flood_goodput_ratio",
)
CROWD = "go"  # hosts the crowd of `heartbeat`, where it can be built; else ours does
BUILDS = ROOT / "build" / "interop"  # shared with tests.interop


class Record:
    """What has been measured, case by case and round by round."""

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], dict[int, Result]] = {}  # implementation, case
        self.left_out: dict[str, dict[str, str]] = {}  # implementation → case, or "all" → why
        self.lost: list[str] = []

    def add(self, kind: str, case: str, number: int, result: Result) -> None:
        self.results.setdefault((kind, case), {})[number] = result
        if result.lost:
            self.lost.append(f"{kind}: {result.lost}")

    def leave_out(self, kind: str, case: str, reason: str) -> None:
        self.left_out.setdefault(kind, {})[case] = reason
        print(f"left out   {kind}, {case}: {reason}", flush=True)

    def is_left_out(self, kind: str, case: str) -> bool:
        reasons = self.left_out.get(kind, {})
        return "all" in reasons or case in reasons

    def figures(self, kind: str) -> dict[str, float | None]:
        """Medians of the figures and sums of the counts."""
        figures: dict[str, float | None] = dict.fromkeys(KEYS)
        for (whose, _), rounds in self.results.items():
            if whose == kind:
                results = list(rounds.values())
                for key in results[0].figures:
                    figures[key] = rounded(median(each.figures[key] for each in results))
                for key in results[0].counts:
                    figures[key] = sum(each.counts[key] for each in results)
        return figures

    def ratios(self, kind: str) -> dict[str, float]:
        """Ours against another, figure by figure: within each round, the median of that."""
        ratios: dict[str, float] = {}
        for (whose, case), ours in self.results.items():
            theirs = self.results.get((kind, case), {})
            if whose != OURS:
                continue
            for key in next(iter(ours.values())).figures:
                each = [
                    ours[number].figures[key] / theirs[number].figures[key]
                    for number in ours.keys() & theirs.keys()
                    if theirs[number].figures.get(key)
                ]
                if each:
                    ratios[key] = rounded(median(each))
        return ratios


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")


def prepared(kinds: Sequence[str], record: Record) -> dict[str, tuple[str, ...]]:
    """How to start each; who cannot be built is left out."""
    commands: dict[str, tuple[str, ...]] = {}
    for kind in kinds:
        if kind in PYTHON_PEERS:
            commands[kind] = PYTHON_PEERS[kind]
            continue
        try:
            built = prepare(kind, BUILDS)
        except BuildError as problem:
            record.leave_out(kind, "all", str(problem).splitlines()[0])
            continue
        if isinstance(built, LeftOut):
            record.leave_out(kind, "all", built.reason)
        else:
            commands[kind] = (*built.command, "bench")
    return commands


def new_lab(kinds: Sequence[str], cases: Sequence[str], scale: Scale, record: Record) -> Lab:
    commands = prepared(kinds, record)
    crowd = OURS
    if "heartbeat" in cases:
        if CROWD not in kinds:
            commands |= prepared([CROWD], record)
        crowd = CROWD if CROWD in commands else OURS
    return Lab({**PYTHON_PEERS, **commands}, scale, crowd)


def measure(
    lab: Lab, kinds: Sequence[str], cases: Sequence[str], rounds: int, record: Record
) -> None:
    for number in range(1, rounds + 1):
        for case in cases:
            if case in ONCE and number > 1:
                continue
            for kind in kinds:
                if not record.is_left_out(kind, case):
                    run_case(lab, kind, case, number, record)


def run_case(lab: Lab, kind: str, case: str, number: int, record: Record) -> None:
    start = time.monotonic()
    try:
        result = CASES[case](lab, kind)
    except BenchError as problem:
        record.leave_out(kind, case, str(problem))
        return
    record.add(kind, case, number, result)
    shown = "  ".join(f"{key} {rounded(value):g}" for key, value in result.figures.items())
    took = time.monotonic() - start
    print(f"round {number}    {case:14} {kind:10} {shown}  ({took:.0f} s)", flush=True)
    if result.lost:
        print(f"LOST       {kind}: {result.lost}", flush=True)


def table(figures: Mapping[str, Mapping[str, float | None]]) -> str:
    kinds = list(figures)
    keys = dict.fromkeys([*KEYS, *(key for each in figures.values() for key in each)])
    lines = [f"{'':30}" + "".join(f"{kind:>12}" for kind in kinds)]
    for key in keys:
        cells = (figures[kind].get(key) for kind in kinds)
        shown = ("–" if cell is None else f"{cell:g}" for cell in cells)
        lines.append(f"{key:30}" + "".join(f"{cell:>12}" for cell in shown))
    return "\n".join(lines)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mesh", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default=",".join(IMPLEMENTATIONS), help="implementations (all)")
    parser.add_argument("--cases", default=",".join(CASES), help="cases (all)")
    parser.add_argument("--rounds", type=int, default=3, help="of the pair cases (3)")
    parser.add_argument("--quick", action="store_true", help="little of everything, to try it")
    arguments = parser.parse_args()
    for name, known in (("only", IMPLEMENTATIONS), ("cases", CASES)):
        chosen = getattr(arguments, name).split(",")
        if unknown := [each for each in chosen if each not in known]:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(arguments, name, [each for each in known if each in chosen])
    return arguments


def main() -> NoReturn:
    if sys.platform != "linux":
        sys.exit("bench.mesh reads CPU time and memory from Linux's /proc")
    arguments = parse_arguments()
    scale = QUICK if arguments.quick else FULL
    record = Record()
    lab = new_lab(arguments.only, arguments.cases, scale, record)
    load = [os.getloadavg()[0]]
    measure(lab, arguments.only, arguments.cases, arguments.rounds, record)
    load.append(os.getloadavg()[0])
    print(json.dumps(summary(arguments, lab, record, load)))
    for lost in record.lost:
        print(f"not everything was delivered: {lost}", file=sys.stderr)
    sys.exit(bool(record.lost))


def summary(
    arguments: argparse.Namespace, lab: Lab, record: Record, load: list[float]
) -> dict[str, object]:
    """The last line. Prints the table."""
    figures = {kind: record.figures(kind) for kind in IMPLEMENTATIONS}
    print(table({kind: figures[kind] for kind in arguments.only}))
    others = [kind for kind in IMPLEMENTATIONS if kind != OURS]
    return {
        **figures,
        "ratios": {kind: record.ratios(kind) for kind in others},
        "left_out": record.left_out,
        "inputs": {
            "rounds": arguments.rounds,
            "cases": arguments.cases,
            "bytes": {"1k": SMALL, "500k": LARGE},
            "slow": sorted(SLOW),  # these get slow_small and slow_large messages
            "scale": msgspec.to_builtins(lab.scale),
            "crowd": lab.crowd,
            "seed": SEED,
        },
        "versions": lab.versions | {"numpy": importlib.metadata.version("numpy")},
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "load_before_and_after": [round(each, 2) for each in load],
        },
    }


if __name__ == "__main__":
    main()
