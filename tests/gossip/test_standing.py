"""What follows from a score by itself: reports, hanging up, refused connections (LP-6420 §5.3)."""

import math

import pytest

from bruit.node.gossip import drops
from bruit.node.gossip.actions import (
    Deliver,
    Disconnect,
    Dropped,
    Grafted,
    Pruned,
    ThresholdCrossed,
)
from bruit.node.gossip.events import (
    AddDirectPeer,
    PeerConnected,
    PeerDisconnected,
    PeerRenewed,
    Protocol,
)
from bruit.node.gossip.params import RouterConfig
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, grafts, id_of, of, told
from tests.gossip.neighbourhood import TOPIC

LUX = Thresholds(gossip=0, publish=0, mesh=-1000, graylist=-2500, disconnect=-5000)


def meshed(thresholds: Thresholds = LUX) -> tuple[Handheld, PeerId]:
    """A router with one peer, which is in its mesh."""
    handheld = Handheld(RouterConfig(), thresholds)
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    assert handheld.mesh(TOPIC) == (peer,)
    return handheld, peer


@pytest.mark.parametrize(("score", "stays"), [(-999.9, True), (-1000.0, True), (-1000.1, False)])
def test_a_peer_leaves_the_mesh_below_the_mesh_threshold(score: float, stays: bool) -> None:
    handheld, peer = meshed()
    handheld.scores.values[peer] = score
    actions = handheld.beat()
    assert (handheld.mesh(TOPIC) == (peer,)) == stays
    assert [each.reason for each in of(actions, Pruned)] == ([] if stays else ["low score"])


@pytest.mark.parametrize(("score", "taken"), [(-1000.0, True), (-1000.1, False)])
def test_a_graft_is_refused_below_the_mesh_threshold(score: float, taken: bool) -> None:
    handheld = Handheld(RouterConfig(), LUX)
    handheld.subscribe(TOPIC)
    handheld.scores.values[id_of("peer")] = score
    peer = handheld.connect("peer", TOPIC)
    assert handheld.mesh(TOPIC) == ()  # we ask nobody in whose score is negative
    actions = handheld.receive(peer, grafts(TOPIC))
    assert len(of(actions, Grafted)) == taken
    assert len(told(actions, peer).control.prune) == (not taken)


@pytest.mark.parametrize(("score", "taken"), [(-2500.0, True), (-2500.1, False)])
def test_messages_are_ignored_below_the_graylist_threshold(score: float, taken: bool) -> None:
    handheld, peer = meshed()
    handheld.scores.values[peer] = score
    actions = handheld.receive_message(peer, handheld.write("author", TOPIC, b"data"))
    assert len(of(actions, Deliver)) == taken
    assert of(actions, Dropped) == ([] if taken else [Dropped(peer, "", drops.GRAYLISTED)])


@pytest.mark.parametrize(("score", "stays"), [(-5000.0, True), (-5000.1, False)])
def test_a_peer_is_hung_up_on_below_the_disconnect_threshold(score: float, stays: bool) -> None:
    handheld, peer = meshed()
    handheld.scores.values[peer] = score
    ends = of(handheld.beat(), Disconnect)
    assert ends == ([] if stays else [Disconnect(peer, "score -5000.1 is below -5000")])


def test_who_comes_back_with_such_a_score_is_refused_at_once() -> None:
    handheld, peer = meshed()
    handheld.handle(PeerDisconnected(peer))
    handheld.scores.values[peer] = -6000.0
    actions = handheld.handle(PeerConnected(peer, Protocol.GOSSIPSUB_12, outbound=False))
    assert [each.peer for each in of(actions, Disconnect)] == [peer]


def test_a_direct_peer_is_never_hung_up_on() -> None:
    handheld, peer = meshed()
    handheld.handle(AddDirectPeer(peer, ()))
    handheld.scores.values[peer] = -1e9
    assert of(handheld.beat(), Disconnect) == []


def test_without_a_disconnect_threshold_nobody_is_hung_up_on() -> None:
    handheld, peer = meshed(Thresholds())
    handheld.scores.values[peer] = -1e300
    assert of(handheld.beat(), Disconnect) == []


def test_each_threshold_is_reported_once_when_it_is_crossed_and_when_that_is_over() -> None:
    handheld, peer = meshed()
    assert of(handheld.beat(), ThresholdCrossed) == []
    handheld.scores.values[peer] = -1200.0
    assert of(handheld.beat(), ThresholdCrossed) == [
        ThresholdCrossed(peer, name, True, -1200.0) for name in ("gossip", "publish", "mesh")
    ]
    assert of(handheld.beat(3), ThresholdCrossed) == []
    handheld.scores.values[peer] = -500.0
    assert of(handheld.beat(), ThresholdCrossed) == [ThresholdCrossed(peer, "mesh", False, -500.0)]
    handheld.scores.values[peer] = 1.0
    assert of(handheld.beat(), ThresholdCrossed) == [
        ThresholdCrossed(peer, "gossip", False, 1.0),
        ThresholdCrossed(peer, "publish", False, 1.0),
    ]


def test_the_scores_hear_the_addresses_of_a_peer_and_their_change() -> None:
    handheld = Handheld()
    peer = id_of("peer")
    before, after = "/ip4/192.0.2.1/tcp/4001", "/ip4/198.51.100.7/tcp/4001"
    handheld.handle(PeerConnected(peer, Protocol.GOSSIPSUB_12, False, (before,)))
    assert handheld.scores.addresses == {peer: (before,)}
    handheld.handle(PeerRenewed(peer, (before, after)))
    assert handheld.scores.addresses == {peer: (before, after)}


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"gossip": 1.0}, "scoring.thresholds.gossip: 1.0 must be ≤ 0"),
        ({"gossip": -2.0, "publish": -1.0}, "publish: -1.0 must be ≤ gossip (-2.0)"),
        ({"mesh": 0.5}, "mesh: 0.5 must be ≤ 0"),
        ({"publish": -20.0, "graylist": -10.0}, "graylist: -10.0 must be ≤ publish (-20.0)"),
        ({"mesh": -20.0, "graylist": -10.0}, "graylist: -10.0 must be ≤ mesh (-20.0)"),
        ({"disconnect": -999.0}, "disconnect: -999.0 must be ≤ graylist (-1000.0)"),
        ({"accept_px": -1.0}, "accept_px: -1.0 must be ≥ 0"),
        ({"opportunistic_graft": -1.0}, "opportunistic_graft: -1.0 must be ≥ 0"),
        ({"gossip": math.nan}, "gossip: nan must be a finite number"),
        ({"graylist": -math.inf}, "graylist: -inf must be a finite number"),
        ({"disconnect": math.nan}, "disconnect: nan must be a finite number"),
    ],
)
def test_thresholds_that_contradict_each_other_are_refused(
    wrong: dict[str, float], rule: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Handheld(RouterConfig(), Thresholds(**wrong))
    assert rule in str(caught.value)
