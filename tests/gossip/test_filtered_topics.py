"""A router with a topic filter: what it joins, and what it notes of its peers."""

import pytest

from bruit.node.gossip.params import RouterConfig
from bruit.topics.errors import LocalError
from tests.gossip.handheld import Handheld
from tests.gossip.neighbourhood import TOPIC, network


def test_a_topic_that_the_filter_forbids_is_not_joined_and_not_noted_of_peers() -> None:
    handheld = Handheld(RouterConfig(topic_filter=("/lux/*",)))
    with pytest.raises(LocalError, match="not allowed by the topic filter"):
        handheld.subscribe(TOPIC)
    handheld.subscribe("/lux/blocks")
    handheld.connect("peer", TOPIC, "/lux/blocks", "/lux/other")
    assert list(handheld.router.statistics().subscribers) == ["/lux/blocks", "/lux/other"]


def test_two_nodes_see_of_each_other_what_both_filters_allow() -> None:
    """go: TestSubscriptionFilterRPC: test1 and test2 here, test2 and test3 there."""
    net = network()
    (one,) = net.add_nodes(1, config=RouterConfig(topic_filter=("test1", "test2")))
    (two,) = net.add_nodes(1, config=RouterConfig(topic_filter=("test2", "test3")))
    for node, topics in ((one, ("test1", "test2")), (two, ("test2", "test3"))):
        for topic in topics:
            net.subscribe(node, topic)
    with pytest.raises(LocalError):
        net.subscribe(one, "test3")
    net.connect(one, two)
    net.run_for(1.0)
    assert one.router.statistics().subscribers == {"test2": (two.peer_id,)}
    assert two.router.statistics().subscribers == {"test2": (one.peer_id,)}
