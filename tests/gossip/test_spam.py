"""Floods and abuse: what one hostile peer can make a router do, and what it pays.

Each test states the bound of its attack. "Pays" means that the peer's misdeed
is reported to the scores; what they make of it is tested with them.
"""

from itertools import count

import pytest

from bruit.node.gossip import drops
from bruit.node.gossip.actions import (
    CancelQueued,
    CheckSignature,
    Deliver,
    Dropped,
    Grafted,
    Rejected,
    SendControl,
    SendMessage,
)
from bruit.node.gossip.events import Protocol, RecordLearnt
from bruit.node.gossip.params import (
    MAX_MESSAGE_ID,
    MAX_PEER_RECORD,
    MAX_SUBSCRIPTIONS_PER_RPC,
    MAX_TOPICS_PER_PEER,
    MAX_TRACKED_PER_PEER,
    GossipParams,
    RouterConfig,
    TopicParams,
)
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.scoring.thresholds import Thresholds
from bruit.topics.message import id_from_content, id_from_origin
from tests.gossip.handheld import (
    Handheld,
    grafts,
    id_of,
    idontwant,
    ihave,
    iwant,
    of,
    prunes,
    sent,
    subscriptions,
    told,
)
from tests.gossip.neighbourhood import STEP, TOPIC, introduce, network, payloads
from tests.gossip.recording_scores import Misbehaviour

HELD_AGAINST = Thresholds(gossip=-100, publish=-500, graylist=-1000)  # those of the go tests


def meshed(
    config: RouterConfig | None = None, thresholds: Thresholds | None = None
) -> tuple[Handheld, bytes]:
    """A subscribed router with one peer, the attacker, in its mesh."""
    handheld = Handheld(config, thresholds)
    handheld.subscribe(TOPIC)
    attacker = handheld.connect("attacker", TOPIC)
    assert handheld.mesh(TOPIC) == (attacker,)
    return handheld, attacker


# IWANT


def test_a_message_is_served_to_one_peer_at_most_three_times() -> None:
    """go: TestGossipsubAttackSpamIWANT: the publication itself and 3 retransmissions."""
    net = network()
    (node,) = net.add_nodes(1)
    net.subscribe(node, TOPIC)
    (attacker,) = introduce(net, node, ["attacker"])
    message_id = net.publish(node, TOPIC, bytes(16)).message_id
    net.run_for(STEP)
    for _ in range(20):
        attacker.iwant(node, message_id)
        net.run_for(STEP)
    assert len(attacker.messages()) == 1 + 3
    assert node.router.statistics().counters[drops.IWANT_REPEATED] == 20 - 3


def test_an_id_said_many_times_in_one_iwant_is_served_once() -> None:
    handheld, attacker = meshed()
    outcome, _ = handheld.publish(TOPIC, b"data")
    rpc = iwant(*[outcome.message_id] * 1000)
    rpc.control.iwant.add(message_ids=[outcome.message_id])
    assert sent(handheld.receive(attacker, rpc), attacker) == [outcome.message_id]


def test_asking_for_what_we_do_not_have_costs_nothing() -> None:
    handheld, attacker = meshed()
    before = handheld.router.statistics()
    assert handheld.receive(attacker, iwant(*[b"unknown %d" % n for n in range(5000)])) == []
    assert handheld.router.statistics() == before


def test_a_peer_below_the_gossip_threshold_is_served_nothing() -> None:
    handheld, attacker = meshed(thresholds=HELD_AGAINST)
    outcome, _ = handheld.publish(TOPIC, b"data")
    handheld.scores.values[attacker] = -100.1
    assert not sent(handheld.receive(attacker, iwant(outcome.message_id)), attacker)
    assert handheld.count(drops.IWANT_LOW_SCORE) == 1
    handheld.scores.values[attacker] = -100.0
    assert sent(handheld.receive(attacker, iwant(outcome.message_id)), attacker)


# IHAVE


def wanted(actions: list[SendControl], peer: bytes) -> list[bytes]:
    return [each for entry in told([*actions], peer).control.iwant for each in entry.message_ids]


