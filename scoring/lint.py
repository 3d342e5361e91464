"""Finds scoring parameters under which a peer can misbehave for ever.

A penalty that is on and cannot bite is a *finding*: whatever the peer does in that
way, its score never falls below the mesh threshold, which would end it, as long as
it is perfect in all else (`bruit.scoring.adversary`). That is the weakness of
CVE-2022-47547 (arXiv:2212.05197, 2311.08859), which prysm's parameters had.
Findings, too, are honest peers that fall below 0. Behaviour that is not scored at
all, its weight being 0, is a *note*: somebody decided so.

How much misbehaviour is too much where a little of it must be forgiven:

- more than half of a topic's messages withheld, of as many as P3 expects
  (`adversary.expected_rate`: where there are more, the peer may withhold more);
- an invalid message, or a protocol violation, a minute.

What is forgiven for ever below that is told as a *tolerance*. Thresholds other than
that of the mesh are not looked at.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from bruit.scoring.adversary import (
    Adversary,
    Behaviour,
    Kind,
    cycle,
    expected_rate,
    faded,
    merits,
)
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.thresholds import Thresholds

MOST_WITHHELD = 0.5  # share of the expected messages; guess: more is no mishap
MOST_OFTEN = 1 / 60  # invalid messages or violations per second; guess: more is no mishap
OTHER_TOPICS = 2  # at least so many that are not named: one to misbehave in, one to shine in
CURVE_POINTS = 12
MAX_TICKS = 100_000  # of a curve; guess, a second of work

DEFAULT_TOPIC = "any topic that is not named"


class Topics(msgspec.Struct, frozen=True):
    """Topics that count alike. ``path`` is where the first one's parameters are set."""

    names: tuple[str, ...]
    path: str
    count: int


class Remedy(msgspec.Struct, frozen=True):
    """A value that would do, if nothing else changes."""

    setting: str  # dotted path
    value: float


class Point(msgspec.Struct, frozen=True):
    """The lowest score between the previous point of a curve and ``seconds``."""

    seconds: float
    score: float


class Finding(msgspec.Struct, frozen=True):
    """``topics`` is None for what concerns the peer as a whole."""

    problem: str
    topics: Topics | None
    setting: str  # dotted path of the parameter to blame
    value: float  # which it has
    reason: str
    remedies: tuple[Remedy, ...]
    behaviour: Behaviour | None  # what the curve shows; None for an honest peer
    curve: tuple[Point, ...]


class Note(msgspec.Struct, frozen=True):
    text: str
    topics: Topics | None
    setting: str


class Tolerance(msgspec.Struct, frozen=True):
    """The most that a peer can do of one kind, for ever."""

    topics: Topics | None
    behaviour: Behaviour
    text: str


