"""What scores and gater are told of, and what bans, gating and application scores do."""

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Deliver, Disconnect, Dropped, Pruned, Validate
from bruit.node.gossip.events import AppScored, Ban, FramesDropped, PeerRenewed, Unban
from bruit.node.gossip.params import RouterConfig, TopicParams
from bruit.scoring.gater import GaterParams
from bruit.topics.message import id_from_origin
from bruit.topics.validation import reject
from tests.gossip.handheld import between, grafts, id_of, iwant, judgements, of, prunes, sent
from tests.gossip.neighbourhood import TOPIC
from tests.gossip.recording_scores import Judged


def test_frames_that_a_slow_peer_did_not_take_are_held_against_it() -> None:
    handheld, one, two, _ = between()
    handheld.handle(FramesDropped(one, 3))
    handheld.handle(FramesDropped(one, 1, (grafts(TOPIC).SerializeToString(),)))
    handheld.handle(FramesDropped(two, 1))
    assert handheld.scores.slowness == {one: 4, two: 1}


def test_what_the_application_thinks_of_peers_reaches_their_scores() -> None:
    handheld, one, two, three = between()
    handheld.handle(AppScored(((one, -10_000.0), (two, 2.5))))
    assert handheld.scores.values == {one: -10_000.0, two: 2.5}
    assert [(each.peer, each.reason) for each in of(handheld.beat(), Pruned)] == [
        (one, "low score")
    ]
    assert handheld.mesh(TOPIC) == (two, three)


def test_an_own_message_that_comes_back_is_a_copy_of_a_valid_one() -> None:
    handheld, one, *_ = between()
    outcome, _ = handheld.publish(TOPIC, b"data")
    handheld.receive_message(one, handheld.write("author", TOPIC, b"other"))
    own = handheld.scores.judged[0]
    assert own == Judged("first_delivery", handheld.own_id, TOPIC, outcome.message_id)


def test_a_banned_peer_is_hung_up_on() -> None:
    handheld, one, *_ = between()
    assert of(handheld.handle(Ban(one)), Disconnect) == [Disconnect(one, "banned")]
    assert handheld.handle(Ban(id_of("stranger"))) == []


def test_a_message_of_a_banned_author_is_dropped_and_blames_nobody_who_passes_it_on() -> None:
    handheld, one, two, _ = between()
    handheld.handle(Ban(id_of("author")))
    message = handheld.write("author", TOPIC, b"data")
    assert handheld.receive_message(one, message) == [
        Dropped(one, TOPIC, drops.BANNED_AUTHOR),
    ]
    assert judgements(handheld) == []
    handheld.handle(Unban(id_of("author")))
    assert len(of(handheld.receive_message(two, message), Deliver)) == 1


def test_under_validation_load_a_bad_peers_messages_are_dropped_and_its_control_is_heard() -> None:
    """go-libp2p-pubsub's peer gater: one more than fits throttles; then rejects weigh 16 each."""
    topic = TopicParams(validated=True, max_validating=1)
    handheld, one, two, three = between(RouterConfig(gater=GaterParams(), default_topic=topic))
    handheld.handle(PeerRenewed(one, ("/ip4/192.0.2.1/tcp/4001",)))
    handheld.handle(PeerRenewed(two, ("/ip4/192.0.2.2/tcp/4001",)))
    good = handheld.write("author", TOPIC, b"good")
    (validate,) = of(handheld.receive_message(one, good), Validate)
    for number in range(100):  # no room: far more throttled than a third of what was validated
        handheld.receive_message(three, handheld.write("author", TOPIC, b"surplus %d" % number))
    handheld.judge(validate)
    taken = 0
    for number in range(1000):
        actions = handheld.receive_message(two, handheld.write("author", TOPIC, b"%d" % number))
        if validates := of(actions, Validate):
            handheld.judge(validates[0], reject("bad"))
            taken += 1
        else:
            assert of(actions, Dropped) == [Dropped(two, "", drops.GATED)] == actions
    # The chance after n rejections is 1 / (1 + 16 n): about 1 + ln(n) / 16 … of them pass.
    assert 1 <= taken < 30
    actions = handheld.receive(two, iwant(id_from_origin(good)))
    assert sent(actions, two) == [id_from_origin(good)]
    assert [each.reason for each in of(handheld.receive(two, prunes(TOPIC)), Pruned)] == ["by peer"]
    actions = handheld.receive_message(one, handheld.write("author", TOPIC, b"more"))
    assert len(of(actions, Validate)) == 1  # a peer with nothing against it passes
