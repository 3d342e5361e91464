"""Parameters: the defaults of LP-6420, and every relation that a configuration must keep."""

import math
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.router import Router
from bruit.topics.errors import ConfigError
from bruit.topics.message import SignaturePolicy, id_from_content

BOOTSTRAPPER: dict[str, Any] = {"d": 0, "d_lo": 0, "d_hi": 0, "d_score": 0, "d_out": 0}
FLOATS = [field.name for field in msgspec.structs.fields(GossipParams) if field.type is float]
NUMBERS = [field.name for field in msgspec.structs.fields(GossipParams) if field.type is not bool]


def params(**changes: Any) -> GossipParams:
    return GossipParams(**changes)


def test_the_defaults_are_those_of_lp_6420() -> None:
    defaults = GossipParams()
    assert (defaults.d, defaults.d_lo, defaults.d_hi) == (6, 4, 12)
    assert (defaults.d_score, defaults.d_out, defaults.d_lazy) == (4, 2, 6)
    assert defaults.heartbeat_interval == 0.7
    assert defaults.fanout_ttl == 60.0
    assert (defaults.history_length, defaults.history_gossip) == (5, 3)


def test_the_other_defaults_are_those_of_the_specification_and_go() -> None:
    defaults = GossipParams()
    assert defaults.prune_backoff == 60.0  # gossipsub-v1.1.md, parameters
    assert defaults.unsubscribe_backoff == 10.0  # the same
    assert defaults.gossip_factor == 0.25  # the same
    assert defaults.flood_publish is True  # the same
    assert defaults.peer_exchange is False
    assert (defaults.opportunistic_graft_ticks, defaults.opportunistic_graft_peers) == (60, 2)
    assert defaults.direct_connect_ticks == 300
    assert (defaults.max_ihave_messages, defaults.max_ihave_length) == (10, 5000)
    assert (defaults.gossip_retransmission, defaults.iwant_followup) == (3, 3.0)
    assert (defaults.max_idontwant_length, defaults.max_idontwant_messages) == (10, 1000)
    assert (defaults.idontwant_threshold, defaults.idontwant_ttl) == (1024, 3)
    assert (defaults.seen_ttl, defaults.max_rpc_size) == (120.0, 1 << 20)


def test_the_defaults_are_accepted() -> None:
    GossipParams().check()
    RouterConfig().check()


def test_all_degrees_zero_make_a_bootstrapper_and_are_accepted() -> None:
    """go: TestGossipSubBootstrapParamsValidate"""
    params(**BOOTSTRAPPER).check()


