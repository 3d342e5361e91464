"""Score counters as arrays over (topic, peer), and the arithmetic of P1 to P7 on them.

A column is a topic and a row is a peer. The formulas of gossipsub-v1.1.md ("The
Score Function") stand here twice: for whole arrays (`Counters.recompute`, at a
refresh) and for one row (`Counters.contribute`, `Counters.topic_sum`,
`Counters.total`, after an event). Both do the same operations in the same order, so
that they agree to the last bit:

1. a topic's contribution is ((((P1·w1 + P2·w2) + P3·w3) + P3b·w3b) + P4·w4) · topic weight;
2. contributions are added up one by one, in the order of columns;
3. the sum is cut at the topic score cap, then P5, P6, P7 and the slow-peer term are added.

Times in the mesh are held in whole microseconds: the difference of two floats of
seconds can fall short of a multiple of the quantum that it should reach, a rounded
one cannot (clocks up to 10⁹ seconds resolve better than that).
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from bruit.scoring.params import PeerScoreParams, TopicScoreParams

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MICROSECONDS = 1e6  # per second
MAX_UNNAMED_TOPICS = 1000  # that count by the default parameters; guess
DECAYING = 4  # of the numbers for each topic and peer, the first; in the order of `Columns.decays`
FIRST_ROWS, FIRST_COLUMNS = 16, 4  # room at the start; doubled when full


class Columns:
    """The topics that count, in the order of their columns, and how they count.

    Vectors have the shape (columns, 1), times are in microseconds.
    """

    def __init__(self, params: PeerScoreParams) -> None:
        self.params = params
        self.names: list[str] = []
        self.topics: list[TopicScoreParams] = []
        self._index: dict[str, int] = {}
        self._unnamed = 0  # columns whose topic has no parameters of its own
        self._vectors()

    def __len__(self) -> int:
        return len(self.names)

    def get(self, topic: str) -> int | None:
        return self._index.get(topic)

    def add(self, topic: str) -> int | None:
        """A new column; None where the topic does not count."""
        params = self.params.topic(topic)
        if params is None:
            return None
        if topic not in self.params.topics:
            if self._unnamed == MAX_UNNAMED_TOPICS:
                return None
            self._unnamed += 1
        column = self._index[topic] = len(self.names)
        self.names.append(topic)
        self.topics.append(params)
        self._vectors()
        return column

    def replace(self, topic: str, params: TopicScoreParams) -> None:
        """Other parameters for a topic, whether it has a column or not."""
        column = self._index.get(topic)
        if column is not None:
            self._unnamed -= topic not in self.params.topics
            self.topics[column] = params
        named = {**self.params.topics, topic: params}
        self.params = msgspec.structs.replace(self.params, topics=named)
        self._vectors()

    def _vectors(self) -> None:
        def vector(name: str) -> Floats:
            values = [getattr(topic, name) for topic in self.topics]
            return np.array(values, dtype=np.float64).reshape(-1, 1)

        def times(name: str) -> Floats:
            return np.rint(vector(name) * MICROSECONDS)

        self.weight = vector("topic_weight")
        self.time_weight = vector("time_in_mesh_weight")
        self.time_cap = vector("time_in_mesh_cap")
        self.quantum = np.maximum(times("time_in_mesh_quantum"), 1.0)  # 0 is allowed when unused
        self.first_weight = vector("first_message_deliveries_weight")
        self.mesh_weight = vector("mesh_message_deliveries_weight")
        self.mesh_threshold = vector("mesh_message_deliveries_threshold")
        self.activation = times("mesh_message_deliveries_activation")
        self.failure_weight = vector("mesh_failure_penalty_weight")
        self.invalid_weight = vector("invalid_message_deliveries_weight")
        self.decays = np.stack(  # (the decaying counters in their order, columns, 1)
            [
                vector("first_message_deliveries_decay"),
                vector("mesh_message_deliveries_decay"),
                vector("mesh_failure_penalty_decay"),
                vector("invalid_message_deliveries_decay"),
            ]
        )
        self.quanta: list[float] = self.quantum.ravel().tolist()
        self.windows: list[float] = times("mesh_message_deliveries_window").ravel().tolist()


class Counters:
    """The counters of many peers. A row that no peer has is all zeros.

    Events change counters only: `contribute` has to be called for what they change
    before `topic_sum`.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._rows = 0  # rows ever used: no row beyond is anybody's
        self._free: list[int] = []
        self._cells: Floats = np.zeros((7, FIRST_COLUMNS, FIRST_ROWS))
        self._flags: Flags = np.zeros((2, FIRST_COLUMNS, FIRST_ROWS), dtype=np.bool_)
        self._peers: Floats = np.zeros((4, FIRST_ROWS))
        self._views()

    def _views(self) -> None:
        cells: list[Floats] = list(self._cells)
        self.first, self.mesh, self.failure, self.invalid = cells[:DECAYING]
        self.grafted, self.mesh_time, self.contribution = cells[DECAYING:]  # s, µs (0 outside), –
        flags: list[Flags] = list(self._flags)
        self.in_mesh, self.active = flags
        peers: list[Floats] = list(self._peers)
        self.behaviour, self.slow, self.app, self.colocation = peers

    # Rows

    def new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._rows += 1
        self.fit()
        return self._rows - 1

    def free(self, row: int) -> None:
        self._cells[:, :, row] = 0.0
        self._flags[:, :, row] = False
        self._peers[:, row] = 0.0
        self._free.append(row)

    def move(self, row: int, target: "Counters") -> int:
        """Hand a row over to another table of the same columns; its number there."""
        there, width = target.new_row(), len(self.columns)
        target._cells[:, :width, there] = self._cells[:, :width, row]
        target._flags[:, :width, there] = self._flags[:, :width, row]
        target._peers[:, there] = self._peers[:, row]
        self.free(row)
        return there

    def fit(self) -> None:
        """Make room for every row and every column."""
        _, width, rows = self._cells.shape
        if len(self.columns) <= width and self._rows <= rows:
            return
        while width < len(self.columns):
            width *= 2
        while rows < self._rows:
            rows *= 2
        old_cells, old_flags, old_peers = self._cells, self._flags, self._peers
        _, old_width, old_rows = old_cells.shape
        self._cells = np.zeros((7, width, rows))
        self._flags = np.zeros((2, width, rows), dtype=np.bool_)
        self._peers = np.zeros((4, rows))
        self._cells[:, :old_width, :old_rows] = old_cells
        self._flags[:, :old_width, :old_rows] = old_flags
        self._peers[:, :old_rows] = old_peers
        self._views()

    # Events

    def graft(self, column: int, row: int, now: float) -> None:
        self.in_mesh[column, row] = True
        self.grafted[column, row] = now
        self.mesh_time[column, row] = 0.0
        self.active[column, row] = False

    def prune(self, column: int, row: int) -> None:
        """Out of the mesh: what P3 held against the peer is kept as P3b.

        P3 itself ends here, as in the specification, whose P3 needs time in the mesh
        (go-libp2p-pubsub charges it on, until the next GRAFT).
        """
        if not self.in_mesh[column, row]:
            return
        deficit = self._deficit(column, row)
        self.failure[column, row] += deficit * deficit
        self.in_mesh[column, row] = self.active[column, row] = False
        self.mesh_time[column, row] = 0.0

    def leave(self, row: int) -> None:
        """The peer is gone: out of every mesh, and nothing left of its P2."""
        for column in np.flatnonzero(self.in_mesh[:, row]).tolist():
            self.prune(column, row)
        self.first[:, row] = 0.0

    def count_first(self, column: int, row: int) -> None:
        cap = self.columns.topics[column].first_message_deliveries_cap
        self.first[column, row] = min(self.first.item(column, row) + 1.0, cap)

    def count_mesh(self, column: int, row: int) -> bool:
        """Whether it counts: only in the mesh."""
        if not self.in_mesh[column, row]:
            return False
        cap = self.columns.topics[column].mesh_message_deliveries_cap
        self.mesh[column, row] = min(self.mesh.item(column, row) + 1.0, cap)
        return True

    def count_invalid(self, column: int, row: int) -> None:
        self.invalid[column, row] += 1.0

    def recap(self, column: int) -> None:
        """Hold the counters of a topic to caps that may have been lowered."""
        topic, first, mesh = self.columns.topics[column], self.first[column], self.mesh[column]
        np.minimum(first, topic.first_message_deliveries_cap, out=first)
        np.minimum(mesh, topic.mesh_message_deliveries_cap, out=mesh)

    def decay(self, now: float) -> None:
        """One decay interval over: counters, mesh times, and whether P3 is active."""
        columns, to_zero = self.columns, self.columns.params.decay_to_zero
        used = (slice(len(columns)), slice(self._rows))
        counters = self._cells[:DECAYING, *used]
        counters *= columns.decays
        np.copyto(counters, 0.0, where=counters < to_zero)
        mesh_time = self.mesh_time[used]
        np.subtract(now, self.grafted[used], out=mesh_time)
        mesh_time *= MICROSECONDS
        np.rint(mesh_time, out=mesh_time)
        mesh_time *= self.in_mesh[used]
        self.active[used] |= mesh_time > columns.activation
        for counter, factor in (
            (self.behaviour[: self._rows], columns.params.behaviour_penalty_decay),
            (self.slow[: self._rows], columns.params.slow_peer_decay),
        ):
            np.multiply(counter, factor, out=counter)
            np.copyto(counter, 0.0, where=counter < to_zero)

    # Scores of one row

    def values(self, column: int, row: int) -> tuple[float, float, float, float, float]:
        """P1, P2, P3, P3b and P4 of a peer in a topic, not weighted."""
        columns = self.columns
        quanta = self.mesh_time.item(column, row) // columns.quanta[column]
        deficit = self._deficit(column, row)
        invalid = self.invalid.item(column, row)
        return (
            min(quanta, columns.topics[column].time_in_mesh_cap),
            self.first.item(column, row),
            deficit * deficit,
            self.failure.item(column, row),
            invalid * invalid,
        )

    def contribute(self, row: int, changed: Iterable[int]) -> None:
        """Bring the contributions of the columns in ``changed`` up to date."""
        for column in changed:
            topic = self.columns.topics[column]
            p1, p2, p3, p3b, p4 = self.values(column, row)
            score = p1 * topic.time_in_mesh_weight
            score += p2 * topic.first_message_deliveries_weight
            score += p3 * topic.mesh_message_deliveries_weight
            score += p3b * topic.mesh_failure_penalty_weight
            score += p4 * topic.invalid_message_deliveries_weight
            self.contribution[column, row] = score * topic.topic_weight

    def topic_sum(self, row: int) -> float:
        """All contributions together, before the cap."""
        contributions = self.contribution[: len(self.columns), row]
        if not contributions.size:
            return 0.0
        sums: Floats = np.add.accumulate(contributions)  # one by one, unlike np.sum
        return sums.item(-1) + 0.0  # 0, where it is −0

    def touched(self, row: int) -> list[int]:
        """Columns in which something has happened that is not forgotten."""
        width = len(self.columns)
        counted = (self._cells[:DECAYING, :width, row] != 0).any(axis=0)
        columns: list[int] = np.flatnonzero(
            counted | self._flags[:, :width, row].any(axis=0)
        ).tolist()
        return columns

    def capped(self, topic_sum: float) -> float:
        cap = self.columns.params.topic_score_cap
        return cap if 0 < cap < topic_sum else topic_sum

    def total(self, row: int, topics: float) -> float:
        """The score; ``topics`` is the sum over topics after the cap."""
        params = self.columns.params
        total = topics + self.app.item(row) * params.app_specific_weight
        total += self.colocation.item(row) * params.ip_colocation_factor_weight
        excess = max(self.behaviour.item(row) - params.behaviour_penalty_threshold, 0.0)
        total += excess * excess * params.behaviour_penalty_weight
        excess = max(self.slow.item(row) - params.slow_peer_threshold, 0.0)
        total += excess * params.slow_peer_weight
        return total

    def _deficit(self, column: int, row: int) -> float:
        if not self.active[column, row]:
            return 0.0
        threshold = self.columns.topics[column].mesh_message_deliveries_threshold
        return max(threshold - self.mesh.item(column, row), 0.0)

    # Scores of all rows

    def recompute(self) -> tuple[list[float], list[float]]:
        """Bring everything up to date; by row, the sum over topics after the cap, and the score."""
        topics = self._topic_sums()
        params, rows = self.columns.params, slice(self._rows)
        if params.topic_score_cap > 0:
            np.minimum(topics, params.topic_score_cap, out=topics)
        totals = topics + self.app[rows] * params.app_specific_weight
        totals += self.colocation[rows] * params.ip_colocation_factor_weight
        excess = np.maximum(self.behaviour[rows] - params.behaviour_penalty_threshold, 0.0)
        totals += excess * excess * params.behaviour_penalty_weight
        excess = np.maximum(self.slow[rows] - params.slow_peer_threshold, 0.0)
        totals += excess * params.slow_peer_weight
        return topics.tolist(), totals.tolist()

    def _topic_sums(self) -> Floats:
        columns = self.columns
        used = (slice(len(columns)), slice(self._rows))
        score = self.contribution[used]
        np.floor(self.mesh_time[used] / columns.quantum, out=score)
        np.minimum(score, columns.time_cap, out=score)
        score *= columns.time_weight
        term = self.first[used] * columns.first_weight
        score += term
        np.subtract(columns.mesh_threshold, self.mesh[used], out=term)
        np.maximum(term, 0.0, out=term)
        term *= self.active[used]
        term *= term
        term *= columns.mesh_weight
        score += term
        np.multiply(self.failure[used], columns.failure_weight, out=term)
        score += term
        np.multiply(self.invalid[used], self.invalid[used], out=term)
        term *= columns.invalid_weight
        score += term
        score *= columns.weight
        total = np.zeros(self._rows)
        for row in score:  # one by one, unlike np.sum
            total += row
        return total
