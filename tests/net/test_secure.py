"""Noise's data phase: the bytes that noiseprotocol would write, however the socket cuts them."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.crypto.x25519 import create_new_key_pair
from libp2p.io.exceptions import (
    ConnectionClosedError,
    DecryptionFailedException,
    IncompleteReadError,
    IOException,
)
from libp2p.peer.id import ID
from libp2p.security.noise.exceptions import PeerIDMismatchesPubkey
from libp2p.security.noise.transport import Transport
from libp2p.security.secure_session import SecureSession
from noise.connection import NoiseConnection  # type: ignore[import-untyped]

from bruit.node.identity import new_key
from bruit.node.net.host import libp2p_keys
from bruit.node.net.secure import (
    BATCH,
    MAX_NONCE,
    MAX_PLAINTEXT,
    MAX_RECORD,
    NoiseTransport,
    Records,
    SecureConnection,
    take_over,
)
from tests.net.sockets import read_exactly, secured_pair
from tests.net.wires import Wire, wires

OURS, THEIRS = bytes(range(32)), bytes(range(32, 64))
LENGTH = 2  # bytes before a record
EDGES = (1, MAX_PLAINTEXT - 1, MAX_PLAINTEXT, MAX_PLAINTEXT + 1, 2 * MAX_PLAINTEXT, BATCH + 1)


def both(sent: int = 0) -> tuple[Records, Records]:
    """Two ends, the first having written so many records."""
    return Records(OURS, THEIRS, sent=sent), Records(THEIRS, OURS, received=sent)


def opened(records: Records) -> list[bytes]:
    return list(iter(records.open, None))


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """``data``, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


# Records


@given(
    messages=st.lists(st.binary(max_size=300), max_size=8),
    cuts=st.lists(st.integers(0, 4000), max_size=20),
)
def test_what_was_sealed_is_opened_however_it_is_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    writer, reader = both()
    wire = b"".join(writer.seal(memoryview(message)) for message in messages)
    got: list[bytes] = []
    for piece in pieces(wire, cuts):
        reader.feed(piece)
        got += opened(reader)
    assert got == [message for message in messages if message]
    assert reader.pending == 0


@pytest.mark.parametrize("size", EDGES)
def test_a_long_write_is_cut_into_full_records(size: int) -> None:
    writer, reader = both()
    data = bytes(range(251)) * (size // 251 + 1)
    wire = writer.seal(memoryview(data)[:size])
    reader.feed(wire)
    got = opened(reader)
    assert b"".join(got) == data[:size]
    assert {len(record) for record in got[:-1]} <= {MAX_PLAINTEXT}
    assert int.from_bytes(wire[:LENGTH], "big") == min(size + 16, MAX_RECORD)


def handshaken() -> tuple[Any, Any]:
    """Both ends of a handshake by the noiseprotocol package, which is the oracle here."""
    ends = [NoiseConnection.from_name(b"Noise_NN_25519_ChaChaPoly_SHA256") for _ in range(2)]
    ends[0].set_as_initiator()
    ends[1].set_as_responder()
    for end in ends:
        end.start_handshake()
    ends[1].read_message(ends[0].write_message())
    ends[0].read_message(ends[1].write_message())
    return ends[0], ends[1]


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=100)), max_size=12))
def test_noiseprotocol_reads_what_we_write_and_we_what_it_writes(
    turns: list[tuple[bool, bytes]],
) -> None:
    initiator, responder = handshaken()
    first = initiator.encrypt(b"before we took over")
    assert responder.decrypt(first) == b"before we took over"
    states = initiator.noise_protocol
    writing, reading = states.cipher_state_encrypt, states.cipher_state_decrypt
    records = Records(writing.k, reading.k, writing.n, reading.n)
    for ours, data in turns:
        if ours:
            wire = records.seal(memoryview(data))
            assert int.from_bytes(wire[:LENGTH], "big") == len(wire) - LENGTH
            assert responder.decrypt(wire[LENGTH:]) == data
        else:
            wire = responder.encrypt(data)
            records.feed(len(wire).to_bytes(LENGTH, "big") + wire)
            assert opened(records) == [data]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_record_that_was_changed_is_refused(place: int, change: int) -> None:
    writer, reader = both()
    wire = bytearray(writer.seal(memoryview(b"data" * 10)))
    place = LENGTH + place % (len(wire) - LENGTH)
    wire[place] ^= change
    reader.feed(bytes(wire))
    with pytest.raises(DecryptionFailedException):
        reader.open()


