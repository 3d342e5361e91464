"""``bruit relay`` without a relay at work: audits, keys, files of others, a made-up node."""

import json
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import msgspec
import pytest
import structlog.testing
import trio
import trio.testing
from click.testing import CliRunner, Result

from bruit import Node
from bruit.node.audit import Audit
from bruit.node.cli import main
from bruit.node.cli.relay import relay
from bruit.node.cli.relay_stake import _covered, _InUse
from bruit.node.cli.watch import Watch
from bruit.node.config import NodeConfig, RelayConfig
from bruit.node.control import control_socket
from bruit.node.identity import create_key_file, new_key
from bruit.node.relay.evidence import encode_evidence
from bruit.node.relay.proof import encode_proof
from bruit.node.relay.signing import address_of_secret
from bruit.node.relay_status import ClusterStatus, RelayStatus, StakeStatus
from bruit.node.reports import Disputed
from bruit.node.statistics import PeerTraffic
from bruit.plugins.marketplace_file import to_toml
from bruit.topics.keys import KeyType, PrivateKey
from tests.net.loopback import config
from tests.node.relay_records import (
    AT,
    MARKETPLACE,
    MEMBER,
    MESSAGE,
    NOW,
    OTHER,
    PRODUCER,
    STAKE,
    broadcasted,
    delivered,
    dispute,
    invalid_block,
    stake_attached,
)

Bruit = Callable[..., Result]

CONFIG = """
[relay]
roles = ["producer"]

[plugins.marketplace-file]
file = "marketplace.toml"

[relay.channels.test]
id = 1
topic = "/marlin/test"
min_chunks = 2
num_chunks = 3
max_block = 1000
"""
ID = f"0x{address_of_secret(PRODUCER).hex()}"
PATIENCE = 30.0  # seconds; it takes a fraction of one


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A producer's files; the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bruit.toml").write_text(CONFIG)
    (tmp_path / "marketplace.toml").write_text(to_toml(MARKETPLACE))
    create_key_file(tmp_path / "relay.key", PrivateKey(KeyType.SECP256K1, PRODUCER))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["relay", *arguments])


