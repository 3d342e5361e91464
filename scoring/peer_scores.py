"""Peer scores of gossipsub v1.1: P1 to P7 and the slow-peer term, with a reason for each.

Sources: libp2p specs, gossipsub-v1.1.md ("The Score Function"); where it leaves a
choice, go-libp2p-pubsub (score.go). Peers that leave with a score of 0 or less are
remembered for a time, without decay, so that leaving washes nothing off; the others
are forgotten at once.

Theory of operation. Connected and remembered peers are rows of two tables of
counters. An event changes a few counters and notes the column; `score` brings the
peer's row up to date when it is asked. `refresh` decays the table of the connected
and recomputes it as a whole.
"""

import json
import math
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from bruit.scoring.colocation import Colocation
from bruit.scoring.counters import MICROSECONDS, Columns, Counters
from bruit.scoring.deliveries import Deliveries, Delivery
from bruit.scoring.explanation import (
    Explanation,
    SharedAddress,
    Term,
    TopicExplanation,
)
from bruit.scoring.params import PeerScoreParams, TopicScoreParams, params_hash
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId

MAX_RETAINED = 10_000  # disconnected peers that are remembered; guess


class _Peer:
    """A row, and what is known of its score without looking there."""

    __slots__ = ("changed", "colocated", "expires", "fresh", "lowered", "row", "topics", "total")

    def __init__(self, row: int) -> None:
        self.row = row
        self.expires = math.inf  # seconds; while disconnected
        self.changed: dict[int, None] = {}  # columns whose contribution is out of date
        self.colocated = -1  # version of the addresses that the row's P6 goes by
        self.fresh = False  # whether ``total`` holds, but for P6
        self.lowered = True  # whether the score may be less than ``total``, but for P6
        self.topics = 0.0  # sum over topics after the cap, but for ``changed``
        self.total = 0.0


class PeerScoresStatistics(msgspec.Struct, frozen=True):
    connected: int  # peers
    retained: int  # peers that left and are remembered
    topics: int  # that something has happened in
    deliveries: int  # messages whose copies may still count


