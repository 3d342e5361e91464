"""The ``[scoring]`` table: a preset, and what differs from it.

The preset lies below everything else: its numbers are the defaults of the tables
``thresholds``, ``peer``, ``topic`` (all topics) and ``topics."NAME"`` (one). What is
set in ``topic`` holds for the topics that the preset names, too.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from bruit.node.config.toml import dotted
from bruit.scoring.params import PeerScoreParams, PeerTerms, TopicScoreParams
from bruit.scoring.presets import DEFAULT_PRESET, PRESETS, preset
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.names import check_topic

if TYPE_CHECKING:
    from bruit.node.config.schema import NodeConfig

_AS_PRESET = cast("Any", None)  # replaced as soon as the preset is known


class ScoringConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole tables: one that is left out is the preset's."""

    preset: Literal["lux", "filecoin", "ethereum", "paper2020"] = "lux"  # of PRESETS
    thresholds: Thresholds = _AS_PRESET
    peer: PeerTerms = _AS_PRESET
    topic: TopicScoreParams = _AS_PRESET
    topics: dict[str, TopicScoreParams] = _AS_PRESET
    app_scores: tuple[str, ...] = ()
    export: str = ""

    def __post_init__(self) -> None:
        base = preset(self.preset)
        params = base.params
        for name, value in {
            "thresholds": base.thresholds,
            "peer": PeerTerms(
                **{name: getattr(params, name) for name in PeerTerms.__struct_fields__}
            ),
            "topic": params.default_topic or TopicScoreParams(),
            "topics": dict(params.topics),
        }.items():
            if getattr(self, name) is _AS_PRESET:
                msgspec.structs.force_setattr(self, name, value)

    def check(self) -> None:
        """Raise ConfigError at the first value that breaks a rule."""
        self.thresholds.check("scoring.thresholds")
        self.peer.check("scoring.peer")
        self.topic.check("scoring.topic")
        for name, topic in self.topics.items():
            path = dotted(("scoring", "topics", name))
            try:
                check_topic(name)
            except LocalError as problem:
                raise ConfigError(path, str(problem)) from None
            topic.check(path)


def scoring_of(config: "NodeConfig") -> tuple[Thresholds, PeerScoreParams]:
    """What a node scores its peers by."""
    scoring = config.scoring
    terms = {name: getattr(scoring.peer, name) for name in PeerTerms.__struct_fields__}
    default = scoring.topic if _counts(scoring.topic) else None
    return scoring.thresholds, PeerScoreParams(
        topics=scoring.topics, default_topic=default, **terms
    )


def _counts(topic: TopicScoreParams) -> bool:
    """Whether anything done in the topic changes a score."""
    weights = [name for name in topic.__struct_fields__ if name.endswith("_weight")]
    return topic.topic_weight != 0 and any(
        getattr(topic, name) for name in weights if name != "topic_weight"
    )


def lay_preset(tree: dict[str, object], origins: MutableMapping[str, str]) -> None:
    """Put the preset that ``tree`` asks for below what it says under ``scoring``.

    What ``tree`` has wrong is left as it is, for the check of its types to find.
    """
    scoring = tree.get("scoring", {})
    if not isinstance(scoring, dict):
        return
    name = scoring.get("preset", DEFAULT_PRESET)
    if not isinstance(name, str) or name not in PRESETS:
        return
    base = msgspec.to_builtins(msgspec.convert({"preset": name}, ScoringConfig))
    tables = {table: scoring.get(table, {}) for table in ("thresholds", "peer", "topic", "topics")}
    if not all(isinstance(table, dict) for table in tables.values()):
        return
    everywhere, named = tables["topic"], tables["topics"]
    own = {"topics": {}} | {
        table: base[table] | tables[table] for table in ("thresholds", "peer", "topic")
    }
    if "preset" in scoring:
        for table in ("thresholds", "peer", "topic"):
            for key in base[table]:
                origins.setdefault(dotted(("scoring", table, key)), f"preset {name}")
    for topic in {**base["topics"], **named}:
        if not isinstance(named.get(topic, {}), dict):
            own["topics"][topic] = named[topic]
            continue
        below = base["topics"].get(topic, base["topic"]) | everywhere
        own["topics"][topic] = below | named.get(topic, {})
        for key in below:
            source = origins.get(dotted(("scoring", "topic", key)))
            if key not in everywhere and topic in base["topics"] and "preset" in scoring:
                source = f"preset {name}"
            if source is not None:
                origins.setdefault(dotted(("scoring", "topics", topic, key)), source)
    tree["scoring"] = {"topic": own["topic"], **scoring, **own}  # first, to be refused first
