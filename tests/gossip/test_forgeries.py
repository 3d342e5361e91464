"""Messages that are not what they claim: forgeries, stolen ids, false origins."""

from functools import partial
from typing import Literal

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
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.scoring.seam import Refusal
from bruit.topics.keys import PeerId
from bruit.topics.message import (
    Author,
    Message,
    SignaturePolicy,
    id_from_content,
    id_from_origin,
)
from bruit.topics.message_pb2 import PubsubMessage
from tests.gossip.handheld import (
    UNSIGNED,
    Handheld,
    between,
    ihave,
    judgements,
    key_of,
    of,
    told,
)
from tests.gossip.neighbourhood import TOPIC


def forgery(message: Message) -> bytes:
    """Other data under the same id."""
    assert b"data" in message.raw
    return message.raw.replace(b"data", b"junk")


def test_a_forgery_before_the_original_does_not_displace_it() -> None:
    handheld, forger, honest, other = between()
    message = handheld.write("author", TOPIC, b"data")
    actions = handheld.receive_message(forger, forgery(message))
    assert [rejected.peer for rejected in of(actions, Rejected)] == [forger]
    actions = handheld.receive_message(honest, message)
    assert [delivery.payload for delivery in of(actions, Deliver)] == [b"data"]
    # The forger does not have the original, so it is sent it.
    assert {peer for send in of(actions, SendMessage) for peer in send.peers} == {forger, other}


@pytest.mark.parametrize("forgery_first", [True, False])
@pytest.mark.parametrize("answers_reversed", [True, False])
def test_a_forgery_beside_the_original_does_not_displace_it(
    forgery_first: bool, answers_reversed: bool
) -> None:
    """Both are being checked at once, and the answers may come in either order."""
    handheld, forger, honest, _ = between()
    handheld.hold = True
    message = handheld.write("author", TOPIC, b"data")
    arrivals: list[tuple[PeerId, Message | bytes]] = [(forger, forgery(message)), (honest, message)]
    if not forgery_first:
        arrivals.reverse()
    checks = [of(handheld.receive_message(peer, raw), CheckSignature)[0] for peer, raw in arrivals]
    if answers_reversed:
        checks.reverse()
    actions = [action for check in checks for action in handheld.answer_signature(check)]
    assert [delivery.payload for delivery in of(actions, Deliver)] == [b"data"]
    assert [rejected.peer for rejected in of(actions, Rejected)] == [forger]
    assert [each.peer for each in handheld.scores.about("refused")] == [forger]
    assert [each.peer for each in handheld.scores.about("first_delivery")] == [honest]


def test_a_forgery_after_the_original_is_a_duplicate_without_a_check() -> None:
    handheld, forger, honest, _ = between()
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive_message(honest, message)
    assert handheld.receive_message(forger, forgery(message)) == []
    assert handheld.count(drops.DUPLICATE) == 1


def test_of_two_signed_messages_under_one_id_the_first_to_be_checked_wins() -> None:
    """An author that gives one sequence number twice."""
    handheld, one, two, _ = between()
    handheld.hold = True
    twins = [
        Author(key_of("author"), SignaturePolicy.STRICT_SIGN, 1).write(TOPIC, data)
        for data in (b"this", b"that")
    ]
    checks = [
        of(handheld.receive_message(peer, twin), CheckSignature)[0]
        for peer, twin in zip((one, two), twins, strict=True)
    ]
    delivered = of(handheld.answer_signature(checks[1]), Deliver)
    assert [delivery.payload for delivery in delivered] == [b"that"]
    assert handheld.answer_signature(checks[0]) == []
    assert judgements(handheld) == [("first_delivery", two), ("duplicate", one)]


def test_who_claims_to_be_us_is_rejected() -> None:
    handheld, one, *_ = between()
    forged = handheld.write("own", TOPIC, b"data").raw.replace(b"data", b"junk")
    actions = handheld.receive_message(one, forged)
    assert [rejected.reason for rejected in of(actions, Rejected)] == ["invalid signature"]
    assert handheld.scores.about("refused")[0].peer == one


def test_what_we_wrote_before_a_restart_is_dropped_once_and_held_against_nobody() -> None:
    """It is signed by us, and peers still offer it: go, rust and js would punish them for that."""
    handheld, one, two, _ = between()
    message = handheld.write("own", TOPIC, b"data")
    message_id = id_from_origin(message)
    asked = told(handheld.receive(one, ihave(TOPIC, message_id)), one).control.iwant
    assert [list(entry.message_ids) for entry in asked] == [[message_id]]
    actions = handheld.receive_message(one, message)
    assert of(actions, Dropped) == [Dropped(one, TOPIC, drops.OWN)]
    assert not of(actions, Deliver)
    assert not of(actions, SendMessage)
    assert not told(handheld.receive(two, ihave(TOPIC, message_id)), two).control.iwant
    handheld.beat(20)
    assert handheld.scores.judged == []
    assert handheld.scores.misbehaviours == []


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        ("signature", "missing signature"),
        ("author", "missing author or seqno"),
        ("seqno", "missing author or seqno"),
    ],
)
def test_under_strict_sign_a_message_without_origin_is_rejected_without_a_check(
    dropped: Literal["signature", "author", "seqno"], reason: str
) -> None:
    handheld, one, *_ = between()
    body = PubsubMessage.FromString(handheld.write("author", TOPIC, b"data").raw)
    body.ClearField(dropped)
    actions = handheld.receive_message(one, body.SerializeToString())
    assert [rejected.reason for rejected in of(actions, Rejected)] == [reason]
    assert handheld.scores.about("refused")[0].refusal is Refusal.FORGED
    assert not of(actions, CheckSignature)


def test_under_strict_no_sign_a_message_with_origin_is_rejected() -> None:
    handheld, one, *_ = between(UNSIGNED)
    actions = handheld.receive_message(one, Handheld().write("author", TOPIC, b"data"))
    assert [rejected.reason for rejected in of(actions, Rejected)] == ["unexpected auth info"]
    assert handheld.scores.about("refused")[0].peer == one


def test_under_strict_no_sign_nothing_is_checked_and_content_counts_once() -> None:
    handheld, one, two, three = between(UNSIGNED)
    message = handheld.write("author", TOPIC, b"data")
    actions = handheld.receive_message(one, message)
    assert not of(actions, CheckSignature)
    assert len(of(actions, Deliver)) == 1
    assert set(of(actions, SendMessage)[0].peers) == {two, three}
    assert handheld.receive_message(two, handheld.write("another", TOPIC, b"data")) == []


def test_under_strict_no_sign_copies_during_validation_are_duplicates() -> None:
    config = RouterConfig(
        signature_policy=SignaturePolicy.STRICT_NO_SIGN,
        default_topic=TopicParams(message_id=id_from_content, validated=True),
    )
    handheld, one, two, three = between(config)
    message = handheld.write("author", TOPIC, b"data")
    (validate,) = of(handheld.receive_message(one, message), Validate)
    assert handheld.receive_message(two, message) == []
    assert of(handheld.judge(validate), SendMessage)[0].peers == (three,)


def constant_id(message_id: bytes, message: Message) -> bytes:
    return message_id


def test_an_id_function_that_gives_no_usable_id_rejects_the_message() -> None:
    for message_id in (b"", bytes(257)):
        topic = TopicParams(message_id=partial(constant_id, message_id))
        handheld, one, *_ = between(RouterConfig(default_topic=topic))
        actions = handheld.receive_message(one, handheld.write("author", TOPIC, b"data"))
        assert [each.reason for each in of(actions, Rejected)] == [
            "message id of impossible length"
        ]
