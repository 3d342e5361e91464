"""Peer scores as a slow and obvious model: gossipsub-v1.1.md with dictionaries.

Written from the specification's formulas and go-libp2p-pubsub's choices, sharing
nothing with `bruit.scoring` but the parameters and the names of refusals. Each
score is computed from nothing whenever it is asked for.
"""

import ipaddress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.seam import Refusal
from bruit.topics.keys import PeerId


@dataclass
class TopicState:
    in_mesh: bool = False
    grafted: float = 0.0
    mesh_time: Fraction = Fraction(0)
    active: bool = False
    p2: float = 0.0
    p3: float = 0.0
    p3b: float = 0.0
    p4: float = 0.0


@dataclass
class PeerState:
    connected: bool = True
    expires: float = 0.0
    addresses: tuple[str, ...] = ()
    topics: dict[str, TopicState] = field(default_factory=dict)
    app: float = 0.0
    p7: float = 0.0
    slow: float = 0.0


@dataclass
class Message:
    expires: float
    state: str = "unknown"
    validated: float = 0.0
    counted: list[PeerId] = field(default_factory=list)


def elapsed(start: float, end: float) -> Fraction:
    """Seconds between two times that are meant to lie on whole microseconds."""
    return Fraction(round((end - start) * 1_000_000), 1_000_000)


def places(address: str) -> list[str]:
    words = address.split("/")
    if "p2p-circuit" in words:
        return []
    for kind, text in pairwise(words):
        if kind == "ip4":
            ip4 = ipaddress.IPv4Address(text)
            return [] if ip4.is_loopback else [str(ip4)]
        if kind == "ip6":
            ip6 = ipaddress.IPv6Address(text)
            if ip6.ipv4_mapped is not None:
                return places(f"/ip4/{ip6.ipv4_mapped}")
            if ip6.is_loopback:
                return []
            return [str(ip6), f"{ip6.exploded[:19]}::/64"]
    return []