def test_ihave_frames_are_answered_ten_times_a_heartbeat_and_broken_promises_are_paid_for() -> None:
    """go: TestGossipsubAttackSpamIHAVE: 15,000 frames with an id each, in two heartbeats."""
    handheld, attacker = meshed()
    asked: list[bytes] = []
    for beat in range(2):
        for number in range(15_000):
            message_id = b"some id %d/%d" % (beat, number)
            actions = of(handheld.receive(attacker, ihave(TOPIC, message_id)), SendControl)
            asked += wanted(actions, attacker)
        assert len(asked) == 10 * (beat + 1)
        handheld.beat()
    assert handheld.count(drops.IHAVE_FLOOD) == 2 * (15_000 - 10)
    # Asked at 0 s and 0.1 s, due 3 s later; beats are at 0.1 s, 0.8 s, …, 2.9 s, 3.6 s.
    handheld.beat(3)
    assert not handheld.scores.misbehaviours
    handheld.beat()
    assert handheld.scores.misbehaviours == [Misbehaviour(attacker, 20, "broken promise")]
    assert handheld.router.statistics().promises == 0


def test_no_more_than_5000_ids_are_asked_of_a_peer_in_one_heartbeat() -> None:
    handheld, attacker = meshed()
    numbers = count()
    for _ in range(2):
        asked: dict[bytes, None] = {}
        for _ in range(4):
            ids = [b"%060d" % next(numbers) for _ in range(2000)]
            actions = of(handheld.receive(attacker, ihave(TOPIC, *ids)), SendControl)
            asked |= dict.fromkeys(wanted(actions, attacker))
        assert len(asked) == 5000
        handheld.beat()


def test_one_entry_of_an_ihave_is_read_up_to_5000_ids() -> None:
    config = RouterConfig(params=GossipParams(max_ihave_length=100))
    handheld, attacker = meshed(config)
    actions = handheld.receive(attacker, ihave(TOPIC, *[b"%d" % number for number in range(300)]))
    asked = wanted(of(actions, SendControl), attacker)
    assert len(asked) == 100
    assert {int(message_id) for message_id in asked} == set(range(100))


def test_a_promise_is_one_random_id_of_each_iwant() -> None:
    """So that a peer cannot know which of the messages it must deliver."""
    promised = set()
    for seed in range(20):
        handheld = Handheld(seed=seed)
        handheld.subscribe(TOPIC)
        peer = handheld.connect("peer", TOPIC)
        messages = [handheld.write("author", TOPIC, b"%d" % number) for number in range(3)]
        handheld.receive(peer, ihave(TOPIC, *map(id_from_origin, messages)))
        assert handheld.router.statistics().promises == 1
        for number, message in enumerate(messages):
            handheld.receive_message(peer, message)
            if not handheld.router.statistics().promises:
                promised.add(number)
                break
    assert promised == {0, 1, 2}


def test_a_promise_kept_by_anybody_costs_nothing() -> None:
    handheld, debtor = meshed()
    other = handheld.connect("other", TOPIC)
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive(debtor, ihave(TOPIC, id_from_origin(message)))
    handheld.receive_message(other, message)
    handheld.beat(10)
    assert not handheld.scores.misbehaviours


def test_a_promise_of_what_we_then_say_ourselves_costs_nothing() -> None:
    handheld, debtor = meshed(RouterConfig(default_topic=TopicParams(message_id=id_from_content)))
    message = handheld.write("own", TOPIC, b"data")
    handheld.receive(debtor, ihave(TOPIC, id_from_content(message)))
    assert handheld.router.statistics().promises == 1
    handheld.publish_message(message)
    handheld.beat(10)
    assert not handheld.scores.misbehaviours


def test_a_promise_is_not_kept_by_a_forgery() -> None:
    handheld, attacker = meshed()
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive(attacker, ihave(TOPIC, id_from_origin(message)))
    actions = handheld.receive_message(attacker, message.raw.replace(b"data", b"junk"))
    assert of(actions, Rejected)
    handheld.beat(6)
    assert handheld.scores.penalties(attacker) == [1]


def test_what_is_known_or_concerns_no_topic_of_ours_is_not_asked_for() -> None:
    handheld, attacker = meshed()
    message = handheld.write("author", TOPIC, b"data")
    handheld.receive_message(attacker, message)
    assert handheld.receive(attacker, ihave(TOPIC, id_from_origin(message))) == []
    assert handheld.receive(attacker, ihave("another topic", b"unknown")) == []
    assert handheld.router.statistics().promises == 0


