"""Cluster selectors against each other: eight clusters that differ in delay, price and honesty.

Each selector drives one producer through the same broadcasts. What a chunk costs is its bytes
times the price of the cluster that acknowledged it, whether or not that cluster did its work.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bruit.node.relay.params import ChannelParams
from bruit.node.sim import LinkModel, SimNetwork, relay_faults, topologies
from bruit.node.sim.relay import RelayHost, RelayNetwork, Selector
from bruit.plugins.registry import PluginRegistry
from tests.sim.relaying import block

CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=8, num_chunks=16)
SIZE = 8_000  # bytes of a block
STAKE = 1 << 30  # tokens
MEMBERS = 2  # of each cluster
CONSUMERS = 6
INTERVAL = 1.0  # seconds between broadcasts
READY = 3.0  # seconds until meshes have formed
LATENCY = 0.02  # seconds one way between those who are in no cluster
NAMES = ("random", "cheapest", "qos", "reputation", "mixed")


class Kind(msgspec.Struct, frozen=True):
    """What a cluster is like."""

    latency: float  # seconds one way, to and from its members
    price: int  # tokens per byte
    fault: str = ""  # "refuses": no acknowledgements; "drops": acknowledges, passes nothing on


CLUSTERS = {
    0: Kind(0.010, 9),
    1: Kind(0.020, 7),
    2: Kind(0.040, 6),
    3: Kind(0.080, 5),
    4: Kind(0.160, 3),
    5: Kind(0.320, 2),
    6: Kind(0.010, 4, "refuses"),
    7: Kind(0.005, 4, "drops"),  # what it saves makes it the quickest
}
REFUSING, DROPPING = 6, 7
FAULTS: Mapping[str, Callable[..., relay_faults.Refusing | relay_faults.Dropping]] = {
    "refuses": relay_faults.Refusing,
    "drops": relay_faults.Dropping,
}
REPUTATIONS = "".join(
    f'"{number}" = {0.1 if kind.fault else 0.9}\n' for number, kind in CLUSTERS.items()
)


class Outcome(msgspec.Struct, frozen=True):
    """What became of all broadcasts under one selector."""

    delivered: float  # of the deliveries that there should be, 0..1
    mean_ms: float  # from the broadcast to a delivery
    price: float  # tokens per byte of chunk, mean
    shares: dict[int, float]  # cluster → share of the chunks that went there first
    late_shares: dict[int, float]  # the same, in the second half of the broadcasts


def selectors(folder: Path) -> dict[str, Selector]:
    """Those that come with bruit, through the registry as a node has them."""
    file = folder / "reputation.toml"
    file.write_text(REPUTATIONS)
    registry = PluginRegistry.discover({"reputation-selector": {"file": str(file)}})
    return {name: registry.selector(f"{name}-selector", "relay.selector") for name in NAMES}


def compare(select: Selector, broadcasts: int, *, seed: int = 1, listens: bool = True) -> Outcome:
    """``listens``: whether the producer subscribes to the channel, and so hears what comes out."""
    net = SimNetwork(seed=seed, link=LinkModel(latency=LATENCY))
    relay = RelayNetwork(net, [CHANNEL], seed=seed)
    [producer] = relay.add(1, producer=True, consumer=listens, select=select)
    clusters: dict[int, list[RelayHost]] = {}
    for number, kind in CLUSTERS.items():
        faulty = FAULTS.get(kind.fault)
        clusters[number] = relay.add(MEMBERS, member=True, consumer=False, faulty=faulty)
    consumers = relay.add(CONSUMERS)
    for number, members in clusters.items():
        link = LinkModel(latency=CLUSTERS[number].latency)
        for member in members:
            for other in (producer, *members, *consumers):
                if other is not member:
                    net.set_link(member.node, other.node, link)
    nodes = [producer.node, *(host.node for host in consumers)]
    net.connect_all(topologies.full(len(nodes)), nodes)
    for members in clusters.values():
        for member in members:
            for host in consumers:
                net.connect(member.node, host.node)
    relay.open(
        {producer: STAKE},
        {number: (CLUSTERS[number].price, members) for number, members in clusters.items()},
    )
    net.run_until(READY)
    began: dict[bytes, float] = {}
    tickets: list[int] = []
    for number in range(broadcasts):
        data = block(number, SIZE)
        began[data] = net.now
        tickets.append(producer.broadcast(CHANNEL.id, data))
        net.run_for(INTERVAL)
    net.run_for(15.0)
    delays = [
        each.time - began[each.action.block] for host in consumers for each in host.deliveries
    ]
    return Outcome(
        delivered=len(delays) / (broadcasts * CONSUMERS),
        mean_ms=1e3 * sum(delays) / len(delays),
        price=_price(producer, tickets),
        shares=_shares(producer, tickets),
        late_shares=_shares(producer, tickets[broadcasts // 2 :]),
    )


def _price(producer: RelayHost, tickets: Sequence[int]) -> float:
    """Tokens per byte: all chunks are of one length."""
    prices = [
        CLUSTERS[receipt.tried[-1]].price
        for ticket in tickets
        for receipt in producer.proof(ticket).receipts
        if receipt.acknowledgement
    ]
    return sum(prices) / len(prices)


def _shares(producer: RelayHost, tickets: Sequence[int]) -> dict[int, float]:
    first = Counter(
        receipt.tried[0]
        for ticket in tickets
        for receipt in producer.proof(ticket).receipts
        if receipt.tried
    )
    return {number: first[number] / first.total() for number in CLUSTERS}
