"""Which topics of peers are taken note of.

The numbers are those of go-libp2p-pubsub (subscription_filter_test.go) and
rust-libp2p (subscription_filter.rs).
"""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.gossip.params import MAX_SUBSCRIPTIONS_PER_RPC
from bruit.node.gossip.topic_filter import TopicFilter
from bruit.topics.errors import ConfigError, RemoteError


@pytest.mark.parametrize("patterns", [["test1", "test2"], ["*1", "test2*"]], ids=["names", "globs"])
def test_two_of_three_topics_are_allowed_and_noted(patterns: list[str]) -> None:
    allowed = TopicFilter(patterns)
    assert [allowed.allows(topic) for topic in ("test1", "test2", "test3")] == [True, True, False]
    said = [("test1", True), ("test2", True), ("test3", True)]
    assert allowed.subscriptions(said) == [("test1", True), ("test2", True)]
    with pytest.raises(RemoteError, match="3 subscriptions in a frame: the limit is 2"):
        TopicFilter(patterns, limit=2).subscriptions(said)
    assert TopicFilter(patterns, limit=3).subscriptions(said)


def test_a_repetition_is_left_out_and_a_contradiction_takes_both_back() -> None:
    said = [("test1", True), ("test1", True), ("test2", True), ("test2", False), ("test3", True)]
    assert TopicFilter(["test1", "test2"]).subscriptions(said) == [("test1", True)]


def test_what_is_said_after_a_contradiction_counts_again() -> None:
    said = [("t1", False), ("t2", False), ("t2", True), ("t1", True), ("t1", False)]
    assert TopicFilter(["*"]).subscriptions(said) == [("t1", False)]


def test_the_limit_is_on_what_is_said_not_on_what_is_left() -> None:
    said = [("t1", True), ("t1", False), ("t1", True)]
    with pytest.raises(RemoteError):
        TopicFilter(["*"], limit=2).subscriptions(said)


def test_leaving_topics_is_noted_like_joining_them() -> None:
    said = [("t4", True), ("t2", True), ("t3", True), ("t0", False), ("t1", False)]
    assert TopicFilter(["t0", "t1", "t2", "t3"]).subscriptions(said) == said[1:]


def test_a_star_stands_for_any_text_or_none() -> None:
    said = [("tt", True), ("et3t3te", True), ("abcdefghijklmnopqrstuvwxyz", True)]
    assert TopicFilter(["*t*t*"]).subscriptions(said) == said[:2]
    assert TopicFilter(["t*t"]).subscriptions(said) == said[:1]


def test_without_any_pattern_nothing_is_allowed() -> None:
    assert TopicFilter([]).subscriptions([("topic", True)]) == []


def test_the_default_limit_is_that_of_a_frame() -> None:
    said = [(f"t{number}", True) for number in range(MAX_SUBSCRIPTIONS_PER_RPC + 1)]
    allowed = TopicFilter(["t1"])
    assert allowed.subscriptions(said[:-1]) == [("t1", True)]
    with pytest.raises(RemoteError):
        allowed.subscriptions(said)


# Patterns


@pytest.mark.parametrize(
    ("pattern", "topic", "allowed"),
    [
        ("/lux/mainnet/*", "/lux/mainnet/relay/headers/blk", True),
        ("/lux/mainnet/*", "/lux/mainnet/", True),
        ("/lux/mainnet/*", "/lux/mainnet", False),
        ("/lux/mainnet/*", "/lux/testnet/relay", False),
        ("/lux/*/relay/*", "/lux/x/relay/y/z", True),
        ("/lux/*/relay/*", "/lux/relay/y", False),
        ("*/beacon_block/*", "/eth2/4a26c58b/beacon_block/ssz_snappy", True),
        ("*", "anything", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "acb", False),
        ("a*b*c", "abbc", True),
        ("**", "x", True),
        ("[ab]?.", "a1x", False),
        ("[ab]?.", "[ab]?.", True),
    ],
)
def test_a_pattern_allows(pattern: str, topic: str, allowed: bool) -> None:
    assert TopicFilter([pattern]).allows(topic) is allowed


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=12))
def test_patterns_mean_what_the_regular_expression_would(pattern: str, topic: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert TopicFilter([pattern]).allows(topic) is bool(re.fullmatch(expression, topic))


def test_no_topic_takes_long_to_be_refused() -> None:
    """A backtracking matcher would take longer than anybody lives."""
    allowed = TopicFilter(["*" + "a*" * 100 + "b"])
    began = time.perf_counter()
    assert not allowed.allows("a" * 255 + "c")
    assert not allowed.allows("a" * 99 + "b")
    assert allowed.allows("a" * 100 + "b")
    assert time.perf_counter() - began < 1.0


@given(st.lists(st.tuples(st.sampled_from(["t1", "t2", "u"]), st.booleans())))
def test_a_frame_counts_per_topic_what_is_not_taken_back(said: list[tuple[str, bool]]) -> None:
    noted = TopicFilter(["t*"]).subscriptions(said)
    assert all(topic != "u" for topic, _ in noted)
    for topic in ("t1", "t2"):
        stance: bool | None = None
        for subscribes in [value for name, value in said if name == topic]:
            stance = subscribes if stance in (None, subscribes) else None
        assert [value for name, value in noted if name == topic] == (
            [] if stance is None else [stance]
        )


@pytest.mark.parametrize("pattern", ["", "a\nb", "x" * 257])
def test_a_pattern_that_no_topic_could_match_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicFilter(["fine", pattern], path="node.topics")
    assert caught.value.path == "node.topics"


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="allow 1 or more"):
        TopicFilter(["*"], limit=0)
