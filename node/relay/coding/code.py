"""Coding of a message into chunks and back: what the rest of the relay uses.

A producer codes a block into n chunks (NUM_CHUNKS of the document), and a consumer rebuilds
it from any k of them (MIN_CHUNKS). Four modes share one frame (`frame`):

- ``systematic``: the first k chunks are the frame itself. GF(2^8) up to 256 chunks, GF(2^16)
  beyond.
- ``ida``: Rabin's dispersal, laid out as in the Marlin relay document, over the same fields.
- ``mod257`` and ``mod65537``: the document's arithmetic, "mod P".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from bruit.node.relay.coding import frame
from bruit.node.relay.coding.binary import Dispersal, Systematic
from bruit.node.relay.coding.kernels import Kernel, supported
from bruit.node.relay.coding.prime import PrimeCode
from bruit.topics.errors import LocalError

Buffer = bytes | bytearray | memoryview

MAX_CHUNKS = 65536  # the chunk id of the attestation has two bytes
MAX_CHUNKS_8 = 256  # distinct points of GF(2^8)
# Rabin's dispersal needs a whole inverse of k×k coefficients in memory, 8 bytes each while it
# is made: 128 MiB; guess.
MAX_DISPERSAL = 4096


class Coding(Enum):
    """How a message becomes chunks."""

    SYSTEMATIC = "systematic"
    IDA = "ida"
    MOD257 = "mod257"
    MOD65537 = "mod65537"


class Coder(Protocol):
    """One mode, with checked numbers and buffers."""

    def chunk_length(self, message_length: int) -> int: ...

    def max_chunk_length(self, message_length: int) -> int: ...

    def encode(self, message: bytes | memoryview) -> list[memoryview]: ...

    def decode(self, chunks: Mapping[int, memoryview]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Code:
    """A code of ``num_chunks`` chunks, any ``min_chunks`` of which give the message back.

    Immutable; its methods may run in several threads at once, and hold no lock of the
    interpreter while they compute. ``kernel`` forces a kernel: for tests and measurements.
    """

    min_chunks: int
    num_chunks: int
    coding: Coding = Coding.SYSTEMATIC
    kernel: Kernel | None = None
    _coder: Coder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_coder", coder(self))

    def chunk_length(self, message_length: int) -> int:
        """Bytes of every chunk; of the shortest possible one in the modes mod P."""
        frame.check_outgoing(message_length)
        return self._coder.chunk_length(message_length)

    def max_chunk_length(self, message_length: int) -> int:
        """Bytes of the longest possible chunk."""
        frame.check_outgoing(message_length)
        return self._coder.max_chunk_length(message_length)

    def encode(self, message: Buffer) -> list[memoryview]:
        """All chunks, read-only. They may share memory with each other and a ``bytes`` message."""
        view = contiguous(message)
        frame.check_outgoing(len(view))
        # Of anything that could change later a copy is taken.
        return self._coder.encode(view if isinstance(view.obj, bytes) else bytes(view))

    def decode(self, chunks: Mapping[int, Buffer]) -> bytes:
        """The message, from the chunks by index: any ``min_chunks`` are enough.

        Only as many are used, data chunks before others, then those with the lowest index.
        Over GF(2^m) all must have the same length, those not used too.

        Raises LocalError for too few chunks or an index that does not exist, RemoteError for
        chunks that are no chunks of one message. Chunks that were tampered with may as well
        give another message: check its hash.
        """
        if len(chunks) < self.min_chunks:
            raise LocalError(f"{len(chunks)} chunks: {self.min_chunks} are needed, wait for more")
        views = {}
        for index, chunk in chunks.items():
            if not 0 <= index < self.num_chunks:
                raise LocalError(f"chunk {index}: there are chunks 0 to {self.num_chunks - 1}")
            views[index] = contiguous(chunk)
        return self._coder.decode(views)


def contiguous(buffer: Buffer) -> memoryview:
    """The buffer as bytes in a row."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    if not view.c_contiguous:
        raise LocalError(f"a buffer of shape {view.shape} is not contiguous in memory: copy it")
    return view.cast("B")


def coder(code: Code) -> Coder:
    """What does the work of a code whose numbers are possible."""
    min_chunks, num_chunks, coding = code.min_chunks, code.num_chunks, code.coding
    if not 1 <= min_chunks <= num_chunks:
        raise LocalError(
            f"{num_chunks} chunks of which {min_chunks} rebuild the message: at least one must,"
            " and no more than there are"
        )
    most = MAX_CHUNKS_8 if coding is Coding.MOD257 else MAX_CHUNKS
    if num_chunks > most:
        raise LocalError(f"{num_chunks} chunks: mode {coding.value} has at most {most}")
    if coding is not Coding.SYSTEMATIC and min_chunks > MAX_DISPERSAL:
        raise LocalError(
            f"mode {coding.value} rebuilds from at most {MAX_DISPERSAL} chunks, not {min_chunks}:"
            " use systematic"
        )
    if code.kernel is not None and code.kernel not in supported():
        raise LocalError(f"this processor cannot run the kernel {code.kernel.value}")
    if coding is Coding.MOD257:
        return PrimeCode(min_chunks, num_chunks, 257)
    if coding is Coding.MOD65537:
        return PrimeCode(min_chunks, num_chunks, 65537)
    bits = 8 if num_chunks <= MAX_CHUNKS_8 else 16
    if coding is Coding.SYSTEMATIC:
        return Systematic(min_chunks, num_chunks, bits, code.kernel)
    return Dispersal(min_chunks, num_chunks, bits, code.kernel)
