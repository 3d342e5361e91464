"""From which IP address a peer speaks: what bans, colocation and the gater go by."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address

MAX_ADDRESS = 512  # characters of a multiaddr looked at; guess: real ones are under 200


def direct_ip(address: str) -> IPAddress | None:
    """The IP address at the other end of a multiaddr, or None where it does not say.

    None for a relayed address (it names the relay, not the peer), a DNS name, and
    whatever is no multiaddr. An IPv4-mapped IPv6 address is the IPv4 address; a
    zone is left out. Loopback and private addresses count like any other.
    """
    if len(address) > MAX_ADDRESS:
        return None
    empty, *parts = address.split("/")
    if empty or "p2p-circuit" in parts:
        return None
    if parts[:1] == ["ip6zone"]:
        parts = parts[2:]
    if len(parts) < 2 or parts[0] not in ("ip4", "ip6"):
        return None
    found = _ip(parts[1])
    if found is None or f"ip{found.version}" != parts[0]:
        return None
    return _plain(found)


def plain_ip(text: str) -> IPAddress | None:
    """An IP address by itself, with the same liberties; None where ``text`` is none."""
    found = _ip(text) if len(text) <= MAX_ADDRESS else None
    return None if found is None else _plain(found)


def _ip(text: str) -> IPAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _plain(address: IPAddress) -> IPAddress:
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))  # the number has no zone
