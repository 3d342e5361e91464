"""The costly part of taking a message: its signature, and its validators.

Both run beside the event loop and are answered to the router as events.
Signatures are checked in batches, in processes of their own where that pays
(`verifiers`), and answered in the order in which they came; while too much is
under way, whoever reads waits. Validators run one at a time per topic, in
threads; a slow topic keeps only its own messages waiting. How many wait there is
the router's bound. A topic may have a judge instead (`entrust`), which answers in its own time.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from bruit.node.gossip.actions import CheckSignature, Validate
from bruit.node.gossip.events import Event, SignaturesChecked, Validated
from bruit.node.net.verifiers import Verifiers
from bruit.plugins.pipeline import TopicPipeline
from bruit.topics.message import signature_valid
from bruit.topics.validation import ignore

Result = TypeVar("Result")

INLINE_BYTES = 4096  # signed bytes that are checked at once rather than sent away; measured
# Under way at most, and so far below what the router holds per topic (TopicParams), beyond
# which it drops: a reader may add what one read brings. Four batches of a reader; guesses.
UNDER_WAY = 256  # messages
UNDER_WAY_BYTES = 8_388_608


class Judging:
    """``feed`` takes the answers; it must not call back into this object."""

    def __init__(
        self,
        feed: Callable[[Event], None],
        pipelines: Mapping[str, TopicPipeline],
        verifiers: Verifiers,
    ) -> None:
        self._feed = feed
        self._verifiers = verifiers
        self._pipelines = pipelines
        # A thread for every topic: few processors must not make one wait for another.
        self._judges = trio.CapacityLimiter(max(len(pipelines), 1))
        self._unchecked: list[CheckSignature] = []
        self._under_way = self._under_way_bytes = 0
        self._room = trio.lowlevel.ParkingLot()  # readers, while too much is under way
        self._answered = trio.Event()  # when the batch before the next one is
        self._answered.set()
        self._nursery: trio.Nursery | None = None
        self._queues: dict[str, trio.MemorySendChannel[Validate]] = {}
        self._entrusted: dict[str, Callable[[Validate], None]] = {}
        # Plugins are promised one call at a time per topic, whoever asks.
        self._turns = {topic: trio.Lock() for topic in pipelines}

    async def run(self) -> None:
        """Serve readers, and the validators of every topic that has some, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for topic, pipeline in self._pipelines.items():
                    send, receive = trio.open_memory_channel[Validate](math.inf)
                    self._queues[topic] = send
                    nursery.start_soon(self._validate, receive, pipeline)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def check_signature(self, action: CheckSignature) -> None:
        """Note a signature to be checked by the next `settle`."""
        self._unchecked.append(action)

    async def room(self) -> None:
        """Wait while too many signatures are under way."""
        while self._under_way >= UNDER_WAY or self._under_way_bytes >= UNDER_WAY_BYTES:
            await self._room.park()

    def settle(self) -> None:
        """Have what has gathered checked: a little at once, more of it beside the event loop."""
        batch, self._unchecked = self._unchecked, []
        if not batch:
            return
        size = sum(len(action.message.raw) for action in batch)
        if self._nursery is None:
            return  # the node is stopping: nobody waits for the answer
        if size <= INLINE_BYTES and not self._under_way:
            self._answer(batch, [signature_valid(action.message) for action in batch])
            return
        self._under_way += len(batch)
        self._under_way_bytes += size
        before, self._answered = self._answered, trio.Event()
        self._nursery.start_soon(self._check, batch, size, before, self._answered)

    async def _check(
        self, batch: list[CheckSignature], size: int, before: trio.Event, answered: trio.Event
    ) -> None:
        results = await self._verifiers.verify([action.message.raw for action in batch])
        await before.wait()
        self._under_way -= len(batch)
        self._under_way_bytes -= size
        self._answer(batch, results)
        answered.set()
        self._room.unpark_all()

    def _answer(self, batch: list[CheckSignature], results: list[bool]) -> None:
        tickets = [action.ticket for action in batch]
        self._feed(SignaturesChecked(tuple(zip(tickets, results, strict=True))))

    def entrust(self, topic: str, judge: Callable[[Validate], None]) -> None:
        """Leave a topic's messages to ``judge``: it feeds a Validated for each, in any order."""
        self._entrusted[topic] = judge

    def validate(self, action: Validate) -> None:
        """Queue a message for its topic's validators."""
        judge = self._entrusted.get(action.message.topic)
        if judge is not None:
            judge(action)
            return
        queue = self._queues.get(action.message.topic)
        if queue is None:  # the node is stopping: nobody judges any more
            self._feed(Validated(action.ticket, ignore("the node is stopping")))
        else:
            queue.send_nowait(action)

    async def _validate(
        self, waiting: trio.MemoryReceiveChannel[Validate], pipeline: TopicPipeline
    ) -> None:
        async for action in waiting:
            validation, payload = await self.in_thread(
                action.message.topic, pipeline.judge, action.message.data
            )
            self._feed(Validated(action.ticket, validation, payload))

    async def in_thread(
        self, topic: str, function: Callable[[bytes], Result], data: bytes
    ) -> Result:
        """Run a step of the topic's pipeline, in its turn."""
        async with self._turns[topic]:
            return await trio.to_thread.run_sync(
                function, data, limiter=self._judges, abandon_on_cancel=True
            )