@pytest.mark.parametrize(
    ("message_id", "asked"),
    [(b"", False), (bytes(MAX_MESSAGE_ID), True), (bytes(MAX_MESSAGE_ID + 1), False)],
    ids=["empty", "256 bytes", "257 bytes"],
)
def test_ids_of_impossible_length_are_not_asked_for(message_id: bytes, asked: bool) -> None:
    handheld, attacker = meshed()
    assert bool(handheld.receive(attacker, ihave(TOPIC, message_id))) is asked


def test_a_peer_below_the_gossip_threshold_is_neither_heard_nor_told() -> None:
    handheld, attacker = meshed(thresholds=HELD_AGAINST)
    handheld.receive(attacker, prunes(TOPIC))
    handheld.publish(TOPIC, b"data")
    handheld.scores.values[attacker] = -100.1
    assert not of(handheld.receive(attacker, ihave(TOPIC, b"unknown")), SendControl)
    assert handheld.count(drops.IHAVE_LOW_SCORE) == 1
    assert not told(handheld.beat(), attacker).control.ihave
    handheld.scores.values[attacker] = -100.0
    assert told(handheld.beat(), attacker).control.ihave


# GRAFT and PRUNE


def test_a_graft_for_a_topic_that_we_are_not_in_is_not_answered() -> None:
    """go: TestGossipsubAttackGRAFTNonExistentTopic. An answer would tell what we are in."""
    handheld, attacker = meshed()
    before = handheld.router.statistics()
    assert handheld.receive(attacker, grafts("non-existent")) == []
    assert handheld.receive(attacker, grafts(*[f"topic {n}" for n in range(5000)])) == []
    assert handheld.router.statistics() == before


def test_grafts_during_the_backoff_are_refused_and_paid_for() -> None:
    """go: TestGossipsubAttackGRAFTDuringBackoff: once, and twice where they come at once.

    The backoff is 60 s, of which a GRAFT in the first 10 s costs double; every
    refusal begins it anew.
    """
    handheld, attacker = meshed(thresholds=HELD_AGAINST)
    assert handheld.receive(attacker, prunes(TOPIC)) != []
    handheld.now += 10.1
    actions = handheld.receive(attacker, grafts(TOPIC))
    assert [prune.backoff for prune in told(actions, attacker).control.prune] == [60]
    assert handheld.scores.misbehaviours == [Misbehaviour(attacker, 1, "GRAFT in backoff")]
    for _ in range(2):  # within 10 s of a refusal
        handheld.now += 1.0
        actions = handheld.receive(attacker, grafts(TOPIC))
        assert len(told(actions, attacker).control.prune) == 1
    assert handheld.scores.penalties(attacker) == [1, 2, 2]
    assert handheld.mesh(TOPIC) == ()
    handheld.now += 60.0
    actions = handheld.receive(attacker, grafts(TOPIC))
    assert not told(actions, attacker).control.prune
    assert handheld.mesh(TOPIC) == (attacker,)


def test_the_graft_of_a_graylisted_peer_is_not_even_refused() -> None:
    """go: TestGossipsubAttackGRAFTDuringBackoff, its last part."""
    handheld, attacker = meshed(thresholds=HELD_AGAINST)
    handheld.receive(attacker, prunes(TOPIC))
    handheld.scores.values[attacker] = -1000.1
    handheld.now += 61.0
    actions = handheld.receive(attacker, grafts(TOPIC))
    assert actions == [Dropped(attacker, "", drops.GRAYLISTED)]
    assert handheld.mesh(TOPIC) == ()


def test_5000_grafts_in_one_frame_are_refused_by_one_prune_and_paid_for_each() -> None:
    handheld, attacker = meshed()
    handheld.receive(attacker, prunes(TOPIC))
    handheld.now += 11.0
    actions = handheld.receive(attacker, grafts(*[TOPIC] * 5000))
    assert len(of(actions, SendControl)) == 1
    assert len(told(actions, attacker).control.prune) == 1
    assert sum(handheld.scores.penalties(attacker)) >= 5000


def test_a_subscription_and_a_prune_in_one_frame_provoke_no_graft() -> None:
    """Else the attacker could charge us for a GRAFT in backoff."""
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    attacker = handheld.connect("attacker")
    rpc = subscriptions(TOPIC)
    rpc.MergeFrom(prunes(TOPIC))
    actions = handheld.receive(attacker, rpc)
    assert not told(actions, attacker).control.graft
    assert handheld.mesh(TOPIC) == ()


