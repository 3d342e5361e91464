"""One broadcast of a producer while it is under way: what is attested, and where each chunk is."""

import msgspec

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_depth, merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.proof import ChunkReceipt, ProofOfBroadcast
from bruit.node.relay.signing import attestation_of
from bruit.node.relay.wire import ATTESTATION_SIZE, HASH_SIZE, WHOLE, Attested, Frame
from bruit.topics.keys import PeerId


def stake_needed(contents: tuple[bytes, ...], per_byte: int) -> int:
    """Tokens behind chunks: each covers its bytes and its attestation's."""
    return sum(len(content) + ATTESTATION_SIZE for content in contents) * per_byte


class Sent(msgspec.Struct, frozen=True):
    """A chunk has gone to a member."""

    cluster: int
    member: bytes  # 20-byte id
    at: float  # Unix time, seconds


class ChunkUnderWay:
    """One chunk. It is chosen for, queued for a cluster or with a member, and in the end done."""

    __slots__ = (
        "acknowledgement",
        "attested",
        "checked",
        "frame",
        "given_up",
        "index",
        "peer",
        "queued_for",
        "sent",
        "signature",
        "timer",
    )

    def __init__(self, index: int, attested: Attested, signature: bytes, frame: bytes) -> None:
        self.index = index
        self.attested = attested
        self.signature = signature  # 65 bytes
        self.frame = frame
        self.sent: dict[PeerId, Sent] = {}  # in the order of sending
        self.checked: dict[PeerId, None] = {}  # whose acknowledgement has been looked into
        self.peer: PeerId | None = None  # whose acknowledgement is awaited
        self.timer = 0  # which ends that wait
        self.queued_for: int | None = None  # cluster all of whose members have their fill
        self.acknowledgement = b""
        self.given_up = False

    @property
    def done(self) -> bool:
        return self.given_up or bool(self.acknowledgement)

    def tried(self) -> tuple[int, ...]:
        """Clusters that it was sent to, in order."""
        return tuple(dict.fromkeys(sent.cluster for sent in self.sent.values()))

    def members_tried(self, cluster: int) -> int:
        return sum(sent.cluster == cluster for sent in self.sent.values())


class BroadcastUnderWay:
    """A broadcast from the command to its answer."""

    def __init__(self, number: int, ticket: int, channel: ChannelParams, message_id: bytes) -> None:
        self.number = number  # the producer's own, never used again
        self.ticket = ticket  # the command's
        self.channel = channel
        self.message_id = message_id
        self.timestamp = 0  # Unix time of the attestations, seconds
        self.deadline = 0.0  # Unix time from which on its chunks are replays
        self.heard_at = 0.0  # Unix time of the last acknowledgement that counted
        self.signatures: tuple[bytes, ...] = ()
        self.clusters: dict[int, int] = {}  # chosen at first, by chunk
        self.chunks: list[ChunkUnderWay] = []  # empty until they are sent
        self.open = 0  # chunks that are not done
        self.timers: dict[int, None] = {}
        self.frame_sizes: list[int] = []  # bytes on the wire, by chunk
        self._contents: tuple[bytes, ...] = ()
        self._attested: list[Attested] = []
        self._tree: list[list[bytes]] = []  # Merkle tree over the chunks, where that is signed

    def attest(
        self, contents: tuple[bytes, ...], hashes: tuple[bytes, ...], start: int, per_byte: int
    ) -> tuple[bytes, ...]:
        """Lay the stake out from ``start`` on, and say which digests to sign."""
        self._contents = contents
        proof_size = 0
        if self.channel.attesting is Attesting.MERKLE:
            proof_size = merkle_depth(len(contents)) * HASH_SIZE
            self._tree = merkle_tree(hashes)
            self._attested = [self._attest(WHOLE, len(contents[0]), start, self._tree[-1][0])]
        else:
            for index, content in enumerate(contents):
                self._attested.append(self._attest(index, len(content), start, hashes[index]))
                start += stake_needed((content,), per_byte)
        self.frame_sizes = [ATTESTATION_SIZE + proof_size + len(content) for content in contents]
        return tuple(keccak256(attested.encode()) for attested in self._attested)

    def _attest(self, chunk: int, length: int, offset: int, chunk_hash: bytes) -> Attested:
        return Attested(
            self.message_id, self.channel.id, chunk, self.timestamp, length, offset, chunk_hash
        )

    def start(self) -> None:
        """Make the frames: signed, and free to go."""
        for index, content in enumerate(self._contents):
            which = 0 if self._tree else index
            attested, signature = self._attested[which], self.signatures[which]
            attestation = attestation_of(attested, index, signature)
            proof = merkle_proof(self._tree, index) if self._tree else ()
            frame = Frame(attestation, b"", proof, content).encode()
            self.chunks.append(ChunkUnderWay(index, attested, signature, frame))
        self.open = len(self.chunks)
        self._contents = ()

    def proof(self, producer: bytes, params: RelayParams) -> ProofOfBroadcast:
        """What has come of it."""
        return ProofOfBroadcast(
            channel=self.channel,
            params=params,
            message_id=self.message_id,
            producer=producer,
            timestamp=self.timestamp,
            receipts=tuple(
                ChunkReceipt(
                    chunk.index,
                    chunk.attested.encode(),
                    chunk.signature,
                    chunk.tried(),
                    chunk.acknowledgement,
                )
                for chunk in self.chunks
            ),
        )
