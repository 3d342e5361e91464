"""Unsigned varints, in which protobuf and streams give lengths (multiformats)."""

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def encode_uvarint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow. ``value`` ≥ 0."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:  # one step instead of two: most messages are of this size
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uvarint_size(value: int) -> int:
    """How many bytes `encode_uvarint` makes of ``value``."""
    return 1 if value < 0x80 else (value.bit_length() + 6) // 7
