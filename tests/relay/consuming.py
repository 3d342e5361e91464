"""A consumer played by hand: producers that sign, a clock that is set, answers in any order."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from bruit.node.relay.actions import (
    BlockUndecided,
    CheckChunk,
    ChunkDropped,
    ConsumerAction,
    Decode,
    DeliverBlock,
    Dispute,
    JudgeBlock,
    Judged,
    SetTimer,
)
from bruit.node.relay.consumer import Consumer
from bruit.node.relay.events import (
    BlockJudged,
    ChunkChecked,
    ChunkGossiped,
    ChunkSeen,
    ConsumerEvent,
    Decoded,
    MarketplaceChanged,
    Timer,
    TimerFired,
)
from bruit.node.relay.evidence import Evidence, Kind
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.signing import (
    CheckedChunk,
    address_of_secret,
    attestation_of,
    check_chunk,
    message_id_of,
    sign,
    stake_of,
)
from bruit.node.relay.wire import WHOLE, Attested, Frame
from bruit.plugins.marketplace import MAX_STAKE, Cluster, Marketplace, Member, Producer
from bruit.topics.errors import RemoteError
from bruit.topics.keys import peer_id_text
from bruit.topics.validation import ACCEPTED, Validation, Verdict, ignore, reject

START = 1_800_000_000.0  # Unix time
CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=2, num_chunks=4, max_block=65_536)
MERKLE = msgspec.structs.replace(CHANNEL, id=8, topic="roots", attesting=Attesting.MERKLE)
CHANNELS = {CHANNEL.id: CHANNEL, MERKLE.id: MERKLE}
PARAMS = RelayParams()
PEER, OTHER_PEER = b"peer", b"other peer"


class Party:
    """Somebody with a key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.secret = keccak256(name.encode())
        self.address = address_of_secret(self.secret)

    def __repr__(self) -> str:
        return self.name


ALICE, BOB, CAROL = (Party(name) for name in ("alice", "bob", "carol"))
MEMBERS = [Party(f"member {number}") for number in range(4)]
STRANGER = Party("stranger")


def market(
    producers: Sequence[Party] = (ALICE, BOB, CAROL),
    members: Sequence[Party] = MEMBERS,
    stake: int = MAX_STAKE,
) -> Marketplace:
    """Two clusters, 0 and 1, between which the members alternate."""
    clusters = []
    for number in range(2):
        chosen = [
            Member(each.address, (f"/ip4/127.0.0.1/tcp/1/p2p/{peer_id_text(_peer(each))}",))
            for each in members[number::2]
        ]
        clusters.append(Cluster(number, 0, tuple(chosen)))
    return Marketplace(tuple(Producer(each.address, stake) for each in producers), tuple(clusters))


def _peer(party: Party) -> bytes:
    return b"\x12\x20" + keccak256(party.address)  # a SHA-256 multihash in form


class Sent(msgspec.Struct):
    """One broadcast as its producer made it."""

    producer: Party
    channel: ChannelParams
    message_id: bytes
    timestamp: int
    block: bytes
    plain: list[Frame]  # of each chunk, without a witness

    def frame(self, chunk: int, witness: Party = MEMBERS[0]) -> bytes:
        return witnessed(self.plain[chunk], witness)

    def checked(self, chunk: int, witness: Party = MEMBERS[0]) -> CheckedChunk:
        return check_chunk(self.frame(chunk, witness), self.channel, witnessed=True)


def witnessed(plain: Frame, witness: Party) -> bytes:
    signature = sign(witness.secret, keccak256(plain.encode()))
    return msgspec.structs.replace(plain, witness=signature).encode()


class Stakes:
    """Offsets that never overlap."""

    def __init__(self) -> None:
        self._next: dict[Party, int] = {}

    def take(self, producer: Party, size: int) -> int:
        offset = self._next.get(producer, 0)
        self._next[producer] = offset + size
        return offset


def send(
    producer: Party,
    block: bytes,
    *,
    at: float = START,
    stakes: Stakes | None = None,
    channel: ChannelParams = CHANNEL,
    message_id: bytes | None = None,
    chunks: Sequence[bytes] | None = None,
    offset: int | None = None,
) -> Sent:
    """Code and attest a block; ``chunks`` instead of what the code gives, ``offset`` of stake."""
    named = message_id_of(block) if message_id is None else message_id
    cut = [bytes(chunk) for chunk in (chunks or channel.code().encode(block))]
    stakes = stakes or Stakes()
    timestamp = int(at)

    def attest(chunk: int, length: int, digest: bytes) -> tuple[Attested, bytes]:
        unplaced = Attested(named, channel.id, chunk, timestamp, length, 0, digest)
        _, size = stake_of(unplaced, channel.num_chunks, PARAMS.stake_per_byte)
        place = stakes.take(producer, size) if offset is None else offset
        attested = msgspec.structs.replace(unplaced, stake_offset=place)
        return attested, sign(producer.secret, keccak256(attested.encode()))

    plain = []
    hashes = [keccak256(chunk) for chunk in cut]
    if channel.attesting is Attesting.MERKLE:
        tree = merkle_tree(hashes)
        attested, signature = attest(WHOLE, len(cut[0]), tree[-1][0])
        for index, chunk in enumerate(cut):
            attestation = attestation_of(attested, index, signature)
            plain.append(Frame(attestation, b"", merkle_proof(tree, index), chunk))
    else:
        for index, chunk in enumerate(cut):
            attested, signature = attest(index, len(chunk), hashes[index])
            plain.append(Frame(attestation_of(attested, index, signature), b"", (), chunk))
    return Sent(producer, channel, named, timestamp, block, plain)


