"""Unsigned varints, in which protobuf and streams give lengths (multiformats)."""


def encode_uvarint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow. ``value`` ≥ 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
