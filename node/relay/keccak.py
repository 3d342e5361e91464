"""Keccak-256 as Ethereum uses it: the padding of the original submission, not of SHA3-256."""

from Crypto.Hash import keccak


def keccak256(*parts: bytes | memoryview) -> bytes:
    """The 32-byte digest of ``parts``, one after the other."""
    state = keccak.new(digest_bits=256)
    for part in parts:
        state.update(part)
    return state.digest()
