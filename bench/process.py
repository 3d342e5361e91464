"""One end of a run, in a process of its own; started by `bench.pair`.

    python -m bench.process IMPL subscribe|publish '{"size": …, "count": …, …}'

The subscriber writes one line with its address, and one with its figures at the
end; the publisher only the latter. Beside the sockets under test a pipe leads
from the subscriber back to the publisher: a byte for every payload received,
which bounds what is under way where an implementation needs that.

A payload that is not counted goes first, so that what happens once (the first
message of a topic, imports, caches) is over when the clock starts.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import trio

from bench.payloads import checksum, payloads

FIRST = b"first"
SILENCE = 10.0  # seconds without a payload after which the rest counts as lost


class Order(msgspec.Struct):
    """What one end is to do."""

    size: int  # bytes of a payload
    count: int
    pipe: int  # file descriptor of the end of the acknowledgement pipe
    address: str = ""  # of the subscriber, for the publisher
    window: int = 0  # payloads under way at most; 0 for no bound


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


async def subscribe(impl: Any, order: Order) -> None:
    async with impl.subscriber() as (address, incoming):
        tell(address=address)
        with trio.fail_after(60):
            if await anext(incoming) != FIRST:
                raise RuntimeError("the first payload is not the one that is published first")
        cpu, received = cpu_seconds(), list[bytes]()
        os.write(order.pipe, b".")
        last = await _receive(incoming, order, received)
        cpu = cpu_seconds() - cpu
        tell(last=last, delivered=len(received), cpu=cpu, checksum=checksum(received))


async def _receive(incoming: AsyncIterator[bytes], order: Order, received: list[bytes]) -> float:
    """Fill ``received``. Returns when the last payload came, on the monotonic clock."""
    last = time.monotonic()
    acknowledge = order.window > 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_in_silence, received, nursery.cancel_scope)
        while len(received) < order.count:
            received.append(await anext(incoming))
            if acknowledge:
                os.write(order.pipe, b".")
            last = time.monotonic()
        nursery.cancel_scope.cancel()
    return last


async def _cancel_in_silence(received: list[bytes], scope: trio.CancelScope) -> None:
    """Give the rest up for lost when nothing comes any more."""
    before = -1
    while len(received) > before:
        before = len(received)
        await trio.sleep(SILENCE)
    scope.cancel()


async def publish(impl: Any, order: Order) -> None:
    sending = payloads(order.size, order.count)
    expected = checksum(sending)
    async with (
        impl.publisher(order.address) as send,
        trio.lowlevel.FdStream(order.pipe) as pipe,
    ):
        await send(FIRST)
        with trio.fail_after(60):
            await pipe.receive_some(1)
        cpu, first = cpu_seconds(), time.monotonic()
        if order.window:
            await _publish_in_window(send, sending, order.window, pipe)
        else:
            for payload in sending:
                await send(payload)
        accepted, cpu = time.monotonic(), cpu_seconds() - cpu
        # Stay until the subscriber has closed its end: it has everything, or has given up.
        while await pipe.receive_some():
            pass
        tell(first=first, accepted=accepted, sent=len(sending), cpu=cpu, checksum=expected)


async def _publish_in_window(
    send: Callable[[bytes], Awaitable[None]],
    sending: list[bytes],
    window: int,
    pipe: trio.lowlevel.FdStream,
) -> None:
    under_way = 0
    for payload in sending:
        while under_way >= window:
            with trio.move_on_after(SILENCE) as waited:
                under_way -= len(await pipe.receive_some())
            if waited.cancelled_caught:  # lost: they will not be acknowledged any more
                under_way = 0
        await send(payload)
        under_way += 1


def main() -> None:
    name, role, text = sys.argv[1:]
    impl = importlib.import_module(f"bench.impl_{name.replace('-', '_')}")
    order = msgspec.json.decode(text, type=Order)
    trio.run({"subscribe": subscribe, "publish": publish}[role], impl, order)


if __name__ == "__main__":
    main()
