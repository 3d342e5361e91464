"""Forges messages: `python -m bench.flooder JSON`, told by lines as in PROTOCOL.md.

    {"address": "/ip4/…/p2p/…", "topic": "…"}

Well-formed messages of its own identity, each with another seqno and a signature of
random bytes, written over one raw gossipsub stream of a py-libp2p host, after a
subscription to the topic. "flood" with a "rate", messages a second, begins; "stop" ends
and answers how many it wrote, in how many seconds, over how many connections: where it
is disconnected it comes back at once, as the same peer.
"""

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import numpy as np
import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo

from bench.serving import PATTERN, Order, listening, orders_of, run, say
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.wire import message_frame
from bruit.node.identity import new_key
from bruit.node.net.host import NETWORK_ERRORS, new_host, parse_address
from bruit.node.net.host import listening as listening_host
from bruit.topics.keys import PeerId, PrivateKey
from bruit.topics.message_pb2 import PubsubMessage
from bruit.topics.uvarint import encode_uvarint

PROTOCOLS = ["/meshsub/1.2.0", "/meshsub/1.1.0", "/meshsub/1.0.0"]
SIZE = 1024  # bytes of a payload
WRITE = 65_507  # bytes at a time: with yamux's header and noise's tag one noise record
SIGNATURE = 64  # bytes, Ed25519
SEQNO_MARK = bytes(range(1, 9))  # where the seqno goes in the model of a frame
PAUSE = 0.01  # seconds before it comes back
TIMEOUT = 10.0  # seconds for a connection


class Target(msgspec.Struct, frozen=True):
    address: str
    topic: str


class Forgery:
    """Frames for one write; each time with new seqnos. Everything else is made beforehand."""

    def __init__(self, author: PeerId, topic: str) -> None:
        filling = (PATTERN * (SIZE // len(PATTERN) + 1))[:SIZE]
        model = PubsubMessage(
            author=author,
            data=filling,
            seqno=SEQNO_MARK,
            topic=topic,
            signature=bytes(SIGNATURE),
        ).SerializeToString()
        frame = message_frame(model)
        frame = encode_uvarint(len(frame)) + frame
        self.count = WRITE // len(frame)
        self._frames = np.tile(np.frombuffer(frame, dtype=np.uint8), (self.count, 1))
        at = frame.rindex(SEQNO_MARK)  # which no payload contains
        self._seqnos = self._frames[:, at : at + len(SEQNO_MARK)]
        random = np.frombuffer(os.urandom(self.count * SIGNATURE), dtype=np.uint8)
        self._frames[:, -SIGNATURE:] = random.reshape(self.count, SIGNATURE)
        self._next = time.time_ns()

    def write(self) -> bytes:
        seqnos = np.arange(self._next, self._next + self.count, dtype=">u8")
        self._seqnos[:] = seqnos.view(np.uint8).reshape(self.count, len(SEQNO_MARK))
        self._next += self.count
        return self._frames.tobytes()


def hello(topic: str) -> bytes:
    """The frame that subscribes: a peer without the topic is an odd case to some."""
    rpc = Rpc()
    rpc.subscriptions.add(subscribe=True, topic=topic)
    return encode_uvarint(rpc.ByteSize()) + rpc.SerializeToString()


class Flooder:
    def __init__(self, target: Target) -> None:
        self._key = new_key()
        self._target = target
        self._forgery = Forgery(self._key.public_key().peer_id(), target.topic)
        self._scope = trio.CancelScope()
        self._began = 0.0
        self.written = self.connections = 0

    async def flood(self, rate: float) -> None:
        self._began = time.monotonic()
        with self._scope:
            async with trio.open_nursery() as nursery:
                while True:
                    ended = trio.Event()
                    nursery.start_soon(self._visit, rate, ended)
                    await ended.wait()
                    await trio.sleep(PAUSE)

    async def _visit(self, rate: float, ended: trio.Event) -> None:
        """Write for as long as the other side takes it.

        With a host of its own each time: one that failed to dial waits before it tries
        again, and nobody waits here until the last one has closed.
        """
        async with host_of(self._key) as host:
            try:
                with suppress(*NETWORK_ERRORS, trio.TooSlowError):
                    await self._write(await self._open(host), rate)
            finally:
                ended.set()

    async def _open(self, host: IHost) -> INetStream:
        peer, address = parse_address(self._target.address, "address")
        with trio.fail_after(TIMEOUT):
            await host.connect(PeerInfo(ID(peer), [address]))
            self.connections += 1
            stream = await host.new_stream(ID(peer), list(map(TProtocol, PROTOCOLS)))
            await stream.write(hello(self._target.topic))
        return stream

    async def _write(self, stream: INetStream, rate: float) -> None:
        while True:
            ahead = self._began + self.written / rate - time.monotonic()
            await trio.sleep(min(max(0.0, ahead), TIMEOUT))
            await stream.write(self._forgery.write())
            self.written += self._forgery.count

    def stop(self) -> dict[str, object]:
        self._scope.cancel()
        seconds = time.monotonic() - self._began
        return {"written": self.written, "seconds": seconds, "connections": self.connections}


@asynccontextmanager
async def host_of(key: PrivateKey) -> AsyncIterator[IHost]:
    host = new_host(key, max_peers=1)
    for protocol in PROTOCOLS:
        host.set_stream_handler(TProtocol(protocol), discard)
    async with listening_host(host, ()):
        yield host


async def discard(stream: INetStream) -> None:
    """Read what the other side has to say."""
    with suppress(*NETWORK_ERRORS):
        while await stream.read(WRITE):
            pass


async def obey(orders: AsyncIterator[Order], flooder: Flooder, nursery: trio.Nursery) -> None:
    async for order in orders:
        answer: dict[str, object] = {"answer": order.id}
        match order.do:
            case "flood":
                nursery.start_soon(flooder.flood, order.rate)
            case "stop":
                answer |= flooder.stop()
            case unknown:
                answer["error"] = f"no such command: {unknown}"
        say(answer)


async def main() -> None:
    target = msgspec.json.decode(sys.argv[1], type=Target)
    async with (
        trio.open_nursery() as nursery,
        trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream,
    ):
        say(listening([], {}))
        await obey(orders_of(stream), Flooder(target), nursery)
        os._exit(0)


if __name__ == "__main__":
    run(main)
