"""Who puts one stake behind two messages: what producers attested lately, and what contradicts it.

Theory of operation. An attestation occupies a range of its producer's stake (`stake_of`). Of one
producer, two different attestations whose ranges overlap must be at least a refresh interval
apart. Ranges are kept by producer and by epoch, a refresh interval of timestamps. Those of one
epoch are closer than that, so they cannot overlap, and a sorted list and two neighbours say
whether another one does. Only the epochs before and after can hold a further contradiction.

What contradicts something is reported and not remembered: of two that overlap the earlier to come
stays. Call `note` only with attestations whose timestamp is at most a tolerable latency away: then
what is kept for a refresh interval and two latencies is all that can ever contradict a new one.

The room is bounded. Where it ends the oldest are forgotten, and counted in `forgotten`: a
contradiction may be missed, nobody is accused wrongly.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from bruit.node.relay.evidence import Evidence, Exhibit, Kind
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.signing import stake_of
from bruit.node.relay.wire import Attested

MAX_CLAIMS_PER_PRODUCER = 16_384  # guess: 4 broadcasts of 48 chunks a second, for 70 s
MAX_CLAIMS = 131_072  # of all producers; guess: 8 such producers
# Disputes about one producer or peer within a refresh interval or so; its further faults are
# dropped and no longer disputed: these suffice to slash it. Guesses.
MAX_TOLD_PER_CULPRIT = 64
MAX_TOLD = 16_384

_Place = tuple[int, bytes, int, int]  # channel, message id, chunk, timestamp
_Broadcast = tuple[int, bytes, int]  # channel, message id, timestamp


class Claim(msgspec.Struct, frozen=True, gc=False):
    """An attestation and the stake that it occupies."""

    producer: bytes  # 20-byte id
    channel: ChannelParams
    attested: Attested
    signature: bytes  # 65 bytes
    start: int  # first token
    end: int  # the first token behind
    seen_at: float  # Unix time at which it was noted, seconds

    def broadcast(self) -> _Broadcast:
        return (self.attested.channel, self.attested.message_id, self.attested.timestamp)


class StakeFault(msgspec.Struct, frozen=True):
    """An attestation that must not be, and the one that it contradicts."""

    kind: Kind  # OVERLAPPING_STAKE, OVERSPENT_STAKE or CONFLICTING_CHUNKS
    claim: Claim
    earlier: Claim | None  # None for OVERSPENT_STAKE
    stake: int  # tokens that the producer had
    told: bool  # found between these two broadcasts before, or too often: no news


class StakeWatch:
    """What producers attested within the last refresh interval. Pure."""

    def __init__(self, params: RelayParams) -> None:
        self._params = params
        self._producers: dict[bytes, _Claims] = {}
        # All claims, the first noted first. A plain dict is slow where its front is eaten away.
        self._order: OrderedDict[tuple[bytes, _Place], Claim] = OrderedDict()
        self._told = Told(params)
        self.forgotten = 0  # claims forgotten for want of room, since the start

    def __len__(self) -> int:
        """Claims remembered."""
        return len(self._order)

    def note(
        self,
        producer: bytes,
        channel: ChannelParams,
        attested: Attested,
        signature: bytes,
        stake: int,
        now: float,
    ) -> StakeFault | None:
        """Remember an attestation, or say what it contradicts.

        ``signature`` has been verified to be ``producer``'s; ``stake``: tokens registered for it.
        """
        self._expire(now)
        place = _place(attested)
        claims = self._producers.get(producer)
        same = claims.by_place.get(place) if claims is not None else None
        if same is not None and same.attested == attested:
            return None
        start, end = stake_of(attested, channel.num_chunks, self._params.stake_per_byte)
        claim = Claim(producer, channel, attested, signature, start, end, now)
        if end > stake:
            return self._fault(Kind.OVERSPENT_STAKE, claim, None, stake, now)
        if same is not None:
            return self._fault(Kind.CONFLICTING_CHUNKS, claim, same, stake, now)
        if claims is not None:
            earlier = claims.overlapping(claim)
            if earlier is not None:
                return self._fault(Kind.OVERLAPPING_STAKE, claim, earlier, stake, now)
            if len(claims.by_place) >= MAX_CLAIMS_PER_PRODUCER:
                self._forget(next(iter(claims.by_place.values())))
                self.forgotten += 1
        while len(self._order) >= MAX_CLAIMS:
            self._forget(next(iter(self._order.values())))
            self.forgotten += 1
        self._producers.setdefault(producer, _Claims(self._params.refresh_interval)).add(claim)
        self._order[producer, place] = claim
        return None

    def _fault(
        self, kind: Kind, claim: Claim, earlier: Claim | None, stake: int, now: float
    ) -> StakeFault:
        other = None if earlier is None else earlier.broadcast()
        news = self._told.is_news(claim.producer, (kind, claim.broadcast(), other), now)
        return StakeFault(kind, claim, earlier, stake, not news)

    def _expire(self, now: float) -> None:
        # Neither `now` nor the times of what was noted ever go back: the first are the oldest.
        # Twice the latency: a timestamp may be one ahead, and what contradicts it one behind.
        limit = now - self._params.refresh_interval - 2 * self._params.tolerable_latency
        while self._order and next(iter(self._order.values())).seen_at < limit:
            self._forget(next(iter(self._order.values())))

    def _forget(self, claim: Claim) -> None:
        del self._order[claim.producer, _place(claim.attested)]
        claims = self._producers[claim.producer]
        claims.remove(claim)
        if not claims.by_place:
            del self._producers[claim.producer]


class Told:
    """What has been disputed lately, so that one fault does not fill the disk. Pure."""

    def __init__(
        self, params: RelayParams, per_culprit: int = MAX_TOLD_PER_CULPRIT, in_all: int = MAX_TOLD
    ) -> None:
        self._per_culprit = per_culprit
        self._in_all = in_all
        # A fault can be found again for as long as its chunks are taken: two latencies at most.
        self._keep = params.refresh_interval + params.tolerable_latency
        self._told: OrderedDict[tuple[bytes, Hashable], float] = OrderedDict()  # at Unix time
        self._count: dict[bytes, int] = {}  # culprit → how many of `_told`

    def is_news(self, culprit: bytes, fault: Hashable, now: float) -> bool:
        """Whether to dispute it: not told yet, and there is room for more of this culprit."""
        while self._told and next(iter(self._told.values())) < now - self._keep:
            (other, _), _ = self._told.popitem(last=False)
            self._count[other] -= 1
            if not self._count[other]:
                del self._count[other]
        count = self._count.get(culprit, 0)
        full = count >= self._per_culprit or len(self._told) >= self._in_all
        if full or (culprit, fault) in self._told:
            return False
        self._told[culprit, fault] = now
        self._count[culprit] = count + 1
        return True


def stake_evidence(fault: StakeFault, params: RelayParams, found_at: float) -> Evidence:
    """What shows a fault to anybody: the earlier attestation first.

    The channel is that of the attestation with the lower offset. How far the other one's range
    goes, which its own channel's number of chunks may decide, does not matter: ranges overlap
    if and only if the lower one ends behind the beginning of the other.
    """
    claim, earlier = fault.claim, fault.earlier
    claims = (claim,) if earlier is None else (earlier, claim)
    lower = min(claims, key=lambda each: each.start)
    return Evidence(
        kind=fault.kind,
        reason=_reason(fault),
        found_at=found_at,
        channel=lower.channel,
        params=params,
        message_id=claim.attested.message_id,
        producers=(claim.producer,),
        exhibits=tuple(Exhibit(each.attested.encode(), each.signature) for each in claims),
        stake=fault.stake,
    )


def _reason(fault: StakeFault) -> str:
    claim, earlier = fault.claim, fault.earlier
    who = f"producer {claim.producer.hex()}"
    if earlier is None:
        return f"{who} attached stake up to token {claim.end} and has {fault.stake}"
    if fault.kind is Kind.CONFLICTING_CHUNKS:
        return f"{who} attested chunk {claim.attested.chunk} of one broadcast in two ways"
    apart = abs(claim.attested.timestamp - earlier.attested.timestamp)
    return (
        f"{who} attached tokens {claim.start} to {claim.end} and {earlier.start} to "
        f"{earlier.end} within {apart} s"
    )


def _place(attested: Attested) -> _Place:
    return (attested.channel, attested.message_id, attested.chunk, attested.timestamp)


class _Epoch:
    """Claims that occupy disjoint ranges, by where these start."""

    __slots__ = ("claims", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.claims: list[Claim] = []

    def first_from(self, start: int) -> int:
        """Index of the first claim that ends behind ``start``."""
        at = bisect_left(self.starts, start)
        return at - 1 if at and self.claims[at - 1].end > start else at

    def add(self, claim: Claim) -> None:
        at = bisect_left(self.starts, claim.start)
        self.starts.insert(at, claim.start)
        self.claims.insert(at, claim)

    def remove(self, claim: Claim) -> None:
        at = bisect_left(self.starts, claim.start)
        del self.starts[at], self.claims[at]


class _Claims:
    """One producer's."""

    def __init__(self, refresh_interval: float) -> None:
        self._refresh_interval = refresh_interval
        self._epochs: dict[int, _Epoch] = {}
        self.by_place: OrderedDict[_Place, Claim] = OrderedDict()  # the first noted first

    def overlapping(self, claim: Claim) -> Claim | None:
        """One that is on the same stake less than a refresh interval apart."""
        here = self._number(claim)
        for number in (here, here - 1, here + 1):
            epoch = self._epochs.get(number)
            if epoch is None:
                continue
            for at in range(epoch.first_from(claim.start), len(epoch.claims)):
                other = epoch.claims[at]
                if other.start >= claim.end:
                    break
                apart = abs(other.attested.timestamp - claim.attested.timestamp)
                if apart < self._refresh_interval:
                    return other
        return None

    def add(self, claim: Claim) -> None:
        self._epochs.setdefault(self._number(claim), _Epoch()).add(claim)
        self.by_place[_place(claim.attested)] = claim

    def remove(self, claim: Claim) -> None:
        number = self._number(claim)
        self._epochs[number].remove(claim)
        if not self._epochs[number].claims:
            del self._epochs[number]
        del self.by_place[_place(claim.attested)]

    def _number(self, claim: Claim) -> int:
        return int(claim.attested.timestamp // self._refresh_interval)
