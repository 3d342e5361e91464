"""From received bytes to an accepted message: verdicts, duplicates, bounds, drops."""

import pytest

from bruit.node.gossip import drops
from bruit.node.gossip.actions import (
    CheckSignature,
    Deliver,
    Dropped,
    Rejected,
    SendMessage,
    Validate,
)
from bruit.node.gossip.events import PeerDisconnected, SignaturesChecked, Unsubscribe, Validated
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.scoring.seam import Refusal
from bruit.topics.keys import PeerId
from bruit.topics.message import (
    Message,
    id_from_origin,
)
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.validation import ACCEPTED, Validation, Verdict, ignore, reject
from tests.gossip.handheld import (
    VALIDATED,
    Handheld,
    between,
    ihave,
    judgements,
    key_of,
    of,
    sent,
    told,
)
from tests.gossip.neighbourhood import TOPIC, introduce, network, payloads
from tests.gossip.recording_scores import Judged

# Verdicts


def test_an_accepted_message_is_delivered_forwarded_and_credited_to_its_first_sender() -> None:
    handheld, one, two, three = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    assert (validate.message, validate.source) == (message, one)
    assert judgements(handheld) == []
    accepted = Validation(Verdict.ACCEPT, facts={"height": 7})
    actions = handheld.handle(Validated(validate.ticket, accepted, b"payload"))
    (delivery,) = of(actions, Deliver)
    message_id = id_from_origin(message)
    assert delivery == Deliver(message, message_id, b"payload", one, {"height": 7})
    (send,) = of(actions, SendMessage)
    assert set(send.peers) == {two, three}
    assert Rpc.FromString(send.frame).publish == [message.raw]
    assert handheld.scores.judged == [Judged("first_delivery", one, TOPIC, message_id)]


def test_a_rejected_message_goes_nowhere_and_is_held_against_everybody_who_sent_it() -> None:
    handheld, one, two, _ = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    handheld.receive_message(two, message)
    actions = handheld.judge(validate, reject("wrong chain"))
    message_id = id_from_origin(message)
    assert actions == [Rejected(one, message.author, TOPIC, message_id, "wrong chain")]
    assert handheld.scores.judged == [
        Judged("duplicate", two, TOPIC, message_id),  # whom the scorer holds it against, too
        Judged("refused", one, TOPIC, message_id, Refusal.INVALID),
    ]
    assert handheld.router.statistics().cached == 0


def test_an_ignored_message_goes_nowhere_and_is_held_against_nobody() -> None:
    handheld, one, two, _ = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    handheld.receive_message(two, message)
    actions = handheld.judge(validate, ignore("too early"))
    assert actions == [Dropped(one, TOPIC, drops.IGNORED)]
    message_id = id_from_origin(message)
    assert handheld.scores.judged == [
        Judged("duplicate", two, TOPIC, message_id),
        Judged("refused", one, TOPIC, message_id, Refusal.IGNORED),
    ]
    assert handheld.router.statistics().cached == 0


@pytest.mark.parametrize("validation", [reject("bad"), ignore("early")])
def test_a_refused_message_is_not_judged_again(validation: Validation) -> None:
    handheld, one, two, _ = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    handheld.judge(of(handheld.receive_message(one, message), Validate)[0], validation)
    assert handheld.receive_message(two, message) == []
    assert handheld.count(drops.DUPLICATE) == 1


def test_verdicts_may_fall_late_and_in_any_order() -> None:
    handheld, one, *_ = between(VALIDATED)
    messages = [handheld.write("author", TOPIC, b"%d" % number) for number in range(3)]
    validates = of(handheld.receive_message(one, *messages), Validate)
    assert [validate.message for validate in validates] == messages
    handheld.beat(20)
    assert handheld.router.statistics().pending == 3
    delivered = []
    for validate in (validates[2], validates[0], validates[1]):
        delivered += of(handheld.judge(validate), Deliver)
    assert [delivery.message.data for delivery in delivered] == [b"2", b"0", b"1"]
    assert handheld.router.statistics().pending == 0


def test_a_ticket_answered_twice_or_never_given_is_nothing() -> None:
    handheld, one, *_ = between(VALIDATED)
    handheld.hold = True
    (check,) = of(
        handheld.receive_message(one, handheld.write("author", TOPIC, b"data")), CheckSignature
    )
    assert handheld.handle(Validated(check.ticket, ACCEPTED)) == []
    (validate,) = of(handheld.answer_signature(check), Validate)
    assert handheld.answer_signature(check) == []
    assert handheld.handle(SignaturesChecked(((validate.ticket, True),))) == []
    assert of(handheld.judge(validate), Deliver)
    assert handheld.judge(validate) == []
    assert handheld.handle(SignaturesChecked(((10**9, True),))) == []


