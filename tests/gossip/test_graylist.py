"""A score counts from the next frame on: no list of the trusted is kept that could be stale."""

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, of
from tests.gossip.neighbourhood import TOPIC

GRAYLIST = Thresholds(graylist=-1000.0)


def heard(handheld: Handheld, peer: PeerId) -> bool:
    """Whether a new message from the peer is taken."""
    message = handheld.write("author", TOPIC, b"data")
    return bool(of(handheld.receive_message(peer, message), Deliver))


def test_a_peer_of_good_standing_is_not_heard_any_more_when_its_score_falls() -> None:
    """Not after a second, nor after 128 messages: at once."""
    handheld = Handheld(thresholds=GRAYLIST)
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    assert all(heard(handheld, peer) for _ in range(130))
    handheld.scores.values[peer] = -1000.1
    assert not heard(handheld, peer)
    assert handheld.count(drops.GRAYLISTED) == 1


def test_a_graylisted_peer_is_heard_again_when_its_score_has_recovered() -> None:
    handheld = Handheld(thresholds=GRAYLIST)
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    handheld.scores.values[peer] = -1000.1
    assert not heard(handheld, peer)
    handheld.now += 1.1
    assert not heard(handheld, peer)
    handheld.scores.values[peer] = -1000.0
    assert heard(handheld, peer)
