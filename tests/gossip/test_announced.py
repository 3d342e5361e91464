"""Announced topics: who has a message says so at once, and sends it to whoever asks."""

from random import Random

import pytest

from bruit.node.gossip.actions import Action, CancelQueued, SendMessage
from bruit.node.gossip.events import PeerDisconnected, Protocol, Unsubscribe
from bruit.node.gossip.params import (
    MAX_MESSAGE_ID,
    Announced,
    GossipParams,
    RouterConfig,
    TopicParams,
)
from bruit.node.sim.links import LinkModel
from bruit.node.sim.network import SimNetwork
from bruit.node.sim.topologies import sparse_random
from bruit.topics.message import id_from_content
from tests.gossip.handheld import Handheld, between, id_of, ihave, iwant, of, sent, told
from tests.gossip.neighbourhood import TOPIC


def announcing(
    announced: Announced | None = None, params: GossipParams | None = None
) -> RouterConfig:
    topic = TopicParams(message_id=id_from_content, announced=announced or Announced())
    return RouterConfig(params=params or GossipParams(), topics={TOPIC: topic})


def asked_of(actions: list[Action], peer: bytes) -> list[bytes]:
    return [each for entry in told(actions, peer).control.iwant for each in entry.message_ids]


def told_of(actions: list[Action], peer: bytes) -> list[bytes]:
    entries = told(actions, peer).control.ihave
    return [each for entry in entries for each in entry.message_ids]


def test_an_accepted_message_is_announced_to_the_mesh_and_pushed_to_nobody() -> None:
    handheld, one, two, three = between(announcing())
    message = handheld.write("author", TOPIC, b"a block")
    actions = handheld.receive_message(one, message)
    assert not of(actions, SendMessage)
    assert told_of(actions, two) == told_of(actions, three) == [id_from_content(message)]
    assert told_of(actions, one) == []


def test_what_is_announced_is_asked_for_at_once() -> None:
    handheld, one, _, _ = between(announcing())
    assert asked_of(handheld.receive(one, ihave(TOPIC, b"new")), one) == [b"new"]


def test_a_message_that_two_announce_is_asked_of_one() -> None:
    handheld, one, two, _ = between(announcing())
    handheld.receive(one, ihave(TOPIC, b"new"))
    assert asked_of(handheld.receive(two, ihave(TOPIC, b"new")), two) == []


def test_who_does_not_answer_is_passed_over_for_the_next_who_has_it() -> None:
    handheld, one, two, _ = between(announcing())
    handheld.receive(one, ihave(TOPIC, b"new"))
    handheld.receive(two, ihave(TOPIC, b"new"))
    actions: list[Action] = []
    while handheld.now <= 4.5:  # iwant_followup is 3 s, a heartbeat 0.7 s
        actions += handheld.beat()
    assert asked_of(actions, two) == [b"new"]
    assert handheld.count("broken promises") == 1


def test_a_peer_that_answers_other_questions_meanwhile_breaks_no_promise() -> None:
    handheld, one, _, _ = between(announcing())
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive(one, ihave(TOPIC, b"late", id_from_content(message)))
    handheld.beat()
    handheld.receive_message(one, message)
    handheld.beat(6)
    assert handheld.count("broken promises") == 0


def test_a_peer_is_asked_for_few_messages_at_a_time_and_for_more_as_it_answers() -> None:
    handheld, one, _, _ = between(announcing(Announced(at_once=2)))
    messages = [handheld.write("author", TOPIC, b"block %d" % each) for each in range(5)]
    ids = [id_from_content(message) for message in messages]
    asked = asked_of(handheld.receive(one, ihave(TOPIC, *ids)), one)
    assert len(asked) == 2
    answer = next(message for message in messages if id_from_content(message) == asked[0])
    more = asked_of(handheld.receive_message(one, answer), one)
    assert len(more) == 1
    assert more[0] not in asked


def test_a_slow_peer_is_asked_for_one_message_at_a_time() -> None:
    handheld, one, _, _ = between(announcing(Announced(at_once=4)))
    messages = [handheld.write("author", TOPIC, b"block %d" % each) for each in range(3)]
    first, second, third = (id_from_content(message) for message in messages)
    handheld.receive(one, ihave(TOPIC, first))
    handheld.beat(2)  # 1.4 s
    handheld.receive_message(one, messages[0])
    assert len(asked_of(handheld.receive(one, ihave(TOPIC, second, third)), one)) == 1


def test_when_a_peer_is_gone_another_is_asked_for_what_it_owed() -> None:
    handheld, one, two, _ = between(announcing())
    handheld.receive(one, ihave(TOPIC, b"new"))
    handheld.receive(two, ihave(TOPIC, b"new"))
    assert asked_of(handheld.handle(PeerDisconnected(one)), two) == [b"new"]


