"""Frames to and from bytes (libp2p specs, pubsub/gossipsub).

A frame is one RPC; the varint that precedes it on a stream is the driver's.
Whatever a peer sends is bounded here: a list longer than its cap makes the
whole frame a `RemoteError`, before anything of it is acted upon.
"""

import math

import msgspec
from google.protobuf.message import DecodeError

from bruit.node.gossip import params
from bruit.node.gossip.rpc_pb2 import Control, IHave, PeerInfo, Rpc
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.uvarint import encode_uvarint

WRAPPING = 6  # bytes of a frame around its message: a tag, and a length of at most five
_PUBLISH_TAG = 0x12  # field 2, length-delimited


class Prune(msgspec.Struct):
    """A PRUNE about to be sent: ``backoff`` in seconds, None for peers that speak v1.0."""

    topic: str
    backoff: float | None
    peers: tuple[tuple[PeerId, bytes], ...] = ()  # peer and its signed record, or b""


class Batch(msgspec.Struct):
    """Everything but messages that one peer is to be told, in any order."""

    subscriptions: dict[str, bool] = {}
    grafts: dict[str, None] = {}
    prunes: dict[str, Prune] = {}
    ihave: dict[str, list[bytes]] = {}
    iwant: list[bytes] = []
    idontwant: list[bytes] = []
    largest_wanted: int = 1  # bytes that a message asked for may have


def decode_frame(frame: bytes) -> Rpc:
    """Parse an RPC and check its lists against their caps. Raises RemoteError."""
    rpc = Rpc()
    try:
        rpc.ParseFromString(frame)
        if rpc.subscriptions or rpc.HasField("control"):
            _check_lists(rpc)
    except (DecodeError, UnicodeDecodeError) as problem:
        raise RemoteError(f"frame of {len(frame)} bytes does not parse: {problem}") from None
    _bound("messages", len(rpc.publish), params.MAX_MESSAGES_PER_RPC)
    return rpc


def sole_message(frame: bytes) -> bytes | None:
    """The message of a frame that carries one and nothing else: nearly every frame under load."""
    if len(frame) < 2 or frame[0] != _PUBLISH_TAG:
        return None
    size = shift = 0
    for at in range(1, min(len(frame), WRAPPING)):
        byte = frame[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return frame[at + 1 :] if at + 1 + size == len(frame) else None
        shift += 7
    return None


def _check_lists(rpc: Rpc) -> None:
    _bound("subscriptions", len(rpc.subscriptions), params.MAX_SUBSCRIPTIONS_PER_RPC)
    control = rpc.control
    for entries in (control.ihave, control.iwant, control.graft, control.prune, control.idontwant):
        _bound("control entries", len(entries), params.MAX_CONTROL_PER_RPC)
    topics = [entry.topic for entry in rpc.subscriptions]
    topics += [entry.topic for entry in control.ihave]
    topics += [entry.topic for entry in control.graft]
    topics += [entry.topic for entry in control.prune]
    if any(type(topic) is not str for topic in topics):  # protobuf's C hands out bytes then
        raise RemoteError("frame with a topic that is no UTF-8")


def _bound(what: str, count: int, cap: int) -> None:
    if count > cap:
        raise RemoteError(f"frame with {count} {what}: the limit is {cap}")


def message_frame(raw: bytes) -> bytes:
    """The frame that carries one message, given the message's own bytes."""
    size = len(raw)
    if size < 0x80:
        return bytes((_PUBLISH_TAG, size)) + raw
    return bytes((_PUBLISH_TAG,)) + encode_uvarint(size) + raw


def encode_batch(batch: Batch, max_size: int, max_iwant: int, max_idontwant: int) -> list[bytes]:
    """The frames that say all of ``batch``: one, or as many as ``max_size`` bytes make it.

    A single entry that exceeds ``max_size`` still goes out, by itself. At most
    ``max_iwant`` and ``max_idontwant`` ids go into one frame: some peers answer
    all of an IWANT in one frame, and none reads more of an IDONTWANT. The PRUNE of
    a topic that is left goes ahead of the news: rust-libp2p, told first that we are
    not subscribed any more, would note a backoff of its own instead.
    """
    leaving = {topic for topic, wanted in batch.subscriptions.items() if not wanted}
    farewell: list[_Entry] = [
        ("prune", topic, prune) for topic, prune in batch.prunes.items() if topic in leaving
    ]
    entries: list[_Entry] = []
    entries += [("subscription", topic, wanted) for topic, wanted in batch.subscriptions.items()]
    entries += [("graft", topic, None) for topic in batch.grafts]
    entries += [
        ("prune", topic, prune) for topic, prune in batch.prunes.items() if topic not in leaving
    ]
    entries += [("ihave", topic, each) for topic, ids in batch.ihave.items() for each in ids]
    iwant: list[_Entry] = [("iwant", "", each) for each in batch.iwant]
    idontwant: list[_Entry] = [("idontwant", "", each) for each in batch.idontwant]
    frames = _encode_entries(farewell, max_size)
    frames += _encode_entries(entries + iwant[:max_iwant] + idontwant[:max_idontwant], max_size)
    for rest, most in ((iwant, max_iwant), (idontwant, max_idontwant)):
        for start in range(most, len(rest), most):
            frames += _encode_entries(rest[start : start + most], max_size)
    return frames


_Entry = tuple[str, str, bool | bytes | Prune | None]  # kind, topic, what is said of it


def _encode_entries(entries: list[_Entry], max_size: int) -> list[bytes]:
    if not entries:
        return []
    frame = _build(entries).SerializeToString()
    if len(frame) <= max_size or len(entries) == 1:
        return [frame]
    half = len(entries) // 2
    return _encode_entries(entries[:half], max_size) + _encode_entries(entries[half:], max_size)


def _build(entries: list[_Entry]) -> Rpc:
    rpc = Rpc()
    ihave: dict[str, IHave] = {}
    iwant: list[bytes] = []
    idontwant: list[bytes] = []
    for kind, topic, value in entries:
        match kind, value:
            case "subscription", bool():
                rpc.subscriptions.add(subscribe=value, topic=topic)
            case "graft", _:
                rpc.control.graft.add(topic=topic)
            case "prune", Prune():
                _add_prune(rpc.control, value)
            case "ihave", bytes():
                if topic not in ihave:
                    ihave[topic] = rpc.control.ihave.add(topic=topic)
                ihave[topic].message_ids.append(value)
            case "iwant", bytes():
                iwant.append(value)
            case "idontwant", bytes():
                idontwant.append(value)
    if iwant:
        rpc.control.iwant.add(message_ids=iwant)
    if idontwant:
        rpc.control.idontwant.add(message_ids=idontwant)
    return rpc


def _add_prune(control: Control, prune: Prune) -> None:
    entry = control.prune.add(topic=prune.topic)
    if prune.backoff is not None:
        entry.backoff = math.ceil(prune.backoff)
    for peer, record in prune.peers:
        entry.peers.append(
            PeerInfo(peer_id=peer, signed_peer_record=record) if record else PeerInfo(peer_id=peer)
        )