class Report(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    tolerances: tuple[Tolerance, ...]


def lint(params: PeerScoreParams, thresholds: Thresholds, topics: Iterable[str] = ()) -> Report:
    """Look for what a peer can do for ever. ``topics`` are further ones in use.

    The parameters must have passed their checks.
    """
    linter = _Linter(params, thresholds, topics)
    linter.look()
    return Report(tuple(linter.findings), tuple(linter.notes), tuple(linter.tolerances))


def alike(params: PeerScoreParams, used: Iterable[str]) -> dict[Topics, TopicScoreParams]:
    """The topics, grouped by what they count."""
    groups: dict[TopicScoreParams, list[str]] = {}
    for name, topic in params.topics.items():
        groups.setdefault(topic, []).append(name)
    found = {
        Topics(
            tuple(names),
            f"scoring.topics.{json.dumps(names[0], ensure_ascii=False)}",
            len(names),
        ): topic
        for topic, names in groups.items()
    }
    if params.default_topic is not None:
        others = [name for name in dict.fromkeys(used) if name not in params.topics]
        count = max(OTHER_TOPICS, len(others))
        found[Topics((DEFAULT_TOPIC,), "scoring.topic", count)] = params.default_topic
    return found


class _Linter:
    def __init__(
        self, params: PeerScoreParams, thresholds: Thresholds, used: Iterable[str]
    ) -> None:
        self.params = params
        self.mesh = thresholds.mesh
        self.topics = alike(params, used)
        self.findings: list[Finding] = []
        self.notes: list[Note] = []
        self.tolerances: list[Tolerance] = []

    def look(self) -> None:
        for topics, topic in self.topics.items():
            if topic.topic_weight == 0:
                self._note(topics, "topic_weight", "nothing that happens there is scored")
                continue
            adversary = self._adversary(topics, topic)
            if topic.mesh_message_deliveries_weight == 0:
                self._note(topics, "mesh_message_deliveries_weight", "silence is not scored")
            else:
                self._look_at_silence(topics, topic, adversary)
                self._look_at_the_innocent(topics, topic)
            if topic.invalid_message_deliveries_weight == 0:
                self._note(
                    topics, "invalid_message_deliveries_weight", "invalid messages are not scored"
                )
            else:
                self._look_at_invalid_messages(topics, topic, adversary)
        if self.params.behaviour_penalty_weight == 0:
            self._note(None, "behaviour_penalty_weight", "protocol violations are not scored")
        else:
            self._look_at_violations()
        default = self.params.default_topic
        if default is not None and self.params.topic_score_cap == 0:
            gain = merits(default, self.params.decay_to_zero).acted
            if gain > 0:
                self._note(
                    None,
                    "topic_score_cap",
                    f"each topic that is not named adds up to {_short(gain)} to a score, without "
                    f"end; {OTHER_TOPICS} of them, or all in use, are taken into account",
                )

    def _adversary(self, topics: Topics, topic: TopicScoreParams) -> Adversary:
        others = [(other, each.count - (each == topics)) for each, other in self.topics.items()]
        return Adversary(self.params, topic, others)

    def _escapes(self, score: float) -> bool:
        return score >= self.mesh

    def _note(self, topics: Topics | None, name: str, text: str) -> None:
        self.notes.append(Note(text, topics, _setting(topics, name)))

    # Silence, and half silence

    def _look_at_silence(
        self, topics: Topics, topic: TopicScoreParams, adversary: Adversary
    ) -> None:
        expected = expected_rate(topic)
        least = adversary.least_delivered(self._escapes)
        if least is None:
            return  # it is never forgiven, which `_look_at_the_innocent` sees
        withheld = max(0.0, 1 - least.count / least.every / expected)
        share = f"{math.floor(withheld * 100)}% of what P3 expects"
        if withheld <= MOST_WITHHELD:
            self.tolerances.append(Tolerance(topics, least, f"withhold {share}"))
            return
        silent = least.count == 0
        problem = (
            "a peer can be silent for ever" if silent else f"a peer can withhold {share} for ever"
        )
        if silent and topics.count > 1:
            problem += f", in {self._at_once(topics, topic)} of the topics at once"
        weight = topic.topic_weight
        cost = -weight * topic.mesh_message_deliveries_weight * self._deficit(topic, least) ** 2
        reason = (
            f"that costs {_short(cost)} at most (topic_weight × weight × deficit²), "
            f"while all else can add {_short(adversary.others.faded)}{self._capped()}: "
            f"the score stays at {_short(adversary.long_run(least))} or above, "
            f"and the peer leaves the mesh below {_short(self.mesh)}"
        )
        too_few = self._delivering(expected * MOST_WITHHELD)
        gain = adversary.others.faded + self._gain(topic, too_few)
        enough = _beyond((gain - self.mesh) / (weight * self._deficit(topic, too_few) ** 2))
        remedies = {"mesh_message_deliveries_weight": -enough}
        trial = self._trial(msgspec.structs.replace(topic, **remedies))
        if trial is not None and trial.setting == "mesh_message_deliveries_activation":
            remedies[trial.setting] = trial.value
        self._find(
            problem,
            topics,
            "mesh_message_deliveries_weight",
            reason,
            remedies,
            adversary,
            least,
        )

    def _at_once(self, topics: Topics, topic: TopicScoreParams) -> int:
        """In how many of topics that count alike a peer can be silent, and perfect elsewhere."""
        silence = Behaviour(Kind.WITHHOLDS)
        penalty = topic.topic_weight * topic.mesh_message_deliveries_weight
        silent = self._gain(topic, silence) + penalty * self._deficit(topic, silence) ** 2
        shining = merits(topic, self.params.decay_to_zero).faded
        others = self._adversary(topics, topic).others.faded
        count = 1
        while count < topics.count and self._escapes(
            others - count * shining + (count + 1) * silent  # with one more
        ):
            count += 1
        return count

    def _delivering(self, rate: float) -> Behaviour:
        """At most ``rate`` messages per tick, evenly."""
        if rate >= 1:
            return Behaviour(Kind.WITHHOLDS, int(rate))
        return Behaviour(Kind.WITHHOLDS, 1, math.ceil(1 / rate))

    def _deficit(self, topic: TopicScoreParams, behaviour: Behaviour) -> float:
        """The largest deficit of mesh deliveries, in the long run."""
        mesh = cycle(
            behaviour.count,
            behaviour.every,
            topic.mesh_message_deliveries_decay,
            self.params.decay_to_zero,
            topic.mesh_message_deliveries_cap,
        )
        return max(0.0, topic.mesh_message_deliveries_threshold - mesh.faded)

    def _gain(self, topic: TopicScoreParams, behaviour: Behaviour) -> float:
        """The least that a peer gains by P1 and P2 in the long run."""
        first = cycle(
            behaviour.count,
            behaviour.every,
            topic.first_message_deliveries_decay,
            self.params.decay_to_zero,
            topic.first_message_deliveries_cap,
        )
        return topic.topic_weight * (
            topic.time_in_mesh_weight * topic.time_in_mesh_cap
            + topic.first_message_deliveries_weight * first.faded
        )

    # Invalid messages and violations

    def _look_at_invalid_messages(
        self, topics: Topics, topic: TopicScoreParams, adversary: Adversary
    ) -> None:
        fastest = adversary.fastest(Kind.INVALID, self._escapes)
        if fastest is None or not self._too_fast(topics, fastest, "send an invalid message"):
            return
        weight = topic.topic_weight
        peak = self._peak(topic.invalid_message_deliveries_decay)
        cost = -weight * topic.invalid_message_deliveries_weight * peak**2
        gain = adversary.others.acted + merits(topic, self.params.decay_to_zero).acted
        reason = (
            f"with one a minute the counter comes to {_short(peak)}, which costs {_short(cost)} "
            f"(topic_weight × weight × counter²), while all else can add {_short(gain)}"
            f"{self._capped()}: the score does not fall below {_short(self.mesh)}"
        )
        enough = _beyond((gain - self.mesh) / (weight * peak**2))
        self._find(
            f"a peer can send an invalid message {self._pace(fastest)} for ever",
            topics,
            "invalid_message_deliveries_weight",
            reason,
            {"invalid_message_deliveries_weight": -enough},
            adversary,
            fastest,
        )

    def _look_at_violations(self) -> None:
        params = self.params
        adversary = Adversary(
            params, None, [(topic, topics.count) for topics, topic in self.topics.items()]
        )
        fastest = adversary.fastest(Kind.VIOLATES, self._escapes)
        if fastest is None or not self._too_fast(None, fastest, "violate the protocol"):
            return
        peak = self._peak(params.behaviour_penalty_decay)
        gain = adversary.others.acted
        if params.topic_score_cap > 0:
            gain = min(gain, params.topic_score_cap)
        reason = (
            f"with one a minute the counter comes to {_short(peak)}, of which "
            f"{_short(params.behaviour_penalty_threshold)} are forgiven, while topics can add "
            f"{_short(gain)}: the score does not fall below {_short(self.mesh)}"
        )
        remedies = {}
        threshold = params.behaviour_penalty_threshold
        if peak <= threshold:
            remedies["behaviour_penalty_threshold"] = threshold = _below(peak / 2)
        enough = _beyond((gain - self.mesh) / (peak - threshold) ** 2)
        if -enough < params.behaviour_penalty_weight:
            remedies["behaviour_penalty_weight"] = -enough
        self._find(
            f"a peer can violate the protocol {self._pace(fastest)} for ever",
            None,
            next(iter(remedies)),
            reason,
            remedies,
            adversary,
            fastest,
        )

    def _too_fast(self, topics: Topics | None, fastest: Behaviour, verb: str) -> bool:
        if fastest.per_second(self.params.decay_interval) >= MOST_OFTEN:
            return True
        self.tolerances.append(Tolerance(topics, fastest, f"{verb} {self._pace(fastest)}"))
        return False

    def _peak(self, decay: float) -> float:
        """What a counter comes to that gains at the rate of `MOST_OFTEN`."""
        per_tick = MOST_OFTEN * self.params.decay_interval
        count, every = (math.ceil(per_tick), 1) if per_tick > 1 else (1, int(1 / per_tick))
        return cycle(count, every, decay, self.params.decay_to_zero).acted

    def _pace(self, behaviour: Behaviour) -> str:
        return pace(behaviour.per_second(self.params.decay_interval))

    def _capped(self) -> str:
        cap = self.params.topic_score_cap
        return f" (topics are capped at {_short(cap)} together)" if cap > 0 else ""

    # The innocent

    def _look_at_the_innocent(self, topics: Topics, topic: TopicScoreParams) -> None:
        trial = self._trial(topic)
        if trial is None:
            return
        setting = _setting(topics, trial.setting)
        pace_kept = self._pace(trial.behaviour)
        self.findings.append(
            Finding(
                problem="an honest peer falls below 0",
                topics=topics,
                setting=setting,
                value=getattr(topic, trial.setting),
                reason=(
                    f"it joins the mesh and delivers a message {pace_kept}, which fills the "
                    f"counter to its cap ({_short(topic.mesh_message_deliveries_cap)}), though it "
                    f"is never the first: {trial.why}, and the score comes to "
                    f"{_short(trial.lowest)}"
                ),
                remedies=(Remedy(setting, trial.value),) if trial.value else (),
                behaviour=None,
                curve=_thinned(trial.points),
            )
        )

    def _trial(self, topic: TopicScoreParams) -> "_Trial | None":
        """How a peer falls below 0 that joins the mesh and does as it should; None: it does not.

        It delivers evenly, so much that its counter fills to the cap. It is never the
        first to deliver, and in no other topic.
        """
        decay, interval = topic.mesh_message_deliveries_decay, self.params.decay_interval
        cap, threshold = topic.mesh_message_deliveries_cap, topic.mesh_message_deliveries_threshold
        rate = cap * (1 - decay)
        count, every = (math.ceil(rate), 1) if rate >= 1 else (1, max(1, int(1 / rate)))
        ticks = int(topic.mesh_message_deliveries_activation / interval) + 2 * every
        ticks += math.ceil(math.log(self.params.decay_to_zero) / math.log(decay))
        counter, short_until, trough = 0.0, 0.0, math.inf
        points: list[Point] = []
        for tick in range(1, ticks + 1):
            counter = faded(counter * decay, self.params.decay_to_zero)
            if tick > ticks - every:
                trough = min(trough, counter)
            seconds = tick * interval
            time = min(seconds // topic.time_in_mesh_quantum, topic.time_in_mesh_cap)
            gain = topic.time_in_mesh_weight * time
            loss = topic.mesh_message_deliveries_weight * max(0.0, threshold - counter) ** 2
            active = seconds > topic.mesh_message_deliveries_activation
            points.append(Point(seconds, topic.topic_weight * (gain + (loss if active else 0.0))))
            if gain + loss < 0:
                short_until = seconds
            if tick % every == 0:
                counter = min(cap, counter + count)
        lowest = min(point.score for point in points)
        if lowest >= 0:
            return None
        behaviour = Behaviour(Kind.WITHHOLDS, count, every)
        if short_until > (ticks - every) * interval:
            return _Trial(
                "mesh_message_deliveries_threshold",
                trough and _below(trough),
                f"even then the counter is at {_short(trough)} before the next message",
                lowest,
                behaviour,
                points,
            )
        return _Trial(
            "mesh_message_deliveries_activation",
            short_until,
            f"the deficit counts before the counter has come to {_short(threshold)}",
            lowest,
            behaviour,
            points,
        )

    def _find(
        self,
        problem: str,
        topics: Topics | None,
        name: str,
        reason: str,
        remedies: dict[str, float],
        adversary: Adversary,
        behaviour: Behaviour,
    ) -> None:
        interval = self.params.decay_interval
        samples = adversary.run(behaviour, self._horizon(adversary.topic, behaviour))
        points = [Point(tick * interval, each.lowest) for tick, each in enumerate(samples, start=1)]
        self.findings.append(
            Finding(
                problem=problem,
                topics=topics,
                setting=_setting(topics, name),
                value=getattr(adversary.topic or self.params, name),
                reason=reason,
                remedies=tuple(
                    Remedy(_setting(topics, each), value) for each, value in remedies.items()
                ),
                behaviour=behaviour,
                curve=_thinned(points),
            )
        )

    def _horizon(self, topic: TopicScoreParams | None, behaviour: Behaviour) -> int:
        """Ticks until a counter that the behaviour moves has come to rest, and a little more."""
        to_zero = self.params.decay_to_zero
        if topic is None or behaviour.kind is Kind.VIOLATES:
            counters = [(1.0, self.params.behaviour_penalty_decay)]
        elif behaviour.kind is Kind.INVALID:
            counters = [(1.0, topic.invalid_message_deliveries_decay)]
        else:
            counters = [
                (topic.mesh_message_deliveries_cap, topic.mesh_message_deliveries_decay),
                (topic.first_message_deliveries_cap, topic.first_message_deliveries_decay),
            ]
        rest = max(math.log(to_zero / max(top, 1.0)) / math.log(decay) for top, decay in counters)
        return min(MAX_TICKS, math.ceil(1.25 * rest) + 2 * behaviour.every)


class _Trial(NamedTuple):
    setting: str  # to blame
    value: float  # that would do; 0: none
    why: str
    lowest: float  # score
    behaviour: Behaviour  # what the honest peer delivers
    points: list[Point]


def _setting(topics: Topics | None, name: str) -> str:
    return f"{'scoring.peer' if topics is None else topics.path}.{name}"


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most `CURVE_POINTS`, each the lowest of its span."""
    span = math.ceil(len(points) / CURVE_POINTS)
    return tuple(
        Point(part[-1].seconds, min(point.score for point in part))
        for part in (points[start : start + span] for start in range(0, len(points), span))
    )


def pace(per_second: float) -> str:
    """A rate in words."""
    seconds = 1 / per_second
    if seconds < 1:
        return f"{per_second:.3g} times a second"
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"every {seconds / unit:.3g} {name}"
    return f"every {seconds:.3g} s"


def _short(number: float) -> str:
    return f"{number:.4g}"


def _beyond(value: float) -> float:
    """Three digits, not below ``value`` (which is positive) and a little above."""
    digits = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value * 1.0001 / digits) * digits:.3g}")


def _below(value: float) -> float:
    """Three digits, not above ``value`` (which is positive)."""
    digits = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / digits) * digits:.3g}")
