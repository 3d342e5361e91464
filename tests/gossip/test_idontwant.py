"""IDONTWANT (gossipsub-v1.2.md): who is told what it need not send, and who is spared.

Most tests have three nodes in a row: a publisher, a router in the middle, and a
peer at the end that a test plays by hand.
"""

from typing import NamedTuple

import pytest

from bruit.node.gossip.actions import CheckSignature, SendControl, SendMessage, Validate
from bruit.node.gossip.events import PeerDisconnected, Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.sim import LinkModel, PeerStub, SimNetwork, SimNode
from bruit.topics.keys import PeerId
from bruit.topics.message import Message, SignaturePolicy, id_from_content, id_from_origin
from bruit.topics.validation import ACCEPTED
from tests.gossip.handheld import (
    Handheld,
    idontwant,
    iwant,
    of,
    prunes,
    sent,
    told,
)
from tests.gossip.neighbourhood import STEP, TOPIC, beating, introduce, network, payloads

LARGE = bytes(1024)  # the default threshold
CONTENT = TopicParams(message_id=id_from_content)


class Row(NamedTuple):
    net: SimNetwork
    publisher: SimNode
    middle: SimNode
    end: PeerStub


def row(config: RouterConfig | None = None, protocol: Protocol = Protocol.GOSSIPSUB_12) -> Row:
    """Three in a row, all of them subscribed and meshed with their neighbours."""
    net = network()
    config = config or RouterConfig(default_topic=CONTENT)
    publisher, middle = net.add_nodes(2, config=config)
    net.connect(publisher, middle)
    net.subscribe_all(TOPIC)
    (end,) = introduce(net, middle, ["end"], protocol=protocol)
    assert set(middle.router.statistics().mesh[TOPIC]) == {publisher.peer_id, end.peer_id}
    end.forget()
    return Row(net, publisher, middle, end)


def ids_heard(stub: PeerStub) -> list[bytes]:
    return [each for heard in stub.heard("idontwant") for each in heard.entry.message_ids]


def unwanted_by(actions: list[SendControl], peer: PeerId) -> list[bytes]:
    return [
        each for entry in told([*actions], peer).control.idontwant for each in entry.message_ids
    ]


def content_id(data: bytes, topic: str = TOPIC) -> bytes:
    return id_from_content(Message(topic, data, b"", b"", b"", b"", b""))


# Sending


def test_the_mesh_is_told_of_large_messages_before_they_are_validated() -> None:
    """go: TestGossipsubIdontwantSend (10 messages, validation of 100 ms)."""
    config = RouterConfig(default_topic=TopicParams(message_id=id_from_content, validated=True))
    net, publisher, middle, end = row(config)
    middle.set_validator(TOPIC, lambda topic, data: ACCEPTED, delay=0.1)
    said = [LARGE + bytes([number]) for number in range(10)]
    began = net.now
    for data in said:
        net.publish(publisher, TOPIC, data)
    net.run_for(2.0)
    assert ids_heard(end) == [content_id(data) for data in said]
    assert max(heard.time for heard in end.heard("idontwant")) < began + 0.1
    assert min(delivery.time for delivery in middle.deliveries(TOPIC)) >= began + 0.1
    assert payloads(middle) == said


def test_who_sent_a_message_is_not_told_to_keep_it() -> None:
    """go: TestGossipsubNoIDONTWANTToMessageSender."""
    net = network()
    (node,) = net.add_nodes(1)
    net.subscribe(node, TOPIC)
    sender, other = introduce(net, node, ["sender", "other"])
    sender.publish(node, sender.author.write(TOPIC, LARGE))
    net.run_for(1.0)
    assert not sender.heard("idontwant")
    assert len(other.heard("idontwant")) == 1


def test_an_idontwant_leaves_before_the_message_it_speaks_of() -> None:
    """go: TestGossipsubIDONTWANTBeforeFirstPublish, for a message that is forwarded.

    Behind it, it would arrive when the peer has sent its own copy: 64 KB at 64 KB/s.
    """
    net, publisher, middle, end = row()
    net.set_link(middle, end, LinkModel(latency=0.0, rate=65_536.0), back=LinkModel())
    net.publish(publisher, TOPIC, bytes(65_536))
    net.run_for(STEP)
    assert ids_heard(end) == [content_id(bytes(65_536))]
    assert not end.messages()
    net.run_for(2.0)
    assert len(end.messages()) == 1


def test_an_idontwant_leaves_before_an_own_publication() -> None:
    """go: TestGossipsubIDONTWANTBeforeFirstPublish.

    Where ids are made of content, somebody else may say the same at the same time.
    """
    net, _, middle, end = row()
    net.publish(middle, TOPIC, LARGE)
    net.run_for(1.0)
    kinds = ["message" if frame.rpc.publish else "control" for frame in end.sent_to_me()]
    assert kinds[:2] == ["control", "message"]
    assert ids_heard(end) == [content_id(LARGE)]


