"""Random streams of frames against a slow model that says what must be passed on.

The model knows how each frame was made, so that it needs no signatures; it keeps everything that
ever was and compares everything to everything.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bruit.node.relay import drops
from bruit.node.relay.actions import (
    ChunkDropped,
    Dispute,
    MemberAction,
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    Witnessed,
)
from bruit.node.relay.evidence import Kind
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.signing import check_acknowledgement, check_chunk
from bruit.node.relay.wire import decode_acknowledgement
from tests.relay.handheld_member import (
    COST,
    PARAMS,
    ROOTED,
    SINGLE,
    T0,
    US,
    HandheldMember,
    address,
    frame,
    log_of,
    market,
    of,
    peer,
)

LATENCY, INTERVAL = PARAMS.tolerable_latency, PARAMS.refresh_interval
STAKES = {"alice": 700, "bob": 10_000}
CLUSTER = (US, "mate", "pal")
NOTHING, CHUNK, WITNESS, SHORT = "nothing", "chunk", "witness", "short"  # what is corrupt


@dataclass(frozen=True)
class Made:
    """A frame, by how it was made, and how it comes."""

    sender: str
    submitted: bool
    producer: str
    message: int
    timestamp: int
    index: int
    offset: int
    content: int
    rooted: bool
    witness: str
    corrupt: str

    @property
    def channel(self) -> ChannelParams:
        return ROOTED if self.rooted else SINGLE

    def data(self) -> bytes:
        data = frame(
            self.producer,
            self.index,
            message_id=bytes([self.message]) * 4,
            timestamp=self.timestamp,
            offset=self.offset,
            content=self.content,
            channel=self.channel,
            witness="" if self.submitted else self.witness,
        )
        match self.corrupt:
            case "chunk":
                return data[:-1] + b"\x01"
            case "witness" if not self.submitted:
                return data[:100] + bytes([data[100] ^ 1]) + data[101:]
            case "short":
                return data[:81]
        return data

    def broadcast(self) -> tuple[Any, ...]:
        return (self.producer, self.rooted, self.message, self.timestamp)

    def attested(self) -> tuple[Any, ...]:
        """All that the producer signed."""
        index = "all" if self.rooted else self.index
        return (*self.broadcast(), index, self.first_token(), self.content)

    def first_token(self) -> int:
        return self.offset + (0 if self.rooted else COST * self.index)

    def tokens(self) -> range:
        size = COST * (self.channel.num_chunks if self.rooted else 1)
        return range(self.first_token(), self.first_token() + size)


@dataclass
class Model:
    """What must come of each frame: ``(outcome, kind of dispute or None)``."""

    producers: dict[str, int]
    cluster: tuple[str, ...] = CLUSTER
    taken: list[Made] = field(default_factory=list)  # published
    attested: list[Made] = field(default_factory=list)  # whose stake counts
    held: list[Made] = field(default_factory=list)

    def outcome(self, made: Made, now: float) -> tuple[str, Kind | None]:
        if made.corrupt == SHORT:
            return (drops.MALFORMED if not self.outsider(made) else self.outsider(made)), None
        if self.outsider(made):
            return self.outsider(made), None
        return self.judge(made, now)

    def outsider(self, made: Made) -> str:
        if US not in self.cluster:
            return drops.NO_CLUSTER
        if not made.submitted and (made.sender == US or made.sender not in self.cluster):
            return drops.NOT_A_MEMBER
        return ""

    def judge(self, made: Made, now: float) -> tuple[str, Kind | None]:
        if US not in self.cluster:
            return drops.NO_CLUSTER, None
        if made.corrupt == CHUNK or made.producer not in self.producers:
            return drops.UNKNOWN_PRODUCER, None
        if now - made.timestamp > LATENCY:
            return drops.REPLAYED, Kind.REPLAY if now - made.timestamp > LATENCY + 1 else None
        if not made.submitted:
            if made.corrupt == WITNESS or made.witness in ("stranger", "alice"):
                return drops.FALSE_WITNESS, Kind.FALSE_WITNESS
            if made.witness not in self.cluster:
                return drops.WRONG_CLUSTER, None
        if made.timestamp > now + LATENCY:
            return drops.TOO_FAR_AHEAD, None
        if made.timestamp > now:
            if any(self.same_chunk(made, other) for other in self.held):
                return drops.DUPLICATE, None
            self.held.append(made)
            return "held", None
        if any(self.same_chunk(made, other) for other in self.taken):
            return drops.DUPLICATE, None
        return self.stake(made)

    def stake(self, made: Made) -> tuple[str, Kind | None]:
        for other in self.attested:
            if other.attested() == made.attested():
                break
        else:
            if made.tokens()[-1] >= self.producers[made.producer]:
                return drops.OVERSPENT, Kind.OVERSPENT_STAKE
            rivals = [other for other in self.attested if other.producer == made.producer]
            for other in rivals:
                one_chunk = other.rooted or other.index == made.index
                if other.broadcast() == made.broadcast() and one_chunk:
                    return drops.CONFLICTING, Kind.CONFLICTING_CHUNKS
            for other in rivals:
                near = abs(other.timestamp - made.timestamp) < INTERVAL
                if near and not set(other.tokens()).isdisjoint(made.tokens()):
                    return drops.OVERSPENT, Kind.OVERLAPPING_STAKE
            self.attested.append(made)
        self.taken.append(made)
        return "witnessed" if made.submitted else "published", None

    def same_chunk(self, one: Made, other: Made) -> bool:
        return one.attested() == other.attested() and one.index == other.index

    def due(self, now: float) -> list[tuple[str, Kind | None]]:
        ripe = [made for made in self.held if made.timestamp <= now]
        self.held = [made for made in self.held if made.timestamp > now]
        ripe.sort(key=lambda made: made.timestamp)  # stable
        return [self.judge(made, max(float(made.timestamp), 0.0)) for made in ripe]


@dataclass(frozen=True)
class Step:
    """What happens, in this order."""

    wait: float  # seconds
    change: str  # of the marketplace
    back: int  # which earlier frame comes again, counted from the last; 0: none
    again_from: str
    made: Made  # else this one, its timestamp relative to now


def mostly(*values: Any, often: int = 5) -> st.SearchStrategy[Any]:
    return st.sampled_from([values[0]] * often * len(values) + list(values[1:]))


def frames(*, submitted: bool) -> st.SearchStrategy[Made]:
    insiders = mostly("mate", "pal", "pal", "rival", "gateway", often=1)
    return st.builds(
        Made,
        sender=st.sampled_from(["gateway", "mate"]) if submitted else insiders,
        submitted=st.just(submitted),
        producer=mostly("alice", "bob", "bob", "bob", "stranger", "mate", often=1),
        message=st.integers(0, 2),
        timestamp=mostly(0, -1, -1, -5, -9, -11, -12, -30, 1, 2, 9, 11, often=1),
        index=st.integers(0, 2),
        offset=mostly(0, 300, 300, 350, 500, often=1),
        content=st.sampled_from([0, 0, 1]),
        rooted=mostly(False, True, True, True, often=1),
        witness=mostly("mate", "pal", "pal", US, "rival", "stranger", "alice", often=1),
        corrupt=mostly(NOTHING, CHUNK, WITNESS, SHORT),
    )


MARKETS = {
    "whole": (CLUSTER, ("rival",), STAKES),
    "churn": ((US, "mate"), ("rival", "pal"), {"alice": 700}),
    "away": (("mate", "pal"), ("rival",), STAKES),
}
STEPS = st.lists(
    st.builds(
        Step,
        wait=mostly(0.0, 0.25, 0.25, 1.0, 1.0, 4.75, 31.0, 62.0, often=2),
        change=mostly("", "churn", "away", "whole", "whole", "whole", often=8),
        back=mostly(0, 1, 2, 5, 10, often=2),
        again_from=st.sampled_from(["gateway", "mate", "pal"]),
        made=st.one_of(frames(submitted=True), frames(submitted=False)),
    ),
    min_size=10,
    max_size=40,
)
HEAVY = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


def outcomes(actions: list[MemberAction]) -> list[str]:
    """One word for each chunk that came to its end."""
    ours = [proof.checked for proof in of(Witnessed, actions)]
    found = []
    for action in actions:
        match action:
            case ChunkDropped():
                found.append(action.reason)
            case PublishChunk():
                found.append("witnessed" if action.checked in ours else "published")
    return found


@HEAVY
@given(STEPS)
def test_what_goes_on_is_what_the_model_says(steps: list[Step]) -> None:
    hand, model, sent = whole_member(), Model(dict(STAKES)), list[Made]()
    for step in steps:
        compare(hand, hand.wait(step.wait), model.due(hand.now))
        if step.change:
            change(hand, step)
            model.cluster, _, model.producers = MARKETS[step.change]
        made = frame_of(step, sent, hand.now)
        expected = model.outcome(made, hand.now)
        compare(hand, send(hand, made, sent), [expected])
    check_all(hand)


def compare(
    hand: HandheldMember, actions: list[MemberAction], expected: list[tuple[str, Kind | None]]
) -> None:
    said = outcomes(actions)
    wanted = [outcome for outcome, _ in expected if outcome != "held"]
    if len(wanted) == 1 and said == [drops.BAD_SIGNATURE]:
        # A corrupt signature is one of nobody, or of somebody whom nobody knows.
        assert wanted[0] in (drops.UNKNOWN_PRODUCER, drops.FALSE_WITNESS, drops.REPLAYED)
        return
    assert sorted(said) == sorted(wanted)  # of those that are due at once, some are signed first
    kinds = [kind for _, kind in expected if kind is not None]
    found = [dispute.evidence.kind for dispute in of(Dispute, actions)]
    assert all(kind in kinds for kind in found)
    before = of(Dispute, hand.log)[: len(of(Dispute, hand.log)) - len(found)]
    if not before:
        assert bool(found) == bool(kinds)  # the first fault of all is always disputed


def whole_member(*, at_once: bool = True) -> HandheldMember:
    return HandheldMember(market(*MARKETS["whole"]), at_once=at_once)


def change(hand: HandheldMember, step: Step) -> None:
    hand.change(market(*MARKETS[step.change]))


def frame_of(step: Step, sent: list[Made], now: float) -> Made:
    if 0 < step.back <= len(sent):
        earlier: Made = replace(sent[-step.back], sender=step.again_from)
        return earlier
    fresh: Made = replace(step.made, timestamp=int(now) + step.made.timestamp)
    return fresh


def send(hand: HandheldMember, made: Made, sent: list[Made]) -> list[MemberAction]:
    sent.append(made)
    return (hand.submit if made.submitted else hand.pass_on)(made.data(), made.sender)


def check_all(hand: HandheldMember) -> None:
    """What holds of a whole log, whatever came."""
    hand.wait(LATENCY + 1)
    hand.answer_all()
    assert hand.member.under_way == 0
    proofs = of(Witnessed, hand.log)
    places = [
        (each.checked.producer, each.checked.attested, each.checked.chunk)
        for each in published(hand)
    ]
    assert len(dict.fromkeys(places)) == len(places)  # nothing goes out twice
    witnessed = [proof.checked for proof in proofs]
    ours = [each.checked for each in published(hand) if each.checked in witnessed]
    assert ours == witnessed
    for each in published(hand):
        channel = SINGLE if each.channel == SINGLE.id else ROOTED
        assert check_chunk(each.frame, channel, witnessed=True) == each.checked
        assert each.checked.member in [address(name) for name in CLUSTER]
    for proof in proofs:
        assert proof.checked.member == address(US)
        assert check_acknowledgement(proof.acknowledgement) == address(US)
    for receipt in of(SendAcknowledgement, hand.log):
        acknowledgement = decode_acknowledgement(receipt.frame)
        assert check_acknowledgement(acknowledgement) == address(US)
        assert acknowledgement.cluster == 10
    assert len(of(PassOn, hand.log)) == len(proofs)
    for passed in of(PassOn, hand.log):
        assert address(US) not in [each.address for each in passed.members]
    known = market(CLUSTER, ("rival",), STAKES)
    for dispute in of(Dispute, hand.log):
        late = dispute.evidence.kind is Kind.FALSE_WITNESS  # judged by the market of its time
        assert late or verify_evidence(dispute.evidence, known, None).holds


@HEAVY
@given(STEPS, st.randoms(use_true_random=False))
def test_however_late_the_answers_come_nothing_goes_out_twice(
    steps: list[Step], random: Random
) -> None:
    hand, sent = whole_member(at_once=False), list[Made]()
    for step in steps:
        hand.wait(step.wait)
        if step.change:
            change(hand, step)
        send(hand, frame_of(step, sent, hand.now), sent)
        while hand.questions and random.random() < 0.5:
            hand.answer(random.randrange(len(hand.questions)))
    hand.answer_all()
    check_all(hand)


ROOMY = msgspec.structs.replace(PARAMS, chunks_per_peer=40)
COPIES = st.lists(
    st.tuples(
        st.integers(0, 4),  # broadcast
        st.integers(0, 2),  # chunk
        st.sampled_from(["gateway", "other gateway", "mate", "pal"]),
    ),
    min_size=1,
    max_size=40,
)


@HEAVY
@given(COPIES, st.booleans(), st.randoms(use_true_random=False))
def test_every_honest_chunk_goes_out_once_and_whoever_submitted_it_is_acknowledged(
    copies: list[tuple[int, int, str]], rooted: bool, random: Random
) -> None:
    hand = HandheldMember(params=ROOMY, at_once=False)
    channel = ROOTED if rooted else SINGLE
    submitted: dict[tuple[int, int], list[str]] = {}
    for number, index, sender in copies:
        early = T0 + number  # all but the first are held at first
        inside = sender in CLUSTER
        data = frame(
            "alice",
            index,
            message_id=bytes([number]) * 4,
            timestamp=early,
            offset=3 * COST * number,
            content=number,
            channel=channel,
            witness=sender if inside else "",
        )
        (hand.pass_on if inside else hand.submit)(data, sender)
        submitted.setdefault((number, index), [])
        if not inside:
            submitted[number, index].append(sender)
        while hand.questions and random.random() < 0.6:
            hand.answer(random.randrange(len(hand.questions)))
        hand.wait(random.choice([0.0, 0.0, 0.1]))
    hand.answer_all()
    hand.wait(5.0)
    hand.answer_all()
    out = [(each.checked.attested.message_id[0], each.checked.chunk) for each in published(hand)]
    assert sorted(out) == sorted(submitted)
    assert {drop.reason for drop in of(ChunkDropped, hand.log)} <= {drops.DUPLICATE}
    receipts = [
        (each.peer, decode_acknowledgement(each.frame))
        for each in of(SendAcknowledgement, hand.log)
    ]
    told = [(who, each.message_id[0], each.chunk) for who, each in receipts]
    for (number, index), senders in submitted.items():
        assert all((peer(sender), number, index) in told for sender in senders)
    assert hand.member.under_way == 0


def published(hand: HandheldMember) -> list[PublishChunk]:
    return of(PublishChunk, hand.log)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_the_same_stream_gives_the_same_log(steps: list[Step]) -> None:
    def run() -> bytes:
        hand, sent = whole_member(), list[Made]()
        for step in steps:
            hand.wait(step.wait)
            if step.change:
                change(hand, step)
            send(hand, frame_of(step, sent, hand.now), sent)
        return log_of(hand.log)

    assert run() == run()