@pytest.mark.parametrize(
    ("changes", "name", "value", "rule"),
    [
        ({"d_lo": 7}, "d_lo", "7", "≤ d (6)"),
        ({"d_hi": 5}, "d_hi", "5", "≥ d (6)"),
        ({"d_hi": 1, "d_score": 10}, "d_hi", "1", "≥ d (6)"),  # go: TestGossipSubParamsValidate
        ({"d_score": 13}, "d_score", "13", "≤ d_hi (12)"),
        ({"d_lo": 2, "d_out": 2}, "d_out", "2", "< d_lo (2)"),
        ({"d_out": 3}, "d_out", "3", "< d / 2 (3.0)"),
        ({"d": 5, "d_lo": 4, "d_out": 3}, "d_out", "3", "< d / 2 (2.5)"),
        ({**BOOTSTRAPPER, "d_out": 1}, "d_out", "1", "0 where d is 0"),
        ({**BOOTSTRAPPER, "d_lo": 1}, "d_lo", "1", "≤ d (0)"),
        ({"d_lo": 0}, "d_out", "2", "< d_lo (0)"),
        ({"history_gossip": 6}, "history_gossip", "6", "≤ history_length (5)"),
        ({"history_length": 0, "history_gossip": 0}, "history_length", "0", "≥ 1"),
        ({"gossip_factor": 1.01}, "gossip_factor", "1.01", "≤ 1"),
        ({"heartbeat_interval": 0.009}, "heartbeat_interval", "0.009", "≥ 0.01 s"),
        ({"opportunistic_graft_ticks": 0}, "opportunistic_graft_ticks", "0", "≥ 1"),
        ({"direct_connect_ticks": 0}, "direct_connect_ticks", "0", "≥ 1"),
        ({"seen_capacity": 0}, "seen_capacity", "0", "≥ 1"),
        ({"max_idontwant_length": 0}, "max_idontwant_length", "0", "≥ 1"),
        ({"max_rpc_size": 1023}, "max_rpc_size", "1023", "≥ 1024"),
        ({"prune_backoff": 3600.5}, "prune_backoff", "3600.5", "≤ 3600 s"),
        ({"unsubscribe_backoff": 3601.0}, "unsubscribe_backoff", "3601.0", "≤ 3600 s"),
    ],
)
def test_a_broken_relation_is_refused_with_its_place_value_and_rule(
    changes: dict[str, Any], name: str, value: str, rule: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        params(**changes).check()
    assert refusal.value.path == f"gossip.{name}"
    assert str(refusal.value) == f"gossip.{name}: {value} must be {rule}"


@pytest.mark.parametrize(
    "changes",
    [
        {"d_lo": 6},
        {"d_hi": 6, "d_score": 6},
        {"d_score": 12},
        {"d": 5, "d_lo": 3, "d_out": 2},
        {"d": 1, "d_lo": 1, "d_hi": 1, "d_score": 1, "d_out": 0},
        {"history_gossip": 5},
        {"history_length": 1, "history_gossip": 0},
        {"gossip_factor": 1.0},
        {"gossip_factor": 0.0, "d_lazy": 0},
        {"heartbeat_interval": 0.01},
        {"prune_backoff": 3600.0, "unsubscribe_backoff": 3600.0},
        {"max_rpc_size": 1024},
        {"heartbeat_delay": 0.0},
    ],
)
def test_a_value_on_the_border_is_accepted(changes: dict[str, Any]) -> None:
    params(**changes).check()


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_may_be_negative(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^gossip.{name}: -1 must not be negative$"):
        params(**{name: -1}).check()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FLOATS)
def test_no_number_may_be_infinite_or_none_at_all(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^gossip.{name}: {value} must be finite$"):
        params(**{name: value}).check()


def keeps_the_rules(d: int, d_lo: int, d_hi: int, d_score: int, d_out: int) -> bool:
    """go-libp2p-pubsub's rules, but that ``d / 2`` is not rounded down and only d decides
    whether there is a mesh at all."""
    if d == 0:
        return d_lo == d_out == 0 and d_score <= d_hi
    return d_score <= d_hi and d_lo <= d <= d_hi and d_out < d_lo and 2 * d_out < d


DEGREE = st.integers(0, 9)


@given(DEGREE, DEGREE, DEGREE, DEGREE, DEGREE)
def test_degrees_are_accepted_exactly_where_they_keep_the_rules(
    d: int, d_lo: int, d_hi: int, d_score: int, d_out: int
) -> None:
    degrees = params(d=d, d_lo=d_lo, d_hi=d_hi, d_score=d_score, d_out=d_out)
    if keeps_the_rules(d, d_lo, d_hi, d_score, d_out):
        degrees.check()
    else:
        with pytest.raises(ConfigError):
            degrees.check()


def test_the_place_that_an_error_names_begins_where_the_caller_says() -> None:
    with pytest.raises(ConfigError) as refusal:
        params(d_lo=7).check("nodes.3.gossip")
    assert refusal.value.path == "nodes.3.gossip.d_lo"


def test_a_router_is_not_built_from_parameters_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match=r"^gossip.d_lo: 7 must be ≤ d \(6\)$"):
        Router(RouterConfig(params=params(d_lo=7)), b"", Random(1))


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (RouterConfig(signature_policy=SignaturePolicy.STRICT_NO_SIGN), "(default)"),
        (
            RouterConfig(
                signature_policy=SignaturePolicy.STRICT_NO_SIGN,
                topics={"blocks": TopicParams()},
                default_topic=TopicParams(message_id=id_from_content),
            ),
            "blocks",
        ),
    ],
)
def test_unsigned_messages_must_be_named_by_content(config: RouterConfig, place: str) -> None:
    with pytest.raises(ConfigError, match="name them by content") as refusal:
        config.check()
    assert refusal.value.path == f'topics."{place}".message_id'


def test_unsigned_messages_named_by_content_are_accepted() -> None:
    by_content = TopicParams(message_id=id_from_content)
    RouterConfig(
        signature_policy=SignaturePolicy.STRICT_NO_SIGN,
        topics={"blocks": by_content},
        default_topic=by_content,
    ).check()


def test_a_topic_that_is_not_configured_has_the_default_parameters() -> None:
    blocks, others = TopicParams(max_message_size=10), TopicParams(max_message_size=20)
    config = RouterConfig(topics={"blocks": blocks}, default_topic=others)
    assert config.topic("blocks") is blocks
    assert config.topic("block") is others


def test_the_largest_frame_read_holds_the_largest_message_of_any_topic() -> None:
    small = TopicParams(max_message_size=1000)
    large = TopicParams(max_message_size=5_000_000)
    assert RouterConfig(topics={"a": large}, default_topic=small).max_frame() > 5_000_000
    assert RouterConfig(topics={"a": small}, default_topic=large).max_frame() > 5_000_000
    split_at = params(max_rpc_size=6_000_000)
    assert RouterConfig(params=split_at, default_topic=small).max_frame() == 6_000_000


def test_a_frame_as_large_as_js_sends_is_read_whatever_the_topics() -> None:
    """js-libp2p, maxInboundDataLength and maxOutboundDataLength: 4 MiB."""
    small = TopicParams(max_message_size=1000)
    assert RouterConfig(default_topic=small).max_frame() == 4 * 1024 * 1024
