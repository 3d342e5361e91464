"""How busy the machine's processors are, from /proc/stat.

Time that the host took from a virtual machine (steal) counts as busy: it was wanted.
Whatever else runs on the machine counts, too.
"""

import threading
from pathlib import Path
from types import TracebackType

SAMPLE = 0.2  # seconds; 20 ticks of 10 ms of each processor
SATURATED = 0.95  # share of a sample: guess, the rest is between two ticks


def times() -> tuple[int, int]:
    """Ticks of all processors together so far: busy, and all."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    # user nice system idle iowait irq softirq steal: proc(5); guests are in user already
    spent = [int(field) for field in fields[1:9]]
    return sum(spent) - spent[3] - spent[4], sum(spent)


class Load:
    """Watches during a block: ``busy`` is the share of all, ``saturated`` that of full samples."""

    def __init__(self) -> None:
        self.busy = self.saturated = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Load":
        self._began = times()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self.busy = share(self._began, times())

    def _watch(self) -> None:
        samples, full, before = 0, 0, self._began
        while not self._end.wait(SAMPLE):
            now = times()
            samples += 1
            full += share(before, now) >= SATURATED
            before = now
        self.saturated = full / samples if samples else 0.0


def share(before: tuple[int, int], after: tuple[int, int]) -> float:
    busy, spent = (late - early for early, late in zip(before, after, strict=True))
    return busy / spent if spent else 0.0
