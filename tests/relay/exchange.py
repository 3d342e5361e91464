"""The whole relay as its machines: producers, members and consumers, and what is between them.

Everything that is under way is in a list: frames, acknowledgements, answers to costly actions,
timers. What happens next is for a `Schedule` to say: anything may come late, in another order,
twice or never, and a machine may die between any two of its actions. `exchange_oracle.Oracle` sees
all of it.

The topic is an idealised gossip: what is published is under way to every consumer, and what a
consumer accepts it passes on to the others.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random

import msgspec

from bruit.node.relay.actions import (
    AskHeard,
    CheckAcknowledgement,
    CheckChunk,
    Choose,
    Decode,
    Encode,
    JudgeBlock,
    Judged,
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
)
from bruit.node.relay.consumer import Consumer
from bruit.node.relay.directory import peer_of
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    BlockJudged,
    Broadcast,
    Chosen,
    ChunkChecked,
    ChunkGossiped,
    ChunkPassedOn,
    ChunkSeen,
    ChunksHeard,
    ChunkSubmitted,
    Decoded,
    Encoded,
    MarketplaceChanged,
    MemberUnreachable,
    Signed,
    TimerFired,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.member import Member
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.producer import Producer
from bruit.node.relay.signing import (
    CheckedChunk,
    check_acknowledgement,
    check_chunk,
    message_id_of,
    sign,
)
from bruit.node.relay.wire import Acknowledgement
from bruit.plugins.marketplace import Cluster, Marketplace
from bruit.plugins.marketplace import Producer as Registered
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.validation import Verdict
from tests.relay.consuming import judge
from tests.relay.exchange_oracle import Oracle
from tests.relay.handheld_member import address, entry, peer, secret

START = 1_700_000_000.0  # Unix time
AGAIN_AFTER = 2.0  # seconds after which what comes twice comes again
PARAMS = RelayParams(
    cluster_options=2,
    tolerable_latency=5.0,
    refresh_interval=20.0,
    chunk_expiry=4.0,
    acknowledgement_timeout=1.0,
)
THREE = ChannelParams(id=1, topic="three", min_chunks=2, num_chunks=3, max_block=4096)
FIVE = ChannelParams(
    id=2, topic="five", min_chunks=3, num_chunks=5, max_block=4096, attesting=Attesting.MERKLE
)
CHANNELS = {THREE.id: THREE, FIVE.id: FIVE}
COLLIDING = b"good block whose id another one has too"  # see `hash_of`
COLLIDED = b"good block that came first"


def hash_of(block: bytes) -> bytes:
    """Keccak-256, but for one block whose hash begins as that of another: 4 bytes can be ground."""
    if block == COLLIDING:
        return message_id_of(COLLIDED) + keccak256(block)[4:]
    return keccak256(block)


@lru_cache(100_000)
def checked_chunk(frame: bytes, channel: int, witnessed: bool) -> CheckedChunk | str:
    try:
        return check_chunk(frame, CHANNELS[channel], witnessed=witnessed)
    except RemoteError as problem:
        return str(problem)


@lru_cache(100_000)
def signature_of(name: str, digest: bytes) -> bytes:
    return sign(secret(name), digest)


@lru_cache(10_000)
def signer_of(acknowledgement: Acknowledgement) -> bytes:
    try:
        return check_acknowledgement(acknowledgement)
    except RemoteError:
        return b""


class Node:
    """One machine. ``companion``: the consumer that runs beside a member."""

    def __init__(self, name: str, build: Callable[["Node"], Producer | Member | Consumer]) -> None:
        self.name = name
        self.peer: PeerId = peer(name)
        self.address = address(name)
        self.build = build
        self.machine = build(self)
        self.life = 0  # machines before this one
        self.up = True
        self.attached: list[StakeAttached] = []  # on disk
        self.companion: Node | None = None

    def __repr__(self) -> str:
        return f"{self.name}.{self.life}"


class Flight(msgspec.Struct, eq=False):
    """Something under way. ``life``: of the machine that it is for; None where any will do."""

    sender: str
    to: str
    event: object
    life: int | None = None
    at: float = 0.0  # Unix time before which it does not come

    @property
    def local(self) -> bool:
        """Whether it stays inside of a node: such a thing is not lost while the node lives."""
        return self.life is not None


class World:
    """All nodes, and what is under way between them.

    ``members``: names by cluster. ``stake``: of each producer; ``registered``: producers without a
    machine. ``foes``: who may be accused. ``watchers``: consumers of their own; one more runs
    beside the first member.
    """

    def __init__(
        self,
        rng: Random,
        *,
        producers: Sequence[str] = ("alice",),
        members: Sequence[Sequence[str]] = (("m0", "m1"), ("n0",)),
        watchers: Sequence[str] = ("walter",),
        registered: Sequence[str] = (),
        foes: Sequence[str] = (),
        stake: int = 1500,
    ) -> None:
        self.rng = rng
        self.now = START
        self.market = Marketplace(
            tuple(Registered(address(name), stake) for name in (*producers, *registered)),
            tuple(
                Cluster(number, 1, tuple(entry(name) for name in names))
                for number, names in enumerate(members, 10)
            ),
        )
        self.oracle = Oracle(CHANNELS, PARAMS, judge, {address(name) for name in foes})
        self.nodes: dict[str, Node] = {}
        self.under_way: list[Flight] = []
        self.intercept: dict[str, Callable[[Flight], list[Flight]]] = {}  # by sender
        self.carried_out = 0  # actions, of all nodes
        # A selector that may answer anything.
        self.choose: Callable[[list[int]], int] = lambda options: rng.choice([4711, *options])
        # Faults by number, each 0 for none: the action after which its node dies, the frame or
        # acknowledgement that is lost, and the one that comes again.
        self.crash_at = self.lose_at = self.repeat_at = 0
        self.crash_next = 0  # in place of `crash_at`, after the first
        self.crash_loses = False  # also what was sent
        self.sent = 0  # frames and acknowledgements
        self.broadcasts: dict[int, tuple[str, int]] = {}  # ticket → producer and its life
        self._gossips: dict[int, tuple[int, bytes]] = {}  # ticket → channel and frame
        self._tickets = 0
        for name in producers:
            self._add(name, self._producer)
        for names in members:
            for name in names:
                self._add(name, lambda node: Member(CHANNELS, PARAMS, node.address, self._fork()))
        for name in (*watchers, "beside"):
            self._add(name, lambda _: Consumer(CHANNELS, PARAMS, self._fork()))
        self.consumers = [*watchers, "beside"]
        self.nodes[members[0][0]].companion = self.nodes["beside"]

    def _fork(self) -> Random:
        return Random(self.rng.getrandbits(32))

    def _producer(self, node: Node) -> Producer:
        # What `node` kept, where it has lived before.
        kept = getattr(node, "attached", [])
        return Producer(CHANNELS, PARAMS, node.address, self._fork(), kept)

    def _add(self, name: str, build: Callable[[Node], Producer | Member | Consumer]) -> None:
        self.nodes[name] = node = Node(name, build)
        self._begin(node)

    def _begin(self, node: Node) -> None:
        self.oracle.begins(node.name, node.address, isinstance(node.machine, Consumer))
        self._tell(node, MarketplaceChanged(self.market))

    def check(self) -> None:
        """When nothing is under way any more: everything has come to its one end."""
        assert not self.under_way
        self.oracle.check()
        assert not self._gossips, "a frame without a verdict"
        for ticket, (name, life) in self.broadcasts.items():
            answers = self.oracle.answers[ticket]
            assert answers == 1 or (answers == 0 and life < self.nodes[name].life)

    # --- what may happen

    def broadcast(self, name: str, channel: int, block: bytes) -> None:
        node = self.nodes[name]
        if node.up:
            self._tickets += 1
            self.broadcasts[self._tickets] = (name, node.life)
            self.oracle.blocks[channel, hash_of(block)] = block
            self._tell(node, Broadcast(self._tickets, channel, hash_of(block)[:4], block))

    def deliver(self, flight: Flight) -> None:
        """Let something arrive."""
        self.under_way.remove(flight)
        self._arrive(flight)

    def repeat(self, flight: Flight) -> None:
        """Let something arrive and come again."""
        self._arrive(flight)

    def lose(self, flight: Flight) -> None:
        self.under_way.remove(flight)
        if isinstance(flight.event, ChunkSubmitted):
            self.unreachable(flight)

    def unreachable(self, flight: Flight) -> None:
        """A producer hears, perhaps, that what it sent did not go out."""
        if self.rng.random() < 0.5:
            self.send(flight.to, flight.sender, MemberUnreachable(self.nodes[flight.to].peer))

    def crash(self, name: str, *, lose: bool = False) -> None:
        """``lose``: also what it sent."""
        node = self.nodes[name]
        node.up = False
        self.under_way = [
            each
            for each in self.under_way
            if not (each.local and each.to == name) and not (lose and each.sender == name)
        ]

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        node.life += 1
        node.up = True
        node.machine = node.build(node)
        self._begin(node)

    def change(self, market: Marketplace) -> None:
        """Everybody hears of it at once: whose view was which is then beyond doubt."""
        self.market = market
        for node in self.nodes.values():
            if node.up:
                self._tell(node, MarketplaceChanged(market))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def possible(self) -> list[Flight]:
        """What may arrive now."""
        return [each for each in self.under_way if each.at <= self.now]

    def next_at(self) -> float:
        """When the next of what waits may come."""
        return min((each.at for each in self.under_way if each.at > self.now), default=self.now)

    def drain(self) -> None:
        """Let everything come, in order, until nothing is under way, and everybody live again."""
        while self.under_way or self._raise_dead():
            self.go_on()

    def go_on(self) -> None:
        """Let what is due come, or wait until something is."""
        due = self.possible()
        if not due:
            self.now = self.next_at()
        for flight in due:
            if flight in self.under_way:  # unless its node died meanwhile
                self.deliver(flight)

    def _raise_dead(self) -> bool:
        dead = [node.name for node in self.nodes.values() if not node.up]
        for name in dead:
            self.restart(name)
        return bool(dead)

    # --- what follows

    def send(self, sender: str, to: str, event: object) -> None:
        flight = Flight(sender, to, event)
        hook = self.intercept.get(sender)
        flights = hook(flight) if hook is not None else [flight]
        self.sent += 1
        if self.sent == self.lose_at:
            return
        self.under_way += flights
        if self.sent == self.repeat_at:
            self.under_way.append(Flight(sender, to, event, at=self.now + AGAIN_AFTER))

    def gossip(self, sender: str, channel: int, frame: bytes, to: Sequence[str] = ()) -> None:
        for name in to or self.consumers:
            if name != sender:
                self.send(sender, name, ChunkGossiped(0, channel, peer(sender), frame))

    def _arrive(self, flight: Flight) -> None:
        node = self.nodes.get(flight.to)
        if node is None:
            return  # a foe's own
        if not node.up:
            if isinstance(flight.event, ChunkSubmitted):
                self.unreachable(flight)
            return
        if flight.local and flight.life != node.life:
            return
        event = flight.event
        if isinstance(event, ChunkGossiped):
            self._tickets += 1
            self._gossips[self._tickets] = (event.channel, event.frame)
            event = msgspec.structs.replace(event, ticket=self._tickets)
        self._tell(node, event)

    def _tell(self, node: Node, event: object) -> None:
        actions = list(node.machine.handle(event, self.now))  # type: ignore[arg-type]
        self.oracle.saw(node.name, event, actions, self.now)
        for action in actions:
            if not node.up:
                return  # it died before it got to this one
            self._carry_out(node, action)
            if not isinstance(node.machine, Consumer):
                self.carried_out += 1
                if self.carried_out == self.crash_at:
                    self.crash_at = self.crash_next
                    self.crash(node.name, lose=self.crash_loses)

    def _answer(self, node: Node, event: object) -> None:
        self.under_way.append(Flight(node.name, node.name, event, node.life))

    def _carry_out(self, node: Node, action: object) -> None:
        match action:
            case SetTimer(timer, at):
                due = Flight(node.name, node.name, TimerFired(timer), node.life, at)
                self.under_way.append(due)
            case Sign(ticket, digests):
                signatures = tuple(signature_of(node.name, digest) for digest in digests)
                for digest, signature in zip(digests, signatures, strict=True):
                    self.oracle.signed[digest, signature] = node.address
                self._answer(node, Signed(ticket, signatures))
            case CheckChunk(ticket, channel, frame, witnessed):
                found = checked_chunk(frame, channel, witnessed)
                if isinstance(found, str):
                    self._answer(node, ChunkChecked(ticket, None, found))
                else:
                    self._answer(node, ChunkChecked(ticket, found))
            case Judged(ticket, validation):
                channel, frame = self._gossips.pop(ticket)  # fails where it is answered twice
                if validation.verdict is Verdict.ACCEPT:
                    self.gossip(node.name, channel, frame)
            case _:
                self._carry_out_producing(node, action)
                self._carry_out_passing(node, action)
                self._carry_out_consuming(node, action)

    def _carry_out_producing(self, node: Node, action: object) -> None:
        match action:
            case Encode(ticket, channel, payload):
                chunks = tuple(bytes(each) for each in CHANNELS[channel].code().encode(payload))
                hashes = tuple(keccak256(each) for each in chunks)
                self._answer(node, Encoded(ticket, chunks, hashes))
            case Choose(ticket, selections):
                options = ([option.cluster for option in each.options] for each in selections)
                self._answer(node, Chosen(ticket, tuple(map(self.choose, options))))
            case CheckAcknowledgement(ticket, acknowledgement):
                self._answer(node, AcknowledgementChecked(ticket, signer_of(acknowledgement)))
            case StakeAttached():
                node.attached.append(action)
            case SubmitChunk(member, frame):
                self.made(frame)
                self.send(
                    node.name, self.name_of(peer_of(member)), ChunkSubmitted(node.peer, frame)
                )
            case AskHeard(ticket, channel):
                heard: dict[int, tuple[PeerId, ...]] = {
                    chunk: (peer("eve"),)
                    for chunk in range(CHANNELS[channel].num_chunks)
                    if self.rng.random() < 0.8
                }
                self._answer(node, ChunksHeard(ticket, heard))

    def _carry_out_passing(self, node: Node, action: object) -> None:
        match action:
            case SendAcknowledgement(to, frame):
                name = self.name_of(to)
                self.send(node.name, name, AcknowledgementReceived(node.peer, frame))
            case PassOn(members, frame):
                for member in members:
                    event = ChunkPassedOn(node.peer, frame)
                    self.send(node.name, self.name_of(peer_of(member)), event)
            case PublishChunk(channel, frame, checked):
                beside = node.companion
                others = [name for name in self.consumers if self.nodes[name] is not beside]
                self.gossip(node.name, channel, frame, others)
                if beside is not None and beside.up:
                    self._tell(beside, ChunkSeen(checked))

    def _carry_out_consuming(self, node: Node, action: object) -> None:
        match action:
            case Decode(ticket, channel, chunks):
                try:
                    payload = CHANNELS[channel].code().decode(chunks)
                    self._answer(node, Decoded(ticket, payload))
                except RemoteError as problem:
                    self._answer(node, Decoded(ticket, b"", str(problem)))
            case JudgeBlock(ticket, _, payload):
                validation = judge(payload)
                if validation.verdict is Verdict.ACCEPT:
                    digest = hash_of(payload)
                    self._answer(node, BlockJudged(ticket, validation, payload, digest, "chain"))
                else:
                    self._answer(node, BlockJudged(ticket, validation, validator="chain"))

    def made(self, frame: bytes) -> None:
        """Note that a producer has attested a frame, still without a witness."""
        found = checked_chunk(frame, int.from_bytes(frame[4:6], "big"), False)
        assert not isinstance(found, str), found
        self.oracle.made[frame] = found

    def name_of(self, to: PeerId) -> str:
        return next((node.name for node in self.nodes.values() if node.peer == to), "nobody")


class Chances(msgspec.Struct, frozen=True):
    """How often a step is what. What is left goes to arrivals."""

    lose: float = 0.05
    repeat: float = 0.08
    wait: float = 0.03
    crash: float = 0.01
    change: float = 0.005
    broadcast: float = 0.04


USUAL = Chances()


class Schedule:
    """Draws what happens next."""

    def __init__(
        self,
        world: World,
        blocks: Sequence[tuple[str, int, bytes]],
        chances: Chances = USUAL,
    ) -> None:
        self.world = world
        self.rng = world.rng
        self.blocks = list(blocks)  # producer, channel, block
        self.chances = chances
        self._full = world.market

    def some(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def run(self, steps: int) -> None:
        """Then the end of it, without any more faults."""
        for _ in range(steps):
            if not self.world.under_way and not self.blocks:
                break
            self.step()
        self.world.drain()
        for each in self.blocks:
            self.world.broadcast(*each)
        self.world.drain()
        self.world.check()

    def step(self) -> None:
        dice, world, chances = self.rng.random(), self.world, self.chances
        due = world.possible()
        links = [each for each in due if not each.local]
        for chance, act in (
            (chances.crash, self._crash_or_restart),
            (chances.change, self._change),
            (chances.wait, self._wait),
            (chances.broadcast, self._broadcast),
        ):
            dice -= chance
            if dice < 0:
                act()
                return
        dice -= chances.lose
        if dice < 0:
            if links:
                world.lose(self.rng.choice(links))
            return
        dice -= chances.repeat
        if dice < 0:
            if due:
                world.repeat(self.rng.choice(due))
            return
        if due:
            world.deliver(self.rng.choice(due))
        else:
            self._wait()

    def _wait(self) -> None:
        world = self.world
        if self.rng.random() < 0.5:
            world.now = max(world.now, world.next_at())
        else:
            world.wait(self.rng.choice([0.01, 0.1, 0.4, 1.1, 3.0]))

    def _broadcast(self) -> None:
        if self.blocks:
            self.world.broadcast(*self.blocks.pop(0))

    def _mortal(self) -> Iterator[Node]:
        for node in self.world.nodes.values():
            if not isinstance(node.machine, Consumer):
                yield node

    def _crash_or_restart(self) -> None:
        node = self.rng.choice(list(self._mortal()))
        if node.up:
            self.world.crash(node.name, lose=self.rng.random() < 0.5)
        else:
            self.world.restart(node.name)

    def _change(self) -> None:
        """Somebody goes, or all come back."""
        market, rng = self._full, self.rng
        what = rng.randrange(4)
        if what == 1:
            gone = rng.choice(market.producers)
            kept = tuple(each for each in market.producers if each is not gone)
            market = Marketplace(kept, market.clusters)
        elif what == 2:
            cluster = rng.choice(market.clusters)
            gone_member = rng.choice(cluster.members)
            market = Marketplace(
                market.producers,
                tuple(
                    msgspec.structs.replace(
                        each,
                        members=tuple(one for one in each.members if one is not gone_member),
                    )
                    for each in market.clusters
                ),
            )
        elif what == 3:
            poorer = tuple(Registered(each.address, each.stake // 2) for each in market.producers)
            market = Marketplace(poorer, market.clusters)
        self.world.change(market)
