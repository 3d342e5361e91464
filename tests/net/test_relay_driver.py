"""What the relay's driver does for each action, with machines that follow a script."""

import os
from collections.abc import Callable, Sequence
from random import Random

import pytest
import trio
from libp2p.rcmgr import Direction
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.gossip.actions import Validate
from bruit.node.gossip.events import Validated
from bruit.node.net.dialer import Dialer
from bruit.node.net.relay.blame import BUDGET
from bruit.node.net.relay.driver import (
    Channels,
    Machines,
    Outlets,
    RelayAction,
    RelayDriver,
    RelayReport,
)
from bruit.node.net.relay.protocols import RelayProtocol
from bruit.node.relay import drops
from bruit.node.relay.actions import (
    Broadcasted,
    BroadcastRefused,
    CheckAcknowledgement,
    CheckChunk,
    Choose,
    ChunkDropped,
    Decode,
    Encode,
    JudgeBlock,
    Judged,
    PassOn,
    PublishChunk,
    SendAcknowledgement,
    SetTimer,
    Sign,
    StakeAttached,
    SubmitChunk,
)
from bruit.node.relay.directory import Directory
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    BlockJudged,
    Broadcast,
    Chosen,
    ChunkChecked,
    ChunkGossiped,
    ChunkPassedOn,
    ChunkSeen,
    ChunkSubmitted,
    Decoded,
    Encoded,
    MarketplaceChanged,
    MembersScored,
    MemberUnreachable,
    Signed,
    Timer,
    TimerFired,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import (
    CheckedChunk,
    address_of_secret,
    check_chunk,
    message_id_of,
    recover,
    sign,
)
from bruit.node.relay.wire import Acknowledgement, Attested, Frame
from bruit.plugins.hookspecs import ClusterOption, Selection
from bruit.plugins.marketplace import Cluster, Marketplace, Member
from bruit.plugins.pipeline import TopicPipeline
from bruit.topics.errors import LocalError, PluginError
from bruit.topics.keys import PeerId
from bruit.topics.message import Message
from bruit.topics.validation import ACCEPTED, Validation, Verdict, reject
from tests.net.recorder import on_the_wire
from tests.net.test_relay_streams import MEMBER, OTHER, PEER, Answered, Ours, RelayHost

CHANNEL = ChannelParams(id=7, topic="blocks", min_chunks=2, num_chunks=3, max_block=10_000)
SECRET = bytes(31) + b"\x01"
LATENCY = 10.0  # seconds
START = 1_700_000_000.0  # Unix time


class Scripted:
    """A machine that notes its events, and answers each with what a test laid ready for it."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.script: list[Sequence[RelayAction]] = []

    def handle(self, event: object, now: float) -> Sequence[RelayAction]:
        self.events.append(event)
        return self.script.pop(0) if self.script else ()


class Judge:
    """A validator and a codec that say what a test wants."""

    verdict: Validation = ACCEPTED

    def pipeline(self) -> TopicPipeline:
        judge = self

        class Pipeline(TopicPipeline):
            def check(self, data: bytes) -> Validation:
                return judge.verdict

            def encode(self, data: bytes) -> bytes:
                return b"coded " + data

            def judge(self, data: bytes) -> tuple[Validation, bytes]:
                good = judge.verdict.verdict is Verdict.ACCEPT
                return judge.verdict, data.removeprefix(b"coded ") if good else b""

        return Pipeline("blocks", 10_000)


class Bench:
    def __init__(self) -> None:
        self.host = RelayHost()
        self.producer, self.member, self.consumer = Scripted(), Scripted(), Scripted()
        self.judge = Judge()
        self.published: list[tuple[int, bytes]] = []
        self.verdicts: list[Validated] = []
        self.reports: list[RelayReport] = []
        self.faults: list[PeerId] = []
        self.kept: list[StakeAttached] = []
        self.disk = trio.Event()
        self.disk.set()
        self.selected: Callable[[Selection], int] = lambda selection: selection.options[-1].cluster
        self.driver = RelayDriver(
            self.host.host,
            Dialer(self.host.host, Random(1), lambda peer, reason: None),
            lambda peer: True,
            Machines(self.producer, self.member, self.consumer),
            Channels(
                params={7: CHANNEL},
                pipelines={7: self.judge.pipeline()},
                validators={7: "strict"},
                latency=LATENCY,
                select=lambda selection, rng: self.selected(selection),
                secret=SECRET,
            ),
            Outlets(
                publish=lambda channel, frame: self.published.append((channel, frame)),
                judged=self.verdicts.append,
                report=self.reports.append,
                keep=self._keep,
                fault=lambda peer, reason: self.faults.append(peer),
            ),
            Random(2),
        )

    async def _keep(self, action: StakeAttached) -> None:
        await self.disk.wait()
        self.kept.append(action)

    async def do(self, machine: Scripted, *actions: RelayAction) -> list[object]:
        """Have a machine want something; the events that it gets for it."""
        machine.script.append(actions)
        before = len(machine.events) + 1
        self.driver.feed(machine, "go")
        return await self.after(machine, before)

    async def after(self, machine: Scripted, before: int, count: int = 1) -> list[object]:
        """The machine's events behind the first ``before``, when there are so many."""
        await wait_all_tasks_blocked()
        with trio.move_on_after(20):
            while len(machine.events) < before + count:
                await wait_all_tasks_blocked(0.001)
        return machine.events[before:]


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    await nursery.start(bench.driver.run)
    return bench


