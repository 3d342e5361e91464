"""Noise's data phase: whole socket reads decrypted at once, many records in one write.

py-libp2p shakes hands, checks the peer's identity and hands over a session. This
takes the keys of that session and replaces how bytes move: py-libp2p reads each
length and each record from the socket by itself, and copies every record several times.
"""

from struct import Struct
from typing import cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from libp2p.abc import IRawConnection, ISecureConn
from libp2p.connection_types import ConnectionType
from libp2p.io.exceptions import (
    ConnectionClosedError,
    DecryptionFailedException,
    IncompleteReadError,
    IOException,
)
from libp2p.peer.id import ID
from libp2p.security.base_session import BaseSession
from libp2p.security.noise.io import NoiseTransportReadWriter
from libp2p.security.noise.transport import Transport
from libp2p.security.secure_session import SecureSession
from multiaddr import Multiaddr

from bruit.node.net.socket_io import DirectSocket, direct

TAG = 16  # bytes that Poly1305 adds to a record
MAX_RECORD = 65_535  # bytes, with the tag; Noise, "Message format"
MAX_PLAINTEXT = MAX_RECORD - TAG
MAX_NONCE = 2**64 - 1  # reserved; Noise, "The CipherState object"
_LENGTH = Struct(">H")  # before each record; libp2p noise, "Wire format"
_NONCE = Struct("<4xQ")  # Noise, "The ChaChaPoly cipher functions"
RECEIVE = 4 * (_LENGTH.size + MAX_RECORD)  # bytes asked of the socket at a time; guess
BATCH = 8 * MAX_PLAINTEXT  # bytes encrypted before they are sent; guess, half does alike


class Records:
    """The records of one connection, both ways. Bytes in, bytes out."""

    __slots__ = ("_buffer", "_position", "_reading", "_received", "_sent", "_writing")

    def __init__(self, writing: bytes, reading: bytes, sent: int = 0, received: int = 0) -> None:
        """``writing``, ``reading``: keys. ``sent``, ``received``: records that went before."""
        self._writing, self._reading = ChaCha20Poly1305(writing), ChaCha20Poly1305(reading)
        self._sent, self._received = sent, received
        self._buffer = memoryview(b"")
        self._position = 0  # in the buffer, of what was not decrypted

    def seal(self, data: memoryview) -> bytes:
        """The records that carry ``data``."""
        parts: list[bytes] = []
        for start in range(0, len(data), MAX_PLAINTEXT):
            if self._sent == MAX_NONCE:
                raise IOException("noise: no nonces are left to write with")
            piece = data[start : start + MAX_PLAINTEXT]
            parts.append(_LENGTH.pack(len(piece) + TAG))
            parts.append(self._writing.encrypt(_NONCE.pack(self._sent), piece, None))
            self._sent += 1
        return b"".join(parts)

    def feed(self, data: bytes) -> None:
        """Take what the socket brought."""
        rest = self._buffer[self._position :]
        self._buffer = memoryview(b"".join((rest, data)) if rest else data)
        self._position = 0

    def open(self) -> bytes | None:
        """The content of the next record, or None until all of it is there.

        Raises DecryptionFailedException where it is not what the peer wrote, and from then on.
        """
        start = self._position + _LENGTH.size
        if len(self._buffer) < start:
            return None
        end = start + _LENGTH.unpack_from(self._buffer, self._position)[0]
        if len(self._buffer) < end:
            return None
        if self._received == MAX_NONCE:
            raise DecryptionFailedException("noise: no nonces are left to read with")
        try:
            plain = self._reading.decrypt(
                _NONCE.pack(self._received), self._buffer[start:end], None
            )
        except InvalidTag:
            raise DecryptionFailedException("noise: a record that does not verify") from None
        self._received += 1
        if end == len(self._buffer):
            self._buffer, self._position = memoryview(b""), 0
        else:
            self._position = end
        return plain

    @property
    def pending(self) -> int:
        """Bytes received that make no whole record, or have not been opened."""
        return len(self._buffer) - self._position


