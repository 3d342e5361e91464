"""The erasure code beside ISA-L, zfec and galois, in MB of block per second.

    python -m bench.coding [--quick] [--kernel gfni512|gfni256|avx2|portable] [--rounds N]
                           [--shapes 32+16,32+32] [--sizes 131072,1048576]

All take turns within each round, on one thread, whose CPU time is taken. Every call of a round
has another set of lost chunks, the same one for all, so that no inverse is remembered: half of
the data chunks are lost, or as many as there are parity chunks; exactly as many chunks as
needed are given.
Figures are medians over the rounds, with the best round beside. The last line of output is one
JSON object. One call includes:

- ``ours``: `Code.encode` of a ``bytes`` block to all n chunks, and `Code.decode` of a dict of
  chunks to a ``bytes`` block. Data chunks are views of the block, which is not copied.
- ``isal``: `ECDriver.encode` and `.decode` of pyeclib, type isa_l_rs_cauchy, without checksums,
  from and to ``bytes``. It copies data chunks too, and writes headers of 80 bytes.
- ``zfec``: padding the block and slicing it, `Encoder.encode` of the parity chunks only;
  `Decoder.decode` and joining the chunks.
- ``galois``: as zfec, by a matrix product over `galois.GF(2**8)`; to decode, the matrix is
  inverted. Only blocks of at most 1 MiB and 48 chunks, and one round: null elsewhere.

``ours_core`` and ``isal_core`` leave all that out: the bare product that encodes, from chunks in
memory to parity chunks in memory which are allocated, aligned and touched before. The library
of pyeclib is called by ctypes for it. They say how much of a difference is the kernel.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import galois
import numpy as np
import pyeclib
import zfec
from pyeclib.ec_iface import ECDriver

from bruit.node.relay.coding.bitmaps import maps_of_matrix
from bruit.node.relay.coding.code import Code
from bruit.node.relay.coding.fields import binary_field
from bruit.node.relay.coding.kernels import Kernel, program, supported
from bruit.node.relay.coding.matrices import cauchy_rows

SHAPES = "10+4,16+16,32+16,32+32,64+64"
SIZES = f"{128 << 10},{1 << 20},{10 << 20}"
ROUNDS, QUICK_ROUNDS = 15, 5
SAMPLE = 4e-3  # seconds that one measured stretch takes at least
MAX_CALLS = 50  # in one stretch
GALOIS_BLOCK = 1 << 20  # bytes; it makes some 20 MB a second
GALOIS_CHUNKS = 48
LINE = 64  # bytes of a line of the cache
SEED = 1
# CPU time of the thread, which is all that computes here: on an idle machine the time that
# passes, and on a busy one without the time that others had the processor.
CLOCK = time.thread_time

Chunks = list[Any]


class Coder(NamedTuple):
    encode: Callable[[bytes], Chunks]
    decode: Callable[[Sequence[int], Chunks], bytes]  # indices and chunks, in that order


def padded(block: bytes, k: int) -> tuple[bytes, int]:
    length = -(-len(block) // k)
    return block.ljust(k * length, b"\0"), length


def ours(k: int, m: int, kernel: Kernel | None) -> Coder:
    code = Code(k, k + m, kernel=kernel)

    def decode(indices: Sequence[int], chunks: Chunks) -> bytes:
        return code.decode(dict(zip(indices, chunks, strict=True)))

    return Coder(code.encode, decode)


def isal(k: int, m: int) -> Coder:
    driver = ECDriver(k=k, m=m, ec_type="isa_l_rs_cauchy")
    return Coder(driver.encode, lambda _, chunks: driver.decode(chunks))


def zfec_coder(k: int, m: int, size: int) -> Coder:
    encoder, decoder = zfec.Encoder(k, k + m), zfec.Decoder(k, k + m)
    parity = list(range(k, k + m))

    def encode(block: bytes) -> Chunks:
        whole, length = padded(block, k)
        data = [whole[start : start + length] for start in range(0, len(whole), length)]
        return data + encoder.encode(data, parity)

    def decode(indices: Sequence[int], chunks: Chunks) -> bytes:
        # It wants each data chunk that is there at its own place.
        places: list[int] = [-1] * k
        rest = [position for position, index in enumerate(indices) if index >= k]
        for position, index in enumerate(indices):
            if index < k:
                places[index] = position
        for place in range(k):
            if places[place] < 0:
                places[place] = rest.pop()
        ordered = [chunks[position] for position in places]
        return b"".join(decoder.decode(ordered, [indices[p] for p in places]))[:size]

    return Coder(encode, decode)


def galois_coder(k: int, m: int, size: int) -> Coder:
    field = galois.GF(2**8, irreducible_poly=0x11D)
    generator = np.vstack([np.eye(k, dtype=np.uint8), parity_rows(k, m).astype(np.uint8)])

    def encode(block: bytes) -> Chunks:
        whole, length = padded(block, k)
        data = np.frombuffer(whole, np.uint8).reshape(k, length)
        return [*data, *np.asarray(field(generator[k:]) @ field(data))]

    def decode(indices: Sequence[int], chunks: Chunks) -> bytes:
        inverse = np.linalg.inv(field(generator[list(indices)]))
        data = {index: chunk for index, chunk in zip(indices, chunks, strict=True) if index < k}
        lost = [index for index in range(k) if index not in data]
        rebuilt = np.asarray(inverse[lost] @ field(np.stack(chunks)))
        data |= dict(zip(lost, rebuilt, strict=True))
        return b"".join(data[index].tobytes() for index in range(k))[:size]

    return Coder(encode, decode)


def parity_rows(k: int, m: int) -> Any:
    return cauchy_rows(binary_field(8), np.arange(k, k + m), k)


# --- bare products ----------------------------------------------------------------


def rows_in_memory(count: int, length: int) -> tuple[Any, Any]:
    """Random rows on lines of the cache, an odd number of lines apart, and their addresses."""
    distance = (-(-length // LINE) | 1) * LINE
    rng = np.random.default_rng(SEED)
    memory = rng.integers(0, 256, count * distance + LINE, np.uint8)
    first = memory.ctypes.data + -memory.ctypes.data % LINE
    return memory, np.arange(first, first + count * distance, distance, dtype=np.uint64)


def core_of_ours(k: int, m: int, length: int, kernel: Kernel | None) -> Callable[[], object]:
    ready = program(maps_of_matrix(8, parity_rows(k, m)), kernel)
    sources, from_rows = rows_in_memory(k, length)
    targets, to_rows = rows_in_memory(m, length)
    # Default arguments keep the memory alive.
    return lambda _sources=sources, _targets=targets: ready(from_rows, to_rows, length)


def core_of_isal(k: int, m: int, length: int) -> Callable[[], object] | None:
    folder = Path(pyeclib.__file__).parent.parent / "pyeclib.libs"
    found = sorted(folder.glob("libisal*"))
    if not found:
        return None
    library = ctypes.CDLL(str(found[0]))
    coefficients = np.ascontiguousarray(parity_rows(k, m), np.uint8)
    tables = np.zeros(32 * k * m, np.uint8)
    library.ec_init_tables(
        k, m, ctypes.c_void_p(coefficients.ctypes.data), ctypes.c_void_p(tables.ctypes.data)
    )
    sources, from_rows = rows_in_memory(k, length)
    targets, to_rows = rows_in_memory(m, length)
    arguments = (
        ctypes.c_int(length),
        ctypes.c_int(k),
        ctypes.c_int(m),
        ctypes.c_void_p(tables.ctypes.data),
        ctypes.c_void_p(from_rows.ctypes.data),
        ctypes.c_void_p(to_rows.ctypes.data),
    )
    kept = (sources, targets, tables, from_rows, to_rows)
    return lambda _kept=kept: library.ec_encode_data(*arguments)


# --- measuring ----------------------------------------------------------------------


def stretch(call: Callable[[int], object], calls: int) -> float:
    """Seconds that one call takes."""
    begin = CLOCK()
    for number in range(calls):
        call(number)
    return (CLOCK() - begin) / calls


def calls_for(call: Callable[[int], object]) -> int:
    call(MAX_CALLS)  # compiles, and fills caches
    taken = stretch(lambda _: call(MAX_CALLS), 1)
    return max(1, min(MAX_CALLS, round(SAMPLE / taken)))


class Times:
    """Seconds per call, by what was done and by whom; a stretch has as many calls each time."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.calls: dict[tuple[str, str], int] = {}

    def add(self, what: str, name: str, call: Callable[[int], object]) -> None:
        key = what, name
        if key not in self.calls:
            self.calls[key] = calls_for(call)
        self.seconds.setdefault(key, []).append(stretch(call, self.calls[key]))

    def rates(self, what: str, names: Iterable[str], size: int) -> dict[str, float | None]:
        """MB of block per second: median, and best."""
        found: dict[str, float | None] = {}
        for name in names:
            taken = self.seconds.get((what, name))
            found[name] = round(size / median(taken) / 1e6, 1) if taken else None
            found[f"{name}_best"] = round(size / min(taken) / 1e6, 1) if taken else None
        return found


