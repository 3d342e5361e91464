"""A relay to try: a producer, clusters and consumers on one overlay, and what they should do."""

from collections.abc import Callable, Iterable
from random import Random

from bruit.node.relay.member import Member
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.sim import ActionLog, LinkModel, SimNetwork, topologies
from bruit.node.sim.relay import RelayHost, RelayMachine, RelayNetwork, Selector, any_option
from bruit.node.sim.relay_work import BlockJudge, Prices, accept_all
from bruit.scoring.seam import NeutralScores, Scores

CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=32, num_chunks=48)
STAKE = 1 << 30  # tokens: many blocks
SIZE = 100_000  # bytes of a block
PRICE = 3  # tokens per byte
DEGREE = 6  # neighbours of a node: as many as its mesh has
READY = 3.0  # seconds until meshes have formed and all know the marketplace


class Town:
    """4 clusters of 3 members, one producer and 20 consumers, unless said otherwise.

    Members are consumers as well; the producer is none. ``bandwidth``: of every node, up and
    down, in bytes per second; ``producer_up``: what the producer can send.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        channel: ChannelParams = CHANNEL,
        params: RelayParams | None = None,
        clusters: int = 4,
        members: int = 3,
        consumers: int = 20,
        degree: int = DEGREE,
        faulty: dict[int, Callable[[Member], RelayMachine]] | None = None,
        link: LinkModel | None = None,
        bandwidth: float | None = None,
        producer_up: float | None = None,
        judge: BlockJudge = accept_all,
        prices: Prices | None = None,
        select: Selector = any_option,
        scores: Callable[[], Scores] = NeutralScores,
        action_log: ActionLog | None = None,
    ) -> None:
        self.net = SimNetwork(seed=seed, link=link, action_log=action_log)
        self.relay = RelayNetwork(
            self.net, [channel], params, seed=seed, judge=judge, prices=prices, scores=scores
        )
        self.channel = channel
        [self.producer] = self.relay.add(1, producer=True, consumer=False, select=select)
        self.clusters: dict[int, list[RelayHost]] = {}
        for number in range(clusters):
            machine = (faulty or {}).get(number)
            self.clusters[number] = self.relay.add(members, member=True, faulty=machine)
        self.consumers = self.relay.add(consumers)
        for host in self.relay.hosts:
            self.net.set_bandwidth(host.node, up=bandwidth, down=bandwidth)
        if producer_up is not None:
            self.net.set_bandwidth(self.producer.node, up=producer_up)
        count = len(self.relay.hosts)
        self.net.connect_all(topologies.sparse_random(count, degree, self.net.rng))
        self.open_market()
        self.net.run_until(READY)

    def open_market(self, without: Iterable[int] = ()) -> None:
        """All clusters, but those left out."""
        left = {
            number: (PRICE, members)
            for number, members in self.clusters.items()
            if number not in without
        }
        self.relay.open({self.producer: STAKE}, left)

    def send(self, number: int = 0, size: int = SIZE) -> int:
        """Broadcast a block of random bytes; its ticket."""
        return self.producer.broadcast(self.channel.id, block(number, size))

    @property
    def members(self) -> list[RelayHost]:
        return [host for members in self.clusters.values() for host in members]


def block(number: int, size: int = SIZE) -> bytes:
    return Random(number).randbytes(size)


def blocks(host: RelayHost) -> list[bytes]:
    """What its application got, in order."""
    return [each.action.block for each in host.deliveries]


def acknowledged(host: RelayHost, ticket: int) -> int:
    """Chunks of an ended broadcast that carry an acknowledgement."""
    return sum(bool(each.acknowledgement) for each in host.proof(ticket).receipts)
