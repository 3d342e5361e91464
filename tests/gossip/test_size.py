"""Sizes: how much goes into a frame, how much is taken out of one, how large a message may be."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.gossip import drops, params
from bruit.node.gossip.actions import Deliver, Rejected, SendControl
from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import PeerInfo, Rpc
from bruit.node.gossip.wire import (
    Batch,
    Prune,
    decode_frame,
    encode_batch,
    ihave_entries,
    ihave_frames,
    message_frame,
)
from bruit.scoring.seam import Refusal
from bruit.topics.errors import RemoteError
from bruit.topics.uvarint import encode_uvarint
from tests.gossip.handheld import Handheld, between, of, told
from tests.gossip.neighbourhood import STEP, TOPIC, introduce, network

# Frames that we write

names = st.text(min_size=1, max_size=20)
ids = st.binary(max_size=60)
prunes = st.builds(
    lambda backoff, peers: (backoff, tuple(peers)),
    st.none() | st.integers(0, 3600),
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=60)), max_size=4),
)
batches = st.builds(
    lambda subscriptions, grafts, prunes, iwant, idontwant: Batch(
        subscriptions,
        dict.fromkeys(grafts),
        {topic: Prune(topic, backoff, peers) for topic, (backoff, peers) in prunes.items()},
        iwant=iwant,
        idontwant=idontwant,
    ),
    st.dictionaries(names, st.booleans(), max_size=8),
    st.lists(names, max_size=5),
    st.dictionaries(names, prunes, max_size=4),
    st.lists(ids, max_size=20),
    st.lists(ids, max_size=35),
)
known = st.dictionaries(names, st.lists(ids, min_size=1, max_size=12), max_size=4)


def heard(ihave: dict[str, list[bytes]], max_size: int) -> list[bytes]:
    return [
        entry for topic, each in ihave.items() for entry in ihave_entries(topic, each, max_size)
    ]


def entries_of_batch(batch: Batch, ihave: dict[str, list[bytes]]) -> list[tuple[object, ...]]:
    """Everything that a batch says, one entry each; what belongs to one id is one entry."""
    prunes = [
        ("prune", topic, prune.backoff or 0, prune.backoff is not None, prune.peers)
        for topic, prune in batch.prunes.items()
    ]
    return [
        *(("subscription", topic, wanted) for topic, wanted in batch.subscriptions.items()),
        *(("graft", topic) for topic in batch.grafts),
        *prunes,
        *(("ihave", topic, each) for topic, ids in ihave.items() for each in ids),
        *(("iwant", each) for each in batch.iwant),
        *(("idontwant", each) for each in batch.idontwant),
    ]


def entries_of_frame(frame: bytes) -> list[tuple[object, ...]]:
    """The same, read back by the generated protobuf code."""
    rpc = Rpc.FromString(frame)
    control = rpc.control
    assert not rpc.publish
    prunes = [
        (
            "prune",
            entry.topic,
            entry.backoff,
            entry.HasField("backoff"),
            tuple((peer.peer_id, peer.signed_peer_record) for peer in entry.peers),
        )
        for entry in control.prune
    ]
    return [
        *(("subscription", entry.topic, entry.subscribe) for entry in rpc.subscriptions),
        *(("graft", entry.topic) for entry in control.graft),
        *prunes,
        *(("ihave", entry.topic, each) for entry in control.ihave for each in entry.message_ids),
        *(("iwant", each) for entry in control.iwant for each in entry.message_ids),
        *(("idontwant", each) for entry in control.idontwant for each in entry.message_ids),
    ]


@given(batches, known, st.integers(30, 1500), st.integers(1, 12), st.integers(1, 12))
def test_a_batch_is_said_in_frames_that_fit_and_nothing_is_lost_or_doubled(
    batch: Batch, ihave: dict[str, list[bytes]], max_size: int, max_iwant: int, max_idontwant: int
) -> None:
    """go: TestFragmentRPCFunction, FuzzRPCSplit."""
    batch.ihave = heard(ihave, max_size)
    frames = encode_batch(batch, max_size, max_iwant, max_idontwant)
    said = [entries_of_frame(frame) for frame in frames]
    for frame, entries in zip(frames, said, strict=True):
        assert entries
        assert len(frame) <= max_size or len(entries) == 1
        assert sum(entry[0] == "iwant" for entry in entries) <= max_iwant
        assert sum(entry[0] == "idontwant" for entry in entries) <= max_idontwant
    flat = [entry for entries in said for entry in entries]
    for kind in ("subscription", "graft", "ihave", "iwant", "idontwant"):
        expected = [entry for entry in entries_of_batch(batch, ihave) if entry[0] == kind]
        assert [entry for entry in flat if entry[0] == kind] == expected
    prunes = [entry for entry in entries_of_batch(batch, ihave) if entry[0] == "prune"]
    leaving = [entry for entry in prunes if batch.subscriptions.get(str(entry[1])) is False]
    staying = [entry for entry in prunes if entry not in leaving]
    assert [entry for entry in flat if entry[0] == "prune"] == leaving + staying


@given(known, st.integers(30, 1500))
def test_ihave_by_itself_is_said_in_frames_that_fit(
    ihave: dict[str, list[bytes]], max_size: int
) -> None:
    frames = ihave_frames(heard(ihave, max_size), max_size) if ihave else []
    said = [entries_of_frame(frame) for frame in frames]
    for frame, entries in zip(frames, said, strict=True):
        assert entries
        assert len(frame) <= max_size or len(entries) == 1
    flat = [entry for entries in said for entry in entries]
    assert flat == [("ihave", topic, each) for topic, ids in ihave.items() for each in ids]


@given(batches, known)
def test_a_batch_that_fits_is_one_frame(batch: Batch, ihave: dict[str, list[bytes]]) -> None:
    """But for the PRUNEs of topics that are left: they go ahead, in one more."""
    batch.ihave = heard(ihave, 1_000_000)
    leaving = [topic for topic in batch.prunes if batch.subscriptions.get(topic) is False]
    frames = encode_batch(batch, 1_000_000, 35, 35)
    assert len(frames) == (1 if entries_of_batch(batch, ihave) else 0) + bool(leaving)


def test_an_id_larger_than_a_frame_goes_by_itself() -> None:
    """go: TestFragmentRPCFunction, its pathological case."""
    giant = bytes(2048)
    frames = encode_batch(Batch(iwant=[b"hello", giant, b"world"]), 1024, 10, 10)
    assert [entries_of_frame(frame) for frame in frames] == [
        [("iwant", b"hello")],
        [("iwant", giant)],
        [("iwant", b"world")],
    ]


def test_splitting_wastes_no_more_than_half_of_a_frame() -> None:
    """500 ids of 32 bytes, 34 each on the wire, into frames of 1,024."""
    entries = ihave_entries(TOPIC, [number.to_bytes(32, "big") for number in range(500)], 1024)
    frames = ihave_frames(entries, 1024)
    assert 500 * 34 / 1024 <= len(frames) <= 2 * 500 * 34 / 1024


@given(st.integers(0, 2**63))
def test_a_varint_says_its_number_in_groups_of_seven_bits(value: int) -> None:
    encoded = encode_uvarint(value)
    groups = [byte & 0x7F for byte in encoded]
    assert sum(group << 7 * place for place, group in enumerate(groups)) == value
    assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]
    assert len(encoded) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16_383, 16_384, 100_000])
def test_the_frame_of_a_message_is_an_rpc_with_this_message(size: int) -> None:
    raw = bytes(size)
    assert message_frame(raw) == Rpc(publish=[raw]).SerializeToString()


def test_large_answers_leave_in_frames_of_bounded_size() -> None:
    """go: TestGossipsubRPCFragmentation (1,000 messages of 20,000 bytes; here 150).

    The peer is in no mesh and asks for all that it hears of.
    """
    net = network()
    config = RouterConfig(params=GossipParams(flood_publish=False, max_rpc_size=1024))
    (node,) = net.add_nodes(1, config=config)
    net.subscribe(node, TOPIC)
    (stub,) = introduce(net, node, ["greedy"], protocol=Protocol.GOSSIPSUB_10)
    stub.prune(node, TOPIC)
    net.run_for(STEP)
    stub.forget()
    heard: dict[bytes, None] = {}
    looked_at = 0
    for number in range(400):
        if number < 150:
            net.publish(node, TOPIC, number.to_bytes(2, "big") * 10_000)
        net.run_for(0.02)
        frames = stub.sent_to_me()
        for frame in frames[looked_at:]:
            for ihave in frame.rpc.control.ihave:
                wanted = [each for each in ihave.message_ids if each not in heard]
                heard.update(dict.fromkeys(wanted))
                stub.iwant(node, *wanted)
        looked_at = len(frames)
    assert len(heard) == 150
    numbers = [int.from_bytes(message.data[:2], "big") for message in stub.messages()]
    assert sorted(numbers) == list(range(150))
    frames = stub.sent_to_me()
    for frame in frames:
        assert len(frame.rpc.publish) == 1 or len(frame.frame) <= 1024
    # Three heartbeats of 0.7 s make 105 messages, and ids of 46 bytes five frames or more.
    said_at = [frame.time for frame in frames if frame.rpc.control.ihave]
    assert any(said_at.count(time) >= 5 for time in said_at)


# Frames that we read


def repeated(add: Callable[[Rpc], object], count: int) -> bytes:
    rpc = Rpc()
    for _ in range(count):
        add(rpc)
    return rpc.SerializeToString()


@pytest.mark.parametrize(
    ("add", "cap"),
    [
        (lambda rpc: rpc.subscriptions.add(), params.MAX_SUBSCRIPTIONS_PER_RPC),
        (lambda rpc: rpc.publish.append(b""), params.MAX_MESSAGES_PER_RPC),
        (lambda rpc: rpc.control.ihave.add(), params.MAX_CONTROL_PER_RPC),
        (lambda rpc: rpc.control.iwant.add(), params.MAX_CONTROL_PER_RPC),
        (lambda rpc: rpc.control.graft.add(), params.MAX_CONTROL_PER_RPC),
        (lambda rpc: rpc.control.prune.add(), params.MAX_CONTROL_PER_RPC),
        (lambda rpc: rpc.control.idontwant.add(), params.MAX_CONTROL_PER_RPC),
    ],
    ids=["subscriptions", "messages", "ihave", "iwant", "graft", "prune", "idontwant"],
)
def test_a_list_is_taken_up_to_its_cap_and_refused_one_past_it(
    add: Callable[[Rpc], object], cap: int
) -> None:
    """js-libp2p decodeRpcLimits: 5,000 of each."""
    assert cap == 5000
    decode_frame(repeated(add, cap))
    with pytest.raises(RemoteError, match=r"5001 .* the limit is 5000"):
        decode_frame(repeated(add, cap + 1))


def test_a_frame_with_too_long_a_list_is_dropped_whole_and_counted() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    frame = repeated(lambda rpc: rpc.control.prune.add(topic=TOPIC), 5001)
    handheld.receive(peer, frame)
    assert handheld.mesh(TOPIC) == (peer,)
    assert handheld.count(drops.MALFORMED_FRAME) == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"\x0a\x06\x08\x01\x12\x02\xff\xfe",  # subscription
        b"\x1a\x06\x0a\x04\x0a\x02\xff\xfe",  # IHAVE
        b"\x1a\x06\x1a\x04\x0a\x02\xff\xfe",  # GRAFT
        b"\x1a\x06\x22\x04\x0a\x02\xff\xfe",  # PRUNE
    ],
    ids=["subscription", "ihave", "graft", "prune"],
)
def test_a_frame_with_a_topic_that_is_no_utf_8_is_dropped_and_counted(frame: bytes) -> None:
    with pytest.raises(RemoteError, match="UTF-8"):
        decode_frame(frame)
    handheld = Handheld()
    peer = handheld.connect("peer")
    handheld.receive(peer, frame)
    assert handheld.count(drops.MALFORMED_FRAME) == 1


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_fault(frame: bytes) -> None:
    try:
        rpc = decode_frame(frame)
    except RemoteError:
        return
    assert isinstance(rpc, Rpc)


def test_a_prune_says_its_backoff_in_whole_seconds_rounded_up_and_whom_it_offers() -> None:
    prune = Prune(TOPIC, 10.2, ((b"peer", b"record"), (b"other", b"")))
    (frame,) = encode_batch(Batch(prunes={TOPIC: prune}), 1024, 10, 10)
    (entry,) = Rpc.FromString(frame).control.prune
    assert entry.backoff == 11
    assert list(entry.peers) == [
        PeerInfo(peer_id=b"peer", signed_peer_record=b"record"),
        PeerInfo(peer_id=b"other"),
    ]


# Messages


def test_a_message_larger_than_its_topic_allows_is_rejected_at_the_senders_cost() -> None:
    limits = {"small": TopicParams(max_message_size=1000), "large": TopicParams()}
    handheld = Handheld(RouterConfig(topics=limits))
    peer = handheld.connect("peer", "small", "large")
    for topic in limits:
        handheld.subscribe(topic)
        actions = handheld.receive_message(peer, handheld.write("author", topic, bytes(1000)))
        refused = topic == "small"
        rejections = of(actions, Rejected)
        assert len(rejections) == refused
        assert all("more than the topic's 1000" in each.reason for each in rejections)
        assert len(of(actions, Deliver)) == (not refused)
    (judged,) = handheld.scores.about("refused")
    assert (judged.peer, judged.topic) == (peer, "small")
    assert judged.refusal is Refusal.FORGED


@pytest.mark.parametrize(("surplus", "taken"), [(0, True), (1, False)])
def test_the_size_of_a_message_counts_with_its_wrapping(surplus: int, taken: bool) -> None:
    message = Handheld().write("author", TOPIC, bytes(1000))
    limit = TopicParams(max_message_size=len(message.raw) - surplus)
    handheld = Handheld(RouterConfig(default_topic=limit))
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    assert len(of(handheld.receive_message(peer, message), Deliver)) == taken


def test_control_goes_in_frames_that_rust_takes_whatever_the_limit_on_messages() -> None:
    """rust-libp2p: max_control_message_size, 16,384 bytes; it ends the stream on more."""
    handheld, one, *_ = between()
    peers = [handheld.connect(f"outside {number}", TOPIC) for number in range(20)]
    for number in range(1500):
        handheld.receive_message(one, handheld.write("author", TOPIC, b"%d" % number))
    actions = handheld.beat()
    frames = [action.frame for action in of(actions, SendControl) if action.peer in peers]
    assert max(map(len, frames)) <= 16_384
    told_about = [
        len({i for entry in told(actions, peer).control.ihave for i in entry.message_ids})
        for peer in peers
    ]
    assert set(told_about) == {0, 1500}
