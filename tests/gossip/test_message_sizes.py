"""The largest message of a topic, published and received, without signatures.

Sizes are of the data: an unsigned message adds its topic and a few bytes to them.
"""

import pytest

from bruit.node.gossip.actions import Deliver, Rejected
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.topics.message import SignaturePolicy, id_from_content
from tests.gossip.handheld import Handheld, of

TOPIC = "test"
DEFAULT = TopicParams().max_message_size


def limited(limit: int | None) -> Handheld:
    """A router in the topic with ten peers in it; None: without a limit of the topic's own."""
    by_content = TopicParams(message_id=id_from_content)
    own = {}
    if limit is not None:
        own[TOPIC] = TopicParams(message_id=id_from_content, max_message_size=limit)
    handheld = Handheld(
        RouterConfig(
            signature_policy=SignaturePolicy.STRICT_NO_SIGN, topics=own, default_topic=by_content
        )
    )
    handheld.subscribe(TOPIC)
    for number in range(10):
        handheld.connect(f"peer {number}", TOPIC)
    return handheld


@pytest.mark.parametrize(
    ("limit", "size", "fits"),
    [
        (None, 1024, True),
        (None, DEFAULT + 1, False),
        (2000, 1024, True),
        (2048, 2049, False),
    ],
)
def test_a_message_is_published_up_to_its_topics_limit(
    limit: int | None, size: int, fits: bool
) -> None:
    handheld = limited(limit)
    outcome, _ = handheld.publish(TOPIC, bytes(size))
    assert len(outcome.peers) == (10 if fits else 0)
    assert ("the topic's limit is" in outcome.problem) is not fits
    assert handheld.router.statistics().cached == fits


@pytest.mark.parametrize(("size", "fits"), [(2048 - 100, True), (2048 + 1, False)])
def test_a_message_is_received_up_to_its_topics_limit(size: int, fits: bool) -> None:
    handheld = limited(2048)
    sender = handheld.connect("sender", TOPIC)
    actions = handheld.receive_message(sender, handheld.write("author", TOPIC, bytes(size)))
    assert [len(delivery.payload) for delivery in of(actions, Deliver)] == [size] * fits
    assert len(of(actions, Rejected)) == (not fits)
