"""What a run will do: who there is, who is connected to whom, who cheats, and how."""

import random
from enum import Enum

import msgspec

from bruit.node.relay.params import Attesting, RelayParams
from bruit.topics.errors import LocalError

MAX_CLUSTERS = 16  # of one machine; this and the next two are guesses
MAX_MEMBERS = 8
MAX_CONSUMERS = 32
OPTIONS = RelayParams().cluster_options
MEMBER_LINKS = 2  # members of each cluster that a consumer is connected to; guess: one may fail
# Seconds until a chunk is a replay, where that is waited for; guess: long after all have the block
REPLAY_LATENCY = 6.0


class Variant(Enum):
    PLAIN = "plain"
    DROP = "drop-clusters"
    CORRUPT = "corrupt-cluster"
    FALSE_WITNESS = "false-witness"
    REPLAY = "replay"
    OVERSPEND = "overspend-stake"
    BAD_BLOCK = "bad-block"


class Role(Enum):
    PRODUCER = "producer"
    MEMBER = "member"
    CONSUMER = "consumer"
    OUTSIDER = "outsider"  # connected, and nothing that the marketplace knows


class Fault(Enum):
    """What a node does that it must not."""

    NONE = ""
    DROPS = "takes and acknowledges chunks, and passes none on"
    CORRUPTS = "flips a byte of every chunk that it passes on"
    WITHHOLDS = "keeps a chunk back until it is too old"
    FORGES = "witnesses chunks and is no member"
    FORGETS = "attaches the same stake to two blocks"
    CARELESS = "sends what its chain's validator refuses"


class Place(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    role: Role
    cluster: int = 0  # id, of a member
    fault: Fault = Fault.NONE


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    variant: Variant
    places: tuple[Place, ...]
    pairs: tuple[tuple[int, int], ...]  # dialer and listener, by their index in ``places``
    faulty: tuple[int, ...]  # ids of the clusters that cheat
    min_chunks: int
    num_chunks: int
    attesting: Attesting
    selector: str  # the plugin is called so, with -selector behind it
    params: RelayParams

    @property
    def clusters(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(dict.fromkeys(each.cluster for each in self.places if each.cluster))

    def of(self, role: Role) -> list[int]:
        """Who has a role, by index."""
        return [index for index, place in enumerate(self.places) if place.role is role]

    def neighbours(self, index: int) -> list[int]:
        """Whom a node is connected to."""
        return [one + other - index for one, other in self.pairs if index in (one, other)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    variant: Variant = Variant.PLAIN
    faulty: int = 0  # clusters that cheat
    clusters: int = 4
    members: int = 3  # of each cluster
    consumers: int = 6
    min_chunks: int = 32
    # Simulated: of 48 chunks, too few are left at times where one of four clusters drops its own.
    num_chunks: int = 64
    attesting: Attesting = Attesting.CHUNK
    selector: str = "random"


def parse_chunks(text: str) -> tuple[int, int]:
    """``K/N``: any K of N chunks rebuild a block. Raises LocalError for what is not that."""
    needed, slash, made = text.partition("/")
    if not (slash and needed.isdecimal() and made.isdecimal()):
        raise LocalError(f"--chunks {text}: write it as 32/64, chunks needed and chunks made")
    if not 1 <= int(needed) <= int(made):
        raise LocalError(f"--chunks {text}: at least 1 is needed, and no more than are made")
    return int(needed), int(made)


def make_plan(shape: Shape, rng: random.Random) -> Plan:
    """Raises LocalError for impossible numbers."""
    _check(shape)
    ids = range(1, shape.clusters + 1)
    faulty = tuple(sorted(rng.sample(ids, _faulty_clusters(shape))))
    places = tuple(_places(shape, faulty))
    latency = REPLAY_LATENCY if shape.variant is Variant.REPLAY else RelayParams().tolerable_latency
    return Plan(
        variant=shape.variant,
        places=places,
        pairs=tuple(_pairs(places, shape.members)),
        faulty=faulty,
        min_chunks=shape.min_chunks,
        num_chunks=shape.num_chunks,
        attesting=shape.attesting,
        selector=shape.selector,
        params=RelayParams(
            cluster_options=min(OPTIONS, shape.clusters),
            tolerable_latency=latency,
            chunk_report_limit=max(RelayParams().chunk_report_limit, shape.min_chunks),
        ),
    )


def _check(shape: Shape) -> None:
    for name, value, limit in (
        ("--clusters", shape.clusters, MAX_CLUSTERS),
        ("--members", shape.members, MAX_MEMBERS),
        ("--consumers", shape.consumers, MAX_CONSUMERS),
    ):
        if not 1 <= value <= limit:
            raise LocalError(f"{name} {value}: use 1 to {limit}")
    if shape.variant in (Variant.DROP, Variant.CORRUPT) and not 1 <= shape.faulty < shape.clusters:
        raise LocalError(
            f"--{shape.variant.value} {shape.faulty}: of {shape.clusters} clusters, "
            f"1 to {shape.clusters - 1} can cheat"
        )


def _faulty_clusters(shape: Shape) -> int:
    match shape.variant:
        case Variant.DROP | Variant.CORRUPT:
            return shape.faulty
        case Variant.REPLAY:
            return 1  # whose members keep a chunk back each: some of them get one for sure
        case _:
            return 0


def _places(shape: Shape, faulty: tuple[int, ...]) -> list[Place]:
    of_clusters = {
        Variant.DROP: Fault.DROPS,
        Variant.CORRUPT: Fault.CORRUPTS,
        Variant.REPLAY: Fault.WITHHOLDS,
    }
    of_producers = {Variant.OVERSPEND: Fault.FORGETS, Variant.BAD_BLOCK: Fault.CARELESS}
    fault = of_producers.get(shape.variant, Fault.NONE)
    places = [Place("producer", Role.PRODUCER, fault=fault)]
    for cluster in range(1, shape.clusters + 1):
        fault = of_clusters[shape.variant] if cluster in faulty else Fault.NONE
        places += [
            Place(f"member-{cluster}.{number}", Role.MEMBER, cluster, fault)
            for number in range(1, shape.members + 1)
        ]
    places += [
        Place(f"consumer-{number}", Role.CONSUMER) for number in range(1, shape.consumers + 1)
    ]
    if shape.variant is Variant.FALSE_WITNESS:
        places.append(Place("outsider", Role.OUTSIDER, fault=Fault.FORGES))
    return places


def _pairs(places: tuple[Place, ...], members: int) -> list[tuple[int, int]]:
    """The producer to all members; members to their own cluster; consumers to some of each
    cluster, and to the next consumer; an outsider to all consumers."""
    producer, of_clusters, consumers, outsiders = (
        [index for index, place in enumerate(places) if place.role is role] for role in Role
    )
    clusters = [of_clusters[at : at + members] for at in range(0, len(of_clusters), members)]
    pairs = [(one, other) for one in producer for other in of_clusters]
    for cluster in clusters:
        pairs += [(one, other) for at, one in enumerate(cluster) for other in cluster[:at]]
    for number, consumer in enumerate(consumers):
        for cluster in clusters:
            some = range(number, number + min(MEMBER_LINKS, members))
            pairs += [(consumer, cluster[at % members]) for at in some]
    ring = zip(consumers, consumers[1:] + consumers[:1], strict=True)
    pairs += [pair for pair in ring if pair[0] < pair[1] or len(consumers) > 2]
    pairs += [(one, other) for one in outsiders for other in consumers]
    return pairs
