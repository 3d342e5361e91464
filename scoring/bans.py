"""Who is banned: peers, IP addresses and whole subnets, for a time or until lifted.

A look-up costs one step for the peer and one for every length of prefix in use,
however many bans there are. Times are unix seconds: bans outlive the process.
"""

import math
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

from bruit.scoring.addresses import direct_ip, plain_ip
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, peer_id_from_text, peer_id_text

MAX_BANS = 10_000  # guess: a public block list, in a file that is read in a third of a second
MAX_REASON = 200  # characters; guess
MAPPED_PREFIX = 96  # bits before the IPv4 address in an IPv4-mapped one (RFC 4291, 2.5.5.2)

Subnet: TypeAlias = IPv4Network | IPv6Network


class Ban(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    target: str  # a peer id in base58, an IP address, or a subnet such as 192.0.2.0/24
    since: float  # unix seconds
    until: float | None  # unix seconds; None: until it is lifted
    reason: str = ""

    def over(self, now: float) -> bool:
        return self.until is not None and self.until <= now


class Bans:
    def __init__(self, bans: Iterable[Ban] = ()) -> None:
        """Of several bans of one target the last counts. Raises LocalError for a broken one."""
        self._bans: dict[PeerId | Subnet, Ban] = {}
        self._lengths: dict[int, dict[int, int]] = {4: {}, 6: {}}  # IP version → prefix → bans
        for ban in bans:
            self._put(ban)

    def ban(self, target: str, seconds: float | None, reason: str, now: float) -> Ban:
        """Ban a target (see `parse_target`), in place of any ban that it had.

        Raises LocalError, with nothing changed, where that makes no sense.
        """
        if seconds is not None and not 0 < seconds < math.inf:
            raise LocalError(f"a ban for {seconds} s: give a number above 0, or none for ever")
        until = None if seconds is None else now + seconds
        ban = Ban(target=target, since=now, until=until, reason=reason)
        return self._put(ban)

    def lift(self, target: str) -> bool:
        """End a ban; False where there is none. Raises LocalError for an impossible target."""
        return self._remove(parse_target(target)) is not None

    def banning(self, peer: PeerId, address: str, now: float) -> Ban | None:
        """What bans a peer that is, or wants to be, connected from a multiaddr.

        Either may be empty, where it is not known. A ban of the peer comes before
        those of its address, and of these the longest prefix first.
        """
        ban = self._bans.get(peer)
        if ban is not None and not ban.over(now):
            return ban
        ip = direct_ip(address)
        if ip is None:
            return None
        for length in sorted(self._lengths[ip.version], reverse=True):
            ban = self._bans.get(ip_network((ip, length), strict=False))
            if ban is not None and not ban.over(now):
                return ban
        return None

    def expire(self, now: float) -> list[Ban]:
        """Forget the bans that are over, and return them."""
        over = [(target, ban) for target, ban in self._bans.items() if ban.over(now)]
        for target, _ in over:
            self._remove(target)
        return [ban for _, ban in over]

    def __iter__(self) -> Iterator[Ban]:
        """In the order in which the targets were first banned, those that are over included."""
        return iter(self._bans.values())

    def __len__(self) -> int:
        return len(self._bans)

    def _put(self, ban: Ban) -> Ban:
        if len(ban.reason) > MAX_REASON or not ban.reason.isprintable():
            raise LocalError(
                f"reason {ban.reason[:40]!r}…: give at most {MAX_REASON} printable characters"
            )
        target = parse_target(ban.target)
        ban = msgspec.structs.replace(ban, target=target_text(target))
        if target not in self._bans:
            if len(self._bans) >= MAX_BANS:
                raise LocalError(f"{MAX_BANS} targets are banned, the most there can be: lift some")
            if not isinstance(target, bytes):
                lengths = self._lengths[target.version]
                lengths[target.prefixlen] = lengths.get(target.prefixlen, 0) + 1
        self._bans[target] = ban
        return ban

    def _remove(self, target: PeerId | Subnet) -> Ban | None:
        ban = self._bans.pop(target, None)
        if ban is not None and not isinstance(target, bytes):
            lengths = self._lengths[target.version]
            lengths[target.prefixlen] -= 1
            if not lengths[target.prefixlen]:
                del lengths[target.prefixlen]
        return ban


def parse_target(text: str) -> PeerId | Subnet:
    """What a text bans; an IP address is a subnet of its own.

    Taken are a peer id (base58 or CID), an IP address, a subnet in CIDR notation,
    and a multiaddr, which means its IP address. IPv4-mapped addresses are IPv4.
    Raises LocalError where it is none of these, or would ban everybody.
    """
    if text.startswith("/"):
        return _of_multiaddr(text)
    if "/" in text:
        return _subnet(text)
    ip = plain_ip(text)
    if ip is not None:
        return ip_network(ip)
    try:
        return peer_id_from_text(text)
    except LocalError:
        raise LocalError(
            f"{text[:80]!r} cannot be banned: expected a peer id, an IP address, "
            "or a subnet such as 192.0.2.0/24"
        ) from None


def target_text(target: PeerId | Subnet) -> str:
    """The one way in which a target is written: what `Ban.target` holds."""
    if isinstance(target, bytes):
        return peer_id_text(target)
    single = target.prefixlen == target.max_prefixlen
    return str(target.network_address if single else target)


def _of_multiaddr(text: str) -> Subnet:
    if "/p2p/" in text:
        raise LocalError(
            f"{text[:80]!r} names an address and a peer: ban the one or the other, or both in turn"
        )
    ip = direct_ip(text)
    if ip is None:
        raise LocalError(f"{text[:80]!r} holds no IP address: ban an address or a peer id")
    return ip_network(ip)


def _subnet(text: str) -> Subnet:
    address, _, length = text.partition("/")
    try:
        # A mask in place of the length is not taken: it can be read in two ways.
        if "%" in text or not (length.isascii() and length.isdigit()):
            raise ValueError
        subnet = ip_network(text, strict=False)
        first = ip_address(address)
    except ValueError:
        raise LocalError(
            f"{text[:80]!r} is no subnet: expected an address and a length, as in 192.0.2.0/24"
        ) from None
    if first != subnet.network_address:
        raise LocalError(f"{text} has bits beyond the length of its prefix: was {subnet} meant?")
    if isinstance(subnet, IPv6Network):
        mapped = subnet.network_address.ipv4_mapped
        if mapped is not None and subnet.prefixlen >= MAPPED_PREFIX:
            subnet = IPv4Network((mapped, subnet.prefixlen - MAPPED_PREFIX))
    if not subnet.prefixlen:
        raise LocalError(f"{text} bans everybody: close the port instead, or give a longer prefix")
    return subnet
