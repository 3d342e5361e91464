"""A block of 1 MB to 1,000 nodes in virtual time: whole, in chunks, and through the relay.

    python -m bench.block_sim [--nodes 1000] [--systems marlin,gossip] [--seed 6420]
    python -m bench.block_sim --selectors

Delays of eight regions and a fifth of fast nodes, as `bench.emulation.regions` has them, over
`bruit.node.sim`: the same machines as on real sockets, each node with an uplink and a downlink.
Processors cost nothing here, TCP begins at its full window and loses nothing: what is compared
is who sends what to whom. ``sent/block``: bytes sent, over those of one block for every node.
The last line of output is one JSON object. `--selectors` compares the cluster selectors instead.
"""

import argparse
import functools
import gc
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec

from bench.emulation.regions import Place, bound, delay, places
from bench.lab import SEED
from bench.mesh import rounded
from bruit.node.gossip import intake
from bruit.node.gossip.events import Publish, PublishBatch
from bruit.node.gossip.params import Announced, GossipParams, RouterConfig, TopicParams
from bruit.node.relay.coding.code import Code
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.wants import ChunkWants, chunk_name, group_of
from bruit.node.relay.wire import SIGNATURE_SIZE, Attestation
from bruit.node.sim import LinkModel, SimNetwork, SimNode, relay_faults, topologies
from bruit.node.sim.relay import RelayHost, RelayNetwork
from bruit.topics.message import decode_message
from bruit.topics.validation import ACCEPTED, Validation
from tests.sim import selecting

NODES = 1000
SIZE = 1_000_000  # bytes of the block
MESH = 8  # D of gossipsub
SPARE_NEIGHBOURS = 2  # of a node, beyond D: ten in all, as in bench.block
CLUSTERS, MEMBERS = 4, 3  # clusters of the relay, and members of each
CODE = Code(32, 48)
TOPIC = "/blocks"
MAX_MESSAGE = 2 * SIZE
STAKE = 1 << 31  # tokens: more than a block needs
WARM_UP = 6.0  # seconds in which meshes form
STEPS = 10  # within a heartbeat, in which nodes come, so that their hearts do not beat in step
TIMEOUT = 60.0  # seconds that a block may take
STEP = 0.25  # seconds between looks at who has it
QUIET = 5.0  # seconds after the last arrival in which what is sent still counts
BROADCASTS = 200  # with each selector
REMEMBERED = 256  # parsed messages that all nodes share


def gossip_params(mesh: int) -> GossipParams:
    """D of ``mesh`` and bounds around it in proportion to those of 8.

    Own messages go to the mesh only: to all neighbours they would take the longer.
    """
    return GossipParams(
        d=mesh, d_lo=3 * mesh // 4, d_hi=3 * mesh // 2, d_score=3 * mesh // 4, flood_publish=False
    )