class SecureConnection(BaseSession):
    """A connection after its handshake. One task reads and one writes at a time."""

    def __init__(self, session: SecureSession, raw: IRawConnection, records: Records) -> None:
        super().__init__(
            local_peer=session.local_peer,
            local_private_key=session.local_private_key,
            remote_peer=session.remote_peer,
            remote_permanent_pubkey=session.remote_permanent_pubkey,
            is_initiator=session.is_initiator,
        )
        self._raw = raw
        self._records = records
        self._plain = b""  # decrypted, not read yet
        self._torn = False  # a write ended in the middle of a record
        self._rest = b""  # of records that `write_now` has begun to write

    async def read(self, n: int | None = None) -> bytes:
        """Up to ``n`` bytes as soon as there are any; without ``n``, what the next record holds.

        Waits only for the socket: one call of recv brings several records. Raises
        ConnectionClosedError at the end, IncompleteReadError where it cuts a record.
        """
        if n == 0:
            return b""
        while not self._plain:  # a record may be empty
            plain = self._records.open()
            if plain is None:
                await self._receive()
            else:
                self._plain = plain
        if n is None or n < 0 or n >= len(self._plain):
            data, self._plain = self._plain, b""
        else:
            data, self._plain = self._plain[:n], self._plain[n:]
        return data

    async def _receive(self) -> None:
        data = await self._raw.read(RECEIVE)
        if data:
            self._records.feed(data)
        elif self._records.pending:
            raise IncompleteReadError(
                "the connection ended within a noise record",
                received_bytes=self._records.pending,
            )
        else:
            raise ConnectionClosedError("the peer closed the connection", transport="tcp")

    async def write(self, data: bytes) -> None:
        """Send ``data``. When this is cancelled, nothing can be written any more."""
        if self._torn:
            raise ConnectionClosedError("an earlier write was cut off", transport="tcp")
        view = memoryview(data)
        self._torn = True
        rest, self._rest = self._rest, b""
        if rest:
            await self._raw.write(rest)
        for start in range(0, len(view), BATCH):
            await self._raw.write(self._records.seal(view[start : start + BATCH]))
        self._torn = False

    def write_now(self, data: bytes) -> bool:
        """Send ``data`` without waiting. False where some of it is left to the next `write`.

        Not while a `write` waits. After one that was cut off, nothing is sent.
        """
        sealed = self._records.seal(memoryview(data))
        taken = 0
        if isinstance(self._raw, DirectSocket) and not self._rest and not self._torn:
            taken = self._raw.write_now(sealed)
        self._rest += sealed[taken:]
        return not self._rest

    @property
    def unwritten(self) -> bool:
        """Whether `write_now` has left something to the next `write`."""
        return bool(self._rest)

    async def close(self) -> None:
        await self._raw.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._raw.get_remote_address()

    def get_transport_addresses(self) -> list[Multiaddr]:
        return self._raw.get_transport_addresses()

    def get_connection_type(self) -> ConnectionType:
        return self._raw.get_connection_type()


class NoiseTransport(Transport):
    """py-libp2p's noise, with our data phase."""

    async def secure_inbound(self, conn: IRawConnection) -> ISecureConn:
        return take_over(await super().secure_inbound(conn))

    async def secure_outbound(self, conn: IRawConnection, peer_id: ID) -> ISecureConn:
        return take_over(await super().secure_outbound(conn, peer_id))


def take_over(session: ISecureConn) -> SecureConnection:
    """Our connection in place of py-libp2p's, right after the handshake.

    The handshake reads no byte more than it needs, so nothing is buffered there.
    """
    if not isinstance(session, SecureSession) or not isinstance(
        session.conn, NoiseTransportReadWriter
    ):
        raise TypeError(f"not a noise session of py-libp2p: {session!r}")
    protocol = session.conn.noise_state.noise_protocol
    writing, reading = protocol.cipher_state_encrypt, protocol.cipher_state_decrypt
    records = Records(bytes(writing.k), bytes(reading.k), writing.n, reading.n)
    raw = direct(cast(IRawConnection, session.conn.conn))
    return SecureConnection(session, raw, records)
