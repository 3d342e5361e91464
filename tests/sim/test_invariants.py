"""The invariant checks: silent on sound routers, and not silent on any broken rule."""

import msgspec
import pytest

from bruit.node.gossip.params import MAX_FANOUT_TOPICS, GossipParams, RouterConfig
from bruit.node.gossip.router import Statistics
from bruit.node.sim import PeerStub, SimNetwork, SimNode, invariants, topologies

PARAMS = GossipParams(d=2, d_lo=1, d_hi=2, d_score=1, d_out=0, seen_capacity=5)


def scene() -> tuple[SimNetwork, SimNode, list[PeerStub]]:
    """A router with three stubs that dialled it and are subscribed to t."""
    net = SimNetwork(seed=1)
    (node,) = net.add_nodes(1, config=RouterConfig(params=PARAMS))
    stubs = [net.add_peer_stub(name) for name in ("one", "two", "three")]
    for stub in stubs:
        stub.connect(node)
    net.run_for(0.5)
    for stub in stubs:
        stub.subscribe(node, "t")
    net.run_for(0.2)
    return net, node, stubs


def statistics(node: SimNode, **changes: object) -> Statistics:
    return msgspec.structs.replace(node.router.statistics(), **changes)


def test_a_sound_network_breaks_nothing_and_its_meshes_are_symmetric() -> None:
    net = SimNetwork(seed=1)
    net.add_nodes(30)
    net.connect_all(topologies.sparse_random(30, 14, net.rng))
    net.subscribe_all("t")
    for _ in range(20):
        net.run_for(0.5)
        assert invariants.violations(net) == []
    assert invariants.asymmetric_meshes(net) == []
    assert all(node.router.statistics().mesh["t"] for node in net.nodes)


def test_what_a_sound_router_says_of_itself_breaks_nothing() -> None:
    _, node, stubs = scene()
    peers = tuple(stub.peer_id for stub in stubs)
    sound = statistics(node)
    assert (sound.peers, sound.subscribers) == (peers, {"t": peers})
    assert list(invariants.violations_of(node, sound)) == []


@pytest.mark.parametrize("group", ["mesh", "fanout"])
def test_a_member_that_is_not_subscribed_is_reported(group: str) -> None:
    _, node, (one, *_) = scene()
    broken = statistics(node, **{group: {"u": (one.peer_id,)}})
    (problem,) = invariants.violations_of(node, broken)
    assert problem == f"{group} of u holds {one.peer_id.hex()}, which is not subscribed"


@pytest.mark.parametrize("group", ["mesh", "fanout"])
def test_a_member_that_is_not_connected_is_reported(group: str) -> None:
    net, node, _ = scene()
    stranger = net.add_peer_stub("stranger").peer_id
    broken = statistics(node, **{group: {"t": (stranger,)}, "subscribers": {"t": (stranger,)}})
    (problem,) = invariants.violations_of(node, broken)
    assert problem == f"{group} of t holds {stranger.hex()}, which is not connected"


def test_a_peer_without_a_connection_is_reported() -> None:
    _, node, stubs = scene()
    broken = statistics(node, peers=tuple(stub.peer_id for stub in stubs[:2]))
    assert list(invariants.violations_of(node, broken)) == ["knows 2 peers, has 3 connections"]


def test_a_mesh_of_too_many_peers_that_dialled_us_is_reported() -> None:
    net, node, stubs = scene()
    broken = statistics(node, mesh={"t": tuple(stub.peer_id for stub in stubs)})
    (problem,) = invariants.violations_of(node, broken)
    assert problem == "mesh of t has 3 peers that dialled us, d_hi is 2"
    stubs[2].disconnect(node)
    net.run_for(0.1)
    net.connect(node, stubs[2])  # the same peer, dialled by us, may come on top
    net.run_for(0.1)
    assert list(invariants.violations_of(node, msgspec.structs.replace(broken))) == []


def test_a_fanout_of_more_than_d_is_reported() -> None:
    _, node, stubs = scene()
    broken = statistics(node, fanout={"t": tuple(stub.peer_id for stub in stubs)})
    assert list(invariants.violations_of(node, broken)) == ["fanout of t has 3 peers, d is 2"]


def test_a_topic_with_both_mesh_and_fanout_is_reported() -> None:
    _, node, _ = scene()
    broken = statistics(node, mesh={"t": ()}, fanout={"t": ()})
    (problem,) = invariants.violations_of(node, broken)
    assert problem == "has both a mesh and a fanout for t"


def test_memory_beyond_its_bounds_is_reported() -> None:
    _, node, (one, *_) = scene()
    fanout: dict[str, tuple[bytes, ...]] = {str(each): () for each in range(MAX_FANOUT_TOPICS + 1)}
    topics = {str(each): (one.peer_id,) for each in range(1001)}
    broken = statistics(node, seen=6, cached_bytes=134_217_729, fanout=fanout, subscribers=topics)
    assert list(invariants.violations_of(node, broken)) == [
        "remembers 6 message ids seen, the bound is 5",
        "remembers 134217729 bytes of messages cached, the bound is 134217728",
        "remembers 1001 fanout topics, the bound is 1000",
        "remembers 1001 topics of one peer, the bound is 1000",
    ]


def test_violations_name_the_node_and_the_time() -> None:
    net, node, (one, *_) = scene()
    node.channels.pop(one.peer_id)
    assert invariants.violations(net) == ["n0 at 0.7 s: knows 3 peers, has 2 connections"]


def test_a_mesh_that_only_one_side_knows_of_is_found() -> None:
    net = SimNetwork(seed=1)
    one, other = net.add_nodes(2)
    net.connect(one, other)
    net.subscribe(one, "t")
    net.run_for(2.0)
    net.subscribe(other, "t")  # grafts at once; one has not heard of it
    assert invariants.asymmetric_meshes(net) == [(other, one, "t")]
    net.run_for(1.0)
    assert invariants.asymmetric_meshes(net) == []