def test_subscribing_and_leaving_in_one_frame_provokes_no_graft() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    attacker = handheld.connect("attacker")
    rpc = subscriptions(TOPIC)
    rpc.MergeFrom(subscriptions(TOPIC, wanted=False))
    actions = handheld.receive(attacker, rpc)
    assert not told(actions, attacker).control.graft
    assert handheld.mesh(TOPIC) == ()


def test_prunes_for_topics_that_we_are_not_in_are_not_remembered() -> None:
    handheld, attacker = meshed()
    handheld.receive(attacker, prunes(*[f"topic {n}" for n in range(5000)]))
    assert handheld.router.statistics().backoffs == 0


def test_control_from_a_floodsub_peer_is_ignored() -> None:
    """floodsub knows none, so what claims to be it is not understood on both sides."""
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("simple", TOPIC, protocol=Protocol.FLOODSUB)
    outcome, _ = handheld.publish(TOPIC, b"data")
    rpc = grafts(TOPIC)
    for part in (ihave(TOPIC, b"unknown"), iwant(outcome.message_id), idontwant(b"unknown")):
        rpc.MergeFrom(part)
    assert handheld.receive(peer, rpc) == [Dropped(peer, "", drops.NOT_A_MESH_PEER)]
    assert handheld.mesh(TOPIC) == ()
    assert handheld.count(drops.NOT_A_MESH_PEER) == 1


# Messages


def test_every_message_without_a_signature_is_rejected_at_the_senders_cost() -> None:
    """go: TestGossipsubAttackInvalidMessageSpam (100 messages): rejections, then a PRUNE."""
    handheld, attacker = meshed()
    unsigned = Handheld().write("attacker", TOPIC, b"some data")
    for number in range(100):
        forged = unsigned.raw.replace(unsigned.signature, b"%064d" % number)
        actions = handheld.receive_message(attacker, forged)
        assert [rejected.reason for rejected in of(actions, Rejected)] == ["invalid signature"]
        assert not of(actions, Deliver)
    assert len(handheld.scores.about("refused")) == 100
    handheld.scores.values[attacker] = -1.0
    actions = handheld.beat()
    assert [prune.topic for prune in told(actions, attacker).control.prune] == [TOPIC]
    assert handheld.mesh(TOPIC) == ()


def test_the_same_message_5000_times_in_a_frame_is_checked_and_delivered_once() -> None:
    handheld, attacker = meshed()
    message = handheld.write("author", TOPIC, b"data")
    actions = handheld.receive_message(attacker, *[message] * 5000)
    assert len(of(actions, CheckSignature)) == len(of(actions, Deliver)) == 1
    assert handheld.count(drops.DUPLICATE) == 4999
    assert len(handheld.scores.about("duplicate")) == 4999


# IDONTWANT


def test_idontwant_frames_beyond_1000_in_a_heartbeat_are_ignored_until_the_next() -> None:
    """go: TestGossipsubAttackSpamIDONTWANT."""
    config = RouterConfig(default_topic=TopicParams(message_id=id_from_content))
    net = network()
    publisher, middle = net.add_nodes(2, config=config)
    net.connect(publisher, middle)
    net.subscribe_all(TOPIC)
    (attacker,) = introduce(net, middle, ["attacker"])
    net.run_until(1.6)  # beats are at 0.1 s, 0.8 s, 1.5 s, 2.2 s, …
    said = [b"message %d" % number for number in range(1001)]
    messages = [publisher.author.write(TOPIC, data) for data in [*said, b"last"]]
    for message in messages[:-1]:
        attacker.idontwant(middle, id_from_content(message))
    net.run_until(1.8)
    net.publish(publisher, TOPIC, said[999])
    net.publish(publisher, TOPIC, said[1000])
    net.run_until(2.3)
    assert [message.data for message in attacker.messages()] == [said[1000]]
    assert middle.router.statistics().counters[drops.IDONTWANT_FLOOD] == 1
    attacker.idontwant(middle, id_from_content(messages[-1]))
    net.run_until(2.5)
    net.publish(publisher, TOPIC, b"last")
    net.run_until(3.5)
    assert payloads(middle) == [said[999], said[1000], b"last"]
    assert [message.data for message in attacker.messages()] == [said[1000]]


