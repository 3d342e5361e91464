"""A topic whose messages are judged by somebody else, in any order."""

from bruit.node.gossip.actions import Validate
from bruit.node.gossip.events import Event, Validated
from bruit.node.net.judging import Judging
from bruit.node.net.verifiers import Verifiers
from bruit.topics.message import Message
from bruit.topics.validation import ignore


def validate(ticket: int, topic: str) -> Validate:
    return Validate(ticket, Message(topic, b"data", b"", b"", b"", b"", b""), b"peer")


def test_an_entrusted_topics_messages_go_to_its_judge_at_once_and_others_do_not() -> None:
    events: list[Event] = []
    judged: list[Validate] = []
    judging = Judging(events.append, {}, Verifiers())
    judging.entrust("chunks", judged.append)
    for ticket in (1, 2):
        judging.validate(validate(ticket, "chunks"))
    judging.validate(validate(3, "others"))
    assert [action.ticket for action in judged] == [1, 2]
    assert events == [Validated(3, ignore("the node is stopping"))]
