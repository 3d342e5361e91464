"""What a node does about its bans: whom it refuses, whom it hangs up on, what its router hears."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from bruit.node.ban_file import BanFile
from bruit.node.banning import BAN_FILE, Banning, edit_file
from bruit.node.gossip import events
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, peer_id_text

# Ids of Ed25519 keys: identity multihashes of 36 bytes (peer-ids.md).
ALICE, BOB = (bytes.fromhex("002408011220") + bytes([number]) * 32 for number in (1, 2))
NEAR, FAR = "/ip4/192.0.2.7/tcp/4001", "/ip4/198.51.100.7/tcp/4001"  # RFC 5737
TIMEOUT = 10.0  # seconds, of a test that has gone wrong


class Guarded:
    """Bans of a node that knows nobody but whom a test connects, and what came of them."""

    def __init__(self, directory: Path | None) -> None:
        self.connected: dict[PeerId, tuple[str, ...]] = {}
        self.events: list[events.Ban | events.Unban] = []
        self.hung_up: list[tuple[PeerId, str]] = []
        self.happened = trio.lowlevel.ParkingLot()
        self.banning = Banning(directory, self._addresses, self._feed, self._disconnect)

    def _addresses(self) -> list[tuple[PeerId, tuple[str, ...]]]:
        return list(self.connected.items())

    def _feed(self, event: events.Ban | events.Unban) -> None:
        self.events.append(event)
        self.happened.unpark_all()

    def _disconnect(self, peer: PeerId, reason: str) -> None:
        del self.connected[peer]
        self.hung_up.append((peer, reason))
        self.happened.unpark_all()


@asynccontextmanager
async def running(guarded: Guarded) -> AsyncIterator[None]:
    """Follows file and clock; a file that another program changes is noticed in real time."""
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(guarded.banning.run)
            yield
            nursery.cancel_scope.cancel()


async def test_a_banned_peer_is_refused_everywhere_and_the_router_is_told(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    await guarded.banning.load()
    assert guarded.banning.admit(ALICE, (NEAR,)) == ""
    made = await guarded.banning.ban(peer_id_text(ALICE), 60, "spam")
    assert made.reason == "spam"
    assert guarded.banning.admit(ALICE, (NEAR,)) == f"{peer_id_text(ALICE)} is banned: spam"
    assert guarded.banning.admit(BOB, (NEAR,)) == ""
    assert guarded.events == [events.Ban(ALICE)]


async def test_a_peer_with_several_connections_is_banned_at_each_of_their_addresses(
    tmp_path: Path,
) -> None:
    guarded = Guarded(tmp_path)
    guarded.connected = {ALICE: (FAR, NEAR), BOB: (FAR,)}
    await guarded.banning.load()
    await guarded.banning.ban("192.0.2.0/24", None, "")
    assert guarded.hung_up == [(ALICE, "192.0.2.0/24 is banned")]
    assert guarded.banning.admit(ALICE, (FAR, NEAR)) == "192.0.2.0/24 is banned"


async def test_whoever_is_connected_from_a_banned_subnet_is_hung_up_on(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.connected = {ALICE: (NEAR,), BOB: (FAR,)}
    await guarded.banning.ban("192.0.2.0/24", None, "")
    assert guarded.hung_up == [(ALICE, "192.0.2.0/24 is banned")]
    assert guarded.banning.admit(ALICE, (NEAR,)) == "192.0.2.0/24 is banned"
    assert guarded.banning.admit(ALICE, (FAR,)) == ""
    assert guarded.events == []  # the router knows of peers, not of addresses


async def test_a_ban_that_is_lifted_is_over_at_once(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    await guarded.banning.ban(peer_id_text(ALICE), None, "")
    assert await guarded.banning.unban(peer_id_text(ALICE))
    assert guarded.banning.admit(ALICE, (NEAR,)) == ""
    assert guarded.events == [events.Ban(ALICE), events.Unban(ALICE)]
    assert not await guarded.banning.unban(peer_id_text(ALICE))
    assert guarded.banning.bans() == ()


async def test_a_ban_made_again_is_no_news_to_the_router(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    await guarded.banning.ban(peer_id_text(ALICE), None, "once")
    await guarded.banning.ban(peer_id_text(ALICE), 60, "twice")
    assert guarded.events == [events.Ban(ALICE)]
    assert [ban.reason for ban in guarded.banning.bans()] == ["twice"]


async def test_bans_outlive_the_node(tmp_path: Path) -> None:
    await Guarded(tmp_path).banning.ban(peer_id_text(ALICE), None, "spam")
    guarded = Guarded(tmp_path)
    await guarded.banning.load()
    assert guarded.banning.admit(ALICE, (NEAR,))
    assert guarded.events == [events.Ban(ALICE)]


async def test_without_a_folder_bans_end_with_the_node(tmp_path: Path) -> None:
    guarded = Guarded(None)
    await guarded.banning.load()
    await guarded.banning.ban(peer_id_text(ALICE), None, "spam")
    assert guarded.banning.admit(ALICE, (NEAR,))
    assert await guarded.banning.unban(peer_id_text(ALICE))
    assert guarded.banning.admit(ALICE, (NEAR,)) == ""


@pytest.mark.parametrize("directory", [True, False])
async def test_what_cannot_be_banned_changes_nothing(tmp_path: Path, directory: bool) -> None:
    guarded = Guarded(tmp_path if directory else None)
    for target, seconds in (("nobody", 60.0), ("0.0.0.0/0", 60.0), (peer_id_text(ALICE), 0.0)):
        with pytest.raises(LocalError):
            await guarded.banning.ban(target, seconds, "")
    assert guarded.banning.bans() == ()
    assert guarded.events == []


async def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    await trio.Path(tmp_path / BAN_FILE).write_text("{")
    with pytest.raises(LocalError, match="move it away to start without bans"):
        await Guarded(tmp_path).banning.load()


async def test_what_another_program_writes_into_the_file_is_followed(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.connected = {BOB: (FAR,)}
    await guarded.banning.load()
    other = BanFile(tmp_path / BAN_FILE)
    async with running(guarded):
        edit_file(other, lambda bans: bans.ban("198.51.100.7", None, "spam", time.time()))
        await guarded.happened.park()
        assert guarded.hung_up == [(BOB, "198.51.100.7 is banned: spam")]
        edit_file(other, lambda bans: bans.ban(peer_id_text(ALICE), None, "", time.time()))
        await guarded.happened.park()
        assert guarded.events == [events.Ban(ALICE)]
        edit_file(other, lambda bans: bans.lift(peer_id_text(ALICE)))
        await guarded.happened.park()
        assert guarded.events == [events.Ban(ALICE), events.Unban(ALICE)]
        assert guarded.banning.admit(ALICE, (NEAR,)) == ""


async def test_a_ban_ends_when_its_time_is_over() -> None:
    guarded = Guarded(None)
    async with running(guarded):
        await guarded.banning.ban(peer_id_text(ALICE), 0.5, "")
        assert guarded.events == [events.Ban(ALICE)]
        await guarded.happened.park()
        assert guarded.events == [events.Ban(ALICE), events.Unban(ALICE)]
        assert guarded.banning.bans() == ()


async def test_bans_that_are_over_leave_the_file_with_the_next_change(tmp_path: Path) -> None:
    file = BanFile(tmp_path / BAN_FILE)
    with file.edit() as bans:
        bans.ban("192.0.2.7", 1, "long ago", now=time.time() - 1000)
    assert len(file.bans) == 1
    guarded = Guarded(tmp_path)
    await guarded.banning.ban("198.51.100.7", None, "now")
    file.reload()
    assert [ban.reason for ban in file.bans] == ["now"]


class Heard(logging.Handler):
    """Wakes whoever waits for a log record."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self.spoken = trio.lowlevel.ParkingLot()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.spoken.unpark_all()


async def test_a_file_that_goes_bad_leaves_the_bans_in_force_until_it_is_mended(
    tmp_path: Path,
) -> None:
    guarded, heard = Guarded(tmp_path), Heard()
    file = tmp_path / BAN_FILE
    await guarded.banning.ban(peer_id_text(ALICE), None, "spam")
    good = await trio.Path(file).read_text()
    logger = logging.getLogger("bruit.node.banning")
    logger.addHandler(heard)
    try:
        async with running(guarded):
            await trio.Path(file).write_text("{")
            await heard.spoken.park()
            assert guarded.banning.admit(ALICE, (NEAR,))
            await trio.Path(file).write_text(good)
            edit_file(BanFile(file), lambda bans: bans.lift(peer_id_text(ALICE)))
            await guarded.happened.park()
    finally:
        logger.removeHandler(heard)
    assert guarded.events == [events.Ban(ALICE), events.Unban(ALICE)]
    [text] = heard.texts
    assert text.endswith("; the bans read before stay in force")