def test_a_question_to_a_peer_that_is_gone_leaves_nothing_behind() -> None:
    handheld, one, _, _ = between(announcing())
    handheld.receive(one, ihave(TOPIC, b"new"))
    handheld.handle(PeerDisconnected(one))
    handheld.connect("one", TOPIC)
    assert asked_of(handheld.receive(one, ihave(TOPIC, b"new")), one) == [b"new"]


def test_what_a_peer_announces_is_not_announced_to_it() -> None:
    handheld, one, two, three = between(announcing())
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive(two, ihave(TOPIC, id_from_content(message)))
    actions = handheld.receive_message(one, message)
    assert told_of(actions, two) == []
    assert told_of(actions, three) == [id_from_content(message)]


def test_a_message_in_the_queue_of_a_peer_that_announces_it_is_taken_out() -> None:
    handheld, one, two, _ = between(announcing())
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive_message(one, message)
    cancelled = of(handheld.receive(two, ihave(TOPIC, id_from_content(message))), CancelQueued)
    assert cancelled == [CancelQueued(two, (id_from_content(message),))]


def test_an_own_publication_is_pushed_to_some_and_announced_to_the_others() -> None:
    handheld, *peers = between(announcing(Announced(pushed=1)))
    outcome, actions = handheld.publish(TOPIC, b"mine")
    assert set(outcome.peers) == set(peers)
    pushed = [peer for peer in peers if sent(actions, peer)]
    announced = [peer for peer in peers if told_of(actions, peer) == [outcome.message_id]]
    assert len(pushed) == 1
    assert set(announced) == set(peers) - set(pushed)


def test_who_asks_is_sent_the_message_for_as_long_as_it_is_kept() -> None:
    keep = 10.0
    handheld, one, two, _ = between(
        announcing(Announced(keep=keep), GossipParams(history_length=3))
    )
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive_message(one, message)
    while handheld.now < keep - 1:
        handheld.beat()
    assert sent(handheld.receive(two, iwant(id_from_content(message))), two)
    while handheld.now < keep + 2:
        handheld.beat()
    assert not sent(handheld.receive(two, iwant(id_from_content(message))), two)


def test_who_joins_the_mesh_later_hears_of_a_message_at_the_next_heartbeat() -> None:
    handheld = Handheld(announcing())
    handheld.subscribe(TOPIC)
    one = handheld.connect("one", TOPIC)
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive_message(one, message)
    late = handheld.connect("late", TOPIC)
    assert late in handheld.mesh(TOPIC)
    assert told_of(handheld.beat(), late) == [id_from_content(message)]


def test_a_floodsub_peer_which_cannot_ask_is_sent_the_message_unasked() -> None:
    handheld, one, _, _ = between(announcing())
    flooded = handheld.connect("old", TOPIC, protocol=Protocol.FLOODSUB)
    message = handheld.write("author", TOPIC, b"a block")
    assert sent(handheld.receive_message(one, message), flooded) == [id_from_content(message)]


def test_other_topics_are_pushed_as_ever() -> None:
    config = announcing()
    handheld, one, two, _ = between(config, "/other")
    message = handheld.write("author", "/other", b"small talk")
    assert sent(handheld.receive_message(one, message), two)


def test_announcements_of_one_heartbeat_are_bounded() -> None:
    handheld, one, _, _ = between(
        announcing(Announced(at_once=100), GossipParams(max_ihave_length=10))
    )
    ids = [b"%d" % each for each in range(20)]
    asked = [asked_of(handheld.receive(one, ihave(TOPIC, each)), one) for each in ids]
    assert sum(map(len, asked)) == 10
    handheld.beat()
    assert asked_of(handheld.receive(one, ihave(TOPIC, b"next")), one) == [b"next"]


def test_nothing_is_expected_of_a_topic_that_was_left() -> None:
    handheld, one, two, _ = between(announcing())
    handheld.receive(one, ihave(TOPIC, b"new"))
    handheld.receive(two, ihave(TOPIC, b"new"))
    handheld.handle(Unsubscribe(TOPIC))
    assert asked_of(handheld.beat(8), two) == []
    assert handheld.count("broken promises") == 0


class OnlyTwo:
    """Wants two messages, whichever."""

    def __init__(self) -> None:
        self.keeps = False
        self.under_way: list[bytes] = []
        self.over: list[tuple[bytes, str]] = []
        self.offers: list[tuple[bytes, bytes]] = []

    def wants(self, message_id: bytes) -> bool:
        return len(self.under_way) < 2

    def shares(self, message_id: bytes) -> bool:
        return not self.keeps

    def offered(self, message_id: bytes, peer: bytes) -> None:
        self.offers.append((message_id, peer))

    def asked(self, message_id: bytes) -> None:
        self.under_way.append(message_id)

    def came(self, message_id: bytes) -> None:
        self.under_way.remove(message_id)
        self.over.append((message_id, "came"))

    def given_up(self, message_id: bytes) -> None:
        self.under_way.remove(message_id)
        self.over.append((message_id, "given up"))


