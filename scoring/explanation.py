"""Why a peer has the score that it has: every counter, term and sum behind the number.

Folding the parts as they stand gives the sums to the last bit: the contributions of
a topic's terms, from first to last, times its weight are the topic's; the topics' in
their order are ``topics_sum``; ``topics_capped`` and the contributions of the four
terms of the whole peer, in the order of the fields, are ``score``.
"""

from collections.abc import Iterator

import msgspec

from bruit.topics.keys import PeerId


class Term(msgspec.Struct, frozen=True):
    """A term of the score function."""

    value: float  # P1 … P7: capped, less the threshold, squared, as the term wants it
    weight: float
    contribution: float  # value · weight


class TopicExplanation(msgspec.Struct, frozen=True):
    """What a peer's score owes to one topic."""

    topic: str
    in_mesh: bool
    mesh_time: float  # seconds in our mesh at the last refresh; 0 outside it
    mesh_message_deliveries_active: bool  # whether P3 applies: long enough in the mesh
    # Counters: messages, decayed, but for the penalty, which adds up squared deficits
    first_message_deliveries: float
    mesh_message_deliveries: float
    mesh_failure_penalty: float
    invalid_message_deliveries: float
    # Terms
    p1: Term  # quanta in the mesh
    p2: Term  # first message deliveries
    p3: Term  # deficit of mesh message deliveries, squared
    p3b: Term  # mesh failure penalty
    p4: Term  # invalid message deliveries, squared
    weight: float
    contribution: float  # (p1 + p2 + p3 + p3b + p4) · weight


class SharedAddress(msgspec.Struct, frozen=True):
    address: str  # an IPv4 address, an IPv6 address or its /64
    peers: int  # connected or remembered peers that are there, this one too


class Explanation(msgspec.Struct, frozen=True):
    """What a peer's score is made of. Topics that nothing happened in are left out."""

    peer: PeerId
    connected: bool
    topics: tuple[TopicExplanation, ...]
    topics_sum: float
    topics_capped: float  # the sum, or the topic score cap where that is less
    app_specific: Term  # P5: what the application thinks
    ip_colocation: Term  # P6: excess peers at its addresses, squared, and added up
    behaviour_penalty: Term  # P7: excess of protocol violations, squared
    slow_peer: Term  # excess of frames dropped because it reads too slowly
    score: float
    addresses: tuple[SharedAddress, ...]
    behaviour_counter: float  # protocol violations, decayed
    slow_counter: float  # frames dropped, decayed
    below: tuple[str, ...]  # of bruit.scoring.thresholds.LIMITS, those that the score is below

    def parts(self) -> dict[str, float]:
        """What the score is the sum of, in the order in which it is added up."""
        return {
            "topics": self.topics_capped,
            "app_specific": self.app_specific.contribution,
            "ip_colocation": self.ip_colocation.contribution,
            "behaviour_penalty": self.behaviour_penalty.contribution,
            "slow_peer": self.slow_peer.contribution,
        }

    def lines(self, name: str) -> list[str]:
        """A table for people, the peer called ``name``: value, weight and contribution."""
        table = list(_table(self))
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        state = "connected" if self.connected else "disconnected, remembered"
        below = ", ".join(self.below) or "no threshold"
        return [
            f"{name}: score {_number(self.score)}, {state}, below {below}",
            *(
                "  ".join(
                    (row[0].ljust(widths[0]), *map(str.rjust, row[1:4], widths[1:4]), row[4])
                ).rstrip()
                for row in table
            ),
        ]


def _table(explanation: Explanation) -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of name, value, weight, contribution and a remark."""
    yield ("", "value", "weight", "score", "")
    for topic in explanation.topics:
        mesh = f"in the mesh for {_number(topic.mesh_time)} s" if topic.in_mesh else ""
        yield (topic.topic, "", _number(topic.weight), _number(topic.contribution), mesh)
        deliveries = f"{_number(topic.mesh_message_deliveries)} delivered"
        active = "" if topic.mesh_message_deliveries_active else ", not counted yet"
        yield _row("  P1 time in mesh", topic.p1)
        yield _row("  P2 first deliveries", topic.p2)
        yield _row("  P3 mesh delivery deficit²", topic.p3, deliveries + active)
        yield _row("  P3b mesh failures", topic.p3b)
        invalid = f"{_number(topic.invalid_message_deliveries)} invalid"
        yield _row("  P4 invalid messages²", topic.p4, invalid)
    cap = "" if explanation.topics_capped == explanation.topics_sum else "capped"
    yield ("topics", _number(explanation.topics_sum), "", _number(explanation.topics_capped), cap)
    addresses = ", ".join(f"{each.peers} at {each.address}" for each in explanation.addresses)
    violations = f"{_number(explanation.behaviour_counter)} violations"
    dropped = f"{_number(explanation.slow_counter)} dropped"
    yield _row("P5 application", explanation.app_specific)
    yield _row("P6 shared addresses", explanation.ip_colocation, addresses)
    yield _row("P7 misbehaviour²", explanation.behaviour_penalty, violations)
    yield _row("slow peer", explanation.slow_peer, dropped)
    yield ("score", "", "", _number(explanation.score), "")


def _row(name: str, term: Term, remark: str = "") -> tuple[str, str, str, str, str]:
    return (name, _number(term.value), _number(term.weight), _number(term.contribution), remark)


def _number(value: float) -> str:
    return f"{value + 0.0:.6g}"  # + 0.0: no −0
