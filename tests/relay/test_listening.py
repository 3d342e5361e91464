"""A producer that hears its channel learns which clusters pass on what they acknowledge."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from bruit.node.relay.actions import AskHeard, Broadcasted, Choose, SubmitChunk, WatchChunks
from bruit.node.relay.events import ChunksHeard, MarketplaceChanged
from bruit.node.relay.listening import HEARD_AFTER, MAX_LISTENED
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.signing import message_id_of
from bruit.node.relay.wants import HERE
from bruit.plugins.hookspecs import ClusterOption
from bruit.plugins.marketplace import Marketplace
from bruit.plugins.registry import PluginRegistry
from bruit.topics.keys import PeerId
from tests.relay.producing import (
    CHANNEL,
    PARAMS,
    START,
    Heard,
    World,
    marketplace,
    peer_at,
    silent,
    tried,
)

BLOCK = b"a block" * 30
STRANGER: PeerId = b"a peer that is no member"
Who = Callable[[int, int], tuple[PeerId, ...]]  # has a chunk that went through a cluster


def heard_from(world: World, who: Who) -> Heard:
    """Of every chunk submitted in the last broadcast, who has it."""
    last = world.of(WatchChunks)[-1].timestamp
    found: Heard = {}
    for submitted in world.of(SubmitChunk):
        checked = world.checked(submitted)
        if checked.attested.timestamp == last:
            found[checked.chunk] = who(checked.chunk, world.cluster_of(submitted.member))
    return found


def listening(who: Who, clusters: int = 3, channel: ChannelParams = CHANNEL) -> World:
    world = World(marketplace(clusters), channels=[channel])
    world.hear = lambda w, _ask: heard_from(w, who)
    return world


def options(world: World) -> dict[int, ClusterOption]:
    """What a selector is told now of every cluster."""
    world.on_submit = silent
    before = len(world.of(Choose))
    world.broadcast(b"one more block", next(iter(world.channels)))
    world.run(0)
    (choose,) = world.of(Choose)[before:]
    return {each.cluster: each for asked in choose.selections for each in asked.options}


def broadcast(world: World, block: bytes = BLOCK) -> None:
    world.broadcast(block, next(iter(world.channels)))
    world.run()


def alternating(world: World) -> None:
    """Have half of the chunks sent through cluster 1 and half through cluster 2."""
    world.select = lambda selection: 1 + selection.chunk_index % 2


# --- what is asked, and when ------------------------------------------------------


def test_chunks_are_watched_from_before_the_first_one_is_sent() -> None:
    world = World()
    broadcast(world)
    kinds = [type(action) for action in world.log]
    assert kinds.index(WatchChunks) < kinds.index(SubmitChunk)
    expected = WatchChunks(CHANNEL.id, message_id_of(BLOCK), int(START), CHANNEL.num_chunks)
    assert world.of(WatchChunks) == [expected]


def test_some_time_after_the_answer_it_is_asked_what_was_heard() -> None:
    world = World()
    times: list[float] = []
    world.hear = lambda w, _ask: times.append(w.now)
    broadcast(world)
    (ask,) = world.of(AskHeard)
    (watch,) = world.of(WatchChunks)
    assert (ask.channel, ask.message_id, ask.timestamp) == (
        watch.channel,
        watch.message_id,
        watch.timestamp,
    )
    # Acknowledgements come after 50 ms.
    assert times == [pytest.approx(START + 0.05 + HEARD_AFTER * PARAMS.acknowledgement_timeout)]


def test_where_nothing_was_acknowledged_nothing_is_asked() -> None:
    world = World()
    world.on_submit = silent
    broadcast(world)
    assert world.of(Broadcasted)
    assert not world.of(AskHeard)


def test_a_producer_that_is_never_answered_waits_for_nothing_and_forgets() -> None:
    world = World()
    for number in range(MAX_LISTENED + 1):
        broadcast(world, b"%d" % number)
    assert len(world.of(Broadcasted)) == MAX_LISTENED + 1
    first, second = (ask.ticket for ask in world.of(AskHeard)[:2])
    everything: Heard = dict.fromkeys(range(CHANNEL.num_chunks), (STRANGER,))
    world.tell(ChunksHeard(first, everything))
    assert all(each.delivery_rate is None for each in options(world).values())
    world.tell(ChunksHeard(second, everything))
    assert any(each.delivery_rate is not None for each in options(world).values())


def test_an_answer_counts_once_and_one_that_was_not_asked_for_never() -> None:
    world = listening(lambda _chunk, _cluster: ())
    alternating(world)
    world.hear = lambda _w, _ask: None
    broadcast(world)
    (ask,) = world.of(AskHeard)
    everything: Heard = dict.fromkeys(range(CHANNEL.num_chunks), (STRANGER,))
    world.tell(ChunksHeard(ask.ticket, everything))
    for ticket in (ask.ticket, 4711):
        assert world.tell(ChunksHeard(ticket, {0: (STRANGER,), 2: (), 4: (STRANGER,)})) == []
    assert options(world)[1].delivery_rate == 1


# --- what is concluded ------------------------------------------------------------


@pytest.mark.parametrize("peer", [STRANGER, HERE, peer_at(3, 0)])
def test_a_chunk_that_somebody_outside_of_the_cluster_has_was_passed_on(peer: PeerId) -> None:
    world = listening(lambda _chunk, cluster: (peer_at(cluster, 0), peer))  # the first is its own
    alternating(world)
    broadcast(world)
    found = options(world)
    assert [found[cluster].delivery_rate for cluster in (1, 2)] == [1, 1]
    assert [found[cluster].recent_failures for cluster in (1, 2)] == [0, 0]


def test_what_only_the_clusters_own_members_announce_was_not_passed_on() -> None:
    world = listening(
        lambda _chunk, cluster: (
            (peer_at(cluster, 0), peer_at(cluster, 1)) + ((STRANGER,) if cluster == 2 else ())
        )
    )
    alternating(world)
    broadcast(world)
    found = options(world)
    assert (found[1].delivery_rate, found[2].delivery_rate) == (0, 1)
    assert (found[1].recent_failures, found[2].recent_failures) == (3, 0)
    assert found[1].acknowledgement_rate == 1


def test_what_nobody_announces_was_not_passed_on() -> None:
    world = listening(lambda _chunk, cluster: (STRANGER,) if cluster == 2 else ())
    alternating(world)
    broadcast(world)
    found = options(world)
    assert (found[1].delivery_rate, found[2].delivery_rate) == (0, 1)


def test_one_chunk_that_came_out_ends_a_row_whatever_its_number() -> None:
    world = listening(lambda chunk, _cluster: (STRANGER,) if chunk < 4 else ())
    alternating(world)
    broadcast(world)
    found = options(world)
    assert found[1].delivery_rate == found[2].delivery_rate == pytest.approx(2 / 3)
    assert found[1].recent_failures == found[2].recent_failures == 0


def test_who_hears_too_little_judges_nobody() -> None:
    world = listening(lambda chunk, _cluster: (STRANGER,) if chunk < 2 else ())
    alternating(world)
    broadcast(world)
    assert all(each.delivery_rate is None for each in options(world).values())
    assert all(each.recent_failures == 0 for each in options(world).values())


def test_what_this_node_has_itself_is_no_sign_that_it_hears() -> None:
    """It may be a member of cluster 2, and deaf to the topic."""
    world = listening(lambda _chunk, cluster: (HERE,) if cluster == 2 else ())
    alternating(world)
    broadcast(world)
    assert all(each.delivery_rate is None for each in options(world).values())


def test_a_cluster_that_most_of_a_block_went_through_is_judged_by_the_other_chunks() -> None:
    world = listening(lambda _chunk, cluster: (STRANGER,) if cluster == 2 else ())
    world.select = lambda selection: 1 if selection.chunk_index < 4 else 2
    broadcast(world)
    found = options(world)
    assert (found[1].delivery_rate, found[1].recent_failures) == (0, 4)
    assert found[2].delivery_rate is None  # of what others passed on, nothing was heard


@pytest.mark.parametrize("others", [0, 1])  # a single other chunk may be luck
def test_where_all_of_a_block_went_through_one_cluster_silence_says_nothing(others: int) -> None:
    world = listening(lambda _chunk, cluster: (STRANGER,) if cluster == 2 else ())
    world.select = lambda selection: 2 if selection.chunk_index < others else 1
    broadcast(world)
    assert options(world)[1].delivery_rate is None


def test_a_chunk_that_went_through_two_clusters_says_nothing_of_either() -> None:
    """Cluster 1 may have passed it on, though it acknowledged nothing."""
    world = listening(lambda _chunk, _cluster: (STRANGER,))
    world.on_submit = lambda w, s: (
        None if w.cluster_of(s.member) == 1 else World.acknowledge_soon(w, s)
    )
    world.select = lambda selection: (
        2 if selection.chunk_index < 3 else 1 if len(selection.options) == 3 else 3
    )
    broadcast(world)
    assert {tuple(clusters) for clusters in tried(world).values()} == {(2,), (1, 3)}
    rates = {number: each.delivery_rate for number, each in options(world).items()}
    assert rates == {1: None, 2: 1, 3: None}


def test_a_cluster_that_has_left_the_marketplace_is_not_judged() -> None:
    world = listening(lambda _chunk, cluster: (STRANGER,) if cluster == 2 else ())
    alternating(world)
    world.broadcast(BLOCK)
    world.run(1)
    producers, clusters = world.market.producers, world.market.clusters
    world.tell(MarketplaceChanged(Marketplace(producers, clusters[1:])))
    world.run()
    world.tell(MarketplaceChanged(world.market))
    assert options(world)[1].delivery_rate is None


# --- what follows -----------------------------------------------------------------


def share_of_a_dropper(hears: bool, seed: int) -> list[float]:
    """Cluster 1 acknowledges soonest and passes nothing on: its share of each of 12 blocks."""
    channel = ChannelParams(id=7, topic="blocks", min_chunks=16, num_chunks=24, max_block=10_000)
    world = listening(lambda _chunk, cluster: () if cluster == 1 else (STRANGER,), 3, channel)
    if not hears:
        world.hear = lambda _w, _ask: None
    qos = PluginRegistry.discover().selector("qos-selector", "relay.selector")
    rng = Random(seed)
    world.select = lambda selection: qos(selection, rng)

    def on_submit(w: World, s: SubmitChunk) -> None:
        delay = 0.02 if w.cluster_of(s.member) == 1 else 0.2
        w.answer(s, w.acknowledgement(s, w.now + delay), delay)

    world.on_submit = on_submit
    shares: list[float] = []
    for number in range(12):
        before = len(world.of(SubmitChunk))
        broadcast(world, b"block %d" % number)
        sent = world.of(SubmitChunk)[before:]
        through = Counter(world.cluster_of(submitted.member) for submitted in sent)
        shares.append(through[1] / through.total())
    return shares


@pytest.mark.parametrize("seed", range(3))
def test_a_selector_of_the_fastest_gives_a_dropper_nearly_all_until_it_is_heard(seed: int) -> None:
    deaf = share_of_a_dropper(False, seed)
    assert sum(deaf[-6:]) / 6 > 0.8
    hearing = share_of_a_dropper(True, seed)
    assert sum(hearing[-6:]) / 6 < 0.15  # it explores one chunk in twenty
