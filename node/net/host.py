"""The libp2p host: TCP, noise and yamux, with this node's identity.

py-libp2p brings transports, security, multiplexing, identify and the peer
store. Its own pubsub layer, its connection manager's automatic dialling and
its health checks are not used: whom to be connected to is decided here.
"""

from collections.abc import Sequence

import libp2p
import multiaddr
import trio
from libp2p.abc import IHost
from libp2p.crypto.ed25519 import Ed25519PrivateKey
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.secp256k1 import Secp256k1PrivateKey
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.config import ConnectionConfig
from libp2p.peer.envelope import consume_envelope
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from multiaddr.protocols import P_P2P

from bruit.topics.errors import ConfigError, RemoteError
from bruit.topics.keys import KeyType, PeerId, PrivateKey, peer_id_text

# What reading, writing and dialling raise when the other end or the network fails.
NETWORK_ERRORS = (
    BaseLibp2pError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)
_RECORD_DOMAIN = "libp2p-peer-record"  # RFC 0003, "Peer Routing Records"
_NEVER = 1e9  # seconds


def libp2p_keys(key: PrivateKey) -> KeyPair:
    if key.kind is KeyType.ED25519:
        ed25519 = Ed25519PrivateKey.from_bytes(key.secret)
        return KeyPair(ed25519, ed25519.get_public_key())
    secp256k1 = Secp256k1PrivateKey.from_bytes(key.secret)
    return KeyPair(secp256k1, secp256k1.get_public_key())


def new_host(key: PrivateKey, max_peers: int, announce: Sequence[str] = ()) -> IHost:
    """A host that is not listening yet. ``announce``: addresses to advertise instead of its own."""
    # The driver turns surplus peers away; the host only needs room to let it.
    max_connections = 2 * max_peers + 16
    keys = libp2p_keys(key)
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    return libp2p.new_host(
        key_pair=keys,
        sec_opt={TProtocol(NOISE): noise},
        muxer_opt=libp2p.create_yamux_muxer_option(),
        enable_tcp=True,
        announce_addrs=[multiaddr.Multiaddr(address) for address in announce] or None,
        connection_config=ConnectionConfig(
            max_connections=max_connections,
            min_connections=0,
            low_watermark=0,  # no automatic dialling
            high_watermark=max_connections,
            auto_connect_interval=_NEVER,
        ),
    )


def parse_address(text: str, path: str) -> tuple[PeerId, multiaddr.Multiaddr]:
    """The peer id and the dialable part of ``/ip4/…/tcp/…/p2p/ID``. Raises ConfigError."""
    try:
        address = multiaddr.Multiaddr(text)
        peer = ID.from_base58(address.value_for_protocol("p2p") or "").to_bytes()
    except Exception as problem:
        raise ConfigError(
            path, f"{text!r} is not an address such as /ip4/192.0.2.1/tcp/4001/p2p/12D3KooW…"
        ) from problem
    return peer, address.decapsulate_code(P_P2P)


def record_addresses(peer: PeerId, envelope: bytes) -> list[multiaddr.Multiaddr]:
    """The addresses in a signed peer record. Raises RemoteError unless ``peer`` signed it."""
    try:
        signed, record = consume_envelope(envelope, _RECORD_DOMAIN)
    except Exception as problem:  # noqa: BLE001, the decoder raises what protobuf raises
        raise RemoteError(f"peer record that does not verify: {problem}") from None
    signer = ID.from_pubkey(signed.public_key).to_bytes()
    if record.peer_id.to_bytes() != peer or signer != peer:
        raise RemoteError(f"peer record that is not of {peer_id_text(peer)}")
    return list(record.addrs)
