"""The systems that the block bench compares: what each is, and how it brings a block.

A system is started on an emulated network, one process at each node, and then sends
blocks, one at a time, from node 0. What is measured of it from outside is the bench's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec

from bench.emulation.network import Network
from bench.lab import TOPIC, At, connect, subscribe, until_known
from bench.remote import BenchError, Remote
from bruit.node.sim.topologies import sparse_random

DEGREE = 10  # neighbours of a node of the sixteen, so that meshes of 8 can be had
AT_A_TIME = 4  # processes that start beside each other: guess, of Python two keep a core busy
PUBLISH_TIMEOUT = 60.0  # seconds for an API to take a block


class Block(msgspec.Struct, frozen=True):
    path: Path
    size: int  # bytes
    sha256: str  # hexadecimal


class Delivery(msgspec.Struct, frozen=True):
    """How one block came."""

    began: int  # ns of the clock, just before it was published
    # ns of the clock, when each node's application had the block and had checked its hash; by
    # node, without node 0; 0 where it does not have it
    arrived: tuple[int, ...]


class Session(Protocol):
    """A system that runs."""

    versions: dict[str, str]

    def send(self, block: Block, timeout: float) -> Delivery:
        """Publish a block at node 0; return when all have it, or after ``timeout`` seconds."""

    def cpu(self) -> float:
        """CPU seconds that all its processes have taken so far."""


# Starts a process at each node of a network, connects them as the system needs it, and ends
# all of them after the block. No two blocks that a session sends are equal.
System = Callable[[Network], AbstractContextManager[Session]]


class GossipSession:
    """Nodes that publish and receive whole blocks by PROTOCOL.md, on one topic."""

    def __init__(self, remotes: Sequence[Remote]) -> None:
        self.versions = remotes[0].versions
        self._remotes = remotes

    def cpu(self) -> float:
        return sum(remote.cpu() for remote in self._remotes)

    def send(self, block: Block, timeout: float) -> Delivery:
        producer, *receivers = self._remotes
        for receiver in receivers:
            receiver.ask("expect", size=block.size, sha256=block.sha256)
        published = producer.order("publish_file", node=0, topic=TOPIC, path=str(block.path))
        waiting = [
            (receiver, receiver.order("arrived", sha256=block.sha256, timeout=timeout))
            for receiver in receivers
        ]
        answer = producer.result(published, PUBLISH_TIMEOUT, "answer to publish_file")
        if not answer["taken"]:
            raise BenchError(f"{producer.name} refused the block")
        arrived = [
            receiver.result(each, timeout + PUBLISH_TIMEOUT, "answer to arrived")["times"][0]
            for receiver, each in waiting
        ]
        return Delivery(answer["began"], tuple(arrived))


@contextmanager
def gossip(name: str, command: Sequence[str], seed: int, network: Network) -> Iterator[Session]:
    """A gossipsub that `bench.mesh` measures, with its defaults; the same graph for all."""
    with ExitStack() as stack:
        remotes = peers(stack, name, command, network)
        meshed(remotes, seed)
        yield GossipSession(remotes)


def meshed(remotes: Sequence[Remote], seed: int) -> None:
    """Subscribe all, and connect them as `graph` says."""
    nodes = [At(remote) for remote in remotes]
    pairs = graph(len(nodes), seed)
    for node in nodes:
        subscribe(node)
    connect([(nodes[dialler], nodes[to]) for dialler, to in pairs])
    for index, node in enumerate(nodes):
        until_known(node, sum(index in pair for pair in pairs))


def peers(
    stack: ExitStack,
    name: str,
    command: Sequence[str],
    network: Network,
    extra: Sequence[Mapping[str, object]] = (),
) -> list[Remote]:
    """A process of PROTOCOL.md at each node, listening; ``stack`` ends them.

    ``extra``: what each node's process is told beside the settings of all.
    """
    remotes: list[Remote] = []
    for node, address in enumerate(network.addresses):
        if node >= AT_A_TIME:
            remotes[node - AT_A_TIME].listen()
        settings: dict[str, object] = {"nodes": 1, "policy": "sign", "heartbeats": False}
        settings |= {"listen": address} | (extra[node] if extra else {})
        remote = Remote(f"{name}-{node}", network.command(node, command), settings)
        remotes.append(stack.enter_context(remote))
    for remote in remotes[-AT_A_TIME:]:
        remote.listen()
    return remotes


def graph(count: int, seed: int) -> list[tuple[int, int]]:
    """Who dials whom."""
    return sparse_random(count, min(DEGREE, count - 1), Random(seed))


def gossip_systems(commands: Mapping[str, Sequence[str]], seed: int) -> dict[str, System]:
    """``commands``: system → how a peer is started."""
    return {name: partial(gossip, name, command, seed) for name, command in commands.items()}
