"""Full queues: what a slow peer misses is counted, and nobody else misses anything.

The queue is the drivers' own, with room for one frame in each lane.
"""

import pytest

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Action, Dropped, Lane, SendControl, SendMessage
from bruit.node.gossip.events import FramesDropped
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.sim import LinkModel
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, ihave, iwant, of
from tests.gossip.neighbourhood import TOPIC, introduce, network


def queue_of_one() -> SendQueue:
    """Room for one frame a lane: an empty lane takes any frame, another then none."""
    return SendQueue(dict.fromkeys(Lane, 1))


def carry_out(
    handheld: Handheld, actions: list[Action], queues: dict[PeerId, SendQueue]
) -> list[Dropped]:
    """Queue what the actions send to these peers; hand back what does not fit, as a driver does."""
    reports = []
    for action in actions:
        lost: list[FramesDropped] = []
        match action:
            case SendMessage(peers, message_id, frame, lane):
                lost += [
                    FramesDropped(peer, 1)
                    for peer in peers
                    if peer in queues and not queues[peer].push_message(message_id, frame, lane)
                ]
            case SendControl(peer, frame):
                if peer in queues and not queues[peer].push_control(frame):
                    lost.append(FramesDropped(peer, 1, (frame,)))
            case _:
                pass
        for event in lost:
            reports += of(handheld.handle(event), Dropped)
    return reports


def with_a_slow_member() -> tuple[Handheld, PeerId, PeerId, dict[PeerId, SendQueue]]:
    """A router, a slow peer in its mesh, another peer, and the queues of both."""
    handheld = Handheld(RouterConfig(params=GossipParams(flood_publish=False)))
    handheld.subscribe(TOPIC)
    slow, other = handheld.connect("slow", TOPIC), handheld.connect("other", TOPIC)
    assert set(handheld.mesh(TOPIC)) == {slow, other}
    return handheld, slow, other, {slow: queue_of_one(), other: SendQueue()}


def dropped_once(handheld: Handheld, slow: PeerId, reports: list[Dropped]) -> bool:
    """Reported, counted, and told the scores, each once and of this peer."""
    assert reports == [Dropped(slow, "", drops.SLOW_PEER)]
    assert handheld.scores.slowness == {slow: 1}
    return handheld.count(drops.SLOW_PEER) == 1


def test_a_publication_that_does_not_fit_is_counted_against_the_slow_peer_alone() -> None:
    handheld, slow, other, queues = with_a_slow_member()
    _, first = handheld.publish(TOPIC, bytes(42))
    assert carry_out(handheld, first, queues) == []
    _, second = handheld.publish(TOPIC, bytes(42))
    assert dropped_once(handheld, slow, carry_out(handheld, second, queues))
    sizes = [len(of(actions, SendMessage)[0].frame) for actions in (first, second)]
    assert queues[other].byte_count == sum(sizes)
    assert queues[slow].byte_count == sizes[0]


def test_a_forwarded_message_that_does_not_fit_is_counted_against_the_slow_peer_alone() -> None:
    handheld, slow, _, queues = with_a_slow_member()
    author = handheld.connect("author")
    messages = [handheld.write("author", TOPIC, bytes(59)) for _ in range(2)]
    first, second = (handheld.receive_message(author, message) for message in messages)
    assert carry_out(handheld, first, queues) == []
    assert dropped_once(handheld, slow, carry_out(handheld, second, queues))


def test_a_question_that_does_not_fit_is_counted() -> None:
    handheld, slow, _, queues = with_a_slow_member()
    first = handheld.receive(slow, ihave(TOPIC, b"first"))
    second = handheld.receive(slow, ihave(TOPIC, b"second"))
    assert carry_out(handheld, first, queues) == []
    assert dropped_once(handheld, slow, carry_out(handheld, second, queues))


def test_an_answer_that_does_not_fit_is_counted() -> None:
    handheld, slow, _, queues = with_a_slow_member()
    ids = [handheld.publish(TOPIC, bytes(59))[0].message_id for _ in range(2)]
    answers = handheld.receive(slow, iwant(*ids))
    assert [action.message_id for action in of(answers, SendMessage)] == ids
    assert dropped_once(handheld, slow, carry_out(handheld, answers, queues))
    assert queues[slow].pop() == of(answers, SendMessage)[0].frame


def test_lanes_fill_up_one_by_one() -> None:
    """A full lane of messages leaves control its room, and the other way round."""
    handheld, slow, _, queues = with_a_slow_member()
    for _ in range(2):
        carry_out(handheld, handheld.publish(TOPIC, bytes(42))[1], queues)
    assert handheld.count(drops.SLOW_PEER) == 1
    assert carry_out(handheld, handheld.subscribe("another"), queues) == []
    author = handheld.connect("author")
    forwarded = handheld.receive_message(author, handheld.write("author", TOPIC, bytes(59)))
    assert carry_out(handheld, forwarded, queues) == []
    assert [queues[slow].pop() is None for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("own", [True, False], ids=["own", "forwarded"])
def test_messages_wait_for_a_control_frame_that_is_being_written_and_keep_their_order(
    own: bool,
) -> None:
    """At 100 bytes a second the subscription takes two seconds."""
    net = network()
    [node] = net.add_nodes(1)
    net.subscribe(node, TOPIC)
    slow, author = introduce(net, node, ["slow", "author"])
    slow.forget()
    net.set_link(node, slow, LinkModel(latency=0.0, rate=100.0), back=LinkModel())
    net.subscribe(node, "t" * 200)
    for data in (b"first", b"second"):
        if own:
            net.publish(node, TOPIC, data)
        else:
            author.publish(node, author.author.write(TOPIC, data))
    net.run_for(1.0)
    assert slow.sent_to_me() == []
    net.run_for(20.0)
    kinds = ["message" if frame.rpc.publish else "control" for frame in slow.sent_to_me()]
    assert kinds[:3] == ["control", "message", "message"]
    assert [message.data for message in slow.messages()] == [b"first", b"second"]
