"""What a producer remembers of clusters and their members: how fast, how reliable, how regarded.

All of it is bounded by the marketplace: what leaves that is forgotten.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from random import Random

from bruit.node.relay.directory import Directory
from bruit.plugins.hookspecs import ClusterOption
from bruit.plugins.marketplace import Cluster, Member

HALF_LIFE = 300.0  # seconds after which an observation counts half; guess: some tens of blocks
# Weight below which observations are forgotten, so that a cluster that failed once is tried
# again: a single one after six half-lives; guess
FORGOTTEN = 1 / 64
SCORES_KEPT = 32  # readings of peer scores for each cluster; guess
MEMBER_RESTS = 30.0  # seconds for which a member that failed is asked last; guess


class DecayedMean:
    """A mean in which an observation's weight halves every HALF_LIFE."""

    __slots__ = ("_at", "_value", "_weight")

    def __init__(self) -> None:
        self._value = 0.0
        self._weight = 0.0
        self._at = 0.0  # when the weight was that

    def add(self, observation: float, now: float) -> None:
        self._weight = self._weight_at(now) + 1.0
        self._value += (observation - self._value) / self._weight
        self._at = now

    def value(self, now: float) -> float | None:
        """None where there is no observation, or all are forgotten."""
        return self._value if self._weight_at(now) > FORGOTTEN else None

    def _weight_at(self, now: float) -> float:
        return self._weight * math.exp2((self._at - now) / HALF_LIFE)


class _ClusterRecord:
    __slots__ = ("delivery", "failures", "latency", "rate", "scores", "undelivered")

    def __init__(self) -> None:
        self.latency = DecayedMean()  # seconds
        self.rate = DecayedMean()  # 1 for an acknowledgement, 0 for none
        self.failures = 0  # since the last acknowledgement
        self.delivery = DecayedMean()  # 1 for an acknowledged chunk that others had, 0 for others
        self.undelivered = 0  # acknowledged and not passed on, since the last that was
        self.scores: deque[float] = deque(maxlen=SCORES_KEPT)


class Quality:
    """Decayed statistics over all clusters. ``now`` never goes back."""

    def __init__(self) -> None:
        self._clusters: dict[int, _ClusterRecord] = {}
        self._failing: dict[bytes, float] = {}  # 20-byte id of a member → when it failed

    def retain(self, directory: Directory) -> None:
        """Forget what is not in the marketplace any more."""
        self._clusters = {
            number: record
            for number, record in self._clusters.items()
            if directory.cluster(number) is not None
        }
        self._failing = {
            member: at
            for member, at in self._failing.items()
            if directory.cluster_of(member) is not None
        }

    def acknowledged(self, cluster: int, member: bytes, latency: float, now: float) -> None:
        """A member acknowledged a chunk after ``latency`` seconds."""
        record = self._record(cluster)
        record.latency.add(latency, now)
        record.rate.add(1.0, now)
        record.failures = 0
        self._failing.pop(member, None)

    def failed(self, cluster: int, now: float) -> None:
        """A chunk went through a cluster and no acknowledgement came back."""
        record = self._record(cluster)
        if record.rate.value(now) is None:
            record.failures = 0
        record.rate.add(0.0, now)
        record.failures += 1

    def passed_on(self, cluster: int, now: float) -> None:
        """A chunk that a cluster acknowledged came out."""
        record = self._record(cluster)
        record.delivery.add(1.0, now)
        record.undelivered = 0

    def not_passed_on(self, cluster: int, now: float) -> None:
        """A chunk that a cluster acknowledged was not heard of again."""
        record = self._record(cluster)
        if record.delivery.value(now) is None:
            record.undelivered = 0
        record.delivery.add(0.0, now)
        record.undelivered += 1

    def member_failed(self, member: bytes, now: float) -> None:
        """A member was not to be reached, or did not answer as it should."""
        self._failing[member] = now

    def scored(self, scores: Iterable[tuple[bytes, float]], directory: Directory) -> None:
        """Note the mean score of each cluster's members, of those that have one."""
        by_cluster: dict[int, list[float]] = {}
        for member, score in scores:
            cluster = directory.cluster_of(member)
            if cluster is not None and math.isfinite(score):
                by_cluster.setdefault(cluster, []).append(score)
        for cluster, found in by_cluster.items():
            self._record(cluster).scores.append(sum(score / len(found) for score in found))

    def option(self, cluster: Cluster, now: float) -> ClusterOption:
        """What a selector is told about a cluster."""
        record = self._clusters.get(cluster.id) or _ClusterRecord()
        rate, delivery = record.rate.value(now), record.delivery.value(now)
        failures = 0 if rate is None else record.failures
        return ClusterOption(
            cluster.id,
            cluster.price,
            record.latency.value(now),
            rate,
            tuple(record.scores),
            failures + (0 if delivery is None else record.undelivered),
            delivery,
        )

    def in_turn(self, members: Sequence[Member], rng: Random, now: float) -> list[Member]:
        """``members`` in the order in which to ask them: at random, who failed lately last."""
        order = list(members)
        rng.shuffle(order)
        order.sort(key=lambda member: self._rests(member.address, now))
        return order

    def _rests(self, member: bytes, now: float) -> bool:
        failed_at = self._failing.get(member)
        return failed_at is not None and now - failed_at < MEMBER_RESTS

    def _record(self, cluster: int) -> _ClusterRecord:
        return self._clusters.setdefault(cluster, _ClusterRecord())
