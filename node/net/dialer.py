"""Whom we call: configured peers for ever, and once each whom the router asks for."""

import random
from collections.abc import Callable

import trio
from libp2p.abc import IHost
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from bruit.node.gossip.actions import Connect
from bruit.node.gossip.redial import RedialPauses
from bruit.node.net.host import NETWORK_ERRORS, record_addresses
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId

DIAL_TIMEOUT = 15.0  # seconds for one address; go-libp2p's DialPeerTimeout is 60, its swarm's 15
FIRST_PAUSE = 1.0  # seconds after a failure, doubling; guess
LONGEST_PAUSE = 60.0  # seconds; guess
JITTER = 0.2  # share of a pause that is random, so that restarted peers do not call in step
CHECK_INTERVAL = 1.0  # seconds between looks at whether a kept peer is still connected
MAX_DIALS = 8  # calls at once for peer exchange (go-libp2p-pubsub GossipSubConnectors)
MAX_ADDRESSES = 4  # of one peer that are tried; guess: a record from peer exchange names hundreds


class Dialer:
    def __init__(self, host: IHost, rng: random.Random, on_failure: Callable[[PeerId, str], None]):
        self._host = host
        self._rng = rng
        self._on_failure = on_failure
        self._nursery: trio.Nursery | None = None
        self._dials = trio.CapacityLimiter(MAX_DIALS)
        self._dialling: dict[PeerId, None] = {}
        self._pauses = RedialPauses(rng)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def keep(self, peer: PeerId, addresses: list[Multiaddr]) -> None:
        """Stay connected to a peer: dial it now and, with growing pauses, whenever it is lost."""
        if self._nursery is not None:
            self._nursery.start_soon(self._keep, peer, addresses)

    def once(self, action: Connect) -> None:
        """Dial a peer unless that is under way, or too much is.

        Whom peer exchange names again and again is dialled after growing pauses,
        then not at all for a time: else a PRUNE could set many nodes on a victim.
        """
        busy = len(self._dialling) >= 16 * MAX_DIALS  # go-libp2p-pubsub: 128 pending
        if self._nursery is None or action.peer in self._dialling or busy:
            return
        pause = (
            self._pauses.before_next(action.peer, trio.current_time())
            if not action.addresses
            else 0.0
        )
        if pause is None:
            return
        self._dialling[action.peer] = None
        self._nursery.start_soon(self._once, action, pause)

    async def dial(self, peer: PeerId, addresses: list[Multiaddr]) -> None:
        """Connect, trying the addresses in turn. Raises one of NETWORK_ERRORS or TooSlowError.

        `IHost.connect` would try one address of its own choice, and after a
        failure none at all for a minute.
        """
        network = self._host.get_network()
        problem: Exception = SwarmException("no address is known")
        for address in addresses[:MAX_ADDRESSES]:
            try:
                with trio.fail_after(DIAL_TIMEOUT):
                    await network.dial_addr(address, ID(peer))
                    return
            except (*NETWORK_ERRORS, trio.TooSlowError) as failure:
                problem = failure
        raise problem

    def connected(self, peer: PeerId) -> bool:
        return bool(self._host.get_network().get_connections(ID(peer)))

    async def _keep(self, peer: PeerId, addresses: list[Multiaddr]) -> None:
        pause = FIRST_PAUSE
        while True:
            if self.connected(peer):
                pause = FIRST_PAUSE
                await trio.sleep(CHECK_INTERVAL)
                continue
            try:
                await self.dial(peer, addresses)
            except (*NETWORK_ERRORS, trio.TooSlowError) as problem:
                self._on_failure(peer, str(problem) or type(problem).__name__)
            else:
                await trio.sleep(CHECK_INTERVAL)
                if self.connected(peer):
                    continue
                # One of us hung up at once, for a ban perhaps: that is a failure, too.
            await trio.sleep(pause * (1 + JITTER * self._rng.random()))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _once(self, action: Connect, pause: float) -> None:
        try:
            await trio.sleep(pause)
            async with self._dials:
                addresses = [Multiaddr(address) for address in action.addresses]
                if action.record:
                    addresses += record_addresses(action.peer, action.record)
                if not self.connected(action.peer):
                    await self.dial(action.peer, addresses)
        except (*NETWORK_ERRORS, trio.TooSlowError, RemoteError) as problem:
            self._on_failure(action.peer, str(problem) or type(problem).__name__)
        finally:
            del self._dialling[action.peer]