def test_a_topic_without_validator_accepts_what_is_signed() -> None:
    handheld, one, *_ = between()
    actions = handheld.receive_message(one, handheld.write("author", TOPIC, b"data"))
    assert not of(actions, Validate)
    assert [delivery.payload for delivery in of(actions, Deliver)] == [b"data"]


def test_whoever_leaves_before_the_verdict_is_sent_nothing() -> None:
    handheld, one, two, three = between(VALIDATED)
    (validate,) = of(
        handheld.receive_message(one, handheld.write("author", TOPIC, b"data")), Validate
    )
    for peer in (one, two):
        handheld.handle(PeerDisconnected(peer))
    actions = handheld.judge(validate)
    assert [send.peers for send in of(actions, SendMessage)] == [(three,)]
    assert of(actions, Deliver)


# Copies


def test_copies_during_the_signature_check_are_duplicates_and_nobody_gets_it_back() -> None:
    handheld, one, two, three = between()
    handheld.hold = True
    message = handheld.write("author", TOPIC, b"data")
    (check,) = of(handheld.receive_message(one, message), CheckSignature)
    for peer in (two, two, one):
        assert handheld.receive_message(peer, message) == []
    assert handheld.count(drops.DUPLICATE) == 3
    actions = handheld.answer_signature(check)
    assert [send.peers for send in of(actions, SendMessage)] == [(three,)]
    assert judgements(handheld) == [
        ("duplicate", two),
        ("duplicate", two),
        ("duplicate", one),
        ("first_delivery", one),
    ]


def test_copies_during_validation_are_duplicates_and_nobody_gets_it_back() -> None:
    handheld, one, two, three = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    assert handheld.receive_message(two, message) == []
    assert handheld.count(drops.DUPLICATE) == 1
    actions = handheld.judge(validate)
    assert [send.peers for send in of(actions, SendMessage)] == [(three,)]


def test_a_copy_after_delivery_is_a_duplicate() -> None:
    handheld, one, two, _ = between()
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive_message(one, message)
    assert handheld.receive_message(two, message) == []
    assert judgements(handheld) == [("first_delivery", one), ("duplicate", two)]


def test_who_sent_copies_of_a_forgery_pays_like_who_sent_it_first() -> None:
    handheld, one, two, _ = between()
    handheld.hold = True
    forged = handheld.write("author", TOPIC, b"data").raw.replace(b"data", b"junk")
    (check,) = of(handheld.receive_message(one, forged), CheckSignature)
    handheld.receive_message(two, forged)
    rejected = of(handheld.answer_signature(check), Rejected)
    assert [each.peer for each in rejected] == [one, two]
    assert [(each.kind, each.peer, each.refusal) for each in handheld.scores.judged] == [
        ("refused", one, Refusal.FORGED),
        ("refused", two, Refusal.FORGED),
    ]


def test_a_message_is_new_again_when_its_time_as_seen_is_over() -> None:
    handheld, one, two, _ = between()
    message = handheld.write("author", TOPIC, b"data")
    handheld.beat()
    handheld.receive_message(one, message)
    first_seen = handheld.now
    while handheld.now < first_seen + 119.0:
        handheld.beat()
    assert not of(handheld.receive_message(two, message), Deliver)
    while handheld.now < first_seen + 121.0:
        handheld.beat()
    assert of(handheld.receive_message(two, message), Deliver)


# What is forwarded


def test_what_is_forwarded_is_what_came_to_the_bit_with_fields_from_the_future() -> None:
    handheld, one, two, _ = between()
    key = key_of("author")
    author = key.public_key().peer_id()
    body = PubsubMessage(author=author, data=b"data", seqno=bytes(8), topic=TOPIC)
    future = b"\x7a\x03new" + b"\x80\x01\x05"  # fields 15 and 16
    unsigned = body.SerializeToString() + future
    signature = key.sign(b"libp2p-pubsub:" + unsigned)
    last = PubsubMessage(signature=signature).SerializeToString()
    # The unknown fields stand in front, where no encoder would put them.
    raw = future + body.SerializeToString() + last
    actions = handheld.receive_message(one, raw)
    (send,) = of(actions, SendMessage)
    assert two in send.peers
    assert Rpc.FromString(send.frame).publish == [raw]
    assert of(actions, Deliver)[0].message.raw == raw


def test_what_is_served_on_request_is_what_came_to_the_bit() -> None:
    handheld, one, *_ = between()
    asking = handheld.connect("asking")
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive_message(one, message)
    rpc = Rpc()
    rpc.control.iwant.add(message_ids=[id_from_origin(message)])
    (send,) = of(handheld.receive(asking, rpc), SendMessage)
    assert Rpc.FromString(send.frame).publish == [message.raw]


# Bounds


