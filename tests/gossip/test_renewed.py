"""A peer whose stream was replaced may have forgotten us: it is told everything again."""

from bruit.node.gossip.events import PeerRenewed, Protocol
from bruit.node.gossip.params import RouterConfig, TopicParams
from tests.gossip.handheld import Handheld, grafts, id_of, ihave, sent, told

TOPIC = "t"


def member(topic: str = TOPIC) -> tuple[Handheld, bytes]:
    """A router with one peer in its mesh."""
    router = Handheld()
    router.subscribe(topic)
    peer = router.connect("peer", topic)
    assert router.router.statistics().mesh[topic] == (peer,)
    return router, peer


def test_a_renewed_peer_hears_the_subscriptions_and_its_meshes_again() -> None:
    router, peer = member()
    router.subscribe("other")
    again = told(router.handle(PeerRenewed(peer)), peer)
    assert [(each.topic, each.subscribe) for each in again.subscriptions] == [
        (TOPIC, True),
        ("other", True),
    ]
    assert [each.topic for each in again.control.graft] == [TOPIC]


def test_what_a_renewed_peer_said_before_still_holds() -> None:
    router, peer = member()
    router.handle(PeerRenewed(peer))
    outcome, actions = router.publish(TOPIC, b"data")
    assert sent(actions, peer) == [outcome.message_id]


def test_a_graft_said_twice_changes_nothing_at_the_other_end() -> None:
    router, peer = member()
    actions = router.receive(peer, grafts(TOPIC))
    assert router.router.statistics().mesh[TOPIC] == (peer,)
    assert not told(actions, peer).control.prune


def test_a_stranger_that_renews_is_told_nothing() -> None:
    router = Handheld()
    router.subscribe(TOPIC)
    assert router.handle(PeerRenewed(id_of("stranger"))) == []


def test_ids_are_asked_for_in_frames_whose_answers_can_be_read() -> None:
    """js-libp2p answers an IWANT in one frame: 4 MiB hold three messages of up to 1.2 MB."""
    config = RouterConfig(default_topic=TopicParams(max_message_size=1_200_000))
    router = Handheld(config)
    router.subscribe(TOPIC)
    peer = router.connect("peer", TOPIC, protocol=Protocol.GOSSIPSUB_11)
    ids = [b"id %d" % number for number in range(10)]
    actions = router.receive(peer, ihave(TOPIC, *ids))
    asked = [told([action], peer).control.iwant for action in actions]
    sizes = [len(entry.message_ids) for entries in asked for entry in entries]
    assert sizes == [3, 3, 3, 1]


def test_topics_of_small_messages_are_asked_for_with_fewer_frames() -> None:
    topics = {"small": TopicParams(max_message_size=40_000)}
    router = Handheld(RouterConfig(topics=topics))
    for topic in ("small", TOPIC):
        router.subscribe(topic)
    peer = router.connect("peer", "small", TOPIC, protocol=Protocol.GOSSIPSUB_11)

    def asked(topic: str) -> list[int]:
        ids = [b"%s %d" % (topic.encode(), number) for number in range(150)]
        actions = router.receive(peer, ihave(topic, *ids))
        asked = [told([action], peer).control.iwant for action in actions]
        return [len(entry.message_ids) for entries in asked for entry in entries]

    assert asked("small") == [104, 46]  # 4,194,304 bytes hold 104 of 40,006
    assert asked(TOPIC) == [3] * 50  # and 3 of 1,048,582