def test_only_the_first_ten_ids_of_an_idontwant_frame_count() -> None:
    """go: TestGossipsubHandleIDontwantSpam."""
    handheld, attacker = meshed()
    messages = [handheld.write("own", TOPIC, b"%d" % number) for number in range(11)]
    ids = [id_from_origin(message) for message in messages]
    rpc = idontwant(*ids[:6])
    rpc.MergeFrom(idontwant(*ids[6:]))
    (cancel,) = of(handheld.receive(attacker, rpc), CancelQueued)
    assert cancel.message_ids == tuple(ids[:10])
    outcomes = [handheld.publish_message(message)[0].peers for message in messages]
    assert outcomes == [()] * 10 + [(attacker,)]
    assert handheld.count(drops.IDONTWANT_LENGTH) == 1


def test_a_peer_can_decline_at_most_10_000_messages_at_a_time() -> None:
    """rust-libp2p IDONTWANT_CAP. 1,000 frames a heartbeat with ten ids each, for 3 heartbeats."""
    handheld, attacker = meshed()
    numbers = count()
    declined = 0
    for _ in range(3):
        for _ in range(1000):
            ids = [b"%d" % next(numbers) for _ in range(10)]
            for cancel in of(handheld.receive(attacker, idontwant(*ids)), CancelQueued):
                declined += len(cancel.message_ids)
        handheld.beat()
    assert MAX_TRACKED_PER_PEER == declined == 10_000


def test_an_id_of_impossible_length_is_not_remembered() -> None:
    handheld, attacker = meshed()
    assert handheld.receive(attacker, idontwant(bytes(MAX_MESSAGE_ID + 1))) == []
    assert of(handheld.receive(attacker, idontwant(bytes(MAX_MESSAGE_ID))), CancelQueued)


# Subscriptions, records, strangers


def test_a_peer_is_noted_in_at_most_1000_topics() -> None:
    handheld = Handheld()
    attacker = handheld.connect("attacker")
    for start in (0, 600):
        handheld.receive(attacker, subscriptions(*[f"topic {start + n}" for n in range(600)]))
    statistics = handheld.router.statistics()
    assert len(statistics.subscribers) == MAX_TOPICS_PER_PEER == 1000
    assert statistics.counters[drops.TOO_MANY_TOPICS] == 200
    handheld.receive(attacker, subscriptions("topic 0", wanted=False))
    handheld.receive(attacker, subscriptions("one more"))
    assert handheld.router.subscribers("one more") == (attacker,)


def test_a_subscription_frame_beyond_its_cap_changes_nothing() -> None:
    handheld = Handheld()
    attacker = handheld.connect("attacker")
    topics = [f"topic {number}" for number in range(MAX_SUBSCRIPTIONS_PER_RPC + 1)]
    handheld.receive(attacker, subscriptions(*topics))
    assert handheld.router.statistics().subscribers == {}
    assert handheld.count(drops.MALFORMED_FRAME) == 1


def test_impossible_topics_are_not_noted() -> None:
    handheld = Handheld()
    attacker = handheld.connect("attacker")
    handheld.receive(attacker, subscriptions("", "t" * 257, "a\nb", "fine"))
    assert handheld.router.statistics().subscribers == {"fine": (attacker,)}
    assert handheld.count(drops.MALFORMED_FRAME) == 3


def test_the_last_subscriber_to_leave_takes_the_topic_along() -> None:
    handheld = Handheld()
    attacker = handheld.connect("attacker")
    for number in range(3000):
        handheld.receive(attacker, subscriptions(f"topic {number}"))
        handheld.receive(attacker, subscriptions(f"topic {number}", wanted=False))
    assert handheld.router.statistics().subscribers == {}


def test_a_frame_from_a_stranger_is_dropped_and_counted() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    stranger = id_of("stranger")
    rpc = subscriptions(TOPIC)
    rpc.publish.append(handheld.write("stranger", TOPIC, b"data").raw)
    assert handheld.receive(stranger, rpc) == [Dropped(stranger, "", drops.UNKNOWN_PEER)]
    assert handheld.count(drops.UNKNOWN_PEER) == 1


