"""Bitcoin blocks: accepted only when everything a block alone can prove is proven.

Checked: that the bytes are exactly one block in its one serialization; proof of
work against nBits and nBits against the network's limit; sizes, weight and
legacy signature operations; Merkle root, repeated transactions (CVE-2012-2459)
and witness commitment (BIP 141); coinbase place, number and script size; every
rule for a transaction by itself; and double spends, order and missing outputs
between the transactions of the block.

Not checked, because it needs the chain, a clock or a script interpreter: that
the parent is known and nBits follows the difficulty schedule; that inputs exist
unspent and cover outputs and fees; subsidy; scripts and signatures, among them
the signed solution of signet blocks (BIP 325); lock times; that the height of
the coinbase (BIP 34) and the version are the right ones; that the timestamp is
neither before the median of its past nor too far ahead. A valid block of long
ago is therefore accepted again, and so is one mined at the network's easiest
target.

Blocks are held to the rules in force since SegWit (main block 481,824). Blocks
before it pass as well, save those whose coinbase already carried a commitment
while its witness was not yet sent.
"""

import msgspec

from bruit.plugins.bitcoin.block import (
    MAX_BLOCK_SERIALIZED_SIZE,
    Block,
    check_block,
    parse_block,
    parse_header,
)
from bruit.plugins.bitcoin.pow import Network, check_proof_of_work
from bruit.plugins.hookspecs import hookimpl
from bruit.topics.errors import RemoteError
from bruit.topics.validation import Fact, Validation, Verdict, reject


class BitcoinConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the bitcoin plugin."""

    # Whose proof-of-work limit holds: main, test (testnet3 and testnet4), signet, regtest.
    network: Network = "main"


class BitcoinPlugin:
    """Judges the messages of a topic as raw Bitcoin blocks."""

    Config = BitcoinConfig

    def __init__(self, config: BitcoinConfig) -> None:
        self._network = config.network

    @hookimpl
    def validate(self, topic: str, data: bytes) -> Validation:
        """ACCEPT with the block's facts, or REJECT naming the broken rule.

        Never IGNORE: every fault is in the content, and whoever sent it could
        have seen it. The cheap checks come first: size, then proof of work on
        the header, so that a block which costs us time has cost its maker more
        (regtest aside). A REJECT speaks of these bytes, not of the block hash:
        repeated transactions or altered witnesses leave the hash of a valid
        block as it is.

        Facts: ``hash`` (hex, display order), ``height`` (claimed, only when the
        coinbase states one), ``transactions``, ``size`` (bytes), ``weight``,
        ``timestamp`` (seconds since 1970-01-01 UTC).
        """
        try:
            block = self._checked(data)
        except RemoteError as error:
            return reject(str(error))
        return Validation(Verdict.ACCEPT, facts=_facts(block))

    def _checked(self, data: bytes) -> Block:
        if len(data) > MAX_BLOCK_SERIALIZED_SIZE:
            raise RemoteError(f"size {len(data)} is over {MAX_BLOCK_SERIALIZED_SIZE} bytes")
        header = parse_header(data)
        check_proof_of_work(header.hash, header.bits, self._network)
        block = parse_block(data)
        check_block(block)
        return block


def _facts(block: Block) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"hash": block.header.hash[::-1].hex()}
    height = block.height
    if height is not None:
        facts["height"] = height
    facts["transactions"] = len(block.transactions)
    facts["size"] = block.size
    facts["weight"] = block.weight
    facts["timestamp"] = block.header.timestamp
    return facts
