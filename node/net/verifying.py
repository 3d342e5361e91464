"""Checks signatures: the main program of a verifier process (``verifiers``).

    python -m bruit.node.net.verifying

Standard input is one end of a Unix socket pair. The process writes READY once its
modules are loaded, then answers batches, one at a time, until the other end closes:

    question   u32 number of messages, u32 length of each, the messages; little-endian
    answer     a byte per message: 1 where its author signed it, otherwise 0; then READY again

It reads a whole batch before it answers, so neither side waits for the other to read.
"""

import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO

from bruit.topics.errors import RemoteError
from bruit.topics.message import decode_message, signature_valid

READY = b"\x02"  # no message's byte looks like it
SOCKET = 0  # the file descriptor
WORD = struct.calcsize("<I")


def signed_by_author(raw: bytes) -> bool:
    """Whether these bytes are a message that its author signed."""
    try:
        return signature_valid(decode_message(raw))
    except RemoteError:
        return False


def question(raws: Sequence[bytes]) -> bytes:
    head = struct.pack(f"<{len(raws) + 1}I", len(raws), *map(len, raws))
    return b"".join((head, *raws))


def read_question(stream: BinaryIO) -> list[bytes] | None:
    """The next batch, or None where the other end has closed."""
    head = stream.read(WORD)
    if len(head) < WORD:
        return None
    (count,) = struct.unpack("<I", head)
    sizes = stream.read(WORD * count)
    if len(sizes) < WORD * count:
        return None
    raws = []
    for size in struct.unpack(f"<{count}I", sizes):
        raw = stream.read(size)
        if len(raw) < size:
            return None
        raws.append(raw)
    return raws


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which then closes
    try:
        os.write(SOCKET, READY)
        with open(SOCKET, "rb", closefd=False) as stream:
            while (raws := read_question(stream)) is not None:
                answer = bytes(signed_by_author(raw) for raw in raws) + READY
                while answer:
                    answer = answer[os.write(SOCKET, answer) :]
    except (BrokenPipeError, ConnectionResetError):  # the node is gone
        sys.exit(1)


if __name__ == "__main__":
    main()
