"""Peer exchange: who is offered to whom on PRUNE, and which offers are taken."""

from random import Random
from typing import Any

import pytest

from bruit.node.gossip.actions import Action, Connect
from bruit.node.gossip.events import (
    FrameReceived,
    PeerConnected,
    Protocol,
    RecordLearnt,
    Subscribe,
)
from bruit.node.gossip.params import (
    MAX_PEER_RECORD,
    MAX_PRUNE_PEERS,
    GossipParams,
    RouterConfig,
)
from bruit.node.gossip.router import Router
from bruit.node.gossip.rpc_pb2 import PeerInfo, Rpc
from bruit.node.sim import PeerStub, SimNetwork, SimNode, invariants, topologies
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import MAX_PEER_ID, KeyType, PeerId, PrivateKey
from tests.gossip.fixed_scores import FixedScores
from tests.gossip.neighbourhood import (
    STEP,
    TOPIC,
    beating,
    ids,
    introduce,
    mesh,
    names,
    network,
    payloads,
    publish_from_anyone,
)

BOOTSTRAPPER: dict[str, Any] = {"d": 0, "d_lo": 0, "d_hi": 0, "d_score": 0, "d_out": 0}


def identity(number: int) -> PeerId:
    return PrivateKey(KeyType.ED25519, number.to_bytes(32, "big")).public_key().peer_id()


# A star becomes an overlay


def star(with_records: bool) -> tuple[SimNetwork, list[SimNode]]:
    """19 nodes that know only the centre, which keeps no mesh and offers what peers it has."""
    net = network(detection_delay=0.1)
    exchange = GossipParams(peer_exchange=True, **BOOTSTRAPPER)
    [centre] = net.add_nodes(1, config=RouterConfig(params=exchange))
    degrees = GossipParams(peer_exchange=True, d=4, d_lo=3, d_hi=5, d_score=3, d_out=1)
    net.add_nodes(19, config=RouterConfig(params=degrees))
    net.connect_all(topologies.star(20))
    net.run_for(1.0)
    if not with_records:
        for node in net.nodes[1:]:
            net.hand_in(centre, RecordLearnt(node.peer_id, b""))
    net.subscribe_all(TOPIC)
    net.run_for(10.0)
    return net, net.nodes


@pytest.mark.parametrize("with_records", [False, True])
def test_a_star_becomes_an_overlay_by_peer_exchange(with_records: bool) -> None:
    """go: TestGossipsubStarTopology, TestGossipsubStarTopologyWithSignedPeerRecords"""
    net, nodes = star(with_records)
    assert min(len(node.peers()) for node in nodes) > 1
    assert min(len(mesh(node)) for node in nodes[1:]) >= 2
    assert mesh(nodes[0]) == set()
    assert invariants.violations(net) == []
    said = [net.publish(node, TOPIC, node.name.encode()) for node in nodes]
    net.run_for(1.0)
    assert all(outcome.peers for outcome in said)
    everything = sorted(node.name.encode() for node in nodes)
    assert [sorted(payloads(node)) for node in nodes] == [everything] * 20


def test_the_overlay_lives_on_when_the_centre_of_the_star_is_gone() -> None:
    net, nodes = star(with_records=True)
    net.crash(nodes[0])
    net.run_for(2.0)
    said = publish_from_anyone(net, nodes[1:], 20, 0.2)
    assert [payloads(node) for node in nodes[1:]] == [said] * 19


def test_without_peer_exchange_a_star_stays_a_star() -> None:
    net = network()
    net.add_nodes(1, config=RouterConfig(params=GossipParams(**BOOTSTRAPPER)))
    net.add_nodes(19)
    net.connect_all(topologies.star(20))
    net.subscribe_all(TOPIC)
    net.run_for(10.0)
    assert [len(node.peers()) for node in net.nodes] == [19] + [1] * 19


# What is offered


def full_node(
    others: int, *, scores: FixedScores | None = None, **params: Any
) -> tuple[SimNetwork, SimNode, list[PeerStub]]:
    """A subscribed node that offers peers but keeps no mesh, and ``others`` subscribers."""
    net, table = network(), scores or FixedScores()
    config = beating(**({"peer_exchange": True} | BOOTSTRAPPER | params))
    [node] = net.add_nodes(1, config=config, scores=lambda: table)
    net.subscribe(node, TOPIC)
    return net, node, introduce(net, node, names("other", others))


