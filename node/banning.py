"""Keeps a running node to its bans: who may connect, whose messages pass, who has to go.

The bans are those of a file that other programs change too, so it is looked at
once a second. A node without a folder for its files has bans of its own, which
end with it.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import trio

from bruit.node.ban_file import BanFile
from bruit.node.gossip import events
from bruit.scoring.bans import Ban, Bans, parse_target
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId

BAN_FILE = "bans.json"  # in the folder of the node's files
INTERVAL = 1.0  # seconds between looks at the file, and at bans that are over; guess

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Banning:
    """The bans of one node. ``connected`` gives peers and their addresses (multiaddrs)."""

    def __init__(
        self,
        directory: Path | None,
        connected: Callable[[], Iterable[tuple[PeerId, tuple[str, ...]]]],
        feed: Callable[[events.Ban | events.Unban], None],
        disconnect: Callable[[PeerId, str], None],
    ) -> None:
        self._file = None if directory is None else BanFile(directory / BAN_FILE)
        self._own = Bans()  # without a file
        self._connected = connected
        self._feed = feed
        self._disconnect = disconnect
        self._told: dict[str, PeerId] = {}  # the banned peers that the router knows of
        self._next_end = math.inf  # unix seconds at which the next ban is over
        self._changing = trio.Lock()

    @property
    def _bans(self) -> Bans:
        return self._own if self._file is None else self._file.bans

    def admit(self, peer: PeerId, addresses: tuple[str, ...]) -> str:
        """Why the peer may not connect from these addresses; empty where it may."""
        now = time.time()
        for address in addresses or ("",):
            ban = self._bans.banning(peer, address, now)
            if ban is not None:
                return _reason(ban)
        return ""

    async def load(self) -> None:
        """Read the file before anybody is let in. Raises LocalError where it cannot be read."""
        if self._file is not None:
            await trio.to_thread.run_sync(self._file.reload)
        self._enforce()

    async def run(self) -> None:
        """Follow the file and the clock until cancelled."""
        while True:
            await trio.sleep(INTERVAL)
            if await self._reload() or time.time() >= self._next_end:
                self._enforce()

    async def _reload(self) -> bool:
        if self._file is None:
            return False
        try:
            async with self._changing:
                return await trio.to_thread.run_sync(self._file.reload)
        except LocalError as problem:
            _log.error("%s; the bans read before stay in force", problem)
            return False

    async def ban(self, target: str, seconds: float | None, reason: str) -> Ban:
        """Raises LocalError, with nothing changed, where that makes no sense or is not written."""
        ban = await self._edit(lambda bans: bans.ban(target, seconds, reason, time.time()))
        self._enforce()
        return ban

    async def unban(self, target: str) -> bool:
        """False where there was no such ban. Raises LocalError for an impossible target."""
        lifted = await self._edit(lambda bans: bans.lift(target))
        self._enforce()
        return lifted

    def bans(self) -> tuple[Ban, ...]:
        """Those that are in force."""
        now = time.time()
        return tuple(ban for ban in self._bans if not ban.over(now))

    async def _edit(self, change: Callable[[Bans], Result]) -> Result:
        if self._file is None:
            self._own.expire(time.time())
            return change(self._own)
        async with self._changing:
            return await trio.to_thread.run_sync(edit_file, self._file, change)

    def _enforce(self) -> None:
        """Tell the router of the peers that are banned, and hang up on whoever is."""
        in_force = self.bans()
        self._next_end = min((ban.until for ban in in_force if ban.until), default=math.inf)
        before, self._told = self._told, {}
        for ban in in_force:
            peer = before.get(ban.target) or _peer(ban)
            if peer is not None:
                self._told[ban.target] = peer
                if ban.target not in before:
                    self._feed(events.Ban(peer))
        for text, peer in before.items():
            if text not in self._told:
                self._feed(events.Unban(peer))
        for peer, addresses in list(self._connected()):
            reason = self.admit(peer, addresses)
            if reason:
                self._disconnect(peer, reason)


def edit_file(file: BanFile, change: Callable[[Bans], Result]) -> Result:
    """Change the bans in a file, and take out those that are over. Raises LocalError."""
    with file.edit() as bans:
        bans.expire(time.time())
        return change(bans)


def _peer(ban: Ban) -> PeerId | None:
    target = parse_target(ban.target)
    return target if isinstance(target, bytes) else None


def _reason(ban: Ban) -> str:
    return f"{ban.target} is banned: {ban.reason}" if ban.reason else f"{ban.target} is banned"