def test_a_record_is_good_once_and_in_its_order() -> None:
    writer, reader = both()
    first, second = (writer.seal(memoryview(data)) for data in (b"one", b"two"))
    swapped = Records(THEIRS, OURS)
    swapped.feed(second + first)
    with pytest.raises(DecryptionFailedException):
        swapped.open()
    reader.feed(first + first)
    assert reader.open() == b"one"
    with pytest.raises(DecryptionFailedException):
        reader.open()


@pytest.mark.parametrize("size", [0, 1, 15, 16])
def test_a_record_too_short_for_its_tag_is_refused(size: int) -> None:
    _, reader = both()
    reader.feed(size.to_bytes(LENGTH, "big") + bytes(size))
    with pytest.raises(DecryptionFailedException):
        reader.open()


def test_the_last_nonce_is_never_used() -> None:
    writer, reader = both(MAX_NONCE - 1)
    reader.feed(writer.seal(memoryview(b"the last")))
    assert reader.open() == b"the last"
    with pytest.raises(IOException, match="nonces"):
        writer.seal(memoryview(b"one more"))
    reader.feed(bytes([0, 16]) + bytes(16))
    with pytest.raises(DecryptionFailedException, match="nonces"):
        reader.open()


# Connections


def libp2p_id(keys: Any) -> ID:
    return ID.from_pubkey(keys.public_key)


def transport(kind: type[Transport]) -> Transport:
    noise = create_new_key_pair().private_key
    return kind(libp2p_keys(new_key()), noise_privkey=noise)


class Handshake:
    """Two ends that have shaken hands."""

    def __init__(self, ours: SecureConnection, other: Any, wire: Wire, other_wire: Wire) -> None:
        self.ours, self.other = ours, other
        self.wire, self.other_wire = wire, other_wire  # below ours, below the other


async def shake_hands(other: type[Transport] = NoiseTransport, *, initiate: bool) -> Handshake:
    """Our transport and another, over memory."""
    left, right = wires()
    wire, other_wire = (left, right) if initiate else (right, left)
    transports = transport(NoiseTransport), transport(other)
    ends: dict[str, Any] = {}

    async def secure(name: str, mine: Transport, its: Transport, below: Wire) -> None:
        if below.is_initiator:
            ends[name] = await mine.secure_outbound(below.raw, its.local_peer)
        else:
            ends[name] = await mine.secure_inbound(below.raw)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(secure, "ours", transports[0], transports[1], wire)
        nursery.start_soon(secure, "other", transports[1], transports[0], other_wire)
    ours = ends["ours"]
    assert isinstance(ours, SecureConnection)
    assert ours.get_remote_peer() == transports[1].local_peer
    assert ours.get_local_peer() == transports[0].local_peer
    assert ours.is_initiator == initiate
    assert ours.get_remote_address() == ("192.0.2.1", 4001)
    return Handshake(ours, ends["other"], wire, other_wire)


@pytest.mark.parametrize("initiate", [True, False])
@pytest.mark.parametrize("kind", [NoiseTransport, Transport])
async def test_a_megabyte_goes_each_way(kind: type[Transport], initiate: bool) -> None:
    ends = await shake_hands(kind, initiate=initiate)
    assert isinstance(ends.other, SecureConnection if kind is NoiseTransport else SecureSession)
    data = bytes(range(256)) * 4096
    for writer, reader in ((ends.ours, ends.other), (ends.other, ends.ours)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.write, data)
            assert await read_exactly(reader, len(data)) == data


async def test_another_peer_than_was_dialled_is_refused() -> None:
    left, right = wires()
    responder = transport(NoiseTransport)
    stranger = libp2p_id(libp2p_keys(new_key()))

    async def respond() -> None:
        with pytest.raises((IOException, trio.Cancelled)):
            await responder.secure_inbound(right.raw)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond)
        with pytest.raises(PeerIDMismatchesPubkey):
            await transport(NoiseTransport).secure_outbound(left.raw, stranger)
        await left.close()


async def test_a_read_takes_no_more_than_asked_and_waits_for_no_more_than_there_is() -> None:
    ends = await shake_hands(initiate=True)
    await ends.other.write(b"abcdef")
    assert await ends.ours.read(0) == b""
    assert await ends.ours.read(4) == b"abcd"
    assert await ends.ours.read(4) == b"ef"
    await ends.other.write(b"gh")
    await ends.other.write(b"ij")
    assert await ends.ours.read() + await ends.ours.read(-1) == b"ghij"


