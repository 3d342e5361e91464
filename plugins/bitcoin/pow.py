"""Proof of work: the target that nBits stands for, and whether a hash meets it.

Sources: Bitcoin Core ``src/pow.cpp`` (DeriveTarget), ``src/arith_uint256.cpp``
(SetCompact), ``src/kernel/chainparams.cpp`` (powLimit).
"""

from typing import Literal

from bruit.topics.errors import RemoteError

Network = Literal["main", "test", "signet", "regtest"]

# The easiest target of each network: consensus.powLimit in chainparams.cpp.
# "test" stands for testnet3 and testnet4, which share it.
POW_LIMITS: dict[Network, int] = {
    "main": 2**224 - 1,
    "test": 2**224 - 1,
    "signet": 0x377AE << 216,
    "regtest": 2**255 - 1,
}


def decode_target(bits: int) -> int:
    """The target of a 32-bit nBits: a base-256 exponent, a sign and 23 bits.

    Raises RemoteError when it is negative, zero, or does not fit 256 bits.
    """
    exponent = bits >> 24
    mantissa = bits & 0x7FFFFF
    target = mantissa << 8 * exponent >> 24  # mantissa times 256^(exponent-3), rounded down
    if target == 0:
        raise RemoteError(f"nBits {bits:08x} is a target of zero, which no hash can meet")
    if bits & 0x800000:
        raise RemoteError(f"nBits {bits:08x} is a negative target")
    if target >= 2**256:
        raise RemoteError(f"nBits {bits:08x} is a target over 256 bits")
    return target


def check_proof_of_work(block_hash: bytes, bits: int, network: Network) -> None:
    """Raises RemoteError unless ``block_hash`` (32 bytes, as hashed) meets ``bits``.

    ``bits`` must itself be no easier than the network allows.
    """
    target = decode_target(bits)
    if target > POW_LIMITS[network]:
        raise RemoteError(f"nBits {bits:08x} is easier than the limit of network {network}")
    if int.from_bytes(block_hash, "little") > target:
        raise RemoteError(
            f"proof of work not met: hash {block_hash[::-1].hex()} is over "
            f"the target of nBits {bits:08x}"
        )
