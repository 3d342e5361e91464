"""Two blocks of the main network, from the folder BRUIT_DATA."""

import bz2
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bruit.plugins.bitcoin import BitcoinConfig, BitcoinPlugin, block_hash
from bruit.plugins.bitcoin.block import parse_block
from bruit.topics.validation import Verdict

pytestmark = pytest.mark.realdata

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / os.environ.get("BRUIT_DATA", "../shared/data")
MAIN = BitcoinPlugin(BitcoinConfig(network="main"))


def load(name: str) -> bytes:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"real data missing: {path} (set BRUIT_DATA to the folder that has {name})")
    data = path.read_bytes()
    return bz2.decompress(data) if name.endswith(".bz2") else data


@pytest.fixture(scope="module")
def segwit_block() -> bytes:
    return load("btc-574200.blk")


@pytest.mark.parametrize(
    ("name", "height", "size", "transactions", "display_hash"),
    [
        (
            "btc-413567.raw.bz2",
            413567,
            999_887,
            1557,
            "0000000000000000025aff8be8a55df8f89c77296db6198f272d6577325d4069",
        ),
        (
            "btc-574200.blk",
            574200,
            1_245_250,
            3315,
            "0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2",
        ),
    ],
)
def test_a_real_block_is_accepted_with_the_facts_that_are_known_of_it(
    name: str, height: int, size: int, transactions: int, display_hash: str
) -> None:
    data = load(name)
    found = MAIN.validate("blocks", data)
    assert found.verdict is Verdict.ACCEPT, found.reason
    assert found.facts["hash"] == display_hash == block_hash(data)
    assert found.facts["height"] == height
    assert found.facts["transactions"] == transactions
    assert found.facts["size"] == size == len(data)


def test_the_segwit_block_has_its_1341_transactions_with_witness(segwit_block: bytes) -> None:
    assert sum(bool(tx.witness) for tx in parse_block(segwit_block).transactions) == 1341


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_real_block_with_one_byte_changed_is_rejected(
    segwit_block: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, 100) | st.integers(0, len(segwit_block) - 1))
    changed = bytearray(segwit_block)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert MAIN.validate("blocks", bytes(changed)).verdict is Verdict.REJECT


def test_a_real_block_is_rejected_on_a_network_of_other_rules(segwit_block: bytes) -> None:
    # Only the limit differs between networks, so a main block passes on the easier ones:
    # what is refused is the reverse, an easy header offered as a main block.
    easy = segwit_block[:72] + (0x207FFFFF).to_bytes(4, "little") + segwit_block[76:]
    found = MAIN.validate("blocks", easy)
    assert found.verdict is Verdict.REJECT
    assert "easier than the limit" in found.reason
