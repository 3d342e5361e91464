"""What a block says through its scripts without any of them being run.

Two things: the signature operations that count towards the block's limit, and
the height that the coinbase script begins with.
"""

from bruit.topics.errors import LocalError

# Opcode values: Bitcoin Core src/script/script.h.
OP_PUSHDATA1 = 0x4C
OP_PUSHDATA4 = 0x4E
OP_1 = 0x51
OP_16 = 0x60
OP_CHECKSIG = 0xAC
OP_CHECKSIGVERIFY = 0xAD
OP_CHECKMULTISIGVERIFY = 0xAF

# src/script/script.h, MAX_PUBKEYS_PER_MULTISIG: what a multisig counts for when
# its number of keys is not looked at, which is how the block limit counts.
SIGOPS_PER_MULTISIG = 20

MAX_HEIGHT = 2**31 - 1  # Bitcoin Core keeps a height in an int


def count_sigops(script: bytes) -> int:
    """Legacy signature operations, as the block limit counts them.

    Source: CScript::GetSigOpCount(fAccurate=false). A push that runs past the
    end of the script ends the count, as it does there. Time is linear in the
    script.
    """
    total = 0
    position = 0
    end = len(script)
    while position < end:
        opcode = script[position]
        position += 1
        if opcode < OP_PUSHDATA1:
            position += opcode
        elif opcode <= OP_PUSHDATA4:
            width = 1 << (opcode - OP_PUSHDATA1)
            position += width + int.from_bytes(script[position : position + width], "little")
        elif opcode < OP_CHECKSIG:
            continue
        elif opcode <= OP_CHECKSIGVERIFY:
            total += 1
        elif opcode <= OP_CHECKMULTISIGVERIFY:
            total += SIGOPS_PER_MULTISIG
    return total


def push_height(height: int) -> bytes:
    """The script prefix that states ``height`` (BIP 34: a minimal push).

    Raises LocalError outside 0..`MAX_HEIGHT`.
    """
    if not 0 <= height <= MAX_HEIGHT:
        raise LocalError(f"height {height} cannot be written: give one in 0..{MAX_HEIGHT}")
    if height == 0:
        return b"\x00"
    if height <= 16:
        return bytes((OP_1 + height - 1,))
    # One bit more than the number needs, for the sign bit of a script number.
    width = height.bit_length() // 8 + 1
    return bytes((width,)) + height.to_bytes(width, "little")


def pushed_height(script: bytes) -> int | None:
    """The height that a coinbase script begins with, None when there is none."""
    first = script[0] if script else 0
    if OP_1 <= first <= OP_16:
        height = first - OP_1 + 1
    else:
        height = int.from_bytes(script[1 : 1 + first], "little")
    if height > MAX_HEIGHT or not script.startswith(push_height(height)):
        return None
    return height
