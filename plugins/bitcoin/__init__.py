"""Bitcoin: validation of raw blocks, and a generator of valid ones."""

from bruit.plugins.bitcoin.block import block_hash
from bruit.plugins.bitcoin.generate import TRANSACTIONS_PER_MEGABYTE, generate_block
from bruit.plugins.bitcoin.plugin import BitcoinConfig, BitcoinPlugin

__all__ = [
    "TRANSACTIONS_PER_MEGABYTE",
    "BitcoinConfig",
    "BitcoinPlugin",
    "block_hash",
    "generate_block",
]
