"""What must come of an exchange, by somebody who sees all of it (`exchange`).

Who signed what is known from the signing itself, never from a signature. Accounts are lists that
are searched from end to end. Each machine's account is its own: what it was told, at which time,
and by which marketplace.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bruit.node.relay.actions import (
    BlockUndecided,
    Broadcasted,
    BroadcastRefused,
    CheckChunk,
    DeliverBlock,
    Dispute,
    Judged,
    PublishChunk,
    SendAcknowledgement,
)
from bruit.node.relay.events import (
    ChunkChecked,
    ChunkGossiped,
    ChunkSeen,
    MarketplaceChanged,
    TimerFired,
)
from bruit.node.relay.evidence import Evidence, Kind, decode_evidence, encode_evidence
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.proof import ProofOfBroadcast, decode_proof, encode_proof, verify_proof
from bruit.node.relay.signing import CheckedChunk
from bruit.node.relay.wire import ATTESTATION_SIZE, WHOLE, Attested, decode_attested
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import RemoteError
from bruit.topics.validation import Validation, Verdict

WITNESS = slice(ATTESTATION_SIZE, ATTESTATION_SIZE + 65)  # Marlin, §Message Format
Key = tuple[bytes, int, bytes, int]  # producer, channel, message id, timestamp
Fault = tuple[Kind, bytes, tuple[int, bytes, int], tuple[int, bytes, int] | None]
STAKE_FAULTS = (Kind.OVERLAPPING_STAKE, Kind.OVERSPENT_STAKE, Kind.CONFLICTING_CHUNKS)


def _broadcast_of(attested: Attested) -> tuple[int, bytes, int]:
    return (attested.channel, attested.message_id, attested.timestamp)


def key_of(checked: CheckedChunk) -> Key:
    return (checked.producer, *_broadcast_of(checked.attested))


class Account(msgspec.Struct):
    """One broadcast at one consumer: each accepted chunk, and when. The first come first."""

    chunks: dict[int, tuple[float, CheckedChunk]]
    excused: bool = False  # its producer has left the marketplace meanwhile

    @property
    def first(self) -> float:
        return next(iter(self.chunks.values()))[0]


class Book:
    """One machine's account; of one life."""

    def __init__(self, address: bytes, is_consumer: bool, life: int) -> None:
        self.address = address
        self.life = life
        self.is_consumer = is_consumer
        self.begun = -1.0
        self.views: list[tuple[float, Marketplace]] = []  # since when
        self.claims: list[tuple[bytes, Attested, int, int]] = []  # producer, start, end
        self.faults: dict[Fault, int] = {}  # reported, and how often
        self.questions: dict[int, tuple[CheckChunk, object]] = {}
        self.held: list[CheckedChunk] = []
        # A consumer's:
        self.accounts: dict[Key, Account] = {}
        self.delivered: list[tuple[float, DeliverBlock]] = []
        self.undecided: list[BlockUndecided] = []
        self.disputes: list[tuple[float, Evidence]] = []
        self.closed: dict[Key, None] = {}  # broadcasts that were disputed

    @property
    def market(self) -> Marketplace:
        return self.views[-1][1]

    def knows_too_little(self, now: float, latency: float) -> bool:
        """Whether it began so lately that it cannot know what the marketplace was before."""
        return self.life > 0 and now - self.begun <= latency

    def lately(self, now: float, latency: float) -> list[Marketplace]:
        """Every marketplace that counted within the last ``latency`` seconds."""
        ends = [since for since, _ in self.views[1:]] + [now]
        return [
            market
            for (_, market), end in zip(self.views, ends, strict=True)
            if end + latency >= now
        ]


def stake_in(market: Marketplace, producer: bytes) -> int | None:
    return next((each.stake for each in market.producers if each.address == producer), None)


def cluster_in(market: Marketplace, member: bytes) -> int | None:
    for cluster in market.clusters:
        if any(each.address == member for each in cluster.members):
            return cluster.id
    return None


