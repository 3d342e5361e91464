"""Reports of a relay node, signed as the real ones are."""

from functools import cache

from bruit.node.relay.actions import Broadcasted, DeliverBlock, Dispute, StakeAttached, Witnessed
from bruit.node.relay.directory import Directory
from bruit.node.relay.evidence import Evidence, Exhibit, Kind
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.proof import ChunkReceipt, ProofOfBroadcast
from bruit.node.relay.signing import address_of_secret, attestation_of, check_chunk, sign
from bruit.node.relay.wire import Acknowledgement, Attested, Frame
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer

NOW = 1_800_000_000.25  # Unix time
AT = int(NOW)
PARAMS = RelayParams()
CHANNEL = ChannelParams(id=1, topic="/marlin/test", min_chunks=2, num_chunks=3, max_block=1000)
PRODUCER = bytes(31) + b"\x01"  # secrets
MEMBER = bytes(31) + b"\x02"
OTHER = bytes(31) + b"\x03"
BLOCK = bytes(range(200))
MESSAGE = keccak256(BLOCK)[:4]
CLUSTER = 7
STAKE = 100_000
PEER = "12D3KooWJt1mrDQw6sUC4Xb3J6XN7RmRTj3jWuKHmmEVyS1XNNVV"

MARKETPLACE = Marketplace(
    (Producer(address_of_secret(PRODUCER), STAKE),),
    (
        Cluster(
            CLUSTER,
            3,
            (Member(address_of_secret(MEMBER), (f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}",)),),
        ),
    ),
)
assert Directory(MARKETPLACE).options(MESSAGE, 0, 3) == (CLUSTER,)


@cache
def chunks() -> tuple[bytes, ...]:
    return tuple(map(bytes, CHANNEL.code().encode(BLOCK)))


def attested(chunk: int, offset: int, timestamp: int = AT, message: bytes = MESSAGE) -> Attested:
    data = chunks()[chunk]
    return Attested(message, CHANNEL.id, chunk, timestamp, len(data), offset, keccak256(data))


def signed(claim: Attested, secret: bytes = PRODUCER) -> bytes:
    return sign(secret, keccak256(claim.encode()))


def acknowledgement(chunk: int, secret: bytes = MEMBER) -> Acknowledgement:
    unsigned = Acknowledgement(MESSAGE, chunk, CLUSTER, AT + 1, address_of_secret(PRODUCER))
    signature = sign(secret, keccak256(unsigned.signed_part()))
    return Acknowledgement(MESSAGE, chunk, CLUSTER, AT + 1, unsigned.producer, signature)


def witnessed(chunk: int = 0) -> Witnessed:
    claim = attested(chunk, chunk * 1000)
    attestation = attestation_of(claim, chunk, signed(claim))
    bare = Frame(attestation, b"", (), chunks()[chunk])
    digest = check_chunk(bare.encode(), CHANNEL, witnessed=False).message_hash
    witness = sign(MEMBER, digest)
    frame = Frame(attestation, witness, (), chunks()[chunk]).encode()
    checked = check_chunk(frame, CHANNEL, witnessed=True)
    assert checked.member == address_of_secret(MEMBER)
    return Witnessed(checked, witness, acknowledgement(chunk))


def stake_attached(start: int = 0, end: int = 1000, timestamp: int = AT) -> StakeAttached:
    return StakeAttached(CHANNEL.id, MESSAGE, timestamp, start, end)


def broadcasted(acknowledged: int = 3, by: bytes = MEMBER) -> Broadcasted:
    """The first ``acknowledged`` of three chunks carry an acknowledgement."""
    receipts = []
    for chunk in range(CHANNEL.num_chunks):
        claim = attested(chunk, chunk * 1000)
        received = acknowledgement(chunk, by).encode() if chunk < acknowledged else b""
        receipts.append(ChunkReceipt(chunk, claim.encode(), signed(claim), (CLUSTER,), received))
    proof = ProofOfBroadcast(
        channel=CHANNEL,
        params=PARAMS,
        message_id=MESSAGE,
        producer=address_of_secret(PRODUCER),
        timestamp=AT,
        receipts=tuple(receipts),
    )
    return Broadcasted(1, proof)


def dispute(second_offset: int = 10, reason: str = "one stake behind two messages") -> Dispute:
    """One stake behind two attestations, unless the second stands far behind the first."""
    claims = (attested(0, 0), attested(1, second_offset, AT + 1))
    evidence = Evidence(
        kind=Kind.OVERLAPPING_STAKE,
        reason=reason,
        found_at=NOW,
        channel=CHANNEL,
        params=PARAMS,
        message_id=MESSAGE,
        producers=(address_of_secret(PRODUCER),),
        exhibits=tuple(Exhibit(claim.encode(), signed(claim)) for claim in claims),
    )
    return Dispute(evidence)


def invalid_block(validator: str = "") -> Dispute:
    """Chunks of BLOCK, attested under an id that is not its."""
    exhibits = []
    for chunk in range(CHANNEL.min_chunks):
        claim = attested(chunk, chunk * 1000, message=b"\x00bad")
        signature = signed(claim)
        frame = Frame(attestation_of(claim, chunk, signature), b"", (), chunks()[chunk]).encode()
        exhibits.append(Exhibit(claim.encode(), signature, frame))
    evidence = Evidence(
        kind=Kind.INVALID_BLOCK,
        reason="another block than attested",
        found_at=NOW,
        channel=CHANNEL,
        params=PARAMS,
        message_id=b"\x00bad",
        producers=(address_of_secret(PRODUCER),),
        exhibits=tuple(exhibits),
        validator=validator,
    )
    return Dispute(evidence)


def delivered() -> DeliverBlock:
    return DeliverBlock(
        CHANNEL.id,
        MESSAGE,
        BLOCK,
        keccak256(BLOCK),
        (address_of_secret(PRODUCER), address_of_secret(OTHER)),
        {},
        NOW - 1,
        {CLUSTER: 2, 9: 1},
    )
