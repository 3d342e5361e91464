"""Sixteen nodes in eight regions: delays, link rates, and what they bound.

Delays, weights of the regions and rates are those of libp2p/test-plans,
gossipsub-interop/network_graph.py at commit 00f6cbd, the topology that gossipsub is
simulated with: one way, without jitter. That file gives South America to South Africa
195 ms and the way back 190; so it is here.
"""

from collections.abc import Sequence
from random import Random

import msgspec

REGIONS = (
    "europe",
    "na_east",
    "na_west",
    "east_asia",
    "australia",
    "west_asia",
    "south_africa",
    "south_america",
)
WEIGHTS = (5599, 2894, 1240, 1059, 290, 161, 47, 36)  # nodes seen in each: same source
# Milliseconds from the region of the row to that of the column, in the order above.
DELAYS_MS = (
    (2, 70, 110, 125, 165, 60, 95, 140),
    (70, 2, 60, 140, 150, 110, 130, 100),
    (110, 60, 2, 100, 110, 150, 160, 100),
    (125, 140, 100, 4, 110, 110, 175, 175),
    (165, 150, 110, 110, 2, 180, 220, 190),
    (60, 110, 150, 110, 180, 5, 110, 145),
    (95, 130, 160, 175, 220, 110, 7, 190),
    (140, 100, 100, 175, 190, 145, 195, 7),
)
FAST_MBIT, SLOW_MBIT = 1024.0, 50.0  # both ways: "supernode" and "fullnode" of the same source
FAST_SHARE = 0.2  # of the nodes: same source


class Place(msgspec.Struct, frozen=True):
    """A node of the emulated network."""

    region: str
    up: float  # bits per second that it can send
    down: float  # bits per second that it can receive
    fast: bool = False


class Layout(msgspec.Struct, frozen=True):
    """What a network is to do, by node."""

    up: tuple[float, ...]  # bits per second
    down: tuple[float, ...]
    delay: tuple[tuple[float, ...], ...]  # seconds from each (row) to each (column)


def spread(count: int) -> list[str]:
    """The region of each node: one in each, the others by weight (highest averages, D'Hondt).

    With fewer nodes than regions, the heaviest regions.
    """
    seats = dict.fromkeys(REGIONS[:count], 1)
    weights = dict(zip(REGIONS, WEIGHTS, strict=True))
    for _ in range(count - len(seats)):
        heaviest = max(seats, key=lambda region: weights[region] / (seats[region] + 1))
        seats[heaviest] += 1
    return [region for region in REGIONS for _ in range(seats.get(region, 0))]


def places(count: int, scale: float, seed: int, *, fast_producer: bool = False) -> list[Place]:
    """So many nodes, every rate times ``scale``. Node 0 is the producer.

    Who is where, and who is fast, is drawn from ``seed``; a fifth is fast.
    """
    rng = Random(seed)
    regions = spread(count)
    rng.shuffle(regions)
    others = rng.sample(range(1, count), round(FAST_SHARE * count) - fast_producer)
    fast = {*others, 0} if fast_producer else set(others)
    return [
        Place(region, rate, rate, index in fast)
        for index, region in enumerate(regions)
        for rate in [(FAST_MBIT if index in fast else SLOW_MBIT) * 1e6 * scale]
    ]


def delay(source: Place, target: Place) -> float:
    """Seconds from one to the other."""
    return DELAYS_MS[REGIONS.index(source.region)][REGIONS.index(target.region)] / 1e3


def layout(nodes: Sequence[Place]) -> Layout:
    return Layout(
        up=tuple(node.up for node in nodes),
        down=tuple(node.down for node in nodes),
        delay=tuple(tuple(delay(source, target) for target in nodes) for source in nodes),
    )


def bound(nodes: Sequence[Place], size: int) -> float:
    """Seconds before which no system can have brought ``size`` bytes from node 0 to all others.

    The last bit leaves node 0 after size / uplink, and enters a receiver no sooner than
    size / downlink; the slower of the two and the delay of the direct way add up:

        max over receivers r of  delay(0, r) + size / min(uplink of 0, downlink of r)

    No detour in the table is shorter than the direct way. Headers, copies and
    acknowledgements are left out.
    """
    producer = nodes[0]
    return max(
        delay(producer, receiver) + 8 * size / min(producer.up, receiver.down)
        for receiver in nodes[1:]
    )
