"""The marketplace as it is, and who was in it lately: what was under way when it changed.

Other nodes hear of a change earlier or later. For a tolerable latency nobody is blamed for having
gone by the marketplace before.
"""

from bruit.node.relay.directory import Directory
from bruit.plugins.marketplace import Marketplace, Producer

MAX_PAST = 16  # changes within a tolerable latency that are remembered; guess


class Recent:
    """The marketplace and its past of ``keep`` seconds. Times are Unix times in seconds."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._past: list[tuple[float, Directory]] = []  # until when it counts
        self.now: Directory | None = None  # None before the first marketplace

    def change(self, marketplace: Marketplace, now: float) -> None:
        past = [each for each in self._past if each[0] >= now]
        if self.now is not None:
            past.append((now + self._keep, self.now))
        self._past = past[-MAX_PAST:]
        self.now = Directory(marketplace)

    def _lately(self, now: float) -> list[Directory]:
        return [directory for until, directory in self._past if until >= now]

    def producer(self, address: bytes) -> Producer | None:
        return None if self.now is None else self.now.producer(address)

    def cluster_of(self, member: bytes) -> int | None:
        return None if self.now is None else self.now.cluster_of(member)

    def was_producer(self, address: bytes, now: float) -> bool:
        return any(past.producer(address) is not None for past in self._lately(now))

    def was_member(self, address: bytes, now: float) -> bool:
        return any(past.cluster_of(address) is not None for past in self._lately(now))

    def most_stake(self, producer: Producer, now: float) -> int:
        """The most that a producer had lately: what it attested before it had less still counts."""
        before = [past.producer(producer.address) for past in self._lately(now)]
        return max([producer.stake, *(entry.stake for entry in before if entry is not None)])