async def test_an_empty_record_is_not_the_end() -> None:
    ends = await shake_hands(Transport, initiate=True)
    await ends.other.write(b"")
    await ends.other.write(b"after")
    assert await ends.ours.read() == b"after"


async def test_the_end_is_told_from_a_cut_record() -> None:
    ends = await shake_hands(initiate=True)
    await ends.other.write(b"all of it")
    await ends.other.close()
    assert await ends.ours.read() == b"all of it"
    for _ in range(2):
        with pytest.raises(ConnectionClosedError):
            await ends.ours.read()

    ends = await shake_hands(initiate=True)
    await ends.other_wire.write(b"\x00\x20half a record")
    await ends.other.close()
    for _ in range(2):
        with pytest.raises(IncompleteReadError):
            await ends.ours.read()


async def test_nothing_is_read_after_a_forgery() -> None:
    ends = await shake_hands(initiate=True)
    await ends.other_wire.write(b"\x00\x10" + bytes(16))
    await ends.other.write(b"genuine")
    for _ in range(2):
        with pytest.raises(DecryptionFailedException):
            await ends.ours.read()


async def test_nothing_is_written_after_a_write_that_was_cut_off() -> None:
    left, _ = wires(trio.testing.lockstep_stream_pair)
    ends = await shake_hands(initiate=True)
    ends.ours._raw = left.raw
    with trio.CancelScope() as scope:
        scope.cancel()
        await ends.ours.write(b"data")
    assert scope.cancelled_caught
    with pytest.raises(ConnectionClosedError):
        await ends.ours.write(b"more")


# Writing at once


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30_000)), max_size=12))
@settings(max_examples=50, deadline=None)
async def test_bytes_arrive_in_the_order_of_writes_at_once_and_writes_that_wait(
    steps: list[tuple[bool, int]],
) -> None:
    """The socket holds little, so that parts of records are left to the next write."""
    data = [random.Random(seed).randbytes(size) for seed, (_, size) in enumerate(steps)]
    whole = b"".join(data)
    async with secured_pair() as (ours, other):

        async def write() -> None:
            for (at_once, _), piece in zip(steps, data, strict=True):
                if at_once:
                    assert ours.write_now(piece) != ours.unwritten
                else:
                    await ours.write(piece)
                    assert not ours.unwritten
            await ours.write(b"")

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                assert await read_exactly(other, len(whole)) == whole


async def test_what_the_socket_takes_is_written_at_once() -> None:
    async with secured_pair() as (ours, other):
        assert ours.write_now(b"at once")
        assert not ours.unwritten
        assert await other.read() == b"at once"


async def test_a_rest_is_kept_for_the_next_write_and_goes_before_anything_else() -> None:
    async with secured_pair() as (ours, other):
        first = bytes(100_000)
        assert not ours.write_now(first)
        assert ours.unwritten
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_exactly, other, len(first))
                await trio.testing.wait_all_tasks_blocked()  # now there would be room
                assert not ours.write_now(b"second")
                nursery.start_soon(ours.write, b"third")
            assert await read_exactly(other, 11) == b"secondthird"
        assert ours.write_now(b"fourth")


async def test_where_there_is_no_socket_everything_is_left_to_the_next_write() -> None:
    ends = await shake_hands(initiate=True)
    assert not ends.ours.write_now(b"first")
    await ends.ours.write(b"second")
    assert await read_exactly(ends.other, 11) == b"firstsecond"
    assert not ends.ours.unwritten


async def test_a_connection_that_is_closed_takes_nothing_at_once_and_the_next_write_says_so() -> (
    None
):
    async with secured_pair() as (ours, _):
        await ours.close()
        assert not ours.write_now(b"data")
        for _ in range(2):
            with pytest.raises(ConnectionClosedError):
                await ours.write(b"")


async def test_nothing_is_written_at_once_after_a_write_that_was_cut_off() -> None:
    async with secured_pair() as (ours, other):
        assert not ours.write_now(bytes(100_000))
        with trio.CancelScope() as scope:
            scope.cancel()
            await ours.write(b"")
        assert scope.cancelled_caught
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await read_exactly(other, 100_000)
        assert not ours.write_now(b"more")
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await other.read()
        with pytest.raises(ConnectionClosedError):
            await ours.write(b"")


def test_only_a_session_of_py_libp2p_is_taken_over() -> None:
    with pytest.raises(TypeError):
        take_over(wires()[0].secured)
