"""The relay in virtual time: its machines on simulated nodes, with all that they ask for.

`RelayNetwork` is the entry::

    net = SimNetwork(seed=7)
    relay = RelayNetwork(net, [ChannelParams(id=7, topic="blocks")])
    [producer] = relay.add(1, producer=True)
    clusters = {number: (1, relay.add(3, member=True)) for number in range(4)}
    consumers = relay.add(20)
    net.connect_all(topologies.sparse_random(33, 6, net.rng))
    relay.open({producer: 10_000_000}, clusters)
    net.run_for(2.0)
    ticket = producer.broadcast(7, block)
    net.run_for(5.0)
    assert all(host.deliveries for host in consumers)

Chunks travel as they do in the real node: submitted, passed on and acknowledged over direct
frames, spread over the channel's gossip topic, which is announced. Unix time is `EPOCH` at the
beginning. A node's clock is always right, and all hear of a marketplace within a second.
"""

import functools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol, assert_never

import msgspec

from bruit.node.gossip.actions import Validate
from bruit.node.gossip.events import Validated
from bruit.node.gossip.params import Announced, RouterConfig, TopicParams
from bruit.node.relay.actions import (
    AskHeard,
    BlockUndecided,
    Broadcasted,
    BroadcastRefused,
    CheckAcknowledgement,
    CheckChunk,
    Choose,
    ChunkDropped,
    ConsumerAction,
    Decode,
    DeliverBlock,
    Dispute,
    Encode,
    JudgeBlock,
    Judged,
    MemberAction,
    PassOn,
    ProducerAction,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
    WatchChunks,
    Witnessed,
)
from bruit.node.relay.consumer import Consumer
from bruit.node.relay.directory import Directory, peer_of
from bruit.node.relay.events import (
    AcknowledgementReceived,
    Broadcast,
    Chosen,
    ChunkGossiped,
    ChunkPassedOn,
    ChunkSeen,
    ChunksHeard,
    ChunkSubmitted,
    MarketplaceChanged,
    MembersScored,
    MemberUnreachable,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.evidence import Evidence
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.member import Member
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.producer import Producer
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import address_of_secret, message_id_of, sign
from bruit.node.relay.wants import ChunkWants, chunk_name, group_of
from bruit.node.sim.network import SimNetwork
from bruit.node.sim.nodes import SimNode
from bruit.node.sim.relay_work import BlockJudge, Prices, Work, accept_all
from bruit.plugins.hookspecs import Selection
from bruit.plugins.marketplace import Cluster, Marketplace
from bruit.plugins.marketplace import Member as MarketMember
from bruit.plugins.marketplace import Producer as MarketProducer
from bruit.scoring.seam import NeutralScores, Scores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, peer_id_text

EPOCH = 1_800_000_000.0  # Unix time at which simulations begin, seconds
SUBMIT = "/bruit/marlin/submit/1.0.0"  # as `bruit.node.net.relay.protocols`
RECEIPT = SUBMIT + "#receipt"  # what comes back on the same stream
PASS_ON = "/bruit/marlin/pass/1.0.0"
SCORES_INTERVAL = 5.0  # seconds between readings of peer scores; as `bruit.node.relaying`
MARKETPLACE_SPREAD = 1.0  # seconds within which all hear of a marketplace; the same
TOPIC_OVERHEAD = 4096  # bytes that a message has beside its chunk, at most; guess

Selector = Callable[[Selection, Random], int]
RelayAction = ProducerAction | MemberAction | ConsumerAction


class RelayMachine(Protocol):
    """A producer, member or consumer, or what stands in the place of one."""

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]: ...


class Delivered(msgspec.Struct, frozen=True):
    """A block that a consumer handed to its application."""

    time: float  # seconds of virtual time
    action: DeliverBlock


