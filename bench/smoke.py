"""Ours against py-libp2p in under a minute: fails where ours has become too slow.

    python -m bench.smoke

Three short rounds of `pair_1k`, in turns. What is compared is the CPU time of both
ends per message that was delivered, the least of the rounds on each side: it is
disturbed less by what else a machine does than rates are, and upwards only. It does
not tell how well the work is spread over processors; the rates, which are shown, do.
"""

import sys
from statistics import median

from bench.lab import Lab, Scale
from bench.mesh import OURS, PYTHON_PEERS
from bench.pairs import pair_1k
from bench.remote import BenchError

OTHER = "py-libp2p"
ROUNDS = 3
LEAST = 15.0  # times less CPU time per message than py-libp2p takes
SCALE = Scale(small=6000, slow_small=600)


def main() -> str:
    """Why it fails, or nothing."""
    lab = Lab(PYTHON_PEERS, SCALE)
    costs: dict[str, list[float]] = {OURS: [], OTHER: []}  # µs per message, both ends
    rates: dict[str, list[float]] = {OURS: [], OTHER: []}
    for number in range(1, ROUNDS + 1):
        for kind, spent in costs.items():
            try:
                result = pair_1k(lab, kind)
            except BenchError as problem:
                return str(problem)
            if result.lost:
                return f"{kind}: {result.lost}"
            figures = result.figures
            spent.append(figures["cpu_us_per_msg"] + figures["cpu_us_per_msg_publisher"])
            rates[kind].append(figures["pair_1k"])
            print(f"round {number}  {kind:9}  {figures['pair_1k']:6.0f}/s  {spent[-1]:6.0f} µs CPU")
    ours, theirs = (min(spent) for spent in costs.values())
    ratio = theirs / ours
    faster = median(ours / theirs for ours, theirs in zip(*rates.values(), strict=True))
    print(f"{theirs:.0f} µs against {ours:.0f} µs of CPU time per message: {ratio:.1f} times")
    print(f"messages a second, median within a round: {faster:.1f} times")
    if ratio < LEAST:
        return f"ours takes only {ratio:.1f} times less CPU time per message: {LEAST:g} at least"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
