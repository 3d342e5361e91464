"""How much a machine holds."""

from collections import Counter, deque
from collections.abc import Mapping

from bruit.node.relay.directory import Directory
from bruit.node.relay.quality import Quality
from bruit.node.relay.stake_watch import Told

# Bounded by the marketplace, or by constants of their own, and tested by themselves.
APART = (Directory, Quality, Told)
CACHES = ("_peers",)  # of the marketplace


def footprint(machine: object) -> dict[str, int]:
    """Entries of every container in a machine, by the container's path; without empty ones."""
    found: Counter[str] = Counter()
    _walk(machine, "", found, {})
    return dict(found)


def _walk(thing: object, path: str, found: Counter[str], seen: dict[int, object]) -> None:
    if id(thing) in seen or isinstance(thing, APART):
        return
    seen[id(thing)] = thing
    if isinstance(thing, Mapping | list | deque | set):
        if thing:
            found[path] += len(thing)
        for each in thing.values() if isinstance(thing, Mapping) else thing:
            _walk(each, f"{path}[]", found, seen)
    elif type(thing).__module__.startswith("bruit.node.relay"):
        names = [*getattr(type(thing), "__slots__", ()), *getattr(thing, "__dict__", {})]
        for name in [each for each in names if each not in CACHES]:
            _walk(getattr(thing, name, None), f"{path}.{name}", found, seen)
