"""What ours and one other implementation do together: one function a scenario.

A scenario raises `InteropError` where something promised does not happen, and returns
a few words on what did. What must hold in every one of them is checked after it
by `verify`.
"""

from collections.abc import Awaitable, Callable

import trio

from bruit.node.gossip.events import Protocol
from tests.interop.peer import OURS, InteropError, Network, Peer
from tests.interop.protocol import Status

NEWEST = Protocol.GOSSIPSUB_12.value
SMALL, LARGE = 1000, 900_000  # bytes of a message
PATIENCE = 20.0  # seconds for what takes a second or two on an idle machine
SETTLE = 0.5  # seconds in which a copy too many would arrive
QUICK = 0.4  # seconds between heartbeats, of which go counts 15 before it looks at backoffs
SKEW = 0.2  # seconds that two observations of the same moment may differ

Scenario = Callable[[Network, str], Awaitable[str]]


async def verify(network: Network) -> None:
    """Nobody got anything twice or changed; no score on a link with ours was ever below 0.

    Ours found nothing invalid; what others found invalid of ours shows in their scores. Every
    link with ours is of the newest protocol that ours speaks.
    """
    names = {peer.id: peer for peer in network.peers}
    for peer in network.running():
        status = await peer.status()
        if status.rejected and peer.kind == OURS:
            raise InteropError(f"{peer} rejected {status.rejected} messages")
        for tag, tally in status.received.items():
            if tally.repeated or tally.wrong:
                raise InteropError(f"{peer} got of {tag} {tally}")
        for neighbour, known in status.peers.items():
            other = names[neighbour]
            if OURS not in (peer.kind, other.kind):
                continue  # none of our business
            if known.lowest is not None and known.lowest < 0:
                raise InteropError(f"{peer} gave {other} a score of {known.lowest:g}")
            if known.protocol != NEWEST:
                raise InteropError(f"{peer} speaks {known.protocol} with {other}, not {NEWEST}")


# --- messages both ways -----------------------------------------------------------


async def signed(network: Network, kind: str) -> str:
    """Signed messages of both sizes; ours dials."""
    ours, theirs = await _pair(network, kind, "sign")
    await ours.connect(theirs)
    return await _exchange(ours, theirs)


async def unsigned(network: Network, kind: str) -> str:
    """StrictNoSign, with message ids from content; the other side dials."""
    ours, theirs = await _pair(network, kind, "nosign")
    await theirs.connect(ours)
    return await _exchange(ours, theirs)


async def _pair(network: Network, kind: str, policy: str) -> tuple[Peer, Peer]:
    # P3 is on, and becomes active while messages still flow.
    ours, theirs = [
        await network.start(each, policy=policy, expected_deliveries=5, activation=3.0)
        for each in (OURS, kind)
    ]
    await _subscribe(ours, theirs)
    return ours, theirs


async def _exchange(ours: Peer, theirs: Peer) -> str:
    small, large = 200, 3
    await ours.until_meshed(theirs)
    await theirs.until_meshed(ours)
    async with trio.open_nursery() as nursery:
        for peer in (ours, theirs):
            nursery.start_soon(_publish_both_sizes, peer, small, large)
    for peer, other in ((ours, theirs), (theirs, ours)):
        await peer.until_received(f"{other}.small", small, PATIENCE)
        await peer.until_received(f"{other}.large", large, PATIENCE)
    await trio.sleep(SETTLE)
    return f"{small} of {SMALL} bytes and {large} of {LARGE} each way"


async def _publish_both_sizes(peer: Peer, small: int, large: int) -> None:
    await peer.publish(f"{peer}.small", small, SMALL, rate=40)
    await peer.publish(f"{peer}.large", large, LARGE)


# --- gossip -----------------------------------------------------------------------


async def repaired_from_ours(network: Network, kind: str) -> str:
    """Messages that ours does not push to them reach them by IHAVE and IWANT."""
    # More ids than rust takes in a frame.
    return await _repair(network, publisher=kind, middle=OURS, end=kind, small=600)


async def repaired_from_theirs(network: Network, kind: str) -> str:
    """Messages that they do not push to ours reach ours by IHAVE and IWANT."""
    # Ours asks for no more than 4 MiB at once, hence for 4 messages of 1 MiB at most; js gives
    # away 10 times a heartbeat. What is more is asked for again at the next.
    return await _repair(network, publisher=kind, middle=kind, end=OURS, small=60)


