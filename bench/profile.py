"""Where the time of a pair goes: both ends of `pair_1k` and `pair_500k` under cProfile.

    python -m bench.profile            # writes bench/profiles/*.txt

The event loop of each end is profiled, not the processes that check its signatures.
cProfile makes calls dearer than they are, so shares of Python code are too large and those
of what libraries compute too small; rates under it say nothing.
"""

import cProfile
import io
import os
import pstats
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from bench.lab import LARGE, SMALL, TOPIC, At, Lab, connect, subscribe, until_known, until_meshed
from bench.remote import ROOT, Remote

PROFILES = Path(__file__).parent / "profiles"
CASES = {"1k": (SMALL, 10_000), "500k": (LARGE, 100)}
LINES = 45  # of functions, those that take most by themselves first
TIMEOUT = 120.0  # seconds for one run
DUMP = 1.0  # seconds that writing a profile down may take; guess


def profiled(path: Path) -> None:
    """Be a peer of ours; SIGUSR1 begins the profile, and the next one writes it to ``path``."""
    from bench.peer_ours import host
    from bench.serving import start

    profile = cProfile.Profile()
    running = False

    def toggle(number: int, frame: FrameType | None) -> None:
        nonlocal running
        if not running:
            profile.enable()
            running = True
            return
        profile.disable()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(LINES)
        path.write_text("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")

    signal.signal(signal.SIGUSR1, toggle)
    start(host)


def run(case: str) -> None:
    size, count = CASES[case]
    paths = {role: PROFILES / f"{case}_{role}.txt" for role in ("subscriber", "publisher")}
    lab = Lab({})
    settings = {"nodes": 1, "policy": "sign", "heartbeats": False}
    commands = [(sys.executable, "-m", "bench.profile", str(path)) for path in paths.values()]
    with (
        Remote("subscriber", commands[0], settings) as receiving,
        Remote("publisher", commands[1], settings) as sending,
    ):
        both = (receiving, sending)
        for remote in both:
            remote.listen()
            subscribe(At(remote))
        connect([(At(sending), At(receiving))])
        until_known(At(sending), 1)
        until_known(At(receiving), 1)
        until_meshed(lab, At(sending), [receiving])
        for remote in both:
            os.kill(remote.pid, signal.SIGUSR1)
        order = {"node": 0, "topic": TOPIC, "run": 1000, "count": count, "size": size, "rate": 0}
        said = sending.ask("publish", TIMEOUT, **order)
        got = receiving.ask("wait", TIMEOUT, run=1000, count=said["taken"], silence=5.0)
        for remote in both:
            os.kill(remote.pid, signal.SIGUSR1)
        time.sleep(DUMP)
    for role, path in paths.items():
        print(f"{case}, {role}: {got['counts'][0]} messages, {path.relative_to(ROOT)}")


def main() -> None:
    PROFILES.mkdir(exist_ok=True)
    for case in CASES:
        run(case)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        path = Path(sys.argv.pop(1))
        profiled(path)
    else:
        main()
