"""Verification of evidence, offline: what it proves, from its bytes and nothing else.

Nothing that the evidence says of itself is believed. Signers are recovered, frames are split and
hashed, blocks are rebuilt again. Where more is needed (who the members were, what a chain's plugin
says), it is handed in; without it the evidence does not hold, and the finding says what is missing.
"""

from collections.abc import Callable, Mapping

from bruit.node.relay.evidence import Evidence, Kind, plain
from bruit.node.relay.finding import Finding
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.signing import (
    CheckedChunk,
    check_chunk,
    message_id_of,
    recover,
    stake_of,
)
from bruit.node.relay.wire import WHOLE, Attested, decode_attested
from bruit.plugins.marketplace import Marketplace
from bruit.topics.errors import LocalError, PluginError, RemoteError
from bruit.topics.validation import Validation, Verdict

Judge = Callable[[bytes], Validation]
Restore = Callable[[bytes], bytes]


def verify_evidence(
    evidence: Evidence,
    marketplace: Marketplace | None,
    judge: Judge | None,
    *,
    restore: Restore | None = None,
    channels: Mapping[int, ChannelParams] | None = None,
    params: RelayParams | None = None,
) -> Finding:
    """Whether evidence holds, and what it shows.

    ``marketplace``: as it was when the evidence was found. ``judge``: the chain's validator, as
    `evidence.validator` names it; ``restore``: the post-processing before it, the identity on a
    channel that has none. ``judge`` is given what ``restore`` gives, or the payload without it.
    ``channels``, ``params``: what the verifier knows the network to have agreed on; evidence that
    goes by anything else does not hold. Without them the evidence's own are used, and the finding
    says so.
    """
    case = _Case(evidence, marketplace)
    try:
        case.check_agreed(channels, params)
        case.check_exhibits()
        match evidence.kind:
            case Kind.INVALID_BLOCK:
                _invalid_block(case, judge, restore)
            case Kind.TOO_FEW_CHUNKS:
                _too_few_chunks(case)
            case Kind.OVERLAPPING_STAKE:
                _overlapping_stake(case)
            case Kind.OVERSPENT_STAKE:
                _overspent_stake(case)
            case Kind.CONFLICTING_CHUNKS:
                _conflicting_chunks(case)
            case Kind.FALSE_WITNESS:
                _false_witness(case)
            case Kind.REPLAY:
                _replay(case)
    except _Unproven as gap:
        case.say(str(gap))
        return Finding(False, tuple(case.statements))
    return Finding(True, tuple(case.statements))


class _Unproven(Exception):  # noqa: N818, no fault: the outcome of a check
    """What the evidence fails to show."""