def printed(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def audit(folder: Path) -> Audit:
    return Audit.open(RelayConfig(), folder)


# Keys


def test_a_key_is_made_shown_and_never_overwritten(folder: Path) -> None:
    made = printed("key", "new", "bob.key").strip()
    assert made.startswith("0x")
    assert len(bytes.fromhex(made[2:])) == 20
    assert stat.S_IMODE((folder / "bob.key").stat().st_mode) == 0o600
    assert printed("key", "show", "bob.key").strip() == made
    again = run("key", "new", "bob.key")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "never overwritten" in again.stderr


def test_the_key_shown_unless_named_is_the_nodes(folder: Path) -> None:
    assert printed("key", "show").strip() == ID
    # The address that belongs to the private key 1, as every Ethereum tool has it
    assert ID == "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"


def test_a_key_that_cannot_sign_for_a_relay_is_refused(folder: Path) -> None:
    create_key_file(folder / "node.key", new_key())
    result = run("key", "show", "node.key")
    assert result.exit_code == 1
    assert "an ed25519 key, but a relay signs with secp256k1" in result.stderr


def test_the_check_of_a_configuration_looks_at_the_relays_key_and_plugins(folder: Path) -> None:
    def check(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["config", "check", *arguments])

    create_key_file(folder / "node.key", new_key())
    assert check().exit_code == 0, check().output
    for setting, value in (("key_file", "none.key"), ("selector", "none"), ("marketplace", "zstd")):
        result = check("--set", f"relay.{setting}={value}")
        assert result.exit_code == 2
        assert f"relay.{setting}: " in result.stderr


# The audit


def test_broadcasts_are_listed_with_their_proofs(folder: Path) -> None:
    with audit(folder) as opened:
        opened.keep(broadcasted(2), NOW)
        file = opened.keep(broadcasted(3), NOW + 1)
    assert file is not None
    header, newest, _ = printed("proofs").splitlines()
    assert header.split() == ["attested", "channel", "message", "acknowledged", "file"]
    assert "3 of 3" in newest
    assert newest.strip().endswith(f"proofs/{file.name}")
    row, _ = json.loads(printed("proofs", "--json"))
    assert row == {
        "kept_at": NOW + 1,
        "timestamp": AT,
        "channel": 1,
        "message_id": MESSAGE.hex(),
        "producer": ID,
        "chunks": 3,
        "acknowledged": 3,
        "proof_file": f"proofs/{file.name}",
    }


def test_proofs_are_verified_and_one_that_does_not_hold_fails_the_command(folder: Path) -> None:
    with audit(folder) as opened:
        gone = opened.keep(broadcasted(1), NOW)
        opened.keep(broadcasted(2), NOW + 1)
    assert gone is not None
    gone.unlink()
    words = [line.split()[6] for line in printed("proofs", "--verify").splitlines()[1:]]
    assert "holds" in printed("proofs", "--verify")
    assert "gone" in printed("proofs", "--verify"), words
    with audit(folder) as opened:
        opened.keep(broadcasted(3, by=OTHER), NOW + 2)  # of no member
    assert run("proofs", "--verify").exit_code == 0
    asked = ("proofs", "--verify", "--marketplace", "marketplace.toml")
    result = run(*asked, "--json")
    assert result.exit_code == 1
    assert [row["holds"] for row in json.loads(result.stdout)] == [False, True, None]
    assert run(*asked).exit_code == 1


def test_disputes_are_listed_with_what_they_are_about(folder: Path) -> None:
    with audit(folder) as opened:
        file = opened.keep(dispute(reason="\x1b[2Jsaid by a peer"), NOW)
    assert file is not None
    lines = printed("disputes").splitlines()
    assert lines == [
        f"2027-01-15 08:00:00 UTC  overlapping-stake, message {MESSAGE.hex()}",
        "  ?[2Jsaid by a peer",
        f"  producer {ID}",
        f"  disputes/{file.name}",
    ]
    [row] = json.loads(printed("disputes", "--json"))
    assert row["producers"] == [ID]
    assert row["evidence_file"] == f"disputes/{file.name}"


def test_blocks_are_listed_with_the_clusters_that_brought_them(folder: Path) -> None:
    with audit(folder) as opened:
        opened.keep(delivered(), NOW)
    _, line = printed("blocks").splitlines()
    assert "1000 ms" in line
    assert "2 by 7, 1 by 9" in line
    [row] = json.loads(printed("blocks", "--json"))
    assert row["clusters"] == {"7": 2, "9": 1}
    assert row["size"] == 200


@pytest.mark.parametrize("what", ["proofs", "disputes", "blocks"])
def test_only_the_message_asked_for_is_listed(folder: Path, what: str) -> None:
    with audit(folder) as opened:
        for report in (broadcasted(), dispute(), delivered()):
            opened.keep(report, NOW)
    assert len(json.loads(printed(what, "--message", MESSAGE.hex(), "--json"))) == 1
    assert len(json.loads(printed(what, "--message", f"0x{MESSAGE.hex()}", "--json"))) == 1
    assert json.loads(printed(what, "--message", "00000000", "--json")) == []
    other = run(what, "--message", "00000000")
    assert (other.exit_code, other.stdout) == (0, "")
    assert "in the audit" in other.stderr
    wrong = run(what, "--message", "12")
    assert wrong.exit_code == 2
    assert "8 hexadecimal digits" in wrong.stderr


@pytest.mark.parametrize("what", ["proofs", "disputes", "blocks", "stake"])
def test_without_an_audit_it_is_said_why_there_is_none(folder: Path, what: str) -> None:
    result = run(what)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "audit file relay.sqlite does not exist" in result.stderr
    result = run(what, "--set", 'relay.audit=""')
    assert 'the node keeps no audit: relay.audit is ""' in result.stderr


# Stake


def test_stake_is_told_by_audit_and_marketplace_while_no_node_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with audit(folder) as opened:
        opened.keep(stake_attached(0, 1000, AT - 100), NOW)
        opened.keep(stake_attached(500, 2500, AT - 10), NOW)
        opened.keep(stake_attached(2000, 3000), NOW)
    monkeypatch.setattr("time.time", lambda: NOW)
    assert printed("stake").splitlines() == [
        f"{STAKE:,} tokens, 2,500 in use, 97,500 free",
        "tokens 500 to 2,499: free again 2027-01-15 08:00:50 UTC",
        "tokens 2,000 to 2,999: free again 2027-01-15 08:01:00 UTC",
    ]
    told = json.loads(printed("stake", "--json"))
    assert (told["stake"], told["used"], told["free"]) == (STAKE, 2500, 97_500)
    assert told["in_use"][1] == {"start": 2000, "end": 3000, "free_at": AT + 60}


def test_stake_of_who_has_none_is_an_error(folder: Path) -> None:
    (folder / "marketplace.toml").write_text("")
    with audit(folder):
        pass
    assert "no producer in the marketplace" in run("stake").stderr
    assert "no producer" in run("stake", "--set", 'relay.roles=["consumer"]').stderr


@pytest.mark.parametrize(
    ("ranges", "covered"),
    [
        ([], 0),
        ([(0, 10)], 10),
        ([(0, 10), (5, 7), (9, 20)], 20),
        ([(90, 110)], 10),
        ([(200, 9)], 0),
    ],
)
def test_stake_counts_once_and_not_beyond_its_end(
    ranges: list[tuple[int, int]], covered: int
) -> None:
    assert _covered([_InUse(*each, 0) for each in ranges], 100) == covered


# Files of others


@pytest.fixture
def files(folder: Path) -> Path:
    for name, report in {
        "good": dispute(),
        "forged": dispute(second_offset=5000),
        "block": invalid_block(),
        "judged": invalid_block("zstd"),
    }.items():
        (folder / f"{name}.json").write_bytes(encode_evidence(report.evidence))
    for name, proof in {"proof": broadcasted(2), "false": broadcasted(3, by=OTHER)}.items():
        (folder / f"{name}.json").write_bytes(encode_proof(proof.proof))
    return folder


def test_evidence_that_holds_says_what_it_shows(files: Path) -> None:
    lines = printed("verify-evidence", "good.json").splitlines()
    assert lines[:2] == ["it holds", "kind: overlapping-stake"]
    assert any("put one stake behind two attestations" in line for line in lines)
    told = json.loads(printed("verify-evidence", "good.json", "--json"))
    assert told["holds"] is True
    assert told["kind"] == "overlapping-stake"
    assert len(told["statements"]) == len(lines) - 3
    assert "the evidence's own" in printed("verify-evidence", "good.json")
    agreed = printed("verify-evidence", "good.json", "-c", "bruit.toml")
    assert "the evidence's own" not in agreed


def test_evidence_that_does_not_hold_says_why_not(files: Path) -> None:
    result = run("verify-evidence", "forged.json", "--marketplace", "marketplace.toml")
    assert result.exit_code == 1
    assert result.stdout.startswith("it does not hold\n")
    assert "does not overlap" in result.stdout
    result = run(
        "verify-evidence", "good.json", "-c", "bruit.toml", "--set", "relay.params.stake_per_byte=2"
    )
    assert result.exit_code == 1
    assert "the network has not agreed on" in result.stdout


def test_an_invalid_block_is_judged_only_where_it_is_known_how_it_was_packed(files: Path) -> None:
    unknown = run("verify-evidence", "block.json")
    assert unknown.exit_code == 1
    assert "How the channel packs blocks is not known: give -c or --codec." in unknown.stdout
    for known in (["--codec", "none"], ["-c", "bruit.toml"]):
        assert "not the one that was attested" in printed("verify-evidence", "block.json", *known)
    packed = printed("verify-evidence", "block.json", "--codec", "zstd")
    assert "The post-processing refuses them" in packed


def test_a_judge_that_is_not_there_is_named(files: Path) -> None:
    result = run("verify-evidence", "judged.json", "--codec", "none")
    assert "There is no judge: " in result.stdout
    missing = run("verify-evidence", "block.json", "--codec", "nothing")
    assert missing.exit_code == 2
    assert "nothing" in missing.stderr


def test_a_proof_says_what_it_shows(files: Path) -> None:
    assert "2 of 3 chunks carry an acknowledgement" in printed("verify-proof", "proof.json")
    told = json.loads(
        printed("verify-proof", "proof.json", "--marketplace", "marketplace.toml", "--json")
    )
    assert told["holds"] is True
    result = run("verify-proof", "false.json", "--marketplace", "marketplace.toml")
    assert result.exit_code == 1
    assert "not signed by a member of cluster 7" in result.stdout


@pytest.mark.parametrize("command", ["verify-evidence", "verify-proof"])
def test_files_that_cannot_be_used_end_with_another_code(files: Path, command: str) -> None:
    wrong = "proof.json" if command == "verify-evidence" else "good.json"
    for arguments in (
        ["none.json"],
        [str(files)],
        ["bruit.toml"],
        [wrong],
        ["good.json" if command == "verify-evidence" else "proof.json", "--marketplace", "none"],
    ):
        result = run(command, *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments


# A running node


STATUS = RelayStatus(
    roles=("producer", "member"),
    address=address_of_secret(MEMBER).hex(),
    cluster=7,
    producers=1,
    clusters=(
        ClusterStatus(7, 1, 3, 12, 0.25, 0.5, 0.75, 1),
        ClusterStatus(9, 0, 0, 0),
    ),
    stake=StakeStatus(STAKE, 600),
    broadcasts=4,
    broadcasting=1,
    witnessed=5,
    published=6,
    unpublished=0,
    delivered=0,
    blocks_lost=0,
    disputes={"replay": 2},
    dropped={"malformed frame": 3},
    waiting=0,
    traffic=PeerTraffic(0, 0, 0, 0, 0),
    stream_faults={},
    unaudited=8,
)


async def asked(folder: Path, *arguments: str) -> Result:
    """Run a command beside a node that answers every request with STATUS."""

    async def answer(line: bytes) -> object:
        assert json.loads(line) == {"do": "relay.status"}
        return STATUS

    with trio.fail_after(PATIENCE):
        async with control_socket(folder / "bruit.sock", answer):
            return await trio.to_thread.run_sync(partial(run, *arguments))


async def test_the_status_of_a_node_is_shown(folder: Path) -> None:
    result = await asked(folder, "status")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["roles", "producer,", "member", "of", "cluster", "7"] in lines
    assert "stake      100,000 tokens, 600 in use, 99,400 free" in result.stdout
    assert "under way  1 broadcasts" in result.stdout
    assert "disputed   2: replay" in result.stdout
    assert "dropped    3: malformed frame" in result.stdout
    assert "faults     8: reports without room in the audit" in result.stdout
    assert ["7", "3", "1", "12", "250", "ms", "50", "%", "75", "%", "1"] in lines
    assert ["9", "0", "0", "0", "–", "–", "–", "0"] in lines
    told = json.loads((await asked(folder, "status", "--json")).stdout)
    assert told == json.loads(msgspec.json.encode(STATUS))


async def test_a_running_node_says_how_much_stake_there_is(folder: Path) -> None:
    (folder / "marketplace.toml").write_text("")  # is not looked at
    with audit(folder):
        pass
    result = await asked(folder, "stake")
    assert result.stdout == "100,000 tokens, 0 in use, 100,000 free\n"


def test_without_a_node_its_status_is_not_known(folder: Path) -> None:
    result = run("status")
    assert result.exit_code == 1
    assert "no node is running" in result.stderr


# Broadcasts


def test_a_broadcast_needs_a_producer_and_its_block(folder: Path) -> None:
    (folder / "block.raw").write_bytes(bytes(100))
    for arguments, code, said in (
        (["test", "none.raw"], 2, "none.raw"),
        (["test", "block.raw", "--set", 'relay.roles=["member"]'], 1, "the node is no producer"),
        (["test", "block.raw"], 2, "identity.key_file"),
    ):
        result = run("broadcast", *arguments)
        assert result.exit_code == code, result.output
        assert said in result.stderr


def test_every_relay_command_is_run_by_a_test_here_but_the_demo() -> None:
    here = Path(__file__).read_text()
    assert isinstance(relay, click.Group)
    commands = [name for name in relay.commands if name != "demo"]  # tests/demo runs it
    assert all(f'"{name}"' in here for name in commands)


@pytest.mark.sockets
async def test_a_dispute_is_a_record_of_the_log() -> None:
    with trio.fail_after(PATIENCE), structlog.testing.capture_logs() as records:
        async with Node(config()) as node, trio.open_nursery() as nursery:
            nursery.start_soon(Watch(NodeConfig()).work, node)
            await trio.testing.wait_all_tasks_blocked()
            node._feed.tell(Disputed(dispute().evidence, Path("disputes/x.json")))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    [record] = [each for each in records if each["event"] == "disputed"]
    assert record["log_level"] == "warning"
    assert record["kind"] == "overlapping-stake"
    assert record["message_id"] == MESSAGE.hex()
    assert record["producers"] == [ID]
    assert record["file"] == "disputes/x.json"
