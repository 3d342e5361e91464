"""Key files. The vectors are those of libp2p specs, peer-ids/peer-ids.md, "Test vectors"."""

import base64
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.identity import (
    KEY_TYPES,
    MAX_KEY_FILE,
    create_key_file,
    decode_private_key,
    encode_private_key,
    load_key_file,
    new_key,
)
from bruit.topics.errors import LocalError
from bruit.topics.keys import KeyType

VECTORS = {
    KeyType.ED25519: (
        (
            "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
            "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
        ),
        "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
    ),
    KeyType.SECP256K1: (
        "0802122053dadf1d5a164d6b4acdb15e24aa4c5b1d3461bdbd42abedb0a4404d56ced8fb",
        "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99",
    ),
}
# Order of the secp256k1 group (SEC 2, section 2.4.1).
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@pytest.mark.parametrize("kind", VECTORS)
def test_the_vectors_of_the_specification_decode_and_encode_again(kind: KeyType) -> None:
    private, public = (bytes.fromhex(text) for text in VECTORS[kind])
    key = decode_private_key(private)
    assert key.kind is kind
    assert key.public_key().encode() == public
    assert encode_private_key(key) == private


@pytest.mark.parametrize("kind", KEY_TYPES.values())
def test_a_created_key_is_read_back_from_a_file_that_only_its_owner_can_read(
    kind: KeyType, tmp_path: Path
) -> None:
    path, key = tmp_path / "node.key", new_key(kind)
    create_key_file(path, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key_file(path) == key


def test_a_key_written_by_another_libp2p_is_read(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    private, public = VECTORS[KeyType.ED25519]
    path.write_bytes(base64.b64encode(bytes.fromhex(private)))  # without a newline
    path.chmod(0o600)
    assert load_key_file(path).public_key().encode().hex() == public


def test_two_new_keys_differ() -> None:
    assert new_key() != new_key()


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    create_key_file(path, new_key())
    before = path.read_bytes()
    with pytest.raises(LocalError, match="never overwritten"):
        create_key_file(path, new_key())
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o666])
def test_a_key_that_others_can_reach_is_refused_with_the_command_that_helps(
    mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "node.key"
    create_key_file(path, new_key())
    path.chmod(mode)
    with pytest.raises(LocalError, match=f"chmod 600 {path}"):
        load_key_file(path)


def test_a_missing_key_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="bruit keys new"):
        load_key_file(tmp_path / "node.key")


def test_a_key_in_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="cannot be created: No such file"):
        create_key_file(tmp_path / "nowhere" / "node.key", new_key())


def test_a_folder_in_the_place_of_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="cannot be read: Is a directory"):
        load_key_file(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not base64!",
        base64.b64encode(b"\x08\x01"),
        base64.b64encode(bytes.fromhex(VECTORS[KeyType.ED25519][0])[:-1]),
        base64.b64encode(bytes.fromhex(VECTORS[KeyType.ED25519][1])),
        b"A" * (MAX_KEY_FILE + 8),
    ],
    ids=["empty", "not base64", "short", "cut", "a public key", "long"],
)
def test_a_file_that_holds_no_key_is_refused_without_showing_what_it_holds(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "node.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(LocalError, match="holds no key") as caught:
        load_key_file(path)
    assert len(content) < 3 or content.decode() not in str(caught.value)


def test_an_ed25519_key_with_somebody_elses_public_half_is_refused() -> None:
    encoded = bytearray.fromhex(VECTORS[KeyType.ED25519][0])
    encoded[-1] ^= 1
    with pytest.raises(LocalError):
        decode_private_key(bytes(encoded))


@pytest.mark.parametrize("scalar", [0, ORDER, 2**256 - 1])
def test_a_secp256k1_scalar_outside_the_group_is_refused(scalar: int) -> None:
    with pytest.raises(LocalError):
        decode_private_key(bytes((8, 2, 18, 32)) + scalar.to_bytes(32, "big"))


@given(
    st.binary(max_size=100) | st.binary(max_size=70).map(lambda tail: b"\x08\x02\x12\x20" + tail)
)
def test_any_bytes_decode_to_a_key_that_encodes_to_them_or_are_refused(data: bytes) -> None:
    try:
        key = decode_private_key(data)
    except LocalError:
        return
    assert encode_private_key(key) == data
