"""``bruit peers`` and ``bruit scores set``, with a running node and without one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from click.testing import CliRunner, Result

from bruit import LocalError, Node
from bruit.node.ban_file import BanFile
from bruit.node.banning import BAN_FILE
from bruit.node.cli import main
from bruit.node.cli.peers import _span
from bruit.node.control import MAX_CLIENTS
from bruit.node.identity import create_key_file, new_key
from bruit.scoring.explanation import Explanation
from bruit.scoring.params import TopicScoreParams
from tests.net.loopback import TIMEOUT, TOPIC, config, until_connected

FAST = TopicScoreParams(first_message_deliveries_weight=8.0)
PEER = "12D3KooWE3quQCP6Xu7eXpcmmpwVS1KofWnPCBWYNHCswgaqwCso"

pytestmark = pytest.mark.sockets


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds key and configuration of a node, and is the working directory."""
    monkeypatch.chdir(tmp_path)
    create_key_file(tmp_path / "node.key", new_key())
    (tmp_path / "bruit.toml").write_text(
        f'[network]\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n[topics."{TOPIC}"]\n'
    )
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


async def bruit(*arguments: str) -> Result:
    """Run a command beside a node in this process."""
    return await trio.to_thread.run_sync(partial(run, *arguments))


async def printed(*arguments: str) -> str:
    result = await bruit(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """The node of the folder, and a peer of it."""
    with trio.fail_after(TIMEOUT):
        async with Node(folder / "bruit.toml") as node, Node(config(peers=node.addresses)) as peer:
            await until_connected(node, peer)
            yield node, peer


# Showing


async def test_peers_are_listed_for_people_and_for_programs(folder: Path) -> None:
    async with pair(folder) as (_, peer):
        header, row = (await printed("peers", "list")).splitlines()
        assert header.split()[:3] == ["peer", "score", "address"]
        assert row.split()[0] == peer.peer_id_text
        assert "/ip4/127.0.0.1/tcp/" in row
        [told] = json.loads(await printed("peers", "list", "--json"))
        assert told["peer"] == peer.peer_id_text
        assert told["topics"] == [TOPIC]


async def test_a_node_without_peers_says_so_beside_the_output(folder: Path) -> None:
    async with Node(folder / "bruit.toml"):
        for command, said in (("list", "Nobody is connected."), ("scores", "No peer is known.")):
            result = await bruit("peers", command)
            assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{said}\n")
            assert json.loads(await printed("peers", command, "--json")) == []


async def test_scores_are_listed_and_explained(folder: Path) -> None:
    async with pair(folder) as (node, peer):
        node.set_topic_score_params(TOPIC, FAST)
        messages = node.subscribe(TOPIC)
        await peer.publish(TOPIC, b"message")
        await anext(messages)
        name = peer.peer_id_text
        for arguments in ((), (name,)):
            header, row = (await printed("peers", "scores", *arguments)).splitlines()
            assert header.split()[:2] == ["peer", "score"]
            assert row.split()[0] == name
            assert float(row.split()[1]) == pytest.approx(node.scores()[peer.peer_id], abs=1)
            text = await printed("peers", "scores", *arguments, "--explain")
            assert text.startswith(f"{name}: score ")
            assert f"\n{TOPIC} " in text
            assert "P2 first deliveries" in text
            [brief] = json.loads(await printed("peers", "scores", *arguments, "--json"))
            assert set(brief) == {"peer", "score", "connected", "below"}


async def test_an_explanation_as_json_adds_up_to_the_score_exactly(folder: Path) -> None:
    async with pair(folder) as (_, peer):
        [said] = json.loads(
            await printed("peers", "scores", peer.peer_id_text, "--explain", "--json")
        )
        total = said["topics_capped"]
        for term in ("app_specific", "ip_colocation", "behaviour_penalty", "slow_peer"):
            assert said[term]["value"] * said[term]["weight"] == said[term]["contribution"]
            total += said[term]["contribution"]
        assert total == said["score"]
        assert set(said) == set(Explanation.__struct_fields__)


async def test_a_stranger_has_no_score(folder: Path) -> None:
    async with Node(folder / "bruit.toml"):
        result = await bruit("peers", "scores", PEER)
        assert result.exit_code == 1
        assert result.stderr == f"Error: {PEER} is neither connected nor remembered\n"


async def test_parameters_of_a_topic_are_changed_in_the_running_node(folder: Path) -> None:
    async with Node(folder / "bruit.toml") as node:
        changes = ("invalid_message_deliveries_weight=-20", "topic_weight=0.25")
        text = await printed("scores", "set", TOPIC, *changes)
        assert text == (
            f'[scoring.topics."{TOPIC}"]  # until the node stops\n'
            "invalid_message_deliveries_weight = -20.0\ntopic_weight = 0.25\n"
        )
        params = node.topic_score_params(TOPIC)
        assert params is not None
        assert (params.invalid_message_deliveries_weight, params.topic_weight) == (-20, 0.25)
        said = json.loads(await printed("scores", "set", TOPIC, "topic_weight=1", "--json"))
        assert said == msgspec.to_builtins(node.topic_score_params(TOPIC))


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("topic_weight=much",), 2, "'topic_weight=much' is not NAME=NUMBER"),
        (("topic_weight",), 2, "'topic_weight' is not NAME=NUMBER"),
        ((), 2, "Missing argument"),
        (("topic_wait=1",), 1, "topic_wait: no such parameter; did you mean topic_weight?"),
        (("topic_weight=-1",), 1, "topic_weight: -1.0 must be ≥ 0"),
    ],
)
async def test_parameters_that_cannot_be_are_refused(
    folder: Path, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    async with Node(folder / "bruit.toml") as node:
        before = node.topic_score_params(TOPIC)
        result = await bruit("scores", "set", TOPIC, *arguments)
        assert result.exit_code == code
        assert problem in result.stderr
        assert node.topic_score_params(TOPIC) == before


# Banning


async def test_a_running_node_is_told_of_bans_at_once(folder: Path) -> None:
    async with pair(folder) as (node, peer):
        name = peer.peer_id_text
        text = await printed("peers", "ban", name, "--for", "24h", "--reason", "spam [red]")
        assert text.startswith(f"{name} is banned until 2")
        [ban] = node.bans()
        assert ban.until == ban.since + 24 * 3600
        assert node.peers() == []
        header, row = (await printed("peers", "bans")).splitlines()
        assert header.split() == ["target", "since", "until", "reason"]
        assert row.split()[0] == name
        assert row.rstrip().endswith("spam [red]")
        told = json.loads(await printed("peers", "bans", "--json"))
        assert told == [msgspec.to_builtins(ban)]
        assert await printed("peers", "unban", name) == f"{name} is no longer banned\n"
        assert node.bans() == ()


def test_without_a_node_bans_are_changed_in_the_file(folder: Path) -> None:
    done = run("peers", "ban", "192.0.2.0/24", "--reason", "spam")
    assert done.stdout == "192.0.2.0/24 is banned until it is lifted\n"
    file = BanFile(folder / BAN_FILE)
    file.reload()
    assert [(ban.target, ban.until, ban.reason) for ban in file.bans] == [
        ("192.0.2.0/24", None, "spam")
    ]
    [told] = json.loads(run("peers", "bans", "--json").stdout)
    assert told["target"] == "192.0.2.0/24"
    assert run("peers", "bans").stdout.splitlines()[1].split()[-3:] == ["no", "end", "spam"]
    assert run("peers", "unban", "192.0.2.0/24").exit_code == 0
    assert run("peers", "bans").stderr == "Nobody is banned.\n"


def test_bans_that_are_over_are_not_listed(folder: Path) -> None:
    with BanFile(folder / BAN_FILE).edit() as bans:
        bans.ban("192.0.2.7", 60, "long ago", now=1_000_000.0)
        bans.ban("192.0.2.8", None, "for ever", now=1_000_000.0)
    [told] = json.loads(run("peers", "bans", "--json").stdout)
    assert told["target"] == "192.0.2.8"


def test_lifting_a_ban_that_is_none_fails_and_says_so(folder: Path) -> None:
    result = run("peers", "unban", PEER)
    assert result.exit_code == 1
    assert result.stderr == (f"Error: {PEER} is not banned: `bruit peers bans` lists who is\n")


async def test_with_a_node_it_fails_alike(folder: Path) -> None:
    async with Node(folder / "bruit.toml"):
        result = await bruit("peers", "unban", PEER)
        assert result.exit_code == 1
        assert "is not banned" in result.stderr
        result = await bruit("peers", "ban", "me", "--reason", "spam")
        assert result.exit_code == 1
        assert "'me' cannot be banned" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("24h", 86_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1.5h", 5400),
    ],
)
def test_a_time_has_a_unit(folder: Path, text: str, seconds: float) -> None:
    assert run("peers", "ban", PEER, "--for", text, "--reason", "spam").exit_code == 0
    [ban] = json.loads(run("peers", "bans", "--json").stdout)
    assert ban["until"] - ban["since"] == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["24", "h", "-1h", "1 h", "1y", "١h", "1h30m", ""])