class _Case:
    """One evidence while it is looked at."""

    def __init__(self, evidence: Evidence, marketplace: Marketplace | None) -> None:
        self.evidence = evidence
        self.marketplace = marketplace
        self.attested: list[Attested] = []  # of each exhibit
        self.signers: list[bytes] = []  # 20-byte id of each exhibit's producer
        self.statements: list[str] = []

    def say(self, statement: str) -> None:
        self.statements.append(plain(statement))

    def check_agreed(
        self, channels: Mapping[int, ChannelParams] | None, params: RelayParams | None
    ) -> None:
        channel = self.evidence.channel
        if channels is not None and channels.get(channel.id) != channel:
            raise _Unproven(
                f"It goes by parameters of channel {channel.id} that the network has not agreed on."
            )
        if params is not None and params != self.evidence.params:
            raise _Unproven("It goes by relay parameters that the network has not agreed on.")
        if channels is None or params is None:
            self.say(
                "The parameters of the relay are the evidence's own: it counts where they are "
                "those that the network has agreed on."
            )
        try:
            channel.code()
        except LocalError as problem:
            raise _Unproven(f"Its channel is impossible: {problem}.") from None

    def check_exhibits(self) -> None:
        """Who signed, and whether each frame is what was signed."""
        evidence = self.evidence
        if not evidence.exhibits:
            raise _Unproven("It exhibits nothing.")
        if len(evidence.exhibits) > max(2, evidence.params.chunk_report_limit):
            raise _Unproven("It exhibits more than the chunk report limit.")
        for number, exhibit in enumerate(evidence.exhibits):
            try:
                attested = decode_attested(exhibit.attested)
                signer = recover(keccak256(exhibit.attested), exhibit.signature)
            except RemoteError as problem:
                raise _Unproven(f"Exhibit {number} is not attested: {problem}.") from None
            self.attested.append(attested)
            self.signers.append(signer)
        if tuple(dict.fromkeys(self.signers)) != evidence.producers:
            raise _Unproven("Those whom it accuses are not those who signed its exhibits.")
        if self.attested[-1].message_id != evidence.message_id:
            raise _Unproven("It is said to be about another message than its exhibits are.")
        self.say(
            f"{_count(len(self.signers), 'exhibit')}, signed by "
            + ", ".join(f"producer {each.hex()}" for each in evidence.producers)
            + "."
        )
        if self.marketplace is not None:
            known = {producer.address for producer in self.marketplace.producers}
            for address in evidence.producers:
                if address not in known:
                    self.say(f"{address.hex()} is no producer in the marketplace given.")

    def frame(self, number: int) -> CheckedChunk:
        """The chunk in an exhibit, after all checks."""
        exhibit = self.evidence.exhibits[number]
        try:
            checked = check_chunk(exhibit.frame, self.evidence.channel, witnessed=exhibit.witnessed)
        except RemoteError as problem:
            raise _Unproven(f"The frame of exhibit {number} is none: {problem}.") from None
        if (
            checked.attested.encode() != exhibit.attested
            or checked.frame.attestation.signature != exhibit.signature
            or checked.producer != self.signers[number]
        ):
            raise _Unproven(f"The frame of exhibit {number} is not what was attested.")
        return checked

    def no_frames(self) -> None:
        if any(exhibit.frame or exhibit.witnessed for exhibit in self.evidence.exhibits):
            raise _Unproven("It exhibits frames, which this kind of evidence has no use for.")

    def one_signer(self, exhibits: int) -> bytes:
        if len(self.signers) != exhibits or len(self.evidence.producers) != 1:
            raise _Unproven(f"This takes {_count(exhibits, 'exhibit')} of one producer.")
        return self.signers[0]

    def nobody_else(self, *, validator: bool = False, stake: bool = False) -> None:
        """That the evidence says nothing beyond what its kind has a use for."""
        evidence = self.evidence
        if evidence.culprits:
            raise _Unproven("It accuses somebody whom its exhibits do not show.")
        if evidence.validator and not validator:
            raise _Unproven("It names a validator, which this kind of evidence has no use for.")
        if evidence.stake and not stake:
            raise _Unproven("It states a stake, which this kind of evidence has no use for.")


def _overlapping_stake(case: _Case) -> None:
    case.nobody_else(stake=True)
    case.no_frames()
    producer = case.one_signer(2)
    first, second = case.attested
    if first == second:
        raise _Unproven("Both exhibits are the same attestation, which is no second message.")
    if _place(first) == _place(second):
        raise _Unproven("Both are of one chunk: that is a conflict, not one stake for two.")
    lower, upper = sorted(case.attested, key=lambda each: each.stake_offset)
    if lower.channel != case.evidence.channel.id:
        raise _Unproven("The lower attestation is of another channel than the evidence.")
    _, end = _stake(case, lower)
    if end <= upper.stake_offset:
        raise _Unproven(
            f"The stake of the two does not overlap: one ends before token {end}, the other "
            f"begins at {upper.stake_offset}."
        )
    apart = abs(first.timestamp - second.timestamp)
    interval = case.evidence.params.refresh_interval
    if apart >= interval:
        raise _Unproven(f"The two are {apart} s apart: stake is free again after {interval:g} s.")
    case.say(
        f"Producer {producer.hex()} put one stake behind two attestations {apart} s apart: the "
        f"first ends before token {end}, the second begins at {upper.stake_offset}."
    )


