"""The attackers do what the attacks say of them."""

from random import Random

import pytest

from bruit.node.gossip.actions import Connect, Lane, SendControl, SendMessage, SetTimer
from bruit.node.gossip.events import (
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    Protocol,
    Start,
    Timer,
    TimerFired,
)
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import message_frame
from bruit.node.sim import SimNetwork
from bruit.topics.message import Message
from tests.attacks.sybils import Forwards, Sybil, all_but, until, with_probability

A, B, C = b"a", b"b", b"c"


def sybil(forwards: Forwards = None) -> Sybil:
    """A sybil that is connected to three peers which are all subscribed to t."""
    made = Sybil(b"sybil", Random(1), [A, B, C], 60.0, forwards)
    hello = Rpc()
    hello.subscriptions.add(subscribe=True, topic="t")
    for peer in (A, B, C):
        made.handle(PeerConnected(peer, Protocol.GOSSIPSUB_11, True), 60.0)
        made.handle(FrameReceived(peer, hello.SerializeToString()), 60.0)
    return made


def pruning() -> bytes:
    rpc = Rpc()
    rpc.control.prune.add(topic="t", backoff=60)
    return rpc.SerializeToString()


def message(number: int = 0) -> Message:
    """Messages of one author that differ in their numbers."""
    stub = SimNetwork(seed=1).add_peer_stub("author")
    for _ in range(number):
        stub.author.write("t", b"")
    return stub.author.write("t", b"data")


def test_it_dials_its_victims_when_its_time_has_come() -> None:
    made = Sybil(b"sybil", Random(1), [A, B], 60.0, None)
    assert made.handle(Start(), 0.0) == [SetTimer(Timer("join", 0), 60.0)]
    dialled = made.handle(TimerFired(Timer("join", 0)), 60.0)
    assert dialled == [Connect(A, ()), Connect(B, ())]


def test_it_subscribes_to_what_a_victim_subscribes_to_and_grafts_it() -> None:
    made = Sybil(b"sybil", Random(1), [A], 0.0, None)
    made.handle(PeerConnected(A, Protocol.GOSSIPSUB_11, True), 0.0)
    hello = Rpc()
    hello.subscriptions.add(subscribe=True, topic="t")
    (answer,) = made.handle(FrameReceived(A, hello.SerializeToString()), 0.0)
    assert isinstance(answer, SendControl)
    said = Rpc.FromString(answer.frame)
    assert [(each.subscribe, each.topic) for each in said.subscriptions] == [(True, "t")]
    assert [graft.topic for graft in said.control.graft] == ["t"]


def test_it_grafts_again_a_minute_and_up_to_15_seconds_after_a_prune() -> None:
    made = sybil()
    (timer,) = made.handle(FrameReceived(A, pruning()), 100.0)
    assert isinstance(timer, SetTimer)
    assert 160.0 <= timer.at <= 175.0
    (again,) = made.handle(TimerFired(timer.timer), timer.at)
    assert isinstance(again, SendControl)
    assert [graft.topic for graft in Rpc.FromString(again.frame).control.graft] == ["t"]
    made.handle(PeerDisconnected(A), timer.at)
    assert made.handle(TimerFired(timer.timer), timer.at) == []


def test_it_drops_everything_unless_told_otherwise() -> None:
    assert sybil().handle(FrameReceived(A, message_frame(message().raw)), 61.0) == []


def test_what_it_forwards_goes_once_to_whoever_has_not_pruned_it() -> None:
    made = sybil(all_but(b"nobody"))
    made.handle(FrameReceived(C, pruning()), 61.0)
    frame = message_frame(message().raw)
    (sent,) = made.handle(FrameReceived(A, frame), 61.0)
    assert isinstance(sent, SendMessage)
    assert (sent.peers, sent.frame, sent.lane) == ((B,), frame, Lane.FORWARD)
    assert made.handle(FrameReceived(B, frame), 61.0) == []


@pytest.mark.parametrize(
    ("forwards", "now", "forwarded"),
    [
        (all_but(message().author), 61.0, False),
        (all_but(b"somebody else"), 61.0, True),
        (until(120.0), 119.0, True),
        (until(120.0), 120.0, False),
    ],
)
def test_it_chooses_by_author_or_by_time(forwards: Forwards, now: float, forwarded: bool) -> None:
    actions = sybil(forwards).handle(FrameReceived(A, message_frame(message().raw)), now)
    assert bool(actions) is forwarded


def test_it_forwards_so_many_as_its_probability_says() -> None:
    made = sybil(with_probability(0.1))
    frames = [message_frame(message(number).raw) for number in range(200)]
    forwarded = sum(bool(made.handle(FrameReceived(A, frame), 61.0)) for frame in frames)
    assert 8 <= forwarded <= 32  # 20 ± 3 standard deviations