def a_frame(*, witnessed: bool = False, chunk: bytes = b"chunk", at: float = START) -> bytes:
    attested = Attested(b"abcd", 7, 1, int(at), len(chunk), 0, keccak256(chunk))
    signature = sign(SECRET, keccak256(attested.encode()))
    head = b"abcd\x00\x07\x00\x01" + int(at).to_bytes(4, "big") + bytes(4) + signature
    witness = sign(SECRET, keccak256(head, chunk)) if witnessed else b""
    return head + witness + chunk


def selection(*clusters: int) -> Selection:
    options = tuple(ClusterOption(each, 1, None, None, (), 0) for each in clusters)
    return Selection(bytes(20), b"abcd", 0, 100, options)


# What costs


async def test_a_chunk_is_checked_and_the_answer_goes_to_who_asked(bench: Bench) -> None:
    frame = a_frame(witnessed=True)
    for machine in (bench.member, bench.consumer):
        (event,) = await bench.do(machine, CheckChunk(1, 7, frame, witnessed=True))
        assert event == ChunkChecked(1, check_chunk(frame, CHANNEL, witnessed=True))
    assert [len(each.events) for each in (bench.member, bench.consumer)] == [2, 2]


@pytest.mark.parametrize("size", [5, 2000])
async def test_a_forged_chunk_is_answered_with_what_is_wrong(bench: Bench, size: int) -> None:
    frame = bytearray(a_frame(chunk=bytes(size)))
    frame[16:80] = bytes(64)  # of the signature
    (event,) = await bench.do(bench.member, CheckChunk(1, 7, bytes(frame), witnessed=False))
    assert isinstance(event, ChunkChecked)
    assert (event.ticket, event.checked) == (1, None)
    assert event.problem


async def test_digests_are_signed_with_the_relays_key(bench: Bench) -> None:
    digests = (os.urandom(32), os.urandom(32))
    (event,) = await bench.do(bench.member, Sign(5, digests))
    assert isinstance(event, Signed)
    signers = [recover(*each) for each in zip(digests, event.signatures, strict=True)]
    assert (event.ticket, signers) == (5, [address_of_secret(SECRET)] * 2)


@pytest.mark.parametrize("count", [2, 200])
async def test_a_producers_stake_is_written_down_before_what_it_backs_is_signed(
    bench: Bench, count: int
) -> None:
    bench.disk = trio.Event()
    stake = StakeAttached(7, b"abcd", int(START), 0, 100)
    bench.producer.script.append([stake, Sign(5, (bytes(32),) * count)])
    bench.driver.feed(bench.producer, "go")
    await wait_all_tasks_blocked(0.01)
    assert (bench.kept, len(bench.producer.events)) == ([], 1)
    bench.disk.set()
    (event,) = await bench.after(bench.producer, 1)
    assert bench.kept == [stake]
    assert isinstance(event, Signed)
    assert len(event.signatures) == count


