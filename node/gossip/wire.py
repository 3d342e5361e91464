"""Frames to and from bytes (libp2p specs, pubsub/gossipsub).

A frame is one RPC; the varint that precedes it on a stream is the driver's.
Whatever a peer sends is bounded here: a list longer than its cap makes the
whole frame a `RemoteError`, before anything of it is acted upon.
"""

import math

import msgspec
from google.protobuf.message import DecodeError

from bruit.node.gossip import params
from bruit.node.gossip.rpc_pb2 import Graft, IHave, PeerInfo, Rpc, Subscription
from bruit.node.gossip.rpc_pb2 import Prune as PruneEntry
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.uvarint import encode_uvarint, uvarint_size

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
    ihave: list[bytes] = []  # as `ihave_entries` encodes it
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
    iwant = _id_entries(_IWANT_TAG, b"", 0x0A, batch.iwant, max_iwant, max_size)
    idontwant = _id_entries(_IDONTWANT_TAG, b"", 0x0A, batch.idontwant, max_idontwant, max_size)
    frames = _Frames(max_size)
    _add_mesh_news(frames, batch)
    for entry in batch.ihave:
        frames.add_control(entry)
    for entries in (iwant, idontwant):
        for number, entry in enumerate(entries):
            if number:
                frames.end()
            frames.add_control(entry)
    frames.end()
    return frames.done


def ihave_entries(topic: str, ids: list[bytes], max_size: int) -> list[bytes]:
    """IHAVE of a topic, encoded: one entry, or as many as fit for frames of ``max_size`` bytes."""
    head = IHave(topic=topic).SerializeToString()
    return _id_entries(_IHAVE_TAG, head, 0x12, ids, len(ids), max_size)


def ihave_frames(entries: list[bytes], max_size: int) -> list[bytes]:
    """What `encode_batch` makes of IHAVE alone, in one step where it is one frame."""
    content = b"".join(entries)
    if len(content) <= max_size - WRAPPING:
        return [_field(_CONTROL_TAG, content)]
    return encode_batch(Batch(ihave=entries), max_size, 1, 1)


def _add_mesh_news(frames: "_Frames", batch: Batch) -> None:
    leaving = {topic for topic, wanted in batch.subscriptions.items() if not wanted}
    for topic, prune in batch.prunes.items():
        if topic in leaving:
            frames.add_control(_field(_PRUNE_TAG, _prune(prune)))
    frames.end()
    for topic, wanted in batch.subscriptions.items():
        said = Subscription(subscribe=wanted, topic=topic).SerializeToString()
        frames.add_subscription(_field(_SUBSCRIPTION_TAG, said))
    for topic in batch.grafts:
        frames.add_control(_field(_GRAFT_TAG, Graft(topic=topic).SerializeToString()))
    for topic, prune in batch.prunes.items():
        if topic not in leaving:
            frames.add_control(_field(_PRUNE_TAG, _prune(prune)))


# Fields of Rpc and of Control, all length-delimited.
_SUBSCRIPTION_TAG, _CONTROL_TAG = 0x0A, 0x1A
_IHAVE_TAG, _IWANT_TAG, _GRAFT_TAG, _PRUNE_TAG, _IDONTWANT_TAG = 0x0A, 0x12, 0x1A, 0x22, 0x2A


class _Frames:
    """Encoded entries, packed into frames of ``max_size`` bytes in their order."""

    def __init__(self, max_size: int) -> None:
        self.done: list[bytes] = []
        self._room = max_size - 1 - uvarint_size(max_size)  # beside the tag and length of control
        self._news: list[bytes] = []
        self._control: list[bytes] = []
        self._size = 0  # bytes of both

    def add_subscription(self, entry: bytes) -> None:
        if self._size + len(entry) > self._room:
            self.end()
        self._news.append(entry)
        self._size += len(entry)

    def add_control(self, entry: bytes) -> None:
        if self._size + len(entry) > self._room:
            self.end()
        self._control.append(entry)
        self._size += len(entry)

    def end(self) -> None:
        """The next entry begins a frame."""
        if self._control:
            self._news.append(_field(_CONTROL_TAG, b"".join(self._control)))
        if self._news:
            self.done.append(b"".join(self._news))
            self._news, self._control, self._size = [], [], 0


def _field(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + encode_uvarint(len(content)) + content


def _id_entries(
    tag: int, head: bytes, id_tag: int, ids: list[bytes], most: int, max_size: int
) -> list[bytes]:
    """Control entries that list ``ids``: each at most ``most`` of them, and fit for a frame."""
    if not ids:
        return []
    room = max_size - len(head) - 2 * (1 + uvarint_size(max_size))  # two tags with their lengths
    entries: list[bytes] = []
    parts, size = [head], 0
    for message_id in ids:
        listed = _field(id_tag, message_id)
        if len(parts) > 1 and (len(parts) > most or size + len(listed) > room):
            entries.append(_field(tag, b"".join(parts)))
            parts, size = [head], 0
        parts.append(listed)
        size += len(listed)
    if len(parts) > 1:
        entries.append(_field(tag, b"".join(parts)))
    return entries


def _prune(prune: Prune) -> bytes:
    entry = PruneEntry(topic=prune.topic)
    if prune.backoff is not None:
        entry.backoff = math.ceil(prune.backoff)
    for peer, record in prune.peers:
        entry.peers.append(
            PeerInfo(peer_id=peer, signed_peer_record=record) if record else PeerInfo(peer_id=peer)
        )
    return entry.SerializeToString()
