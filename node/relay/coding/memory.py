"""Memory as kernels see it, by addresses; and ``bytes`` that are filled in place."""

from collections.abc import Callable, Iterable
from ctypes import PYFUNCTYPE, addressof, c_int, c_size_t, c_ssize_t, c_void_p, py_object, pythonapi

import numpy as np

from bruit.node.relay.coding.kernels import Addresses

BUFFER_WORDS = 16  # room for a Py_buffer, of 10 words; its first one is the address
PYBUF_WRITE = 0x200  # Python's C API: a view that may be written to

# Prototypes of our own: the attributes of `pythonapi` are shared with everyone.
_new_bytes: Callable[[None, int], bytes] = PYFUNCTYPE(py_object, c_void_p, c_ssize_t)(
    ("PyBytes_FromStringAndSize", pythonapi)
)
_address_of_bytes: Callable[[bytes], int] = PYFUNCTYPE(c_void_p, py_object)(
    ("PyBytes_AsString", pythonapi)
)
_view_of_memory: Callable[[int, int, int], memoryview] = PYFUNCTYPE(
    py_object, c_void_p, c_ssize_t, c_int
)(("PyMemoryView_FromMemory", pythonapi))

_get_buffer: Callable[[bytes | memoryview, int, int], int] = PYFUNCTYPE(
    c_int, py_object, c_void_p, c_int
)(("PyObject_GetBuffer", pythonapi))
_release_buffer: Callable[[int], None] = PYFUNCTYPE(None, c_void_p)(("PyBuffer_Release", pythonapi))


def address(buffer: bytes | memoryview) -> int:
    """Of the first byte. The caller keeps the buffer alive."""
    if isinstance(buffer, bytes):
        return _address_of_bytes(buffer)
    return addresses([buffer])[0]


def addresses(buffers: Iterable[bytes | memoryview]) -> list[int]:
    """Of the first byte of each, in a third of the time that numpy's attributes need."""
    record = (c_size_t * BUFFER_WORDS)()
    pointer = addressof(record)
    found = []
    for buffer in buffers:
        _get_buffer(buffer, pointer, 0)
        found.append(record[0])
        _release_buffer(pointer)
    return found


def consecutive(first: int, count: int, distance: int) -> Addresses:
    """Addresses of ``count`` rows, each so many bytes after the one before."""
    return np.arange(first, first + count * distance, distance, dtype=np.uint64)


def planes_of(chunks: Addresses, length: int, planes: int) -> Addresses:
    """The rows that a kernel sees of chunks with ``length`` bytes each."""
    if planes == 1:
        return chunks
    offsets = np.arange(planes, dtype=np.uint64) * np.uint64(length // planes)
    return (chunks[:, None] + offsets[None, :]).reshape(-1)


class UnfilledBytes:
    """A ``bytes`` whose content is written before anyone else sees it.

    Python's C API allows that: PyBytes_FromStringAndSize without a string is made for it.
    It saves copying a whole message once more. ``size`` is at least 2: shorter ``bytes``
    are shared by all.
    """

    __slots__ = ("address", "content", "view")

    def __init__(self, size: int) -> None:
        self.content = _new_bytes(None, size)
        self.address = _address_of_bytes(self.content)
        self.view = _view_of_memory(self.address, size, PYBUF_WRITE)

    def filled(self) -> bytes:
        self.view.release()
        return self.content