async def test_an_acknowledgements_signer_is_told_and_nobody_for_a_forgery(bench: Bench) -> None:
    said = Acknowledgement(b"abcd", 1, 2, int(START), bytes(20))
    signed = Acknowledgement(
        b"abcd", 1, 2, int(START), bytes(20), sign(SECRET, keccak256(said.signed_part()))
    )
    (event,) = await bench.do(bench.producer, CheckAcknowledgement(1, signed))
    assert event == AcknowledgementChecked(1, address_of_secret(SECRET))
    bench.producer.events.clear()
    (event,) = await bench.do(bench.producer, CheckAcknowledgement(2, said))
    assert event == AcknowledgementChecked(2, b"")


async def test_a_payload_is_cut_hashed_and_rebuilt(bench: Bench) -> None:
    payload = os.urandom(1000)
    (event,) = await bench.do(bench.producer, Encode(1, 7, payload))
    assert isinstance(event, Encoded)
    assert event.hashes == tuple(keccak256(chunk) for chunk in event.chunks)
    assert len(event.chunks) == CHANNEL.num_chunks
    chunks = {0: event.chunks[0], 2: event.chunks[2]}
    (rebuilt,) = await bench.do(bench.consumer, Decode(2, 7, chunks))
    assert rebuilt == Decoded(2, payload)


async def test_chunks_that_give_nothing_are_answered_with_the_reason(bench: Bench) -> None:
    (event,) = await bench.do(bench.consumer, Decode(1, 7, {0: b"\xff" * 64, 2: b"\xff" * 64}))
    assert isinstance(event, Decoded)
    assert event.payload == b""
    assert event.problem


async def test_the_selector_is_asked_for_each_chunk(bench: Bench) -> None:
    (event,) = await bench.do(bench.producer, Choose(1, (selection(3, 4), selection(5, 6))))
    assert event == Chosen(1, (4, 6))
    assert list(bench.driver.options) == [3, 4, 5, 6]


async def test_where_the_selector_fails_the_first_option_is_taken(bench: Bench) -> None:
    def fail(selection: Selection) -> int:
        raise PluginError("bad", "select_cluster", "on purpose")

    bench.selected = fail
    (event,) = await bench.do(bench.producer, Choose(1, (selection(3, 4), selection(5, 6))))
    assert event == Chosen(1, (3, 5))


async def test_a_block_is_judged_by_the_channels_plugins_and_hashed(bench: Bench) -> None:
    (event,) = await bench.do(bench.consumer, JudgeBlock(1, 7, b"coded block"))
    assert event == BlockJudged(1, ACCEPTED, b"block", keccak256(b"block"), "strict")
    bench.judge.verdict = reject("bad block")
    bench.consumer.events.clear()
    (event,) = await bench.do(bench.consumer, JudgeBlock(2, 7, b"coded block"))
    assert event == BlockJudged(2, reject("bad block"), b"", b"", "strict")


async def test_a_timer_fires_at_its_unix_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench()
    await nursery.start(bench.driver.run)
    at = bench.driver.clock.now() + 5.0
    bench.member.script.append([SetTimer(Timer("due", 1), at)])
    bench.driver.feed(bench.member, "go")
    await trio.sleep(4.9)
    assert len(bench.member.events) == 1
    await trio.sleep(0.2)
    assert bench.member.events[1:] == [TimerFired(Timer("due", 1))]
    assert bench.driver.clock.now() >= at


# Between peers


async def test_a_chunk_is_submitted_and_its_acknowledgement_heard(bench: Bench) -> None:
    bench.host.connection(PEER, Direction.OUTBOUND)
    bench.host.ours.append(stream := Ours())
    frame = a_frame(at=bench.driver.clock.now())
    bench.producer.script.append([SubmitChunk(MEMBER, frame)])
    bench.driver.feed(bench.producer, "go")
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([frame])
    stream.say.send_nowait(on_the_wire([b"receipt"]))
    await wait_all_tasks_blocked()
    assert bench.producer.events[1:] == [AcknowledgementReceived(PEER, b"receipt")]


