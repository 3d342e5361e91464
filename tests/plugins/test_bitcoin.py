"""Each rule for a block, broken once in a block that is otherwise valid.

The blocks are written by the small model below, which shares nothing with the
code under test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import msgspec
import pluggy
import pytest

from bruit.plugins.bitcoin import BitcoinConfig, BitcoinPlugin
from bruit.plugins.hookspecs import GROUP, HookSpecs
from bruit.topics.validation import Validation, Verdict

NULL = bytes(32) + b"\xff\xff\xff\xff"
REGTEST_BITS = 0x207FFFFF
MAX_MONEY = 2_100_000_000_000_000
OP_NOP, OP_PUSHDATA1, OP_CHECKSIG, OP_CHECKMULTISIG = b"\x61", b"\x4c", b"\xac", b"\xae"

# The first block of the main network, as every node carries it.
GENESIS = bytes.fromhex(
    "01000000" + "00" * 32 + "3ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a"
    "29ab5f49ffff001d1dac2b7c" + "01" + "01000000" + "01" + "00" * 32 + "ffffffff"
    "4d04ffff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e20"
    "6272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff01"
    "00f2052a0100000043"
    "4104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504"
    "e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000"
)


def dsha(data: bytes) -> bytes:
    return sha256(sha256(data).digest()).digest()


def count(value: int) -> bytes:
    if value < 0xFD:
        return bytes([value])
    if value <= 0xFFFF:
        return b"\xfd" + value.to_bytes(2, "little")
    return b"\xfe" + value.to_bytes(4, "little")


def counted(data: bytes) -> bytes:
    return count(len(data)) + data


def root(hashes: Sequence[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    pairs = [hashes[i : i + 2] for i in range(0, len(hashes), 2)]
    return root([dsha(pair[0] + pair[-1]) for pair in pairs])


@dataclass
class Tx:
    inputs: list[tuple[bytes, bytes]]  # outpoint, script
    outputs: list[tuple[int, bytes]]  # value, script
    witness: list[list[bytes]] | None = None  # one stack per input
    flag: int = 1

    def core(self) -> bytes:
        parts = [count(len(self.inputs))]
        parts += [outpoint + counted(script) + b"\xff" * 4 for outpoint, script in self.inputs]
        parts.append(count(len(self.outputs)))
        parts += [
            value.to_bytes(8, "little", signed=True) + counted(script)
            for value, script in self.outputs
        ]
        return b"".join(parts)

    def stripped(self) -> bytes:
        return b"\x02\0\0\0" + self.core() + bytes(4)

    def full(self) -> bytes:
        if self.witness is None:
            return self.stripped()
        stacks = b"".join(
            count(len(stack)) + b"".join(counted(item) for item in stack) for stack in self.witness
        )
        return b"\x02\0\0\0\0" + bytes([self.flag]) + self.core() + stacks + bytes(4)


def spend(n: int, **changes: object) -> Tx:
    """An ordinary transaction; a different ``n`` spends a different output."""
    tx = Tx([(bytes([n]) * 32 + bytes(4), b"\x01\x01")], [(1000, b"\x51")])
    return replace(tx, **changes)  # type: ignore[arg-type]


def segwit_spend(n: int) -> Tx:
    return spend(n, witness=[[b"signature", b"key"]])


@dataclass
class Model:
    """A regtest block to be spoilt. ``None`` stands for: what is right."""

    spends: list[Tx] = field(default_factory=lambda: [spend(1), segwit_spend(2), spend(3)])
    coinbase_script: bytes = b"\x02\x2c\x01\x00"  # BIP 34: height 300
    version: int = 0x20000000
    committed: bool = True
    reserved: list[bytes] | None = field(default_factory=lambda: [bytes(32)])
    bits: int = REGTEST_BITS
    transactions: list[Tx] | None = None
    count: bytes | None = None

    def coinbase(self) -> Tx:
        outputs = [(5_000_000_000, b"\x51")]
        if self.committed:
            value = self.reserved[0] if self.reserved else bytes(32)
            tree = root([bytes(32), *(dsha(tx.full()) for tx in self.spends)])
            outputs.append((0, b"\x6a\x24\xaa\x21\xa9\xed" + dsha(tree + value)))
        witness = [self.reserved] if self.committed and self.reserved is not None else None
        return Tx([(NULL, self.coinbase_script)], outputs, witness)

    def build(self, solve: bool = True) -> bytes:
        transactions = self.transactions
        if transactions is None:
            transactions = [self.coinbase(), *self.spends]
        tree = root([dsha(tx.stripped()) for tx in transactions]) if transactions else bytes(32)
        body = (self.count or count(len(transactions))) + b"".join(tx.full() for tx in transactions)
        return header(tree, self.version, self.bits, solve) + body


def header(tree: bytes, version: int, bits: int, solve: bool) -> bytes:
    start = version.to_bytes(4, "little", signed=True) + bytes(32) + tree
    start += (1_300_000_000).to_bytes(4, "little")
    for nonce in range(1000):
        made = start + bits.to_bytes(4, "little") + nonce.to_bytes(4, "little")
        if not solve or dsha(made)[31] < 0x7F:
            return made
    raise AssertionError("no nonce found")


def judge(data: bytes, network: str = "regtest") -> Validation:
    plugin = BitcoinPlugin(msgspec.convert({"network": network}, BitcoinConfig))
    return plugin.validate("blocks", data)


def assert_rejected(data: bytes, reason: str, network: str = "regtest") -> None:
    found = judge(data, network)
    assert found.verdict is Verdict.REJECT
    assert reason in found.reason, found.reason
    assert found.facts == {}


def with_spends(*spends: Tx) -> bytes:
    return Model(spends=list(spends)).build()


# -- what is accepted


def test_the_genesis_block_is_accepted_on_main_with_its_facts() -> None:
    found = judge(GENESIS, "main")
    assert found.verdict is Verdict.ACCEPT
    assert found.reason == ""
    assert found.facts == {
        "hash": "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f",
        "transactions": 1,  # and no height: version 1 says nothing of it
        "size": 285,
        "weight": 1140,
        "timestamp": 1231006505,
    }


def test_a_segwit_block_is_accepted_with_the_height_of_its_coinbase() -> None:
    data = Model().build()
    found = judge(data)
    assert found.verdict is Verdict.ACCEPT
    # One stack of two items (1 + 10 + 4) and one of 32 bytes (2 + 32), two marked transactions.
    stripped = len(data) - (1 + 10 + 4) - (2 + 32) - 2 * 2
    assert found.facts == {
        "hash": dsha(data[:80])[::-1].hex(),
        "height": 300,
        "transactions": 4,
        "size": len(data),
        "weight": 3 * stripped + len(data),
        "timestamp": 1_300_000_000,
    }


def test_a_block_without_witnesses_needs_no_commitment() -> None:
    data = Model(spends=[spend(1)], committed=False).build()
    assert judge(data).verdict is Verdict.ACCEPT


def test_a_coinbase_that_pushes_no_height_is_accepted_without_one() -> None:
    found = judge(Model(coinbase_script=b"\x05hello").build())
    assert found.verdict is Verdict.ACCEPT
    assert "height" not in found.facts


@pytest.mark.parametrize(("version", "height"), [(-1, None), (1, None), (2, 300)])
def test_a_height_is_read_from_version_2_on(version: int, height: int | None) -> None:
    found = judge(Model(version=version).build())
    assert found.verdict is Verdict.ACCEPT
    assert found.facts.get("height") == height


def test_the_last_of_two_commitments_counts() -> None:
    model = Model()
    coinbase = model.coinbase()
    coinbase.outputs.insert(1, (0, b"\x6a\x24\xaa\x21\xa9\xed" + b"\x77" * 32))
    assert judge(replace(model, transactions=[coinbase, *model.spends]).build()).verdict is (
        Verdict.ACCEPT
    )
    coinbase.outputs[1:] = coinbase.outputs[:0:-1]
    assert_rejected(
        replace(model, transactions=[coinbase, *model.spends]).build(),
        "witness commitment mismatch",
    )


# -- the form of the bytes


def test_a_block_cut_off_anywhere_is_rejected() -> None:
    data = Model().build()
    for end in range(len(data)):
        found = judge(data[:end])
        assert found.verdict is Verdict.REJECT
        assert "truncated" in found.reason, (end, found.reason)


def test_a_byte_after_the_block_is_rejected() -> None:
    assert_rejected(Model().build() + b"\0", "1 bytes left over")


def test_a_count_in_more_bytes_than_it_needs_is_rejected() -> None:
    for long_form in (b"\xfd\x04\0", b"\xfe\x04\0\0\0", b"\xff\x04" + bytes(7)):
        assert_rejected(Model(count=long_form).build(), "not in its shortest form")


def test_a_count_of_more_than_32_mib_is_rejected() -> None:
    assert_rejected(Model(count=b"\xfe\x01\0\0\x02").build(), "count 33554433")


def test_a_block_without_transactions_is_rejected() -> None:
    assert_rejected(Model(transactions=[]).build(), "no transactions")


def test_a_transaction_without_inputs_is_rejected() -> None:
    # Without a witness the count of zero reads as the marker, zero outputs as the flag.
    assert_rejected(with_spends(Tx([], [], witness=[])), "transaction 1: no inputs")
    assert_rejected(with_spends(Tx([], [])), "transaction 1: no inputs")


def test_a_transaction_without_outputs_is_rejected() -> None:
    assert_rejected(with_spends(spend(1, outputs=[])), "transaction 1: no outputs")


@pytest.mark.parametrize("flag", [2, 3, 0x81, 0xFF])
def test_an_unknown_segwit_flag_is_rejected(flag: int) -> None:
    tx = spend(1, witness=[[b"item"]], flag=flag)
    assert_rejected(with_spends(tx), f"transaction 1: unknown flag {flag:#04x}")


def test_a_witness_flag_over_empty_stacks_is_rejected() -> None:
    two_inputs = [(bytes(36), b""), (b"\x01" * 36, b"")]
    tx = spend(1, inputs=two_inputs, witness=[[], []])
    assert_rejected(with_spends(tx), "transaction 1: superfluous witness")


def test_one_empty_stack_beside_a_full_one_is_accepted() -> None:
    two_inputs = [(bytes(36), b""), (b"\x01" * 36, b"")]
    tx = spend(1, inputs=two_inputs, witness=[[], [b""]])
    assert judge(with_spends(tx)).verdict is Verdict.ACCEPT


# -- proof of work


def test_a_hash_over_its_target_is_rejected() -> None:
    data = Model(bits=0x1D00FFFF).build(solve=False)
    assert_rejected(data, "proof of work not met")


@pytest.mark.parametrize("network", ["main", "test", "signet"])
def test_bits_easier_than_the_network_allows_are_rejected(network: str) -> None:
    assert_rejected(Model().build(), f"easier than the limit of network {network}", network)


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        (0x00000000, "target of zero"),
        (0x1D000000, "target of zero"),
        (0x01003456, "target of zero"),
        (0x04923456, "negative target"),
        (0xFF123456, "over 256 bits"),
        (0x217FFFFF, "over 256 bits"),
        (0x2100FFFF, "easier than the limit"),
    ],
)
def test_bits_that_are_no_target_are_rejected(bits: int, reason: str) -> None:
    assert_rejected(Model(bits=bits).build(solve=False), reason)


# -- sizes


def test_more_than_four_million_bytes_are_rejected_unread() -> None:
    assert_rejected(bytes(4_000_001), "size 4000001 is over 4000000 bytes")
    assert_rejected(bytes(4_000_000), "target of zero")  # read, and found wrong


def test_a_stripped_size_over_one_million_is_rejected() -> None:
    base = len(with_spends(spend(1, outputs=[(0, bytes(70_000))]))) - 70_000
    base -= 36  # what the coinbase's marker and witness take
    fits = spend(1, outputs=[(0, bytes(1_000_000 - base))])
    over = spend(1, outputs=[(0, bytes(1_000_001 - base))])
    assert_rejected(with_spends(over), "stripped size 1000001 is over 1000000")
    # At one million the witness of the coinbase alone takes it over the weight.
    assert_rejected(with_spends(fits), "weight 4000036 is over 4000000")


def test_a_weight_of_four_million_is_accepted_and_one_more_rejected() -> None:
    def weighing(filler: int) -> bytes:
        return with_spends(spend(1, witness=[[bytes(filler)]]))

    spare = 4_000_000 - int(judge(weighing(3_000_000)).facts["weight"])
    full = judge(weighing(3_000_000 + spare))
    assert full.verdict is Verdict.ACCEPT
    assert full.facts["weight"] == 4_000_000
    assert_rejected(weighing(3_000_001 + spare), "weight 4000001 is over 4000000")


def test_the_limit_of_signature_operations_counts_opcodes_and_not_pushed_data() -> None:
    # 20,000 is a quarter of MAX_BLOCK_SIGOPS_COST; a multisig counts 20.
    pushed = OP_PUSHDATA1 + b"\x40" + OP_CHECKSIG * 0x40 + b"\x03" + OP_CHECKSIG * 3
    full = pushed + OP_CHECKMULTISIG * 999 + OP_CHECKSIG * 20 + OP_NOP
    assert judge(with_spends(spend(1, outputs=[(0, full)]))).verdict is Verdict.ACCEPT
    over = spend(1, outputs=[(0, full), (0, OP_CHECKSIG)])
    assert_rejected(with_spends(over), "more than 20000 legacy signature operations")
    elsewhere = spend(2, inputs=[(b"\x02" * 36, OP_CHECKSIG)])
    assert_rejected(
        with_spends(spend(1, outputs=[(0, full)]), elsewhere),
        "more than 20000 legacy signature operations",
    )


# -- Merkle root and witness commitment


def test_a_block_with_a_flipped_byte_is_rejected_by_its_merkle_root() -> None:
    data = bytearray(Model().build())
    data[data.index(b"\xe8\x03" + bytes(6))] ^= 1  # the value 1000 of the first spend
    assert_rejected(bytes(data), "merkle root mismatch: the header says ")


def test_a_repeated_tail_that_keeps_the_merkle_root_is_rejected() -> None:
    model = Model(spends=[spend(1), spend(2)])
    honest = [model.coinbase(), *model.spends]
    repeated = [*honest, honest[-1]]
    assert root([dsha(tx.stripped()) for tx in honest]) == root(
        [dsha(tx.stripped()) for tx in repeated]
    )
    assert_rejected(replace(model, transactions=repeated).build(), "mutated merkle tree")


def test_a_repetition_of_whole_pairs_is_rejected() -> None:
    model = Model(spends=[spend(n) for n in range(1, 6)])
    honest = [model.coinbase(), *model.spends]
    repeated = [*honest, *honest[-2:]]
    assert root([dsha(tx.stripped()) for tx in honest]) == root(
        [dsha(tx.stripped()) for tx in repeated]
    )
    assert_rejected(replace(model, transactions=repeated).build(), "mutated merkle tree")


def test_witness_data_without_a_commitment_is_rejected() -> None:
    assert_rejected(
        Model(committed=False).build(),
        "witness commitment missing: transaction 2 has unexpected witness data",
    )


def test_a_changed_witness_is_rejected_by_the_commitment() -> None:
    data = Model().build()
    assert_rejected(data.replace(b"signature", b"Signature"), "witness commitment mismatch")


def test_a_changed_reserved_value_is_rejected_by_the_commitment() -> None:
    data = Model(reserved=[b"\x42" * 32]).build()
    assert judge(data).verdict is Verdict.ACCEPT
    assert_rejected(data.replace(b"\x42" * 32, b"\x43" * 32), "witness commitment mismatch")


@pytest.mark.parametrize(
    "reserved", [None, [bytes(31)], [bytes(33)], [bytes(32), b""], [b"", bytes(32)]]
)
def test_a_commitment_without_one_reserved_value_of_32_bytes_is_rejected(
    reserved: list[bytes] | None,
) -> None:
    assert_rejected(Model(reserved=reserved).build(), "without its reserved value")


def test_a_block_sent_without_its_witnesses_is_rejected() -> None:
    model = Model()
    stripped = [replace(tx, witness=None) for tx in (model.coinbase(), *model.spends)]
    assert_rejected(replace(model, transactions=stripped).build(), "without its reserved value")


# -- coinbase


def test_a_block_that_does_not_begin_with_a_coinbase_is_rejected() -> None:
    assert_rejected(
        Model(transactions=[spend(1)]).build(), "the first transaction is not a coinbase"
    )


def test_a_second_coinbase_is_rejected() -> None:
    second = Tx([(NULL, b"\x01\x02")], [(1, b"")])
    assert_rejected(with_spends(spend(1), second), "more than one coinbase: transaction 2")


@pytest.mark.parametrize("length", [2, 100])
def test_a_coinbase_script_of_2_to_100_bytes_is_accepted(length: int) -> None:
    assert judge(Model(coinbase_script=OP_NOP * length).build()).verdict is Verdict.ACCEPT


@pytest.mark.parametrize("length", [0, 1, 101])
def test_a_coinbase_script_of_another_size_is_rejected(length: int) -> None:
    assert_rejected(
        Model(coinbase_script=OP_NOP * length).build(), f"coinbase script of {length} bytes"
    )


# -- transactions by themselves


@pytest.mark.parametrize("value", [-1, -(2**63), MAX_MONEY + 1, 2**63 - 1])
def test_an_output_value_out_of_range_is_rejected(value: int) -> None:
    tx = spend(1, outputs=[(0, b""), (value, b"")])
    assert_rejected(with_spends(tx), f"transaction 1: output 1 has value {value}")


def test_outputs_may_sum_to_all_money_and_not_to_more() -> None:
    fits = spend(1, outputs=[(MAX_MONEY - 1, b""), (1, b"")])
    assert judge(with_spends(fits)).verdict is Verdict.ACCEPT
    over = spend(1, outputs=[(MAX_MONEY, b""), (1, b"")])
    assert_rejected(with_spends(over), "transaction 1: outputs sum to 2100000000000001")


def test_a_transaction_that_spends_an_output_twice_is_rejected() -> None:
    tx = spend(1, inputs=[(b"\x05" * 36, b""), (b"\x05" * 36, b"\x01\x01")])
    assert_rejected(with_spends(tx), "transaction 1: spends one output twice")


def test_a_null_input_beside_others_is_rejected() -> None:
    tx = spend(1, inputs=[(b"\x05" * 36, b""), (NULL, b"")])
    assert_rejected(with_spends(tx), "transaction 1: spends the null output")


# -- transactions of one block among themselves


def spending(tx: Tx, output: int = 0) -> Tx:
    return Tx([(dsha(tx.stripped()) + output.to_bytes(4, "little"), b"")], [(1, b"")])


def test_an_output_made_in_the_block_may_be_spent_later_in_it() -> None:
    assert judge(with_spends(spend(1), spending(spend(1)))).verdict is Verdict.ACCEPT


def test_an_output_spent_by_two_transactions_is_rejected() -> None:
    twice = spend(1, outputs=[(5, b"")])
    assert_rejected(with_spends(spend(1), twice), "transaction 2: spends an output already spent")


def test_an_output_spent_before_it_is_made_is_rejected() -> None:
    assert_rejected(
        with_spends(spending(spend(1)), spend(1)), "transaction 1: spends transaction 2, which"
    )


def test_an_output_that_its_transaction_does_not_have_is_rejected() -> None:
    assert_rejected(
        with_spends(spend(1), spending(spend(1), output=1)),
        "transaction 2: spends output 1 of transaction 1, which has no such output",
    )


def test_a_spend_of_the_coinbase_of_the_same_block_is_rejected() -> None:
    coinbase = Model(spends=[], committed=False).coinbase()
    data = Model(transactions=[coinbase, spending(coinbase)]).build()
    assert_rejected(data, "transaction 1: spends the coinbase of its own block")


# -- the plugin as a plugin


def test_the_plugin_fits_the_hook_specifications() -> None:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(HookSpecs)
    manager.register(BitcoinPlugin(BitcoinConfig(network="regtest")))
    manager.check_pending()
    assert manager.hook.validate(topic="blocks", data=b"").verdict is Verdict.REJECT


@pytest.mark.parametrize("config", [{"network": "moon"}, {"netwrok": "main"}])
def test_a_wrong_configuration_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(config, BitcoinPlugin.Config)
