"""Large answers and much control: frames of bounded size that lose nothing."""

from collections import Counter

import pytest

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import Batch, Prune, encode_batch, ihave_entries
from bruit.topics.message import id_from_content
from tests.gossip.neighbourhood import STEP, TOPIC, beating, introduce, network, payloads

LIMIT = 1024  # bytes of a frame
MANY = 1_000_000  # more ids than any test has


def entries(frames: list[bytes]) -> Counter[tuple[str, str, bytes]]:
    """Everything that frames say: kind, topic, id."""
    found: Counter[tuple[str, str, bytes]] = Counter()
    for frame in frames:
        rpc = Rpc.FromString(frame)
        found.update(("subscription", each.topic, b"") for each in rpc.subscriptions)
        found.update(("graft", each.topic, b"") for each in rpc.control.graft)
        found.update(("prune", each.topic, b"") for each in rpc.control.prune)
        found.update(
            ("ihave", each.topic, message_id)
            for each in rpc.control.ihave
            for message_id in each.message_ids
        )
        found.update(
            ("iwant", "", message_id)
            for each in rpc.control.iwant
            for message_id in each.message_ids
        )
    return found


def test_what_fits_into_one_frame_is_one_frame() -> None:
    batch = Batch(
        {"test": True},
        {"test": None},
        {"test": Prune("test", 60.0)},
        ihave_entries("test", [b"foo"], LIMIT),
        [b"bar"],
    )
    [frame] = encode_batch(batch, LIMIT, MANY, MANY)
    assert sum(entries([frame]).values()) == 5


def test_control_of_five_topics_with_a_hundred_ids_each_is_split_and_whole() -> None:
    """Ids of 32 bytes: one IHAVE of a hundred, or one IWANT, exceeds a frame by itself."""
    ids = {
        f"topic {topic}": [(100 * topic + number).to_bytes(32, "big") for number in range(100)]
        for topic in range(5)
    }
    wanted = [bytes([1]) + message_id[1:] for each in ids.values() for message_id in each]
    heard: list[bytes] = []
    for topic, listed in ids.items():
        heard += ihave_entries(topic, listed, LIMIT)
    batch = Batch({"test": True}, {"test": None}, {"test": Prune("test", 60.0)}, heard, wanted)
    frames = encode_batch(batch, LIMIT, MANY, MANY)
    assert max(map(len, frames)) <= LIMIT
    assert len(frames) >= (2 * 500 * 34) // LIMIT  # an id has two bytes before it
    expected = Counter([(kind, "test", b"") for kind in ("subscription", "graft", "prune")])
    expected.update(("ihave", topic, each) for topic, listed in ids.items() for each in listed)
    expected.update(("iwant", "", each) for each in wanted)
    assert entries(frames) == expected


def test_an_id_larger_than_a_frame_keeps_no_other_from_being_said() -> None:
    frames = encode_batch(Batch(iwant=[b"hello", bytes(2 * LIMIT)]), LIMIT, MANY, MANY)
    [small] = [frame for frame in frames if len(frame) < LIMIT]
    assert entries([small]) == Counter([("iwant", "", b"hello")])


def test_a_thousand_messages_of_20_000_bytes_are_fetched_by_gossip() -> None:
    """A peer in no mesh asks for all that it hears of, one message published every 20 ms."""
    net = network()
    [node] = net.add_nodes(1, config=RouterConfig(params=GossipParams(flood_publish=False)))
    net.subscribe(node, TOPIC)
    [stub] = introduce(net, node, ["stub"], protocol=Protocol.GOSSIPSUB_10)
    stub.prune(node, TOPIC, backoff=3600)
    net.run_for(STEP)
    stub.forget()
    heard: dict[bytes, None] = {}
    received: Counter[bytes] = Counter()
    for number in range(1250):  # 5 s more than there are messages
        if number < 1000:
            net.publish(node, TOPIC, number.to_bytes(4, "big") * 5000)
        net.run_for(0.02)
        for frame in stub.sent_to_me():
            assert len(frame.frame) <= 1 << 20
            received.update(bytes(each) for each in frame.rpc.publish)
            for offer in frame.rpc.control.ihave:
                asked = [each for each in offer.message_ids if each not in heard]
                heard.update(dict.fromkeys(asked))
                stub.iwant(node, *asked)
        stub.forget()
    assert len(heard) == 1000
    assert len(received) == 1000
    assert set(received.values()) == {1}


MAXIMUM = 10_000  # bytes of a message on the wire that the reader takes


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ((MAXIMUM // 2 + 1, MAXIMUM // 2 + 1), [True, True]),  # too large together
        ((MAXIMUM + 10, MAXIMUM + 10), [False, False]),
        ((MAXIMUM // 2, MAXIMUM // 3), [True, True]),
        ((MAXIMUM // 2, MAXIMUM + 10), [True, False]),
    ],
    ids=["split", "none", "both", "the smaller"],
)
def test_of_two_messages_asked_for_those_within_the_limit_arrive(
    sizes: tuple[int, int], taken: list[bool]
) -> None:
    net = network()
    meshless = beating(d=0, d_lo=0, d_hi=0, d_score=0, d_out=0).params
    generous = TopicParams(message_id=id_from_content)
    strict = TopicParams(message_id=id_from_content, max_message_size=MAXIMUM)
    [giver] = net.add_nodes(1, config=RouterConfig(params=meshless, default_topic=generous))
    [reader] = net.add_nodes(1, config=RouterConfig(default_topic=strict))
    net.subscribe_all(TOPIC)
    said = [bytes([number]) * size for number, size in enumerate(sizes)]
    for data in said:
        net.publish(giver, TOPIC, data)  # to nobody: they are left to gossip
    net.connect(reader, giver)
    net.run_until(2.5)
    wanted = [data for data, fits in zip(said, taken, strict=True) if fits]
    assert sorted(payloads(reader)) == wanted
    assert giver.router.statistics().counters["IWANT messages served"] >= 2