class RelayHost:
    """One node of the relay. Its attributes say what happened to it.

    ``deliveries``, ``disputes`` (evidence with its time), ``outcomes`` (the answer to each
    broadcast, by ticket, with its time), ``witnessed`` (chunks), ``dropped`` (chunks, by reason),
    ``blamed`` (faults by peer), ``undecided`` (blocks). A member's blame is counted and has no
    consequence here; a consumer's goes into the mesh's peer scores.
    """

    def __init__(
        self, relay: "RelayNetwork", node: SimNode, secret: bytes, scores: Scores, select: Selector
    ) -> None:
        self.node = node
        self.address = address_of_secret(secret)  # 20-byte id
        self.secret = secret
        self.scores = scores
        self.deliveries: list[Delivered] = []
        self.disputes: list[tuple[float, Evidence]] = []
        self.outcomes: dict[int, tuple[float, Broadcasted | BroadcastRefused]] = {}
        self.witnessed = 0
        self.published = 0
        self.dropped: Counter[str] = Counter()
        self.blamed: Counter[PeerId] = Counter()
        self.undecided: list[BlockUndecided] = []
        self.producer: RelayMachine | None = None
        self.member: RelayMachine | None = None
        self.consumer: RelayMachine | None = None
        self.wants: Mapping[int, ChunkWants] = {}  # of channels that are subscribed and announced
        self._relay = relay
        self._net = relay.net
        self._select = select
        self._dice = Random(f"{relay.seed}/selector/{node.name}")
        self._directory = Directory(Marketplace())
        self._events: deque[tuple[RelayMachine, object]] = deque()
        self._feeding = False
        self._busy_until = 0.0  # seconds of virtual time: the processor's
        self._last_ticket = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node.name}>"

    @property
    def _machines(self) -> list[RelayMachine]:
        every = (self.producer, self.member, self.consumer)
        return [each for each in every if each is not None]

    # Commands

    def broadcast(self, channel: int, block: bytes) -> int:
        """Send a block; its ticket, under which `outcomes` will have the answer."""
        if self.producer is None:
            raise LocalError(f"{self.node.name} is no producer")
        self._last_ticket += 1
        event = Broadcast(self._last_ticket, channel, message_id_of(block), block)
        self.feed(self.producer, event)
        return self._last_ticket

    def proof(self, ticket: int) -> ProofOfBroadcast:
        """Of a broadcast that has ended. Raises LocalError for another."""
        _, outcome = self.outcomes.get(ticket, (0.0, None))
        if not isinstance(outcome, Broadcasted):
            raise LocalError(f"broadcast {ticket} of {self.node.name}: {outcome}")
        return outcome.proof

    def look_at_marketplace(self, _: None, __: None) -> None:
        """It may have changed: the machines hear of it as it is now."""
        marketplace = self._relay.marketplace
        if marketplace is not self._directory.marketplace:
            self._directory = Directory(marketplace)
            for machine in self._machines:
                self.feed(machine, MarketplaceChanged(marketplace))

    def tell_scores(self, machine: RelayMachine, _: None) -> None:
        """What the mesh thinks of the members that are connected, for the producer."""
        scores = tuple(
            (member, self.scores.score(peer, self._net.now))
            for peer in self.node.peers()
            if (member := self._directory.member_at(peer)) is not None
        )
        if scores:
            self.feed(machine, MembersScored(scores))
        self._net.at(self._net.now + SCORES_INTERVAL, self.tell_scores, machine, None)

    # What comes from the network

    def on_frame(self, peer: PeerId, protocol: str, frame: bytes) -> None:
        """`DirectHandler`."""
        if protocol == RECEIPT:
            if self.producer is not None:
                self.feed(self.producer, AcknowledgementReceived(peer, frame))
        elif self.member is not None:
            submitted = protocol == SUBMIT
            event = ChunkSubmitted(peer, frame) if submitted else ChunkPassedOn(peer, frame)
            self.feed(self.member, event)

    def on_lost(self, peer: PeerId, protocol: str) -> None:
        """`DirectHandler`."""
        if protocol == SUBMIT and self.producer is not None:
            self.feed(self.producer, MemberUnreachable(peer))

    def entrust(self, action: Validate) -> None:
        """A message of a channel's topic is to be judged: not now, an event is under way."""
        self._net.at(self._net.now, self._gossip, action, None)

    def _gossip(self, action: Validate, _: None) -> None:
        if self.consumer is not None:
            channel, frame = self._relay.numbers[action.message.topic], action.message.data
            self.feed(self.consumer, ChunkGossiped(action.ticket, channel, action.source, frame))

    # Events to actions

    def feed(self, machine: RelayMachine, event: object) -> None:
        """Hand an event to a machine and carry out all that follows, in order."""
        if not self.node.up:
            return
        self._events.append((machine, event))
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                machine, event = self._events.popleft()
                for action in machine.handle(event, EPOCH + self._net.now):
                    self._net.log(self.node, action)
                    self._carry_out(action, machine)
        finally:
            self._feeding = False

    def _carry_out(self, action: RelayAction, machine: RelayMachine) -> None:  # noqa: C901, a dispatch
        net, work, prices = self._net, self._relay.work, self._relay.prices
        match action:
            case CheckChunk():
                self._do(machine, prices.check, work.check, action)
            case Sign(digests=digests):
                self._do(machine, prices.sign * len(digests), self._sign, action)
            case CheckAcknowledgement():
                self._do(machine, prices.receipt, work.check_receipt, action)
            case Encode():
                self._do(machine, prices.encode, work.encode, action)
            case Decode():
                self._do(machine, prices.decode, work.decode, action)
            case JudgeBlock():
                self._do(machine, prices.judge, work.judge, action)
            case Choose():
                self._do(machine, 0.0, self._choose, action)
            case SetTimer(timer, at):
                net.at(at - EPOCH, self._fire, machine, timer)
            case SubmitChunk(member, frame):
                if not self._send(peer_of(member), SUBMIT, frame):
                    self._events.append((machine, MemberUnreachable(peer_of(member))))
            case PassOn(members, frame):
                for member in members:
                    self._send(peer_of(member), PASS_ON, frame)
            case SendAcknowledgement(peer, frame):
                self._send(peer, RECEIPT, frame)
            case PublishChunk(channel, frame, checked):
                outcome = net.publish(self.node, self._relay.channels[channel].topic, frame)
                self.published += not outcome.problem
                if self.consumer is not None:
                    self._events.append((self.consumer, ChunkSeen(checked)))
            case Judged(ticket, validation):
                # Without the frame: what the topic's application wants of it, the consumer has.
                net.hand_in(self.node, Validated(ticket, validation))
            case Broadcasted(ticket=ticket) | BroadcastRefused(ticket=ticket):
                self.outcomes[ticket] = (net.now, action)
            case Witnessed():
                self.witnessed += 1
            case Dispute(evidence):
                self.disputes.append((net.now, evidence))
            case DeliverBlock():
                self.deliveries.append(Delivered(net.now, action))
            case BlockUndecided():
                self.undecided.append(action)
            case ChunkDropped(peer, _, reason, blame):
                self.dropped[reason] += 1
                self.blamed[peer] += blame
            case WatchChunks(channel, message_id, timestamp, chunks):
                if channel in self.wants:
                    self.wants[channel].watch(group_of(message_id, timestamp), chunks)
            case AskHeard(ticket, channel, message_id, timestamp):
                if channel in self.wants:
                    heard = self.wants[channel].heard(group_of(message_id, timestamp))
                    self._events.append((machine, ChunksHeard(ticket, heard)))
            case StakeAttached():
                pass  # there are no restarts
            case _:
                assert_never(action)

    def _send(self, peer: PeerId, protocol: str, frame: bytes) -> bool:
        return self._net.send_direct(self.node, peer, protocol, frame)

    def _fire(self, machine: RelayMachine, timer: Timer) -> None:
        self.feed(machine, TimerFired(timer))

    def _do(
        self, machine: RelayMachine, price: float, function: Callable[[Any], object], action: object
    ) -> None:
        """Have ``function(action)`` made when the processor is free, and fed to ``machine``."""
        if not price:
            self._events.append((machine, function(action)))
            return
        self._busy_until = max(self._net.now, self._busy_until) + price
        self._net.at(self._busy_until, self._done, (machine, function), action)

    def _done(self, subject: tuple[RelayMachine, Callable[[Any], object]], action: object) -> None:
        machine, function = subject
        if self.node.up:
            self.feed(machine, function(action))

    def _sign(self, action: Sign) -> Signed:
        signatures = tuple(sign(self.secret, digest) for digest in action.digests)
        return Signed(action.ticket, signatures)

    def _choose(self, action: Choose) -> Chosen:
        chosen = tuple(self._select(each, self._dice) for each in action.selections)
        return Chosen(action.ticket, chosen)