def _overspent_stake(case: _Case) -> None:
    case.nobody_else(stake=True)
    case.no_frames()
    producer = case.one_signer(1)
    if case.attested[0].channel != case.evidence.channel.id:
        raise _Unproven("The attestation is of another channel than the evidence.")
    _, end = _stake(case, case.attested[0])
    case.say(f"Producer {producer.hex()} attached stake up to token {end}.")
    if case.marketplace is None:
        raise _Unproven("How much it had, only the marketplace of that time can tell: give it.")
    stakes = {each.address: each.stake for each in case.marketplace.producers}
    had = stakes.get(producer)
    if had is None:
        raise _Unproven("It is no producer in the marketplace given: give that of the time.")
    if had != case.evidence.stake:
        raise _Unproven(
            f"By the marketplace given it had {had}, by the evidence {case.evidence.stake}: give "
            "that of the time."
        )
    if end <= had:
        raise _Unproven(f"It had {had}: enough.")
    case.say(f"By the marketplace given it had {had}.")


def _stake(case: _Case, attested: Attested) -> tuple[int, int]:
    channel = case.evidence.channel
    return stake_of(attested, channel.num_chunks, case.evidence.params.stake_per_byte)


def _conflicting_chunks(case: _Case) -> None:
    case.nobody_else(stake=True)
    case.no_frames()
    producer = case.one_signer(2)
    first, second = case.attested
    if _place(first) != _place(second):
        raise _Unproven("The two are not of one chunk of one broadcast.")
    if first.channel != case.evidence.channel.id:
        raise _Unproven("The two are of another channel than the evidence.")
    if first == second:
        raise _Unproven("Both exhibits are the same attestation.")
    what = "all chunks" if first.chunk == WHOLE else f"chunk {first.chunk}"
    case.say(
        f"Producer {producer.hex()} attested {what} of message {first.message_id.hex()} of "
        f"{first.timestamp} in two ways."
    )


def _place(attested: Attested) -> tuple[bytes, int, int, int]:
    return (attested.message_id, attested.channel, attested.chunk, attested.timestamp)


def _false_witness(case: _Case) -> None:
    evidence = case.evidence
    case.one_signer(1)
    if evidence.validator or evidence.stake:
        raise _Unproven("It states what this kind of evidence has no use for.")
    if not evidence.exhibits[0].witnessed:
        raise _Unproven("Its frame holds no witness.")
    checked = case.frame(0)
    if evidence.culprits != (checked.member,):
        raise _Unproven(f"The witness is {checked.member.hex()}, not whom it accuses.")
    case.say(f"{checked.member.hex()} signed as witness for chunk {checked.chunk}.")
    age = evidence.found_at - checked.attested.timestamp
    if abs(age) > evidence.params.tolerable_latency:
        raise _Unproven(
            f"It was {age:.1f} s old when found: who was a member when it was witnessed is another "
            "question than who was one then."
        )
    if case.marketplace is None:
        raise _Unproven("Whether that is a member, only the marketplace of the time can tell.")
    for cluster in case.marketplace.clusters:
        if any(member.address == checked.member for member in cluster.members):
            raise _Unproven(f"That is a member of cluster {cluster.id}: an honest witness.")
    case.say("That is no member of any cluster in the marketplace given.")
    case.say("It does not show who passed the frame on, nor that the producer knew.")


def _replay(case: _Case) -> None:
    evidence = case.evidence
    case.nobody_else()
    limit = evidence.params.tolerable_latency
    for number, attested in enumerate(case.attested):
        _same_message(case, attested)
        case.frame(number)
        age = evidence.found_at - attested.timestamp
        if age <= limit:
            raise _Unproven(f"It was {age:.1f} s old when found: up to {limit:g} s are tolerable.")
        case.say(
            f"Attested for {attested.timestamp}, and {age:.1f} s old when found; up to {limit:g} s "
            "are tolerable."
        )
    case.say(
        "That it came so late is the word of who found it, by that node's clock: the signatures do "
        "not show it, nor who passed it on."
    )