async def _repair(network: Network, *, publisher: str, middle: str, end: str, small: int) -> str:
    """Publisher – middle – end, where a backoff keeps middle and end out of their meshes."""
    large = 3
    first, second, last = [
        await network.start(each, prune_backoff=60, unsubscribe_backoff=60)
        for each in (publisher, middle, end)
    ]
    await _subscribe(first, second, last)
    await first.connect(second)
    await last.connect(second)
    for one, other in ((first, second), (last, second)):
        await one.until_meshed(other)
        await other.until_meshed(one)
    await last.order("unsubscribe")
    await second.until(_left_by(last), PATIENCE, f"{last} gone")
    await last.order("subscribe")
    for one, other in ((second, last), (last, second)):
        await one.until(_knows_of(other), PATIENCE, f"{other} subscribed, not in its mesh")
    await first.publish("small", small, SMALL)
    await first.publish("large", large, LARGE)
    for peer in (second, last):
        await peer.until_received("small", small, PATIENCE)
        await peer.until_received("large", large, PATIENCE)
    for one, other in ((second, last), (last, second)):
        await one.until(_knows_of(other), 0.5, f"{other} still not in its mesh")
    served, asked = await second.status(), await last.status()
    _at_least("IHAVE ids sent", small + large, served.sent.ihave, asked.got.ihave)
    _at_least("IWANT ids sent", small + large, asked.sent.iwant, served.got.iwant)
    return f"{small} of {SMALL} bytes and {large} of {LARGE}"


def _knows_of(other: Peer) -> Callable[[Status], bool]:
    def holds(status: Status) -> bool:
        neighbour = status.neighbour(other.id)
        return neighbour.ready and not neighbour.mesh

    return holds


def _left_by(other: Peer) -> Callable[[Status], bool]:
    def holds(status: Status) -> bool:
        neighbour = status.neighbour(other.id)
        return not neighbour.subscribed and not neighbour.mesh

    return holds


def _at_least(what: str, wanted: int, *counted: int | None) -> None:
    for count in counted:
        if count is not None and count < wanted:
            raise InteropError(f"{what}: {count}, fewer than {wanted}")


async def unwanted_by_theirs(network: Network, kind: str) -> str:
    """What they say they do not want while ours still validates it, ours does not send on."""
    count, ours, theirs = await _triangle(network, kind, ours_takes=0.4, theirs_take=0.8)
    status, their_status = await ours.status(), await theirs.status()
    if status.forwarded:
        raise InteropError(f"{ours} sent {status.forwarded} messages on in spite of IDONTWANT")
    if their_status.duplicates:
        raise InteropError(f"{theirs} got {their_status.duplicates} messages that it has twice")
    _at_least("IDONTWANT ids sent", count, their_status.sent.idontwant)
    return f"{count} of {count} messages not sent on"


async def unwanted_by_ours(network: Network, kind: str) -> str:
    """What ours says it does not want while they still validate it, they do not send on."""
    count, ours, theirs = await _triangle(network, kind, ours_takes=0.8, theirs_take=0.4)
    status, their_status = await ours.status(), await theirs.status()
    if status.duplicates:
        raise InteropError(f"{ours} got {status.duplicates} messages in spite of its IDONTWANT")
    _at_least("IDONTWANT ids", count, status.sent.idontwant, their_status.got.idontwant)
    return f"{count} of {count} messages not sent on"


async def _triangle(
    network: Network, kind: str, *, ours_takes: float, theirs_take: float
) -> tuple[int, Peer, Peer]:
    """Ours and one of theirs get the same messages from a third, and validate them slowly.

    Everybody is in everybody's mesh. Whoever is done first would send the message to the
    other, which does not have to wait for its validation to say that it has it. Returns the
    number of messages, ours and theirs.
    """
    count, size = 6, 2000
    third = await network.start(kind)
    ours = await network.start(OURS, validation_delay=ours_takes)
    theirs = await network.start(kind, validation_delay=theirs_take)
    everybody = (third, ours, theirs)
    await _subscribe(*everybody)
    await ours.connect(third)
    await ours.connect(theirs)
    await third.connect(theirs)
    for peer in everybody:
        await peer.until_meshed(*(other for other in everybody if other is not peer))
    await third.publish("unwanted", count, size, rate=1)  # each is validated before the next
    for peer in (ours, theirs):
        await peer.until_received("unwanted", count, PATIENCE)
    await trio.sleep(SETTLE)
    return count, ours, theirs


