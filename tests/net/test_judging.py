"""Signatures and validators in threads: every question is answered, and nobody else waits."""

import os
import threading
from collections.abc import Mapping, Sequence

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from bruit.node.gossip.actions import CheckSignature, Validate
from bruit.node.gossip.events import Event, SignaturesChecked, Validated
from bruit.node.identity import new_key
from bruit.node.net.judging import INLINE_BYTES, UNDER_WAY, UNDER_WAY_BYTES, Judging
from bruit.node.net.verifiers import Verifiers
from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.pipeline import TopicPipeline
from bruit.plugins.registry import PluginRegistry
from bruit.topics.keys import KeyType
from bruit.topics.message import Author, Message, SignaturePolicy, decode_message
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.validation import Validation, Verdict, reject

SLOW, QUICK = "/slow", "/quick"
TIMEOUT = 20.0  # seconds, of a test that has gone wrong


class NoSettings(msgspec.Struct, frozen=True):
    pass


class Gates:
    """What the validator under test waits for, and what it has seen. Of all threads."""

    def __init__(self) -> None:
        self.open = {SLOW: threading.Event(), QUICK: threading.Event()}
        self.open[QUICK].set()
        self.begun: list[bytes] = []
        self.at_once = 0
        self._lock = threading.Lock()
        self._inside: dict[str, int] = {SLOW: 0, QUICK: 0}

    def judge(self, topic: str, data: bytes) -> Validation:
        with self._lock:
            self.begun.append(data)
            self._inside[topic] += 1
            self.at_once = max(self.at_once, self._inside[topic])
        assert self.open[topic].wait(TIMEOUT)
        with self._lock:
            self._inside[topic] -= 1
        return reject("bad") if data == b"bad" else Validation(Verdict.ACCEPT)


class Answers:
    """Takes the events, and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = trio.lowlevel.ParkingLot()

    def take(self, event: Event) -> None:
        self.events.append(event)
        self._more.unpark_all()

    async def wait(self, count: int) -> list[Event]:
        with trio.fail_after(TIMEOUT):
            while len(self.events) < count:
                await self._more.park()
        return self.events

    @property
    def verdicts(self) -> list[tuple[int, Verdict]]:
        return [
            (event.ticket, event.validation.verdict)
            for event in self.events
            if isinstance(event, Validated)
        ]


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def pipelines(gates: Gates) -> Mapping[str, TopicPipeline]:
    class Plugin:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def validate(self, topic: str, data: bytes) -> Validation:
            return gates.judge(topic, data)

    registry = PluginRegistry.discover(extra={"gate": Plugin})
    return {
        topic: registry.topic_pipeline(topic, validator="gate", max_size=100)
        for topic in (SLOW, QUICK)
    }


def signed(size: int, kind: KeyType = KeyType.ED25519) -> Message:
    return Author(new_key(kind), SignaturePolicy.STRICT_SIGN, 1).write(SLOW, bytes(size))


def forged(size: int) -> Message:
    body = PubsubMessage.FromString(signed(size).raw)
    body.data += b"!"
    return decode_message(body.SerializeToString())


def question(ticket: int, topic: str, data: bytes) -> Validate:
    return Validate(ticket, Message(topic, data, b"", b"", b"", b"", b""), b"source")


# Signatures


async def running(
    nursery: trio.Nursery, answers: Answers, pipelines: Mapping[str, TopicPipeline] = {}
) -> Judging:
    judging = Judging(answers.take, pipelines, Verifiers())
    nursery.start_soon(judging.run)
    await wait_all_tasks_blocked()
    return judging


@pytest.mark.parametrize("size", [1, INLINE_BYTES], ids=["at once", "aside"])
async def test_every_signature_of_a_batch_is_answered_under_its_ticket(
    size: int, nursery: trio.Nursery
) -> None:
    answers = Answers()
    judging = await running(nursery, answers)
    batch = [signed(size), forged(size), signed(size, KeyType.SECP256K1), forged(size)]
    for ticket, message in enumerate(batch):
        judging.check_signature(CheckSignature(ticket, message))
    assert answers.events == []
    judging.settle()
    await answers.wait(1)
    assert answers.events == [SignaturesChecked(tuple(enumerate((True, False) * 2)))]


async def test_what_one_reader_settles_another_does_not_settle_again(
    nursery: trio.Nursery,
) -> None:
    answers = Answers()
    judging = await running(nursery, answers)
    judging.check_signature(CheckSignature(1, signed(INLINE_BYTES)))
    for _ in range(3):
        judging.settle()
    await answers.wait(1)
    await wait_all_tasks_blocked()
    assert answers.events == [SignaturesChecked(((1, True),))]


class Gated(Verifiers):
    """Checks nothing before it is told to; the batches are known by the size of their first."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, trio.Event] = {}

    async def verify(self, raws: Sequence[bytes]) -> list[bool]:
        await self.open.setdefault(len(raws[0]), trio.Event()).wait()
        return [True] * len(raws)


