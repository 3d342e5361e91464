"""Any bytes from a peer: a router takes them, or drops and counts them, and goes on working."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver, SendControl, SendMessage
from bruit.node.gossip.events import FrameReceived, PeerConnected, Protocol
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import decode_frame
from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.message import SignaturePolicy, id_from_content
from tests.gossip.handheld import Handheld, grafts, id_of, ihave, of, subscriptions
from tests.gossip.neighbourhood import TOPIC

UNSIGNED = RouterConfig(
    signature_policy=SignaturePolicy.STRICT_NO_SIGN,
    default_topic=TopicParams(message_id=id_from_content),
)


def whole_frame() -> bytes:
    """A frame with something of everything that is well-formed."""
    rpc = subscriptions(TOPIC, "another topic")
    rpc.publish.append(Handheld().write("attacker", TOPIC, b"some data").raw)
    rpc.MergeFrom(grafts(TOPIC))
    rpc.MergeFrom(ihave(TOPIC, b"an id", b"another"))
    rpc.control.iwant.add(message_ids=[b"an id"])
    rpc.control.prune.add(topic=TOPIC, backoff=5).peers.add(peer_id=id_of("peer"))
    rpc.control.idontwant.add(message_ids=[b"an id"])
    return rpc.SerializeToString()


WHOLE = whole_frame()


def protobuf_field(number: int, wire_type: int, value: bytes) -> bytes:
    """A field of a small number; of wire type 2 (with a length) or any other."""
    length = bytes([len(value)]) if wire_type == 2 else b""
    return bytes([number << 3 | wire_type]) + length + value


nested = st.recursive(
    st.binary(max_size=12),
    lambda inner: st.lists(
        st.builds(protobuf_field, st.integers(1, 7), st.sampled_from([0, 1, 2, 2, 2, 5]), inner),
        max_size=4,
    ).map(lambda fields: b"".join(fields)[:120]),
    max_leaves=12,
)
flips = st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), max_size=4)


def check(frame: bytes, config: RouterConfig | None = None) -> None:
    """The frame is taken or dropped as malformed; afterwards the router still does its work."""
    handheld = Handheld(config)
    handheld.subscribe(TOPIC)
    attacker, honest = handheld.connect("attacker", TOPIC), handheld.connect("honest", TOPIC)
    malformed = handheld.count(drops.MALFORMED_FRAME)
    actions = handheld.receive(attacker, frame)
    try:
        decode_frame(frame)
    except RemoteError:
        assert handheld.count(drops.MALFORMED_FRAME) == malformed + 1
        assert not of(actions, SendControl)
        assert not of(actions, SendMessage)
    for control in of(actions, SendControl):
        decode_frame(control.frame)
    handheld.beat(3)
    later = handheld.receive_message(honest, handheld.write("author", TOPIC, b"still alive"))
    assert [delivery.payload for delivery in of(later, Deliver)] == [b"still alive"]


@given(st.binary(max_size=150))
def test_any_bytes_leave_the_router_working(frame: bytes) -> None:
    check(frame)


@given(nested)
@example(b"\x0a\x06\x08\x01\x12\x02\xff\xfe")  # a topic that is no UTF-8
def test_any_nest_of_fields_leaves_the_router_working(frame: bytes) -> None:
    check(frame)
    check(frame, UNSIGNED)


@given(flips)
def test_any_flipped_bytes_leave_the_router_working(changes: list[tuple[int, int]]) -> None:
    frame = bytearray(WHOLE)
    for place, mask in changes:
        frame[place] ^= mask
    check(bytes(frame))


@given(st.integers(0, len(WHOLE)))
def test_a_frame_cut_anywhere_leaves_the_router_working(length: int) -> None:
    check(WHOLE[:length])


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_for_messages_leave_the_router_working(raws: list[bytes]) -> None:
    frame = Rpc(publish=raws).SerializeToString()
    check(frame)
    check(frame, UNSIGNED)


def test_a_frame_that_is_well_formed_is_not_counted_as_malformed() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    handheld.receive(handheld.connect("attacker"), WHOLE)
    assert handheld.count(drops.MALFORMED_FRAME) == 0


# What a caller may do wrong


def test_a_peer_that_connects_twice_is_the_callers_mistake_and_changes_nothing() -> None:
    handheld = Handheld()
    peer = handheld.connect("peer", TOPIC)
    before = handheld.router.statistics()
    with pytest.raises(LocalError, match="twice"):
        handheld.handle(PeerConnected(peer, Protocol.GOSSIPSUB_12, False))
    assert handheld.router.statistics() == before
    assert handheld.handle(FrameReceived(peer, b"")) == []


@pytest.mark.parametrize("topic", ["", "t" * 257, "a\nb", "a\ud800"])
def test_an_impossible_topic_is_the_callers_mistake_and_changes_nothing(topic: str) -> None:
    handheld = Handheld()
    handheld.connect("peer", TOPIC)
    before = handheld.router.statistics()
    with pytest.raises(LocalError):
        handheld.subscribe(topic)
    assert handheld.router.statistics() == before
    assert handheld.handle(FrameReceived(id_of("peer"), b"")) == []
