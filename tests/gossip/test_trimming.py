"""With more peers than max_peers the least useful are hung up on (go: connection tags)."""

from bruit.node.gossip.actions import Disconnect
from bruit.node.gossip.events import AddDirectPeer, RemoveDirectPeer
from bruit.node.gossip.params import GossipParams, RouterConfig
from tests.gossip.handheld import Handheld, id_of, of
from tests.gossip.neighbourhood import STEP, TOPIC, names, network, payloads


def test_peers_that_deliver_are_kept_among_sybils_that_only_squat() -> None:
    """go: TestGossipsubConnTagMessageDeliveries: 5 honest, 10 sybils, limit 10, meshes of 3.

    Unlike there deliveries count at most 15, less than the mesh: who is in no
    mesh is kept for its deliveries, and sybils find the meshes full.
    """
    net = network()
    params = GossipParams(d=3, d_lo=3, d_hi=3, d_score=3, d_out=1, flood_publish=True)
    honest = net.add_nodes(5, config=RouterConfig(params=params, max_peers=10))
    net.connect_all([(a, b) for a in range(5) for b in range(a)])
    net.subscribe_all(TOPIC)
    net.run_for(2.0)
    for number in range(100):
        net.publish(honest[number % 5], TOPIC, b"message %d" % number)
        net.run_for(0.02)
    for place, node in enumerate(honest):
        squatters = [net.add_peer_stub(name) for name in names(f"sybil{place}/", 10)]
        for squatter in squatters:
            squatter.connect(node)
        net.run_for(STEP)
        for squatter in squatters:
            if node.peer_id in squatter.connections:  # some may be hung up on already
                squatter.subscribe(node, TOPIC)
                squatter.graft(node, TOPIC)
    net.run_for(120.0)  # well beyond the grace of newcomers
    for node in honest:
        assert len(node.peers()) == 10
        others = {other.peer_id for other in honest if other is not node}
        assert others <= set(node.peers())
    net.publish(honest[0], TOPIC, b"last")
    net.run_for(1.0)
    assert all(payloads(node)[-1] == b"last" for node in honest)


def test_at_the_limit_nobody_is_hung_up_on() -> None:
    handheld = Handheld(RouterConfig(max_peers=3))
    for name in ("one", "two", "three"):
        handheld.connect(name)
    assert of(handheld.beat(200), Disconnect) == []


def test_one_too_many_is_hung_up_on_at_the_next_heartbeat_but_no_direct_peer() -> None:
    handheld = Handheld(RouterConfig(max_peers=1))
    one = handheld.connect("one")
    handheld.handle(AddDirectPeer(one, ()))
    two = handheld.connect("two", TOPIC)
    ends = of(handheld.beat(), Disconnect)
    assert ends == [Disconnect(two, "more than 1 peers, and it is the least useful")]


def test_a_kept_peer_is_never_one_too_many() -> None:
    kept = id_of("kept")
    handheld = Handheld(RouterConfig(max_peers=1, kept_peers=(kept,)))
    handheld.subscribe(TOPIC)
    handheld.connect("kept")
    handheld.handle(AddDirectPeer(kept, ()))
    handheld.handle(RemoveDirectPeer(kept))
    useful = handheld.connect("useful", TOPIC)
    assert handheld.mesh(TOPIC) == (useful,)
    assert [each.peer for each in of(handheld.beat(), Disconnect)] == [useful]
