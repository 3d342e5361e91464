"""What a running node tells of its part in the relay."""

from collections.abc import Mapping

import msgspec

from bruit.node.statistics import PeerTraffic


class ClusterStatus(msgspec.Struct, frozen=True):
    """One cluster of the marketplace, as far as this node has to do with it."""

    id: int
    members: int
    price: int  # tokens per byte
    chunks: int  # of delivered blocks, that it witnessed
    latency: float | None = None  # seconds; this and what follows as the selector was told last
    acknowledgement_rate: float | None = None  # 0..1
    delivery_rate: float | None = None  # 0..1, of acknowledged chunks: those that others then had
    recent_failures: int = 0


class StakeStatus(msgspec.Struct, frozen=True):
    """This producer's own stake, tokens."""

    registered: int
    in_use: int  # attached within the refresh interval


class RelayStatus(msgspec.Struct, frozen=True):
    """Counts are since the node's start."""

    roles: tuple[str, ...]
    address: str  # 20-byte id in hexadecimal; empty without a key
    cluster: int | None  # that this node is a member of
    producers: int  # in the marketplace
    clusters: tuple[ClusterStatus, ...]
    stake: StakeStatus | None  # None for who is no producer in the marketplace
    broadcasts: int
    broadcasting: int  # of them, under way
    witnessed: int  # chunks
    published: int  # chunks
    unpublished: int  # chunks for which there was no room, no time, or nobody
    delivered: int  # blocks
    blocks_lost: int  # for subscribers that were behind
    disputes: Mapping[str, int]  # by kind
    dropped: Mapping[str, int]  # chunks, by reason
    waiting: int  # signatures to be checked or made
    traffic: PeerTraffic  # of the relay's own streams
    stream_faults: Mapping[str, int]
    unaudited: int  # reports for which the audit had no room
