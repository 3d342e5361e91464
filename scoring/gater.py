"""Random early drop while validation is overloaded, as in go-libp2p-pubsub (peer_gater.go).

Theory of operation. While more than a share of the messages that come to be
validated find no room, the gater is on, until a quiet time has passed without
such an event. While it is on, a peer's messages are let in with the probability

    (1 + deliver) / (1 + deliver + w_d · duplicate + w_i · ignore + w_r · reject)

of counters that all peers at one address share, and that decay. A peer of no
history is let in; nobody is shut out for good; control is never dropped.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Network
from typing import TypeAlias

import msgspec

from bruit.scoring.addresses import IPAddress, direct_ip
from bruit.scoring.seam import Refusal
from bruit.topics.errors import ConfigError
from bruit.topics.keys import PeerId

MAX_RETAINED = 10_000  # sources without a connected peer that are remembered; guess
MAX_DEPARTED = 1000  # peers that left since the last refresh and are still charged; guess
DECAY_TO_ZERO = 0.01  # go: DefaultDecayToZero


class GaterParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults are go-libp2p-pubsub's. Times in seconds; decays apply once per interval."""

    threshold: float = 0.33  # of messages throttled per message validated: on from here
    global_decay: float = DECAY_TO_ZERO ** (1 / 120)  # of those two: to nothing in 2 minutes
    source_decay: float = DECAY_TO_ZERO ** (1 / 3600)  # of an address' counters: in an hour
    decay_interval: float = 1.0
    decay_to_zero: float = DECAY_TO_ZERO  # counters below it become 0
    retain_stats: float = 21_600.0  # an address' counters are kept when its last peer has left
    quiet: float = 60.0  # without a throttled message: off
    duplicate_weight: float = 0.125
    ignore_weight: float = 1.0
    reject_weight: float = 16.0
    topic_delivery_weights: Mapping[str, float] = {}  # of a delivery; topics not named weigh 1

    def check(self, path: str = "gater") -> None:
        """Raise ConfigError at the first value out of range. The ranges are go's."""
        for name, low, high in (
            ("threshold", 0.0, math.inf),
            ("global_decay", 0.0, 1.0),
            ("source_decay", 0.0, 1.0),
            ("decay_to_zero", 0.0, 1.0),
            ("duplicate_weight", 0.0, math.inf),
        ):
            value = getattr(self, name)
            if not low < value < high:
                rule = "> 0 and finite" if high == math.inf else "between 0 and 1, neither of them"
                raise ConfigError(f"{path}.{name}", f"{value} must be {rule}")
        for name, least in (
            ("decay_interval", 1.0),
            ("quiet", 1.0),
            ("ignore_weight", 1.0),
            ("reject_weight", 1.0),
            ("retain_stats", 0.0),
        ):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise ConfigError(f"{path}.{name}", f"{value} must be ≥ {least:g} and finite")
        for topic, weight in self.topic_delivery_weights.items():
            if not 0 < weight < math.inf:
                raise ConfigError(
                    f'{path}.topic_delivery_weights."{topic}"', f"{weight} must be > 0 and finite"
                )


# Whom counters are kept for: an IPv4 address or an IPv6 /64, which is what one
# subscriber is given (go: the address).
Source: TypeAlias = IPAddress | IPv6Network | str
# Everybody whose address is unknown or a relay's (go: the same): were they counted
# one by one, a new identity would wash off everything.
NOWHERE = "nowhere"


class _Stats:
    """What the peers of one source have sent."""

    __slots__ = ("connected", "deliver", "duplicate", "ignore", "reject")

    def __init__(self) -> None:
        self.connected = 0  # peers
        self.deliver = self.duplicate = self.ignore = self.reject = 0.0

    def decay(self, factor: float, to_zero: float) -> None:
        self.deliver = _decayed(self.deliver, factor, to_zero)
        self.duplicate = _decayed(self.duplicate, factor, to_zero)
        self.ignore = _decayed(self.ignore, factor, to_zero)
        self.reject = _decayed(self.reject, factor, to_zero)


def _decayed(counter: float, factor: float, to_zero: float) -> float:
    counter *= factor
    return 0.0 if counter < to_zero else counter


def source_of(address: str) -> Source:
    """Whom a peer at a multiaddr shares its counters with."""
    ip = direct_ip(address)
    if ip is None:
        return NOWHERE
    return IPv6Network((ip, 64), strict=False) if isinstance(ip, IPv6Address) else ip