def refused(net: SimNetwork, node: SimNode, stub: PeerStub, *topics: str) -> list[PeerInfo]:
    """Has the stub ask into the mesh; returns the peers that come with the one refusal."""
    stub.forget()
    stub.graft(node, *(topics or (TOPIC,)))
    net.run_for(STEP)
    [heard] = stub.heard("prune")
    assert heard.entry.topic == TOPIC
    return list(heard.entry.peers)


def test_who_is_refused_for_want_of_room_is_offered_the_other_subscribers() -> None:
    net, node, others = full_node(5)
    [stub] = introduce(net, node, ["stub"])
    offered = refused(net, node, stub)
    assert {info.peer_id: info.signed_peer_record for info in offered} == {
        other.peer_id: other.record for other in others
    }
    assert len(offered) == 5


def test_at_most_sixteen_peers_are_offered() -> None:
    net, node, others = full_node(40)
    [stub] = introduce(net, node, ["stub"])
    offered = {info.peer_id for info in refused(net, node, stub)}
    assert len(offered) == MAX_PRUNE_PEERS == 16
    assert offered < ids(others)
    assert offered != ids(others[:16])


def test_who_is_pruned_at_the_heartbeat_is_offered_the_other_subscribers() -> None:
    net, node, others = full_node(0, d=6, d_lo=4, d_hi=12, d_score=4)
    others = introduce(net, node, names("member", 12))
    for other in others:
        other.graft(node, TOPIC)
    net.run_until(1.5)
    pruned = [other for other in others if other.heard("prune")]
    assert len(pruned) == 6
    for other in pruned:
        [heard] = other.heard("prune")
        offered = {info.peer_id for info in heard.entry.peers}
        assert offered == ids(others) - {other.peer_id}


def test_who_is_left_behind_in_a_topic_is_offered_the_other_subscribers() -> None:
    net, node, others = full_node(3, d=6, d_lo=4, d_hi=12, d_score=4)
    net.unsubscribe(node, TOPIC)
    net.run_for(STEP)
    for other in others:
        [heard] = other.heard("prune")
        assert {info.peer_id for info in heard.entry.peers} == ids(others) - {other.peer_id}


def test_nobody_is_offered_unless_peer_exchange_is_on() -> None:
    net, node, _ = full_node(5, peer_exchange=False)
    [stub] = introduce(net, node, ["stub"])
    assert refused(net, node, stub) == []


def test_only_subscribed_mesh_peers_without_a_negative_score_are_offered() -> None:
    scores = FixedScores()
    net, node, others = full_node(3, scores=scores)
    introduce(net, node, ["elsewhere"], topics=["another topic"])
    introduce(net, node, ["flooder"], protocol=Protocol.FLOODSUB)
    scores.table[others[0].peer_id] = -0.001
    others[1].disconnect(node)
    [stub] = introduce(net, node, ["stub"])
    assert [info.peer_id for info in refused(net, node, stub)] == [others[2].peer_id]


def test_a_peer_whose_record_never_came_is_offered_without_one() -> None:
    net, node, [other] = full_node(1)
    net.hand_in(node, RecordLearnt(other.peer_id, b""))
    [stub] = introduce(net, node, ["stub"])
    [info] = refused(net, node, stub)
    assert info.peer_id == other.peer_id
    assert not info.HasField("signed_peer_record")


@pytest.mark.parametrize(("size", "kept"), [(MAX_PEER_RECORD, True), (MAX_PEER_RECORD + 1, False)])
def test_a_record_larger_than_the_bound_is_not_handed_on(size: int, kept: bool) -> None:
    net, node, [other] = full_node(1)
    net.hand_in(node, RecordLearnt(other.peer_id, bytes(size)))
    [stub] = introduce(net, node, ["stub"])
    [info] = refused(net, node, stub)
    assert info.signed_peer_record == (bytes(size) if kept else other.record)


@pytest.mark.parametrize("public", [False, True])
def test_by_default_records_are_handed_on_wherever_their_addresses_are(public: bool) -> None:
    """go: TestDefaultPXRecordReducer."""
    net, node, [other] = full_node(1)
    net.hand_in(node, RecordLearnt(other.peer_id, b"newer record", public))
    [stub] = introduce(net, node, ["stub"])
    [info] = refused(net, node, stub)
    assert info.signed_peer_record == b"newer record"