async def test_a_member_out_of_reach_is_told_to_the_producer_each_time(bench: Bench) -> None:
    bench.host.connection(PEER, Direction.OUTBOUND)
    bench.host.ours.append(OSError())
    for _ in range(2):  # the second time it is not tried at all
        bench.producer.script += [[SubmitChunk(MEMBER, b"frame")]]
        bench.producer.events.clear()
        bench.driver.feed(bench.producer, "go")
        await wait_all_tasks_blocked()
        assert bench.producer.events == ["go", MemberUnreachable(PEER)]


async def test_a_chunk_is_passed_on_and_failing_to_is_told_to_nobody(bench: Bench) -> None:
    bench.host.connection(PEER, Direction.OUTBOUND)
    bench.host.ours.append(stream := Ours())
    frame = a_frame(at=bench.driver.clock.now())
    bench.member.script.append([PassOn((MEMBER,), frame)])
    bench.driver.feed(bench.member, "go")
    await wait_all_tasks_blocked()
    assert stream.wire == on_the_wire([frame])
    stream.say.close()
    await wait_all_tasks_blocked()
    assert (bench.member.events, bench.producer.events) == (["go"], [])


async def test_what_would_be_a_replay_is_not_sent_any_more(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench()
    await nursery.start(bench.driver.run)
    bench.host.connection(PEER, Direction.OUTBOUND)
    bench.host.ours.append(stream := Ours())
    stream.take_time(LATENCY - 1)
    frames = [a_frame(at=bench.driver.clock.now() + later) for later in (0, -4, 4)]
    for frame in frames:  # the second is late when the first is written
        bench.producer.script.append([SubmitChunk(MEMBER, frame)])
        bench.driver.feed(bench.producer, "go")
        await trio.sleep(0.9)
    await trio.sleep(3 * LATENCY)
    assert stream.wire == on_the_wire([frames[0], frames[2]])


async def test_a_submission_reaches_the_member_and_is_acknowledged(
    bench: Bench, nursery: trio.Nursery
) -> None:
    stream, frame = Answered(PEER), a_frame()
    nursery.start_soon(bench.host.handlers[RelayProtocol.SUBMIT.value], stream.net)
    await wait_all_tasks_blocked()
    bench.member.script.append([SendAcknowledgement(PEER, b"receipt")])
    stream.say.send_nowait(on_the_wire([frame]))
    await wait_all_tasks_blocked()
    assert bench.member.events == [ChunkSubmitted(PEER, frame)]
    assert stream.written == [on_the_wire([b"receipt"])]


async def test_what_the_cluster_passes_on_reaches_the_member(
    bench: Bench, nursery: trio.Nursery
) -> None:
    stream, frame = Answered(OTHER), a_frame(witnessed=True)
    nursery.start_soon(bench.host.handlers[RelayProtocol.PASS_ON.value], stream.net)
    await wait_all_tasks_blocked()
    stream.say.send_nowait(on_the_wire([frame]))
    await wait_all_tasks_blocked()
    assert bench.member.events == [ChunkPassedOn(OTHER, frame)]


async def test_who_sends_a_member_too_much_that_is_wrong_loses_its_stream(
    bench: Bench, nursery: trio.Nursery
) -> None:
    stream = Answered(PEER)
    nursery.start_soon(bench.host.handlers[RelayProtocol.SUBMIT.value], stream.net)
    await wait_all_tasks_blocked()
    innocent = ChunkDropped(PEER, 7, drops.DUPLICATE, blame=False)
    gossiped = ChunkDropped(PEER, 7, drops.MALFORMED, blame=True)
    for _ in range(BUDGET + 1):
        bench.member.script.append([innocent])
        bench.driver.feed(bench.member, "go")
        bench.consumer.script.append([gossiped])  # the mesh has its own scores for that
        bench.driver.feed(bench.consumer, "go")
    await wait_all_tasks_blocked()
    assert (stream.was_reset, bench.faults) == (False, [])
    for _ in range(BUDGET + 1):
        bench.member.script.append([gossiped])
        bench.driver.feed(bench.member, "go")
    await wait_all_tasks_blocked()
    assert stream.was_reset
    assert bench.faults == [PEER] * (BUDGET + 1)


# The mesh


def validate(ticket: int, data: bytes) -> Validate:
    return Validate(ticket, Message("blocks", data, OTHER, b"", b"", b"", b""), PEER)


async def test_a_gossiped_chunk_is_judged_by_the_consumer_many_at_a_time(bench: Bench) -> None:
    bench.driver.judge(7, validate(1, b"one"))
    bench.driver.judge(7, validate(2, b"two"))
    assert bench.consumer.events == [
        ChunkGossiped(1, 7, PEER, b"one"),
        ChunkGossiped(2, 7, PEER, b"two"),
    ]
    assert bench.verdicts == []
    bench.consumer.script.append([Judged(2, ACCEPTED), Judged(1, reject("bad"))])
    bench.driver.feed(bench.consumer, "go")
    assert bench.verdicts == [Validated(2, ACCEPTED, b"two"), Validated(1, reject("bad"), b"")]


async def test_a_chunk_that_is_judged_when_the_relay_stops_is_ignored() -> None:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.driver.run)
        bench.driver.judge(7, validate(1, b"one"))
        nursery.cancel_scope.cancel()
    bench.driver.judge(7, validate(2, b"two"))
    assert [each.ticket for each in bench.verdicts] == [1, 2]
    assert {each.validation.verdict for each in bench.verdicts} == {Verdict.IGNORE}


