"""Promises: an IHAVE that was answered by IWANT is a debt of one message."""

from bruit.node.gossip.actions import SendControl
from bruit.node.gossip.events import FramesDropped
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, id_from_origin
from tests.gossip.handheld import Handheld, ihave, of
from tests.gossip.neighbourhood import TOPIC

FOLLOWUP = 0.1  # seconds until a message asked for must have come
QUICK = GossipParams(iwant_followup=FOLLOWUP, heartbeat_interval=1.0)
ONE_AT_A_TIME = TopicParams(validated=True, max_validating=1)


def in_debt(names: str, topic: TopicParams) -> tuple[Handheld, list[PeerId], list[Message]]:
    """Peers that each offered the same hundred messages, and were asked for them."""
    handheld = Handheld(RouterConfig(params=QUICK, default_topic=topic))
    handheld.subscribe(TOPIC)
    handheld.beat()
    debtors = [handheld.connect(name, TOPIC) for name in names]
    messages = [handheld.write("author", TOPIC, b"message %d" % each) for each in range(100)]
    for debtor in debtors:
        handheld.receive(debtor, ihave(TOPIC, *map(id_from_origin, messages)))
    assert handheld.router.statistics().promises == len(debtors)
    return handheld, debtors, messages


def test_each_debtor_pays_once_for_a_hundred_ids_and_a_throttled_one_not_at_all() -> None:
    handheld, (one, two, throttled), _ = in_debt("abc", ONE_AT_A_TIME)
    assert handheld.scores.misbehaviours == []
    # What the third sends finds the validator busy: that is not its fault.
    others = [handheld.write("another author", TOPIC, bytes([each])) for each in range(2)]
    handheld.receive_message(throttled, *others)
    handheld.beat()  # one second later
    assert [handheld.scores.penalties(peer) for peer in (one, two, throttled)] == [[1], [1], []]
    assert handheld.router.statistics().promises == 0
    handheld.beat(5)
    assert len(handheld.scores.misbehaviours) == 2


def test_nobody_pays_when_all_that_was_promised_comes_from_anywhere() -> None:
    handheld, _, messages = in_debt("ab", TopicParams())
    courier = handheld.connect("courier", TOPIC)
    for message in messages:
        handheld.receive_message(courier, message)
    assert handheld.router.statistics().promises == 0
    handheld.beat(5)
    assert handheld.scores.misbehaviours == []


def test_a_peer_owes_nothing_for_an_iwant_that_its_queue_had_no_room_for() -> None:
    handheld = Handheld(RouterConfig(params=QUICK))
    handheld.subscribe(TOPIC)
    full, other = handheld.connect("full", TOPIC), handheld.connect("other", TOPIC)
    (asked,) = of(handheld.receive(full, ihave(TOPIC, b"some id")), SendControl)
    handheld.receive(other, ihave(TOPIC, b"another id"))
    handheld.handle(FramesDropped(full, 1, (asked.frame,)))
    handheld.beat(5)
    assert handheld.scores.penalties(full) == []
    assert handheld.scores.penalties(other) == [1]
