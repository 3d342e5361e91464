"""A producer by hand: a world that answers it with the real functions, in virtual time."""

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from bruit.node.relay.actions import (
    AskHeard,
    Broadcasted,
    BroadcastRefused,
    CheckAcknowledgement,
    Choose,
    Encode,
    ProducerAction,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
    WatchChunks,
)
from bruit.node.relay.directory import peer_of
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    Broadcast,
    Chosen,
    ChunksHeard,
    Encoded,
    MarketplaceChanged,
    MemberUnreachable,
    ProducerEvent,
    Signed,
    TimerFired,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.producer import Producer
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import (
    CheckedChunk,
    address_of_secret,
    check_acknowledgement,
    check_chunk,
    message_id_of,
    sign,
)
from bruit.node.relay.wire import Acknowledgement
from bruit.plugins.hookspecs import Selection
from bruit.plugins.marketplace import Cluster, Marketplace, Member
from bruit.plugins.marketplace import Producer as Registered
from bruit.topics.errors import RemoteError
from bruit.topics.keys import KeyType, PeerId, PrivateKey, peer_id_text

START = 1_700_000_000.25  # Unix time
OUR_SECRET = keccak256(b"producer")
US = address_of_secret(OUR_SECRET)
CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=3, num_chunks=6, max_block=10_000)
MERKLE_CHANNEL = ChannelParams(
    id=8,
    topic="more blocks",
    min_chunks=3,
    num_chunks=6,
    max_block=10_000,
    attesting=Attesting.MERKLE,
)
PARAMS = RelayParams()
A = TypeVar("A")
Heard = dict[int, tuple[PeerId, ...]]


def secret_of(cluster: int, member: int) -> bytes:
    return keccak256(b"member", bytes((cluster, member)))


def member_of(cluster: int, number: int) -> Member:
    seed = keccak256(b"peer", bytes((cluster, number)))
    peer = PrivateKey(KeyType.ED25519, seed).public_key().peer_id()
    address = f"/ip4/127.0.0.1/tcp/4001/p2p/{peer_id_text(peer)}"
    return Member(address_of_secret(secret_of(cluster, number)), (address,))


def marketplace(clusters: int = 4, members: int = 3, stake: int = 1_000_000) -> Marketplace:
    return Marketplace(
        (Registered(US, stake),),
        tuple(
            Cluster(number, number, tuple(member_of(number, each) for each in range(members)))
            for number in range(1, clusters + 1)
        ),
    )


