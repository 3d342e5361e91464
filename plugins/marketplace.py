"""The marketplace as plugins tell it: who may produce, which clusters there are, what they cost.

A whole marketplace is one immutable value; a change is another value.
"""

from typing import Annotated

import msgspec

from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, peer_id_from_text

ADDRESS_SIZE = 20  # bytes of a producer's or member's id (Marlin, §Acknowledgement)
MAX_PRODUCERS = 65_536  # guess
MAX_CLUSTERS = 65_536  # Marlin, §Acknowledgement: cluster ids have 2 bytes
MAX_MEMBERS = 256  # of one cluster; guess
MAX_STAKE = 0xFFFF_FFFF  # tokens; Marlin, §Attestation: stake offsets have 4 bytes
MAX_PRICE = 1 << 53  # tokens per byte; guess: exact as a float


class Producer(msgspec.Struct, frozen=True):
    """Who may attest blocks."""

    address: bytes  # 20-byte id
    stake: Annotated[int, msgspec.Meta(ge=0, le=MAX_STAKE)]  # tokens


class Member(msgspec.Struct, frozen=True):
    """One node of a cluster."""

    address: bytes  # 20-byte id, of the key that signs witnesses and acknowledgements
    addresses: tuple[str, ...]  # full multiaddrs, each ending in /p2p/ and the same peer id


class Cluster(msgspec.Struct, frozen=True):
    id: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
    price: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRICE)]  # tokens per byte, 0 = free
    members: tuple[Member, ...]


class Marketplace(msgspec.Struct, frozen=True):
    """All producers and clusters. An id has one place: one producer, one cluster's member.

    So has a peer: it is one member.
    """

    producers: tuple[Producer, ...] = ()
    clusters: tuple[Cluster, ...] = ()

    def __post_init__(self) -> None:
        """Raises LocalError for what contradicts itself."""
        if len(self.producers) > MAX_PRODUCERS or len(self.clusters) > MAX_CLUSTERS:
            raise LocalError(
                f"{len(self.producers)} producers and {len(self.clusters)} clusters: at most "
                f"{MAX_PRODUCERS} and {MAX_CLUSTERS}"
            )
        _once("producer", [producer.address for producer in self.producers])
        members = [member for cluster in self.clusters for member in cluster.members]
        _once("member", [member.address for member in members])
        seen: dict[int, None] = {}
        for cluster in self.clusters:
            if cluster.id in seen:
                raise LocalError(f"cluster {cluster.id} stands in the marketplace twice")
            seen[cluster.id] = None
            if len(cluster.members) > MAX_MEMBERS:
                raise LocalError(
                    f"cluster {cluster.id} has {len(cluster.members)} members: "
                    f"at most {MAX_MEMBERS}"
                )
        peers: dict[PeerId, None] = {}
        for member in members:
            peer = _peer_of(member)
            if peer in peers:
                raise LocalError(
                    f"member {member.address.hex()}: another member is the same peer; "
                    "a node has one place"
                )
            peers[peer] = None


def _peer_of(member: Member) -> PeerId:
    """The one peer that all addresses of a member end in. Raises LocalError where it is not one."""
    texts = dict.fromkeys(address.rpartition("/p2p/")[2] for address in member.addresses)
    if len(texts) != 1 or any("/p2p/" not in address for address in member.addresses):
        raise LocalError(
            f"member {member.address.hex()}: give it at least one address, all ending in "
            "/p2p/ and the same peer id"
        )
    [text] = texts
    try:
        return peer_id_from_text(text)
    except LocalError as problem:
        raise LocalError(f"member {member.address.hex()}: {problem}") from None


def _once(kind: str, addresses: list[bytes]) -> None:
    seen: dict[bytes, None] = {}
    for address in addresses:
        if len(address) != ADDRESS_SIZE:
            raise LocalError(f"{kind} {address.hex()}: an id has {ADDRESS_SIZE} bytes")
        if address in seen:
            raise LocalError(f"{kind} {address.hex()} stands in the marketplace twice")
        seen[address] = None
