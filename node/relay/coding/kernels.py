"""The kernels that carry the bulk, and the choice between them.

A kernel adds up rows of bytes, each sent through a map (`bitmaps`). The processor decides
which is the fastest one that can run; each is compiled, or read from numba's cache, when
it is first used. The cache is keyed by processor and features, so another machine over the
same folder compiles its own.

Kernels hold no lock of the interpreter and start no threads: whoever has several messages
may code them in several threads.
"""

from enum import Enum
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bruit.node.relay.coding.bitmaps import Maps

Addresses = npt.NDArray[np.uint64]  # of the first byte of each row, in memory


class Kernel(Enum):
    """The kernels, fastest first."""

    GFNI_512 = "gfni512"
    GFNI_256 = "gfni256"
    AVX2 = "avx2"
    PORTABLE = "portable"


# Names of LLVM. GFNI alone has the 128-bit form only; with AVX it has a 256-bit one.
NEEDS = {
    Kernel.GFNI_512: ("gfni", "avx512f", "avx512bw"),
    Kernel.GFNI_256: ("gfni", "avx2"),
    Kernel.AVX2: ("avx2",),
    Kernel.PORTABLE: (),
}


class Program(Protocol):
    """A matrix of maps, made ready for one kernel."""

    def __call__(self, sources: Addresses, targets: Addresses, length: int) -> None:
        """Write every target row: the sum of all source rows through its maps.

        All rows have ``length`` bytes. Targets overlap neither each other nor sources.
        Nothing is checked: wrong addresses break the process.
        """
        ...


@lru_cache(maxsize=1)
def supported() -> tuple[Kernel, ...]:
    """The kernels that this processor can run, fastest first."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return tuple(
        kernel
        for kernel, names in NEEDS.items()
        if all(features.get(name, False) for name in names)
    )


def program(maps: Maps, kernel: Kernel | None = None) -> Program:
    """The maps, ready to be run by the best kernel or by the one given."""
    chosen: Kernel = kernel or supported()[0]
    if chosen is Kernel.PORTABLE:
        from bruit.node.relay.coding.portable import portable_program

        return portable_program(maps)
    from bruit.node.relay.coding.vectors import vector_program

    return vector_program(maps, chosen)