def any_option(selection: Selection, rng: Random) -> int:
    """The selector that hosts have by default."""
    return rng.choice(selection.options).cluster


class RelayNetwork:
    """The relay on a network: what its hosts share, and the hosts.

    ``config`` is the gossip router's, to which the channels' topics are added; ``announced`` says
    how these are told of (its wants are each consumer's own), None pushes chunks instead.
    ``seed`` decides keys and dice, beside those of the network.
    """

    def __init__(
        self,
        net: SimNetwork,
        channels: Sequence[ChannelParams],
        params: RelayParams | None = None,
        *,
        seed: int = 0,
        judge: BlockJudge = accept_all,
        prices: Prices | None = None,
        config: RouterConfig | None = None,
        scores: Callable[[], Scores] = NeutralScores,
        thresholds: Thresholds | None = None,
        announced: Announced | None = Announced(),  # noqa: B008, immutable
    ) -> None:
        self.net = net
        self.seed = seed
        self.channels = {channel.id: channel for channel in channels}
        self.numbers = {channel.topic: channel.id for channel in channels}
        self.params = params or RelayParams()
        self.prices = prices or Prices()
        self.work = Work(self.channels, judge)
        self.hosts: list[RelayHost] = []
        self.marketplace = Marketplace()
        self._config = config or RouterConfig()
        self._make_scores = scores
        self._thresholds = thresholds
        self._announced = announced
        self._dice = Random(f"{seed}/relay")

    def add(
        self,
        count: int,
        *,
        producer: bool = False,
        member: bool = False,
        consumer: bool = True,
        select: Selector = any_option,
        faulty: Callable[[Member], RelayMachine] | None = None,
    ) -> list[RelayHost]:
        """Start ``count`` nodes, now, with these roles. Consumers subscribe to all channels.

        ``faulty`` puts another machine in the place of each member (`relay_faults`).
        """
        added = []
        for _ in range(count):
            wants = {
                channel.id: ChunkWants(channel.min_chunks)
                for channel in self.channels.values()
                if consumer and self._announced is not None
            }
            topics = {**self._config.topics, **self._topics(consumer, wants)}
            config = msgspec.structs.replace(self._config, topics=topics)
            scores = self._make_scores()
            [node] = self.net.add_nodes(
                1,
                config=config,
                scores=functools.partial(_itself, scores),
                thresholds=self._thresholds,
            )
            secret = keccak256(f"{self.seed}/relay key/{node.name}".encode())
            host = RelayHost(self, node, secret, scores, select)
            node.direct = host
            self.hosts.append(host)
            added.append(host)
            arguments = self.channels, self.params
            if producer:
                host.producer = Producer(*arguments, host.address, self._rng(node, "producer"))
                self.net.at(self.net.now, host.tell_scores, host.producer, None)
            if member:
                honest = Member(*arguments, host.address, self._rng(node, "member"))
                host.member = honest if faulty is None else faulty(honest)
            if consumer:
                host.wants = wants
                host.consumer = Consumer(*arguments, self._rng(node, "consumer"), wants)
                for channel in self.channels.values():
                    node.entrust(channel.topic, host.entrust)
                    self.net.subscribe(node, channel.topic)
            host.look_at_marketplace(None, None)
        return added

    def _topics(self, consumer: bool, wants: Mapping[int, ChunkWants]) -> dict[str, TopicParams]:
        announced = self._announced
        return {
            channel.topic: TopicParams(
                message_id=chunk_name,
                max_message_size=channel.max_chunk() + TOPIC_OVERHEAD,
                validated=consumer,
                announced=None
                if announced is None
                else msgspec.structs.replace(announced, wants=wants.get(channel.id)),
            )
            for channel in self.channels.values()
        }

    def _rng(self, node: SimNode, name: str) -> Random:
        return Random(f"{self.seed}/{name}/{node.name}")

    def open(
        self,
        producers: Mapping[RelayHost, int],
        clusters: Mapping[int, tuple[int, Sequence[RelayHost]]],
    ) -> None:
        """A marketplace from now on: stakes of producers, and price and members of clusters."""
        marketplace = Marketplace(
            tuple(MarketProducer(host.address, stake) for host, stake in producers.items()),
            tuple(
                Cluster(number, price, tuple(_member(host) for host in members))
                for number, (price, members) in clusters.items()
            ),
        )
        self.change(marketplace)

    def change(self, marketplace: Marketplace) -> None:
        """Another marketplace: each node hears of it within `MARKETPLACE_SPREAD`."""
        self.marketplace = marketplace
        for host in self.hosts:
            at = self.net.now + self._dice.random() * MARKETPLACE_SPREAD
            self.net.at(at, host.look_at_marketplace, None, None)


def _itself(scores: Scores) -> Scores:
    return scores


def _member(host: RelayHost) -> MarketMember:
    address = f"{host.node.address}/p2p/{peer_id_text(host.node.peer_id)}"
    return MarketMember(host.address, (address,))