def test_of_a_graylisted_peer_only_subscriptions_are_noted() -> None:
    handheld, attacker = meshed(thresholds=HELD_AGAINST)
    outcome, _ = handheld.publish(TOPIC, b"data")
    handheld.scores.values[attacker] = -1000.1
    rpc = subscriptions("another topic")
    rpc.publish.append(handheld.write("author", TOPIC, b"news").raw)
    for part in (ihave(TOPIC, b"unknown"), iwant(outcome.message_id), idontwant(b"unknown")):
        rpc.MergeFrom(part)
    actions = handheld.receive(attacker, rpc)
    ignored = (CheckSignature, Deliver, SendControl, SendMessage, CancelQueued, Grafted)
    assert not [action for action in actions if isinstance(action, ignored)]
    assert handheld.count(drops.GRAYLISTED) == 1
    assert handheld.router.subscribers("another topic") == (attacker,)


def test_a_peer_at_the_graylist_threshold_is_still_heard() -> None:
    handheld, peer = meshed(thresholds=HELD_AGAINST)
    handheld.scores.values[peer] = -1000.0
    actions = handheld.receive_message(peer, handheld.write("author", TOPIC, b"data"))
    assert of(actions, Deliver)


@pytest.mark.parametrize("frame", [b"\xff" * 100, b"\x0a\xff", b"\x12\x05abc", b"\x1a\x02\x0a\x7f"])
def test_garbage_is_dropped_and_counted(frame: bytes) -> None:
    handheld, attacker = meshed()
    assert handheld.receive(attacker, frame) == [Dropped(attacker, "", drops.MALFORMED_FRAME)]
    assert handheld.count(drops.MALFORMED_FRAME) == 1


def test_an_empty_frame_is_nothing() -> None:
    handheld, attacker = meshed()
    assert handheld.receive(attacker, Rpc()) == []


def test_a_peer_record_is_kept_up_to_its_limit() -> None:
    config = RouterConfig(params=GossipParams(peer_exchange=True))
    for size in (MAX_PEER_RECORD, MAX_PEER_RECORD + 1):
        handheld = Handheld(config)
        handheld.subscribe(TOPIC)
        full = [handheld.connect(f"peer {number}", TOPIC) for number in range(12)]
        for peer in full:
            handheld.receive(peer, grafts(TOPIC))
            handheld.handle(RecordLearnt(peer, bytes(size)))
        actions = handheld.receive(handheld.connect("late", TOPIC), grafts(TOPIC))
        (prune,) = told(actions, id_of("late")).control.prune
        assert len(prune.peers) == 12
        records = sorted(len(peer.signed_peer_record) for peer in prune.peers)
        # One fits into a frame that rust-libp2p takes; the others go without.
        assert records == [0] * 11 + [size if size <= MAX_PEER_RECORD else 0]


# Bounded work


def test_an_ihave_costs_no_more_than_its_first_5000_ids_over_all_entries() -> None:
    """js: handler-iteration-bound, with 10,000 ids offered; here in 100 entries."""
    handheld, attacker = meshed()
    rpc = Rpc()
    offered = [b"%d" % number for number in range(10_000)]
    for start in range(0, 10_000, 100):
        rpc.control.ihave.add(topic=TOPIC, message_ids=offered[start : start + 100])
    asked = told(handheld.receive(attacker, rpc), attacker).control.iwant
    assert sorted(i for entry in asked for i in entry.message_ids) == sorted(offered[:5000])
    assert handheld.count(drops.IHAVE_LENGTH) == 5000


def test_no_more_than_5000_ids_are_answered_to_one_peer_in_a_heartbeat() -> None:
    """js: handler-iteration-bound, which limits the frames to 10 instead."""
    handheld, attacker = meshed()
    outcome, _ = handheld.publish(TOPIC, b"data")
    unknown = [b"%d" % number for number in range(4999)]
    assert sent(handheld.receive(attacker, iwant(*unknown)), attacker) == []
    wanted = iwant(outcome.message_id, outcome.message_id + b"x")
    assert sent(handheld.receive(attacker, wanted), attacker) == [outcome.message_id]
    assert handheld.count(drops.IWANT_LENGTH) == 1
    assert sent(handheld.receive(attacker, iwant(outcome.message_id)), attacker) == []
    assert handheld.count(drops.IWANT_LENGTH) == 2
    handheld.beat()
    assert sent(handheld.receive(attacker, iwant(outcome.message_id)), attacker) == [
        outcome.message_id
    ]


def test_a_malformed_frame_is_held_against_its_sender() -> None:
    handheld, attacker = meshed()
    handheld.receive(attacker, b"\xff")
    handheld.receive(attacker, b"\xff")
    assert handheld.scores.penalties(attacker) == [1, 1]
