"""The process that carries packets between TUN devices: `python -m bench.emulation.wire JSON`.

Its loop is compiled and calls the kernel by itself: read what the devices have, let
`links` decide, write what is due, sleep until there is something to do again. One packet
is one read and one write, without segmentation offload: a loss is then that of one packet
of the MTU, as on a real link. Of a packet it looks at the target address only.

It speaks the lines of bench/PROTOCOL.md as far as `bench.remote` needs them. Its one
command, ``counts``, is answered with the counters of `links.COUNTED` so far.
"""

import ctypes
import fcntl
import json
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from bench.emulation import links as core
from bench.emulation.links import SLOT, Links, advance, give_slot, new_links, offer, take_slot
from bench.emulation.namespaces import inside
from bench.emulation.regions import Layout

# Nanoseconds between rounds of the loop at least: guess. Packets are up to this much late
# when they are read, and again when they are written; the shortest delay is 2 ms.
ROUND = 200_000
BATCH = 256  # packets read from a device, and delivered, in one round: guess
PRIORITY = 1  # of the real-time ones: what delays packets must not wait for what it delays
IPV4_TARGET = 16  # offset in the header: RFC 791

DEVICE = "wire"  # name of the interface in each namespace

_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000  # same place: packets as they are, IP header first
_POLLIN = 1  # poll.h
_CLOCK_MONOTONIC = 1  # time.h
_PR_SET_TIMERSLACK = 29  # prctl.h

_libc = ctypes.CDLL(None)
_read, _write, _ppoll, _clock = _libc.read, _libc.write, _libc.ppoll, _libc.clock_gettime
_sleep = _libc.clock_nanosleep
for _call in (_read, _write):
    _call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    _call.restype = ctypes.c_ssize_t
_ppoll.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
_ppoll.restype = ctypes.c_int
_clock.argtypes = [ctypes.c_int, ctypes.c_void_p]
_clock.restype = ctypes.c_int
_sleep.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_sleep.restype = ctypes.c_int


class WireSettings(msgspec.Struct, frozen=True):
    """The argument of the process."""

    namespaces: tuple[str, ...]  # by node
    prefix: tuple[int, int, int]  # of every address; the last byte is the node's index plus one
    layout: Layout
    queue: float  # this and the rest as new_links has them
    loss: float
    seed: int


def monotonic(spec: NDArray[np.int64]) -> int:
    _clock(_CLOCK_MONOTONIC, spec.ctypes.data)
    return int(spec[0] * 1_000_000_000 + spec[1])


# Not kept on disk: what calls the kernel through ctypes cannot be.
_monotonic = cast(Callable[[NDArray[np.int64]], int], numba.njit(monotonic))


def carry(
    links: Links,
    devices: NDArray[np.int32],
    prefix: NDArray[np.uint8],
    room: NDArray[np.uint8],
    polled: NDArray[np.int32],
) -> None:
    """Carry packets until there is a command, or none to come.

    ``room`` is [slot, byte], with a row more than slots. ``polled`` has two int32 for each
    device, and for the standard input at the end: a struct pollfd (descriptor; 16 bits
    asked, 16 bits answered).
    """
    spec = np.zeros(2, np.int64)  # struct timespec: seconds, nanoseconds
    due = np.zeros(BATCH, np.int64)
    count = len(devices)
    last = 0
    while True:
        now = _monotonic(spec)
        if now - last < ROUND:  # gather what comes meanwhile
            spec[0], spec[1] = 0, ROUND - (now - last)
            _sleep(_CLOCK_MONOTONIC, 0, spec.ctypes.data, 0)
            now = _monotonic(spec)
        last = now
        found = BATCH
        while found == BATCH:
            found = advance(links, now, due)
            for index in range(found):
                slot = due[index]
                length = links.length[slot]
                wrote = _write(devices[links.target[slot]], room[slot].ctypes.data, length)
                links.counts[core.DELIVERED if wrote == length else core.UNWRITTEN] += 1
                give_slot(links, slot)
        wait = core.next_time(links)
        if wait >= 0:
            wait = max(wait - _monotonic(spec), 0)
            spec[0], spec[1] = wait // 1_000_000_000, wait % 1_000_000_000
            _ppoll(polled.ctypes.data, count + 1, spec.ctypes.data, 0)
        else:
            _ppoll(polled.ctypes.data, count + 1, 0, 0)
        now = _monotonic(spec)
        for node in range(count):
            if polled[2 * node + 1] >> 16 == 0:
                continue
            for _ in range(BATCH):
                slot = take_slot(links)
                packet = room[slot]  # the last row, which is nobody's, where there is none
                length = _read(devices[node], packet.ctypes.data, SLOT)
                if slot < 0:
                    links.counts[core.NO_SLOT] += length > 0
                    break
                if length <= 0:  # nothing more
                    give_slot(links, slot)
                    break
                target = -1
                at = IPV4_TARGET
                if (
                    packet[at] == prefix[0]
                    and packet[at + 1] == prefix[1]
                    and packet[at + 2] == prefix[2]
                ):
                    target = packet[at + 3] - 1
                offer(links, now, node, target, length, slot)
        if polled[2 * count + 1] >> 16:
            return


def open_device(namespace: str) -> int:
    """A new TUN device in the namespace. It is there as long as this process."""
    with inside(namespace):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)  # struct ifreq
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
    return descriptor


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=WireSettings)
    links = new_links(settings.layout, settings.queue, settings.loss, settings.seed)
    devices = [open_device(namespace) for namespace in settings.namespaces]
    polled = [[each, _POLLIN] for each in [*devices, sys.stdin.fileno()]]
    arrays = (
        np.array(devices, np.int32),
        np.array(settings.prefix, np.uint8),
        np.zeros((core.SLOTS + 1, SLOT), np.uint8),
        np.array(polled, np.int32).ravel(),
    )
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # ns: the default lets timers be 50 µs late
    carrying: Any = numba.njit(carry)
    carrying.compile(tuple(map(numba.typeof, (links, *arrays))))
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    say({"event": "listening", "nodes": [], "versions": {"numba": numba.__version__}})
    buffer = b""
    while True:
        carrying(links, *arrays)
        read = os.read(sys.stdin.fileno(), 4096)
        if not read:
            return
        *lines, buffer = (buffer + read).split(b"\n")
        for line in lines:
            counts = dict(zip(core.COUNTED, links.counts.tolist(), strict=True))
            say({"answer": json.loads(line)["id"], "counts": counts})


def say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