def test_with_public_only_a_private_record_is_withheld_but_its_peer_is_named() -> None:
    """go: TestPublicAddrsPXRecordReducer."""
    net = network()
    config = beating(peer_exchange=True, exchange_public_only=True, **BOOTSTRAPPER)
    [node] = net.add_nodes(1, config=config)
    net.subscribe(node, TOPIC)
    home, abroad = net.add_peer_stub("home"), net.add_peer_stub("abroad")
    for stub, public in ((home, False), (abroad, True)):
        net.hand_in(node, PeerConnected(stub.peer_id, Protocol.GOSSIPSUB_12, False))
        net.hand_in(node, RecordLearnt(stub.peer_id, b"of " + stub.name.encode(), public))
        said = Rpc()
        said.subscriptions.add(subscribe=True, topic=TOPIC)
        net.hand_in(node, FrameReceived(stub.peer_id, said.SerializeToString()))
    asking = net.add_peer_stub("asking")
    asking.connect(node)
    net.run_for(STEP)
    offered = refused(net, node, asking)
    assert {info.peer_id: info.signed_peer_record for info in offered} == {
        home.peer_id: b"",
        abroad.peer_id: b"of abroad",
    }


def test_a_graft_with_a_negative_score_is_refused_without_peers() -> None:
    scores = FixedScores()
    net, node, _ = full_node(5, scores=scores)
    [stub] = introduce(net, node, ["stub"])
    scores.table[stub.peer_id] = -0.001
    assert refused(net, node, stub) == []


def test_a_member_pruned_for_its_negative_score_is_offered_nobody() -> None:
    scores = FixedScores()
    net, node, _ = full_node(3, scores=scores, d=6, d_lo=4, d_hi=12, d_score=4)
    [stub] = introduce(net, node, ["stub"])
    assert stub.peer_id in mesh(node)
    scores.table[stub.peer_id] = -0.001
    net.run_until(1.5)
    [heard] = stub.heard("prune")
    assert list(heard.entry.peers) == []


def test_a_graft_in_backoff_is_refused_without_peers() -> None:
    net, node, _ = full_node(5)
    [stub] = introduce(net, node, ["stub"])
    assert len(refused(net, node, stub)) == 5
    assert refused(net, node, stub) == []


def test_a_graft_for_an_unknown_topic_gets_no_answer_and_spoils_the_offer_for_others() -> None:
    """An answer would tell a prober who is here; one decision per frame, as in go."""
    net, node, _ = full_node(5)
    [stub] = introduce(net, node, ["stub"])
    assert refused(net, node, stub, "unheard of", TOPIC) == []


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        (Protocol.GOSSIPSUB_10, False),
        (Protocol.GOSSIPSUB_11, True),
        (Protocol.GOSSIPSUB_12, True),
    ],
)
def test_peers_that_speak_v10_get_neither_backoff_nor_peers(protocol: Protocol, told: bool) -> None:
    net, node, _ = full_node(5)
    [stub] = introduce(net, node, ["stub"], protocol=protocol)
    stub.graft(node, TOPIC)
    net.run_for(STEP)
    [heard] = stub.heard("prune")
    assert heard.entry.HasField("backoff") is told
    assert len(heard.entry.peers) == (5 if told else 0)


# Which offers are taken


def offer(*peers: tuple[bytes, bytes], topic: str = TOPIC) -> bytes:
    """A PRUNE that offers peers: ids and records."""
    rpc = Rpc()
    entry = rpc.control.prune.add(topic=topic, backoff=60)
    for peer, record in peers:
        entry.peers.add(peer_id=peer, signed_peer_record=record)
    return rpc.SerializeToString()


OWN, GUIDE, FRIEND = identity(1), identity(2), identity(3)  # FRIEND is connected already


def router(
    score: float = 0.0, accept_px: float = 0.0, guide: Protocol = Protocol.GOSSIPSUB_12
) -> Router:
    """A router subscribed to TOPIC and connected to GUIDE, of that score, and FRIEND."""
    machine = Router(
        RouterConfig(params=GossipParams(peer_exchange=True)),
        OWN,
        Random(1),
        FixedScores({GUIDE: score}),
        Thresholds(accept_px=accept_px),
    )
    machine.handle(Subscribe(TOPIC), 0.0)
    machine.handle(PeerConnected(GUIDE, guide, outbound=True), 0.0)
    machine.handle(PeerConnected(FRIEND, Protocol.GOSSIPSUB_12, outbound=True), 0.0)
    return machine


def dialled(actions: list[Action]) -> list[Connect]:
    return [action for action in actions if isinstance(action, Connect)]


def test_an_offered_stranger_is_dialled_with_its_record() -> None:
    actions = router().handle(FrameReceived(GUIDE, offer((identity(9), b"record"))), 1.0)
    assert dialled(actions) == [Connect(identity(9), (), b"record")]


