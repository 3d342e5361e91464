"""Signatures and validators: who is believed, and what judging costs in virtual time."""

import msgspec
import pytest

from bruit.node.gossip.actions import Rejected
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.node.sim import LinkModel, PeerStub, Signatures, SimNetwork, SimNode
from bruit.topics.errors import LocalError
from bruit.topics.message import Message, SignaturePolicy, id_from_content, signature_valid
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.validation import ACCEPTED, Validation, Verdict, reject

CHECKED = RouterConfig(topics={"a": TopicParams(validated=True), "b": TopicParams(validated=True)})


def node_and_stub(
    signatures: Signatures = Signatures.STAND_IN, price: float = 0.0
) -> tuple[SimNetwork, SimNode, PeerStub]:
    """A router subscribed to a and b, and a stub connected to it, at 1 s; no latency."""
    net = SimNetwork(
        seed=1,
        link=LinkModel(latency=0.0),
        signatures=signatures,
        signature_price=price,
        keep_reports=True,
    )
    (node,) = net.add_nodes(1, config=CHECKED)
    stub = net.add_peer_stub("stub")
    stub.connect(node)
    net.subscribe(node, "a")
    net.subscribe(node, "b")
    net.run_until(1.0)
    return net, node, stub


def tampered(message: Message, **changes: object) -> bytes:
    body = PubsubMessage.FromString(message.raw)
    for field, value in changes.items():
        setattr(body, field, value)
    return body.SerializeToString()


def rejections(node: SimNode) -> list[str]:
    return [report.reason for _, report in node.reports if isinstance(report, Rejected)]


@pytest.mark.parametrize("signatures", Signatures)
def test_an_honest_message_is_delivered(signatures: Signatures) -> None:
    net, node, stub = node_and_stub(signatures)
    stub.publish(node, stub.author.write("a", b"honest"))
    net.run_for(1.0)
    assert [delivery.payload for delivery in node.deliveries("a")] == [b"honest"]


@pytest.mark.parametrize("signatures", Signatures)
def test_a_message_whose_bytes_were_changed_is_rejected(signatures: Signatures) -> None:
    net, node, stub = node_and_stub(signatures)
    message = stub.author.write("a", b"honest")
    forgeries = [
        tampered(message, data=b"forged"),
        tampered(message, topic="b"),
        tampered(message, seqno=bytes(8)),
        tampered(message, signature=bytes(64)),
    ]
    stub.publish(node, *forgeries)
    net.run_for(1.0)
    assert node.deliveries("a") == node.deliveries("b") == []
    assert rejections(node) == ["invalid signature"] * len(forgeries)


@pytest.mark.parametrize("signatures", Signatures)
def test_a_message_in_another_nodes_name_is_rejected(signatures: Signatures) -> None:
    net, node, stub = node_and_stub(signatures)
    victim = net.add_peer_stub("victim")
    message = stub.author.write("a", b"not mine")
    stub.publish(node, tampered(message, author=victim.peer_id))
    net.run_for(1.0)
    assert node.deliveries("a") == []
    assert rejections(node) == ["invalid signature"]


def test_real_signatures_are_the_ones_of_the_wire_and_stand_ins_are_not() -> None:
    assert signature_valid(node_and_stub(Signatures.REAL)[2].author.write("a", b"x"))
    assert not signature_valid(node_and_stub(Signatures.STAND_IN)[2].author.write("a", b"x"))


