"""A hundred honest nodes under attack, and what became of their messages.

The network, its parameters and its clock are those of "GossipSub: Attack-Resilient
Message Propagation" (arXiv:2007.02754), as configured in
github.com/libp2p/gossipsub-hardening (scripts/configs), at a tenth of the size: 100
honest nodes, 10 of which publish messages of 2 KiB, 25 ms ± 10 % a round trip, 30 s
until the first message, sybils from 60 s on, 3 minutes in all.

What differs: honest nodes have 20 honest peers, the paper's dial 20 and are dialled by
20 more; messages come at 2/s instead of 120/s, in epochs, so that a run takes seconds;
links have no limit of bandwidth, the paper's had one too high to be felt. The parameters
of the score are the paper's, unscaled. Its P3 wants ten deliveries of each mesh peer,
which decay by 0.3 % a second: one in 33 s, so one message in 66 here and one in 4,000
there. P2 rewards every first delivery alike, so that scores here are some sixtieth of
the paper's.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from bruit.node.gossip.events import Protocol
from bruit.node.gossip.params import GossipParams, RouterConfig
from bruit.node.sim import LinkModel, SimNetwork, SimNode, topologies
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.presets import preset
from bruit.scoring.seam import NeutralScores, Scores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import PeerId
from tests.attacks.sybils import Forwards, Sybil

SEED = 1
TOPIC = "blocks"
HONEST = 100
DEGREE = 20  # honest peers of an honest node
PUBLISHERS = 10
SIZE = 2048  # bytes
EPOCH = 10.0  # seconds from one round of messages to the next
PER_EPOCH = 20  # messages, from all publishers in turn
SPACING = 0.05  # seconds between them
BOOT = 1.0  # seconds: all honest nodes are there, and begin to dial
WARM_UP = 30.0  # seconds until the first message
ATTACK = 60.0  # seconds until the sybils come
END = 180.0  # seconds: all messages have been published
COOL_DOWN = 5.0  # seconds after the end in which messages may still arrive
DEADLINE = 6.0  # seconds: what the paper asks, after Filecoin's epochs
BY_MESH = 0.1  # seconds: eight hops; gossip waits half a second for a heartbeat, on average

LINK = LinkModel(latency=0.01125, jitter=0.0025)  # 25 ms ± 10 % a round trip


class Defences(msgspec.Struct, frozen=True, kw_only=True):
    """What honest nodes have against attackers. By default all that the paper's v1.1 has."""

    scores: bool = True
    flood_publish: bool = True
    adaptive_gossip: bool = True  # to a quarter of the peers; else to D of them, as in v1.0
    colocation_weight: float = 0.0  # of P6
    opportunistic: bool = False  # grafting when the median is below 1, every 10 heartbeats

    def config(self) -> RouterConfig:
        return RouterConfig(
            params=GossipParams(
                d=8,
                d_lo=6,
                d_hi=12,
                d_score=6,
                d_out=0,  # no quota of outbound peers: the paper's routers had none
                d_lazy=12 if self.adaptive_gossip else 8,
                gossip_factor=0.25 if self.adaptive_gossip else 0.0,
                heartbeat_interval=1.0,
                flood_publish=self.flood_publish,
                opportunistic_graft_ticks=10 if self.opportunistic else 60,
            )
        )

    def scoring(self) -> tuple[Callable[[], Scores], Thresholds]:
        """What makes the scores of a node, and the thresholds that they are held against."""
        paper = preset("paper2020")
        median = 1.0 if self.opportunistic else 0.0
        thresholds = replace(paper.thresholds, opportunistic_graft=median)
        if not self.scores:
            return NeutralScores, thresholds
        params = replace(paper.params, ip_colocation_factor_weight=self.colocation_weight)
        return lambda: PeerScores(params, thresholds), thresholds


V1_1 = Defences()
# The pair that shows what scores do: they are all that differs. Messages travel as in v1.0.
SCORES_ALONE = Defences(flood_publish=False, adaptive_gossip=False)
V1_0 = Defences(scores=False, flood_publish=False, adaptive_gossip=False)


class Outcome(msgspec.Struct, frozen=True):
    """What became of messages: how many deliveries there should be, and those there were."""

    expected: int  # messages × honest nodes other than the author
    delays: tuple[float, ...]  # seconds, ascending; of the deliveries that took place

    @property
    def share(self) -> float:
        """Of the expected deliveries, how many took place: 0..1."""
        return len(self.delays) / self.expected

    def percentile(self, percent: float) -> float:
        """Seconds within which so many of the *expected* deliveries took place; else ∞."""
        rank = math.ceil(self.expected * percent / 100)
        return self.delays[rank - 1] if rank <= len(self.delays) else math.inf

    @property
    def holds(self) -> bool:
        """The bound: everything arrives everywhere, and 99 of 100 before the deadline."""
        return len(self.delays) == self.expected and self.percentile(99) < DEADLINE

    def __str__(self) -> str:
        missing = self.expected - len(self.delays)
        return (
            f"{missing:,} of {self.expected:,} deliveries are missing; p50 "
            f"{self.percentile(50):.3f} s, p99 {self.percentile(99):.3f} s, "
            f"last {self.percentile(100):.3f} s"
        )


