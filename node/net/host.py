"""The libp2p host: TCP, noise and yamux, with this node's identity.

py-libp2p brings transports, security, multiplexing, identify and the peer
store. Its own pubsub layer, its connection manager's automatic dialling and
its health checks are not used: whom to be connected to is decided here.
"""

import ipaddress
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import libp2p
import multiaddr
import trio
from libp2p.abc import IHost, IMuxedStream, INetConn, INetStream
from libp2p.crypto.ed25519 import Ed25519PrivateKey
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.secp256k1 import Secp256k1PrivateKey
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.config import ConnectionConfig
from libp2p.network.stream.net_stream import NetStream
from libp2p.network.swarm import Swarm
from libp2p.peer.envelope import Envelope, consume_envelope
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStoreError
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from multiaddr.protocols import P_P2P

from bruit.node.net.secure import NoiseTransport
from bruit.node.net.yamux import YAMUX, Muxers, YamuxConnection
from bruit.topics.errors import ConfigError, LocalError, RemoteError
from bruit.topics.keys import KeyType, PeerId, PrivateKey, peer_id_text

# What reading, writing and dialling raise when the other end or the network fails.
NETWORK_ERRORS = (
    BaseLibp2pError,
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)
_RECORD_DOMAIN = "libp2p-peer-record"  # RFC 0003, "Peer Routing Records"
_HANG_UP = 1.0  # seconds for closing connections when a host stops; guess, py-libp2p takes 0.3


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
    host = libp2p.new_host(
        key_pair=keys,
        sec_opt={TProtocol(NOISE): noise},
        muxer_opt={YAMUX: YamuxConnection},
        enable_tcp=True,
        announce_addrs=[multiaddr.Multiaddr(address) for address in announce] or None,
        connection_config=ConnectionConfig(
            max_connections=max_connections,
            min_connections=0,
            low_watermark=0,
            high_watermark=max_connections,
        ),
    )
    cast(Swarm, host.get_network()).upgrader.muxer_multistream = Muxers()
    return host


@asynccontextmanager
async def listening(host: IHost, addresses: Sequence[str]) -> AsyncIterator[None]:
    """Run ``host`` on these addresses. Raises LocalError where one of them is not to be had."""
    for address in addresses:
        _require_free(address)
    async with host.run(listen_addrs=[multiaddr.Multiaddr(address) for address in addresses]):
        network = cast(Swarm, host.get_network())
        try:
            for address in addresses:
                if str(multiaddr.Multiaddr(address)) not in network.listeners:  # left out silently
                    raise LocalError(
                        f"cannot listen on {address}: only /ip4 or /ip6 with /tcp work"
                    )
            # It would dial whomever identify has told of, up to half the connection limit.
            await network.auto_connector.stop()
            yield
        finally:
            # libp2p's own attempt is cancelled before it begins: ports and sockets would stay open.
            with trio.CancelScope(shield=True):
                for listener in network.listeners.values():
                    await listener.close()
                await _hang_up(host)


async def _hang_up(host: IHost) -> None:
    """Close every connection, all at a time."""
    with trio.move_on_after(_HANG_UP):
        async with trio.open_nursery() as nursery:
            for connection in host.get_network().get_connections():
                nursery.start_soon(connection.close)


def _require_free(address: str) -> None:
    """libp2p shares a port with whoever listens on it already (SO_REUSEPORT); we do not."""
    parts = {protocol.name: value for protocol, value in multiaddr.Multiaddr(address).items()}
    family = socket.AF_INET6 if "ip6" in parts else socket.AF_INET
    host, port = str(parts.get("ip6", parts.get("ip4", ""))), int(parts.get("tcp", 0))
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise LocalError(
                f"cannot listen on {address}: {problem.strerror}; choose another with --listen "
                "or network.listen"
            ) from None


def beneath(stream: INetStream) -> IMuxedStream:
    """The muxer's own stream, to read or write much.

    py-libp2p's around it takes a lock, and a pass of the scheduler, each time. Opening,
    closing and resetting are its business still.
    """
    return cast(NetStream, stream).muxed_stream


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


def known_record(host: IHost, peer: PeerId) -> Envelope | None:
    """The signed record of a peer that identify has brought, while its addresses are fresh."""
    try:
        return host.get_peerstore().get_peer_record(ID(peer))
    except PeerStoreError:  # says so where it expired; where there is none, it gives None
        return None


def open_connections(host: IHost, peer: PeerId) -> list[INetConn]:
    """The connections to a peer, the oldest first."""
    connections = host.get_network().get_connections(ID(peer))
    return [connection for connection in connections if not connection.is_closed]


def remote_addresses(connections: Iterable[INetConn]) -> tuple[str, ...]:
    """The multiaddrs of the other ends, each once, as far as they are known."""
    return tuple(
        dict.fromkeys(str(each) for conn in connections for each in conn.get_transport_addresses())
    )


def has_public_address(addresses: Iterable[multiaddr.Multiaddr]) -> bool:
    """Whether one of the addresses has an IP that is reachable from anywhere, or a DNS name."""
    return any(_is_public(address) for address in addresses)


def _is_public(address: multiaddr.Multiaddr) -> bool:
    try:
        for protocol, value in address.items():
            if protocol.name in ("ip4", "ip6") and ipaddress.ip_address(str(value)).is_global:
                return True
            if protocol.name.startswith("dns"):
                return True
    except Exception:  # noqa: BLE001, bytes of a peer that multiaddr parses only now
        return False
    return False
