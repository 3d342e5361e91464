"""A cluster's member driven by hand, and frames to hand it: real keys, real signatures.

Two clusters, three producers, and peers that are nobody's.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import TypeVar

import msgspec

from bruit.node.relay.actions import CheckChunk, ChunkDropped, MemberAction, SetTimer, Sign
from bruit.node.relay.events import (
    ChunkChecked,
    ChunkPassedOn,
    ChunkSubmitted,
    MarketplaceChanged,
    MemberEvent,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.member import Member
from bruit.node.relay.merkle import merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.signing import (
    address_of_secret,
    attestation_of,
    check_chunk,
    sign,
)
from bruit.node.relay.wire import ATTESTATION_SIZE, WHOLE, Attested, Frame
from bruit.plugins.marketplace import Cluster, Marketplace, Producer
from bruit.plugins.marketplace import Member as MarketMember
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId, peer_id_text

T0 = 1_700_000_000
PARAMS = RelayParams(tolerable_latency=10.0, refresh_interval=60.0, chunks_per_peer=8)
SINGLE = ChannelParams(id=1, topic="single", min_chunks=2, num_chunks=3, max_block=4096)
ROOTED = ChannelParams(
    id=2, topic="rooted", min_chunks=2, num_chunks=3, max_block=4096, attesting=Attesting.MERKLE
)
CHANNELS = {1: SINGLE, 2: ROOTED}
US = "us"
STAKE = 10_000
COST = 100  # tokens of one chunk of `chunk_of`'s length

Kind = TypeVar("Kind", bound=MemberAction)


@cache
def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@cache
def address(name: str) -> bytes:
    return address_of_secret(secret(name))


def peer(name: str) -> PeerId:
    return b"\x12\x20" + hashlib.sha256(name.encode()).digest()


def entry(name: str) -> MarketMember:
    return MarketMember(address(name), (f"/ip4/127.0.0.1/tcp/4001/p2p/{peer_id_text(peer(name))}",))


def market(
    ours: tuple[str, ...] = (US, "mate", "pal"),
    theirs: tuple[str, ...] = ("rival",),
    stakes: dict[str, int] | None = None,
) -> Marketplace:
    stakes = {"alice": STAKE, "bob": STAKE} if stakes is None else stakes
    return Marketplace(
        producers=tuple(Producer(address(name), stake) for name, stake in stakes.items()),
        clusters=(
            Cluster(10, 1, tuple(entry(name) for name in ours)),
            Cluster(20, 1, tuple(entry(name) for name in theirs)),
        ),
    )


def chunk_of(content: int, index: int) -> bytes:
    return bytes([content, index]) + bytes(17)  # with its attestation's 81: 100 bytes


@cache
def frame(
    producer: str = "alice",
    index: int = 0,
    *,
    message_id: bytes = b"mess",
    timestamp: int = T0,
    offset: int = 0,
    content: int = 0,
    channel: ChannelParams = SINGLE,
    witness: str = "",
) -> bytes:
    """An honest frame; ``offset`` is that of the whole broadcast."""
    chunk, proof = chunk_of(content, index), tuple[bytes, ...]()
    if channel.attesting is Attesting.MERKLE:
        tree = merkle_tree(
            [keccak256(chunk_of(content, each)) for each in range(channel.num_chunks)]
        )
        number, digest, proof = WHOLE, tree[-1][0], merkle_proof(tree, index)
    else:
        number, digest, offset = index, keccak256(chunk), offset + COST * index
    attested = Attested(message_id, channel.id, number, timestamp, len(chunk), offset, digest)
    signature = sign(secret(producer), keccak256(attested.encode()))
    bare = Frame(attestation_of(attested, index, signature), b"", proof, chunk)
    return witnessed(bare.encode(), witness) if witness else bare.encode()


def witnessed(bare: bytes, witness: str) -> bytes:
    signature = sign(secret(witness), keccak256(bare))
    return bare[:ATTESTATION_SIZE] + signature + bare[ATTESTATION_SIZE:]


class HandheldMember:
    """Answers what the member asks, at once or when told to, and keeps what it wants done."""

    def __init__(
        self,
        marketplace: Marketplace | None = None,
        params: RelayParams = PARAMS,
        seed: int = 1,
        *,
        at_once: bool = True,
    ) -> None:
        self.now = float(T0)
        self.at_once = at_once
        self.log: list[MemberAction] = []  # all of them, in order
        self.questions: list[CheckChunk | Sign] = []  # not answered yet
        self._timers: list[SetTimer] = []
        self.member = Member(CHANNELS, params, address(US), Random(seed))
        self.change(market() if marketplace is None else marketplace)

    def change(self, marketplace: Marketplace) -> list[MemberAction]:
        return self.handle(MarketplaceChanged(marketplace))

    def submit(self, data: bytes, sender: str = "gateway") -> list[MemberAction]:
        return self.handle(ChunkSubmitted(peer(sender), data))

    def pass_on(self, data: bytes, sender: str = "mate") -> list[MemberAction]:
        return self.handle(ChunkPassedOn(peer(sender), data))

    def handle(self, event: MemberEvent) -> list[MemberAction]:
        """What came of it, the questions that were answered at once left out."""
        done: list[MemberAction] = []
        for action in self.member.handle(event, self.now):
            match action:
                case CheckChunk() | Sign():
                    self.questions.append(action)
                case SetTimer():
                    self._timers.append(action)
                case _:
                    self.log.append(action)
                    done.append(action)
        while self.at_once and self.questions:
            done += self.answer()
        return done

    def answer(self, at: int = 0) -> list[MemberAction]:
        """Answer one question."""
        question = self.questions.pop(at)
        if isinstance(question, Sign):
            signatures = tuple(sign(secret(US), digest) for digest in question.digests)
            return self.handle(Signed(question.ticket, signatures))
        channel = CHANNELS[question.channel]
        try:
            checked = check_chunk(question.frame, channel, witnessed=question.witnessed)
        except RemoteError as problem:
            return self.handle(ChunkChecked(question.ticket, None, str(problem)))
        return self.handle(ChunkChecked(question.ticket, checked))

    def answer_all(self) -> list[MemberAction]:
        done: list[MemberAction] = []
        while self.questions:
            done += self.answer()
        return done

    def wait(self, seconds: float) -> list[MemberAction]:
        """Let time pass; timers fire when they are due."""
        end, done = self.now + seconds, list[MemberAction]()
        while True:
            due = [timer for timer in self._timers if timer.at <= end]
            if not due:
                break
            first = min(due, key=lambda timer: timer.at)
            self._timers.remove(first)
            self.now = max(self.now, first.at)
            done += self.handle(TimerFired(first.timer))
        self.now = end
        return done

    def fire(self, timer: Timer) -> list[MemberAction]:
        return self.handle(TimerFired(timer))


def of(kind: type[Kind], actions: list[MemberAction]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def log_of(actions: list[MemberAction]) -> bytes:
    """Actions as comparable bytes."""
    return b"\n".join(
        type(action).__name__.encode() + msgspec.json.encode(action) for action in actions
    )


def dropped(actions: Sequence[object]) -> list[tuple[str, bool]]:
    """Reason and blame of each chunk that went nowhere."""
    return [(each.reason, each.blame) for each in actions if isinstance(each, ChunkDropped)]
