"""The relay as a system of the block bench: the same nodes, some of them members of clusters."""

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from bench.block_systems import GossipSession, Session, System, meshed, peers
from bench.emulation.network import Network
from bench.lab import TOPIC
from bench.peer_relay import CONFIG
from bruit.node.config.toml import write_value
from bruit.node.identity import create_key_file
from bruit.node.relay.signing import address_of_secret
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.plugins.marketplace_file import to_toml
from bruit.topics.keys import KeyType, PrivateKey, peer_id_text

PROGRAM = (sys.executable, "-m", "bench.peer_relay")
CLUSTERS, MEMBERS = 4, 3  # and members of each
MIN_CHUNKS, NUM_CHUNKS = 32, 48
SELECTOR = "qos-selector"
STAKE = 1 << 31  # tokens: for a thousand blocks
MAX_BLOCK = 1_048_576  # bytes
PORT = 4001  # at an address that nobody else has


class Seat(msgspec.Struct, frozen=True):
    """The keys of a node, and what it is."""

    key: PrivateKey  # of the node
    secret: bytes  # of the relay
    cluster: int | None  # of which it is a member

    @property
    def id(self) -> bytes:
        return address_of_secret(self.secret)


def relay_systems(seed: int) -> dict[str, System]:
    return {
        "relay": partial(relay, "relay", seed, False),
        "relay_drop": partial(relay, "relay_drop", seed, True),
    }


@contextmanager
def relay(name: str, seed: int, drops: bool, network: Network) -> Iterator[Session]:
    """Node 0 produces, all consume, and twelve of the others are members.

    ``drops``: the first cluster takes and acknowledges chunks, and forwards none.
    """
    seats = _seats(len(network.addresses), seed)
    with tempfile.TemporaryDirectory(prefix="bruit-bench-relay-") as root, ExitStack() as stack:
        _write(Path(root), network, seats)
        extra = [
            {
                "folder": str(Path(root, str(node))),
                "drops": drops and seat.cluster == 1,
                "members": CLUSTERS * MEMBERS,
            }
            for node, seat in enumerate(seats)
        ]
        remotes = peers(stack, name, PROGRAM, network, extra)
        meshed(remotes, seed)
        yield GossipSession(remotes)


def _seats(count: int, seed: int) -> list[Seat]:
    """Who is a member of what is drawn from ``seed``, without regard to who is fast."""
    rng = Random(f"relay {seed}")
    members = rng.sample(range(1, count), CLUSTERS * MEMBERS)
    return [
        Seat(
            PrivateKey(KeyType.ED25519, _secret(rng)),
            _secret(rng),
            1 + members.index(node) // MEMBERS if node in members else None,
        )
        for node in range(count)
    ]


def _secret(rng: Random) -> bytes:
    """Of a key that protects nothing."""
    return hashlib.sha256(rng.randbytes(32)).digest()


def _write(root: Path, network: Network, seats: list[Seat]) -> None:
    clusters = tuple(
        Cluster(
            number,
            0,
            tuple(
                Member(seat.id, (f"{_listen(address)}/p2p/{_peer(seat)}",))
                for seat, address in zip(seats, network.addresses, strict=True)
                if seat.cluster == number
            ),
        )
        for number in range(1, CLUSTERS + 1)
    )
    marketplace = root / "marketplace.toml"
    marketplace.write_text(to_toml(Marketplace((Producer(seats[0].id, STAKE),), clusters)))
    for node, (seat, address) in enumerate(zip(seats, network.addresses, strict=True)):
        folder = root / str(node)
        folder.mkdir()
        create_key_file(folder / "node.key", seat.key)
        create_key_file(folder / "relay.key", PrivateKey(KeyType.SECP256K1, seat.secret))
        roles = ["consumer"]
        if node == 0:
            roles.append("producer")
        elif seat.cluster is not None:
            roles.append("member")
        (folder / CONFIG).write_text(_config(address, roles, marketplace))


def _config(address: str, roles: list[str], marketplace: Path) -> str:
    tables: dict[str, dict[str, object]] = {
        "network": {"listen": [_listen(address)], "min_peers": 0},
        "control": {"socket": ""},
        "relay": {"roles": roles, "selector": SELECTOR},
        "relay.channels.blocks": {
            "id": 1,
            "topic": TOPIC,
            "min_chunks": MIN_CHUNKS,
            "num_chunks": NUM_CHUNKS,
            "max_block": MAX_BLOCK,
        },
        "plugins.marketplace-file": {"file": str(marketplace)},
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {write_value(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )


def _listen(address: str) -> str:
    return f"/ip4/{address}/tcp/{PORT}"


def _peer(seat: Seat) -> str:
    return peer_id_text(seat.key.public_key().peer_id())