def test_an_own_publication_that_nobody_else_can_make_costs_no_idontwant() -> None:
    """With ids of author and seqno: nobody sends a message back to its author."""
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    outcome, actions = handheld.publish(TOPIC, LARGE)
    assert outcome.peers == (peer,)
    assert of(actions, SendControl) == []


def test_peers_outside_of_the_mesh_are_told_nothing() -> None:
    """go: TestGossipsubIdontwantNonMesh."""
    net, publisher, middle, end = row()
    end.prune(middle, TOPIC)
    net.run_for(STEP)
    for number in range(10):
        net.publish(publisher, TOPIC, LARGE + bytes([number]))
    net.run_for(2.0)
    assert len(payloads(middle)) == 10
    assert not end.heard("idontwant")


def test_the_mesh_of_another_topic_is_told_nothing() -> None:
    handheld = Handheld()
    for topic in (TOPIC, "another topic"):
        handheld.subscribe(topic)
    sender = handheld.connect("sender", TOPIC)
    concerned, elsewhere = handheld.connect("c", TOPIC), handheld.connect("e", "another topic")
    actions = handheld.receive_message(sender, handheld.write("author", TOPIC, LARGE))
    assert len(told(actions, concerned).control.idontwant) == 1
    assert not told(actions, elsewhere).control.idontwant


@pytest.mark.parametrize("protocol", [Protocol.GOSSIPSUB_11, Protocol.GOSSIPSUB_10])
def test_peers_of_older_protocols_are_told_nothing(protocol: Protocol) -> None:
    """go: TestGossipsubIdontwantIncompat."""
    net, publisher, _, end = row(protocol=protocol)
    for number in range(10):
        net.publish(publisher, TOPIC, LARGE + bytes([number]))
    net.run_for(2.0)
    assert len(end.messages()) == 10
    assert not end.heard("idontwant")


@pytest.mark.parametrize(("size", "count"), [(1023, 0), (1024, 10)])
def test_messages_below_the_threshold_are_not_worth_an_idontwant(size: int, count: int) -> None:
    """go: TestGossipsubIdontwantSmallMessage."""
    net, publisher, _, end = row()
    for number in range(10):
        net.publish(publisher, TOPIC, bytes(size - 1) + bytes([number]))
    net.run_for(2.0)
    assert len(end.messages()) == 10
    assert len(ids_heard(end)) == count


def test_many_ids_leave_in_frames_of_ten() -> None:
    """Peers read no more of a frame (max_idontwant_length)."""
    config = RouterConfig(signature_policy=SignaturePolicy.STRICT_NO_SIGN, default_topic=CONTENT)
    handheld = Handheld(config)
    handheld.subscribe(TOPIC)
    sender, other = handheld.connect("sender", TOPIC), handheld.connect("other", TOPIC)
    messages = [handheld.write("author", TOPIC, LARGE + bytes([each])) for each in range(25)]
    actions = of(handheld.receive_message(sender, *messages), SendControl)
    frames = [Rpc.FromString(action.frame) for action in actions if action.peer == other]
    sizes = [len(entry.message_ids) for frame in frames for entry in frame.control.idontwant]
    assert sizes == [10, 10, 5]
    assert unwanted_by(actions, other) == [id_from_content(each) for each in messages]


def test_a_message_costs_no_idontwant_before_its_signature_has_proved_right() -> None:
    """Else a forgery under the id of a real message would keep that from us."""
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    forger, other = handheld.connect("forger", TOPIC), handheld.connect("other", TOPIC)
    handheld.hold = True
    original = handheld.write("author", TOPIC, LARGE)
    forged = original.raw.replace(LARGE, b"\1" * 1024)
    actions = handheld.receive_message(forger, forged)
    assert not told(actions, other).control.idontwant
    actions = handheld.answer_signature(of(actions, CheckSignature)[0])
    assert not told(actions, other).control.idontwant
    assert not sent(actions, other)
    (check,) = of(handheld.receive_message(forger, original), CheckSignature)
    assert unwanted_by(of(handheld.answer_signature(check), SendControl), other) == [
        id_from_origin(original)
    ]


def test_a_copy_costs_no_second_idontwant() -> None:
    handheld = Handheld(RouterConfig(default_topic=TopicParams(validated=True)))
    handheld.subscribe(TOPIC)
    first, second, third = (handheld.connect(name, TOPIC) for name in ("1", "2", "3"))
    message = handheld.write("author", TOPIC, LARGE)
    actions = handheld.receive_message(first, message)
    assert len(told(actions, third).control.idontwant) == 1
    assert of(handheld.receive_message(second, message), SendControl) == []
    assert of(handheld.judge(of(actions, Validate)[0]), SendControl) == []


# Receiving


def test_a_message_is_not_sent_to_who_does_not_want_it() -> None:
    """go: TestGossipsubIdontwantReceive."""
    net, publisher, middle, end = row()
    (other,) = introduce(net, middle, ["other"])
    data = bytes(16)
    end.idontwant(middle, content_id(data))
    net.run_for(0.1)
    net.publish(publisher, TOPIC, data)
    net.run_for(2.0)
    assert payloads(middle) == [data]
    assert not end.messages()
    assert len(other.messages()) == 1


