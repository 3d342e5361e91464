"""A consumer in any order of chunks, answers and time, against a slow account of what must follow.

The account keeps every chunk that was accepted, with its time. From that it tells what must have
become of each broadcast; where a chunk came near the end of its broadcast's time, either outcome is
right, but there must be exactly one.
"""

from random import Random

import msgspec
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bruit.node.relay.actions import CheckChunk
from bruit.node.relay.events import MarketplaceChanged
from bruit.node.relay.evidence import Evidence, Kind, decode_evidence, encode_evidence
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.signing import check_chunk, message_id_of
from bruit.node.relay.wire import decode_attested
from bruit.topics.errors import RemoteError
from bruit.topics.validation import Verdict
from tests.relay.consuming import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    CHANNELS,
    MEMBERS,
    MERKLE,
    PARAMS,
    PEER,
    STRANGER,
    Desk,
    Sent,
    Stakes,
    judge,
    market,
    send,
)

PRODUCERS = [ALICE, BOB, CAROL]
GOOD = [b"good block one", b"good block two, longer than one"]
BAD, ODD = b"bad block", b"odd block that breaks the plugin"
BLOCKS = [*GOOD, BAD, ODD]


class Account(msgspec.Struct):
    """What came of one broadcast: the time at which each chunk was first accepted."""

    sent: Sent
    chunks: dict[int, float]

    @property
    def first(self) -> float:
        return min(self.chunks.values())

    def enough_in_time(self) -> bool:
        """Whether there were enough before the earliest end that its time can have."""
        timely = [at for at in self.chunks.values() if at < self.first + PARAMS.chunk_expiry]
        return len(timely) >= self.sent.channel.min_chunks

    def enough(self) -> bool:
        return len(self.chunks) >= self.sent.channel.min_chunks

    def named(self) -> tuple[int, bytes]:
        return (self.sent.channel.id, self.sent.message_id)

    def key(self) -> tuple[bytes, int, bytes, int]:
        return (self.sent.producer.address, *self.named(), self.sent.timestamp)

    def honest(self) -> bool:
        return message_id_of(self.sent.block) == self.sent.message_id