def test_what_the_application_does_not_share_is_announced_to_nobody() -> None:
    wants = OnlyTwo()
    wants.keeps = True
    handheld, one, two, _ = between(announcing(Announced(wants=wants)))
    message = handheld.write("author", TOPIC, b"a block")
    actions = handheld.receive_message(one, message)
    assert not of(actions, SendMessage)
    assert told_of(actions, two) == []
    answered = handheld.receive(two, iwant(id_from_content(message)))
    assert [each.message_id for each in of(answered, SendMessage)] == [id_from_content(message)]


def test_only_what_the_application_wants_is_asked_for() -> None:
    wants = OnlyTwo()
    handheld, one, two, _ = between(announcing(Announced(wants=wants)))
    asked = asked_of(handheld.receive(one, ihave(TOPIC, b"a", b"b", b"c")), one)
    assert len(asked) == 2
    assert asked_of(handheld.receive(two, ihave(TOPIC, b"a", b"b", b"c")), two) == []
    assert sorted(wants.under_way) == sorted(asked)


def test_the_application_hears_when_a_question_is_answered_or_given_up() -> None:
    wants = OnlyTwo()
    handheld, one, _, _ = between(announcing(Announced(wants=wants)))
    message = handheld.write("author", TOPIC, b"a block")
    handheld.receive(one, ihave(TOPIC, id_from_content(message), b"never"))
    handheld.receive_message(one, message)
    assert wants.over == [(id_from_content(message), "came")]
    handheld.handle(PeerDisconnected(one))
    assert wants.over[1:] == [(b"never", "given up")]
    assert wants.under_way == []


def test_the_application_hears_who_has_a_message_whether_it_is_here_or_not() -> None:
    wants = OnlyTwo()
    handheld, one, two, three = between(announcing(Announced(wants=wants)))
    message = handheld.write("author", TOPIC, b"a block")
    name = id_from_content(message)
    handheld.receive(one, ihave(TOPIC, name))
    handheld.receive(two, ihave(TOPIC, name))
    handheld.receive_message(one, message)
    handheld.receive(three, ihave(TOPIC, name, b"another"))
    assert wants.offers == [(name, one), (name, two), (name, three), (b"another", three)]


def test_the_application_hears_of_no_more_than_a_peer_may_announce() -> None:
    wants = OnlyTwo()
    handheld, one, _, _ = between(
        announcing(Announced(wants=wants), GossipParams(max_ihave_length=10))
    )
    ids = [b"%d" % each for each in range(20)]
    handheld.receive(one, ihave(TOPIC, b"", bytes(MAX_MESSAGE_ID + 1), *ids))
    handheld.receive(one, ihave(TOPIC, *ids))
    assert wants.offers == [(each, one) for each in ids[:8]]


def test_the_application_hears_nothing_of_a_peer_with_a_low_score() -> None:
    wants = OnlyTwo()
    handheld, one, _, _ = between(announcing(Announced(wants=wants)))
    handheld.scores.values[one] = -1e9
    handheld.receive(one, ihave(TOPIC, b"new"))
    assert not wants.offers


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_network_of_announcers_delivers_everything_with_hardly_a_copy(loss: float) -> None:
    """Loss takes whole frames here, and nobody repeats them: questions are asked again."""
    net = SimNetwork(seed=3, link=LinkModel(latency=0.05, loss=loss))
    nodes = net.add_nodes(30, config=announcing())
    net.connect_all(sparse_random(30, 6, Random(3)))
    net.subscribe_all(TOPIC)
    net.run_for(5.0)
    for number in range(20):
        net.publish(nodes[number], TOPIC, bytes([number]) * 10_000)
    net.run_for(30.0)
    assert all(len(node.deliveries(TOPIC)) == 20 for node in nodes)
    received = net.statistics().frame_bytes / 10_000
    assert received < 20 * 30 * 1.5  # a mesh of six would send some five copies of each


def test_two_routers_of_one_seed_ask_alike() -> None:
    def run() -> list[Action]:
        handheld, one, two, _ = between(announcing(Announced(at_once=2)))
        for peer in (one, two):
            handheld.receive(peer, ihave(TOPIC, *[b"%d" % each for each in range(9)]))
        handheld.beat(8)
        return handheld.actions

    assert run() == run()


def test_a_stranger_is_never_asked() -> None:
    handheld = Handheld(announcing())
    handheld.subscribe(TOPIC)
    assert asked_of(handheld.receive(id_of("stranger"), ihave(TOPIC, b"new")), id_of("x")) == []