async def test_a_members_chunk_is_published_and_seen_by_the_own_consumer(bench: Bench) -> None:
    checked: CheckedChunk = check_chunk(a_frame(), CHANNEL, witnessed=False)
    assert isinstance(checked.frame, Frame)
    bench.member.script.append([PublishChunk(7, b"frame", checked)])
    bench.driver.feed(bench.member, "go")
    assert bench.published == [(7, b"frame")]
    assert bench.consumer.events == [ChunkSeen(checked)]


# Commands


PROOF = ProofOfBroadcast(
    channel=CHANNEL,
    params=RelayParams(),
    message_id=b"abcd",
    producer=bytes(20),
    timestamp=1,
    receipts=(),
)


async def broadcast(bench: Bench, answer: Callable[[int], RelayAction]) -> ProofOfBroadcast:
    """Broadcast a block; the producer answers at once."""
    proofs = []

    async def wait() -> None:
        proofs.append(await bench.driver.broadcast(7, b"block"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        (event,) = await bench.after(bench.producer, 0)
        assert isinstance(event, Broadcast)
        assert event == Broadcast(event.ticket, 7, message_id_of(b"block"), b"coded block")
        bench.producer.script.append([answer(event.ticket)])
        bench.driver.feed(bench.producer, "go")
    return proofs[0]


async def test_a_block_is_encoded_broadcast_and_proved(bench: Bench) -> None:
    proof = await broadcast(bench, lambda ticket: Broadcasted(ticket, PROOF))
    assert proof is PROOF
    assert [type(report) for report in bench.reports] == [Broadcasted]


async def test_a_refused_broadcast_raises_with_the_reason(bench: Bench) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(LocalError, match="not enough stake")):
        await broadcast(bench, lambda ticket: BroadcastRefused(ticket, "not enough stake"))


async def test_an_invalid_block_is_not_broadcast(bench: Bench) -> None:
    bench.judge.verdict = reject("bad block")
    with pytest.raises(LocalError, match="not valid on this channel: bad block"):
        await bench.driver.broadcast(7, b"block")
    assert bench.producer.events == []


async def test_who_broadcasts_while_the_node_stops_is_told() -> None:
    bench = Bench()
    with pytest.RaisesGroup(pytest.RaisesExc(LocalError, match="stopping")):
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            await inner.start(bench.driver.run)
            outer.start_soon(bench.driver.broadcast, 7, b"block")
            await bench.after(bench.producer, 0)
            inner.cancel_scope.cancel()


async def test_every_machine_hears_of_a_marketplace_and_the_producer_of_its_members_scores(
    bench: Bench,
) -> None:
    marketplace = Marketplace(clusters=(Cluster(1, 1, (Member(b"m" * 20, MEMBER.addresses),)),))
    bench.driver.marketplace_changed(Directory(marketplace))
    bench.driver.peers_scored({PEER: 1.5, OTHER: 2.5})
    changed = MarketplaceChanged(marketplace)
    assert bench.producer.events == [changed, MembersScored(((b"m" * 20, 1.5),))]
    assert (bench.member.events, bench.consumer.events) == ([changed], [changed])
