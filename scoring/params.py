"""What a peer score is made of: the weights, decays and bounds of P1 to P7.

Names and meanings are those of gossipsub-v1.1.md, "The Score Function", as are
LP-6420 §5.2's; the slow-peer term is rust-libp2p's. Times are in seconds.
Decays are factors applied once per ``decay_interval``; `decay_factor` turns a
time into one. The defaults leave every term off: a set of parameters comes from
`bruit.scoring.presets` or from an operator who knows the rates of a network.

`check` applies go-libp2p-pubsub's rules (score_params.go, its strict mode): what
belongs to a term binds only where the term's weight is not 0. Beyond them: a cap
of mesh deliveries below their threshold is refused, since every peer would be in
deficit for ever; the conditions of P3 bind for P3b too, which is made of its
deficits; no number may be infinite or NaN.
"""

import hashlib
import ipaddress
import json
import math
from collections.abc import Mapping

import msgspec

from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError, LocalError

DECAY_INTERVAL = 1.0  # seconds; the specification's and go-libp2p-pubsub's default
DECAY_TO_ZERO = 0.01  # the same
MIN_SECONDS = 1.0  # of a decay interval, and of P3's activation; go-libp2p-pubsub's


class TopicScoreParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one topic counts."""

    topic_weight: float = 1.0
    # P1: time in our mesh, in quanta, up to a cap
    time_in_mesh_weight: float = 0.0
    time_in_mesh_quantum: float = 1.0  # seconds
    time_in_mesh_cap: float = 3600.0  # quanta
    # P2: messages that it was the first to send
    first_message_deliveries_weight: float = 0.0
    first_message_deliveries_decay: float = 0.5
    first_message_deliveries_cap: float = 100.0
    # P3: messages that it sent while in our mesh, first or nearly so; the square of the deficit
    mesh_message_deliveries_weight: float = 0.0
    mesh_message_deliveries_decay: float = 0.5
    mesh_message_deliveries_cap: float = 100.0
    mesh_message_deliveries_threshold: float = 20.0
    mesh_message_deliveries_window: float = 0.01  # seconds after validation
    mesh_message_deliveries_activation: float = 5.0  # seconds in the mesh
    # P3b: the deficits that it left our mesh with
    mesh_failure_penalty_weight: float = 0.0
    mesh_failure_penalty_decay: float = 0.5
    # P4: invalid messages, squared
    invalid_message_deliveries_weight: float = 0.0
    invalid_message_deliveries_decay: float = 0.5

    def check(self, path: str = "scoring.topic") -> None:
        """Raise ConfigError naming the first value that breaks a rule."""
        rules = _Rules(self, path)
        rules.finite()
        rules.at_least("topic_weight", 0)
        rules.positive("time_in_mesh_quantum")  # time is divided by it even where P1 is off
        rules.at_least("time_in_mesh_weight", 0)
        if self.time_in_mesh_weight:
            rules.positive("time_in_mesh_cap")
        rules.at_least("first_message_deliveries_weight", 0)
        if self.first_message_deliveries_weight:
            rules.fraction("first_message_deliveries_decay")
            rules.positive("first_message_deliveries_cap")
        rules.at_most("mesh_message_deliveries_weight", 0)
        rules.at_most("mesh_failure_penalty_weight", 0)
        rules.at_least("mesh_message_deliveries_window", 0)
        if self.mesh_message_deliveries_weight or self.mesh_failure_penalty_weight:
            rules.fraction("mesh_message_deliveries_decay")
            rules.positive("mesh_message_deliveries_cap")
            rules.positive("mesh_message_deliveries_threshold")
            rules.at_least("mesh_message_deliveries_activation", MIN_SECONDS)
            if self.mesh_message_deliveries_cap < self.mesh_message_deliveries_threshold:
                rules.refuse(
                    "mesh_message_deliveries_cap",
                    "≥ mesh_message_deliveries_threshold "
                    f"({self.mesh_message_deliveries_threshold}): "
                    "no peer could ever deliver enough",
                )
        if self.mesh_failure_penalty_weight:
            rules.fraction("mesh_failure_penalty_decay")
        rules.at_most("invalid_message_deliveries_weight", 0)
        rules.fraction("invalid_message_deliveries_decay")  # whatever the weight, as in go


class PeerTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a whole peer counts, beside its topics."""

    topic_score_cap: float = 0.0  # most that all topics together can add; 0: no cap
    # P5: what plugins say
    app_specific_weight: float = 1.0
    # P6: peers that share an IP address, beyond a threshold, squared
    ip_colocation_factor_weight: float = 0.0
    ip_colocation_factor_threshold: int = 1  # peers
    ip_colocation_factor_whitelist: tuple[str, ...] = ()  # CIDR blocks
    # P7: protocol violations, beyond a threshold, squared
    behaviour_penalty_weight: float = 0.0
    behaviour_penalty_threshold: float = 0.0
    behaviour_penalty_decay: float = 0.5
    # Frames that it was too slow to take, beyond a threshold (rust-libp2p)
    slow_peer_weight: float = 0.0
    slow_peer_threshold: float = 0.0
    slow_peer_decay: float = 0.5
    decay_interval: float = DECAY_INTERVAL
    decay_to_zero: float = DECAY_TO_ZERO  # counters below it become 0
    retain_score: float = 3600.0  # seconds a disconnected peer's score is kept; guess
    seen_message_ttl: float = 120.0  # seconds a delivery is remembered (go: SeenMsgTTL)

    def check(self, path: str = "scoring.peer") -> None:
        """Raise ConfigError naming the first value that breaks a rule."""
        rules = _Rules(self, path)
        rules.finite()
        rules.at_least("topic_score_cap", 0)
        rules.at_most("ip_colocation_factor_weight", 0)
        if self.ip_colocation_factor_weight:
            rules.at_least("ip_colocation_factor_threshold", 1)
        for index, block in enumerate(self.ip_colocation_factor_whitelist):
            try:
                ipaddress.ip_network(block)
            except ValueError as problem:
                raise ConfigError(
                    f"{path}.ip_colocation_factor_whitelist[{index}]",
                    f"{block!r} must be a CIDR block, such as 192.0.2.0/24: {problem}",
                ) from None
        for term in ("behaviour_penalty", "slow_peer"):
            rules.at_most(f"{term}_weight", 0)
            rules.at_least(f"{term}_threshold", 0)
            if getattr(self, f"{term}_weight"):
                rules.fraction(f"{term}_decay")
        rules.at_least("decay_interval", MIN_SECONDS)
        rules.fraction("decay_to_zero")
        rules.at_least("retain_score", 0)
        rules.positive("seen_message_ttl")


