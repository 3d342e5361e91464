"""`bruit.Node` that publishes a message as coded chunks, and rebuilds it from enough of them.

`python -m bench.peer_chunked JSON`, see PROTOCOL.md. What the commands publish and receive
are whole messages; each is 48 messages on the topic, any 32 of which give it back. There
are no clusters: the chunks go where gossipsub takes them.
"""

import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench import peer_ours
from bench.serving import Hosting, Node, Settings, Take, start
from bruit.node.relay.coding.code import Code

CODE = Code(32, 48)  # the shape that bench.block is asked for: 32 chunks of data, 16 more
ID_LENGTH = 16  # bytes of the message's SHA-256 that name it in its chunks: guess
HEAD = struct.Struct(f">{ID_LENGTH}sH")  # of a chunk: that, and its index


class ChunkingNode:
    def __init__(self, node: Node) -> None:
        self.peer = node.peer
        self.address = node.address
        self.connect = node.connect
        self.peers = node.peers
        self._node = node

    async def subscribe(self, topic: str, take: Take) -> None:
        await self._node.subscribe(topic, Rebuilding(take).add)

    async def publish(self, topic: str, data: bytes) -> bool:
        name = hashlib.sha256(data).digest()[:ID_LENGTH]
        taken = True
        for index, chunk in enumerate(CODE.encode(data)):
            taken &= await self._node.publish(topic, HEAD.pack(name, index) + chunk)
        return taken


class Rebuilding:
    """Hands each message on once, when enough of its chunks have come."""

    def __init__(self, take: Take) -> None:
        self._take = take
        # By the message's name. None: it is done.
        self._chunks: dict[bytes, dict[int, bytes] | None] = {}

    def add(self, data: bytes) -> None:
        name, index = HEAD.unpack_from(data)
        chunks = self._chunks.setdefault(name, {})
        if chunks is None:
            return
        chunks[index] = data[HEAD.size :]
        if len(chunks) == CODE.min_chunks:
            self._chunks[name] = None
            self._take(CODE.decode(chunks))


@asynccontextmanager
async def host(settings: Settings) -> AsyncIterator[Hosting]:
    async with peer_ours.host(settings) as hosting:
        yield Hosting(
            [ChunkingNode(node) for node in hosting.nodes], hosting.versions, hosting.heartbeats
        )


if __name__ == "__main__":
    start(host)
