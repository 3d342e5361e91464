"""What the relay's machines ask for, done with the real functions, and its price in virtual time.

Many simulated nodes do the same work on the same bytes: what one has found out is remembered for
the others. That changes nothing but the time that a simulation takes.
"""

import functools
from collections.abc import Callable, Mapping

import msgspec

from bruit.node.relay.actions import CheckAcknowledgement, CheckChunk, Decode, Encode, JudgeBlock
from bruit.node.relay.events import (
    AcknowledgementChecked,
    BlockJudged,
    ChunkChecked,
    Decoded,
    Encoded,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.signing import CheckedChunk, check_acknowledgement, check_chunk
from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.validation import ACCEPTED, Validation, Verdict

FRAMES = 1024  # whose check is remembered; guess: several broadcasts of 48 chunks, 4 clusters
BLOCKS = 16  # which are remembered; guess: as many as are under way at a time

BlockJudge = Callable[[bytes], Validation]


def accept_all(block: bytes) -> Validation:
    """A chain that finds every block valid."""
    return ACCEPTED


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a node's processor, which does one thing at a time. Free by default."""

    check: float = 0.0  # a chunk's signatures and hash
    receipt: float = 0.0  # an acknowledgement's signature
    sign: float = 0.0  # one digest
    encode: float = 0.0  # a block into chunks, and their hashes
    decode: float = 0.0  # a block out of chunks
    judge: float = 0.0  # a block, and its hash

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) >= 0:
                raise LocalError(f"price {name} {getattr(self, name)}: use seconds from 0")


class Work:
    """The functions, and what they found, for all nodes of one simulation."""

    def __init__(self, channels: Mapping[int, ChannelParams], judge: BlockJudge) -> None:
        self._channels = channels
        self._judge = judge
        self._checked = functools.lru_cache(FRAMES)(self._check_once)
        self._judged = functools.lru_cache(BLOCKS)(self._judge_once)
        self._same = functools.lru_cache(BLOCKS)(_itself)

    def check(self, action: CheckChunk) -> ChunkChecked:
        checked, problem = self._checked(action.channel, action.frame, action.witnessed)
        return ChunkChecked(action.ticket, checked, problem)

    def _check_once(
        self, channel: int, frame: bytes, witnessed: bool
    ) -> tuple[CheckedChunk | None, str]:
        try:
            return check_chunk(frame, self._channels[channel], witnessed=witnessed), ""
        except RemoteError as problem:
            return None, str(problem)

    def check_receipt(self, action: CheckAcknowledgement) -> AcknowledgementChecked:
        try:
            signer = check_acknowledgement(action.acknowledgement)
        except RemoteError:
            signer = b""
        return AcknowledgementChecked(action.ticket, signer)

    def encode(self, action: Encode) -> Encoded:
        chunks = tuple(map(bytes, self._channels[action.channel].code().encode(action.payload)))
        return Encoded(action.ticket, chunks, tuple(map(keccak256, chunks)))

    def decode(self, action: Decode) -> Decoded:
        try:
            payload = self._channels[action.channel].code().decode(action.chunks)
        except RemoteError as problem:
            return Decoded(action.ticket, b"", str(problem))
        return Decoded(action.ticket, self._same(payload))  # one copy in memory for all nodes

    def judge(self, action: JudgeBlock) -> BlockJudged:
        validation, block_hash = self._judged(action.payload)
        accepted = validation.verdict is Verdict.ACCEPT
        block = action.payload if accepted else b""
        return BlockJudged(action.ticket, validation, block, block_hash, "simulated")

    def _judge_once(self, payload: bytes) -> tuple[Validation, bytes]:
        validation = self._judge(payload)
        accepted = validation.verdict is Verdict.ACCEPT
        return validation, keccak256(payload) if accepted else b""


def _itself(payload: bytes) -> bytes:
    return payload
