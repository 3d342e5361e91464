"""What a peer gets away with that misbehaves in one way and is perfect in every other.

The peer has been in every mesh until P1 is full, is the first to deliver so much
that P2 is at its cap after every tick, and has an application score of 0. From
then on it does one of four things for ever: it delivers only some of a topic's
messages (or none: silence), sends invalid messages in a topic, or violates the
protocol. It spreads what it does evenly, which hurts it least: penalties grow with
the square of their counters.

A tick is one ``decay_interval``: counters decay, then the peer acts. A counter that
gains ``count`` every ``every`` ticks comes to a peak of ``count / (1 − d^every)``,
from which it falls to that times ``d^every``; or to 0, where that is below
``decay_to_zero``. So what a behaviour comes to in the long run is one line of
arithmetic, in which the score is lowest either as the peer acts or as the tick after
has faded its merits. `Adversary.run` steps the same formula from the start.

What grows with time but not with what a peer does (P5, P6) is not looked at.
"""

import math
from collections.abc import Callable, Iterator
from enum import Enum

import msgspec

from bruit.scoring.params import PeerScoreParams, TopicScoreParams

FASTEST = 100.0  # events per second tried at most; guess: any router throttles before
SLOWEST = 1 / 3600  # events per second tried at least: one an hour


class Kind(Enum):
    """A way to misbehave."""

    WITHHOLDS = "withholds messages"
    INVALID = "sends invalid messages"
    VIOLATES = "violates the protocol"


class Behaviour(msgspec.Struct, frozen=True):
    """``count`` events in every ``every``-th tick, for ever.

    An event is a message delivered (`Kind.WITHHOLDS`: all others are withheld, and
    ``count`` 0 is silence), an invalid message, or a violation.
    """

    kind: Kind
    count: int = 0
    every: int = 1

    def per_second(self, interval: float) -> float:
        return self.count / (self.every * interval)


class Samples(msgspec.Struct, frozen=True):
    """The score within one tick: when merits have faded, and when the peer has acted."""

    faded: float
    acted: float

    @property
    def lowest(self) -> float:
        return min(self.faded, self.acted)


def cycle(
    count: int, every: int, decay: float, to_zero: float, cap: float | None = None
) -> Samples:
    """A counter in the long run: before it gains, and after (`Samples.acted`).

    A counter with a cap has been full, one without has been 0: which of the two it
    came from decides whether it ever falls below ``to_zero``.
    """
    fade = decay**every
    peak = count / (1 - fade)
    if cap is not None:
        peak = min(cap, peak)
    if (count if cap is None else peak) * fade < to_zero:
        return Samples(0.0, float(count) if cap is None else min(cap, float(count)))
    return Samples(peak * fade, peak)