async def test_batches_are_answered_in_the_order_in_which_they_were_settled(
    nursery: trio.Nursery,
) -> None:
    answers, verifiers = Answers(), Gated()
    judging = Judging(answers.take, {}, verifiers)
    nursery.start_soon(judging.run)
    await wait_all_tasks_blocked()
    messages = [signed(INLINE_BYTES + number) for number in range(3)]
    messages.append(signed(1))  # little enough to be checked at once, were nothing under way
    for ticket, message in enumerate(messages):
        judging.check_signature(CheckSignature(ticket, message))
        judging.settle()
    await wait_all_tasks_blocked()
    for message in reversed(messages):
        assert answers.events == []
        verifiers.open[len(message.raw)].set()
        await wait_all_tasks_blocked()
    assert answers.events == [SignaturesChecked(((ticket, True),)) for ticket in range(4)]


@pytest.mark.parametrize(
    ("size", "count"), [(INLINE_BYTES, UNDER_WAY), (UNDER_WAY_BYTES // 4, 4)], ids=["many", "large"]
)
async def test_who_reads_waits_while_too_much_is_under_way(
    size: int, count: int, nursery: trio.Nursery
) -> None:
    answers, verifiers = Answers(), Gated()
    judging = Judging(answers.take, {}, verifiers)
    nursery.start_soon(judging.run)
    await wait_all_tasks_blocked()
    message = signed(size)
    for ticket in range(count - 1):
        judging.check_signature(CheckSignature(ticket, message))
    judging.settle()
    with trio.fail_after(TIMEOUT):
        await judging.room()
    judging.check_signature(CheckSignature(count, message))
    judging.settle()
    went_on = trio.Event()

    async def read() -> None:
        await judging.room()
        went_on.set()

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    assert not went_on.is_set()
    verifiers.open[len(message.raw)].set()
    with trio.fail_after(TIMEOUT):
        await went_on.wait()


# Validators


async def test_messages_of_a_topic_are_judged_one_at_a_time_in_their_order(
    gates: Gates, pipelines: Mapping[str, TopicPipeline], nursery: trio.Nursery
) -> None:
    answers = Answers()
    judging = await running(nursery, answers, pipelines)
    datas = [b"bad" if number % 3 == 0 else b"%d" % number for number in range(30)]
    for ticket, data in enumerate(datas):
        judging.validate(question(ticket, QUICK, data))
    await answers.wait(30)
    assert answers.verdicts == [
        (ticket, Verdict.REJECT if data == b"bad" else Verdict.ACCEPT)
        for ticket, data in enumerate(datas)
    ]
    assert (gates.begun, gates.at_once) == (datas, 1)


@pytest.mark.parametrize("processors", [1, 8])
async def test_a_slow_topic_holds_up_neither_another_topic_nor_signatures(
    processors: int,
    gates: Gates,
    pipelines: Mapping[str, TopicPipeline],
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    answers = Answers()
    judging = await running(nursery, answers, pipelines)
    judging.validate(question(1, SLOW, b"slow"))
    await wait_all_tasks_blocked()
    judging.validate(question(2, QUICK, b"quick"))
    await answers.wait(1)
    judging.check_signature(CheckSignature(3, signed(INLINE_BYTES)))
    judging.settle()
    await answers.wait(2)
    assert answers.verdicts == [(2, Verdict.ACCEPT)]
    assert answers.events[1] == SignaturesChecked(((3, True),))

    gates.open[SLOW].set()
    await answers.wait(3)
    assert answers.verdicts == [(2, Verdict.ACCEPT), (1, Verdict.ACCEPT)]


async def test_a_publisher_takes_its_turn_with_the_validators_of_its_topic(
    gates: Gates, pipelines: Mapping[str, TopicPipeline], nursery: trio.Nursery
) -> None:
    answers = Answers()
    judging = await running(nursery, answers, pipelines)
    judging.validate(question(1, SLOW, b"received"))

    async def publish() -> None:
        await judging.in_thread(SLOW, pipelines[SLOW].check, b"own")

    async with trio.open_nursery() as publishers:
        publishers.start_soon(publish)
        await wait_all_tasks_blocked()
        gates.open[SLOW].set()
    await answers.wait(1)
    assert (sorted(gates.begun), gates.at_once) == ([b"own", b"received"], 1)


async def test_after_the_end_messages_are_ignored_and_nobody_is_blamed(
    pipelines: Mapping[str, TopicPipeline],
) -> None:
    answers = Answers()
    Judging(answers.take, pipelines, Verifiers()).validate(question(1, QUICK, b"late"))
    assert answers.verdicts == [(1, Verdict.IGNORE)]


async def test_a_node_can_stop_while_a_validator_does_not_return(
    gates: Gates, pipelines: Mapping[str, TopicPipeline]
) -> None:
    answers = Answers()
    judging = Judging(answers.take, pipelines, Verifiers())
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(judging.run)
            await wait_all_tasks_blocked()
            judging.validate(question(1, SLOW, b"for ever"))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert answers.events == []
    gates.open[SLOW].set()  # let the thread end
