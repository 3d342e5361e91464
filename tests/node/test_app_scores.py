"""When plugins are asked about peers, and what of it is said to the router."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import get_ident
from typing import Any

import msgspec
import trio
import trio.testing

from bruit.node.app_scores import INTERVAL, AppScores, Scored
from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.registry import PluginRegistry
from bruit.topics.keys import PeerId

ONE, TWO, THREE = b"one", b"two", b"three"
TIMEOUT = 10.0  # seconds, of a test that has gone wrong


class NoSettings(msgspec.Struct, frozen=True):
    pass


class Chain:
    """A plugin whose opinions a test writes down, and which notes what it was asked."""

    def __init__(self) -> None:
        self.opinions: dict[PeerId, Any] = {}
        self.asked: list[PeerId] = []
        self.threads: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def opinion(self, peer: PeerId) -> Any:
        self.before()
        self.asked.append(peer)
        self.threads.append(get_ident())
        return self.opinions.get(peer, 0)


class Asking:
    """App scores that run, and the rounds of answers that came."""

    def __init__(self, chain: Chain) -> None:
        class Plugin:
            Config = NoSettings

            def __init__(self, config: NoSettings) -> None:
                pass

            @hookimpl
            def app_score(self, peer: PeerId) -> Any:
                return chain.opinion(peer)

        registry = PluginRegistry.discover(extra={"chain": Plugin})
        self._send, self._rounds = trio.open_memory_channel[Scored](100)
        self.scores = AppScores(
            registry.app_scorer(["chain"], "scoring.app_scores"), self._send.send_nowait
        )

    async def round(self) -> Scored:
        """The answers of the next round."""
        return await self._rounds.receive()

    def nothing_more(self) -> bool:
        return self._rounds.statistics().current_buffer_used == 0


@asynccontextmanager
async def asking(chain: Chain) -> AsyncIterator[Asking]:
    running = Asking(chain)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.scores.run)
        await trio.testing.wait_all_tasks_blocked()
        yield running
        nursery.cancel_scope.cancel()


async def test_a_peer_is_asked_about_as_soon_as_it_is_connected(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    chain.opinions = {ONE: 3, TWO: -1.5}
    async with asking(chain) as running:
        running.scores.joined(ONE)
        assert await running.round() == ((ONE, 3),)
        running.scores.joined(TWO)
        assert await running.round() == ((TWO, -1.5),)
        assert chain.asked == [ONE, TWO]


async def test_every_connected_peer_is_asked_about_again_and_only_changes_are_told(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    async with asking(chain) as running:
        for peer in (ONE, TWO, THREE):
            running.scores.joined(peer)
        assert await running.round() == ((ONE, 0), (TWO, 0), (THREE, 0))
        chain.opinions[TWO] = 7
        mock_clock.jump(INTERVAL - 0.1)
        await trio.testing.wait_all_tasks_blocked()
        assert running.nothing_more()
        mock_clock.jump(0.1)
        assert await running.round() == ((TWO, 7),)
        mock_clock.jump(INTERVAL)
        assert await running.round() == ()
        assert chain.asked == [ONE, TWO, THREE] * 3


async def test_a_peer_that_has_left_is_asked_about_no_more_and_is_new_when_it_is_back(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    chain.opinions = {ONE: 3}
    async with asking(chain) as running:
        running.scores.joined(ONE)
        assert await running.round() == ((ONE, 3),)
        running.scores.left(ONE)
        mock_clock.jump(INTERVAL)
        assert await running.round() == ()
        assert chain.asked == [ONE]
        running.scores.joined(ONE)
        assert await running.round() == ((ONE, 3),)  # the router may have forgotten


async def test_what_is_said_of_a_peer_that_leaves_meanwhile_is_not_told(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    chain.opinions = {ONE: 3, TWO: 4}
    async with asking(chain) as running:
        chain.before = lambda: trio.from_thread.run_sync(running.scores.left, ONE)
        running.scores.joined(ONE)
        running.scores.joined(TWO)
        assert await running.round() == ((TWO, 4),)


async def test_a_peer_that_comes_and_goes_at_once_is_not_asked_about(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    async with asking(chain) as running:
        running.scores.joined(ONE)
        running.scores.left(ONE)
        running.scores.joined(TWO)
        assert await running.round() == ((TWO, 0),)
        assert chain.asked == [TWO]


async def test_plugins_are_asked_in_a_thread_and_one_question_at_a_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    async with asking(chain) as running:

        def another_joins() -> None:
            chain.before = lambda: None
            trio.from_thread.run_sync(running.scores.joined, TWO)

        chain.before = another_joins
        running.scores.joined(ONE)
        assert await running.round() == ((ONE, 0),)
        assert await running.round() == ((TWO, 0),)
    assert get_ident() not in chain.threads


async def test_a_plugin_that_fails_says_nothing_of_the_peer_and_the_asking_goes_on(
    mock_clock: trio.testing.MockClock,
) -> None:
    chain = Chain()
    chain.opinions = {ONE: float("nan"), TWO: 2}
    async with asking(chain) as running:
        running.scores.joined(ONE)
        running.scores.joined(TWO)
        assert await running.round() == ((ONE, 0), (TWO, 2))
        chain.opinions[ONE] = 1
        mock_clock.jump(INTERVAL)
        assert await running.round() == ((ONE, 1),)


async def test_without_plugins_nothing_runs() -> None:
    scorer = PluginRegistry.discover().app_scorer([], "scoring.app_scores")
    with trio.fail_after(TIMEOUT):
        await AppScores(scorer, lambda answers: None).run()