def crowded(
    max_validating: int = 1024, max_validating_bytes: int = 1_000_000
) -> tuple[Handheld, PeerId, PeerId, list[Message]]:
    """A router with a slow topic of narrow limits, a quick one, and messages for the slow one."""
    slow = TopicParams(
        validated=True, max_validating=max_validating, max_validating_bytes=max_validating_bytes
    )
    quick = TopicParams(validated=True)
    config = RouterConfig(topics={"slow": slow, "quick": quick})
    handheld, one, two, _ = between(config, "slow", "quick")
    messages = [handheld.write("author", "slow", b"%04d" % n + bytes(96)) for n in range(8)]
    return handheld, one, two, messages


def test_one_slow_topic_does_not_hold_up_another() -> None:
    handheld, one, _, messages = crowded(max_validating=4)
    waiting = of(handheld.receive_message(one, *messages), Validate)
    assert len(waiting) == 4
    actions = handheld.receive_message(one, handheld.write("author", "quick", b"data"))
    (validate,) = of(actions, Validate)
    assert of(handheld.judge(validate), Deliver)


@pytest.mark.parametrize(
    "limits",
    [{"max_validating": 4}, {"max_validating_bytes": 4 * 250}],
    ids=["by count", "by bytes"],
)
def test_a_full_topic_drops_what_comes_blames_nobody_and_takes_it_later(
    limits: dict[str, int],
) -> None:
    """Each message has 224 bytes: four fit into 1,000, five do not."""
    handheld, one, two, messages = crowded(**limits)
    assert {len(message.raw) for message in messages} == {224}
    actions = handheld.receive_message(one, *messages)
    waiting = of(actions, Validate)
    assert [validate.message for validate in waiting] == messages[:4]
    assert of(actions, Dropped) == [Dropped(one, "slow", drops.VALIDATION_FULL)] * 4
    assert handheld.count(drops.VALIDATION_FULL) == 4
    assert [(each.peer, each.refusal) for each in handheld.scores.judged] == [
        (one, Refusal.QUEUE_FULL)
    ] * 4
    handheld.judge(waiting[0])
    late_id = id_from_origin(messages[7])
    asked = told(handheld.receive(two, ihave("slow", late_id)), two).control.iwant
    assert [list(entry.message_ids) for entry in asked] == [[late_id]]
    (validate,) = of(handheld.receive_message(two, messages[7]), Validate)
    assert of(handheld.judge(validate), Deliver)


def test_signatures_under_check_count_against_the_same_share() -> None:
    handheld, one, _, messages = crowded(max_validating=4)
    handheld.hold = True
    checks = of(handheld.receive_message(one, *messages), CheckSignature)
    assert len(checks) == 4
    assert handheld.count(drops.VALIDATION_FULL) == 4
    validates = [of(handheld.answer_signature(check), Validate)[0] for check in checks]
    assert handheld.router.statistics().pending == 4
    for validate in validates:
        handheld.judge(validate)
    assert handheld.router.statistics().pending == 0
    assert len(of(handheld.receive_message(one, *messages[4:]), CheckSignature)) == 4


def test_a_full_topic_releases_the_sender_from_its_promises() -> None:
    """go: TestBrokenPromises, where a throttled peer is spared."""
    handheld, one, two, messages = crowded(max_validating=1)
    owed = [id_from_origin(message) for message in messages]
    handheld.receive(one, ihave("slow", owed[1]))
    handheld.receive(two, ihave("slow", owed[2]))
    handheld.receive_message(one, messages[0], messages[1])
    handheld.beat(10)
    assert handheld.scores.penalties(one) == []
    assert handheld.scores.penalties(two) == [1]


def test_a_message_larger_than_the_topics_share_is_never_taken() -> None:
    handheld, one, _, messages = crowded(max_validating_bytes=223)
    actions = handheld.receive_message(one, messages[0])
    assert actions == [Dropped(one, "slow", drops.VALIDATION_FULL)]


def test_a_slow_validator_takes_only_its_topics_messages_late() -> None:
    """The same in virtual time: one second a message on one topic, nothing on the other."""
    config = RouterConfig(default_topic=TopicParams(validated=True))
    net = network()
    (node,) = net.add_nodes(1, config=config)
    node.set_validator("slow", lambda topic, data: ACCEPTED, delay=1.0)
    for topic in ("slow", "quick"):
        net.subscribe(node, topic)
    (stub,) = introduce(net, node, ["stub"], topics=("slow", "quick"))
    began = net.now
    for number in range(5):
        stub.publish(node, stub.author.write("slow", b"%d" % number))
        stub.publish(node, stub.author.write("quick", b"%d" % number))
    net.run_for(0.5)
    assert len(payloads(node, "quick")) == 5
    assert payloads(node, "slow") == []
    net.run_for(10.0)
    arrived = began + 1 / 64
    assert [each.time for each in node.deliveries("slow")] == [arrived + n for n in range(1, 6)]