def test_stand_in_messages_have_the_size_of_real_ones() -> None:
    sizes = {
        len(node_and_stub(signatures)[2].author.write("a", b"x").raw) for signatures in Signatures
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("signatures", Signatures)
def test_without_signing_the_four_fields_are_absent_and_messages_get_through(
    signatures: Signatures,
) -> None:
    net = SimNetwork(seed=1, signatures=signatures)
    config = RouterConfig(
        signature_policy=SignaturePolicy.STRICT_NO_SIGN,
        default_topic=TopicParams(message_id=id_from_content),
    )
    one, other = net.add_nodes(2, config=config)
    net.connect(one, other)
    net.subscribe_all("t")
    net.run_for(1.0)
    net.publish(one, "t", b"anonymous")
    net.run_for(1.0)
    assert [delivery.payload for delivery in other.deliveries("t")] == [b"anonymous"]
    message = one.author.write("t", b"x")
    assert (message.author, message.seqno, message.signature, message.key) == (b"",) * 4


def test_signatures_are_checked_one_after_the_other_at_their_price() -> None:
    net, node, stub = node_and_stub(price=0.25)
    stub.publish(node, *(stub.author.write(topic, b"x") for topic in ("a", "b", "a")))
    net.run_until(5.0)
    assert [delivery.time for delivery in node.deliveries("a")] == [1.25, 1.75]
    assert [delivery.time for delivery in node.deliveries("b")] == [1.5]


def test_signatures_without_a_price_take_no_time() -> None:
    net, node, stub = node_and_stub()
    stub.publish(node, stub.author.write("a", b"x"))
    net.run_until(1.0)
    assert [delivery.time for delivery in node.deliveries("a")] == [1.0]


def test_validators_judge_one_message_at_a_time_per_topic() -> None:
    net, node, stub = node_and_stub()
    node.set_validator("a", lambda topic, data: ACCEPTED, delay=0.5)
    node.set_validator("b", lambda topic, data: ACCEPTED, delay=0.25)
    stub.publish(node, *(stub.author.write(topic, b"x") for topic in ("a", "a", "b", "b")))
    net.run_until(10.0)
    assert [delivery.time for delivery in node.deliveries("a")] == [1.5, 2.0]
    assert [delivery.time for delivery in node.deliveries("b")] == [1.25, 1.5]
    stub.publish(node, stub.author.write("a", b"y"))
    net.run_until(20.0)
    assert node.deliveries("a")[-1].time == 10.5


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_a_validator_sees_topic_and_data_and_decides(delay: float) -> None:
    net, node, stub = node_and_stub()

    def validator(topic: str, data: bytes) -> Validation:
        if data == b"bad":
            return reject(f"bad on {topic}")
        return Validation(Verdict.IGNORE) if data == b"dull" else ACCEPTED

    node.set_validator("a", validator, delay)
    stub.publish(node, *(stub.author.write("a", data) for data in (b"bad", b"dull", b"good")))
    net.run_for(5.0)
    assert [delivery.payload for delivery in node.deliveries("a")] == [b"good"]
    assert rejections(node) == ["bad on a"]


def test_a_node_that_crashes_while_it_validates_delivers_nothing() -> None:
    net, node, stub = node_and_stub()
    node.set_validator("a", lambda topic, data: ACCEPTED, delay=1.0)
    stub.publish(node, stub.author.write("a", b"x"))
    net.run_for(0.5)
    net.crash(node)
    net.run_for(5.0)
    assert node.deliveries("a") == []


def test_prices_and_delays_below_zero_are_refused() -> None:
    with pytest.raises(LocalError, match="signature_price"):
        SimNetwork(seed=1, signature_price=-1.0)
    (node,) = SimNetwork(seed=1).add_nodes(1)
    with pytest.raises(LocalError, match="validator delay"):
        node.set_validator("a", lambda topic, data: ACCEPTED, delay=-1.0)


def test_reports_are_kept_only_if_asked_for() -> None:
    _, node, _ = node_and_stub()
    assert {type(report).__name__ for _, report in node.reports} == {"PeerJoined"}
    net = SimNetwork(seed=1)
    one, other = net.add_nodes(2)
    net.connect(one, other)
    net.run_for(1.0)
    assert one.reports == []


def test_a_delivery_is_a_plain_record() -> None:
    net, node, stub = node_and_stub()
    stub.publish(node, message := stub.author.write("a", b"x"))
    net.run_for(1.0)
    assert msgspec.structs.asdict(node.deliveries("a")[0]) == {
        "time": 1.0,
        "message_id": message.author + message.seqno,
        "payload": b"x",
        "source": stub.peer_id,
    }
