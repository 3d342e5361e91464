"""The marketplace as it is, and who was in it lately: what was under way when it changed.

Other nodes hear of a change earlier or later. For a tolerable latency nobody is blamed for having
gone by the marketplace before; and for going by one that is not here yet, not at once (`Patience`).
"""

from collections import OrderedDict

from bruit.node.relay.directory import Directory
from bruit.plugins.marketplace import Marketplace, Producer
from bruit.topics.keys import PeerId

MAX_PATIENCE = 4096  # peers that are remembered; guess: more than are connected
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

    def cluster_of(self, member: bytes, now: float) -> int | None:
        """The cluster that a member is in, or lately was: what it witnessed then still counts."""
        here = [] if self.now is None else [self.now]
        for directory in (*here, *reversed(self._lately(now))):
            cluster = directory.cluster_of(member)
            if cluster is not None:
                return cluster
        return None

    def was_producer(self, address: bytes, now: float) -> bool:
        return any(past.producer(address) is not None for past in self._lately(now))

    def most_stake(self, producer: Producer, now: float) -> int:
        """The most that a producer had lately: what it attested before it had less still counts."""
        before = [past.producer(producer.address) for past in self._lately(now)]
        return max([producer.stake, *(entry.stake for entry in before if entry is not None)])


class Patience:
    """How often a peer may bring what the marketplace here does not allow, before it is blamed.

    It may know of a producer or a member that we have not heard of yet.
    """

    def __init__(self, times: int, seconds: float) -> None:
        """So many times within so many seconds."""
        self._times = times
        self._seconds = seconds
        self._since: OrderedDict[PeerId, tuple[float, int]] = OrderedDict()  # and how often

    def ends(self, peer: PeerId, now: float) -> bool:
        """Whether it has happened too often, this time included."""
        since, count = self._since.pop(peer, (now, 0))
        if now - since > self._seconds:
            since, count = now, 0
        self._since[peer] = (since, count + 1)
        if len(self._since) > MAX_PATIENCE:
            self._since.popitem(last=False)
        return count >= self._times

    def forget(self, now: float) -> None:
        """Let go of peers whose time is over."""
        while self._since:
            peer, (since, _) = next(iter(self._since.items()))
            if now - since <= self._seconds:
                return
            del self._since[peer]
