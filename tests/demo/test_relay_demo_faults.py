"""Machines that cheat: each does its one wrong thing and leaves all else to the honest one."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from bruit.node.demo.relay.faults import (
    CorruptingMember,
    DroppingMember,
    WithholdingMember,
    corrupted,
    forged,
)
from bruit.node.net.relay.driver import RelayAction
from bruit.node.relay.actions import (
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Witnessed,
)
from bruit.node.relay.events import Timer
from bruit.node.relay.merkle import merkle_depth
from bruit.node.relay.params import Attesting, ChannelParams
from bruit.node.relay.signing import check_chunk
from bruit.node.relay.wire import Acknowledgement
from bruit.topics.errors import RemoteError
from tests.relay.slow_ethereum import address_of_secret, keccak256, sign
from tests.relay.vectors import PRODUCER, attestation

CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=2, num_chunks=4, max_block=65_536)
VECTOR = attestation((CHANNEL.id, 3, 1_700_000_000, 100, 4_096))
SUBMITTED = bytes.fromhex(VECTOR["submitted_frame"])
FRAME = bytes.fromhex(VECTOR["witnessed_frame"])
CHECKED = check_chunk(FRAME, CHANNEL, witnessed=True)
STRANGER = keccak256(b"no member at all")
PEER = b"peer"

ACKNOWLEDGED = SendAcknowledgement(PEER, b"receipt")
WITNESSED = Witnessed(CHECKED, CHECKED.frame.witness, Acknowledgement(b"abcd", 3, 1, 1, bytes(20)))
PASSED_ON = PassOn((), FRAME)
PUBLISHED = PublishChunk(CHANNEL.id, FRAME, CHECKED)
TIMER = SetTimer(Timer("due", 1), 1.0)
ALL: list[RelayAction] = [ACKNOWLEDGED, WITNESSED, PASSED_ON, PUBLISHED, TIMER]


class Honest:
    """Wants what it is told to want, whatever happens."""

    def __init__(self, *answers: Sequence[RelayAction]) -> None:
        self._answers = list(answers)

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]:
        return self._answers.pop(0)


def test_a_dropping_member_acknowledges_and_forwards_nothing() -> None:
    assert DroppingMember(Honest(ALL)).handle(None, 0.0) == [ACKNOWLEDGED, WITNESSED, TIMER]


def test_a_corrupting_member_changes_one_byte_of_what_it_passes_on() -> None:
    actions = CorruptingMember(Honest(ALL)).handle(None, 0.0)
    assert [actions[0], actions[1], actions[4]] == [ACKNOWLEDGED, WITNESSED, TIMER]
    for action in actions[2:4]:
        assert isinstance(action, PassOn | PublishChunk)
        assert len(action.frame) == len(FRAME)
        assert sum(one != other for one, other in zip(action.frame, FRAME, strict=True)) == 1
        assert action.frame[-100:] != FRAME[-100:]  # in the chunk, which has 100 bytes


def test_a_corrupted_frame_is_not_what_its_producer_attested() -> None:
    try:
        producer = check_chunk(corrupted(FRAME), CHANNEL, witnessed=True).producer
    except RemoteError:
        return  # a signature that nobody can have made
    assert producer != address_of_secret(PRODUCER)


def test_a_withholding_member_keeps_its_first_chunk_and_no_other() -> None:
    kept: list[bytes] = []
    passed: list[RelayAction] = [PublishChunk(CHANNEL.id, b"of another member", CHECKED)]
    member = WithholdingMember(Honest(passed, ALL, ALL), kept.append)
    assert member.handle(None, 0.0) == passed  # nobody submitted that one to it
    assert member.handle(None, 0.0) == [ACKNOWLEDGED, WITNESSED, TIMER]
    assert member.handle(None, 0.0) == ALL
    assert kept == [FRAME]


def test_a_forged_witness_is_the_strangers_and_all_else_is_as_it_was() -> None:
    witness = sign(STRANGER, bytes.fromhex(VECTOR["message_hash"]))
    wire, chunk = bytes.fromhex(VECTOR["wire"]), bytes.fromhex(VECTOR["chunk_bytes"])
    assert forged(FRAME, CHANNEL, STRANGER) == wire + witness + chunk
    checked = check_chunk(forged(FRAME, CHANNEL, STRANGER), CHANNEL, witnessed=True)
    assert checked.member == address_of_secret(STRANGER)
    assert checked.producer == address_of_secret(PRODUCER)


def test_a_forged_witness_covers_the_merkle_proof() -> None:
    channel = msgspec.structs.replace(CHANNEL, attesting=Attesting.MERKLE)
    wire, chunk = bytes.fromhex(VECTOR["wire"]), bytes.fromhex(VECTOR["chunk_bytes"])
    proof = bytes(32 * merkle_depth(channel.num_chunks))
    witness = sign(STRANGER, keccak256(wire + proof + chunk))
    frame = wire + bytes(65) + proof + chunk
    assert forged(frame, channel, STRANGER) == wire + witness + proof + chunk


def test_what_is_no_frame_cannot_be_forged() -> None:
    with pytest.raises(RemoteError):
        forged(b"short", CHANNEL, STRANGER)