class World:
    """Answers at once, by the real functions; what members do is for ``on_submit`` to say.

    ``on_submit(world, submitted)`` may `World.later` anything. The default acknowledges 50 ms
    later. ``lag``: seconds until an answer, asked for each.
    """

    def __init__(
        self,
        market: Marketplace | None = None,
        *,
        params: RelayParams = PARAMS,
        channels: Sequence[ChannelParams] = (CHANNEL, MERKLE_CHANNEL),
        seed: int = 1,
        attached: Sequence[StakeAttached] = (),
    ) -> None:
        self.now = START
        self.market = market or marketplace()
        self.params = params
        self.channels = {channel.id: channel for channel in channels}
        self.producer = Producer(self.channels, params, US, Random(seed), attached)
        self.log: list[ProducerAction] = []
        self.select: Callable[[Selection], int] = lambda selection: selection.options[0].cluster
        self.on_submit: Callable[[World, SubmitChunk], None] = World.acknowledge_soon
        # Who has which chunk at that time; None: we do not subscribe to the channel.
        self.hear: Callable[[World, AskHeard], Heard | None] = lambda _world, _ask: None
        self.lag: Callable[[ProducerAction], float] = lambda _action: 0.0
        self.ticket = 0
        self._secrets = {
            address_of_secret(secret_of(cluster, member)): (cluster, secret_of(cluster, member))
            for cluster in range(1, 9)
            for member in range(4)
        }
        self._due: list[tuple[float, int, ProducerEvent]] = []
        self._count = 0
        self.tell(MarketplaceChanged(self.market))

    # --- time ---

    def later(self, delay: float, event: ProducerEvent) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + delay, self._count, event))

    def run(self, seconds: float = 60.0) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            at, _, event = heapq.heappop(self._due)
            self.now = max(self.now, at)
            self.tell(event)
        self.now = end

    def tell(self, event: ProducerEvent) -> list[ProducerAction]:
        actions = self.producer.handle(event, self.now)
        self.log += actions
        for action in actions:
            self._carry_out(action)
        return actions

    def _carry_out(self, action: ProducerAction) -> None:
        match action:
            case Encode(ticket, channel, payload):
                chunks = tuple(bytes(c) for c in self.channels[channel].code().encode(payload))
                hashes = tuple(keccak256(chunk) for chunk in chunks)
                self.later(self.lag(action), Encoded(ticket, chunks, hashes))
            case Sign(ticket, digests):
                signatures = tuple(sign(OUR_SECRET, digest) for digest in digests)
                self.later(self.lag(action), Signed(ticket, signatures))
            case Choose(ticket, selections):
                chosen = tuple(self.select(selection) for selection in selections)
                self.later(self.lag(action), Chosen(ticket, chosen))
            case CheckAcknowledgement(ticket, acknowledgement):
                try:
                    signer = check_acknowledgement(acknowledgement)
                except RemoteError:
                    signer = b""
                self.later(self.lag(action), AcknowledgementChecked(ticket, signer))
            case SubmitChunk():
                self.on_submit(self, action)
            case SetTimer(timer, at):
                self.later(max(0.0, at - self.now), TimerFired(timer))
            case AskHeard(ticket):
                heard = self.hear(self, action)
                if heard is not None:
                    self.later(self.lag(action), ChunksHeard(ticket, heard))
            case Broadcasted() | BroadcastRefused() | StakeAttached() | WatchChunks():
                pass

    # --- a producer's application ---

    def broadcast(self, block: bytes = b"a block" * 30, channel: int = CHANNEL.id) -> int:
        self.ticket += 1
        self.tell(Broadcast(self.ticket, channel, message_id_of(block), block))
        return self.ticket

    def of(self, kind: type[A]) -> list[A]:
        return [action for action in self.log if isinstance(action, kind)]

    def proof(self) -> ProofOfBroadcast:
        """Of the only broadcast."""
        (answer,) = self.of(Broadcasted)
        return answer.proof

    def problem(self) -> str:
        """Why the only broadcast was refused."""
        (answer,) = self.of(BroadcastRefused)
        return answer.problem

    # --- members ---

    def checked(self, submitted: SubmitChunk) -> CheckedChunk:
        channel = int.from_bytes(submitted.frame[4:6], "big")
        return check_chunk(submitted.frame, self.channels[channel], witnessed=False)

    def cluster_of(self, member: Member) -> int:
        return self._secrets[member.address][0]

    def acknowledgement(self, submitted: SubmitChunk, at: float | None = None) -> Acknowledgement:
        """The honest one, given ``at``."""
        cluster, secret = self._secrets[submitted.member.address]
        attestation = self.checked(submitted).frame.attestation
        time = max(attestation.timestamp, int(self.now if at is None else at))
        return signed(
            Acknowledgement(attestation.message_id, attestation.chunk, cluster, time, US), secret
        )

    def acknowledge_soon(self, submitted: SubmitChunk) -> None:
        self.answer(submitted, self.acknowledgement(submitted, self.now + 0.05), 0.05)

    def answer(
        self, submitted: SubmitChunk, given: Acknowledgement | bytes, delay: float = 0.05
    ) -> None:
        frame = given if isinstance(given, bytes) else given.encode()
        self.later(delay, AcknowledgementReceived(peer_of(submitted.member), frame))


def signed(acknowledgement: Acknowledgement, secret: bytes) -> Acknowledgement:
    given = acknowledgement
    signature = sign(secret, keccak256(given.signed_part()))
    return Acknowledgement(
        given.message_id, given.chunk, given.cluster, given.timestamp, given.producer, signature
    )


def silent(_world: World, _submitted: SubmitChunk) -> None:
    """A member that never answers."""


def peer_at(cluster: int, number: int) -> PeerId:
    return peer_of(member_of(cluster, number))


def unreachable(world: World, submitted: SubmitChunk) -> None:
    """A member that cannot be reached."""
    world.later(0.01, MemberUnreachable(peer_of(submitted.member)))


def tried(world: World) -> dict[int, list[int]]:
    """Chunk → clusters that it was submitted to, in order."""
    found: dict[int, list[int]] = {}
    for submitted in world.of(SubmitChunk):
        chunk = world.checked(submitted).chunk
        found.setdefault(chunk, []).append(world.cluster_of(submitted.member))
    return found
