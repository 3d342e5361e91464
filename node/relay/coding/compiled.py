"""How kernels are compiled by numba."""

from collections.abc import Callable

from numba import njit


def compiled(signature: str, function: Callable[..., None]) -> Callable[..., None]:
    """``function`` as machine code that releases the interpreter's lock while it runs.

    It is cached beside its source or, where that folder cannot be written, in the user's
    cache folder; where neither can be, it is compiled in every process.
    """
    try:
        result = njit(signature, cache=True, nogil=True)(function)
    except (OSError, RuntimeError):  # "no locator available" is a RuntimeError of numba
        result = njit(signature, nogil=True)(function)
    kernel: Callable[..., None] = result
    return kernel
