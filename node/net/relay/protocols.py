"""The two stream protocols of the relay.

Both carry frames, each after its length as an unsigned varint, from who opened the stream. On a
stream of submissions the other end answers with acknowledgements; on the other it says nothing.
"""

from enum import Enum

from bruit.node.relay.wire import ATTESTATION_SIZE

MIN_FRAME = ATTESTATION_SIZE + 1  # bytes: a chunk is not empty


class RelayProtocol(Enum):
    SUBMIT = "/bruit/marlin/submit/1.0.0"  # from a producer to a cluster's member
    PASS_ON = "/bruit/marlin/pass/1.0.0"  # between members of a cluster


def timestamp_of(frame: bytes) -> int:
    """When a well-formed frame was attested, Unix time in seconds."""
    return int.from_bytes(frame[8:12], "big")