# --- GRAFT, PRUNE and backoff -------------------------------------------------------


async def left_by_ours(network: Network, kind: str) -> str:
    """Ours leaves the topic and comes back: PRUNE with backoff, and no GRAFT before its end."""
    backoff = 4
    ours, theirs = await _meshed_pair(network, kind, heartbeat=QUICK, unsubscribe_backoff=backoff)
    left = trio.current_time()
    await ours.order("unsubscribe")
    await theirs.until(_left_by(ours), PATIENCE, f"{ours} gone")
    seen = "not to be seen"
    if await _shows_control(theirs):
        prune = await theirs.hear("prune", ours, left, PATIENCE)
        if prune.line.backoff != backoff:
            raise InteropError(
                f"{theirs} got a PRUNE with backoff {prune.line.backoff}, not {backoff}"
            )
        seen = f"{backoff} s"
    await ours.order("subscribe")
    after = await _until_meshed_again(ours, theirs, left, backoff)
    for graft in theirs.heard("graft", ours, left):
        if graft.at < left + backoff - SKEW:
            raise InteropError(f"{theirs} got a GRAFT {graft.at - left:.1f} s after the PRUNE")
    return f"PRUNE with backoff: {seen}; in the mesh again after {after:.1f} s"


async def left_by_theirs(network: Network, kind: str) -> str:
    """They leave the topic and come back: no GRAFT from ours before the end of the backoff."""
    backoff = 4
    ours, theirs = await _meshed_pair(network, kind, heartbeat=QUICK, unsubscribe_backoff=backoff)
    left = trio.current_time()
    await theirs.order("unsubscribe")
    await ours.until(_left_by(theirs), PATIENCE, f"{theirs} gone")
    await theirs.order("subscribe")
    after = await _until_meshed_again(ours, theirs, left, backoff)
    for graft in theirs.heard("graft", ours, left):
        if graft.at < left + backoff - SKEW:
            raise InteropError(f"{theirs} got a GRAFT {graft.at - left:.1f} s after its PRUNE")
    return f"in the mesh again after {after:.1f} s, backoff {backoff} s"


async def full_mesh(network: Network, kind: str) -> str:
    """A mesh of one that has its one member answers GRAFT with PRUNE and backoff, each time."""
    backoff = 4
    timing = {"heartbeat": QUICK, "prune_backoff": backoff}
    ours = await network.start(OURS, d=1, d_lo=1, d_hi=1, d_out=0, **timing)
    first, second = [await network.start(kind, **timing) for _ in range(2)]
    await _subscribe(ours, first, second)
    await first.connect(ours)
    await first.until_meshed(ours)
    await ours.until_meshed(first)
    start = trio.current_time()
    await second.connect(ours)
    await ours.until(_knows_of(second), PATIENCE, f"{second} subscribed, not in the mesh")
    if not await _shows_control(second):
        await trio.sleep(2 * backoff)  # nothing to wait for: nothing may change
        await ours.until(_knows_of(second), SETTLE, f"{second} not in the mesh")
        return "refused; PRUNE not to be seen"
    refusal = await second.hear("prune", ours, start, PATIENCE)
    again = await second.hear("prune", ours, refusal.at + SKEW, PATIENCE)
    for prune in (refusal, again):
        if prune.line.backoff != backoff:
            raise InteropError(
                f"{second} got a PRUNE with backoff {prune.line.backoff}, not {backoff}"
            )
    if again.at - refusal.at < backoff - SKEW:
        raise InteropError(
            f"{second} was refused again after {again.at - refusal.at:.1f} s already"
        )
    return f"PRUNE with backoff: {backoff} s; again at the next GRAFT"


async def _meshed_pair(network: Network, kind: str, **settings: object) -> tuple[Peer, Peer]:
    ours, theirs = [await network.start(each, **settings) for each in (OURS, kind)]
    await _subscribe(ours, theirs)
    await ours.connect(theirs)
    await ours.until_meshed(theirs)
    await theirs.until_meshed(ours)
    return ours, theirs


async def _until_meshed_again(ours: Peer, theirs: Peer, left: float, backoff: int) -> float:
    """Seconds from ``left`` until both are in each other's mesh; that may not be too soon."""
    await ours.until_meshed(theirs, seconds=backoff + PATIENCE)
    await theirs.until_meshed(ours)
    after = trio.current_time() - left
    if after < backoff - SKEW:
        raise InteropError(
            f"in the mesh again after {after:.1f} s, in spite of {backoff} s of backoff"
        )
    return after


