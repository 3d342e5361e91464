"""How long a frame may be, and when it was attested."""

import pytest

from bruit.node.net.relay.protocols import MIN_FRAME, timestamp_of
from bruit.node.relay.coding.code import Coding
from bruit.node.relay.params import Attesting, ChannelParams
from bruit.node.relay.wire import Attestation, Frame

ATTESTATION = Attestation(b"abcd", 7, 1, 1_700_000_000, 5, bytes(65))


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize(
    ("attesting", "hashes"), [(Attesting.CHUNK, 0), (Attesting.MERKLE, 3)]
)  # five leaves make a tree of three levels
def test_the_longest_frame_is_that_of_the_largest_block(
    coding: Coding, attesting: Attesting, hashes: int
) -> None:
    channel = ChannelParams(
        id=7,
        topic="blocks",
        min_chunks=3,
        num_chunks=5,
        coding=coding,
        attesting=attesting,
        max_block=1000,
    )
    for fill in (b"\x00", b"\xff"):
        for chunk in channel.code().encode(fill * 1000):
            frame = Frame(ATTESTATION, bytes(65), (bytes(32),) * hashes, bytes(chunk)).encode()
            assert len(frame) <= channel.max_frame()
    if coding is Coding.SYSTEMATIC:  # the others may need more for other bytes
        assert len(frame) == channel.max_frame()


def test_the_shortest_frame_is_an_attestation_and_a_byte() -> None:
    assert len(Frame(ATTESTATION, b"", (), b"!").encode()) == MIN_FRAME


def test_a_frames_timestamp_is_read_from_its_attestation() -> None:
    assert timestamp_of(Frame(ATTESTATION, b"", (), b"!").encode()) == 1_700_000_000