class Consuming(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 100))
    def begin(self, seed: int) -> None:
        self.desk = Desk(patient=True, seed=seed)
        self.stakes = Stakes()
        self.accounts: dict[tuple[bytes, int, bytes, int], Account] = {}
        self.signed: dict[tuple[bytes, bytes], bytes] = {}
        self.frames = 0

    def _known(self) -> list[Account]:
        return list(self.accounts.values())

    @rule(
        producer=st.sampled_from(PRODUCERS),
        block=st.sampled_from([*GOOD, *GOOD, BAD, ODD]),
        channel=st.sampled_from([CHANNEL, MERKLE]),
        lie=st.sampled_from([None, None, None, *GOOD]),
    )
    def broadcast(self, producer: object, block: bytes, channel: object, lie: bytes | None) -> None:
        assert producer in PRODUCERS
        name = None if lie is None else message_id_of(lie)
        sent = send(
            PRODUCERS[PRODUCERS.index(producer)],
            block,
            at=self.desk.now,
            stakes=self.stakes,
            channel=CHANNEL if channel is CHANNEL else MERKLE,
            message_id=name,
        )
        account = Account(sent, {})
        if self.accounts.setdefault(account.key(), account) is account:
            # Who attested what, from what was made and not from its signature.
            for chunk in range(sent.channel.num_chunks):
                made = sent.checked(chunk)
                signed = (made.attested.encode(), made.frame.attestation.signature)
                self.signed[signed] = sent.producer.address

    @precondition(lambda self: self.accounts)
    @rule(
        which=st.integers(0, 10**6),
        chunk=st.integers(0, 3),
        witness=st.sampled_from(range(3)),
        peer=st.sampled_from([PEER, b"other peer"]),
    )
    def gossip(self, which: int, chunk: int, witness: int, peer: bytes) -> None:
        account = self._known()[which % len(self.accounts)]
        self.frames += 1
        frame = account.sent.frame(chunk, MEMBERS[witness])
        self.desk.gossip(frame, peer, account.sent.channel.id)

    @precondition(lambda self: self.accounts)
    @rule(which=st.integers(0, 10**6), chunks=st.permutations(range(4)), count=st.integers(1, 4))
    def gossip_many(self, which: int, chunks: list[int], count: int) -> None:
        for chunk in chunks[:count]:
            self.gossip(which, chunk, 0, PEER)

    @precondition(lambda self: self.accounts)
    @rule(which=st.integers(0, 10**6), chunk=st.integers(0, 3))
    def seen(self, which: int, chunk: int) -> None:
        account = self._known()[which % len(self.accounts)]
        if self.desk.now - account.sent.timestamp > PARAMS.tolerable_latency:
            return  # a member would not pass it on
        self.desk.see(account.sent, chunk)
        account.chunks.setdefault(chunk, self.desk.now)

    @precondition(lambda self: self.accounts)
    @rule(
        which=st.integers(0, 10**6),
        chunk=st.integers(0, 3),
        at=st.integers(0, 10**6),
        flip=st.integers(1, 255),
    )
    def corrupt(self, which: int, chunk: int, at: int, flip: int) -> None:
        account = self._known()[which % len(self.accounts)]
        frame = bytearray(account.sent.frame(chunk))
        frame[at % len(frame)] ^= flip
        self.frames += 1
        self.desk.gossip(bytes(frame), b"mallory", account.sent.channel.id)

    @precondition(lambda self: self.accounts)
    @rule(which=st.integers(0, 10**6), chunk=st.integers(0, 3))
    def false_witness(self, which: int, chunk: int) -> None:
        account = self._known()[which % len(self.accounts)]
        self.frames += 1
        self.desk.gossip(account.sent.frame(chunk, STRANGER), b"mallory", account.sent.channel.id)

    @precondition(lambda self: self.desk.waiting)
    @rule(which=st.integers(0, 10**6))
    def answer(self, which: int) -> None:
        index = which % len(self.desk.waiting)
        action = self.desk.waiting[index]
        self.desk.answer(index)
        if not isinstance(action, CheckChunk):
            return
        try:
            checked = check_chunk(action.frame, CHANNELS[action.channel], witnessed=True)
        except RemoteError:
            return
        attested = checked.attested
        account = self.accounts.get(
            (checked.producer, attested.channel, attested.message_id, attested.timestamp)
        )
        honest = any(checked.member == each.address for each in MEMBERS)
        due = self.desk.now - attested.timestamp <= PARAMS.tolerable_latency
        if account is not None and honest and due:
            account.chunks.setdefault(checked.chunk, self.desk.now)

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 5.0, 9.9]))
    def wait(self, seconds: float) -> None:
        self.desk.wait(seconds)

    @rule()
    def answer_all(self) -> None:
        while self.desk.waiting:
            self.answer(0)

    @invariant()
    def what_is_delivered_is_valid_and_delivered_once(self) -> None:
        if not hasattr(self, "desk"):
            return
        for delivery in self.desk.delivered:
            assert delivery.block in GOOD
            assert delivery.message_id == message_id_of(delivery.block)
        found = [(each.channel, each.block_hash) for each in self.desk.delivered]
        assert len(found) == len(set(found)) or self.desk.now > 1_800_000_000 + 60

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.answer_all()
        self.desk.finish()
        self.desk.wait(100)
        assert len(self.desk.verdicts) == self.frames
        self.desk.handle(MarketplaceChanged(market()))
        assert self.desk.idle(), "nothing is remembered for ever"
        blamed = self._blamed()
        delivered = {(each.channel, each.message_id) for each in self.desk.delivered}
        lost = [(each.channel, each.message_id) for each in self.desk.undecided]
        for account in self._known():
            if account.chunks:
                note(f"{account.sent.producer} {account.sent.block!r} {account.chunks}")
                self._check(account, blamed.pop(account.key(), []), delivered, lost)
        assert not blamed, "nobody else is blamed"

    def _blamed(self) -> dict[tuple[bytes, int, bytes, int], list[Kind]]:
        """Each broadcast in a dispute, and the kinds of these; all evidence holds."""
        blamed: dict[tuple[bytes, int, bytes, int], list[Kind]] = {}
        for evidence in self.desk.disputes:
            self._holds(evidence)
            if evidence.kind in (Kind.REPLAY, Kind.FALSE_WITNESS):
                continue
            timestamps = {
                (producer, decode_attested(exhibit.attested).timestamp)
                for exhibit in evidence.exhibits
                for producer in [self.signed[exhibit.attested, exhibit.signature]]
            }
            for producer, timestamp in timestamps:
                key = (producer, evidence.channel.id, evidence.message_id, timestamp)
                blamed.setdefault(key, []).append(evidence.kind)
        return blamed

    def _holds(self, evidence: Evidence) -> None:
        evidence = decode_evidence(encode_evidence(evidence))
        finding = verify_evidence(
            evidence, market(), judge, restore=bytes, channels=CHANNELS, params=PARAMS
        )
        assert finding.holds, finding.statements

    def _check(
        self,
        account: Account,
        blamed: list[Kind],
        delivered: set[tuple[int, bytes]],
        lost: list[tuple[int, bytes]],
    ) -> None:
        block = account.sent.block
        valid = judge(block).verdict is Verdict.ACCEPT and account.honest()
        came = account.named() in delivered
        if not account.enough():
            assert blamed == ([] if came else [Kind.TOO_FEW_CHUNKS]) or self._twice(account)
        elif not account.enough_in_time():
            assert len(blamed) <= 1  # its time may have been longer: others began with it
            assert blamed or came or account.named() in lost
        elif valid:
            assert came
            assert not blamed
        elif block == ODD:
            assert account.named() in lost
            assert not blamed
        else:
            assert blamed == [Kind.INVALID_BLOCK]

    def _twice(self, account: Account) -> bool:
        """Whether the id came a long time before or after: then both are right."""
        return any(
            other is not account
            and other.named() == account.named()
            and other.chunks
            and abs(other.first - account.first) > PARAMS.chunk_expiry
            for other in self._known()
        )


TestConsuming = Consuming.TestCase
TestConsuming.settings = settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_any_loss_order_and_repetition_of_one_broadcast() -> None:
    """Every subset of chunks: a block or a dispute, never both, never neither."""
    rng = Random(5)
    for block in BLOCKS:
        for subset in range(1, 16):
            desk = Desk()
            sent = send(ALICE, block)
            chunks = [chunk for chunk in range(4) if subset >> chunk & 1] * 2
            rng.shuffle(chunks)
            desk.feed(sent, *chunks)
            desk.finish()
            enough = len(set(chunks)) >= CHANNEL.min_chunks
            outcome = (len(desk.delivered), desk.kinds(), len(desk.undecided))
            if not enough:
                assert outcome == (0, [Kind.TOO_FEW_CHUNKS], 0)
            elif block in GOOD:
                assert outcome == (1, [], 0)
            elif block == BAD:
                assert outcome == (0, [Kind.INVALID_BLOCK], 0)
            else:
                assert outcome == (0, [], 1)