def _too_few_chunks(case: _Case) -> None:
    evidence = case.evidence
    case.nobody_else()
    case.no_frames()
    channel = evidence.channel
    shown: dict[tuple[bytes, int], dict[int, None]] = {}
    for number, attested in enumerate(case.attested):
        _same_message(case, attested)
        chunk = attested.chunk
        if chunk != WHOLE and chunk >= channel.num_chunks:
            raise _Unproven(f"Exhibit {number} is chunk {chunk} of {channel.num_chunks}.")
        chunks = shown.setdefault((case.signers[number], attested.timestamp), {})
        if chunk in chunks:
            raise _Unproven(f"Exhibit {number} is there twice.")
        chunks[chunk] = None
    for (producer, timestamp), chunks in shown.items():
        if len(chunks) >= channel.min_chunks:
            raise _Unproven(f"Of {producer.hex()} there are {len(chunks)} chunks: enough.")
        what = "a root" if WHOLE in chunks else _count(len(chunks), "chunk")
        case.say(
            f"Producer {producer.hex()} attested {what} of message {evidence.message_id.hex()} of "
            f"{timestamp}; {channel.min_chunks} chunks rebuild one."
        )
    case.say(
        "It shows what was attested. That no more came in time is the word of who found it: a "
        "proof of broadcast refutes it."
    )


def _same_message(case: _Case, attested: Attested) -> None:
    if attested.channel != case.evidence.channel.id:
        raise _Unproven("An exhibit is of another channel than the evidence.")
    if attested.message_id != case.evidence.message_id:
        raise _Unproven("An exhibit is of another message than the evidence.")


def _invalid_block(case: _Case, judge: Judge | None, restore: Restore | None) -> None:
    evidence = case.evidence
    case.nobody_else(validator=True)
    channel = evidence.channel
    if len(case.attested) != channel.min_chunks:
        raise _Unproven(
            f"There are {len(case.attested)} chunks: exactly {channel.min_chunks} rebuild a block."
        )
    producer = case.one_signer(channel.min_chunks)
    chunks: dict[int, bytes] = {}
    for number, attested in enumerate(case.attested):
        _same_message(case, attested)
        if attested.timestamp != case.attested[0].timestamp:
            raise _Unproven("Its chunks are not of one broadcast.")
        checked = case.frame(number)
        if checked.chunk in chunks:
            raise _Unproven(f"Chunk {checked.chunk} is there twice.")
        chunks[checked.chunk] = checked.frame.chunk
    case.say(
        f"Producer {producer.hex()} attested {_count(len(chunks), 'chunk')}, enough for message "
        f"{evidence.message_id.hex()} of {case.attested[0].timestamp}."
    )
    try:
        payload = channel.code().decode(chunks)
    except RemoteError as problem:
        case.say(f"They are no chunks of any message: {problem}.")
        return
    case.say(f"They give {len(payload)} bytes.")
    _judge_payload(case, payload, judge, restore)


def _judge_payload(
    case: _Case, payload: bytes, judge: Judge | None, restore: Restore | None
) -> None:
    evidence = case.evidence
    block = payload
    try:
        if restore is not None:
            try:
                block = restore(payload)
            except RemoteError as problem:
                case.say(f"The post-processing refuses them: {problem}.")
                return
            if message_id_of(block) != evidence.message_id:
                case.say(
                    f"The block's id is {message_id_of(block).hex()}, not the one that was "
                    "attested."
                )
                return
            case.say("The block's id is the one that was attested.")
        if judge is None:
            raise _Unproven(_missing(evidence, restore))
        try:
            validation = judge(block)
        except RemoteError as problem:
            validation = Validation(Verdict.REJECT, str(problem))
    except PluginError as problem:
        raise _Unproven(f"It cannot be decided: {problem}.") from None
    if validation.verdict is Verdict.IGNORE:
        raise _Unproven(f"It cannot be decided: the validator ignores it: {validation.reason}.")
    if validation.verdict is Verdict.ACCEPT:
        if restore is None:
            raise _Unproven(
                "The validator accepts the block. Whether its id is the attested one cannot be "
                "decided without the channel's post-processing."
            )
        raise _Unproven("The validator accepts the block, and its id is right.")
    case.say(f"The validator refuses the block: {validation.reason}.")


def _missing(evidence: Evidence, restore: Restore | None) -> str:
    what = "validator" if restore is not None else "validator and post-processing"
    name = f"plugin {evidence.validator!r}" if evidence.validator else "the channel's plugin"
    return f"Whether they are an invalid block cannot be decided without the {what} of {name}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