class PeerGater:
    """Whose messages are let in. Times are seconds on the clock of the router.

    What is said of a peer that is not connected is not counted, except shortly
    after it left: what it sent last is still being judged then.
    """

    def __init__(self, params: GaterParams, rng: random.Random) -> None:
        self.params = params
        self._rng = rng
        self._validated = 0.0  # messages, decayed
        self._throttled = 0.0  # the same
        self._last_throttled = -math.inf
        self._sources: dict[PeerId, Source] = {}  # of connected peers
        self._departed: dict[PeerId, Source] = {}  # of those who left since the last refresh
        self._stats: dict[Source, _Stats] = {}
        self._retained: OrderedDict[Source, float] = OrderedDict()  # source → until

    def connected(self, peer: PeerId, address: str, now: float) -> None:
        """The peer is connected from a multiaddr; said again when the address changes.

        An empty address is an unknown one, which replaces no known one.
        """
        source = source_of(address)
        if peer in self._sources:
            if not address or self._sources[peer] == source:
                return
            self.disconnected(peer, now)
        self._sources[peer] = source
        self._stats.setdefault(source, _Stats()).connected += 1
        self._retained.pop(source, None)

    def disconnected(self, peer: PeerId, now: float) -> None:
        if peer not in self._sources:
            return
        source = self._sources.pop(peer)
        if len(self._departed) < MAX_DEPARTED:
            self._departed[peer] = source
        stats = self._stats[source]
        stats.connected -= 1
        if not stats.connected:
            self._retained[source] = now + self.params.retain_stats
            if len(self._retained) > MAX_RETAINED:
                self._forget(next(iter(self._retained)))

    def validating(self, now: float) -> None:
        """A message proved to be its author's and new, and goes on to be judged."""
        self._validated += 1

    def delivered(self, peer: PeerId, topic: str) -> None:
        """The peer was the first to send a message that then proved valid."""
        stats = self._stats_of(peer)
        if stats is not None:
            stats.deliver += self.params.topic_delivery_weights.get(topic, 1.0)

    def duplicate(self, peer: PeerId) -> None:
        stats = self._stats_of(peer)
        if stats is not None:
            stats.duplicate += 1

    def refused(self, peer: PeerId, refusal: Refusal, now: float) -> None:
        """A message was not accepted: for want of room, or by fault of who sent it first.

        A banned author is our own opinion, and nobody's fault who passes it on
        (go counts it as a reject).
        """
        if refusal in (Refusal.QUEUE_FULL, Refusal.THROTTLED):
            self._throttled += 1
            self._last_throttled = now
            return
        stats = self._stats_of(peer)
        if stats is None or refusal is Refusal.BANNED:
            return
        if refusal is Refusal.IGNORED:
            stats.ignore += 1
        else:
            stats.reject += 1

    def refresh(self, now: float) -> None:
        """Decay the counters, once: to be called every ``decay_interval``.

        Counters of a source stand still while none of its peers is connected.
        """
        params = self.params
        self._departed.clear()
        self._validated = _decayed(self._validated, params.global_decay, params.decay_to_zero)
        self._throttled = _decayed(self._throttled, params.global_decay, params.decay_to_zero)
        while self._retained:
            source, until = next(iter(self._retained.items()))
            if until >= now:
                break
            self._forget(source)
        for stats in self._stats.values():
            if stats.connected:
                stats.decay(params.source_decay, params.decay_to_zero)

    def accepts(self, peer: PeerId, now: float) -> bool:
        """Whether to take the peer's messages now; its control is taken in any case."""
        params = self.params
        if now - self._last_throttled > params.quiet or self._throttled == 0:
            return True
        if self._validated and self._throttled / self._validated < params.threshold:
            return True
        stats = self._stats_of(peer)
        if stats is None:
            return True
        total = (
            stats.deliver
            + params.duplicate_weight * stats.duplicate
            + params.ignore_weight * stats.ignore
            + params.reject_weight * stats.reject
        )
        if total == 0:
            return True
        return self._rng.random() < (1 + stats.deliver) / (1 + total)

    def _stats_of(self, peer: PeerId) -> _Stats | None:
        source = self._sources.get(peer, self._departed.get(peer))
        return None if source is None else self._stats.get(source)

    def _forget(self, source: Source) -> None:
        del self._retained[source]
        del self._stats[source]
