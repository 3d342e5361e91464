"""Messages per second from a publisher process to a subscriber process.

    python -m bench.pair [--messages-1k N] [--messages-500k N] [--rounds N] [--only NAME]

Ours and py-libp2p's own pubsub take turns in one run, each round with new
processes. Figures are medians over the rounds. The last line of output is one
JSON object; the exit status is 1 where anything published was not delivered.
README.md says what is measured, and with which settings.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

import bruit
from bench.payloads import SEED
from bench.process import Order

ROOT = Path(__file__).parent.parent
# The window of each: payloads under way at most, 0 for as many as publish() takes.
IMPLEMENTATIONS = {"ours": 0, "py-libp2p": 16}
# Bytes of a payload, and whether the publisher is subscribed too.
CASES = {"1k": (1024, False), "500k": (500_000, False), "1k_member": (1024, True)}
PACKAGES = ("libp2p", "trio", "protobuf", "pynacl", "cryptography")


class Run(NamedTuple):
    """What one pair of processes did."""

    sent: int
    delivered: int
    seconds: float  # from before the first publish to after the last delivery
    size: int  # bytes of a payload
    subscriber_cpu: float  # seconds
    publisher_cpu: float  # seconds

    @property
    def rate(self) -> float:
        return self.delivered / self.seconds

    @property
    def megabytes(self) -> float:
        """Payload per second, in MB of 1,000,000 bytes."""
        return self.rate * self.size / 1e6


def run_pair(name: str, size: int, count: int, window: int, member: bool) -> Run:
    """Publish ``count`` payloads once. Raises RuntimeError where a process fails or hangs."""
    reading, writing = os.pipe()
    order = Order(size, count, writing, window)
    with _process(name, "subscribe", order) as subscriber:
        order = Order(size, count, reading, window, _answer(subscriber)["address"], member)
        with _process(name, "publish", order) as publisher:
            ended, began = _answer(subscriber), _answer(publisher)
    if ended["delivered"] == began["sent"] and ended["checksum"] != began["checksum"]:
        raise RuntimeError(f"{name}: what was delivered is not what was published")
    return Run(
        sent=began["sent"],
        delivered=ended["delivered"],
        seconds=ended["last"] - began["first"],
        size=size,
        subscriber_cpu=ended["cpu"],
        publisher_cpu=began["cpu"],
    )


@contextmanager
def _process(name: str, role: str, order: Order) -> Iterator[subprocess.Popen[str]]:
    """One end, running, with its end of the pipe; killed where the block fails."""
    text = msgspec.json.encode(order).decode()
    command = [sys.executable, "-m", "bench.process", name, role, text]
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=(order.pipe,), stdout=subprocess.PIPE, text=True
        )
    finally:
        os.close(order.pipe)
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None  # it is a pipe
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"no answer from {process.args!r}: its errors stand above")
    return json.loads(line)


def summary(runs: list[Run]) -> dict[str, object]:
    """Medians over the rounds; ``delivered`` and ``sent`` over all of them together."""
    rates = [run.rate for run in runs]
    return {
        "msgs_per_s": round(median(rates), 1),
        "msgs_per_s_range": [round(min(rates), 1), round(max(rates), 1)],
        "mb_per_s": round(median(run.megabytes for run in runs), 2),
        "delivered": sum(run.delivered for run in runs),
        "sent": sum(run.sent for run in runs),
        "cpu_us_per_msg": _micros(run.subscriber_cpu / max(run.delivered, 1) for run in runs),
        "publisher_cpu_us_per_msg": _micros(run.publisher_cpu / run.sent for run in runs),
    }


def _micros(seconds: Iterable[float]) -> float:
    return round(median(seconds) * 1e6, 1)


def ratio(runs: dict[tuple[str, str], list[Run]], case: str) -> float | None:
    """Ours against py-libp2p within each round, the median of that."""
    pairs = zip(runs.get(("ours", case), ()), runs.get(("py-libp2p", case), ()), strict=False)
    ratios = [ours.rate / theirs.rate for ours, theirs in pairs if theirs.delivered]
    return round(median(ratios), 2) if ratios else None


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {package: importlib.metadata.version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "bruit": bruit.__version__, **found}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pair", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--messages-1k", type=int, default=6000, help="per run (6000)")
    parser.add_argument("--messages-500k", type=int, default=100, help="per run (100)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--only", choices=IMPLEMENTATIONS, help="one implementation by itself")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    counts = {
        "1k": arguments.messages_1k,
        "500k": arguments.messages_500k,
        "1k_member": arguments.messages_1k,
    }
    chosen = [arguments.only] if arguments.only else list(IMPLEMENTATIONS)
    load = [os.getloadavg()[0]]
    runs: dict[tuple[str, str], list[Run]] = {}
    for number in range(1, arguments.rounds + 1):
        for case, name in itertools.product(CASES, chosen):
            size, member = CASES[case]
            run = run_pair(name, size, counts[case], IMPLEMENTATIONS[name], member)
            runs.setdefault((name, case), []).append(run)
            print(
                f"round {number}  {case:>9}  {name:9}  {run.delivered} of {run.sent} delivered"
                f"  {run.rate:8.1f}/s  {run.megabytes:6.2f} MB/s",
                flush=True,
            )
    load.append(os.getloadavg()[0])
    result: dict[str, object] = {
        name: {
            **summary(runs[name, "1k"]),
            **{case: summary(runs[name, case]) for case in CASES if case != "1k"},
        }
        for name in chosen
    }
    result |= {f"ratio_{case}": ratio(runs, case) for case in CASES}
    result["inputs"] = {
        "messages": counts,
        "bytes": {case: size for case, (size, _) in CASES.items()},
        "rounds": arguments.rounds,
        "window": {name: IMPLEMENTATIONS[name] for name in chosen},
        "seed": SEED,
    }
    result["versions"] = versions()
    result["machine"] = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "load_before_and_after": [round(each, 2) for each in load],
    }
    print(json.dumps(result))
    if any(run.delivered < run.sent for each in runs.values() for run in each):
        sys.exit(1)


if __name__ == "__main__":
    main()
