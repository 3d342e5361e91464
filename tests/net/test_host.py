"""The libp2p host: the same identity on both sides, records that verify, addresses that parse."""

import time

import libp2p.peer.pb.peer_record_pb2 as record_pb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libp2p.peer.envelope import Envelope, seal_record
from libp2p.peer.id import ID
from libp2p.peer.peer_record import PeerRecord
from multiaddr import Multiaddr

from bruit.node.identity import new_key
from bruit.node.net.host import (
    has_public_address,
    known_record,
    libp2p_keys,
    new_host,
    parse_address,
    record_addresses,
)
from bruit.topics.errors import ConfigError, RemoteError
from bruit.topics.keys import KeyType, PeerId, PrivateKey, PublicKey, peer_id_text

KINDS = [KeyType.ED25519, KeyType.SECP256K1]
ADDRESSES = [Multiaddr("/ip4/192.0.2.1/tcp/4001"), Multiaddr("/ip6/2001:db8::1/tcp/4001")]
# peer-ids.md, "Test vectors": the ids that go with the keys of the same place.
ED25519_ID = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


def peer_id(key: PrivateKey) -> PeerId:
    return key.public_key().peer_id()


def sealed(key: PrivateKey, about: PeerId, addresses: list[Multiaddr] = ADDRESSES) -> Envelope:
    """A record about a peer, signed by ``key``."""
    return seal_record(PeerRecord(ID(about), addresses), libp2p_keys(key).private_key)


# Identity


@pytest.mark.parametrize("kind", KINDS)
async def test_the_host_has_the_id_that_the_key_has(kind: KeyType) -> None:
    key = new_key(kind)
    host = new_host(key, 10)
    assert host.get_id().to_bytes() == peer_id(key)
    assert str(host.get_id()) == peer_id_text(peer_id(key))


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_host_signs_our_public_key_verifies(kind: KeyType) -> None:
    key = new_key(kind)
    keys = libp2p_keys(key)
    assert keys.public_key.serialize() == key.public_key().encode()
    assert key.public_key().verify(b"data", keys.private_key.sign(b"data"))
    assert keys.public_key.verify(b"data", key.sign(b"data"))


# Signed peer records


@pytest.mark.parametrize("kind", KINDS)
def test_the_addresses_of_a_record_that_its_peer_signed_come_back(kind: KeyType) -> None:
    key = new_key(kind)
    envelope = sealed(key, peer_id(key)).marshal_envelope()
    assert record_addresses(peer_id(key), envelope) == ADDRESSES


def test_the_record_of_another_peer_is_refused() -> None:
    key, other = new_key(), new_key()
    envelope = sealed(other, peer_id(other)).marshal_envelope()
    with pytest.raises(RemoteError, match=f"is not of {peer_id_text(peer_id(key))}"):
        record_addresses(peer_id(key), envelope)


def test_a_record_about_a_peer_that_another_signed_is_refused() -> None:
    key, forger = new_key(), new_key()
    envelope = sealed(forger, peer_id(key)).marshal_envelope()
    with pytest.raises(RemoteError, match=f"is not of {peer_id_text(peer_id(key))}"):
        record_addresses(peer_id(key), envelope)


def test_a_record_about_another_peer_that_this_one_signed_is_refused() -> None:
    key, other = new_key(), new_key()
    envelope = sealed(key, peer_id(other)).marshal_envelope()
    with pytest.raises(RemoteError, match="is not of"):
        record_addresses(peer_id(key), envelope)


def test_a_changed_record_is_refused() -> None:
    key = new_key()
    envelope = sealed(key, peer_id(key))
    body = record_pb.PeerRecord.FromString(envelope.raw_payload)
    body.addresses[0].multiaddr = Multiaddr("/ip4/192.0.2.66/tcp/4001").to_bytes()
    envelope.raw_payload = body.SerializeToString()
    with pytest.raises(RemoteError, match="does not verify"):
        record_addresses(peer_id(key), envelope.marshal_envelope())


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_as_a_record(envelope: bytes) -> None:
    with pytest.raises(RemoteError):
        record_addresses(b"\x00\x01p", envelope)


