"""The layouts of the document's tables, byte for byte, and decoders that take nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.wire import (
    Acknowledgement,
    Attestation,
    Attested,
    Frame,
    channel_of,
    decode_acknowledgement,
    decode_attestation,
    decode_attested,
    decode_frame,
)
from bruit.topics.errors import RemoteError
from tests.relay import vectors

VECTORS: dict[str, Any] = json.loads(vectors.FILE.read_text(encoding="utf-8"))

# Bytes of each field, in order, as the document's tables give them (Marlin, §Attestation,
# §Acknowledgement); of the acknowledgement, bytes too.
ATTESTATION = {
    "message_id": 4,
    "channel": 2,
    "chunk": 2,
    "timestamp": 4,
    "stake_offset": 4,
    "signature": 65,
}
ATTESTED = {
    "message_id": 4,
    "channel": 2,
    "chunk": 2,
    "timestamp": 4,
    "chunk_length": 4,
    "stake_offset": 4,
    "chunk_hash": 32,
}
ACKNOWLEDGEMENT = {
    "message_id": 4,
    "chunk": 2,
    "cluster": 2,
    "timestamp": 4,
    "producer": 20,
    "signature": 65,
}
BYTES = ("message_id", "chunk_hash", "producer", "signature")


def values(layout: dict[str, int]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            name: st.binary(min_size=size, max_size=size)
            if name in BYTES
            else st.integers(0, 256**size - 1)
            for name, size in layout.items()
        }
    )


def laid_out(layout: dict[str, int], fields: dict[str, Any]) -> bytes:
    return b"".join(
        fields[name] if name in BYTES else fields[name].to_bytes(size, "big")
        for name, size in layout.items()
    )


def test_the_vectors_in_the_file_are_those_of_the_slow_path() -> None:
    again = "run: python -m tests.relay.vectors"
    assert vectors.FILE.read_text(encoding="utf-8") == vectors.as_text(), again


def test_the_structures_have_the_sizes_of_the_tables() -> None:
    sizes = [sum(layout.values()) for layout in (ATTESTATION, ATTESTED, ACKNOWLEDGEMENT)]
    assert sizes == [81, 52, 97]


@given(values(ATTESTATION))
def test_an_attestation_is_its_fields_in_order(fields: dict[str, Any]) -> None:
    data = Attestation(**fields).encode()
    assert data == laid_out(ATTESTATION, fields)
    assert decode_attestation(data) == decode_attestation(memoryview(data)) == Attestation(**fields)


@given(values(ATTESTED))
def test_what_is_attested_is_its_fields_in_order(fields: dict[str, Any]) -> None:
    data = Attested(**fields).encode()
    assert data == laid_out(ATTESTED, fields)
    assert decode_attested(data) == Attested(**fields)


@given(values(ACKNOWLEDGEMENT))
def test_an_acknowledgement_is_its_fields_in_order(fields: dict[str, Any]) -> None:
    acknowledgement = Acknowledgement(**fields)
    data = acknowledgement.encode()
    assert data == laid_out(ACKNOWLEDGEMENT, fields)
    assert acknowledgement.signed_part() == data[:32]
    assert decode_acknowledgement(data) == decode_acknowledgement(memoryview(data))
    assert decode_acknowledgement(data) == acknowledgement


@given(values(ATTESTATION), st.integers(1, 1 << 32), st.binary(min_size=32, max_size=32))
def test_what_was_attested_follows_from_the_wire_and_the_chunk(
    fields: dict[str, Any], length: int, chunk_hash: bytes
) -> None:
    attested = Attestation(**fields).attested(length, chunk_hash)
    expected = {**fields, "chunk_length": length, "chunk_hash": chunk_hash}
    del expected["signature"]
    assert attested == Attested(**expected)


@pytest.mark.parametrize("size", [81, 52, 97])
@given(st.binary(max_size=200))
def test_decoders_take_any_bytes_of_their_length_and_no_others(size: int, data: bytes) -> None:
    decode: Any = {81: decode_attestation, 52: decode_attested, 97: decode_acknowledgement}[size]
    right = (data + bytes(size))[:size]
    assert decode(right).encode() == right
    for wrong in (data, right[:-1], right + b"\0"):
        if len(wrong) != size:
            with pytest.raises(RemoteError, match=f"{len(wrong)} bytes"):
                decode(wrong)


@given(
    values(ATTESTATION),
    st.sampled_from([b"", bytes(range(65))]),
    st.lists(st.binary(min_size=32, max_size=32), max_size=5),
    st.binary(min_size=1, max_size=50),
)
def test_a_frame_is_attestation_witness_proof_and_chunk(
    fields: dict[str, Any], witness: bytes, proof: list[bytes], chunk: bytes
) -> None:
    frame = Frame(Attestation(**fields), witness, tuple(proof), chunk)
    data = frame.encode()
    assert data == laid_out(ATTESTATION, fields) + witness + b"".join(proof) + chunk
    found = decode_frame(data, witnessed=bool(witness), depth=len(proof), max_chunk=len(chunk))
    assert found == frame
    assert channel_of(data) == fields["channel"]


@pytest.mark.parametrize("witnessed", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 6])
def test_a_frame_holds_a_chunk_of_one_byte_to_the_longest_allowed(
    witnessed: bool, depth: int
) -> None:
    head = 81 + 65 * witnessed + 32 * depth
    for size in range(head + 14):
        if head < size <= head + 10:
            frame = decode_frame(bytes(size), witnessed=witnessed, depth=depth, max_chunk=10)
            assert len(frame.chunk) == size - head
        else:
            with pytest.raises(RemoteError, match=f"{size} bytes: this channel has {head + 1} to"):
                decode_frame(bytes(size), witnessed=witnessed, depth=depth, max_chunk=10)


@given(st.binary(max_size=400), st.booleans(), st.integers(0, 16), st.integers(1, 400))
def test_any_bytes_are_a_frame_that_encodes_to_themselves_or_are_refused(
    data: bytes, witnessed: bool, depth: int, max_chunk: int
) -> None:
    try:
        frame = decode_frame(data, witnessed=witnessed, depth=depth, max_chunk=max_chunk)
    except RemoteError:
        return
    assert frame.encode() == data
    assert 1 <= len(frame.chunk) <= max_chunk
    assert len(frame.proof) == depth
    assert len(frame.witness) == 65 * witnessed


@given(st.binary(max_size=100))
def test_the_channel_stands_at_the_fifth_byte_of_whatever_holds_an_attestation(data: bytes) -> None:
    if len(data) < 81:
        with pytest.raises(RemoteError, match="holds no attestation"):
            channel_of(data)
    else:
        assert channel_of(data) == data[4] * 256 + data[5]


@pytest.mark.parametrize("vector", VECTORS["attestations"])
def test_vectors_of_attestations_and_frames(vector: dict[str, Any]) -> None:
    found = decode_attestation(bytes.fromhex(vector["wire"]))
    for name in ("channel", "chunk", "timestamp", "stake_offset"):
        assert getattr(found, name) == vector[name]
    assert found.message_id.hex() == vector["message_id"]
    assert found.signature.hex() == vector["signature"]
    attested = decode_attested(bytes.fromhex(vector["attested"]))
    assert found.attested(vector["chunk_length"], attested.chunk_hash) == attested
    chunk, witness = bytes.fromhex(vector["chunk_bytes"]), bytes.fromhex(vector["witness"])
    assert Frame(found, b"", (), chunk).encode().hex() == vector["submitted_frame"]
    assert Frame(found, witness, (), chunk).encode().hex() == vector["witnessed_frame"]


@pytest.mark.parametrize("vector", VECTORS["acknowledgements"])
def test_vectors_of_acknowledgements(vector: dict[str, Any]) -> None:
    found = decode_acknowledgement(bytes.fromhex(vector["wire"]))
    for name in ("chunk", "cluster", "timestamp"):
        assert getattr(found, name) == vector[name]
    for name in ("message_id", "producer", "signature"):
        assert getattr(found, name).hex() == vector[name]
