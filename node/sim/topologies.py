"""Who dials whom: graphs over the indices 0 … n-1.

Each function returns pairs ``(dialer, listener)``; no pair comes twice, in
neither direction, and nobody dials itself. Every graph is connected, whatever
the dice say. Nothing here knows of a network: the same lists serve
`bruit.node.sim.SimNetwork.connect_all` and real sockets.
"""

from random import Random

from bruit.topics.errors import LocalError

Pair = tuple[int, int]


def full(n: int) -> list[Pair]:
    """Everybody with everybody: n·(n - 1)/2 pairs."""
    _check(n)
    return [(dialer, listener) for dialer in range(n) for listener in range(dialer)]


def line(n: int) -> list[Pair]:
    """0 - 1 - 2 - …: the longest way that a message can have."""
    _check(n)
    return [(index, index - 1) for index in range(1, n)]


def ring(n: int) -> list[Pair]:
    """A line whose ends meet. Below three nodes it is the line."""
    return line(n) + ([(0, n - 1)] if n > 2 else [])


def star(n: int) -> list[Pair]:
    """Everybody dials node 0 and nobody else."""
    _check(n)
    return [(index, 0) for index in range(1, n)]


def tree(n: int, branching: int = 2) -> list[Pair]:
    """Each node but 0 dials its parent; a parent has ``branching`` children until they run out."""
    _check(n)
    if branching < 1:
        raise LocalError(f"tree with {branching} children per node: use 1 or more")
    return [(index, (index - 1) // branching) for index in range(1, n)]


def sparse_random(n: int, degree: int, rng: Random) -> list[Pair]:
    """A connected random graph in which every node has ``degree`` neighbours or a few more.

    It is a union of random rings (Law and Siu, "Distributed construction of
    random expander networks", INFOCOM 2003), so that each node dials about half
    of its neighbours and the first ring connects them all. Where rings share a
    pair, and for an odd ``degree``, nodes short of neighbours then dial random
    others, first among themselves. A ``degree`` of n - 1 or more gives `full`.
    Raises LocalError for a degree below 2, which cannot connect a network.
    """
    _check(n)
    if degree < 2:
        raise LocalError(f"random graph of degree {degree}: below 2 it is not connected")
    if degree >= n - 1:
        return full(n)
    neighbours: list[dict[int, None]] = [{} for _ in range(n)]
    pairs: list[Pair] = []

    def connect(dialer: int, listener: int) -> None:
        neighbours[dialer][listener] = None
        neighbours[listener][dialer] = None
        pairs.append((dialer, listener))

    order = list(range(n))
    for _ in range(degree // 2):
        rng.shuffle(order)
        for position, dialer in enumerate(order):
            listener = order[(position + 1) % n]
            if listener not in neighbours[dialer]:
                connect(dialer, listener)
    rng.shuffle(order)
    for dialer in order:
        while len(neighbours[dialer]) < degree:
            strangers = [
                each for each in order if each != dialer and each not in neighbours[dialer]
            ]
            short = [each for each in strangers if len(neighbours[each]) < degree]
            connect(dialer, rng.choice(short or strangers))
    return pairs


def _check(n: int) -> None:
    if n < 1:
        raise LocalError(f"topology of {n} nodes: use 1 or more")
