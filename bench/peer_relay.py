"""A node of the relay as a peer of the block bench: `python -m bench.peer_relay JSON`.

See PROTOCOL.md. Beside what stands there the JSON object has `folder`, with the node's
configuration and keys, and `drops`: whether it is a member that takes and acknowledges chunks,
and forwards none of them. The topic of a command is the channel's. A block is published when
all its chunks are acknowledged, or have no way left.
"""

import importlib.metadata
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

import bruit
from bench.peer_ours import PACKAGES
from bench.remote import BenchError
from bench.serving import Hosting, Settings, Take, start
from bruit import Node
from bruit.node.demo.relay.faults import CheatingNode, DroppingMember
from bruit.node.relaying import Relay
from bruit.topics.errors import BruitError

CONFIG = "bruit.toml"


class RelaySettings(Settings, frozen=True):
    folder: str = ""
    drops: bool = False
    members: int = 0  # of all clusters


class RelayNode:
    """A consumer, and producer or member where its configuration says so."""

    def __init__(self, node: Node, relay: Relay, nursery: trio.Nursery) -> None:
        self.peer = node.peer_id_text
        self.address = node.addresses[0]
        self.connect = node.connect
        self._node = node
        self._relay = relay
        self._nursery = nursery

    async def subscribe(self, topic: str, take: Take) -> None:
        self._nursery.start_soon(self._read, topic, take)

    async def _read(self, topic: str, take: Take) -> None:
        async with self._relay.blocks(topic) as blocks:
            async for block in blocks:
                take(block.block)

    def peers(self, topic: str) -> int:
        return len(self._node.statistics().router.subscribers.get(topic, ()))

    async def publish(self, topic: str, data: bytes) -> bool:
        try:
            proof = await self._relay.broadcast(topic, data)
        except BruitError as problem:
            print(problem, file=sys.stderr, flush=True)  # into the log of the process
            return False
        given = sum(bool(receipt.acknowledgement) for receipt in proof.receipts)
        tried = sum(len(receipt.tried) for receipt in proof.receipts)
        print(
            f"{given} of {len(proof.receipts)} chunks acknowledged, sent to {tried} clusters",
            file=sys.stderr,
            flush=True,
        )
        return given > 0


@asynccontextmanager
async def host(_: Settings) -> AsyncIterator[Hosting]:
    settings = msgspec.json.decode(sys.argv[1], type=RelaySettings)
    config = Path(settings.folder, CONFIG)
    made = CheatingNode(config, DroppingMember) if settings.drops else Node(config)
    versions = {"bruit": bruit.__version__, "python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in PACKAGES}
    async with made as node, trio.open_nursery() as nursery:
        relay = node.relay
        assert relay is not None  # its configuration has roles
        known = sum(each.members for each in relay.status().clusters)
        if known < settings.members:
            raise BenchError(f"knows {known} of {settings.members} members")
        yield Hosting([RelayNode(node, relay, nursery)], versions)


if __name__ == "__main__":
    start(host)
