"""CompactSize, Bitcoin's count prefix of 1, 3, 5 or 9 bytes.

Source: Bitcoin Core ``src/serialize.h`` (ReadCompactSize, WriteCompactSize).
Only the shortest form of a number is accepted, so every block has exactly one
serialization and no byte can change unseen.
"""

from bruit.topics.errors import LocalError, RemoteError

# Bitcoin Core src/serialize.h, MAX_SIZE: no count or length may pass 32 MiB.
MAX_SIZE = 0x0200_0000

_WIDTHS = {0xFD: 2, 0xFE: 4, 0xFF: 8}  # first byte → bytes of the number after it
_SMALLEST = {0xFD: 0xFD, 0xFE: 0x1_0000, 0xFF: 0x1_0000_0000}  # what needs that width


def read_compact_size(data: bytes, position: int) -> tuple[int, int]:
    """The number at ``position`` and the position after it.

    Raises RemoteError when it is cut off, not in its shortest form, or above
    `MAX_SIZE`.
    """
    first = data[position : position + 1]
    if not first:
        raise RemoteError(f"truncated: no count at byte {position}")
    number = first[0]
    if number < 0xFD:
        return number, position + 1
    end = position + 1 + _WIDTHS[number]
    if end > len(data):
        raise RemoteError(f"truncated: a count is cut off at byte {position}")
    value = int.from_bytes(data[position + 1 : end], "little")
    if value < _SMALLEST[number]:
        raise RemoteError(f"count {value} at byte {position} is not in its shortest form")
    if value > MAX_SIZE:
        raise RemoteError(f"count {value} at byte {position} is over the limit of {MAX_SIZE}")
    return value, end


def compact_size(value: int) -> bytes:
    """``value`` in its shortest form. Raises LocalError outside 0..`MAX_SIZE`."""
    if not 0 <= value <= MAX_SIZE:
        raise LocalError(f"count {value} does not fit: give a number in 0..{MAX_SIZE}")
    if value < 0xFD:
        return bytes((value,))
    if value < 0x1_0000:
        return b"\xfd" + value.to_bytes(2, "little")
    return b"\xfe" + value.to_bytes(4, "little")
