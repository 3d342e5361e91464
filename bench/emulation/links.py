"""What becomes of each packet: the scheduling core of the wire, in virtual time.

A packet waits for its sender's uplink, takes length / rate to leave, may be lost, travels
the delay of its pair, waits for the receiver's downlink, takes length / rate to arrive.
Both queues are first in, first out and drop what would exceed their bound (drop-tail).
Times are exact whenever the wire wakes up: they follow from each other, not from the clock.

All functions are compiled by numba and work on one `Links`. Times are nanoseconds.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from bench.emulation.regions import Layout

# Bytes of a packet, rounded up: an MTU of 1500 and what else a slot could be asked to hold.
SLOT = 2048
# Packets under way at a time: guess. All queues of 16 nodes at 10 and 205 Mbit/s hold 9,000.
SLOTS = 1 << 16

# Indexes of `Links.counts`, packets each except where said.
OFFERED, DELIVERED, LOST, FULL_UP, FULL_DOWN, NO_SLOT, STRANGE, UNWRITTEN = range(8)
COUNTED = (
    "offered",  # read from the devices
    "delivered",  # written to the devices
    "lost",  # by chance, as asked
    "full_up",  # dropped at a full uplink queue
    "full_down",  # the same at a downlink
    "no_slot",  # dropped for want of memory: the emulation's fault
    "strange",  # for nobody here
    "unwritten",  # not taken by the receiving device: the emulation's fault
)
_ARRIVES = 1 << 40  # mark on a heap entry: through the downlink, not only at it
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64: Steele, Lea, Flood 2014
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

Function = TypeVar("Function", bound=Callable[..., object])
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Links(NamedTuple):
    """Everything the core knows: fixed arrays first, then what changes."""

    delay: Ints  # [source, target]
    up_cost: Floats  # ns a byte, by node
    down_cost: Floats
    up_bound: Ints  # bytes that may wait, by node
    down_bound: Ints
    loss: Floats  # one value: probability
    up_free: Ints  # when the uplink will have sent what it has, by node
    down_free: Ints
    heap: Ints  # [place, (time, order, slot and mark)], earliest first
    free: Ints  # slots that hold no packet
    length: Ints  # by slot, bytes
    source: Ints  # by slot, node
    target: Ints
    sizes: Ints  # entries of the heap, entries of free, order of the next entry
    state: NDArray[np.uint64]  # one value: of the random numbers
    counts: Ints  # see COUNTED


def new_links(layout: Layout, queue: float, loss: float, seed: int, slots: int = SLOTS) -> Links:
    """``queue`` is the time in seconds that a full queue takes to drain.

    Its bound is that many bytes at the link's rate, and ten packets of 1500 bytes at least.
    """
    count = len(layout.up)
    rates = [np.array(each, np.float64) for each in (layout.up, layout.down)]
    costs = [8e9 / rate for rate in rates]
    bounds = [np.maximum(queue * rate / 8, 15_000).astype(np.int64) for rate in rates]
    return Links(
        delay=np.rint(np.array(layout.delay, np.float64) * 1e9).astype(np.int64),
        up_cost=costs[0],
        down_cost=costs[1],
        up_bound=bounds[0],
        down_bound=bounds[1],
        loss=np.array([loss], np.float64),
        up_free=np.zeros(count, np.int64),
        down_free=np.zeros(count, np.int64),
        heap=np.zeros((slots, 3), np.int64),
        free=np.arange(slots, dtype=np.int64)[::-1].copy(),
        length=np.zeros(slots, np.int64),
        source=np.zeros(slots, np.int64),
        target=np.zeros(slots, np.int64),
        sizes=np.array([0, slots, 0], np.int64),
        state=np.array([seed], np.uint64),
        counts=np.zeros(len(COUNTED), np.int64),
    )


def compiled(function: Function) -> Function:
    """By numba at the first call, and kept on disk for the next process."""
    return cast(Function, numba.njit(cache=True)(function))


@compiled
def chance(links: Links) -> float:
    """The next random number, from 0 to below 1: splitmix64."""
    links.state[0] += _GOLDEN
    mixed = links.state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) / 9007199254740992.0  # 2^53


@compiled
def earlier(heap: Ints, first: int, second: int) -> bool:
    if heap[first, 0] != heap[second, 0]:
        return bool(heap[first, 0] < heap[second, 0])
    return bool(heap[first, 1] < heap[second, 1])


@compiled
def swap(heap: Ints, first: int, second: int) -> None:
    for column in range(3):
        kept = heap[first, column]
        heap[first, column] = heap[second, column]
        heap[second, column] = kept


@compiled
def push(links: Links, time: int, what: int) -> None:
    heap, place = links.heap, links.sizes[0]
    heap[place, 0], heap[place, 1], heap[place, 2] = time, links.sizes[2], what
    links.sizes[0] += 1
    links.sizes[2] += 1
    while place > 0:
        above = (place - 1) >> 1
        if not earlier(heap, place, above):
            break
        swap(heap, place, above)
        place = above


@compiled
def pop(links: Links) -> int:
    """Take the earliest entry off the heap; returns its slot and mark."""
    heap = links.heap
    what = heap[0, 2]
    links.sizes[0] -= 1
    count = links.sizes[0]
    if count > 0:
        swap(heap, 0, count)
        place = 0
        while True:
            below = 2 * place + 1
            if below >= count:
                break
            if below + 1 < count and earlier(heap, below + 1, below):
                below += 1
            if not earlier(heap, below, place):
                break
            swap(heap, place, below)
            place = below
    return int(what)


@compiled
def take_slot(links: Links) -> int:
    """A slot to read the next packet into; -1 where there is none."""
    if links.sizes[1] == 0:
        return -1
    links.sizes[1] -= 1
    return int(links.free[links.sizes[1]])


@compiled
def give_slot(links: Links, slot: int) -> None:
    links.free[links.sizes[1]] = slot
    links.sizes[1] += 1


@compiled
def offer(links: Links, now: int, source: int, target: int, length: int, slot: int) -> bool:
    """A packet that ``source`` sends, in a slot of its own. False: dropped, the slot is free."""
    links.counts[OFFERED] += 1
    if target < 0 or target >= len(links.up_free):
        links.counts[STRANGE] += 1
        give_slot(links, slot)
        return False
    begin = max(now, links.up_free[source])
    if (begin - now) / links.up_cost[source] + length > links.up_bound[source]:
        links.counts[FULL_UP] += 1
        give_slot(links, slot)
        return False
    sent = begin + int(length * links.up_cost[source])
    links.up_free[source] = sent
    if links.loss[0] > 0.0 and chance(links) < links.loss[0]:  # it has used the uplink
        links.counts[LOST] += 1
        give_slot(links, slot)
        return False
    links.length[slot], links.source[slot], links.target[slot] = length, source, target
    push(links, int(sent + links.delay[source, target]), slot)
    return True


@compiled
def advance(links: Links, now: int, due: Ints) -> int:
    """Let time pass until ``now``: fills ``due`` with the slots that are to be delivered.

    In the order of delivery, as many as fit. The caller delivers them and gives them back.
    """
    found = 0
    heap = links.heap
    while links.sizes[0] > 0 and heap[0, 0] <= now and found < len(due):
        time = heap[0, 0]
        what = pop(links)
        if what >= _ARRIVES:
            due[found] = what - _ARRIVES
            found += 1
            continue
        target, length = links.target[what], links.length[what]
        begin = max(time, links.down_free[target])
        if (begin - time) / links.down_cost[target] + length > links.down_bound[target]:
            links.counts[FULL_DOWN] += 1
            give_slot(links, what)
            continue
        arrived = begin + int(length * links.down_cost[target])
        links.down_free[target] = arrived
        push(links, arrived, what + _ARRIVES)
    return found


@compiled
def next_time(links: Links) -> int:
    """When something is to happen next; -1: never."""
    return int(links.heap[0, 0]) if links.sizes[0] > 0 else -1
