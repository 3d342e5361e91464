"""One mesh of every implementation: what each node publishes reaches each other one once."""

from collections.abc import Callable, Sequence

import msgspec
import trio

from tests.interop.peer import OURS, InteropError, Network, Peer
from tests.interop.protocol import Status, Tally
from tests.interop.scenarios import SMALL

EACH = 3  # nodes of an implementation
MESSAGES = 200  # from every node
# Messages a second from every node. The ids of all nodes' last three heartbeats, 13 kB, are
# what go and js put into one IHAVE; with more than 16 kB rust would end their streams.
RATE = 8.0
ACTIVATION = 16.0  # seconds until missing deliveries count: the last third of the publishing
STEPS = (1, 2)  # how far along the ring the nodes are that each one dials
PATIENCE = 60.0  # seconds for the last message to arrive
SETTLE = 2.0  # seconds in which a copy too many would arrive


class Account(msgspec.Struct, frozen=True):
    """What became of all messages."""

    nodes: int
    sent: int  # messages published, times the nodes that each is for
    delivered: int  # different ones, over all nodes
    duplicates: int  # delivered to an application again
    wrong: int  # delivered with other bytes
    missing: dict[str, dict[str, int]]  # node → tag, named after its author → messages it lacks
    lowest_score_of_ours: float | None  # that any other implementation gave, at any time

    def check(self) -> None:
        """Raise InteropError unless every message reached every node once, as it was."""
        if self.delivered != self.sent or self.duplicates or self.wrong:
            raise InteropError(
                f"{self.delivered} of {self.sent} messages delivered, "
                f"{self.duplicates} again, {self.wrong} changed; missing: {self.missing}"
            )


def links(count: int) -> list[tuple[int, int]]:
    """Who dials whom: a ring in which each node dials the next ones, and is dialled by two."""
    return [(node, (node + step) % count) for node in range(count) for step in STEPS]


async def mixed(network: Network, kinds: list[str]) -> Account:
    """Run ``EACH`` nodes of ours and of each kind. Raises InteropError where they do not come up.

    Kinds take turns around the ring, so that every one is linked with every other.
    Each message is for all but its publisher, and most of them are nobody's neighbours.
    """
    order = [*kinds, OURS] * EACH
    peers = [
        # A mesh of fewer than all links, so that gossip has work to do, too.
        await network.start(
            kind,
            d=3,
            d_lo=2,
            d_hi=4,
            d_out=0,
            d_lazy=4,
            expected_deliveries=5,
            activation=ACTIVATION,
        )
        for kind in order
    ]
    for dialler, dialled in links(len(peers)):
        await peers[dialler].connect(peers[dialled])
    # Only now: from the first GRAFT on, whoever is in a mesh is expected to deliver.
    for peer in peers:
        await peer.order("subscribe")
    neighbours = 2 * len(STEPS)
    for peer in peers:
        await peer.until(_linked(neighbours), PATIENCE, f"{neighbours} neighbours and a mesh")
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(peer.publish, str(peer), MESSAGES, SMALL, RATE)
    wanted = (len(peers) - 1) * MESSAGES
    with trio.move_on_after(PATIENCE):  # what is missing after that is in the account
        for peer in peers:
            await peer.reaches(_delivered(wanted), PATIENCE)
    await trio.sleep(SETTLE)
    return await account(peers)


def _linked(neighbours: int) -> Callable[[Status], bool]:
    """Every link up, every neighbour subscribed, and some of them in the mesh."""

    def holds(status: Status) -> bool:
        near = status.peers.values()
        return sum(each.ready for each in near) >= neighbours and any(each.mesh for each in near)

    return holds


def _delivered(wanted: int) -> Callable[[Status], bool]:
    return lambda status: sum(tally.distinct for tally in status.received.values()) >= wanted


async def account(peers: Sequence[Peer]) -> Account:
    """Add up what every peer has received of all the others."""
    ours = {peer.id for peer in peers if peer.kind == OURS}
    tallies: list[Tally] = []
    scores: list[float] = []
    missing: dict[str, dict[str, int]] = {}
    for peer in peers:
        status = await peer.status()
        tallies += status.received.values()
        lacks = {
            str(other): MESSAGES - status.tally(str(other)).distinct
            for other in peers
            if other is not peer and status.tally(str(other)).distinct < MESSAGES
        }
        if lacks:
            missing[str(peer)] = lacks
        scores += [
            known.lowest
            for neighbour, known in status.peers.items()
            if neighbour in ours and known.lowest is not None
        ]
    return Account(
        nodes=len(peers),
        sent=len(peers) * (len(peers) - 1) * MESSAGES,
        delivered=sum(tally.distinct for tally in tallies),
        duplicates=sum(tally.repeated for tally in tallies),
        wrong=sum(tally.wrong for tally in tallies),
        missing=missing,
        lowest_score_of_ours=min(scores, default=None),
    )
