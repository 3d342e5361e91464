"""Requests to a node and its answers, as they go over the control socket."""

import json
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from bruit import ConfigError, LocalError, Node
from bruit.node.control_requests import answer
from bruit.scoring.explanation import Explanation
from bruit.scoring.params import TopicScoreParams
from tests.net.loopback import TIMEOUT, TOPIC, config, mesh

STRANGER = "12D3KooWE3quQCP6Xu7eXpcmmpwVS1KofWnPCBWYNHCswgaqwCso"


async def ask(node: Node, **request: object) -> Any:
    """The answer as a client reads it."""
    return json.loads(msgspec.json.encode(await answer(node, json.dumps(request).encode())))


async def refusal(node: Node, line: bytes) -> str:
    with pytest.raises(LocalError) as caught:
        await answer(node, line)
    return str(caught.value)


@pytest.mark.sockets
async def test_peers_and_scores_are_told_of_with_their_ids_as_text() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (node, peer):
            [told] = await ask(node, do="peers")
            assert told["peer"] == peer.peer_id_text
            assert told["protocol"] == "/meshsub/1.2.0"
            assert told["topics"] == [TOPIC]
            assert set(told["traffic"]) == {
                "bytes_in",
                "bytes_out",
                "frames_in",
                "frames_out",
                "queued_bytes",
            }
            [explanation] = await ask(node, do="scores")
            assert explanation["peer"] == peer.peer_id_text
            assert await ask(node, do="explain", peer=peer.peer_id_text) == explanation


@pytest.mark.sockets
async def test_an_explanation_adds_up_to_the_score_to_the_last_bit_on_the_other_side() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (node, writer):
            messages = node.subscribe(TOPIC)
            await writer.publish(TOPIC, b"message")
            await anext(messages)
            said = await ask(node, do="explain", peer=writer.peer_id_text)
            total = said["topics_capped"]
            for term in ("app_specific", "ip_colocation", "behaviour_penalty", "slow_peer"):
                total += said[term]["contribution"]
            assert total == said["score"] == node.scores()[writer.peer_id] != 0
            lines = msgspec.convert(said | {"peer": b""}, Explanation).lines("writer")
            assert lines[0].startswith("writer: score ")


@pytest.mark.sockets
async def test_bans_are_made_listed_and_lifted() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node:
            made = await ask(node, do="ban", target="192.0.2.0/24", seconds=60, reason="spam")
            assert made["until"] == made["since"] + 60
            assert await ask(node, do="bans") == [made]
            assert await ask(node, do="unban", target="192.0.2.0/24") is True
            assert await ask(node, do="unban", target="192.0.2.0/24") is False
            assert await ask(node, do="bans") == []
            forever = await ask(node, do="ban", target=STRANGER)
            assert (forever["until"], forever["reason"]) == (None, "")


@pytest.mark.sockets
async def test_parameters_that_are_not_named_stay_as_they_are() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node:
            before = node.topic_score_params(TOPIC)
            assert before is not None
            said = await ask(
                node, do="set_topic_params", topic=TOPIC, values={"topic_weight": 0.125}
            )
            after = node.topic_score_params(TOPIC)
            assert after == msgspec.structs.replace(before, topic_weight=0.125) != before
            assert msgspec.convert(said, TopicScoreParams) == after


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not a request"),
        (b"{}", "not a request"),
        (b"\xff", "not a request"),
        (b'{"do": "stop"}', "Invalid value 'stop' - at `$.do`"),
        (b'{"do": "explain"}', "missing required field `peer`"),
        (b'{"do": "peers", "to": 1}', "unknown field `to`"),
        (b'{"do": "ban", "target": 1}', "Expected `str`, got `int` - at `$.target`"),
        (b'{"do": "explain", "peer": "me"}', "'me' is not a peer id"),
        (b'{"do": "ban", "target": "me"}', "'me' cannot be banned"),
        (b'{"do": "unban", "target": "me"}', "'me' cannot be banned"),
        (
            b'{"do": "set_topic_params", "topic": "a", "values": {"topic_wait": 1}}',
            "topic_wait: no such parameter; did you mean topic_weight? possible: topic_weight, ",
        ),
        (b'{"do": "set_topic_params", "topic": "", "values": {}}', "a name has 1 to"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(line: bytes, problem: str) -> None:
    async with Node(config()) as node:
        assert problem in await refusal(node, line)
        assert node.bans() == ()


@pytest.mark.sockets
async def test_a_number_out_of_range_and_a_stranger_are_refused() -> None:
    async with Node(config()) as node:
        with pytest.raises(ConfigError, match="topic_weight"):
            await ask(node, do="set_topic_params", topic="a", values={"topic_weight": -1})
        with pytest.raises(LocalError, match=f"{STRANGER} is neither connected nor remembered"):
            await ask(node, do="explain", peer=STRANGER)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_request_or_a_local_error(line: bytes) -> None:
    async def refuse() -> None:
        assert await refusal(NODE, line)  # where it is a request: that the node is not running

    trio.run(refuse)


NODE = Node(config())