class Arena:
    """One network, and one run of it."""

    def __init__(self, defences: Defences) -> None:
        self.net = SimNetwork(seed=SEED, link=LINK)
        scores, thresholds = defences.scoring()
        self.honest: list[SimNode] = []
        for _ in range(HONEST):
            self.honest += self.net.add_nodes(
                1,
                config=defences.config(),
                scores=scores,
                thresholds=thresholds,
                protocol=Protocol.GOSSIPSUB_11,
            )
            self.net.run_for(BOOT / HONEST)  # so that hearts do not beat in step
        self.publishers = self.honest[:: HONEST // PUBLISHERS]
        self.sybils: list[SimNode] = []
        self._dice = Random(f"{SEED}/arena")
        self._sent: dict[bytes, tuple[float, PeerId]] = {}  # id → time and author
        self._arrived: list[tuple[bytes, float]] = []  # id and delay
        pairs = topologies.sparse_random(HONEST, DEGREE, self.net.rng)
        self.net.connect_all(pairs, self.honest)
        for node in self.honest:
            self.net.subscribe(node, TOPIC)

    def add_sybils(
        self,
        count: int,
        victims: Sequence[SimNode],
        connections: int,
        at: float,
        forwards: Forwards = None,
        addresses: int = 0,
    ) -> None:
        """Attackers that dial ``connections`` of ``victims`` each, at a time ± 5 % (badboy's).

        They share ``addresses`` IP addresses; with 0 each has its own.
        """
        ids = [victim.peer_id for victim in victims]
        for number in range(count):
            chosen = self._dice.sample(ids, connections)
            joins_at = self._dice.uniform(0.95, 1.05) * at

            def machine(
                own_id: PeerId, dice: Random, to: list[PeerId] = chosen, when: float = joins_at
            ) -> Sybil:
                return Sybil(own_id, dice, to, when, forwards)

            (sybil,) = self.net.add_nodes(1, protocol=Protocol.GOSSIPSUB_11, machine=machine)
            if addresses:
                sybil.address = f"/ip4/192.0.2.{1 + number % addresses}/tcp/4001"
            self.sybils.append(sybil)

    def run(self, end: float = END) -> None:
        """Publish, epoch by epoch, and let everything arrive that will."""
        epoch = WARM_UP
        while epoch < end:
            for number in range(PER_EPOCH):
                self.net.run_until(epoch + number * SPACING)
                self._publish(self.publishers[number % PUBLISHERS])
            epoch += EPOCH
            self.net.run_until(epoch)
            self._collect()
        self.net.run_for(COOL_DOWN)
        self._collect()

    def outcome(self, since: float, to: float = math.inf, by: SimNode | None = None) -> Outcome:
        """Of what was published from ``since`` until before ``to``; where given, ``by`` one."""
        counted = {
            message_id
            for message_id, (time, author) in self._sent.items()
            if since <= time < to and (by is None or author == by.peer_id)
        }
        delays = sorted(delay for message_id, delay in self._arrived if message_id in counted)
        return Outcome(len(counted) * (HONEST - 1), tuple(delays))

    def recovery(self, since: float) -> float:
        """From when on the mesh carries messages again: the end of the last epoch, from
        ``since`` on, in which more than 2 % of the deliveries came later than it can explain.
        """
        recovered = epoch = since
        while (outcome := self.outcome(epoch, epoch + EPOCH)).expected:
            epoch += EPOCH
            if outcome.percentile(98) > BY_MESH:
                recovered = epoch
        return recovered

    def _publish(self, author: SimNode) -> None:
        data = len(self._sent).to_bytes(8, "big") * (SIZE // 8)
        sent = self.net.publish(author, TOPIC, data)
        self._sent[sent.message_id] = (self.net.now, author.peer_id)

    def _collect(self) -> None:
        """Note the deliveries and drop their payloads, which would be many."""
        for node in self.honest:
            for delivery in node.delivered.pop(TOPIC, ()):
                published, author = self._sent[delivery.message_id]
                if author != node.peer_id:
                    self._arrived.append((delivery.message_id, delivery.time - published))