class Oracle:
    def __init__(self, params: PeerScoreParams) -> None:
        self.params = params
        self.topics: dict[str, TopicScoreParams] = dict(params.topics)
        self.peers: dict[PeerId, PeerState] = {}
        self.messages: dict[bytes, Message] = {}

    def topic(self, name: str) -> TopicScoreParams | None:
        return self.topics.get(name, self.params.default_topic)

    def state(self, peer: PeerId, topic: str) -> TopicState | None:
        if peer not in self.peers or self.topic(topic) is None:
            return None
        return self.peers[peer].topics.setdefault(topic, TopicState())

    # --- the formula

    def score(self, peer: PeerId) -> float:
        if peer not in self.peers:
            return 0.0
        known, params = self.peers[peer], self.params
        total = 0.0
        for name, state in known.topics.items():
            topic = self.topic(name)
            assert topic is not None
            score = 0.0
            if state.in_mesh:
                quanta = state.mesh_time // elapsed(0, topic.time_in_mesh_quantum)
                score += min(quanta, topic.time_in_mesh_cap) * topic.time_in_mesh_weight
            score += state.p2 * topic.first_message_deliveries_weight
            score += self.deficit(topic, state) ** 2 * topic.mesh_message_deliveries_weight
            score += state.p3b * topic.mesh_failure_penalty_weight
            score += state.p4**2 * topic.invalid_message_deliveries_weight
            total += topic.topic_weight * score
        if params.topic_score_cap > 0:
            total = min(total, params.topic_score_cap)
        total += params.app_specific_weight * known.app
        total += params.ip_colocation_factor_weight * self.p6(known)
        if known.p7 > params.behaviour_penalty_threshold:
            excess = known.p7 - params.behaviour_penalty_threshold
            total += params.behaviour_penalty_weight * excess**2
        if known.slow > params.slow_peer_threshold:
            total += params.slow_peer_weight * (known.slow - params.slow_peer_threshold)
        return total

    def deficit(self, topic: TopicScoreParams, state: TopicState) -> float:
        if state.active and state.p3 < topic.mesh_message_deliveries_threshold:
            return topic.mesh_message_deliveries_threshold - state.p3
        return 0.0

    def p6(self, known: PeerState) -> int:
        result = 0
        for place in sorted({place for address in known.addresses for place in places(address)}):
            network = place.split("/")[0]
            if any(
                ipaddress.ip_address(network) in ipaddress.ip_network(block)
                for block in self.params.ip_colocation_factor_whitelist
            ):
                continue
            here = sum(
                any(place in places(address) for address in other.addresses)
                for other in self.peers.values()
            )
            result += max(0, here - self.params.ip_colocation_factor_threshold) ** 2
        return result

    # --- events

    def refresh(self, now: float) -> None:
        def decay(value: float, factor: float) -> float:
            return value * factor if value * factor >= self.params.decay_to_zero else 0.0

        for peer, known in list(self.peers.items()):
            if not known.connected:
                if now > known.expires:
                    del self.peers[peer]
                continue
            known.p7 = decay(known.p7, self.params.behaviour_penalty_decay)
            known.slow = decay(known.slow, self.params.slow_peer_decay)
            for name, state in known.topics.items():
                topic = self.topic(name)
                assert topic is not None
                state.p2 = decay(state.p2, topic.first_message_deliveries_decay)
                state.p3 = decay(state.p3, topic.mesh_message_deliveries_decay)
                state.p3b = decay(state.p3b, topic.mesh_failure_penalty_decay)
                state.p4 = decay(state.p4, topic.invalid_message_deliveries_decay)
                if state.in_mesh:
                    state.mesh_time = elapsed(state.grafted, now)
                    if state.mesh_time > elapsed(0, topic.mesh_message_deliveries_activation):
                        state.active = True
        self.messages = {key: each for key, each in self.messages.items() if each.expires >= now}

    def connected(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        known = self.peers.setdefault(peer, PeerState())
        known.connected = True
        if any(addresses):
            known.addresses = addresses

    def disconnected(self, peer: PeerId, now: float) -> None:
        if peer not in self.peers or not self.peers[peer].connected:
            return
        if self.score(peer) > 0:
            del self.peers[peer]
            return
        known = self.peers[peer]
        for name in known.topics:
            self.pruned(peer, name)
            known.topics[name].p2 = 0
        known.connected = False
        known.expires = now + self.params.retain_score

    def grafted(self, peer: PeerId, topic: str, now: float) -> None:
        state = self.state(peer, topic)
        if state is not None and self.peers[peer].connected:
            state.in_mesh, state.grafted = True, now
            state.mesh_time, state.active = Fraction(0), False

    def pruned(self, peer: PeerId, topic: str) -> None:
        state, params = self.state(peer, topic), self.topic(topic)
        if state is not None and params is not None and state.in_mesh:
            state.p3b += self.deficit(params, state) ** 2
            state.in_mesh = state.active = False

    def misbehaved(self, peer: PeerId, count: int) -> None:
        if peer in self.peers:
            self.peers[peer].p7 += count

    def slow(self, peer: PeerId, count: int) -> None:
        if peer in self.peers:
            self.peers[peer].slow += count

    def set_app_score(self, peer: PeerId, value: float) -> None:
        if peer in self.peers:
            self.peers[peer].app = value

    def set_topic_params(self, name: str, params: TopicScoreParams) -> None:
        self.topics[name] = params
        for known in self.peers.values():
            if name in known.topics:
                state = known.topics[name]
                state.p2 = min(state.p2, params.first_message_deliveries_cap)
                state.p3 = min(state.p3, params.mesh_message_deliveries_cap)

    # --- messages

    def message(self, message_id: bytes, now: float) -> Message:
        return self.messages.setdefault(
            message_id, Message(expires=now + self.params.seen_message_ttl)
        )

    def in_mesh_delivery(self, peer: PeerId, topic: str) -> None:
        state, params = self.state(peer, topic), self.topic(topic)
        if state is not None and params is not None and state.in_mesh:
            state.p3 = min(state.p3 + 1, params.mesh_message_deliveries_cap)

    def validating(self, message_id: bytes, now: float) -> None:
        self.message(message_id, now)

    def first_delivery(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        state, params = self.state(peer, topic), self.topic(topic)
        if state is not None and params is not None:
            state.p2 = min(state.p2 + 1, params.first_message_deliveries_cap)
        self.in_mesh_delivery(peer, topic)
        message = self.message(message_id, now)
        if message.state == "unknown":
            message.state, message.validated = "valid", now
            for other in message.counted:
                if other != peer:
                    self.in_mesh_delivery(other, topic)
            message.counted.append(peer)

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        message, params = self.message(message_id, now), self.topic(topic)
        if message.state == "invalid":
            self.invalid(peer, topic)
        elif message.state in ("unknown", "valid") and peer not in message.counted:
            message.counted.append(peer)
            if message.state == "valid" and params is not None:
                window = elapsed(0, params.mesh_message_deliveries_window)
                if elapsed(message.validated, now) <= window:
                    self.in_mesh_delivery(peer, topic)

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        if refusal is Refusal.FORGED:
            self.invalid(peer, topic)
        if refusal not in (Refusal.INVALID, Refusal.IGNORED, Refusal.THROTTLED):
            return
        message = self.message(message_id, now)
        if message.state != "unknown":
            return
        if refusal is Refusal.INVALID:
            message.state = "invalid"
            for sender in {*message.counted, peer}:
                self.invalid(sender, topic)
        else:
            message.state = "ignored"

    def invalid(self, peer: PeerId, topic: str) -> None:
        state = self.state(peer, topic)
        if state is not None:
            state.p4 += 1
