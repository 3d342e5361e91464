"""What producers attested: contradictions are found, and nothing else is."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay import stake_watch
from bruit.node.relay.evidence import Evidence, Kind
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.signing import address_of_secret, sign
from bruit.node.relay.stake_watch import StakeFault, StakeWatch, Told, stake_evidence
from bruit.node.relay.wire import WHOLE, Attested
from bruit.plugins.marketplace import Marketplace, Producer

PARAMS = RelayParams(refresh_interval=60.0, tolerable_latency=10.0)
SINGLE = ChannelParams(id=1, topic="single", min_chunks=2, num_chunks=4)
WIDE = ChannelParams(id=2, topic="wide", min_chunks=2, num_chunks=4, attesting=Attesting.MERKLE)
SECRET = bytes(31) + b"\x07"
PRODUCER = address_of_secret(SECRET)
T0 = 1_000_000
LENGTH = 19  # with the 81 bytes of an attestation: 100 tokens


def attested(
    offset: int,
    timestamp: int = T0,
    message: bytes = b"mess",
    chunk: int = 0,
    length: int = LENGTH,
    content: int = 0,
    channel: int = SINGLE.id,
) -> Attested:
    return Attested(message, channel, chunk, timestamp, length, offset, bytes([content]) * 32)


def note(
    watch: StakeWatch,
    what: Attested,
    now: float = T0,
    stake: int = 10_000,
    producer: bytes = PRODUCER,
) -> StakeFault | None:
    channel = WIDE if what.channel == WIDE.id else SINGLE
    return watch.note(producer, channel, what, sign(SECRET, keccak256(what.encode())), stake, now)


def test_ranges_side_by_side_are_fine() -> None:
    watch = StakeWatch(PARAMS)
    for index, offset in enumerate((300, 0, 100, 200)):
        assert note(watch, attested(offset, chunk=index)) is None
    assert len(watch) == 4


def test_the_same_attestation_again_is_the_same_stake() -> None:
    watch = StakeWatch(PARAMS)
    for _ in range(3):
        assert note(watch, attested(0)) is None
    assert len(watch) == 1


@pytest.mark.parametrize("offset", [1, 99, 0])
def test_one_token_behind_two_messages_is_an_overlap(offset: int) -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(offset)) is None
    fault = note(watch, attested(50, message=b"else"))
    assert fault is not None
    assert fault.kind is Kind.OVERLAPPING_STAKE
    assert fault.earlier is not None
    assert fault.earlier.attested == attested(offset)


def test_stake_is_free_again_a_refresh_interval_later_and_not_a_second_before() -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0), T0) is None
    early = attested(0, T0 + 59, b"else")
    assert note(watch, early, T0 + 59) is not None
    assert note(watch, attested(0, T0 + 60, b"else"), T0 + 69.9) is None


def test_a_late_attestation_is_held_against_a_newer_one() -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0, T0), T0) is None
    assert note(watch, attested(0, T0 + 60, b"next"), T0 + 60) is None
    late = note(watch, attested(0, T0 + 55, b"late"), T0 + 65)
    assert late is not None
    assert late.kind is Kind.OVERLAPPING_STAKE


def test_a_range_beyond_the_registered_stake_is_overspent() -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(900), stake=1000) is None
    fault = note(watch, attested(901, message=b"else"), stake=1000)
    assert fault is not None
    assert (fault.kind, fault.stake, fault.earlier) == (Kind.OVERSPENT_STAKE, 1000, None)


@pytest.mark.parametrize(
    "other", [attested(0, content=1), attested(0, length=20), attested(5_000), attested(40)]
)
def test_one_chunk_attested_in_two_ways_is_a_conflict(other: Attested) -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0)) is None
    fault = note(watch, other)
    assert fault is not None
    assert fault.kind is Kind.CONFLICTING_CHUNKS


def test_a_root_occupies_the_stake_of_all_its_chunks() -> None:
    watch = StakeWatch(PARAMS)
    root = attested(0, chunk=WHOLE, channel=WIDE.id)  # tokens 0 to 400
    assert note(watch, root) is None
    inside = note(watch, attested(399))
    assert inside is not None
    assert inside.kind is Kind.OVERLAPPING_STAKE
    assert note(watch, attested(400)) is None


def test_producers_have_their_stake_each_for_itself() -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0)) is None
    assert note(watch, attested(0, message=b"else"), producer=bytes(20)) is None


def test_one_fault_between_two_broadcasts_is_told_once() -> None:
    watch = StakeWatch(PARAMS)
    for chunk in range(4):
        assert note(watch, attested(100 * chunk, chunk=chunk)) is None
    faults = [
        note(watch, attested(100 * chunk, message=b"else", chunk=chunk)) for chunk in range(4)
    ]
    assert [fault is not None and fault.told for fault in faults] == [False, True, True, True]


def test_a_producer_that_contradicts_itself_without_end_is_told_so_often_and_no_more() -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0)) is None
    told = 0
    for number in range(200):
        fault = note(watch, attested(0, message=number.to_bytes(4, "big")))
        assert fault is not None
        told += not fault.told
    assert told == stake_watch.MAX_TOLD_PER_CULPRIT
    assert len(watch) == 1


def test_what_was_told_is_news_again_when_it_can_happen_again() -> None:
    told = Told(PARAMS, per_culprit=2, in_all=3)
    assert told.is_news(b"a", 1, T0)
    assert not told.is_news(b"a", 1, T0 + 70.0)
    assert told.is_news(b"a", 2, T0 + 1)
    assert not told.is_news(b"a", 3, T0 + 1)  # enough of this one
    assert told.is_news(b"b", 1, T0 + 1)
    assert not told.is_news(b"c", 1, T0 + 1)  # enough in all
    assert told.is_news(b"a", 1, T0 + 70.1)


def test_without_room_the_oldest_are_forgotten_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stake_watch, "MAX_CLAIMS_PER_PRODUCER", 3)
    monkeypatch.setattr(stake_watch, "MAX_CLAIMS", 4)
    watch = StakeWatch(PARAMS)
    for chunk in range(4):
        assert note(watch, attested(100 * chunk, chunk=chunk)) is None
    assert (len(watch), watch.forgotten) == (3, 1)
    assert note(watch, attested(0, message=b"else")) is None  # the first is forgotten, no fault
    assert note(watch, attested(300, message=b"else", chunk=1)) is not None
    for number in range(4):
        assert note(watch, attested(0, chunk=number), producer=bytes([number]) * 20) is None
    assert (len(watch), watch.forgotten) == (4, 5)


def test_what_is_over_leaves_nothing_behind() -> None:
    watch = StakeWatch(PARAMS)
    for second in range(1000):
        assert note(watch, attested(0, T0 + 60 * second), T0 + 60 * second) is None
        assert len(watch) <= 2
    assert watch.forgotten == 0


@pytest.mark.parametrize("lower_is_root", [True, False])
@pytest.mark.parametrize("root_first", [True, False])
def test_evidence_of_an_overlap_between_channels_holds(
    lower_is_root: bool, root_first: bool
) -> None:
    root = attested(0 if lower_is_root else 100, chunk=WHOLE, channel=WIDE.id, message=b"root")
    chunk = attested(399 if lower_is_root else 99, chunk=3)
    watch = StakeWatch(PARAMS)
    first, second = (root, chunk) if root_first else (chunk, root)
    assert note(watch, first) is None
    fault = note(watch, second)
    assert fault is not None
    assert holds(stake_evidence(fault, PARAMS, T0))


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (attested(9_901, message=b"else"), Kind.OVERSPENT_STAKE),
        (attested(0, content=1), Kind.CONFLICTING_CHUNKS),
        (attested(99, T0 + 59, b"else"), Kind.OVERLAPPING_STAKE),
    ],
)
def test_evidence_of_every_fault_holds(second: Attested, kind: Kind) -> None:
    watch = StakeWatch(PARAMS)
    assert note(watch, attested(0)) is None
    fault = note(watch, second)
    assert fault is not None
    evidence = stake_evidence(fault, PARAMS, T0)
    assert evidence.kind is kind
    assert holds(evidence)


def holds(evidence: Evidence) -> bool:
    marketplace = Marketplace(producers=(Producer(PRODUCER, 10_000),))
    return verify_evidence(evidence, marketplace, None).holds


# Against the rules as one would say them, with everything ever attested compared to everything.

A_STEP = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 5]),  # seconds that pass
    st.integers(0, 4),  # age of the timestamp, up to the tolerable latency
    st.integers(0, 12),  # offset
    st.sampled_from([1, 1, 2, 3]),  # bytes of the chunk
    st.integers(0, 2),  # message
    st.integers(0, 1),  # chunk
    st.integers(0, 1),  # content
    st.booleans(),  # root
    st.integers(0, 1),  # producer
)


@dataclass
class Model:
    interval: float
    kept: list[tuple[bytes, Attested, int, int]] = field(default_factory=list)

    def note(self, producer: bytes, what: Attested, stake: int) -> Kind | None:
        size = (what.chunk_length + 81) * (WIDE.num_chunks if what.chunk == WHOLE else 1)
        start, end = what.stake_offset, what.stake_offset + size
        mine = [each[1:] for each in self.kept if each[0] == producer]
        if any(other == what for other, _, _ in mine):
            return None
        if end > stake:
            return Kind.OVERSPENT_STAKE
        if any(place(other) == place(what) for other, _, _ in mine):
            return Kind.CONFLICTING_CHUNKS
        for other, first, last in mine:
            near = abs(other.timestamp - what.timestamp) < self.interval
            if near and not set(range(start, end)).isdisjoint(range(first, last)):
                return Kind.OVERLAPPING_STAKE
        self.kept.append((producer, what, start, end))
        return None


def place(what: Attested) -> tuple[int, bytes, int, int]:
    return (what.channel, what.message_id, what.chunk, what.timestamp)


@settings(max_examples=400, deadline=None)
@given(st.lists(A_STEP, max_size=60), st.sampled_from([0.5, 1.0, 3.0, 7.5, 20.0]))
def test_the_watch_finds_what_the_rules_say(
    steps: list[tuple[int, int, int, int, int, int, int, bool, int]], interval: float
) -> None:
    params = RelayParams(refresh_interval=interval, tolerable_latency=4.0)
    watch, model, now = StakeWatch(params), Model(interval), T0
    for wait, age, offset, length, message, chunk, content, root, who in steps:
        now += wait
        producer = bytes([who]) * 20
        what = attested(
            offset * 41,
            now - age,
            bytes([message]) * 4,
            WHOLE if root else chunk,
            length,
            content,
            WIDE.id if root else SINGLE.id,
        )
        channel = WIDE if root else SINGLE
        fault = watch.note(producer, channel, what, bytes(65), 800, now)
        assert (None if fault is None else fault.kind) == model.note(producer, what, 800)
        if fault is not None and fault.earlier is not None:
            kept = [each for who_, each, _, _ in model.kept if who_ == producer]
            assert fault.earlier.attested in kept


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_ranges_stay_apart(seed: int) -> None:
    watch, order = StakeWatch(PARAMS), list(range(2000))
    Random(seed).shuffle(order)
    for index in order:
        assert note_unsigned(watch, attested(100 * index, chunk=index)) is None
    for left in range(0, 1999, 97):
        across = attested(100 * left + 50, message=b"else", chunk=left)
        assert note_unsigned(watch, across) is not None


def note_unsigned(watch: StakeWatch, what: Attested) -> StakeFault | None:
    return watch.note(PRODUCER, SINGLE, what, bytes(65), 1_000_000, T0)
