"""Random early drop under load.

The first test is TestPeerGater of go-libp2p-pubsub (peer_gater_test.go), with
its numbers; probabilities are those of the formula there.
"""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.scoring.gater import MAX_DEPARTED, MAX_RETAINED, GaterParams, PeerGater
from bruit.scoring.seam import Refusal
from bruit.topics.errors import ConfigError

PEER, OTHER, THIRD = b"peer", b"other", b"third"
HERE, THERE = "/ip4/1.2.3.4/tcp/4001", "/ip4/5.6.7.8/tcp/4001"
GO_PARAMS = GaterParams(threshold=0.1, global_decay=0.9, source_decay=0.999)
SAMPLES = 4000  # a share of them has a standard deviation below 0.8 %
CLOSE = 0.04  # five of those


class Dice(random.Random):
    """Always shows the same share of 1."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


def gater(params: GaterParams = GO_PARAMS, seed: int = 1) -> PeerGater:
    return PeerGater(params, random.Random(seed))


def overload(gate: PeerGater, now: float = 0.0) -> None:
    """One message in two finds no room."""
    gate.validating(now)
    gate.refused(b"somebody", Refusal.QUEUE_FULL, now)


def share_let_in(gate: PeerGater, peer: bytes, now: float = 0.0) -> float:
    return sum(gate.accepts(peer, now) for _ in range(SAMPLES)) / SAMPLES


def test_a_gater_goes_through_what_that_of_go_is_tested_with() -> None:
    gate = gater()
    gate.connected(PEER, HERE, 0.0)
    assert gate.accepts(PEER, 0.0)
    gate.validating(0.0)
    assert gate.accepts(PEER, 0.0)
    gate.refused(PEER, Refusal.QUEUE_FULL, 0.0)
    assert gate.accepts(PEER, 0.0)
    gate.refused(PEER, Refusal.THROTTLED, 0.0)
    assert gate.accepts(PEER, 0.0)

    for _ in range(100):
        gate.refused(PEER, Refusal.IGNORED, 0.0)
        gate.refused(PEER, Refusal.INVALID, 0.0)
    assert not all(gate.accepts(PEER, 0.0) for _ in range(1000))

    for _ in range(100):
        gate.delivered(PEER, "topic")
    assert any(gate.accepts(PEER, 0.0) for _ in range(1000))

    for _ in range(100):
        gate.refresh(0.0)
    assert all(gate.accepts(PEER, 0.0) for _ in range(1000))

    # Its record outlives the connection: 100 bad deliveries at 0.999 a refresh are not forgotten.
    gate.disconnected(PEER, 0.0)
    gate.connected(OTHER, HERE, 1.0)
    overload(gate, 1.0)
    assert share_let_in(gate, OTHER, 1.0) < 0.2
    gate.disconnected(OTHER, 1.0)
    gate.refresh(1.0 + GO_PARAMS.retain_stats)
    gate.connected(OTHER, HERE, 1.0 + GO_PARAMS.retain_stats)
    overload(gate, 1.0 + GO_PARAMS.retain_stats)
    assert share_let_in(gate, OTHER, 1.0 + GO_PARAMS.retain_stats) < 0.2
    gate.disconnected(OTHER, 1.0 + GO_PARAMS.retain_stats)
    gate.refresh(2.0 + 2 * GO_PARAMS.retain_stats)
    gate.connected(THIRD, HERE, 2.0 + 2 * GO_PARAMS.retain_stats)
    overload(gate, 2.0 + 2 * GO_PARAMS.retain_stats)
    assert share_let_in(gate, THIRD, 2.0 + 2 * GO_PARAMS.retain_stats) == 1.0


def test_a_verdict_on_what_a_peer_sent_before_it_left_is_held_against_its_address() -> None:
    gate = gater()
    gate.connected(PEER, HERE, 0.0)
    gate.disconnected(PEER, 0.0)
    gate.refused(PEER, Refusal.FORGED, 0.0)
    gate.connected(OTHER, HERE, 0.0)
    overload(gate)
    assert share_let_in(gate, OTHER) == pytest.approx(1 / 17, abs=CLOSE)


def test_what_is_said_of_a_peer_long_gone_or_never_there_leaves_no_trace() -> None:
    gate = gater()
    gate.connected(PEER, HERE, 0.0)
    gate.disconnected(PEER, 0.0)
    gate.refresh(1.0)
    for peer in (PEER, OTHER):
        for _ in range(100):
            gate.refused(peer, Refusal.INVALID, 1.0)
    gate.disconnected(OTHER, 1.0)
    gate.disconnected(PEER, 1.0)
    gate.connected(THIRD, HERE, 1.0)
    gate.connected(OTHER, "", 1.0)
    overload(gate, 1.0)
    assert share_let_in(gate, THIRD, 1.0) == share_let_in(gate, OTHER, 1.0) == 1.0


def test_a_record_lives_on_while_another_peer_of_the_address_is_connected() -> None:
    gate = gater(GaterParams(retain_stats=0.0))
    gate.connected(PEER, HERE, 0.0)
    gate.connected(OTHER, HERE, 0.0)
    gate.refused(PEER, Refusal.INVALID, 0.0)
    gate.disconnected(PEER, 0.0)
    gate.disconnected(PEER, 0.0)  # said twice, counted once
    gate.refresh(1.0)
    overload(gate, 1.0)
    assert share_let_in(gate, OTHER, 1.0) == pytest.approx(1 / 17, abs=CLOSE)


def test_a_record_is_kept_as_long_as_a_peer_is_connected_that_came_back_in_time() -> None:
    gate = gater(GaterParams(retain_stats=10.0, source_decay=0.999))
    gate.connected(PEER, HERE, 0.0)
    gate.refused(PEER, Refusal.INVALID, 0.0)
    gate.disconnected(PEER, 0.0)
    gate.connected(OTHER, HERE, 9.0)
    gate.refresh(100.0)
    overload(gate, 100.0)
    assert share_let_in(gate, OTHER, 100.0) == pytest.approx(1 / 17, abs=CLOSE)
    gate.disconnected(OTHER, 100.0)
    gate.refresh(110.1)
    gate.connected(THIRD, HERE, 110.1)
    assert share_let_in(gate, THIRD, 110.1) == 1.0


# When the gater is on


@pytest.mark.parametrize(
    ("throttled", "validated", "on"), [(33, 100, True), (32, 100, False), (1, 0, True)]
)
def test_the_gater_is_on_from_a_third_of_messages_throttled(
    throttled: int, validated: int, on: bool
) -> None:
    gate = PeerGater(GaterParams(), Dice(0.99))
    gate.connected(PEER, HERE, 0.0)
    gate.refused(PEER, Refusal.INVALID, 0.0)
    for _ in range(validated):
        gate.validating(0.0)
    for _ in range(throttled):
        gate.refused(b"somebody", Refusal.THROTTLED, 0.0)
    assert gate.accepts(PEER, 0.0) is not on


def test_the_gater_goes_off_after_a_quiet_minute() -> None:
    gate = PeerGater(GaterParams(), Dice(0.99))
    gate.connected(PEER, HERE, 0.0)
    gate.refused(PEER, Refusal.INVALID, 0.0)
    overload(gate, 100.0)
    assert not gate.accepts(PEER, 160.0)
    assert gate.accepts(PEER, 160.1)


@pytest.mark.parametrize("refusal", [Refusal.INVALID, Refusal.IGNORED, Refusal.FORGED])
def test_bad_messages_alone_do_not_turn_the_gater_on(refusal: Refusal) -> None:
    gate = PeerGater(GaterParams(), Dice(0.99))
    gate.connected(PEER, HERE, 0.0)
    for _ in range(1000):
        gate.refused(PEER, refusal, 0.0)
    assert gate.accepts(PEER, 0.0)


# How likely a peer is let in


@pytest.mark.parametrize(
    ("delivered", "duplicate", "ignored", "rejected", "likelihood"),
    [
        (0, 0, 0, 0, 1.0),
        (5, 0, 0, 0, 1.0),
        (0, 8, 0, 0, 1 / 2),
        (0, 0, 1, 0, 1 / 2),
        (0, 0, 0, 1, 1 / 17),
        (3, 8, 3, 1, 4 / 24),
    ],
)
def test_a_peer_is_let_in_by_the_share_of_good_messages(
    delivered: int, duplicate: int, ignored: int, rejected: int, likelihood: float
) -> None:
    gate = gater(GaterParams())
    gate.connected(PEER, HERE, 0.0)
    for _ in range(delivered):
        gate.delivered(PEER, "topic")
    for _ in range(duplicate):
        gate.duplicate(PEER)
    for _ in range(ignored):
        gate.refused(PEER, Refusal.IGNORED, 0.0)
    for _ in range(rejected):
        gate.refused(PEER, Refusal.FORGED, 0.0)
    overload(gate)
    assert share_let_in(gate, PEER) == pytest.approx(likelihood, abs=CLOSE)


def test_the_worst_peer_is_still_let_in_now_and_then() -> None:
    gate = PeerGater(GaterParams(), Dice(1e-6))
    gate.connected(PEER, HERE, 0.0)
    for _ in range(10_000):
        gate.refused(PEER, Refusal.FORGED, 0.0)
    overload(gate)
    assert gate.accepts(PEER, 0.0)


def test_messages_of_banned_authors_and_overload_are_nobodys_fault() -> None:
    gate = gater()
    gate.connected(PEER, HERE, 0.0)
    for refusal in (Refusal.BANNED, Refusal.QUEUE_FULL, Refusal.THROTTLED):
        for _ in range(100):
            gate.refused(PEER, refusal, 0.0)
    assert share_let_in(gate, PEER) == 1.0


def test_deliveries_weigh_what_their_topic_does() -> None:
    gate = gater(GaterParams(topic_delivery_weights={"blocks": 15.0}))
    for peer, address, topic in ((PEER, HERE, "blocks"), (OTHER, THERE, "chatter")):
        gate.connected(peer, address, 0.0)
        gate.delivered(peer, topic)
        gate.refused(peer, Refusal.FORGED, 0.0)
    overload(gate)
    assert share_let_in(gate, PEER) == pytest.approx(16 / 32, abs=CLOSE)
    assert share_let_in(gate, OTHER) == pytest.approx(2 / 18, abs=CLOSE)


# Who shares a record


@pytest.mark.parametrize(
    ("one", "another", "shared"),
    [
        ("/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/tcp/2", True),
        ("/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.5/tcp/1", False),
        ("/ip4/1.2.3.4/tcp/1", "/ip6/::ffff:1.2.3.4/tcp/1", True),
        ("/ip6/2001:db8::1/tcp/1", "/ip6/2001:db8::ffff:0:0:1/tcp/1", True),
        ("/ip6/2001:db8::1/tcp/1", "/ip6/2001:db8:0:1::1/tcp/1", False),
        ("", "/dns4/example.org/tcp/1", True),
        ("", "/ip4/1.2.3.4/tcp/1/p2p/QmRelay/p2p-circuit", True),
        ("", "/ip4/1.2.3.4/tcp/1", False),
    ],
)
def test_peers_share_the_record_of_their_address(one: str, another: str, shared: bool) -> None:
    gate = gater()
    gate.connected(PEER, one, 0.0)
    gate.connected(OTHER, another, 0.0)
    for _ in range(100):
        gate.refused(PEER, Refusal.INVALID, 0.0)
    overload(gate)
    assert (share_let_in(gate, OTHER) < 0.1) is shared


def test_a_peer_that_moves_is_judged_by_its_new_address() -> None:
    gate = gater()
    gate.connected(PEER, HERE, 0.0)
    gate.refused(PEER, Refusal.INVALID, 0.0)
    overload(gate)
    gate.connected(PEER, "", 0.0)  # unknown: as before
    assert share_let_in(gate, PEER) < 0.1
    gate.connected(PEER, THERE, 0.0)
    assert share_let_in(gate, PEER) == 1.0
    gate.connected(OTHER, HERE, 0.0)
    assert share_let_in(gate, OTHER) < 0.1


# Bounds


def test_records_of_addresses_without_peers_are_bounded_and_the_oldest_goes_first() -> None:
    gate = gater()
    for number in range(MAX_RETAINED + 1):
        peer = number.to_bytes(4)
        gate.connected(
            peer, f"/ip4/10.{number >> 16}.{number >> 8 & 255}.{number & 255}/tcp/1", 0.0
        )
        gate.refused(peer, Refusal.INVALID, 0.0)
        gate.disconnected(peer, 0.0)
    gate.connected(PEER, "/ip4/10.0.0.0/tcp/1", 0.0)
    gate.connected(OTHER, "/ip4/10.0.0.1/tcp/1", 0.0)
    overload(gate)
    assert share_let_in(gate, PEER) == 1.0
    assert share_let_in(gate, OTHER) < 0.2


def test_peers_that_come_and_go_between_two_refreshes_are_remembered_up_to_a_bound() -> None:
    gate = gater()
    for number in range(MAX_DEPARTED + 1):
        gate.connected(number.to_bytes(4), HERE if number < MAX_DEPARTED else THERE, 0.0)
        gate.disconnected(number.to_bytes(4), 0.0)
    gate.refused(MAX_DEPARTED.to_bytes(4), Refusal.INVALID, 0.0)
    gate.refused((MAX_DEPARTED - 1).to_bytes(4), Refusal.INVALID, 0.0)
    gate.connected(PEER, THERE, 0.0)
    gate.connected(OTHER, HERE, 0.0)
    overload(gate)
    assert share_let_in(gate, PEER) == 1.0
    assert share_let_in(gate, OTHER) < 0.2


# Against a slow, obvious model


class Ledger:
    """Everything that was ever said, with the refresh at which it was."""

    def __init__(self, params: GaterParams) -> None:
        self.params = params
        self.address: dict[int, str] = {}  # connected peers
        self.events: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.load: dict[str, float] = defaultdict(float)
        self.last = -1e9

    def refresh(self) -> None:
        for name in self.load:
            self.load[name] = self._decayed(self.load[name], self.params.global_decay)
        for address, counters in self.events.items():
            if address in self.address.values():
                for name in counters:
                    counters[name] = self._decayed(counters[name], self.params.source_decay)

    def _decayed(self, value: float, factor: float) -> float:
        return value * factor if value * factor >= self.params.decay_to_zero else 0.0

    def likelihood(self, peer: int, now: float) -> float:
        throttled, validated = self.load["throttled"], self.load["validated"]
        if now > self.last + self.params.quiet or not throttled:
            return 1.0
        if validated and throttled / validated < self.params.threshold:
            return 1.0
        counters = self.events[self.address[peer]]
        weights = {"delivered": 1.0, "duplicate": 0.125, "ignored": 1.0, "rejected": 16.0}
        total = sum(weight * counters[name] for name, weight in weights.items())
        return (1 + counters["delivered"]) / (1 + total)


ADDRESSES = ["/ip4/1.1.1.1/tcp/1", "/ip4/2.2.2.2/tcp/1", "/ip6/2001:db8::1/tcp/1"]
STEPS = st.tuples(
    st.sampled_from(
        [
            *("connect", "disconnect", "validating", "throttled", "refresh"),
            *("delivered", "duplicate", "ignored", "rejected"),
        ]
    ),
    st.integers(0, 4),
    st.sampled_from(ADDRESSES),
    st.floats(0, 40),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=60), st.floats(0, 1, exclude_max=True))
def test_the_gater_decides_as_a_ledger_of_everything_does(
    steps: list[tuple[str, int, str, float]], share: float
) -> None:
    params = GaterParams(global_decay=0.5, source_decay=0.5)
    gate, ledger, now = PeerGater(params, Dice(share)), Ledger(params), 0.0
    for kind, number, address, seconds in steps:
        peer = bytes([number])
        if kind == "connect":
            gate.connected(peer, address, now)
            ledger.address[number] = address
        elif kind == "disconnect":
            gate.disconnected(peer, now)
            ledger.address.pop(number, None)
        elif kind == "validating":
            gate.validating(now)
            ledger.load["validated"] += 1
        elif kind == "throttled":
            gate.refused(peer, Refusal.THROTTLED, now)
            ledger.load["throttled"] += 1
            ledger.last = now
        elif kind == "refresh":
            now += seconds
            gate.refresh(now)
            ledger.refresh()
        elif number in ledger.address:
            if kind == "delivered":
                gate.delivered(peer, "topic")
            elif kind == "duplicate":
                gate.duplicate(peer)
            else:
                gate.refused(peer, Refusal(kind if kind == "ignored" else "invalid"), now)
            ledger.events[ledger.address[number]][kind] += 1
        for connected in ledger.address:
            expected = share < ledger.likelihood(connected, now)
            assert gate.accepts(bytes([connected]), now) is expected


# Parameters


def test_the_defaults_are_those_of_go() -> None:
    params = GaterParams()
    params.check()
    assert params.threshold == 0.33
    assert params.global_decay**120 == pytest.approx(0.01)
    assert params.source_decay**3600 == pytest.approx(0.01)
    assert (params.decay_interval, params.decay_to_zero) == (1.0, 0.01)
    assert (params.retain_stats, params.quiet) == (6 * 3600, 60)
    assert (params.duplicate_weight, params.ignore_weight, params.reject_weight) == (0.125, 1, 16)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.0),
        ("threshold", -1.0),
        ("global_decay", 0.0),
        ("global_decay", 1.0),
        ("source_decay", 0.0),
        ("source_decay", 2.0),
        ("decay_interval", 0.9),
        ("decay_to_zero", 0.0),
        ("decay_to_zero", 1.0),
        ("quiet", 0.9),
        ("duplicate_weight", 0.0),
        ("ignore_weight", 0.9),
        ("reject_weight", 0.9),
        ("retain_stats", -1.0),
        ("topic_delivery_weights", {"blocks": 0.0}),
        ("topic_delivery_weights", {"blocks": float("nan")}),
        *[
            (name, float(value))
            for name in GaterParams.__struct_fields__
            if name != "topic_delivery_weights"
            for value in ("nan", "inf")
        ],
    ],
)
def test_a_parameter_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        GaterParams(**{name: value}).check("node.gater")  # type: ignore[arg-type]
    assert caught.value.path.startswith(f"node.gater.{name}")
