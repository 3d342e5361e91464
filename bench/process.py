"""One end of a run, in a process of its own; `bench.pair` starts two.

    python -m bench.process IMPLEMENTATION subscribe|publish ORDER

The subscriber writes a line with its address, and at the end, as the publisher
does, one with its figures. Beside the sockets under test a pipe leads from the
subscriber back to the publisher: a byte for each payload received, which bounds
how many are under way where an implementation needs that.

A payload that is not counted goes ahead, so that what happens once (imports, the
first message on a topic) is over when the clock starts.
"""

import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import trio

from bench.payloads import checksum, payloads

FIRST = b"first"
SILENCE = 10.0  # seconds without a payload after which the rest counts as lost
START_TIMEOUT = 60.0  # seconds until the first payload must have come
LIFETIME = 300  # seconds after which a process that hangs is ended by its own alarm


class Order(msgspec.Struct):
    """What one end is to do."""

    size: int  # bytes of a payload
    count: int  # payloads
    pipe: int  # file descriptor of this end of the pipe
    window: int = 0  # payloads under way at most; 0 for no bound
    address: str = ""  # the subscriber's, for the publisher
    member: bool = False  # whether the publisher is subscribed too


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


async def subscribe(implementation: Any, order: Order) -> None:
    async with implementation.subscriber() as (address, incoming):
        tell(address=address)
        with trio.fail_after(START_TIMEOUT):
            if await anext(incoming) != FIRST:
                raise RuntimeError("the first payload that came is not the first published")
        received: list[bytes] = []
        before = cpu_seconds()
        os.write(order.pipe, b".")
        last = await _receive(incoming, order, received)
        cpu = cpu_seconds() - before
        os.close(order.pipe)
        tell(last=last, delivered=len(received), cpu=cpu, checksum=checksum(received))


async def _receive(incoming: AsyncIterator[bytes], order: Order, received: list[bytes]) -> float:
    """Fill ``received``; return when the last payload came, by the monotonic clock."""
    last = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_in_silence, received, nursery.cancel_scope)
        while len(received) < order.count:
            received.append(await anext(incoming))
            last = time.monotonic()
            if order.window:
                os.write(order.pipe, b".")
        nursery.cancel_scope.cancel()
    return last


async def _cancel_in_silence(received: list[bytes], scope: trio.CancelScope) -> None:
    before = -1
    while len(received) > before:
        before = len(received)
        await trio.sleep(SILENCE)
    scope.cancel()


async def publish(implementation: Any, order: Order) -> None:
    sending = payloads(order.size, order.count)
    async with (
        implementation.publisher(order.address, order.member) as send,
        trio.lowlevel.FdStream(order.pipe) as pipe,
    ):
        await send(FIRST)
        with trio.fail_after(START_TIMEOUT):
            await pipe.receive_some(1)
        before, first = cpu_seconds(), time.monotonic()
        sent = await _publish_all(send, sending, order.window, pipe)
        # Stay until the subscriber closes its end: it has everything, or has given up.
        while await pipe.receive_some():
            pass
        cpu = cpu_seconds() - before
        tell(first=first, sent=sent, cpu=cpu, checksum=checksum(sending))


async def _publish_all(
    send: Callable[[bytes], Awaitable[None]],
    sending: list[bytes],
    window: int,
    pipe: trio.lowlevel.FdStream,
) -> int:
    """Publish as fast as ``send`` and the window allow; return how many."""
    under_way = 0
    for number, payload in enumerate(sending):
        while window and under_way >= window:
            arrived = len(await pipe.receive_some())
            if not arrived:  # the subscriber gave up: a whole window was lost
                return number
            under_way -= arrived
        await send(payload)
        under_way += 1
    return len(sending)


def main() -> None:
    signal.alarm(LIFETIME)
    name, role, order = sys.argv[1:]
    implementation = importlib.import_module(f"bench.impl_{name.replace('-', '_')}")
    run = {"subscribe": subscribe, "publish": publish}[role]
    trio.run(run, implementation, msgspec.json.decode(order, type=Order))


if __name__ == "__main__":
    main()
