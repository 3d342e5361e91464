"""A proof of broadcast can be checked by anybody, and says what it shows and what it does not."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.finding import Finding
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.proof import (
    MAX_PROOF,
    ChunkReceipt,
    ProofOfBroadcast,
    decode_proof,
    encode_proof,
    lacking,
    verify_proof,
)
from bruit.node.relay.wire import decode_acknowledgement
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import LocalError
from tests.relay.producing import (
    CHANNEL,
    MERKLE_CHANNEL,
    World,
    marketplace,
    secret_of,
    signed,
    silent,
)

CHANNELS = [CHANNEL, MERKLE_CHANNEL]
OTHER = keccak256(b"another key")


def whole(channel: ChannelParams = CHANNEL, block: bytes = b"a block" * 30) -> ProofOfBroadcast:
    world = World()
    world.broadcast(block, channel.id)
    world.run()
    return world.proof()


def partial(silenced: int) -> ProofOfBroadcast:
    """Of a broadcast of which the first chunks reached nobody."""
    world = World()
    world.on_submit = lambda w, s: (
        None if w.checked(s).chunk < silenced else World.acknowledge_soon(w, s)
    )
    world.broadcast()
    world.run()
    return world.proof()


def with_receipt(proof: ProofOfBroadcast, index: int, **fields: object) -> ProofOfBroadcast:
    receipts = list(proof.receipts)
    receipts[index] = msgspec.structs.replace(receipts[index], **fields)
    return msgspec.structs.replace(proof, receipts=tuple(receipts))


def text(finding: Finding) -> str:
    return "\n".join(finding.statements)


# --- what a true one says ---------------------------------------------------------


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_whole_proof_holds_with_and_without_a_marketplace(channel: ChannelParams) -> None:
    proof = decode_proof(encode_proof(whole(channel)))
    finding = verify_proof(proof, marketplace())
    assert finding.holds
    assert "6 of 6 chunks carry an acknowledgement: enough" in text(finding)
    assert "by the marketplace, all who signed acknowledgements are members" in text(finding)
    finding = verify_proof(proof, None)
    assert finding.holds
    assert "not checked, for want of a marketplace" in text(finding)


def test_a_partial_proof_says_which_chunks_lack_what_and_where_they_were_sent() -> None:
    proof = partial(2)
    assert lacking(proof) == (0, 1)
    finding = verify_proof(proof, marketplace())
    assert finding.holds
    assert "4 of 6 chunks carry an acknowledgement: enough" in text(finding)
    for chunk in (0, 1):
        tried = ", ".join(str(cluster) for cluster in proof.receipts[chunk].tried)
        assert f"chunk {chunk} lacks an acknowledgement: it was sent to cluster {tried}" in text(
            finding
        )


def test_too_few_acknowledgements_are_called_too_few() -> None:
    finding = verify_proof(partial(4), marketplace())
    assert finding.holds
    assert "2 of 6 chunks carry an acknowledgement: too few" in text(finding)


def test_a_long_list_of_lacking_chunks_is_still_whole() -> None:
    channel = ChannelParams(id=9, topic="t", min_chunks=10, num_chunks=30)
    world = World(channels=[channel])
    world.on_submit = silent
    world.broadcast(channel=9)
    world.run()
    finding = verify_proof(world.proof(), marketplace())
    assert "these chunks lack one as well: 20, 21, 22, 23, 24, 25, 26, 27, 28, 29" in text(finding)
    assert "there is no acknowledgement whose signer" in text(finding)


# --- what a false one says --------------------------------------------------------


def assert_false(proof: ProofOfBroadcast, reason: str, market: Marketplace | None = None) -> None:
    finding = verify_proof(decode_proof(encode_proof(proof)), market)
    assert not finding.holds
    assert reason in text(finding)


@pytest.mark.parametrize("channel", CHANNELS)
def test_another_producer_message_channel_or_time_is_noticed(channel: ChannelParams) -> None:
    proof = whole(channel)
    replace = msgspec.structs.replace
    assert_false(replace(proof, producer=b"\x01" * 20), "is not signed by the producer")
    assert_false(replace(proof, message_id=b"evil"), "has the message id")
    assert_false(replace(proof, timestamp=proof.timestamp + 1), "has the timestamp")
    other = replace(proof.channel, id=3)
    assert_false(replace(proof, channel=other), f"has the channel {channel.id}, not 3")


@given(st.integers(0, 5), st.integers(0, 51), st.integers(1, 255))
def test_no_byte_of_what_was_attested_can_change(index: int, at: int, flip: int) -> None:
    proof = WHOLE_PROOF
    attested = bytearray(proof.receipts[index].attested)
    attested[at] ^= flip
    forged = with_receipt(proof, index, attested=bytes(attested))
    assert not verify_proof(forged, None).holds


@given(st.integers(0, 5), st.integers(0, 96), st.integers(1, 255))
def test_no_byte_of_an_acknowledgement_can_change(index: int, at: int, flip: int) -> None:
    proof = WHOLE_PROOF
    given_ = bytearray(proof.receipts[index].acknowledgement)
    given_[at] ^= flip
    forged = with_receipt(proof, index, acknowledgement=bytes(given_))
    assert not verify_proof(forged, marketplace()).holds


WHOLE_PROOF = whole()


def test_an_attestation_for_another_chunk_is_noticed() -> None:
    first = WHOLE_PROOF.receipts[0]
    forged = with_receipt(WHOLE_PROOF, 1, attested=first.attested, signature=first.signature)
    assert_false(forged, "the attestation of chunk 1 has the chunk id 0, not 1")


def test_merkle_receipts_must_share_one_root() -> None:
    one, other = whole(MERKLE_CHANNEL), whole(MERKLE_CHANNEL, b"another block" * 9)
    stolen = other.receipts[2]
    forged = with_receipt(one, 2, attested=stolen.attested, signature=stolen.signature)
    assert_false(forged, "chunk 2 is attested by another root or signature than chunk 0")


def test_an_acknowledgement_for_another_chunk_is_noticed() -> None:
    stolen = WHOLE_PROOF.receipts[0].acknowledgement
    forged = with_receipt(WHOLE_PROOF, 1, acknowledgement=stolen)
    assert_false(forged, "the acknowledgement of chunk 1 is for chunk 0")


def resigned(proof: ProofOfBroadcast, secret: bytes, **fields: object) -> ProofOfBroadcast:
    """With other fields in the acknowledgement of chunk 0, signed anew."""
    honest = decode_acknowledgement(proof.receipts[0].acknowledgement)
    changed = signed(msgspec.structs.replace(honest, **fields), secret)
    return with_receipt(proof, 0, acknowledgement=changed.encode())


def test_an_acknowledgement_out_of_its_time_is_noticed() -> None:
    cluster = WHOLE_PROOF.receipts[0].tried[0]
    for shift in (-1, 12):
        time = WHOLE_PROOF.timestamp + shift
        forged = resigned(WHOLE_PROOF, secret_of(cluster, 0), timestamp=time)
        assert_false(forged, f"was given at {time}, which is not its time")
    for shift in (0, 11):
        time = WHOLE_PROOF.timestamp + shift
        kept = resigned(WHOLE_PROOF, secret_of(cluster, 0), timestamp=time)
        assert verify_proof(kept, marketplace()).holds


def test_a_cluster_that_never_got_the_chunk_cannot_have_acknowledged_it() -> None:
    cluster = WHOLE_PROOF.receipts[0].tried[0] % 4 + 1
    forged = resigned(WHOLE_PROOF, secret_of(cluster, 0), cluster=cluster)
    assert_false(forged, f"is by cluster {cluster}, which never got it")


def test_who_is_no_member_is_found_out_by_the_marketplace_alone() -> None:
    forged = resigned(WHOLE_PROOF, OTHER)
    assert verify_proof(forged, None).holds
    assert_false(forged, "is not signed by a member of cluster", marketplace())


def test_a_cluster_that_is_no_option_is_found_out_by_the_marketplace() -> None:
    world = World(marketplace(clusters=1))
    world.broadcast()
    world.run()
    proof = world.proof()
    assert verify_proof(proof, world.market).holds
    assert_false(proof, "which is none of its options", marketplace(clusters=8))


def test_a_producer_unknown_or_without_the_stake_is_found_out_by_the_marketplace() -> None:
    clusters = marketplace().clusters
    assert_false(WHOLE_PROOF, "the producer is not in the", Marketplace((), clusters))
    assert_false(WHOLE_PROOF, "but the producer has 100", marketplace(stake=100))


def test_chunks_that_share_stake_are_noticed() -> None:
    costly = msgspec.structs.replace(WHOLE_PROOF, params=RelayParams(stake_per_byte=2))
    assert_false(costly, "the same stake backs two of the chunks")


def test_a_chunk_sent_to_more_clusters_than_allowed_is_noticed() -> None:
    for tried in ((1, 2, 3, 4), (1, 1)):
        forged = with_receipt(WHOLE_PROOF, 0, tried=tried)
        assert_false(forged, "to more clusters than it has options, or to one twice")


def test_of_many_faults_the_rest_is_counted() -> None:
    channel = ChannelParams(id=9, topic="t", min_chunks=10, num_chunks=30)
    world = World(channels=[channel])
    world.on_submit = silent
    world.broadcast(channel=9)
    world.run()
    forged = msgspec.structs.replace(world.proof(), producer=b"\x01" * 20)
    assert_false(forged, "false: 10 statements more")


# --- the file ---------------------------------------------------------------------


def edited(change: Callable[[Any], None]) -> bytes:
    document = json.loads(encode_proof(WHOLE_PROOF))
    change(document)
    return json.dumps(document).encode()


def first_receipt(**fields: object) -> Callable[[Any], None]:
    return lambda document: document["receipts"][0].update(fields)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no proof of broadcast"),
        (b"\xff\xfe", "no proof of broadcast"),
        (b"[]", "Expected `object`"),
        (b"[" * 100_000, "no proof of broadcast"),
        (edited(lambda d: d.pop("producer")), "missing required field `producer`"),
        (edited(lambda d: d.update(more=1)), "unknown field `more`"),
        (edited(lambda d: d.update(producer="AAAA")), "$.producer"),
        (edited(lambda d: d.update(message_id="!!!")), "$.message_id"),
        (edited(lambda d: d.update(timestamp=-1)), "$.timestamp"),
        (edited(lambda d: d.update(timestamp=1 << 32)), "$.timestamp"),
        (edited(lambda d: d["channel"].update(num_chunks=2)), "2 chunks"),
        (edited(lambda d: d["receipts"].pop()), "one receipt for each of the channel's 6"),
        (edited(lambda d: d["receipts"].reverse()), "one receipt for each of the channel's 6"),
        (edited(first_receipt(attested="AAAA")), "$.receipts[0].attested"),
        (edited(first_receipt(signature="AAAA")), "$.receipts[0].signature"),
        (edited(first_receipt(acknowledgement="AAAA")), "acknowledgement of chunk 0 has 3 bytes"),
        (edited(first_receipt(tried=[70_000])), "$.receipts[0].tried"),
        (edited(first_receipt(tried=[1] * 256)), "$.receipts[0].tried"),
        (bytes(MAX_PROOF + 1), "the limit is"),
    ],
)
def test_what_is_no_proof_is_refused_with_its_fault(data: bytes, said: str) -> None:
    with pytest.raises(LocalError) as raised:
        decode_proof(data)
    assert said in str(raised.value)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    with pytest.raises(LocalError):
        decode_proof(data)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_proof_comes_back_from_its_file_as_it_was(channel: ChannelParams) -> None:
    proof = whole(channel)
    assert decode_proof(encode_proof(proof)) == proof


def test_the_largest_proof_fits_its_limit() -> None:
    receipt = ChunkReceipt(65_534, bytes(52), bytes(65), (65_535,) * 3, bytes(97))
    size = len(msgspec.json.format(msgspec.json.encode(receipt), indent=1))
    assert 65_535 * (size + 20 * 3) < MAX_PROOF  # and its lines are indented by two more