def test_a_time_that_is_none_is_wrong_usage(folder: Path, text: str) -> None:
    result = run("peers", "ban", PEER, "--for", text, "--reason", "spam")
    assert result.exit_code == 2
    assert "is no time such as 90s, 15m, 24h, 7d or 2w" in result.stderr
    assert not (folder / BAN_FILE).exists()


def test_a_ban_for_no_time_at_all_is_refused(folder: Path) -> None:
    result = run("peers", "ban", PEER, "--for", "0s", "--reason", "spam")
    assert result.exit_code == 1
    assert "give a number above 0" in result.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (61, "1m 1s"), (3600, "1h"), (90_061, "1d 1h"), (-5, "0s")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert _span(seconds) == text


# Nobody to ask


@pytest.mark.parametrize("arguments", [("peers", "list"), ("peers", "scores"), ("scores", "set")])
def test_where_no_node_runs_there_is_nobody_to_ask(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    more = (TOPIC, "topic_weight=1") if "set" in arguments else ()
    result = run(*arguments, *more)
    assert result.exit_code == 1
    assert result.stderr == "Error: no node is running: nobody answers at bruit.sock\n"


def test_where_there_is_no_socket_there_is_nobody_to_ask(folder: Path) -> None:
    result = run("peers", "list", "--set", "control.socket=")
    assert result.exit_code == 1
    assert result.stderr == 'Error: the node has no control socket: control.socket is ""\n'


def test_without_a_configuration_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("peers", "list").exit_code == 2


async def test_a_second_node_of_the_folder_is_told_of_the_first(folder: Path) -> None:
    async with Node(folder / "bruit.toml"):
        with pytest.raises(LocalError, match=r"answers at .*bruit\.sock: stop it"):
            async with Node(folder / "bruit.toml"):
                pass
        assert json.loads(await printed("peers", "list", "--json")) == []


async def test_a_node_that_is_asked_by_too_many_says_so(folder: Path) -> None:
    async with Node(folder / "bruit.toml"):
        waiting = [await trio.open_unix_socket("bruit.sock") for _ in range(MAX_CLIENTS)]
        for stream in waiting:
            await stream.send_all(b'{"do": "bans"}\n')
            assert await stream.receive_some() == b'{"result":[]}\n'
        result = await bruit("peers", "list")
        assert result.exit_code == 1
        assert "clients are connected: try again later" in result.stderr
        for stream in waiting:
            await stream.aclose()


async def answering(folder: Path, words: bytes) -> Result:
    """What the command makes of a node that answers in its own words."""

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(words)

    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listener:
        await listener.bind(str(folder / "bruit.sock"))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answer, [trio.SocketListener(listener)])
            result = await bruit("peers", "list")
            nursery.cancel_scope.cancel()
    return result


@pytest.mark.parametrize("words", [b"", b'{"result": [', b"[]"])
async def test_a_node_that_hangs_up_half_way_is_an_error(folder: Path, words: bytes) -> None:
    result = await answering(folder, words)
    assert result.exit_code == 1
    assert result.stderr == "Error: the node at bruit.sock hung up before it had answered\n"