class PeerScores:
    """Implements `bruit.scoring.seam.Scores`. ConfigError where a parameter is out of range.

    What is said of an unknown peer, or of a topic without parameters, does nothing.
    """

    def __init__(self, params: PeerScoreParams, thresholds: Thresholds) -> None:
        params.check()
        thresholds.check()
        self.thresholds = thresholds
        self._columns = Columns(params)
        self._present = Counters(self._columns)
        self._absent = Counters(self._columns)
        self._connected: dict[PeerId, _Peer] = {}
        # In the order in which they expire
        self._retained: OrderedDict[PeerId, _Peer] = OrderedDict()
        self._colocation = Colocation(
            params.ip_colocation_factor_threshold, params.ip_colocation_factor_whitelist
        )
        self._deliveries = Deliveries(params.seen_message_ttl)

    @property
    def params(self) -> PeerScoreParams:
        """Including what `set_topic_params` has changed."""
        return self._columns.params

    @property
    def params_hash(self) -> str:
        return params_hash(self.params, self.thresholds)

    @property
    def refresh_interval(self) -> float:
        return self.params.decay_interval

    @property
    def peers(self) -> list[PeerId]:
        """The connected, then those who are remembered."""
        return [*self._connected, *self._retained]

    def statistics(self) -> PeerScoresStatistics:
        return PeerScoresStatistics(
            len(self._connected), len(self._retained), len(self._columns), len(self._deliveries)
        )

    # Time

    def refresh(self, now: float) -> None:
        while self._retained and now > next(iter(self._retained.values())).expires:
            self._forget_oldest()
        self._present.decay(now)
        self._recompute(self._present, self._connected)
        self._deliveries.sweep(now)

    def score(self, peer: PeerId, now: float) -> float:
        known = self._connected.get(peer)
        if known is not None:
            if not known.fresh or known.colocated != self._colocation.version:
                self._settle(peer, known, self._present)
            return known.total
        known = self._retained.get(peer)
        if known is None:
            return 0.0
        if not known.fresh or known.colocated != self._colocation.version:
            self._settle(peer, known, self._absent)
        return known.total

    def reaches(self, peer: PeerId, limit: float, now: float) -> bool:
        known = self._connected.get(peer)
        # Deliveries only add to P2 and take from P3's deficit: under load nothing is computed.
        if (
            known is not None
            and known.total >= limit
            and not known.lowered
            and known.colocated == self._colocation.version
        ):
            return True
        return self.score(peer, now) >= limit

    def _settle(self, peer: PeerId, known: _Peer, table: Counters) -> None:
        """Bring the score of one peer up to date."""
        if known.changed:
            table.contribute(known.row, known.changed)
            known.changed.clear()
            known.topics = table.capped(table.topic_sum(known.row))
        if known.colocated != self._colocation.version:
            self._colocate(peer, known, table)
        known.total = table.total(known.row, known.topics)
        known.fresh, known.lowered = True, False

    def _colocate(self, peer: PeerId, known: _Peer, table: Counters) -> None:
        table.colocation[known.row] = self._colocation.factor(peer)
        known.colocated = self._colocation.version

    def _recompute(self, table: Counters, peers: dict[PeerId, _Peer]) -> None:
        """Bring all scores in a table up to date."""
        version = self._colocation.version
        for peer, known in peers.items():
            if known.colocated != version:
                self._colocate(peer, known, table)
        topics, totals = table.recompute()
        for known in peers.values():
            known.topics = topics[known.row]
            known.total = totals[known.row]
            known.fresh, known.lowered = True, False
            if known.changed:
                known.changed.clear()

    # Peers

    def connected(self, peer: PeerId, addresses: tuple[str, ...], now: float) -> None:
        """As the protocol says. Unknown addresses replace no known ones."""
        if peer not in self._connected:
            known = self._retained.pop(peer, None)
            if known is None:
                known = _Peer(self._present.new_row())
            else:
                known.row = self._absent.move(known.row, self._present)
            self._connected[peer] = known
        if any(addresses):
            self._colocation.place(peer, addresses)

    def disconnected(self, peer: PeerId, now: float) -> None:
        known = self._connected.get(peer)
        if known is None:
            return
        positive = self.score(peer, now) > 0
        del self._connected[peer]
        if positive:
            self._present.free(known.row)
            self._colocation.forget(peer)
            return
        known.changed |= dict.fromkeys(self._present.touched(known.row))
        self._present.leave(known.row)
        known.row = self._present.move(known.row, self._absent)
        known.fresh, known.lowered = False, True
        known.expires = now + self.params.retain_score
        self._retained[peer] = known
        if len(self._retained) > MAX_RETAINED:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        peer, known = self._retained.popitem(last=False)
        self._absent.free(known.row)
        self._colocation.forget(peer)

    def misbehaved(self, peer: PeerId, count: int, reason: str, now: float) -> None:
        found = self._find(peer)
        if found is not None:
            known, table = found
            table.behaviour[known.row] += count
            known.fresh, known.lowered = False, True

    def slow(self, peer: PeerId, count: int, now: float) -> None:
        found = self._find(peer)
        if found is not None:
            known, table = found
            table.slow[known.row] += count
            known.fresh, known.lowered = False, True

    def set_app_score(self, peer: PeerId, value: float, now: float) -> None:
        """As the protocol says. LocalError, nothing changed, where ``value`` is not finite."""
        if not math.isfinite(value):
            raise LocalError(f"an application score of {value}: give a finite number")
        found = self._find(peer)
        if found is not None:
            known, table = found
            table.app[known.row] = value
            known.fresh, known.lowered = False, True

    def _find(self, peer: PeerId) -> tuple[_Peer, Counters] | None:
        known = self._connected.get(peer)
        if known is not None:
            return known, self._present
        known = self._retained.get(peer)
        return None if known is None else (known, self._absent)

    # Topics

    def set_topic_params(self, topic: str, params: TopicScoreParams, now: float) -> None:
        """Let a topic count otherwise from now on, and hold its counters to the new caps.

        ConfigError, nothing changed, where a parameter is out of range.
        """
        params.check(f"scoring.topics.{json.dumps(topic, ensure_ascii=False)}")
        self._columns.replace(topic, params)
        column = self._columns.get(topic)
        if column is None:
            return
        self._present.recap(column)
        self._absent.recap(column)
        self._recompute(self._present, self._connected)
        self._recompute(self._absent, self._retained)

    def grafted(self, peer: PeerId, topic: str, now: float) -> None:
        known, column = self._connected.get(peer), self._column(topic)
        if known is not None and column is not None:
            self._present.graft(column, known.row, now)
            known.changed[column] = None
            known.fresh, known.lowered = False, True

    def pruned(self, peer: PeerId, topic: str, now: float) -> None:
        known, column = self._connected.get(peer), self._column(topic)
        if known is not None and column is not None:
            self._present.prune(column, known.row)
            known.changed[column] = None
            known.fresh, known.lowered = False, True

    def _column(self, topic: str) -> int | None:
        column = self._columns.get(topic)
        if column is None:
            column = self._columns.add(topic)
            if column is not None:
                self._present.fit()
                self._absent.fit()
        return column

    # Messages

    def validating(self, message_id: bytes, now: float) -> None:
        self._deliveries.record(message_id, now)

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        others = self._deliveries.valid(message_id, peer, now)
        column = self._column(topic)
        if column is None:
            return
        found = self._find(peer)
        if found is not None:
            known, table = found
            table.count_first(column, known.row)
            known.changed[column] = None
            known.fresh = False
        self._count_mesh((peer, *others), column)

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        record = self._deliveries.copy(message_id, peer, now)
        if record is None:
            return
        column = self._column(topic)
        if column is None:
            return
        if record.state is Delivery.INVALID:
            self._count_invalid((peer,), column)
        elif round((now - record.validated) * MICROSECONDS) <= self._columns.windows[column]:
            self._count_mesh((peer,), column)

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        guilty: Iterable[PeerId] = ()
        match refusal:
            case Refusal.FORGED:
                guilty = (peer,)
            case Refusal.INVALID:
                guilty = self._deliveries.invalid(message_id, peer, now)
            case Refusal.IGNORED:
                self._deliveries.let_go(message_id, Delivery.IGNORED, now)
            case Refusal.THROTTLED:
                self._deliveries.let_go(message_id, Delivery.THROTTLED, now)
            case Refusal.QUEUE_FULL | Refusal.BANNED:
                pass
        column = self._column(topic) if guilty else None
        if column is not None:
            self._count_invalid(guilty, column)

    def _count_mesh(self, peers: Iterable[PeerId], column: int) -> None:
        for peer in peers:
            known = self._connected.get(peer)  # nobody else is in the mesh
            if known is not None and self._present.count_mesh(column, known.row):
                known.changed[column] = None
                known.fresh = False

    def _count_invalid(self, peers: Iterable[PeerId], column: int) -> None:
        for peer in peers:
            found = self._find(peer)
            if found is not None:
                known, table = found
                table.count_invalid(column, known.row)
                known.changed[column] = None
                known.fresh, known.lowered = False, True

    # Reasons

    def explain(self, peer: PeerId, now: float) -> Explanation | None:
        """What the score is made of; None for a stranger."""
        found = self._find(peer)
        if found is None:
            return None
        known, table = found
        score = self.score(peer, now)
        params, row = self.params, known.row
        misbehaviour, dropped = table.behaviour.item(row), table.slow.item(row)
        excess = max(misbehaviour - params.behaviour_penalty_threshold, 0.0)
        return Explanation(
            peer=peer,
            connected=peer in self._connected,
            topics=tuple(self._explain_topic(table, row, each) for each in table.touched(row)),
            topics_sum=table.topic_sum(row),
            topics_capped=known.topics,
            app_specific=_term(table.app.item(row), params.app_specific_weight),
            ip_colocation=_term(table.colocation.item(row), params.ip_colocation_factor_weight),
            behaviour_penalty=_term(excess * excess, params.behaviour_penalty_weight),
            slow_peer=_term(
                max(dropped - params.slow_peer_threshold, 0.0), params.slow_peer_weight
            ),
            score=score,
            addresses=tuple(
                SharedAddress(address, peers) for address, peers in self._colocation.shared(peer)
            ),
            behaviour_counter=misbehaviour,
            slow_counter=dropped,
            below=self.thresholds.above(score),
        )

    def _explain_topic(self, table: Counters, row: int, column: int) -> TopicExplanation:
        topic = self._columns.topics[column]
        p1, p2, p3, p3b, p4 = table.values(column, row)
        return TopicExplanation(
            topic=self._columns.names[column],
            in_mesh=bool(table.in_mesh[column, row]),
            mesh_time=table.mesh_time.item(column, row) / MICROSECONDS,
            mesh_message_deliveries_active=bool(table.active[column, row]),
            first_message_deliveries=table.first.item(column, row),
            mesh_message_deliveries=table.mesh.item(column, row),
            mesh_failure_penalty=table.failure.item(column, row),
            invalid_message_deliveries=table.invalid.item(column, row),
            p1=_term(p1, topic.time_in_mesh_weight),
            p2=_term(p2, topic.first_message_deliveries_weight),
            p3=_term(p3, topic.mesh_message_deliveries_weight),
            p3b=_term(p3b, topic.mesh_failure_penalty_weight),
            p4=_term(p4, topic.invalid_message_deliveries_weight),
            weight=topic.topic_weight,
            contribution=table.contribution.item(column, row),
        )

    def snapshot(self, now: float) -> list[Explanation]:
        """The explanation of every known peer, the connected first."""
        explanations = (self.explain(peer, now) for peer in self.peers)
        return [each for each in explanations if each is not None]


def _term(value: float, weight: float) -> Term:
    return Term(value, weight, value * weight)