KEY = new_key()
ENVELOPE = sealed(KEY, peer_id(KEY)).marshal_envelope()


@given(st.integers(0, len(ENVELOPE) - 1), st.integers(1, 255))
def test_no_changed_byte_of_a_record_moves_a_peer(place: int, difference: int) -> None:
    changed = bytearray(ENVELOPE)
    changed[place] ^= difference
    try:
        addresses = record_addresses(peer_id(KEY), bytes(changed))
    except RemoteError:
        return
    assert addresses == ADDRESSES


def test_a_record_is_known_until_its_addresses_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    host, key = new_host(new_key(), 10), new_key()
    store, envelope = host.get_peerstore(), sealed(key, peer_id(key))
    assert known_record(host, peer_id(key)) is None
    store.consume_peer_record(envelope, 7200)
    assert known_record(host, peer_id(key)) == envelope
    later = time.time() + 7202
    monkeypatch.setattr(time, "time", lambda: later)
    assert known_record(host, peer_id(key)) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_an_address_that_is_public_or_is_not(address: bytes) -> None:
    assert has_public_address([Multiaddr(address)]) in (True, False)


# Addresses


def test_an_address_is_split_into_who_and_where() -> None:
    peer, where = parse_address(f"/ip4/192.0.2.1/tcp/4001/p2p/{ED25519_ID}", "network.peers[0]")
    assert peer_id_text(peer) == ED25519_ID
    assert str(where) == "/ip4/192.0.2.1/tcp/4001"


@pytest.mark.parametrize("kind", KeyType)
def test_ids_of_all_key_types_are_taken(kind: KeyType) -> None:
    peer = PublicKey(kind, bytes(33)).peer_id()
    address = f"/dns4/relay.example/tcp/4001/p2p/{peer_id_text(peer)}"
    assert parse_address(address, "path") == (peer, Multiaddr("/dns4/relay.example/tcp/4001"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "192.0.2.1:4001",
        "/ip4/192.0.2.1/tcp/4001",
        "/ip4/192.0.2.1/tcp/4001/p2p/",
        "/ip4/192.0.2.1/tcp/4001/p2p/nobody",
        f"/ip4/192.0.2.1/tcp/70000/p2p/{ED25519_ID}",
        f"/ip4/192.0.2.300/tcp/4001/p2p/{ED25519_ID}",
        f"/nonsense/192.0.2.1/p2p/{ED25519_ID}",
    ],
)
def test_a_bad_address_is_an_error_that_names_its_place_and_itself(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text, "network.peers[3]")
    assert caught.value.path == "network.peers[3]"
    assert repr(text) in str(caught.value)


@given(st.text(max_size=80) | st.text(alphabet="/ip4tcpdns:.0123456789QmAz", max_size=80))
def test_any_text_is_an_address_or_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text, "path")  # no text this short and random ends in a peer id


@pytest.mark.parametrize(
    ("addresses", "public"),
    [
        ([], False),
        (["/ip4/192.168.1.1/tcp/4001"], False),
        (["/ip4/127.0.0.1/tcp/4001", "/ip6/fe80::1/tcp/4001"], False),
        (["/ip4/8.8.8.8/tcp/4001"], True),
        (["/ip4/10.0.0.1/tcp/4001", "/ip6/2606:4700::1111/tcp/4001"], True),
        (["/dns4/node.example/tcp/4001"], True),
    ],
)
def test_an_address_is_public_if_anybody_can_reach_it(addresses: list[str], public: bool) -> None:
    """go: TestCheckPubAddrsOnSignedPeerRecord; the ranges are IANA's special-purpose ones."""
    assert has_public_address([Multiaddr(address) for address in addresses]) is public
