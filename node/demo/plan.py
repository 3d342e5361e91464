"""What a run of the demonstration will do, decided by its seed before anything starts."""

import random

import msgspec

from bruit.node.sim.topologies import Pair, sparse_random
from bruit.topics.errors import LocalError

DEGREE = 4  # links per node
SHARED_PROCESSES = 2  # for all nodes that are not going to be killed
MAX_NODES = 64  # of one machine; guess
_DRAWS = 1000  # of victims, before giving up; guess


class Plan(msgspec.Struct, frozen=True):
    nodes: int
    pairs: tuple[Pair, ...]  # (dialer, listener)
    publisher: int
    victims: tuple[int, ...]  # killed while the block is under way
    groups: tuple[tuple[int, ...], ...]  # the nodes of each process; a victim has one to itself

    def neighbours(self) -> dict[int, list[int]]:
        return _neighbours(self.nodes, self.pairs)

    @property
    def survivors(self) -> list[int]:
        return [node for node in range(self.nodes) if node not in self.victims]


def make_plan(nodes: int, kill: int, rng: random.Random) -> Plan:
    """A random connected network, its publisher, and whom to kill.

    Victims are drawn until those who remain are still connected: no protocol
    delivers where there is no way. Raises LocalError for impossible numbers.
    """
    if not 2 <= nodes <= MAX_NODES:
        raise LocalError(f"--nodes {nodes}: use 2 to {MAX_NODES}")
    if not 0 <= kill <= nodes - 2:
        raise LocalError(f"--kill {kill}: of {nodes} nodes, at most {nodes - 2} can be killed")
    pairs = tuple(sparse_random(nodes, DEGREE, rng))
    publisher = rng.randrange(nodes)
    others = [node for node in range(nodes) if node != publisher]
    for _ in range(_DRAWS):
        victims = tuple(sorted(rng.sample(others, kill)))
        if _reached(publisher, victims, nodes, pairs) == nodes - kill:
            return Plan(nodes, pairs, publisher, victims, _groups(nodes, victims))
    raise LocalError(f"--kill {kill}: the network of this seed would fall apart; kill fewer")


def _groups(nodes: int, victims: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    survivors = [node for node in range(nodes) if node not in victims]
    shared = [tuple(survivors[each::SHARED_PROCESSES]) for each in range(SHARED_PROCESSES)]
    return tuple(group for group in shared if group) + tuple((victim,) for victim in victims)


def _neighbours(nodes: int, pairs: tuple[Pair, ...]) -> dict[int, list[int]]:
    neighbours: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for one, other in pairs:
        neighbours[one].append(other)
        neighbours[other].append(one)
    return neighbours


def _reached(start: int, gone: tuple[int, ...], nodes: int, pairs: tuple[Pair, ...]) -> int:
    """How many nodes can be reached from ``start`` without those that are gone."""
    neighbours = _neighbours(nodes, pairs)
    seen, frontier = {start: None}, [start]
    while frontier:
        for node in neighbours[frontier.pop()]:
            if node not in seen and node not in gone:
                seen[node] = None
                frontier.append(node)
    return len(seen)
