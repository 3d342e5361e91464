"""The action log: readable lines, and the same ones for the same seed."""

import hashlib
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import msgspec

from bruit.node.gossip.actions import Lane, SendControl, SendMessage, SetTimer
from bruit.node.gossip.events import Timer
from bruit.node.sim import ActionLog, SimNetwork
from tests.sim import churn


def test_a_line_names_time_node_and_action_and_shortens_what_is_long() -> None:
    sink = BytesIO()
    net = SimNetwork(seed=1, action_log=ActionLog(sink))
    alice, bob = net.add_peer_stub("alice"), net.add_peer_stub("bob")
    alice.connect(bob)
    net.run_until(1.5)
    zeros = bytes(1024)
    net.perform(alice, [SendMessage((bob.peer_id,), b"\x01\x02", zeros, Lane.OWN)])
    net.perform(bob, [SendControl(alice.peer_id, b"\xff"), SetTimer(Timer("beat", 3), 2.5)])
    assert hashlib.sha256(zeros).hexdigest().startswith("5f70bf18a0860070")
    assert [msgspec.json.decode(line) for line in sink.getvalue().splitlines()] == [
        {
            "time": 1.5,
            "node": "alice",
            "action": "SendMessage",
            "peers": ["bob"],
            "message_id": "0102",
            "frame": "1024:5f70bf18a0860070",
            "lane": "OWN",
        },
        {
            "time": 1.5,
            "node": "bob",
            "action": "SendControl",
            "peer": "alice",
            "frame": "ff",
        },
        {
            "time": 1.5,
            "node": "bob",
            "action": "SetTimer",
            "timer": {"name": "beat", "epoch": 3},
            "at": 2.5,
        },
    ]


def test_the_digest_is_the_sha_256_of_the_lines_whether_or_not_they_are_kept() -> None:
    sink = BytesIO()
    digest = churn.run(7, sink)
    assert digest == hashlib.sha256(sink.getvalue()).hexdigest()
    assert digest == churn.run(7)


def test_the_scenario_meets_every_kind_of_action() -> None:
    sink = BytesIO()
    churn.run(7, sink)
    lines = [msgspec.json.decode(line) for line in sink.getvalue().splitlines()]
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert {line["action"] for line in lines} >= {
        "CancelQueued",
        "CheckSignature",
        "Connect",
        "Deliver",
        "Grafted",
        "Pruned",
        "Published",
        "SendControl",
        "SendMessage",
        "SetTimer",
        "Validate",
    }


def test_another_seed_gives_another_log() -> None:
    assert churn.run(7) != churn.run(8)


def test_the_log_does_not_depend_on_the_seed_of_pythons_hashes() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim.churn", "7"],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests == [churn.run(7)] * 2
