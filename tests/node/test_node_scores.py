"""What an embedding program sees of scores, and what it can do about peers."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from bruit import ConfigError, LocalError, Node, NodeConfig
from bruit.node.config import ScoringConfig
from bruit.node.config.schema import ControlConfig
from bruit.node.gossip.actions import Disconnect, PeerJoined, PeerLeft
from bruit.node.gossip.events import Protocol
from bruit.node.reports import ConnectionRefused, ScoreCrossed
from bruit.plugins.hookspecs import hookimpl
from bruit.scoring.history import PeerScoreRow
from bruit.scoring.params import TopicScoreParams
from bruit.topics.keys import PeerId
from tests.net.loopback import TIMEOUT, TOPIC, config, first, mesh, until_connected

STRANGER = bytes.fromhex("002408011220") + bytes(32)


class NoSettings(msgspec.Struct, frozen=True):
    pass


def chain(opinion: Callable[[PeerId], Any]) -> dict[str, type]:
    """A plugin that thinks of peers what it is told to."""

    class Chain:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def app_score(self, peer: PeerId) -> Any:
            return opinion(peer)

    return {"chain": Chain}


def judging(scoring: ScoringConfig) -> NodeConfig:
    return msgspec.structs.replace(config(), scoring=scoring)


# Not running


async def use_scores(node: Node) -> None:
    node.scores()


async def use_peers(node: Node) -> None:
    node.peers()


async def use_explain(node: Node) -> None:
    node.explain(STRANGER)


async def use_explanations(node: Node) -> None:
    await node.explanations()


async def use_score_snapshot(node: Node) -> None:
    await node.score_snapshot()


async def use_topic_score_params(node: Node) -> None:
    node.topic_score_params(TOPIC)


async def use_set_topic_score_params(node: Node) -> None:
    node.set_topic_score_params(TOPIC, TopicScoreParams())


async def use_ban(node: Node) -> None:
    await node.ban("192.0.2.7", None, "")


async def use_unban(node: Node) -> None:
    await node.unban("192.0.2.7")


async def use_bans(node: Node) -> None:
    node.bans()


USES = [
    use_scores,
    use_peers,
    use_explain,
    use_explanations,
    use_score_snapshot,
    use_topic_score_params,
    use_set_topic_score_params,
    use_ban,
    use_unban,
    use_bans,
]


@pytest.mark.parametrize("use", USES)
async def test_a_node_that_is_not_running_scores_and_bans_nobody(
    use: Callable[[Node], Awaitable[None]],
) -> None:
    with pytest.raises(LocalError, match="the node is not running: use it inside `async with`"):
        await use(Node(config()))


# Scores


@pytest.mark.sockets
async def test_every_connected_peer_has_a_score_that_is_explained() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(3) as (node, one, other):
            assert set(node.scores()) == {one.peer_id, other.peer_id}
            for peer, score in node.scores().items():
                explanation = node.explain(peer)
                assert explanation is not None
                assert (explanation.score, explanation.connected) == (score, True)
            assert {each.peer for each in await node.explanations()} == set(node.scores())
            assert node.explain(STRANGER) is None


@pytest.mark.sockets
async def test_a_message_that_a_peer_brings_first_raises_its_score_by_the_weight_of_its_topic() -> (
    None
):
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (node, writer):
            messages = node.subscribe(TOPIC)
            params = TopicScoreParams(topic_weight=0.5, first_message_deliveries_weight=8.0)
            node.set_topic_score_params(TOPIC, params)
            await writer.publish(TOPIC, b"message")
            await anext(messages)
            explanation = node.explain(writer.peer_id)
            assert explanation is not None
            [topic] = explanation.topics
            assert topic.p2.weight == 8
            # One message, less what has decayed since.
            assert 0 < topic.p2.contribution <= 8
            assert topic.contribution == topic.p2.contribution * 0.5
            assert node.scores()[writer.peer_id] == topic.contribution


@pytest.mark.sockets
async def test_parameters_of_a_topic_change_while_the_node_runs() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node:
            params = TopicScoreParams(invalid_message_deliveries_weight=-20.0)
            node.set_topic_score_params(TOPIC, params)
            assert node.topic_score_params(TOPIC) == params
            wrong = TopicScoreParams(invalid_message_deliveries_weight=20.0)
            with pytest.raises(ConfigError, match="invalid_message_deliveries_weight"):
                node.set_topic_score_params(TOPIC, wrong)
            with pytest.raises(LocalError, match="printable"):
                node.set_topic_score_params("a\nb", params)
            assert node.topic_score_params(TOPIC) == params


@pytest.mark.sockets
async def test_what_plugins_think_of_a_peer_is_part_of_its_score_and_crossings_are_reported() -> (
    None
):
    settings = judging(ScoringConfig(app_scores=("chain",)))
    async with Node(settings, plugins=chain(lambda peer: -700)) as node:
        with trio.fail_after(TIMEOUT):
            reports = node.reports()
            async with Node(config(peers=node.addresses)) as peer:
                crossed = await first(reports, ScoreCrossed)
                assert (crossed.peer, crossed.below) == (peer.peer_id, True)
                assert crossed.explanation.app_specific.value == -700
                assert crossed.explanation.score <= -700
                assert crossed.threshold in crossed.explanation.below


@pytest.mark.sockets
async def test_a_peer_that_recovers_is_reported_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bruit.node.app_scores.INTERVAL", 0.1)
    opinions = [-700.0]
    settings = judging(ScoringConfig(app_scores=("chain",)))
    async with Node(settings, plugins=chain(lambda peer: opinions[-1])) as node:
        with trio.fail_after(TIMEOUT):
            reports = node.reports()
            async with Node(config(peers=node.addresses)):
                assert (await first(reports, ScoreCrossed)).below
                opinions.append(0.0)
                while (crossed := await first(reports, ScoreCrossed)).below:
                    pass
                assert crossed.explanation.app_specific.value == 0


@pytest.mark.sockets
async def test_plugins_are_not_asked_about_a_peer_that_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bruit.node.app_scores.INTERVAL", 0.02)
    asked: list[PeerId] = []
    round_over = trio.lowlevel.ParkingLot()

    def opinion(peer: PeerId) -> float:
        asked.append(peer)
        trio.from_thread.run_sync(round_over.unpark_all)
        return 0

    settings = judging(ScoringConfig(app_scores=("chain",)))
    with trio.fail_after(TIMEOUT):
        async with Node(settings, plugins=chain(opinion)) as node:
            reports = node.reports()
            async with Node(config(peers=node.addresses)) as leaver:
                await round_over.park()
            await first(reports, PeerLeft)
            async with Node(config(peers=node.addresses)) as stayer:
                await first(reports, PeerJoined)
                asked.clear()
                for _ in range(5):
                    await round_over.park()
                assert set(asked) == {stayer.peer_id}
                assert leaver.peer_id != stayer.peer_id


def test_an_unfit_judge_of_peers_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"scoring\.app_scores\[0\]: plugin 'zstd' is no judge"):
        Node(judging(ScoringConfig(app_scores=("zstd",))))


@pytest.mark.sockets
async def test_a_snapshot_has_a_row_for_every_known_peer_and_says_what_it_was_scored_by() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (node, peer):
            before = time.time()
            peers, topics = await node.score_snapshot()
            [row] = peers
            assert isinstance(row, PeerScoreRow)
            assert (row.peer, row.connected) == (peer.peer_id_text, True)
            assert before <= row.time <= time.time()
            params_before = row.params_hash
            assert {each.topic for each in topics} <= {TOPIC}
            node.set_topic_score_params(TOPIC, TopicScoreParams(topic_weight=0.25))
            [row] = (await node.score_snapshot())[0]
            assert row.params_hash != params_before


@pytest.mark.sockets
async def test_scores_are_exported_to_the_file_that_the_configuration_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bruit.node.score_export.INTERVAL", 0.1)
    settings, file = judging(ScoringConfig(export="scores.jsonl")), tmp_path / "scores.jsonl"
    with trio.fail_after(TIMEOUT):
        async with (
            Node(settings, directory=tmp_path) as node,
            Node(config(peers=node.addresses)) as peer,
        ):
            while not await trio.Path(file).exists():  # noqa: ASYNC110, a file tells nobody
                await trio.sleep(0.05)
            [first_line, *_] = (await trio.Path(file).read_text()).splitlines()
            row = msgspec.json.decode(first_line, type=PeerScoreRow)
            assert row.peer == peer.peer_id_text


# Peers


@pytest.mark.sockets
async def test_connected_peers_are_listed_with_what_they_do() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node, Node(config(peers=node.addresses)) as peer:
            await until_connected(node, peer)
            [seen] = node.peers()
            assert (seen.peer, seen.outbound) == (peer.peer_id, False)
            assert seen.address.startswith("/ip4/127.0.0.1/tcp/")
            assert seen.protocol is Protocol.GOSSIPSUB_12
            assert seen.topics == (TOPIC,)
            assert seen.mesh in ((), (TOPIC,))
            assert abs(time.time() - seen.since) < TIMEOUT
            assert seen.score == pytest.approx(node.scores()[peer.peer_id], abs=1)
            assert seen.traffic.bytes_in > 0
            [dialled] = peer.peers()
            assert (dialled.peer, dialled.outbound) == (node.peer_id, True)
            assert f"{dialled.address}/p2p/{node.peer_id_text}" == node.addresses[0]


# Bans


@pytest.mark.sockets
@pytest.mark.parametrize("target", ["peer", "127.0.0.1", "127.0.0.0/8"])
async def test_a_ban_ends_the_connection_and_unbanned_the_peer_may_come_back(target: str) -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node, Node(config(peers=node.addresses)) as peer:
            await until_connected(node, peer)
            reports = node.reports()
            if target == "peer":
                target = peer.peer_id_text
            ban = await node.ban(target, 3600, "spam")
            assert (ban.target, ban.reason) == (target, "spam")
            assert node.bans() == (ban,)
            assert (await first(reports, Disconnect)).peer == peer.peer_id
            assert (await first(reports, PeerLeft)).peer == peer.peer_id
            assert node.scores() == {}
            assert await node.unban(target)
            assert node.bans() == ()
            assert (await first(reports, PeerJoined)).peer == peer.peer_id


@pytest.mark.sockets
async def test_a_banned_peer_is_refused_as_long_as_the_ban_holds(tmp_path: Path) -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config(), directory=tmp_path) as node:
            await node.ban("127.0.0.0/8", None, "spam")
        async with (
            Node(config(), directory=tmp_path) as node,  # bans outlive it
            Node(config(peers=node.addresses)) as peer,
        ):
            reports = node.reports()
            for _ in range(2):  # it keeps trying
                refused = await anext(reports)  # the first that happens at all
                assert refused == ConnectionRefused(peer.peer_id, "127.0.0.0/8 is banned: spam")
            assert node.peers() == []


@pytest.mark.sockets
async def test_a_node_does_not_ban_itself() -> None:
    async with Node(config()) as node:
        with pytest.raises(LocalError, match="is this node itself"):
            await node.ban(node.peer_id_text, None, "")
        assert node.bans() == ()


# Files


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.sockets
async def test_a_node_has_its_socket_in_its_folder_and_keeps_no_files_without_one(
    tmp_path: Path,
) -> None:
    async with Node(config(), directory=tmp_path):
        assert names_in(tmp_path) == ["bruit.sock"]
        async with Node(config()):
            pass
    none = msgspec.structs.replace(config(), control=ControlConfig(socket=""))
    async with Node(none, directory=tmp_path):
        assert names_in(tmp_path) == []
