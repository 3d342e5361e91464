"""What can be asked on the control socket, and the answers.

A request is an object whose ``do`` names it: ``{"do": "ban", "target": "192.0.2.1"}``.
Peers are written as in addresses, in base58; times are Unix time in seconds.
"""

from __future__ import annotations  # Node imports this module

import difflib
from typing import TYPE_CHECKING, assert_never

import msgspec

from bruit.scoring.params import TopicScoreParams
from bruit.topics.errors import LocalError
from bruit.topics.keys import peer_id_from_text, peer_id_text

if TYPE_CHECKING:
    from bruit.node.node import Node
    from bruit.node.statistics import PeerInfo
    from bruit.scoring.explanation import Explanation


class Peers(msgspec.Struct, tag_field="do", tag="peers", forbid_unknown_fields=True):
    """The connected peers: a list of objects with the fields of `bruit.node.node.PeerInfo`."""


class Scores(msgspec.Struct, tag_field="do", tag="scores", forbid_unknown_fields=True):
    """What the scores of all known peers are made of: a list, as for explain."""


class Explain(msgspec.Struct, tag_field="do", tag="explain", forbid_unknown_fields=True):
    """What the score of one peer is made of: the fields of `Explanation`."""

    peer: str


class SetTopicParams(
    msgspec.Struct, tag_field="do", tag="set_topic_params", forbid_unknown_fields=True
):
    """Change some parameters of a topic; answers with all of them, by name."""

    topic: str
    values: dict[str, float]  # of the fields of TopicScoreParams


class Ban(msgspec.Struct, tag_field="do", tag="ban", forbid_unknown_fields=True):
    """Answers with the ban."""

    target: str  # a peer id, an IP address, or a subnet
    seconds: float | None = None  # None: until it is lifted
    reason: str = ""


class Unban(msgspec.Struct, tag_field="do", tag="unban", forbid_unknown_fields=True):
    """Answers whether there was such a ban."""

    target: str


class Bans(msgspec.Struct, tag_field="do", tag="bans", forbid_unknown_fields=True):
    """Those in force: a list of objects with the fields of `bruit.scoring.bans.Ban`."""


class RelayStatus(msgspec.Struct, tag_field="do", tag="relay.status", forbid_unknown_fields=True):
    """What the node does for the relay: the fields of `bruit.node.relay_status.RelayStatus`."""


Request = Peers | Scores | Explain | SetTopicParams | Ban | Unban | Bans | RelayStatus

_decoder = msgspec.json.Decoder(Request)


async def answer(node: Node, line: bytes) -> object:
    """Do what a request says; the answer is what msgspec writes as JSON. Raises BruitError."""
    try:
        request = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise LocalError(f"not a request: {problem}") from None
    match request:
        case Peers():
            return [_peer(info) for info in node.peers()]
        case Scores():
            return [_explanation(each) for each in await node.explanations()]
        case Explain(peer):
            explanation = node.explain(peer_id_from_text(peer))
            if explanation is None:
                raise LocalError(f"{peer} is neither connected nor remembered")
            return _explanation(explanation)
        case SetTopicParams(topic, values):
            return _set_topic_params(node, topic, values)
        case Ban(target, seconds, reason):
            return await node.ban(target, seconds, reason)
        case Unban(target):
            return await node.unban(target)
        case Bans():
            return node.bans()
        case RelayStatus():
            if node.relay is None:
                raise LocalError("this node has no part in the relay: set relay.roles")
            return node.relay.status()
        case _:
            assert_never(request)


def _peer(info: PeerInfo) -> object:
    return msgspec.structs.asdict(info) | {"peer": peer_id_text(info.peer)}


def _explanation(explanation: Explanation) -> object:
    return msgspec.structs.asdict(explanation) | {"peer": peer_id_text(explanation.peer)}


def _set_topic_params(node: Node, topic: str, values: dict[str, float]) -> object:
    known = TopicScoreParams.__struct_fields__
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise LocalError(f"{name}: no such parameter; {hint}possible: {', '.join(known)}")
    before = node.topic_score_params(topic) or TopicScoreParams()
    params = msgspec.structs.replace(before, **values)
    node.set_topic_score_params(topic, params)
    return params