def test_it_is_not_sent_on_request_either() -> None:
    """go: TestGossipsubIdontwantBeforeIwant."""
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    sender = handheld.connect("sender", TOPIC)
    declining, asking = handheld.connect("declining", TOPIC), handheld.connect("asking", TOPIC)
    for peer in (declining, asking):
        handheld.receive(peer, prunes(TOPIC))
    message_id = id_from_origin(message := handheld.write("author", TOPIC, bytes(16)))
    handheld.receive_message(sender, message)
    actions = handheld.beat()
    for peer in (declining, asking):
        assert list(told(actions, peer).control.ihave[0].message_ids) == [message_id]
    handheld.receive(declining, idontwant(message_id))
    assert not sent(handheld.receive(declining, iwant(message_id)), declining)
    assert sent(handheld.receive(asking, iwant(message_id)), asking) == [message_id]


@pytest.mark.parametrize(("beats", "wanted"), [(0, False), (2, False), (3, True), (4, True)])
def test_an_idontwant_holds_for_three_heartbeats(beats: int, wanted: bool) -> None:
    """go: TestGossipsubIdontwantClear (4), TestGossipsubIDontWantUnwantedCleanup (3)."""
    net, publisher, middle, end = row(RouterConfig(params=beating().params, default_topic=CONTENT))
    data = bytes(16)
    net.run_until(1.5)
    end.idontwant(middle, content_id(data))
    net.run_until(1.75 + beats)
    net.publish(publisher, TOPIC, data)
    net.run_for(0.2)
    assert len(end.messages()) == wanted


def test_an_idontwant_said_again_holds_anew() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    message = handheld.write("own", TOPIC, b"data")
    for _ in range(3):
        handheld.receive(peer, idontwant(id_from_origin(message)))
        handheld.beat(2)
    assert handheld.publish_message(message)[0].peers == ()


def test_who_comes_back_has_said_nothing_yet() -> None:
    """go: TestGossipsubIDontWantUnwantedCleanup, where the peer's stream closes."""
    handheld = Handheld()
    peer = handheld.connect("peer", TOPIC)
    message = handheld.write("own", TOPIC, b"data")
    handheld.receive(peer, idontwant(id_from_origin(message)))
    handheld.handle(PeerDisconnected(peer))
    assert handheld.connect("peer", TOPIC) == peer
    assert handheld.publish_message(message)[0].peers == (peer,)


def test_an_empty_idontwant_is_nothing() -> None:
    """go: TestGossipsubIDontWantUnwantedCleanup, its first part."""
    handheld = Handheld()
    peer = handheld.connect("peer", TOPIC)
    assert handheld.receive(peer, idontwant()) == []
    assert handheld.publish(TOPIC, b"data")[0].peers == (peer,)


def test_an_idontwant_takes_messages_out_of_the_queue() -> None:
    """Three messages of 10 KB at 10 KB/s; the last two are declined while the first is written."""
    net, publisher, middle, end = row(
        RouterConfig(params=GossipParams(idontwant_threshold=1_000_000), default_topic=CONTENT)
    )
    net.set_link(middle, end, LinkModel(latency=0.0, rate=10_000.0), back=LinkModel(latency=0.0))
    said = [bytes([number]) * 10_000 for number in range(3)]
    for data in said:
        net.publish(publisher, TOPIC, data)
    net.run_for(0.5)
    end.idontwant(middle, content_id(said[1]), content_id(said[2]), content_id(b"unknown"))
    net.run_for(9.5)
    assert payloads(middle) == said
    assert [message.data for message in end.messages()] == said[:1]
    assert net.statistics().cancelled == 2


def test_what_is_being_written_is_not_called_back() -> None:
    net, publisher, middle, end = row(
        RouterConfig(params=GossipParams(idontwant_threshold=1_000_000), default_topic=CONTENT)
    )
    net.set_link(middle, end, LinkModel(latency=0.0, rate=10_000.0), back=LinkModel(latency=0.0))
    net.publish(publisher, TOPIC, bytes(10_000))
    net.run_for(0.5)
    end.idontwant(middle, content_id(bytes(10_000)))
    net.run_for(2.0)
    assert len(end.messages()) == 1
    assert net.statistics().cancelled == 0


def test_an_idontwant_counts_for_its_sender_alone() -> None:
    handheld = Handheld()
    one, other = handheld.connect("one", TOPIC), handheld.connect("other", TOPIC)
    message = handheld.write("own", TOPIC, b"data")
    handheld.receive(one, idontwant(id_from_origin(message)))
    _, actions = handheld.publish_message(message)
    assert [send.peers for send in of(actions, SendMessage)] == [(other,)]


def test_a_peer_of_an_older_protocol_may_still_say_idontwant() -> None:
    handheld = Handheld()
    peer = handheld.connect("older", TOPIC, protocol=Protocol.GOSSIPSUB_11)
    message = handheld.write("own", TOPIC, b"data")
    handheld.receive(peer, idontwant(id_from_origin(message)))
    assert handheld.publish_message(message)[0].peers == ()
