"""The files of all nodes, as operators would write them: keys, configurations, marketplace."""

import hashlib
import random
from pathlib import Path

import msgspec

from bruit.node.config.toml import write_value
from bruit.node.demo.relay.plan import Fault, Place, Plan, Role
from bruit.node.identity import create_key_file
from bruit.node.relay.signing import address_of_secret
from bruit.plugins.marketplace import Cluster, Marketplace, Member, Producer
from bruit.plugins.marketplace_file import to_toml
from bruit.topics.keys import KeyType, PrivateKey
from bruit.topics.names import RelayTopic

TOPIC = str(RelayTopic("demo", "blocks", "bitcoin"))
CHANNEL = "blocks"
MARKETPLACE = "marketplace.toml"
CONFIG = "bruit.toml"
NODE_KEY, RELAY_KEY = "node.key", "relay.key"  # as configurations have them by default
STAKE = 1_000_000_000  # tokens: for some hundred blocks
CODEC_ROOM = 65_536  # bytes by which a codec may lengthen a block; guess, of any that is in use
MAX_MESSAGE = 4_194_304 + CODEC_ROOM  # bytes: one chunk that is a whole block of 4 MB
KEY_SIZE = 32  # bytes


class Folders(msgspec.Struct, frozen=True):
    """Where everything is, and the 20-byte id of each place that has one."""

    root: Path
    nodes: tuple[Path, ...]
    ids: tuple[bytes, ...]

    @property
    def marketplace(self) -> Path:
        return self.root / MARKETPLACE


def write_folders(root: Path, plan: Plan, network: str, size: int, rng: random.Random) -> Folders:
    """Write the files of all nodes below ``root``, which exists.

    ``network``: whose proof-of-work limit the bitcoin plugin holds; ``size``: bytes of a block.
    The marketplace names the producer only: where members listen is not known yet.
    """
    nodes, ids = [], []
    for place in plan.places:
        folder = root / place.name
        folder.mkdir()
        create_key_file(folder / NODE_KEY, PrivateKey(KeyType.ED25519, _secret(rng)))
        secret = _secret(rng)
        create_key_file(folder / RELAY_KEY, PrivateKey(KeyType.SECP256K1, secret))
        (folder / CONFIG).write_text(_config(root, plan, place, network, size))
        nodes.append(folder)
        ids.append(address_of_secret(secret))
    folders = Folders(root, tuple(nodes), tuple(ids))
    write_marketplace(folders, plan, {})
    return folders


def write_marketplace(folders: Folders, plan: Plan, addresses: dict[int, str]) -> None:
    """Replace the marketplace: the producer, and all members that have an address."""
    members: dict[int, list[Member]] = {}
    for index in plan.of(Role.MEMBER):
        if index in addresses:
            member = Member(folders.ids[index], (addresses[index],))
            members.setdefault(plan.places[index].cluster, []).append(member)
    # The later a cluster the cheaper: a selector that goes by the price has something to choose.
    clusters = tuple(
        Cluster(cluster, len(plan.clusters) - cluster + 1, tuple(found))
        for cluster, found in sorted(members.items())
    )
    producers = tuple(Producer(folders.ids[index], STAKE) for index in plan.of(Role.PRODUCER))
    new = folders.marketplace.with_suffix(".new")
    new.write_text(to_toml(Marketplace(producers, clusters)))
    new.rename(folders.marketplace)


def _secret(rng: random.Random) -> bytes:
    """Of a key that protects nothing. Hashed, so that no bytes of the generator are shown."""
    return hashlib.sha256(rng.randbytes(KEY_SIZE)).digest()


def _config(root: Path, plan: Plan, place: Place, network: str, size: int) -> str:
    outside = place.role is Role.OUTSIDER
    tables: list[tuple[str, dict[str, object]]] = [
        ("network", {"listen": ["/ip4/127.0.0.1/tcp/0"], "min_peers": 0, "verifiers": 0}),
        ("control", {"socket": ""}),
        ("shutdown", {"grace": 0.5}),
        (
            f"topics.{write_value(TOPIC)}",
            {
                "subscribe": outside,
                "message_id": "origin" if outside else "content",
                "max_message_size": MAX_MESSAGE,
            },
        ),
    ]
    if not outside:
        tables += _relay_tables(root, plan, place, network, size)
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {write_value(value)}\n" for key, value in table.items())
        for name, table in tables
    )


def _relay_tables(
    root: Path, plan: Plan, place: Place, network: str, size: int
) -> list[tuple[str, dict[str, object]]]:
    channel: dict[str, object] = {
        "id": 1,
        "topic": TOPIC,
        "min_chunks": plan.min_chunks,
        "num_chunks": plan.num_chunks,
        "attesting": plan.attesting.value,
        "max_block": size + CODEC_ROOM,
    }
    if place.role is not Role.MEMBER:  # clusters need not know what they carry
        channel["codec"] = "zstd"
        if place.fault is Fault.NONE:  # a producer that judges what it sends would not send it
            channel["validator"] = "bitcoin"
    relay: dict[str, object] = {"roles": [place.role.value]}
    if place.role is Role.PRODUCER:
        relay["selector"] = f"{plan.selector}-selector"
    if place.fault is Fault.FORGETS:
        relay["audit"] = ""
    tables: list[tuple[str, dict[str, object]]] = [
        ("relay", relay),
        ("relay.params", msgspec.to_builtins(plan.params)),
        (f"relay.channels.{CHANNEL}", channel),
        ("plugins.marketplace-file", {"file": str((root / MARKETPLACE).absolute())}),
        ("plugins.bitcoin", {"network": network}),
    ]
    if place.role is Role.PRODUCER and plan.selector == "reputation":
        file = root / "reputation.toml"
        file.write_text("".join(f'"{each}" = {each / 10}\n' for each in plan.clusters))
        tables.append(("plugins.reputation-selector", {"file": str(file.absolute())}))
    return tables