def test_an_offered_stranger_without_a_record_is_dialled_too() -> None:
    actions = router().handle(FrameReceived(GUIDE, offer((identity(9), b""))), 1.0)
    assert dialled(actions) == [Connect(identity(9), (), b"")]


def test_offers_are_not_taken_unless_peer_exchange_is_on() -> None:
    """Unlike go, which believes whomever it scores well whether or not it offers itself."""
    net = network()
    nodes = {}
    for enabled in (True, False):
        [nodes[enabled]] = net.add_nodes(1, config=beating(peer_exchange=enabled))
        net.subscribe(nodes[enabled], TOPIC)
    stranger = net.add_peer_stub("stranger")
    for enabled, node in nodes.items():
        [guide] = introduce(net, node, [f"guide {enabled}"])
        guide.prune(node, TOPIC, offered=[stranger])
    net.run_for(1.0)
    assert set(stranger.connections) == {nodes[True].peer_id}


@pytest.mark.parametrize(("score", "taken"), [(9.99, False), (10.0, True), (-1.0, False)])
def test_offers_are_taken_from_the_accept_px_threshold_on(score: float, taken: bool) -> None:
    machine = router(score, accept_px=10.0)
    actions = machine.handle(FrameReceived(GUIDE, offer((identity(9), b""))), 1.0)
    assert bool(dialled(actions)) is taken
    counter = "peer exchange from a peer below the accept_px threshold"
    assert machine.statistics().counters.get(counter, 0) == (0 if taken else 1)


def test_by_default_a_peer_with_a_negative_score_is_not_believed() -> None:
    actions = router(-0.001).handle(FrameReceived(GUIDE, offer((identity(9), b""))), 1.0)
    assert dialled(actions) == []


def test_of_one_offer_at_most_sixteen_are_dialled_chosen_at_random() -> None:
    strangers = [identity(number) for number in range(10, 50)]
    frame = offer(*((stranger, b"") for stranger in strangers))
    connects = dialled(router().handle(FrameReceived(GUIDE, frame), 1.0))
    chosen = {connect.peer for connect in connects}
    assert len(connects) == len(chosen) == 16
    assert chosen < set(strangers)
    assert chosen != set(strangers[:16])


def test_sixteen_are_dialled_of_one_frame_however_many_prunes_it_has() -> None:
    frames = Rpc()
    for number in range(10, 20):
        some = ((identity(10 * number + each), b"") for each in range(10))
        frames.MergeFromString(offer(*some))
    connects = dialled(router().handle(FrameReceived(GUIDE, frames.SerializeToString()), 1.0))
    assert len(connects) == 16


@pytest.mark.parametrize(
    "peer",
    [
        b"",
        b"\x00",
        b"not a peer id",
        FRIEND[:-1],
        FRIEND + b"\x00",
        b"\x12\x21" + bytes(33),  # SHA-256 of 33 bytes
        b"\x13\x20" + bytes(32),  # SHA-512, cut short
        bytes((0, MAX_PEER_ID - 1)) + bytes(MAX_PEER_ID - 1),
    ],
)
def test_what_is_no_peer_id_is_not_dialled_and_spoils_nothing(peer: bytes) -> None:
    frame = offer((peer, b""), (identity(9), b""))
    actions = router().handle(FrameReceived(GUIDE, frame), 1.0)
    assert [connect.peer for connect in dialled(actions)] == [identity(9)]


def test_neither_oneself_nor_a_connected_peer_is_dialled() -> None:
    frame = offer((OWN, b""), (GUIDE, b""), (FRIEND, b""))
    assert dialled(router().handle(FrameReceived(GUIDE, frame), 1.0)) == []


@pytest.mark.parametrize(("size", "taken"), [(MAX_PEER_RECORD, True), (MAX_PEER_RECORD + 1, False)])
def test_an_offered_record_larger_than_the_bound_is_not_taken(size: int, taken: bool) -> None:
    frame = offer((identity(9), bytes(size)))
    assert bool(dialled(router().handle(FrameReceived(GUIDE, frame), 1.0))) is taken


def test_offers_for_a_topic_that_was_never_joined_are_not_taken() -> None:
    frame = offer((identity(9), b""), topic="never joined")
    assert dialled(router().handle(FrameReceived(GUIDE, frame), 1.0)) == []


def test_a_floodsub_peer_cannot_make_offers() -> None:
    machine = router(guide=Protocol.FLOODSUB)
    actions = machine.handle(FrameReceived(GUIDE, offer((identity(9), b""))), 1.0)
    assert dialled(actions) == []
