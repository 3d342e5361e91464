"""Validators: what they let through, and what happens when more comes than they can judge."""

import pytest

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver, Dropped, Validate
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.sim import SimNetwork, SimNode, topologies
from bruit.scoring.seam import Refusal
from bruit.topics.validation import ACCEPTED, Validation, ignore, reject
from tests.gossip.handheld import Handheld, of
from tests.gossip.neighbourhood import STEP, TOPIC, fanout, introduce, mesh, network, payloads

CHECKED = RouterConfig(default_topic=TopicParams(validated=True))
FORBIDDEN = b"forbidden"
SAID = [b"allowed", b"allowed as well", b"openly forbidden", b"f0rb1dden, in other letters"]


def two_nodes(topic: str = TOPIC) -> tuple[SimNetwork, SimNode, SimNode]:
    """A publisher and a judge, connected, in each other's mesh."""
    net = network()
    publisher, judge = net.add_nodes(2, config=CHECKED)
    net.connect(publisher, judge)
    net.run_for(STEP)
    net.subscribe_all(topic)
    net.run_for(STEP)
    assert mesh(judge, topic) == {publisher.peer_id}
    return net, publisher, judge


def test_what_a_validator_forbids_is_filtered_out_and_the_rest_delivered() -> None:
    net, publisher, judge = two_nodes()
    judge.set_validator(
        TOPIC, lambda topic, data: reject("forbidden") if FORBIDDEN in data else ACCEPTED
    )
    for data in SAID:
        net.publish(publisher, TOPIC, data)
        net.run_for(STEP)
    assert payloads(judge) == [SAID[0], SAID[1], SAID[3]]
    assert payloads(publisher) == SAID


@pytest.mark.parametrize("verdict", [ACCEPTED, reject("no"), ignore("not now")])
def test_only_an_accepted_message_is_delivered_and_forwarded(verdict: Validation) -> None:
    net, publisher, judge = two_nodes()
    [third] = introduce(net, judge, ["third"])
    judge.set_validator(TOPIC, lambda topic, data: verdict)
    net.publish(publisher, TOPIC, b"data")
    net.run_for(STEP)
    accepted = verdict is ACCEPTED
    assert payloads(judge) == [b"data"] * accepted
    assert len(third.messages()) == accepted


def test_a_validator_of_two_topics_may_pass_one_and_reject_the_other() -> None:
    """Published by a node that is in neither topic, to a fanout each."""
    net = network()
    quiet = RouterConfig(params=GossipParams(flood_publish=False))
    [publisher] = net.add_nodes(1, config=quiet)
    [judge] = net.add_nodes(1, config=CHECKED)
    for topic in ("foo", "bar"):
        net.subscribe(judge, topic)
        judge.set_validator(topic, lambda topic, data: ACCEPTED if topic == "foo" else reject("no"))
    net.connect(publisher, judge)
    net.run_for(STEP)
    for topic in ("foo", "bar"):
        assert net.publish(publisher, topic, b"data").peers == (judge.peer_id,)
    net.run_for(STEP)
    assert payloads(judge, "foo") == [b"data"]
    assert payloads(judge, "bar") == []
    for topic in ("foo", "bar"):
        assert fanout(publisher, topic) == {judge.peer_id}
        assert mesh(publisher, topic) == mesh(judge, topic) == fanout(judge, topic) == set()


@pytest.mark.parametrize("at_once", [10, 2])
def test_one_message_more_than_can_be_judged_at_once_is_dropped_at_nobodys_cost(
    at_once: int,
) -> None:
    topic = TopicParams(validated=True, max_validating=at_once)
    handheld = Handheld(RouterConfig(default_topic=topic))
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    said = [handheld.write("author", TOPIC, b"message %d" % each) for each in range(at_once + 1)]
    waiting, dropped = [], []
    for message in said:
        actions = handheld.receive_message(peer, message)
        waiting += of(actions, Validate)
        dropped += of(actions, Dropped)
    assert [validate.message for validate in waiting] == said[:-1]
    assert dropped == [Dropped(peer, TOPIC, drops.VALIDATION_FULL)]
    delivered = [of(handheld.judge(validate), Deliver)[0].message for validate in waiting]
    assert delivered == said[:-1]
    refusals = [(each.peer, each.refusal) for each in handheld.scores.about("refused")]
    assert refusals == [(peer, Refusal.QUEUE_FULL)]
    assert handheld.scores.penalties(peer) == []


def test_validators_with_narrow_queues_and_delays_let_everything_through() -> None:
    """Ten nodes and two topics: one judged in no time, one in up to 100 ms."""
    narrow = TopicParams(validated=True, max_validating=10)
    net = network()
    nodes = net.add_nodes(10, config=RouterConfig(default_topic=narrow))
    for node in nodes:
        node.set_validator("slow", lambda topic, data: ACCEPTED, delay=0.1)
        node.set_validator("quick", lambda topic, data: ACCEPTED)
    net.connect_all(topologies.sparse_random(10, 3, net.rng))
    for topic in ("slow", "quick"):
        net.subscribe_all(topic)
    net.run_for(1.0)
    said = [b"message %d" % number for number in range(10)]
    for node, data in zip(nodes, said, strict=True):
        for topic in ("slow", "quick"):
            net.publish(node, topic, data)
            net.run_for(1.0)
    for topic in ("slow", "quick"):
        assert [payloads(node, topic) for node in nodes] == [said] * 10
