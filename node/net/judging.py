"""The costly part of taking a message: its signature, and its validators.

Both run in worker threads where that pays, and are answered to the router as
events. libsodium and libsecp256k1 release the GIL, so a batch of signatures
runs beside the event loop. Validators run one at a time per topic; a slow
topic keeps only its own messages waiting. How many wait is the router's bound.
"""

import math
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from bruit.node.gossip.actions import CheckSignature, Validate
from bruit.node.gossip.events import Event, SignatureChecked, Validated
from bruit.plugins.pipeline import TopicPipeline
from bruit.topics.message import Message, signature_valid
from bruit.topics.validation import ignore

Result = TypeVar("Result")

INLINE_BYTES = 4096  # signed bytes that are checked at once rather than sent to a thread; measured


class Judging:
    """``feed`` takes the answers; it must not call back into this object."""

    def __init__(
        self, feed: Callable[[Event], None], pipelines: Mapping[str, TopicPipeline]
    ) -> None:
        self._feed = feed
        self._pipelines = pipelines
        self._checkers = trio.CapacityLimiter(os.cpu_count() or 1)
        # A thread for every topic: few processors must not make one wait for another.
        self._judges = trio.CapacityLimiter(max(len(pipelines), 1))
        self._unchecked: list[CheckSignature] = []
        self._queues: dict[str, trio.MemorySendChannel[Validate]] = {}
        # Plugins are promised one call at a time per topic, whoever asks.
        self._turns = {topic: trio.Lock() for topic in pipelines}

    async def run(self) -> None:
        """Serve the validators of every topic that has some, until cancelled."""
        async with trio.open_nursery() as nursery:
            for topic, pipeline in self._pipelines.items():
                send, receive = trio.open_memory_channel[Validate](math.inf)
                self._queues[topic] = send
                nursery.start_soon(self._validate, receive, pipeline)
            await trio.sleep_forever()

    def check_signature(self, action: CheckSignature) -> None:
        """Note a signature to be checked by the next `settle`."""
        self._unchecked.append(action)

    async def settle(self) -> None:
        """Check what has gathered and answer it: the reader that caused it waits, nobody else."""
        batch, self._unchecked = self._unchecked, []
        if not batch:
            return
        messages = [action.message for action in batch]
        if sum(len(message.raw) for message in messages) <= INLINE_BYTES:
            results = verify_all(messages)
        else:
            results = await trio.to_thread.run_sync(
                verify_all, messages, limiter=self._checkers, abandon_on_cancel=True
            )
        for action, valid in zip(batch, results, strict=True):
            self._feed(SignatureChecked(action.ticket, valid))

    def validate(self, action: Validate) -> None:
        """Queue a message for its topic's validators."""
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


def verify_all(messages: list[Message]) -> list[bool]:
    return [signature_valid(message) for message in messages]
