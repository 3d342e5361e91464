"""Evidence that holds, evidence that does not, and what is said of either."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.evidence import (
    Evidence,
    Exhibit,
    Kind,
    decode_evidence,
    encode_evidence,
)
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.finding import Finding
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import PluginError, RemoteError
from bruit.topics.validation import ACCEPTED, Validation, ignore
from tests.relay.consuming import (
    ALICE,
    BOB,
    CHANNEL,
    CHANNELS,
    MEMBERS,
    MERKLE,
    PARAMS,
    START,
    STRANGER,
    Desk,
    Stakes,
    judge,
    market,
    send,
)

BLOCK = b"a block of some bytes" * 3
STAKE = 100_000  # tokens of each producer
MARKET = market(stake=STAKE)


def offline(evidence: Evidence, marketplace: Marketplace | None = MARKET) -> Finding:
    """All that a verifier can have, after a round trip through a file."""
    return verify_evidence(
        decode_evidence(encode_evidence(evidence)),
        marketplace,
        judge,
        restore=bytes,
        channels=CHANNELS,
        params=PARAMS,
    )


def _only(desk: Desk) -> Evidence:
    desk.finish()
    (evidence,) = desk.disputes
    return evidence


def _invalid(block: bytes, channel: ChannelParams, **how: Any) -> Evidence:
    desk = Desk(marketplace=MARKET)
    desk.feed(send(ALICE, block, channel=channel, **how), 1, 3)
    return _only(desk)


def _too_few(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    name = send(ALICE, BLOCK).message_id
    desk.feed(send(ALICE, BLOCK, channel=channel), 1)
    desk.feed(send(BOB, b"of another length", channel=channel, message_id=name), 2)
    return _only(desk)


def _overlapping(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    desk.feed(send(ALICE, BLOCK, channel=channel), 0, 1)
    desk.feed(send(ALICE, b"another block", channel=channel), 0)
    return _only(desk)


def _overspent(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    desk.feed(send(ALICE, BLOCK, channel=channel, offset=STAKE - 1), 0)
    return _only(desk)


def _conflicting(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    stakes = Stakes()
    first = send(ALICE, BLOCK, channel=channel, stakes=stakes)
    desk.feed(first, 0, 1)
    second = b"x" * len(BLOCK)
    desk.feed(send(ALICE, second, channel=channel, stakes=stakes, message_id=first.message_id), 0)
    return _only(desk)


def _false_witness(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    desk.feed(send(ALICE, BLOCK, channel=channel), 0, witness=STRANGER)
    return _only(desk)


def _replay(channel: ChannelParams) -> Evidence:
    desk = Desk(marketplace=MARKET)
    desk.feed(send(ALICE, BLOCK, at=START - 11, channel=channel), 0)
    return _only(desk)


Maker = Callable[[ChannelParams], Evidence]
MAKERS: dict[str, Maker] = {
    "refused": lambda channel: _invalid(b"bad block", channel),
    "wrong-id": lambda channel: _invalid(BLOCK, channel, message_id=b"same"),
    "malformed": lambda channel: _invalid(b"", channel, chunks=[b"\xff" * 8] * 4),
    "too-few": _too_few,
    "overlapping": _overlapping,
    "overspent": _overspent,
    "conflicting": _conflicting,
    "false-witness": _false_witness,
    "replay": _replay,
}
GENUINE = {
    f"{name}-{channel.attesting.value}": maker(channel)
    for name, maker in MAKERS.items()
    for channel in (CHANNEL, MERKLE)
}
EVERY = pytest.mark.parametrize("name", GENUINE)


def test_every_kind_is_here() -> None:
    assert {evidence.kind for evidence in GENUINE.values()} == set(Kind)


@EVERY
def test_genuine_evidence_holds(name: str) -> None:
    finding = offline(GENUINE[name])
    assert finding.holds, finding.statements
    assert finding.statements


@EVERY
def test_evidence_that_is_taken_for_another_kind_does_not_hold(name: str) -> None:
    evidence = GENUINE[name]
    for kind in Kind:
        if kind is not evidence.kind:
            finding = offline(msgspec.structs.replace(evidence, kind=kind))
            assert not finding.holds, (kind, finding.statements)


@EVERY
def test_evidence_by_parameters_that_nobody_agreed_on_does_not_hold(name: str) -> None:
    evidence = GENUINE[name]
    channel = msgspec.structs.replace(evidence.channel, max_block=70_000)
    params = RelayParams(refresh_interval=61)
    assert not offline(msgspec.structs.replace(evidence, channel=channel)).holds
    assert not offline(msgspec.structs.replace(evidence, params=params)).holds


@EVERY
def test_parameters_that_are_only_the_evidences_are_said_to_be(name: str) -> None:
    finding = verify_evidence(GENUINE[name], MARKET, judge, restore=bytes)
    assert finding.holds
    assert "agreed on" in finding.statements[0]


@EVERY
def test_without_a_marketplace_only_what_needs_one_does_not_hold(name: str) -> None:
    finding = offline(GENUINE[name], None)
    needs = GENUINE[name].kind in (Kind.FALSE_WITNESS, Kind.OVERSPENT_STAKE)
    assert finding.holds is not needs
    if needs:
        assert "marketplace" in finding.statements[-1]


# What is the word of who found it, or of no consequence: it is not recomputed, and the finding
# does not lean on it. In a file the hash covers it.
TESTIMONY = {
    "reason": set(Kind),
    "found_at": set(Kind) - {Kind.REPLAY},
    "validator": {Kind.INVALID_BLOCK},
    "stake": {Kind.OVERLAPPING_STAKE, Kind.CONFLICTING_CHUNKS},
}
addresses = st.sampled_from([BOB.address, STRANGER.address, bytes(20), MEMBERS[0].address])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "found_at": st.floats(0, START),
    "channel": st.sampled_from([CHANNEL, MERKLE])
    | st.builds(
        ChannelParams,
        id=st.sampled_from([7, 8, 9]),
        topic=st.sampled_from(["blocks", "roots"]),
        min_chunks=st.integers(1, 4),
        num_chunks=st.integers(4, 6),
        attesting=st.sampled_from(Attesting),
    ),
    "params": st.builds(
        RelayParams,
        chunk_report_limit=st.integers(1, 1000),
        tolerable_latency=st.floats(0.1, 100),
        stake_per_byte=st.integers(1, 9),
        refresh_interval=st.floats(0.1, 100),
    ),
    "message_id": st.binary(min_size=4, max_size=4),
    "producers": st.lists(addresses, min_size=1, max_size=3).map(tuple),
    "culprits": st.lists(addresses, min_size=1, max_size=2).map(tuple),
    "validator": st.text("xyz", min_size=1, max_size=3),
    "stake": st.integers(1, 0xFFFF_FFFF),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(GENUINE)), st.sampled_from(sorted(FIELDS)), st.data())
def test_a_changed_field_does_not_hold(name: str, field: str, data: st.DataObject) -> None:
    evidence = GENUINE[name]
    value = data.draw(FIELDS[field])
    changed = msgspec.structs.replace(evidence, **{field: value})
    if changed == evidence:
        return
    finding = offline(changed)
    if evidence.kind not in TESTIMONY.get(field, set()):
        assert not finding.holds, finding.statements


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(GENUINE)),
    which=st.integers(0, 9),
    field=st.sampled_from(["attested", "signature", "frame"]),
    at=st.integers(0, 10_000),
    flip=st.integers(1, 255),
)
def test_a_changed_exhibit_does_not_hold(
    name: str, which: int, field: str, at: int, flip: int
) -> None:
    evidence = GENUINE[name]
    number = which % len(evidence.exhibits)
    exhibit = evidence.exhibits[number]
    content = bytearray(getattr(exhibit, field)) or bytearray(1)
    at %= len(content)
    if field == "frame" and evidence.kind is Kind.REPLAY and 81 <= at < 146:
        return  # who witnessed it, which is not what a replay is about
    content[at] ^= flip
    changed = msgspec.structs.replace(exhibit, **{field: bytes(content)})
    assert not offline(_with(evidence, number, changed)).holds


def _with(evidence: Evidence, number: int, *exhibits: Exhibit) -> Evidence:
    before, after = evidence.exhibits[:number], evidence.exhibits[number + 1 :]
    return msgspec.structs.replace(evidence, exhibits=(*before, *exhibits, *after))


@EVERY
def test_an_exhibit_more_or_less_or_cut_short_does_not_hold(name: str) -> None:
    evidence = GENUINE[name]
    for number, exhibit in enumerate(evidence.exhibits):
        turned = msgspec.structs.replace(exhibit, witnessed=not exhibit.witnessed)
        changes = [
            _with(evidence, number, exhibit, exhibit),
            _with(evidence, number, turned),
            _with(evidence, number, msgspec.structs.replace(exhibit, frame=exhibit.frame + b"x")),
        ]
        if exhibit.frame:
            changes.append(
                _with(evidence, number, msgspec.structs.replace(exhibit, frame=exhibit.frame[:-1]))
            )
        if len(evidence.exhibits) > 1:
            changes.append(_with(evidence, number))
        for changed in changes:
            if evidence.kind is Kind.REPLAY and len(changed.exhibits) == 2:
                continue  # the same replay, told twice
            assert not offline(changed).holds


def test_chunks_of_two_broadcasts_do_not_mix() -> None:
    blocks = [evidence for evidence in GENUINE.values() if evidence.kind is Kind.INVALID_BLOCK]
    for one in blocks:
        for other in blocks:
            if one is not other:
                assert not offline(_with(one, 1, other.exhibits[1])).holds


def test_a_valid_block_is_no_evidence() -> None:
    desk = Desk(judge=lambda _: Validation(judge(b"bad").verdict, "a lie"), marketplace=MARKET)
    desk.feed(send(ALICE, BLOCK), 0, 1)
    finding = offline(_only(desk))
    assert not finding.holds
    assert finding.statements[-1] == "The validator accepts the block, and its id is right."


@pytest.mark.parametrize("name", ["refused-chunk", "refused-merkle"])
def test_without_the_plugin_a_refused_block_cannot_be_decided(name: str) -> None:
    finding = verify_evidence(GENUINE[name], MARKET, None)
    assert not finding.holds
    assert "cannot be decided" in finding.statements[-1]
    assert "'chain'" in finding.statements[-1]


def test_without_the_plugin_malformed_chunks_are_still_shown() -> None:
    assert verify_evidence(GENUINE["malformed-chunk"], None, None).holds


def test_an_id_is_compared_only_with_what_is_known_to_be_the_block() -> None:
    """Else who pre-processes its blocks could be accused with its own honest chunks."""
    evidence = GENUINE["wrong-id-chunk"]
    assert not verify_evidence(evidence, MARKET, judge).holds
    assert verify_evidence(evidence, MARKET, None, restore=bytes).holds
    squeezed = send(ALICE, b"squeezed", message_id=send(ALICE, BLOCK).message_id)
    desk = Desk(marketplace=MARKET)
    desk.feed(squeezed, 0, 1)
    honest = _only(desk)
    finding = verify_evidence(honest, MARKET, lambda _: ACCEPTED, restore=lambda _: BLOCK)
    assert not finding.holds


def test_a_post_processor_that_refuses_the_payload_shows_it() -> None:
    def refuse(payload: bytes) -> bytes:
        raise RemoteError("no such format")

    assert verify_evidence(GENUINE["refused-chunk"], MARKET, judge, restore=refuse).holds


def test_a_judge_that_fails_decides_nothing() -> None:
    def fail(block: bytes) -> Validation:
        raise PluginError("chain", "validate", "broken")

    for judging in (fail, lambda _: ignore("busy")):
        finding = verify_evidence(GENUINE["refused-chunk"], MARKET, judging, restore=bytes)
        assert not finding.holds
        assert "cannot be decided" in finding.statements[-1]


def test_a_member_is_no_false_witness() -> None:
    finding = offline(GENUINE["false-witness-chunk"], market(members=[STRANGER, *MEMBERS]))
    assert not finding.holds
    assert "honest witness" in finding.statements[-1]


def test_a_producer_with_enough_stake_did_not_overspend() -> None:
    assert not offline(GENUINE["overspent-chunk"], market(stake=2 * STAKE)).holds
    enough = msgspec.structs.replace(GENUINE["overspent-chunk"], stake=2 * STAKE)
    assert not offline(enough, market(stake=2 * STAKE)).holds


def test_what_evidence_cannot_show_is_said() -> None:
    assert "word of who found it" in offline(GENUINE["replay-chunk"]).statements[-1]
    assert "word of who found it" in offline(GENUINE["too-few-chunk"]).statements[-1]
    assert "who passed the frame on" in offline(GENUINE["false-witness-chunk"]).statements[-1]


def test_an_accused_who_is_no_producer_is_pointed_out() -> None:
    finding = offline(GENUINE["conflicting-chunk"], market(producers=[BOB]))
    assert finding.holds
    assert f"{ALICE.address.hex()} is no producer in the marketplace given." in finding.statements


def test_one_stake_may_back_two_messages_a_refresh_interval_apart() -> None:
    evidence = GENUINE["overlapping-chunk"]
    later = send(ALICE, b"another block", at=START + PARAMS.refresh_interval)
    exhibit = Exhibit(
        later.checked(0).attested.encode(), later.checked(0).frame.attestation.signature
    )
    assert not offline(_with(evidence, 1, exhibit)).holds
    sooner = send(ALICE, b"another block", at=START + PARAMS.refresh_interval - 1)
    exhibit = Exhibit(
        sooner.checked(0).attested.encode(), sooner.checked(0).frame.attestation.signature
    )
    assert offline(_with(evidence, 1, exhibit)).holds


def test_two_messages_on_their_own_stake_are_no_overlap() -> None:
    evidence = GENUINE["overlapping-chunk"]
    beside = send(ALICE, b"another block", offset=STAKE // 2).checked(0)
    exhibit = Exhibit(beside.attested.encode(), beside.frame.attestation.signature)
    finding = offline(_with(evidence, 1, exhibit))
    assert not finding.holds
    assert "does not overlap" in finding.statements[-1]


def test_one_chunk_twice_is_no_block() -> None:
    evidence = GENUINE["refused-chunk"]
    finding = offline(_with(evidence, 1, evidence.exhibits[0]))
    assert not finding.holds
    assert "there twice" in finding.statements[-1]


def test_chunks_of_an_honest_producers_two_broadcasts_are_no_block() -> None:
    """The same block, cut in two ways: together they would be rubbish."""
    first = _invalid(b"bad block", CHANNEL, at=START)
    second = _invalid(b"bad block", CHANNEL, at=START - 1)
    finding = offline(_with(first, 1, second.exhibits[1]))
    assert not finding.holds
    assert "not of one broadcast" in finding.statements[-1]
