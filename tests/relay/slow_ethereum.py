"""Keccak-256 and recoverable secp256k1 in plain Python: slow, and shares nothing with the relay.

Written from FIPS 202 (Keccak-f; with the padding 0x01 of the original submission), SEC 2 §2.4.1
(the curve), SEC 1 §4.1 (signing and recovery) and RFC 6979 (nonces).
"""

import hmac

MASK = (1 << 64) - 1
RATE = 136  # bytes; FIPS 202, §6.1: 1600 − 2 × 256 bits

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
Point = tuple[int, int] | None  # None: at infinity


# Keccak


def rotated(word: int, by: int) -> int:
    by %= 64
    return (word << by | word >> (64 - by)) & MASK


def round_constants() -> list[int]:
    """FIPS 202, §3.2.5: a shift register of 8 bits."""
    found, register = [], 1
    for _ in range(24):
        constant = 0
        for power in range(7):
            if register & 1:
                constant |= 1 << ((1 << power) - 1)
            register <<= 1
            if register & 0x100:
                register ^= 0x171
        found.append(constant)
    return found


def permuted(state: list[list[int]]) -> list[list[int]]:
    for constant in round_constants():
        column = [s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] for s in state]
        state = [
            [word ^ column[(x + 4) % 5] ^ rotated(column[(x + 1) % 5], 1) for word in state[x]]
            for x in range(5)
        ]
        moved = [[0] * 5 for _ in range(5)]
        moved[0][0] = state[0][0]
        x, y = 1, 0
        for step in range(24):
            # ρ and π in one: the lane (x, y) goes to (y, 2x + 3y).
            moved[y][(2 * x + 3 * y) % 5] = rotated(state[x][y], (step + 1) * (step + 2) // 2)
            x, y = y, (2 * x + 3 * y) % 5
        state = [
            [moved[x][y] ^ (~moved[(x + 1) % 5][y] & moved[(x + 2) % 5][y]) for y in range(5)]
            for x in range(5)
        ]
        state[0][0] ^= constant
    return state


def keccak256(data: bytes) -> bytes:
    padded = bytearray(data) + b"\x01"
    padded += bytes(-len(padded) % RATE)
    padded[-1] |= 0x80
    state = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), RATE):
        for lane in range(RATE // 8):
            at = start + 8 * lane
            state[lane % 5][lane // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        state = permuted(state)
    return b"".join(state[lane % 5][lane // 5].to_bytes(8, "little") for lane in range(4))


# The curve


def plus(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2:
        if (y1 + y2) % P == 0:
            return None
        slope = 3 * x1 * x1 * pow(2 * y1, -1, P) % P
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, P) % P
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(count: int, point: Point) -> Point:
    total: Point = None
    while count:
        if count & 1:
            total = plus(total, point)
        point = plus(point, point)
        count >>= 1
    return total


def address_of_point(point: Point) -> bytes:
    assert point is not None
    return keccak256(point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big"))[12:]


def address_of_secret(secret: bytes) -> bytes:
    return address_of_point(times(int.from_bytes(secret, "big"), G))


def nonces(secret: bytes, digest: bytes) -> int:
    """RFC 6979, §3.2, with SHA-256: the first candidate, which is in range but for a chance of
    2^-128."""
    reduced = (int.from_bytes(digest, "big") % N).to_bytes(32, "big")
    value, key = b"\x01" * 32, bytes(32)
    for mark in (b"\x00", b"\x01"):
        key = hmac.digest(key, value + mark + secret + reduced, "sha256")
        value = hmac.digest(key, value, "sha256")
    found = int.from_bytes(hmac.digest(key, value, "sha256"), "big")
    assert 0 < found < N
    return found


def sign(secret: bytes, digest: bytes) -> bytes:
    """r | s | recovery id, with s in the lower half."""
    nonce = nonces(secret, digest)
    point = times(nonce, G)
    assert point is not None
    assert point[0] < N  # else the recovery id has its second bit set: a chance of 2^-128
    r, odd = point[0], point[1] & 1
    number = int.from_bytes(digest, "big") + r * int.from_bytes(secret, "big")
    s = pow(nonce, -1, N) * number % N
    if s > N // 2:
        s, odd = N - s, odd ^ 1
    return r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([odd])


def recover(digest: bytes, signature: bytes) -> bytes | None:
    """The address of who signed; None where nobody can have. Takes any s and recovery id 0 to 3."""
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    x = r + N * (signature[64] >> 1)
    if not (0 < r < N and 0 < s < N and x < P):
        return None
    square = (x**3 + 7) % P
    y = pow(square, (P + 1) // 4, P)
    if y * y % P != square:
        return None
    if y & 1 != signature[64] & 1:
        y = P - y
    inverse = pow(r, -1, N)
    minus = -int.from_bytes(digest, "big") * inverse % N
    point = plus(times(s * inverse % N, (x, y)), times(minus, G))
    return None if point is None else address_of_point(point)
