"""Files of evidence: what is written is read, and nothing else is."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.evidence import (
    MAX_FILE,
    Evidence,
    Exhibit,
    Kind,
    decode_evidence,
    encode_evidence,
    plain,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import RelayParams
from bruit.topics.errors import LocalError
from tests.relay.consuming import ALICE, CHANNEL, PARAMS, Desk, send


def genuine() -> Evidence:
    desk = Desk()
    desk.feed(send(ALICE, b"bad block"), 0, 1)
    return desk.disputes[0]


GENUINE = genuine()
FILE = encode_evidence(GENUINE)


def test_a_file_is_json_and_comes_back_as_it_was() -> None:
    assert json.loads(FILE)["version"] == 1
    assert json.loads(FILE)["evidence"]["kind"] == "invalid-block"
    assert decode_evidence(FILE) == GENUINE
    assert encode_evidence(decode_evidence(FILE)) == FILE


def test_spaces_do_not_matter() -> None:
    assert decode_evidence(msgspec.json.format(FILE, indent=0)) == GENUINE


def test_a_whole_number_in_the_place_of_a_float_is_read_again() -> None:
    params = RelayParams(refresh_interval=61)
    evidence = msgspec.structs.replace(GENUINE, params=params)
    assert decode_evidence(encode_evidence(evidence)) == evidence


def test_what_no_file_can_hold_is_not_written() -> None:
    with pytest.raises(LocalError, match="cannot be written"):
        encode_evidence(msgspec.structs.replace(GENUINE, message_id=b"toolong"))


def test_another_version_is_named() -> None:
    other = FILE.replace(b'"version": 1', b'"version": 2')
    with pytest.raises(LocalError, match="version 2: this bruit reads version 1"):
        decode_evidence(other)


def test_an_edit_that_would_still_be_evidence_is_noticed() -> None:
    with pytest.raises(LocalError, match="damaged"):
        decode_evidence(FILE.replace(b"it says so", b"it says no"))


def test_a_file_without_end_is_not_read() -> None:
    with pytest.raises(LocalError, match="at most"):
        decode_evidence(bytes(MAX_FILE + 1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message_id", "AAAA"),
        ("producers", []),
        ("producers", ["AAAA"]),
        ("exhibits", []),
        ("reason", "x" * 1001),
        ("reason", "a\u001b[2Jb"),
        ("found_at", -1),
        ("found_at", "now"),
        ("stake", 1 << 32),
        ("kind", "treason"),
        ("more", 1),
        ("validator", "x" * 201),
        ("culprits", ["AAAA"]),
    ],
)
def test_a_field_out_of_bounds_is_refused_even_under_its_own_hash(
    field: str, value: object
) -> None:
    tree = json.loads(FILE)
    tree["evidence"][field] = value
    canonical = json.dumps(tree["evidence"], separators=(",", ":"), ensure_ascii=False).encode()
    tree["keccak256"] = msgspec.to_builtins(keccak256(canonical))
    with pytest.raises(LocalError):
        decode_evidence(json.dumps(tree).encode())


def test_an_impossible_channel_is_refused() -> None:
    channel = msgspec.structs.replace(CHANNEL, min_chunks=9)
    with pytest.raises(LocalError, match="num_chunks"):
        decode_evidence(encode_evidence(msgspec.structs.replace(GENUINE, channel=channel)))


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_local_error(data: bytes) -> None:
    with pytest.raises(LocalError):
        decode_evidence(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(["version", "evidence", "keccak256", "kind"]), JSON), st.data()
)
def test_any_json_is_refused_with_a_local_error(
    tree: dict[str, object], data: st.DataObject
) -> None:
    whole = json.loads(FILE)
    field = data.draw(st.sampled_from(sorted(set(whole["evidence"]) - {"params"})))
    whole["evidence"] |= {field: tree}  # parameters may be left out where they have defaults
    for candidate in (tree, whole):
        with pytest.raises(LocalError):
            decode_evidence(json.dumps(candidate).encode())


@settings(max_examples=400)
@given(
    at=st.integers(0, len(FILE) - 1),
    length=st.integers(0, 3),
    replacement=st.binary(max_size=3),
)
def test_a_changed_file_is_refused_or_says_the_same(
    at: int, length: int, replacement: bytes
) -> None:
    try:
        found = decode_evidence(FILE[:at] + replacement + FILE[at + length :])
    except LocalError:
        return
    assert found == GENUINE


def test_deep_nesting_and_lone_surrogates_are_refused() -> None:
    for data in (
        b"[" * 100_000,
        b'{"version":1,"evidence":' + b"[" * 100_000,
        FILE.replace(b"it says so", b"\\ud800"),
    ):
        with pytest.raises(LocalError):
            decode_evidence(data)


addresses = st.binary(min_size=20, max_size=20)
evidences = st.builds(
    Evidence,
    kind=st.sampled_from(Kind),
    reason=st.text(max_size=50).map(plain),
    found_at=st.floats(0, 1 << 53),
    channel=st.just(CHANNEL),
    params=st.just(PARAMS),
    message_id=st.binary(min_size=4, max_size=4),
    producers=st.lists(addresses, min_size=1, max_size=3).map(tuple),
    culprits=st.lists(addresses, max_size=3).map(tuple),
    exhibits=st.lists(
        st.builds(
            Exhibit,
            st.binary(min_size=52, max_size=52),
            st.binary(min_size=65, max_size=65),
            st.binary(max_size=300),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    validator=st.text(max_size=20).map(plain),
    stake=st.integers(0, 0xFFFF_FFFF),
)


@given(evidences)
def test_any_evidence_comes_back_as_it_was(evidence: Evidence) -> None:
    assert decode_evidence(encode_evidence(evidence)) == evidence