async def _shows_control(peer: Peer) -> bool:
    """Whether the implementation lets one see the PRUNEs that it gets."""
    return (await peer.status()).got.prune is not None


# --- restarts ---------------------------------------------------------------------


async def theirs_restarted(network: Network, kind: str) -> str:
    """They are killed, then stopped; ours dials them again each time, as a configured peer."""
    theirs = await network.start(kind)
    ours = await network.start(OURS, peers=(theirs.address,))
    await _subscribe(ours, theirs)
    await _talk(ours, theirs, "first")
    for name, end in (("killed", Peer.kill), ("stopped", Peer.stop)):
        await end(theirs)
        await ours.until(_disconnected(theirs), PATIENCE, f"{theirs} gone")
        theirs = await network.restart(theirs)
        await theirs.order("subscribe")
        await _talk(ours, theirs, name)
    return "killed, stopped: taken back"


async def ours_killed(network: Network, kind: str) -> str:
    """Ours is killed; started again it is taken back, and nothing held against it."""
    return await _restart_ours(network, kind, Peer.kill)


async def ours_stopped(network: Network, kind: str) -> str:
    """Ours stops; started again at once it is taken back, and nothing held against it."""
    return await _restart_ours(network, kind, Peer.stop)


async def _restart_ours(network: Network, kind: str, end: Callable[[Peer], Awaitable[None]]) -> str:
    theirs = await network.start(kind)
    ours = await network.start(OURS, peers=(theirs.address,))
    await _subscribe(ours, theirs)
    await _talk(ours, theirs, "before")
    await end(ours)
    await theirs.until(_disconnected(ours), PATIENCE, f"{ours} gone")
    ours = await network.restart(ours)
    await ours.order("subscribe")
    await _talk(ours, theirs, "after")
    return "taken back"


async def ours_reminded(network: Network, kind: str) -> str:
    """Ours, started again, is offered what it wrote before, and holds that against nobody."""
    count = 10
    theirs = await network.start(kind, heartbeat=2.0)  # they offer it for three heartbeats
    ours = await network.start(OURS, peers=(theirs.address,))
    await _subscribe(ours, theirs)
    await ours.until_meshed(theirs)
    await theirs.until_meshed(ours)
    await ours.publish("before", count, SMALL)
    await theirs.until_received("before", count, PATIENCE)
    await ours.kill()
    await theirs.until(_disconnected(ours), PATIENCE, f"{ours} gone")
    # It keeps no mesh, so that they have to tell it by gossip.
    ours = await network.restart(ours, d=0, d_lo=0, d_hi=0, d_out=0)
    await ours.order("subscribe")
    await theirs.until(
        lambda status: status.sent.ihave is None or status.sent.ihave >= count,
        PATIENCE,
        "IHAVE of what ours wrote",
    )
    await trio.sleep(SETTLE)
    return f"offered {count} of its own messages"


def _disconnected(other: Peer) -> Callable[[Status], bool]:
    return lambda status: other.id not in status.peers


async def _talk(ours: Peer, theirs: Peer, tag: str) -> None:
    """Wait until both are in each other's mesh, and exchange some messages."""
    count = 10
    await ours.until_meshed(theirs, seconds=2 * PATIENCE)
    await theirs.until_meshed(ours)
    for peer in (ours, theirs):
        await peer.publish(f"{tag}.{peer.kind}", count, SMALL)
    for peer, other in ((ours, theirs), (theirs, ours)):
        await peer.until_received(f"{tag}.{other.kind}", count, PATIENCE)


async def _subscribe(*peers: Peer) -> None:
    for peer in peers:
        await peer.order("subscribe")


SCENARIOS: dict[str, Scenario] = {
    "signed": signed,
    "unsigned": unsigned,
    "repaired-from-ours": repaired_from_ours,
    "repaired-from-theirs": repaired_from_theirs,
    "unwanted-by-ours": unwanted_by_ours,
    "unwanted-by-theirs": unwanted_by_theirs,
    "left-by-ours": left_by_ours,
    "left-by-theirs": left_by_theirs,
    "full-mesh": full_mesh,
    "theirs-restarted": theirs_restarted,
    "ours-killed": ours_killed,
    "ours-stopped": ours_stopped,
    "ours-reminded": ours_reminded,
}