class World:
    """The network of one system: nodes at their places, connected along one graph."""

    def __init__(self, nodes: Sequence[Place], seed: int, mesh: int = MESH) -> None:
        self.places = nodes
        self.seed = seed
        self.degree = min(mesh + SPARE_NEIGHBOURS, len(nodes) - 1)
        self.params = gossip_params(mesh)
        self.net = SimNetwork(seed=seed)
        self.nodes: list[SimNode] = []
        self._models: dict[float, LinkModel] = {}

    def add(self, make: Callable[[int], SimNode]) -> None:
        """Have ``make(index)`` add a node for every place, in step with nobody, and connect all."""
        for index, place in enumerate(self.places):
            if index % max(1, len(self.places) // STEPS) == 0:
                self.net.run_for(self.params.heartbeat_interval / STEPS)
            node = make(index)
            self.net.set_bandwidth(node, up=place.up / 8, down=place.down / 8)
            self.nodes.append(node)
        for pair in topologies.sparse_random(len(self.nodes), self.degree, Random(self.seed)):
            self.link(*pair)
            self.net.connect(self.nodes[pair[0]], self.nodes[pair[1]])

    def link(self, one: int, other: int) -> None:
        """What lies between two nodes."""
        there, back = (
            self._models.setdefault(seconds, LinkModel(latency=seconds))
            for seconds in (
                delay(self.places[one], self.places[other]),
                delay(self.places[other], self.places[one]),
            )
        )
        self.net.set_link(self.nodes[one], self.nodes[other], there, back)


class Figures(msgspec.Struct, frozen=True):
    t50_ms: float | None  # None: not so many nodes got the block
    t95_ms: float | None
    t100_ms: float | None
    bytes_ratio: float
    delivered: int  # nodes, of all but the producer
    took_s: float  # of the machine that simulates
    events: int


def measure(world: World, send: Callable[[], None], arrived: Callable[[], list[float]]) -> Figures:
    """``arrived``: the times at which nodes other than the producer got the block, so far."""
    net, start = world.net, time.perf_counter()
    net.run_for(WARM_UP)
    before, began = net.statistics(), net.now
    receivers = len(world.nodes) - 1
    send()
    while len(arrived()) < receivers and net.now < began + TIMEOUT:
        net.run_for(STEP)
    net.run_for(QUIET)
    after, times = net.statistics(), sorted(arrived())

    def within(part: float) -> float | None:
        rank = math.ceil(part * receivers)
        return rounded(1e3 * (times[rank - 1] - began)) if len(times) >= rank else None

    return Figures(
        t50_ms=within(0.5),
        t95_ms=within(0.95),
        t100_ms=within(1.0),
        bytes_ratio=rounded((after.frame_bytes - before.frame_bytes) / len(world.nodes) / SIZE),
        delivered=len(times),
        took_s=rounded(time.perf_counter() - start),
        events=after.events - before.events,
    )


def gossip(world: World, block: bytes) -> Figures:
    """Whole messages."""
    topics = {TOPIC: TopicParams(max_message_size=MAX_MESSAGE)}
    config = RouterConfig(params=world.params, topics=topics)

    def make(_: int) -> SimNode:
        [node] = world.net.add_nodes(1, config=config)
        world.net.subscribe(node, TOPIC)
        return node

    world.add(make)
    return measure(
        world,
        lambda: check(not world.net.publish(world.nodes[0], TOPIC, block).problem),
        lambda: [node.deliveries(TOPIC)[0].time for node in world.nodes[1:] if node.delivered],
    )


class Gatherer:
    """Rebuilds the block at one node; that is, counts its chunks and notes the time."""

    def __init__(self, net: SimNetwork) -> None:
        self.wants = ChunkWants(CODE.min_chunks)
        self.done: float | None = None  # seconds
        self._net = net
        self._chunks: dict[int, None] = {}

    def validate(self, topic: str, data: bytes) -> Validation:
        chunk = int.from_bytes(data[6:8], "big")
        group = group_of(data[0:4], int.from_bytes(data[8:12], "big"))
        self._chunks[chunk] = None
        self.wants.judged(group, chunk)
        self.wants.gathered(group, len(self._chunks))
        if len(self._chunks) == CODE.min_chunks:
            self.done = self._net.now
            self.wants.finished(group)
        return ACCEPTED


def chunked(announced: Announced | None, world: World, block: bytes) -> Figures:
    """The same chunks as the relay's, without clusters: published by the producer."""
    gatherers: list[Gatherer] = []

    def make(_: int) -> SimNode:
        gatherer = Gatherer(world.net)
        gatherers.append(gatherer)
        how = announced and msgspec.structs.replace(announced, wants=gatherer.wants)
        topic = TopicParams(message_id=chunk_name, validated=True, announced=how)
        config = RouterConfig(params=world.params, topics={TOPIC: topic})
        [node] = world.net.add_nodes(1, config=config)
        node.set_validator(TOPIC, gatherer.validate)
        world.net.subscribe(node, TOPIC)
        return node

    def send() -> None:
        producer = world.nodes[0]
        frames = [
            Attestation(b"bloc", 7, index, 1_800_000_000, 0, bytes(SIGNATURE_SIZE)).encode()
            + bytes(SIGNATURE_SIZE)  # in place of a witness
            + chunk
            for index, chunk in enumerate(CODE.encode(block))
        ]
        items = [
            Publish(ticket, producer.author.write(TOPIC, frame), b"")
            for ticket, frame in enumerate(frames)
        ]
        world.net.hand_in(producer, PublishBatch(tuple(items)))

    world.add(make)
    return measure(
        world, send, lambda: [each.done for each in gatherers[1:] if each.done is not None]
    )


def marlin(dropping: int, world: World, block: bytes) -> Figures:
    """The relay. Its members are drawn from the fast nodes, and are consumers like the others.

    The clusters below ``dropping`` acknowledge chunks and pass nothing on.
    """
    channel = ChannelParams(
        id=7, topic=TOPIC, min_chunks=CODE.min_chunks, num_chunks=CODE.num_chunks
    )
    relay = RelayNetwork(
        world.net, [channel], seed=world.seed, config=RouterConfig(params=world.params)
    )
    fast = [index for index, place in enumerate(world.places) if place.fast and index]
    chosen = Random(world.seed).sample(fast, CLUSTERS * MEMBERS)
    clusters: dict[int, list[RelayHost]] = {number: [] for number in range(CLUSTERS)}

    def make(index: int) -> SimNode:
        cluster = chosen.index(index) // MEMBERS if index in chosen else None
        [host] = relay.add(
            1,
            producer=index == 0,
            member=cluster is not None,
            consumer=index != 0,
            faulty=relay_faults.Dropping if cluster in range(dropping) else None,
        )
        if cluster is not None:
            clusters[cluster].append(host)
        return host.node

    world.add(make)
    for member in chosen:
        for other in (0, *chosen):
            if member != other:
                world.link(member, other)
    producer = relay.hosts[0]
    relay.open({producer: STAKE}, {number: (1, each) for number, each in clusters.items()})
    tickets: list[int] = []
    figures = measure(
        world,
        lambda: tickets.append(producer.broadcast(channel.id, block)),
        lambda: [host.deliveries[0].time for host in relay.hosts[1:] if host.deliveries],
    )
    for host in relay.hosts:
        check(all(each.action.block == block for each in host.deliveries))
        check(dropping > 0 or not host.disputes)
    return figures


def check(holds: bool) -> None:
    if not holds:
        raise AssertionError("the simulation did something else than it should")


SYSTEMS: dict[str, Callable[[World, bytes], Figures]] = {
    "gossip": gossip,
    "chunked": functools.partial(chunked, None),
    "announced": functools.partial(chunked, Announced()),
    "marlin": functools.partial(marlin, 0),
    "marlin_1_dropping": functools.partial(marlin, 1),
}


def share_messages() -> None:
    """Parse equal messages once for all nodes: a thousand nodes would keep a thousand copies."""
    intake.decode_message = functools.lru_cache(REMEMBERED)(decode_message)


def run(
    names: Sequence[str], count: int, mesh: int, seed: int, fast_producer: bool
) -> dict[str, object]:
    nodes = places(count, 1.0, seed, fast_producer=fast_producer)
    block = Random(seed).randbytes(SIZE)
    bound_ms = rounded(1e3 * bound(nodes, SIZE))
    print(f"{count} nodes, a block of {SIZE:,} bytes; bound {bound_ms:.0f} ms")
    columns = ("t50 ms", "t95 ms", "t100 ms", "sent/block", "delivered", "took s")
    print(f"{'':18}" + "".join(f"{each:>11}" for each in columns))
    found: dict[str, object] = {}
    for name in names:
        world = World(nodes, seed, mesh)
        figures = SYSTEMS[name](world, block)
        gc.collect()
        cells = [
            "–" if value is None else f"{value:,.2f}" if key == "bytes_ratio" else f"{value:,.0f}"
            for key, value in msgspec.structs.asdict(figures).items()
        ]
        print(f"{name:18}" + "".join(f"{cell:>11}" for cell in cells[:6]), flush=True)
        found[name] = msgspec.to_builtins(figures)
    inputs: Mapping[str, object] = {
        "nodes": count,
        "bytes": SIZE,
        "seed": seed,
        "degree": mesh + SPARE_NEIGHBOURS,
        "d": mesh,
        "clusters": CLUSTERS,
        "members": MEMBERS,
        "fast_producer": fast_producer,
    }
    return found | {"bound_ms": bound_ms, "inputs": inputs}


def run_selectors(seed: int) -> dict[str, object]:
    """All selectors, with a producer that hears which of its chunks come out, and one that does
    not. A share: of the chunks, those sent first to the cluster, in the second half."""
    found: dict[str, object] = {"broadcasts": BROADCASTS, "seed": seed}
    clusters = "; ".join(
        f"{number}: {1e3 * each.latency:.0f} ms, {each.price}{each.fault and ', ' + each.fault}"
        for number, each in selecting.CLUSTERS.items()
    )
    print(f"clusters, one way and tokens per byte: {clusters}")
    head = "".join(f"{number:>6}" for number in selecting.CLUSTERS)
    print(f"{'':22}delivered   mean ms  tokens/B  share to {head}")
    with tempfile.TemporaryDirectory(prefix="bruit-bench-") as folder:
        for listens in (True, False):
            for name, select in selecting.selectors(Path(folder)).items():
                outcome = selecting.compare(select, BROADCASTS, seed=seed, listens=listens)
                label = f"{name}, {'listens' if listens else 'deaf'}"
                shares = "".join(f"{each:6.2f}" for each in outcome.late_shares.values())
                print(
                    f"{label:22}{outcome.delivered:9.3f}{outcome.mean_ms:10.0f}"
                    f"{outcome.price:10.2f}           {shares}",
                    flush=True,
                )
                found[label] = msgspec.to_builtins(outcome, str_keys=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.block_sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=NODES, help=f"at least 64 ({NODES})")
    parser.add_argument("--mesh", type=int, default=MESH, help=f"D of gossipsub ({MESH})")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which of them (all)")
    parser.add_argument("--seed", type=int, default=SEED, help="of places, graph and dice")
    parser.add_argument("--fast-producer", action="store_true", help="node 0 has a fast link")
    parser.add_argument("--selectors", action="store_true", help="compare those instead")
    arguments = parser.parse_args()
    names = arguments.systems.split(",")
    if unknown := [name for name in names if name not in SYSTEMS]:
        parser.error(f"--systems: no {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    if not 4 <= arguments.mesh <= 32:
        parser.error("--mesh: use 4 to 32")
    if arguments.nodes < 64:  # a fifth of them are fast, and twelve of those are members
        parser.error("--nodes: use 64 or more")
    if arguments.selectors:
        print(json.dumps(run_selectors(arguments.seed)))
        return
    gc.disable()  # thousands of routers to look through, and hardly a cycle
    share_messages()
    figures = run(names, arguments.nodes, arguments.mesh, arguments.seed, arguments.fast_producer)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