def measure(
    k: int, m: int, size: int, rounds: int, kernel: Kernel | None, rng: random.Random
) -> dict[str, dict[str, float | None]]:
    block = rng.randbytes(size)
    coders = {"ours": ours(k, m, kernel), "isal": isal(k, m), "zfec": zfec_coder(k, m, size)}
    if size <= GALOIS_BLOCK and k + m <= GALOIS_CHUNKS:
        coders["galois"] = galois_coder(k, m, size)
    length = -(-size // k)
    cores = {
        "ours_core": core_of_ours(k, m, length, kernel),
        "isal_core": core_of_isal(k, m, length),
    }
    chunks = {name: coder.encode(block) for name, coder in coders.items()}
    lost = min(k // 2, m)
    times = Times()
    for number in range(rounds):
        sets = [
            sorted(rng.sample(range(k), k - lost)) + list(range(k, k + lost))
            for _ in range(MAX_CALLS + 2)
        ]
        for name, coder in coders.items():
            if name != "galois" or number == 0:
                measure_coder(times, name, coder, block, chunks[name], sets)
        for name, core in cores.items():
            if core is not None:
                times.add("encode", name, lambda _, core=core: core())
    return {
        "encode": times.rates("encode", dict.fromkeys([*coders, "galois", *cores]), size),
        "decode": times.rates("decode", dict.fromkeys([*coders, "galois"]), size),
    }


def measure_coder(
    times: Times, name: str, coder: Coder, block: bytes, chunks: Chunks, sets: list[list[int]]
) -> None:
    given = [(some, [chunks[index] for index in some]) for some in sets]
    if coder.decode(*given.pop()) != block:
        raise AssertionError(f"{name} does not rebuild the block")
    times.add("encode", name, lambda _: coder.encode(block))
    times.add("decode", name, lambda call: coder.decode(*given[call]))


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def size_name(size: int) -> str:
    return f"{size >> 20}MiB" if size >= 1 << 20 else f"{size >> 10}KiB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 MiB, 32+16 and 32+32, five rounds")
    parser.add_argument("--kernel", choices=[kernel.value for kernel in Kernel])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--shapes", help=f"default {SHAPES}")
    parser.add_argument("--sizes", help=f"bytes of a block; default {SIZES}")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    shapes = options.shapes or ("32+16,32+32" if options.quick else SHAPES)
    sizes = options.sizes or (str(1 << 20) if options.quick else SIZES)
    kernel = Kernel(options.kernel) if options.kernel else None

    rng = random.Random(SEED)
    results: dict[str, Any] = {}
    for shape in shapes.split(","):
        k, m = map(int, shape.split("+"))
        for size in map(int, sizes.split(",")):
            name = f"{shape}@{size_name(size)}"
            results[name] = measure(k, m, size, rounds, kernel, rng)
            for what, figures in results[name].items():
                shown = "  ".join(
                    f"{key} {figure}" for key, figure in figures.items() if "_best" not in key
                )
                print(f"{name:14} {what}  {shown}", flush=True)
    results["inputs"] = {
        "kernel": (kernel or supported()[0]).value,
        "rounds": rounds,
        "seed": SEED,
        "unit": "MB of block per second of CPU time; median of rounds, and best",
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    results["versions"] = {
        "python": platform.python_version(),
        **{
            package: importlib.metadata.version(package)
            for package in ("numba", "llvmlite", "numpy", "pyeclib", "zfec", "galois")
        },
    }
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