def judge(block: bytes) -> Validation:
    """The chain of these tests: what a block begins with says what it is."""
    if block.startswith(b"bad"):
        return reject("it says so")
    if block.startswith(b"odd"):
        return ignore("the plugin is broken")
    return ACCEPTED


Judge = Callable[[bytes], Validation]


class Desk:
    """Drives one consumer. With ``patient`` answers wait in ``waiting`` until `answer`."""

    def __init__(
        self,
        *,
        patient: bool = False,
        params: RelayParams = PARAMS,
        channels: dict[int, ChannelParams] = CHANNELS,
        judge: Judge = judge,
        marketplace: Marketplace | None = None,
        seed: int = 1,
    ) -> None:
        self.consumer = Consumer(channels, params, Random(seed))
        self.params = params
        self.now = START
        self.patient = patient
        self.judge = judge
        self.waiting: list[CheckChunk | Decode | JudgeBlock] = []
        self.verdicts: dict[int, Validation] = {}
        self.delivered: list[DeliverBlock] = []
        self.disputes: list[Evidence] = []
        self.undecided: list[BlockUndecided] = []
        self.drops: list[ChunkDropped] = []
        self.judgements = 0
        self._channels = channels
        self._tickets = 0
        self._serial = itertools.count()  # timers of one time fire in order
        self._timers: list[tuple[float, int, Timer]] = []
        self.handle(MarketplaceChanged(marketplace or market()))

    def handle(self, event: ConsumerEvent) -> None:
        for action in self.consumer.handle(event, self.now):
            self._act(action)

    def _act(self, action: ConsumerAction) -> None:
        match action:
            case CheckChunk() | Decode() | JudgeBlock():
                self.waiting.append(action)
                if not self.patient:
                    self.answer(len(self.waiting) - 1)
            case Judged(ticket, validation):
                assert ticket not in self.verdicts, "a frame is judged once"
                self.verdicts[ticket] = validation
            case DeliverBlock():
                self.delivered.append(action)
            case Dispute(evidence):
                self.disputes.append(evidence)
            case BlockUndecided():
                self.undecided.append(action)
            case ChunkDropped():
                self.drops.append(action)
            case SetTimer(timer, at):
                heapq.heappush(self._timers, (at, next(self._serial), timer))

    def answer(self, index: int = 0) -> CheckedChunk | None:
        """Carry out a waiting action; the chunk, where one was checked."""
        action = self.waiting.pop(index)
        if isinstance(action, CheckChunk):
            try:
                checked = check_chunk(
                    action.frame, self._channels[action.channel], witnessed=action.witnessed
                )
            except RemoteError as problem:
                self.handle(ChunkChecked(action.ticket, None, str(problem)))
                return None
            self.handle(ChunkChecked(action.ticket, checked))
            return checked
        if isinstance(action, Decode):
            code = self._channels[action.channel].code()
            assert len(action.chunks) == code.min_chunks
            try:
                self.handle(Decoded(action.ticket, code.decode(action.chunks)))
            except RemoteError as problem:
                self.handle(Decoded(action.ticket, b"", str(problem)))
            return None
        self.judgements += 1
        validation = self.judge(action.payload)
        accepted = validation.verdict is Verdict.ACCEPT
        block = action.payload if accepted else b""
        block_hash = keccak256(block) if accepted else b""
        self.handle(BlockJudged(action.ticket, validation, block, block_hash, "chain"))
        return None

    def gossip(self, frame: bytes, peer: bytes = PEER, channel: int = CHANNEL.id) -> int:
        self._tickets += 1
        self.handle(ChunkGossiped(self._tickets, channel, peer, frame))
        return self._tickets

    def verdict(self, frame: bytes, peer: bytes = PEER, channel: int = CHANNEL.id) -> Verdict:
        return self.verdicts[self.gossip(frame, peer, channel)].verdict

    def feed(self, sent: Sent, *chunks: int, witness: Party = MEMBERS[0]) -> list[Verdict]:
        channel = sent.channel.id
        return [self.verdict(sent.frame(each, witness), channel=channel) for each in chunks]

    def see(self, sent: Sent, chunk: int, witness: Party = MEMBERS[0]) -> None:
        self.handle(ChunkSeen(sent.checked(chunk, witness)))

    def wait(self, seconds: float) -> None:
        """Let time pass; every timer fires at its time."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            at, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            self.handle(TimerFired(timer))
        self.now = until

    def finish(self) -> None:
        """Answer everything, and let every time run out."""
        for _ in range(8):
            while self.waiting:
                self.answer()
            self.wait(self.params.chunk_expiry)
        assert not self.waiting
        assert not self._timers

    def idle(self) -> bool:
        """Whether the consumer holds nothing of what went through it."""
        consumer = self.consumer
        gathering = consumer._gathering
        held = (gathering._broadcasts, gathering._pools, gathering._numbered)
        under_way = (consumer._checking, consumer._checking_of, consumer._works)
        remembered = (gathering._of_producer, consumer._delivered, consumer._delivered_ids)
        counts = gathering.bytes + consumer._checking_bytes
        return not any((*held, *under_way, *remembered)) and counts == 0

    def blocks(self) -> list[bytes]:
        return [each.block for each in self.delivered]

    def kinds(self) -> list[Kind]:
        return [each.kind for each in self.disputes]
