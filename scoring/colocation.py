"""How many peers share an IP address (P6, gossipsub-v1.1.md, "The Score Function").

An IPv4 address counts by itself, an IPv6 address by itself and by its /64, which
is what one subscriber is given. Loopback, relayed and unknown addresses count
nowhere (go-libp2p-pubsub: score.go, getIPs).
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

from bruit.scoring.addresses import direct_ip
from bruit.topics.keys import PeerId

Block: TypeAlias = IPv4Network | IPv6Network


def shared_blocks(address: str) -> tuple[Block, ...]:
    """What a peer at a multiaddr may share with others; nothing where that is unknown."""
    ip = direct_ip(address)
    if ip is None or ip.is_loopback:
        return ()
    if isinstance(ip, IPv6Address):
        return (IPv6Network(ip), IPv6Network((ip, 64), strict=False))
    return (IPv4Network(ip),)


class Colocation:
    """Peers by address. ``whitelist``: CIDR blocks that may be shared by any number."""

    def __init__(self, threshold: int, whitelist: Iterable[str]) -> None:
        self._threshold = threshold
        self._whitelist = tuple(map(ip_network, whitelist))
        self._blocks: dict[PeerId, tuple[str, ...]] = {}
        self._peers: dict[str, int] = {}  # block → peers on it
        self.version = 0  # grows with every change: a factor found before it may be out of date

    def place(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        """The peer is at these multiaddrs now, and no longer where it was."""
        blocks = tuple(
            dict.fromkeys(
                str(block.network_address) if block.prefixlen == block.max_prefixlen else str(block)
                for address in addresses
                for block in shared_blocks(address)
                if not self._whitelisted(block)
            )
        )
        if blocks == self._blocks.get(peer, ()):
            return
        self.forget(peer)
        self._blocks[peer] = blocks
        for block in blocks:
            self._peers[block] = self._peers.get(block, 0) + 1
        self.version += 1

    def forget(self, peer: PeerId) -> None:
        for block in self._blocks.pop(peer, ()):
            self._peers[block] -= 1
            if not self._peers[block]:
                del self._peers[block]
            self.version += 1

    def factor(self, peer: PeerId) -> float:
        """P6: the squared excess of peers, over all that the peer shares."""
        factor = 0.0
        for block in self._blocks.get(peer, ()):
            excess = self._peers[block] - self._threshold
            if excess > 0:
                factor += float(excess * excess)
        return factor

    def shared(self, peer: PeerId) -> list[tuple[str, int]]:
        """The addresses that the peer counts on, and how many peers are there, itself too."""
        return [(block, self._peers[block]) for block in self._blocks.get(peer, ())]

    def _whitelisted(self, block: Block) -> bool:
        return any(block.network_address in allowed for allowed in self._whitelist)
