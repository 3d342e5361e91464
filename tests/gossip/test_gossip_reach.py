"""Who hears of a message by IHAVE, what is asked for, and what is served."""

from typing import Any

from bruit.node.gossip.actions import SendControl
from bruit.node.gossip.events import Unsubscribe
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.topics.keys import PeerId
from tests.gossip.handheld import Handheld, grafts, ihave, iwant, of, prunes, sent, told
from tests.gossip.neighbourhood import TOPIC, names


def publishing(**params: Any) -> Handheld:
    return Handheld(RouterConfig(params=GossipParams(flood_publish=False, **params)))


def heard(actions: list[SendControl]) -> dict[PeerId, list[bytes]]:
    """The ids that each peer is offered."""
    return {
        peer: [each for entry in entries for each in entry.message_ids]
        for peer in dict.fromkeys(action.peer for action in actions)
        if (entries := told([*actions], peer).control.ihave)
    }


def beat(handheld: Handheld) -> dict[PeerId, list[bytes]]:
    return heard(of(handheld.beat(), SendControl))


def say_five(handheld: Handheld) -> set[bytes]:
    return {handheld.publish(TOPIC, b"hello %d" % each)[0].message_id for each in range(5)}


def test_six_of_fifteen_peers_outside_of_a_mesh_of_fifteen_hear_of_messages() -> None:
    handheld = publishing(d=15, d_hi=16, d_lo=15, d_score=15)
    handheld.subscribe(TOPIC)
    inside = [handheld.connect(name, TOPIC) for name in names("member", 15)]
    for peer in inside:
        handheld.receive(peer, grafts(TOPIC))
    outside = [handheld.connect(name, TOPIC) for name in names("other", 15)]
    assert set(handheld.mesh(TOPIC)) == set(inside)
    ids = say_five(handheld)
    offered = beat(handheld)
    assert len(offered) == 6
    assert set(offered) < set(outside)
    assert all(set(said) == ids for said in offered.values())


def test_six_peers_outside_of_a_fanout_hear_of_messages() -> None:
    """A topic that we publish to without a mesh."""
    handheld = publishing()
    everybody = [handheld.connect(name, TOPIC) for name in names("peer", 30)]
    say_five(handheld)
    fanout = set(handheld.router.statistics().fanout[TOPIC])
    offered = beat(handheld)
    assert len(offered) == 6
    assert set(offered) < set(everybody) - fanout


def test_six_peers_outside_of_a_mesh_hear_of_messages() -> None:
    """A topic with a mesh and no fanout."""
    handheld = publishing()
    everybody = [handheld.connect(name, TOPIC) for name in names("peer", 30)]
    handheld.subscribe(TOPIC)
    say_five(handheld)
    offered = beat(handheld)
    assert len(offered) == 6
    assert set(offered) < set(everybody) - set(handheld.mesh(TOPIC))


def test_where_the_mesh_has_everybody_nobody_hears_of_messages() -> None:
    handheld = publishing()
    handheld.subscribe(TOPIC)
    everybody = [handheld.connect(name, TOPIC) for name in names("peer", 4)]
    assert set(handheld.mesh(TOPIC)) == set(everybody)
    say_five(handheld)
    assert beat(handheld) == {}


def test_an_id_offered_three_times_in_one_frame_is_asked_for_once() -> None:
    handheld = Handheld()
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    message_id = bytes([0, 1, 2, 3])
    actions = handheld.receive(peer, ihave(TOPIC, *[message_id] * 3))
    [asked] = told(actions, peer).control.iwant
    assert list(asked.message_ids) == [message_id]


def test_a_message_is_served_to_who_was_never_told_of_it() -> None:
    """Another neighbour may have told it; the cache is what may be asked for."""
    handheld = Handheld()
    outcome, _ = handheld.publish(TOPIC, b"data")
    peer = handheld.connect("peer")
    assert sent(handheld.receive(peer, iwant(outcome.message_id)), peer) == [outcome.message_id]


def test_of_twenty_five_ids_asked_for_the_four_that_are_there_are_served() -> None:
    handheld = Handheld()
    peer = handheld.connect("peer", TOPIC)
    there = [handheld.publish(TOPIC, bytes([each]))[0].message_id for each in range(4)]
    missing = [bytes([each, 1, 2, 3]) for each in range(21)]
    assert sent(handheld.receive(peer, iwant(*missing, *there)), peer) == there


def test_a_prune_holds_off_a_peer_that_is_not_in_the_mesh() -> None:
    """Its PRUNE may have crossed our own: what it asks for is kept all the same."""
    handheld = Handheld(RouterConfig(params=GossipParams(d_lo=0, d=0, d_hi=0, d_score=0, d_out=0)))
    handheld.subscribe(TOPIC)
    peer = handheld.connect("peer", TOPIC)
    assert handheld.mesh(TOPIC) == ()
    handheld.receive(peer, prunes(TOPIC, backoff=300))
    assert handheld.router.statistics().backoffs == 1


# Fanout


def test_of_two_fanouts_the_one_that_is_published_to_stays() -> None:
    handheld = publishing(fanout_ttl=1)
    for name in names("peer", 6):
        handheld.connect(name, "foobar1", "foobar2")
    for topic in ("foobar1", "foobar2"):
        handheld.publish(topic, b"data")
        assert len(handheld.router.statistics().fanout[topic]) == 6
    for number in range(3):
        handheld.publish("foobar2", b"%d" % number)
        handheld.beat()
    assert list(handheld.router.statistics().fanout) == ["foobar2"]


def test_fifteen_subscribers_make_a_fanout_of_six() -> None:
    handheld = publishing()
    for name in names("peer", 15):
        handheld.connect(name, TOPIC)
    handheld.publish(TOPIC, b"data")
    assert len(handheld.router.statistics().fanout[TOPIC]) == 6


def test_a_fanout_peer_that_grafts_us_when_we_join_is_in_the_mesh_alone() -> None:
    handheld = publishing()
    peer = handheld.connect("peer", TOPIC)
    handheld.publish(TOPIC, b"data")
    assert handheld.router.statistics().fanout == {TOPIC: (peer,)}
    handheld.subscribe(TOPIC)
    assert not told(handheld.receive(peer, grafts(TOPIC)), peer).control.prune
    statistics = handheld.router.statistics()
    assert (statistics.mesh, statistics.fanout) == ({TOPIC: (peer,)}, {})
    handheld.handle(Unsubscribe(TOPIC))
    assert handheld.router.statistics().fanout == {}
