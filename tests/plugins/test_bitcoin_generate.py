"""Generated blocks: valid, repeatable, of the size that was asked for."""

from random import Random

import pytest

from bruit.plugins.bitcoin import (
    TRANSACTIONS_PER_MEGABYTE,
    BitcoinConfig,
    BitcoinPlugin,
    block_hash,
    generate_block,
)
from bruit.plugins.bitcoin.block import parse_block
from bruit.topics.errors import LocalError
from bruit.topics.validation import Verdict

REGTEST = BitcoinPlugin(BitcoinConfig(network="regtest"))


@pytest.mark.parametrize("transactions", [1, 2, 3, 10, 253])
def test_a_generated_block_is_accepted_on_regtest(transactions: int) -> None:
    data = generate_block(Random(transactions), transactions, height=1234)
    found = REGTEST.validate("blocks", data)
    assert found.verdict is Verdict.ACCEPT, found.reason
    assert found.facts["transactions"] == transactions
    assert found.facts["height"] == 1234
    assert found.facts["hash"] == block_hash(data)
    assert found.facts["size"] == len(data)


def test_the_default_block_is_about_a_megabyte_of_mixed_transactions() -> None:
    data = generate_block(Random(5))
    assert REGTEST.validate("blocks", data).facts["transactions"] == TRANSACTIONS_PER_MEGABYTE
    assert 950_000 < len(data) < 1_050_000
    with_witness = sum(bool(tx.witness) for tx in parse_block(data).transactions)
    assert 0.5 < with_witness / TRANSACTIONS_PER_MEGABYTE < 0.9


def test_the_same_seed_gives_the_same_block_and_another_seed_another() -> None:
    first = generate_block(Random(1), 20)
    assert generate_block(Random(1), 20) == first
    assert generate_block(Random(2), 20) != first


def test_one_generator_gives_a_different_block_each_time() -> None:
    rng = Random(3)
    assert block_hash(generate_block(rng, 2)) != block_hash(generate_block(rng, 2))


@pytest.mark.parametrize("transactions", [0, -1, 20_000])
def test_a_block_that_cannot_be_is_the_callers_mistake(transactions: int) -> None:
    with pytest.raises(LocalError, match="ask for at"):
        generate_block(Random(0), transactions)


def test_the_most_transactions_that_an_error_names_do_fit() -> None:
    with pytest.raises(LocalError) as error:
        generate_block(Random(0), 20_000)
    most = int(str(error.value).rsplit(" ", 1)[1])
    assert REGTEST.validate("blocks", generate_block(Random(0), most)).verdict is Verdict.ACCEPT