class Adversary:
    """One peer that is perfect, but for what it does in ``topic`` (None: beside all topics).

    ``others`` are all further topics, with how many there are of each kind.
    """

    def __init__(
        self,
        params: PeerScoreParams,
        topic: TopicScoreParams | None,
        others: list[tuple[TopicScoreParams, int]],
    ) -> None:
        self.params = params
        self.topic = topic
        perfect = [(merits(other, params.decay_to_zero), count) for other, count in others]
        self.others = Samples(
            sum(each.faded * count for each, count in perfect),
            sum(each.acted * count for each, count in perfect),
        )

    def long_run(self, behaviour: Behaviour) -> float:
        """The lowest that the score falls to, once the behaviour has lasted."""
        params, topic = self.params, self.topic
        to_zero = params.decay_to_zero
        count, every = behaviour.count, behaviour.every
        if behaviour.kind is Kind.VIOLATES:
            bad = cycle(count, every, params.behaviour_penalty_decay, to_zero)
            after = bad.acted * params.behaviour_penalty_decay  # as the next tick begins
            own = _ZERO if topic is None else merits(topic, to_zero)
            return Samples(
                self._score(self.others.faded + own.faded, after),
                self._score(self.others.acted + own.acted, bad.acted),
            ).lowest
        assert topic is not None
        if behaviour.kind is Kind.INVALID:
            own = merits(topic, to_zero)
            bad = cycle(count, every, topic.invalid_message_deliveries_decay, to_zero)
            after = bad.acted * topic.invalid_message_deliveries_decay
            penalty = topic.topic_weight * topic.invalid_message_deliveries_weight
            return Samples(
                self._score(self.others.faded + own.faded + penalty * after**2),
                self._score(self.others.acted + own.acted + penalty * bad.acted**2),
            ).lowest
        first = cycle(
            count,
            every,
            topic.first_message_deliveries_decay,
            to_zero,
            topic.first_message_deliveries_cap,
        )
        mesh = cycle(
            count,
            every,
            topic.mesh_message_deliveries_decay,
            to_zero,
            topic.mesh_message_deliveries_cap,
        )
        # Where messages are rare, the score is lowest in the tick in which the next one comes.
        return self._score(self.others.faded + _topic_score(topic, first.faded, mesh.faded))

    def run(self, behaviour: Behaviour, ticks: int) -> Iterator[Samples]:
        """The score in each of the first ``ticks`` ticks of the behaviour."""
        params, topic = self.params, self.topic or _NOTHING
        to_zero = params.decay_to_zero
        perfect = behaviour.kind is not Kind.WITHHOLDS
        first = topic.first_message_deliveries_cap
        mesh = topic.mesh_message_deliveries_cap
        invalid = violations = 0.0

        def score(others: float) -> float:
            own = _topic_score(topic, first, mesh)
            penalty = topic.topic_weight * topic.invalid_message_deliveries_weight * invalid**2
            return self._score(others + own + penalty, violations)

        for tick in range(1, ticks + 1):
            first = faded(first * topic.first_message_deliveries_decay, to_zero)
            mesh = faded(mesh * topic.mesh_message_deliveries_decay, to_zero)
            invalid = faded(invalid * topic.invalid_message_deliveries_decay, to_zero)
            violations = faded(violations * params.behaviour_penalty_decay, to_zero)
            before = score(self.others.faded)
            events = behaviour.count if tick % behaviour.every == 0 else 0
            match behaviour.kind:
                case Kind.WITHHOLDS:
                    first = min(topic.first_message_deliveries_cap, first + events)
                    mesh = min(topic.mesh_message_deliveries_cap, mesh + events)
                case Kind.INVALID:
                    invalid += events
                case Kind.VIOLATES:
                    violations += events
            if perfect:
                first = topic.first_message_deliveries_cap
                mesh = topic.mesh_message_deliveries_cap
            yield Samples(before, score(self.others.acted))

    def fastest(self, kind: Kind, escapes: Callable[[float], bool]) -> Behaviour | None:
        """The most that ``kind`` can be done, once an hour to `FASTEST`, so that it escapes.

        ``escapes`` says whether a score in the long run is high enough. None: not even
        `SLOWEST` does.
        """

        def every(ticks: int) -> bool:
            return escapes(self.long_run(Behaviour(kind, 1, ticks)))

        def at_once(count: int) -> bool:
            return escapes(self.long_run(Behaviour(kind, count)))

        interval = self.params.decay_interval
        rarest = max(1, round(1 / (SLOWEST * interval)))
        if not every(rarest):
            return None
        if not every(1):
            return Behaviour(kind, 1, _first(every, 1, rarest))
        most = max(1, int(FASTEST * interval))
        return Behaviour(kind, _first(lambda count: not at_once(count), 1, most + 1) - 1)

    def least_delivered(self, escapes: Callable[[float], bool]) -> Behaviour | None:
        """The fewest messages of `topic` that the peer can get away with delivering.

        Silence where it can deliver none; None where even an unbroken counter is not enough.
        """
        assert self.topic is not None
        silence = Behaviour(Kind.WITHHOLDS)
        if escapes(self.long_run(silence)):
            return silence

        def every(ticks: int) -> bool:
            return escapes(self.long_run(Behaviour(Kind.WITHHOLDS, 1, ticks)))

        def at_once(count: int) -> bool:
            return escapes(self.long_run(Behaviour(Kind.WITHHOLDS, count)))

        if every(1):
            memory = _ticks_to(self.params.decay_to_zero, self.topic.mesh_message_deliveries_decay)
            rarest = _first(lambda ticks: not every(ticks), 1, memory + 1)
            return Behaviour(Kind.WITHHOLDS, 1, rarest - 1)
        cap = math.ceil(self.topic.mesh_message_deliveries_cap)
        return Behaviour(Kind.WITHHOLDS, _first(at_once, 1, cap)) if at_once(cap) else None

    def _score(self, topics: float, violations: float = 0.0) -> float:
        params = self.params
        if params.topic_score_cap > 0:
            topics = min(topics, params.topic_score_cap)
        excess = max(0.0, violations - params.behaviour_penalty_threshold)
        return topics + params.behaviour_penalty_weight * excess**2


_ZERO = Samples(0.0, 0.0)
_NOTHING = TopicScoreParams(topic_weight=0.0)


def merits(topic: TopicScoreParams, to_zero: float) -> Samples:
    """What a perfect peer gains in one topic."""
    first, mesh = topic.first_message_deliveries_cap, topic.mesh_message_deliveries_cap
    return Samples(
        _topic_score(
            topic,
            faded(first * topic.first_message_deliveries_decay, to_zero),
            faded(mesh * topic.mesh_message_deliveries_decay, to_zero),
        ),
        _topic_score(topic, first, mesh),
    )


def expected_rate(topic: TopicScoreParams) -> float:
    """Messages per tick that P3 expects: with fewer, however spread, there is a deficit."""
    decay = topic.mesh_message_deliveries_decay
    return topic.mesh_message_deliveries_threshold * (1 - decay) / decay


def _topic_score(topic: TopicScoreParams, first: float, mesh: float) -> float:
    """P1 at its cap, P2 and P3, weighted."""
    deficit = max(0.0, topic.mesh_message_deliveries_threshold - mesh)
    return topic.topic_weight * (
        topic.time_in_mesh_weight * topic.time_in_mesh_cap
        + topic.first_message_deliveries_weight * first
        + topic.mesh_message_deliveries_weight * deficit**2
    )


def faded(counter: float, to_zero: float) -> float:
    """What decay leaves of a counter."""
    return counter if counter >= to_zero else 0.0


def _ticks_to(share: float, decay: float) -> int:
    """Ticks after which a counter has decayed to ``share`` of what it was."""
    return math.ceil(math.log(share) / math.log(decay))


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first number for which it holds, where it then holds for all above; at most ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
