"""What a run found: a table while it goes on, one JSON object at its end."""

import sys
from typing import TextIO

import msgspec

from tests.interop.mixed import Account
from tests.interop.toolchains import LeftOut


class Result(msgspec.Struct, frozen=True):
    """What came of one scenario."""

    passed: bool
    seconds: float
    text: str  # what happened, or what went wrong


class Report:
    """Collects results, and prints each as it comes."""

    def __init__(self, out: TextIO = sys.stdout, errors: TextIO = sys.stderr) -> None:
        self._out = out
        self._errors = errors
        self._left_out: dict[str, LeftOut] = {}
        self._pairs: dict[str, dict[str, Result]] = {}
        self._unbuilt: dict[str, str] = {}
        self._mixed: tuple[Result, Account | None] | None = None

    def left_out(self, kind: str, why: LeftOut) -> None:
        self._left_out[kind] = why
        self._errors.write(f"*** {kind} is left out: {why.reason} ***\n")
        self._errors.flush()

    def not_built(self, kind: str, problem: str) -> None:
        self._unbuilt[kind] = problem.partition("\n")[0]
        self._errors.write(f"*** {problem} ***\n")
        self._errors.flush()

    def built(self, kind: str, seconds: float) -> None:
        took = f"built in {seconds:.1f} s" if seconds else "built before"
        self._line(kind, "", "", 0.0, took)

    def pair(self, kind: str, scenario: str, result: Result) -> None:
        self._pairs.setdefault(kind, {})[scenario] = result
        self._result(kind, scenario, result)

    def mixed(self, result: Result, account: Account | None) -> None:
        self._mixed = (result, account)
        self._result("mixed", "mesh", result)

    def _result(self, kind: str, scenario: str, result: Result) -> None:
        verdict = "ok" if result.passed else "FAILED"
        self._line(kind, scenario, verdict, result.seconds, result.text)

    def _line(self, kind: str, scenario: str, verdict: str, seconds: float, text: str) -> None:
        took = f"{seconds:5.1f} s" if seconds else ""
        self._out.write(f"{kind:<6} {scenario:<22} {verdict:<6} {took:>8}  {text}\n")
        self._out.flush()

    @property
    def failed(self) -> bool:
        """Whether anything failed, or nothing was done at all."""
        results = [result for pair in self._pairs.values() for result in pair.values()]
        results += [self._mixed[0]] if self._mixed else []
        return bool(self._unbuilt) or not results or not all(each.passed for each in results)

    def summary(self) -> dict[str, object]:
        """The JSON object: ``pairs`` by implementation, ``mixed`` with its account or null."""
        pairs: dict[str, object] = {
            kind: {
                "passed": sum(result.passed for result in results.values()),
                "failed": {
                    name: result.text for name, result in results.items() if not result.passed
                },
            }
            for kind, results in self._pairs.items()
        }
        pairs |= {kind: {"left_out": why.reason} for kind, why in self._left_out.items()}
        pairs |= {kind: {"not_built": problem} for kind, problem in self._unbuilt.items()}
        mixed: dict[str, object] | None = None
        if self._mixed is not None:
            result, account = self._mixed
            mixed = msgspec.to_builtins(account) if account else {}
            if not result.passed:
                mixed["failed"] = result.text
        return {"pairs": pairs, "mixed": mixed}

    def end(self) -> None:
        """Print the last line."""
        self._out.write(msgspec.json.encode(self.summary()).decode() + "\n")
        self._out.flush()
