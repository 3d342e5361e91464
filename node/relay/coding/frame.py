"""The frame that is coded: ``length (4 bytes, big-endian) || zeros || message``.

The Marlin relay document pads on the left and carries no length; without one a message
that begins with zero bytes cannot be told from its padding.
"""

from collections.abc import Mapping

from bruit.topics.errors import LocalError, RemoteError

HEADER = 4  # bytes
MAX_MESSAGE = 64 << 20  # bytes; guess, some 30 times a large block


def chunk_length(message_length: int, unit: int, min_chunks: int) -> int:
    """Bytes of a chunk: the least multiple of ``unit`` with which k chunks hold the frame."""
    return -(-(HEADER + message_length) // (min_chunks * unit)) * unit


def check_outgoing(message_length: int) -> None:
    if not 0 <= message_length <= MAX_MESSAGE:
        raise LocalError(
            f"a message of {message_length} bytes: at most {MAX_MESSAGE} can be coded, split it"
        )


def header(message_length: int) -> bytes:
    return message_length.to_bytes(HEADER, "big")


def message_length(header: bytes, length: int, unit: int, min_chunks: int) -> int:
    """What a header says, checked against the length of the chunks."""
    stated = int.from_bytes(header, "big")
    if stated > MAX_MESSAGE:
        raise RemoteError(f"the frame states a message of {stated} bytes, over {MAX_MESSAGE}")
    if chunk_length(stated, unit, min_chunks) != length:
        raise RemoteError(
            f"the frame states a message of {stated} bytes, which chunks of {length} do not fit"
        )
    return stated


def common_length(chunks: Mapping[int, memoryview], unit: int, min_chunks: int) -> int:
    """The length of all chunks."""
    lengths = {len(chunk) for chunk in chunks.values()}
    length = max(lengths)
    if len(lengths) > 1:
        raise RemoteError(f"chunks of one message have {min(lengths)} to {length} bytes")
    if not 0 < length <= chunk_length(MAX_MESSAGE, unit, min_chunks) or length % unit:
        raise RemoteError(f"no message has chunks of {length} bytes")
    return length


def wrap(message: bytes | memoryview, size: int) -> bytes:
    """The message in a frame of ``size`` bytes."""
    return b"".join((header(len(message)), bytes(size - HEADER - len(message)), message))


def unwrap(parts: list[memoryview], length: int, unit: int, min_chunks: int) -> bytes:
    """The message in a frame that comes in parts of ``length`` bytes each."""
    head: list[memoryview] = parts[: -(-HEADER // length)]
    size = message_length(b"".join(head)[:HEADER], length, unit, min_chunks)
    start = length * len(parts) - size
    whole, inside = divmod(start, length)  # parts without any of the message; bytes of the next
    head = parts[: whole + 1]
    check_padding(b"".join(head)[HEADER:start])
    if whole == len(parts):
        return b""
    return b"".join([parts[whole][inside:], *parts[whole + 1 :]])


def check_padding(padding: bytes) -> None:
    if any(padding):
        raise RemoteError("the padding of the frame is not zero")