# Leaving


def test_a_topic_left_during_the_signature_check_delivers_nothing() -> None:
    handheld, one, *_ = between(VALIDATED)
    handheld.hold = True
    message = handheld.write("author", TOPIC, b"data")
    (check,) = of(handheld.receive_message(one, message), CheckSignature)
    handheld.handle(Unsubscribe(TOPIC))
    assert handheld.answer_signature(check) == []
    assert handheld.router.statistics().pending == 0
    handheld.subscribe(TOPIC)
    assert of(handheld.receive_message(one, message), CheckSignature)


def test_a_topic_left_during_validation_delivers_nothing() -> None:
    handheld, one, *_ = between(VALIDATED)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    handheld.handle(Unsubscribe(TOPIC))
    assert handheld.judge(validate) == []
    assert handheld.router.statistics().pending == 0
    assert judgements(handheld) == []


def test_a_topic_left_and_joined_again_during_validation_delivers() -> None:
    handheld, one, *_ = between(VALIDATED)
    (validate,) = of(
        handheld.receive_message(one, handheld.write("author", TOPIC, b"data")), Validate
    )
    handheld.handle(Unsubscribe(TOPIC))
    handheld.subscribe(TOPIC)
    assert of(handheld.judge(validate), Deliver)


def test_a_message_on_a_topic_that_we_are_not_in_is_dropped_and_counted() -> None:
    handheld, one, *_ = between()
    actions = handheld.receive_message(one, handheld.write("author", "another topic", b"data"))
    assert actions == [Dropped(one, "another topic", drops.NOT_SUBSCRIBED)]
    assert handheld.count(drops.NOT_SUBSCRIBED) == 1


def test_bytes_that_are_no_message_are_dropped_and_the_rest_of_the_frame_is_taken() -> None:
    handheld, one, *_ = between()
    message = handheld.write("author", TOPIC, b"data")
    actions = handheld.receive_message(one, b"\xff\xff", message, b"\x22\x02\xff\xfe")
    assert of(actions, Dropped) == [Dropped(one, "", drops.MALFORMED_FRAME)] * 2
    assert len(of(actions, Deliver)) == 1


# Every drop has a counter


def test_every_drop_that_is_reported_is_counted_under_its_reason() -> None:
    """A router of narrow limits meets one of everything; the counters equal the reports."""
    params = GossipParams(
        max_ihave_messages=1, max_ihave_length=2, max_idontwant_messages=1, peer_exchange=True
    )
    topics = {TOPIC: TopicParams(validated=True, max_validating=1)}
    handheld, one, two, three = between(RouterConfig(params=params, topics=topics))
    handheld.actions.clear()
    first, second = (handheld.write("author", TOPIC, bytes([n])) for n in range(2))
    (validate,) = of(handheld.receive_message(one, first), Validate)
    handheld.receive_message(two, second)
    handheld.judge(validate, ignore("early"))
    handheld.receive_message(one, first)
    handheld.receive_message(one, handheld.write("author", "another", b""))
    handheld.receive_message(one, b"\xff")
    handheld.receive(one, b"\xff")
    handheld.receive(handheld.own_id, b"")
    for _ in range(2):
        handheld.receive(one, ihave(TOPIC, b"1"))
        handheld.receive(one, ihave(TOPIC, b"2"))
    rpc = ihave(TOPIC, b"1", b"2")
    rpc.MergeFrom(ihave(TOPIC, b"3"))
    handheld.receive(two, rpc)
    rpc = Rpc()
    rpc.control.idontwant.add(message_ids=[b"%d" % number for number in range(11)])
    for _ in range(2):
        handheld.receive(two, rpc)
    handheld.scores.values[three] = -0.5
    handheld.receive(three, ihave(TOPIC, b"1"))
    wanting = Rpc()
    wanting.control.iwant.add(message_ids=[b"1"])
    handheld.receive(three, wanting)
    offering = Rpc()
    offering.control.prune.add(topic=TOPIC).peers.add(peer_id=one)
    handheld.receive(three, offering)
    handheld.scores.values[three] = -1001.0
    handheld.receive(three, b"")
    counted = handheld.router.statistics().counters
    reported = [action.reason for action in of(handheld.actions, Dropped)]
    unreported = {drops.DUPLICATE: 1, drops.IDONTWANT_LENGTH: 1, drops.IHAVE_LENGTH: 1}
    reasons = {value for name, value in vars(drops).items() if name.isupper()}
    expected = {reason: reported.count(reason) for reason in reported}
    for reason, count in unreported.items():
        expected[reason] = expected.get(reason, 0) + count
    assert {what: count for what, count in counted.items() if what in reasons} == expected
    assert len(expected) == 14
    assert not sent(handheld.actions, three)