class PeerScoreParams(PeerTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a score is computed from."""

    topics: Mapping[str, TopicScoreParams] = {}
    default_topic: TopicScoreParams | None = None  # of topics not named; None: they do not count

    def topic(self, name: str) -> TopicScoreParams | None:
        return self.topics.get(name, self.default_topic)

    def check(self, path: str = "scoring") -> None:
        """Raise ConfigError naming the first value that breaks a rule, topics first."""
        for name, topic in self.topics.items():
            topic.check(f"{path}.topics.{json.dumps(name, ensure_ascii=False)}")
        if self.default_topic is not None:
            self.default_topic.check(f"{path}.default_topic")
        super().check(path)


class _Rules:
    """The rules of one table of numbers. Each raises ConfigError when broken."""

    def __init__(self, table: msgspec.Struct, path: str) -> None:
        self._table = table
        self._path = path

    def refuse(self, name: str, rule: str) -> None:
        raise ConfigError(f"{self._path}.{name}", f"{getattr(self._table, name)} must be {rule}")

    def finite(self) -> None:
        for name in self._table.__struct_fields__:
            value = getattr(self._table, name)
            if isinstance(value, float) and not math.isfinite(value):
                self.refuse(name, "a finite number")

    def at_least(self, name: str, bound: float) -> None:
        if getattr(self._table, name) < bound:
            self.refuse(name, f"≥ {bound:g}")

    def at_most(self, name: str, bound: float) -> None:
        if getattr(self._table, name) > bound:
            self.refuse(name, f"≤ {bound:g}")

    def positive(self, name: str) -> None:
        if getattr(self._table, name) <= 0:
            self.refuse(name, "> 0")

    def fraction(self, name: str) -> None:
        if not 0 < getattr(self._table, name) < 1:
            self.refuse(name, "between 0 and 1, and neither")


def decay_factor(
    seconds: float, interval: float = DECAY_INTERVAL, to_zero: float = DECAY_TO_ZERO
) -> float:
    """The factor that, once per ``interval``, takes 1 to ``to_zero`` in ``seconds``.

    Part of an interval does not count (go: ScoreParameterDecayWithBase). Raises
    LocalError when ``seconds`` hold no whole interval.
    """
    if not (math.isfinite(seconds) and interval > 0 and seconds >= interval):
        raise LocalError(f"{seconds} s cannot be a decay time: one interval is {interval} s")
    ticks = seconds // interval
    return float(to_zero ** (1 / ticks))


def params_hash(params: PeerScoreParams, thresholds: Thresholds) -> str:
    """64 hexadecimal digits that say which scoring a history was recorded under.

    SHA-256 over JSON with sorted keys and all numbers as their types say: independent
    of the run, of the order in which topics were named, and of 1 or 1.0.
    """
    record = {
        "params": msgspec.convert(msgspec.to_builtins(params), PeerScoreParams),
        "thresholds": msgspec.convert(msgspec.to_builtins(thresholds), Thresholds),
    }
    text = json.dumps(msgspec.to_builtins(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