class Oracle:
    """``foes``: addresses of those who may be accused of anything."""

    def __init__(
        self,
        channels: Mapping[int, ChannelParams],
        params: RelayParams,
        judge: Callable[[bytes], Validation],
        foes: set[bytes],
    ) -> None:
        self.channels = dict(channels)
        self.params = params
        self.judge = judge
        self.foes = foes
        self.signed: dict[tuple[bytes, bytes], bytes] = {}  # digest and signature → who
        self.made: dict[bytes, CheckedChunk] = {}  # what producers attested, by its bare frame
        self.blocks: dict[tuple[int, bytes], bytes] = {}  # channel and hash → block
        self.books: dict[str, Book] = {}  # of the machines that live
        self.evidence: list[tuple[Evidence, Marketplace]] = []  # with that of its time
        self.proofs: list[ProofOfBroadcast] = []
        self.answers: Counter[int] = Counter()
        # cluster, producer, channel, message id, chunk: what each cluster's members have held
        self.held: set[tuple[int, bytes, bytes, int]] = set()
        self.verdicts: Counter[Verdict] = Counter()

    def begins(self, name: str, address: bytes, is_consumer: bool) -> None:
        life = self.books[name].life + 1 if name in self.books else 0
        self.books[name] = Book(address, is_consumer, life)

    # --- what happens

    def saw(self, name: str, event: object, actions: Sequence[object], now: float) -> None:
        """``event`` came to a machine, which wants ``actions`` done."""
        book = self.books[name]
        self._keep(book, event, actions, now)
        match event:
            case MarketplaceChanged(marketplace):
                if book.begun < 0:
                    book.begun = now
                book.views.append((now, marketplace))
                for key, account in book.accounts.items():
                    if stake_in(marketplace, key[0]) is None and key not in book.closed:
                        account.excused = True
            case ChunkChecked(ticket):
                question, cause = book.questions.pop(ticket, (None, None))
                if question is not None:
                    if book.is_consumer:
                        self._consumer_checked(book, question, cause, actions, now)
                    else:
                        self._member_checked(book, question, actions, now)
            case ChunkSeen(checked):
                if stake_in(book.market, checked.producer) is not None:
                    self._gathered(book, checked, actions, now)
            case TimerFired(timer) if not book.is_consumer and timer.name == "due":
                due = [one for one in book.held if one.attested.timestamp == timer.epoch]
                book.held = [one for one in book.held if one not in due]
                for one in due:
                    self._member_takes(book, one, actions, now)
        for action in actions:
            self._wanted(book, action, now)

    def _keep(self, book: Book, event: object, actions: Sequence[object], now: float) -> None:
        for action in actions:
            match action:
                case CheckChunk(ticket):
                    book.questions[ticket] = (action, event)
                case Dispute(evidence):
                    self._disputed(book, evidence, now)

    def _wanted(self, book: Book, action: object, now: float) -> None:
        match action:
            case DeliverBlock():
                self._delivered(book, action, now)
            case BlockUndecided():
                book.undecided.append(action)
            case Broadcasted(ticket, proof):
                self.answers[ticket] += 1
                self._proved(book, proof, now)
            case BroadcastRefused(ticket):
                self.answers[ticket] += 1
            case PublishChunk(channel, frame):
                self._published(book, CheckChunk(0, channel, frame, True), now)
            case SendAcknowledgement(_, frame):
                cluster = int.from_bytes(frame[6:8], "big")
                held = (cluster, frame[12:32], frame[:4], int.from_bytes(frame[4:6], "big"))
                assert held in self.held, "a member acknowledges what its cluster has not"

    # --- a frame

    def identify(self, question: CheckChunk) -> CheckedChunk | None:
        """The chunk that a frame is, if its producer and its witness signed it."""
        frame = question.frame
        bare = frame[: WITNESS.start] + frame[WITNESS.stop :] if question.witnessed else frame
        made = self.made.get(bare)
        if made is None or made.attested.channel != question.channel:
            return None
        if not question.witnessed:
            return made
        member = self.signed.get((keccak256(bare), frame[WITNESS]))
        return None if member is None else msgspec.structs.replace(made, member=member)

    def _age(self, checked: CheckedChunk, now: float) -> float:
        return now - checked.attested.timestamp

    def _consumer_checked(
        self, book: Book, question: CheckChunk, cause: object, actions: Sequence[object], now: float
    ) -> None:
        assert isinstance(cause, ChunkGossiped)
        (verdict,) = [each.validation.verdict for each in actions if isinstance(each, Judged)]
        self.verdicts[verdict] += 1
        latency = self.params.tolerable_latency
        checked = self.identify(question)
        if checked is None:
            assert verdict is not Verdict.ACCEPT, "a forged frame is passed on"
            return
        lately = book.lately(now, latency)
        if stake_in(book.market, checked.producer) is None:
            known = any(stake_in(each, checked.producer) is not None for each in lately)
            assert verdict is Verdict.IGNORE if known else verdict is not Verdict.ACCEPT
        elif abs(self._age(checked, now)) > latency:
            assert verdict is Verdict.IGNORE
        elif all(cluster_in(each, checked.member) is None for each in (book.market, *lately)):
            assert verdict is not Verdict.ACCEPT
        else:
            expected = self._gathered(book, checked, actions, now)
            assert expected is None or verdict is expected, (verdict, expected)

    def _gathered(
        self, book: Book, checked: CheckedChunk, actions: Sequence[object], now: float
    ) -> Verdict | None:
        """What a consumer must say of a chunk that is right as such; None: either."""
        if not self._backed(book, checked, now):
            return Verdict.IGNORE
        key = key_of(checked)
        account = book.accounts.setdefault(key, Account({}))
        if checked.chunk in account.chunks:
            return Verdict.IGNORE
        late = bool(account.chunks) and now >= account.first + self.params.chunk_expiry
        disputed = key in book.closed
        if not disputed:
            account.chunks[checked.chunk] = (now, checked)
        return None if late or disputed else Verdict.ACCEPT

    def _backed(self, book: Book, checked: CheckedChunk, now: float) -> bool:
        """Whether a chunk's stake is right; that it is reported once where it is not."""
        attested, producer = checked.attested, checked.producer
        if any(who == producer and claim == attested for who, claim, _, _ in book.claims):
            return True
        count = self.channels[attested.channel].num_chunks if attested.chunk == WHOLE else 1
        size = count * (attested.chunk_length + 81) * self.params.stake_per_byte
        start, end = attested.stake_offset, attested.stake_offset + size
        stakes = [
            stake_in(each, producer) for each in book.lately(now, self.params.tolerable_latency)
        ]
        this, faults = _broadcast_of(attested), dict[Fault, None]()
        if end > max(each for each in stakes if each is not None):
            faults[Kind.OVERSPENT_STAKE, producer, this, None] = None
        for who, claim, other_start, other_end in book.claims:
            if who != producer:
                continue
            other = _broadcast_of(claim)
            apart = abs(claim.timestamp - attested.timestamp)
            if claim.chunk == attested.chunk and other == this:
                faults[Kind.CONFLICTING_CHUNKS, producer, this, other] = None
            elif start < other_end and other_start < end and apart < self.params.refresh_interval:
                faults[Kind.OVERLAPPING_STAKE, producer, this, other] = None
        if not faults:
            book.claims.append((producer, attested, start, end))
            return True
        honest = producer not in self.foes and not book.knows_too_little(
            now, self.params.tolerable_latency
        )
        assert not honest, f"an honest producer did this: {list(faults)}"
        assert any(fault in book.faults for fault in faults), f"never reported: {list(faults)}"
        return False

    def _member_checked(
        self, book: Book, question: CheckChunk, actions: Sequence[object], now: float
    ) -> None:
        checked = self.identify(question)
        cluster = cluster_in(book.market, book.address)
        if checked is None or cluster is None:
            return
        if question.witnessed and cluster_in(book.market, checked.member) != cluster:
            return
        self._member_takes(book, checked, actions, now)

    def _member_takes(
        self, book: Book, checked: CheckedChunk, actions: Sequence[object], now: float
    ) -> None:
        latency, attested = self.params.tolerable_latency, checked.attested
        cluster = cluster_in(book.market, book.address)
        if cluster is None or stake_in(book.market, checked.producer) is None:
            return
        if -latency <= self._age(checked, now) < 0:
            book.held.append(checked)
        elif 0 <= self._age(checked, now) <= latency and self._backed(book, checked, now):
            self.held.add((cluster, checked.producer, attested.message_id, checked.chunk))

    # --- what is said of others

    def _named(self, evidence: Evidence) -> dict[Key, None]:
        """The broadcasts that evidence is about."""
        found: dict[Key, None] = {}
        for exhibit in evidence.exhibits:
            signer = self.signed.get((keccak256(exhibit.attested), exhibit.signature))
            assert signer is not None, "an exhibit that nobody signed"
            found[signer, *_broadcast_of(decode_attested(exhibit.attested))] = None
        if evidence.kind in (Kind.REPLAY, Kind.FALSE_WITNESS):
            return {}
        return found

    def _disputed(self, book: Book, evidence: Evidence, now: float) -> None:
        named = self._named(evidence)
        self.evidence.append((evidence, book.market))
        book.disputes.append((now, evidence))
        finding = self.verify(evidence, book.market)
        assert finding, f"evidence that does not hold: {evidence}"
        if not book.knows_too_little(now, self.params.tolerable_latency):
            if evidence.kind not in (Kind.TOO_FEW_CHUNKS, Kind.REPLAY, Kind.FALSE_WITNESS):
                assert set(evidence.producers) <= self.foes, "an honest producer is accused"
            friends = {other.address for other in self.books.values()} - self.foes
            assert not set(evidence.culprits) & friends, "an honest member is accused"
        if evidence.kind in (Kind.INVALID_BLOCK, Kind.TOO_FEW_CHUNKS):
            book.closed.update(named)
        if named:
            assert set(evidence.producers) == {producer for producer, *_ in named}
        if evidence.kind in STAKE_FAULTS:
            attested = [decode_attested(each.attested) for each in evidence.exhibits]
            earlier = _broadcast_of(attested[0]) if len(attested) > 1 else None
            fault = (
                evidence.kind,
                evidence.producers[0],
                _broadcast_of(attested[-1]),
                earlier,
            )
            book.faults[fault] = book.faults.get(fault, 0) + 1
            assert book.faults[fault] == 1, "reported twice"

    def verify(self, evidence: Evidence, market: Marketplace) -> bool:
        """Whether evidence holds after it was written to a file and read again."""
        return verify_evidence(
            decode_evidence(encode_evidence(evidence)),
            market,
            self.judge,
            restore=bytes,
            channels=self.channels,
            params=self.params,
        ).holds

    def _delivered(self, book: Book, delivery: DeliverBlock, now: float) -> None:
        block = self.blocks.get((delivery.channel, delivery.block_hash))
        assert block is not None, "nobody broadcast this"
        assert block == delivery.block
        assert self.judge(block).verdict is Verdict.ACCEPT
        assert delivery.message_id == delivery.block_hash[:4]
        for at, other in book.delivered:
            same = (other.channel, other.block_hash) == (delivery.channel, delivery.block_hash)
            assert not same or now - at > self.params.refresh_interval, "delivered twice"
        chunks: set[int] = set()
        for producer in delivery.producers:
            sent = [
                account
                for key, account in book.accounts.items()
                if key[:3] == (producer, delivery.channel, delivery.message_id)
            ]
            assert sent, "rebuilt from chunks of somebody who sent none"
            chunks.update(*(account.chunks for account in sent))
        assert len(chunks) >= self.channels[delivery.channel].min_chunks
        book.delivered.append((now, delivery))

    def _proved(self, book: Book, proof: ProofOfBroadcast, now: float) -> None:
        self.proofs.append(proof)
        proof = decode_proof(encode_proof(proof))
        steady = len(book.views) == 1
        assert verify_proof(proof, book.market if steady else None).holds
        for receipt in proof.receipts:
            given = receipt.acknowledgement
            if given:
                cluster = int.from_bytes(given[6:8], "big")
                member = self.signed[keccak256(given[:32]), given[32:]]
                views = [market for _, market in book.views]
                assert any(cluster_in(each, member) == cluster for each in views)
                held = (cluster, proof.producer, proof.message_id, receipt.chunk)
                assert held in self.held or member in self.foes, "acknowledged, but never held"

    def _published(self, book: Book, frame: CheckChunk, now: float) -> None:
        """A member publishes what is due, backed and witnessed in its cluster; nothing else."""
        checked = self.identify(frame)
        assert checked is not None, "a forged frame is published"
        cluster = cluster_in(book.market, book.address)
        assert cluster is not None
        assert cluster_in(book.market, checked.member) == cluster
        assert stake_in(book.market, checked.producer) is not None
        assert 0 <= self._age(checked, now) <= self.params.tolerable_latency
        claims = [(producer, claim) for producer, claim, _, _ in book.claims]
        assert (checked.producer, checked.attested) in claims

    # --- in the end

    def check(self) -> None:
        """When nothing is under way any more: every account is settled, and rightly."""
        for name, book in self.books.items():
            if book.is_consumer:
                blamed: dict[Key, list[Kind]] = {}
                for _, evidence in book.disputes:
                    if evidence.kind not in STAKE_FAULTS:
                        for key in self._named(evidence):
                            blamed.setdefault(key, []).append(evidence.kind)
                for key, account in book.accounts.items():
                    self._settled(name, book, key, account, blamed.pop(key, []))
                assert not blamed, "somebody is blamed who did nothing here"

    def _settled(
        self, name: str, book: Book, key: Key, account: Account, blamed: list[Kind]
    ) -> None:
        assert len(blamed) <= 1, f"{name} disputes one broadcast as {blamed}"
        if not account.chunks:
            return
        params, (_, channel, message_id, _) = self.params, key
        code = self.channels[channel].code()
        first, count = account.first, self.channels[channel].min_chunks
        early = [at for at, _ in account.chunks.values() if at < first + params.chunk_expiry]
        times = [
            at
            for at, each in book.delivered
            if (each.channel, each.message_id) == (channel, message_id)
        ]
        lost = any(
            (each.channel, each.message_id) == (channel, message_id) for each in book.undecided
        )
        came = any(-params.chunk_expiry <= at - first < params.chunk_expiry for at in times)
        what = f"{name}: {key} {list(account.chunks)} {blamed} {times}"
        if len(early) >= count:
            used = list(account.chunks.values())[:count]
            try:
                payload = code.decode({each.chunk: each.frame.chunk for _, each in used})
            except RemoteError:
                assert blamed == [Kind.INVALID_BLOCK], what
                return
            verdict = self.judge(payload).verdict
            digest = keccak256(payload)
            named = any(
                self.blocks.get((channel, known)) == payload and known[:4] == message_id
                for _, known in self.blocks
            )
            if verdict is Verdict.IGNORE:
                assert lost, what
                assert not blamed, what
            elif verdict is Verdict.ACCEPT and (named or digest[:4] == message_id):
                assert any(each.block == payload for _, each in book.delivered), what
                assert not blamed, what
            else:
                assert blamed == [Kind.INVALID_BLOCK], what
        elif len(account.chunks) >= count:
            assert blamed or times or lost or account.excused, what
        elif account.excused or came:
            assert not blamed, what
        elif not times:
            assert blamed == [Kind.TOO_FEW_CHUNKS], what
        else:
            assert blamed in ([], [Kind.TOO_FEW_CHUNKS]), what
