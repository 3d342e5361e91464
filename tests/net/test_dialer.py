"""Whom a node calls, and when again: in virtual time, against a network that is made up."""

import random
from collections.abc import Callable
from typing import cast

import pytest
import trio
from libp2p.abc import IHost
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from multiaddr import Multiaddr
from trio.testing import MockClock, wait_all_tasks_blocked

from bruit.node.gossip.actions import Connect
from bruit.node.net.dialer import (
    CHECK_INTERVAL,
    DIAL_TIMEOUT,
    FIRST_PAUSE,
    JITTER,
    LONGEST_PAUSE,
    MAX_ADDRESSES,
    MAX_DIALS,
    Dialer,
)
from bruit.topics.keys import PeerId

PEER: PeerId = b"\x00\x01p"
HOME = Multiaddr("/ip4/192.0.2.1/tcp/4001")
AWAY = Multiaddr("/ip4/192.0.2.2/tcp/4001")


class Network:
    """As much of a host and its network as a dialer uses: itself is both."""

    def __init__(self) -> None:
        self.answers: Callable[[str], str] = lambda _: "refuse"  # or "accept", or "hang"
        self.calls: list[tuple[float, PeerId, str]] = []  # when, whom, where
        self.connected: dict[PeerId, None] = {}

    @property
    def host(self) -> IHost:
        return cast(IHost, self)

    def get_network(self) -> "Network":
        return self

    def get_connections(self, peer: ID) -> list[str]:
        return ["connection"] if peer.to_bytes() in self.connected else []

    async def dial_addr(self, address: Multiaddr, peer: ID) -> None:
        self.calls.append((trio.current_time(), peer.to_bytes(), str(address)))
        await trio.lowlevel.checkpoint()
        match self.answers(str(address)):
            case "accept":
                self.connected[peer.to_bytes()] = None
            case "hang":
                await trio.sleep_forever()
            case _:
                raise SwarmException("refused")

    @property
    def times(self) -> list[float]:
        return [at for at, _, _ in self.calls]


class Failures:
    def __init__(self) -> None:
        self.told: list[tuple[PeerId, str]] = []

    def take(self, peer: PeerId, reason: str) -> None:
        self.told.append((peer, reason))


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
async def dialer(network: Network, failures: Failures, nursery: trio.Nursery) -> Dialer:
    dialer = Dialer(network.host, random.Random(1), failures.take)
    await nursery.start(dialer.run)
    return dialer


async def test_pauses_double_up_to_the_longest_each_a_little_longer_by_chance(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    dialer.keep(PEER, [HOME])
    await trio.sleep(600)
    pauses = [later - at for at, later in zip(network.times, network.times[1:], strict=False)]
    due = [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(len(pauses))]
    assert due[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(
        wanted <= pause <= wanted * (1 + JITTER) for wanted, pause in zip(due, pauses, strict=True)
    )
    assert len({pause / wanted for wanted, pause in zip(due, pauses, strict=True)}) == len(due)


async def test_two_nodes_that_lost_the_same_peer_do_not_call_it_in_step(
    network: Network, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    others = Network()
    for seed, each in enumerate((network, others)):
        dialer = Dialer(each.host, random.Random(seed), Failures().take)
        await nursery.start(dialer.run)
        dialer.keep(PEER, [HOME])
    await trio.sleep(100)
    assert not set(network.times[1:]) & set(others.times[1:])


async def test_every_failure_is_told_with_its_reason(
    autojump_clock: MockClock, dialer: Dialer, network: Network, failures: Failures
) -> None:
    dialer.keep(PEER, [HOME])
    await trio.sleep(10)
    assert len(network.calls) > 2
    assert failures.told == [(PEER, "refused")] * len(network.calls)


async def test_a_connected_peer_is_not_called(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    network.connected[PEER] = None
    dialer.keep(PEER, [HOME])
    await trio.sleep(100)
    assert network.calls == []


async def test_a_lost_peer_is_called_within_a_second_and_with_short_pauses_again(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    dialer.keep(PEER, [HOME])
    await trio.sleep(100)  # pauses have grown
    network.answers = lambda _: "accept"
    await trio.sleep(100)
    network.answers = lambda _: "refuse"
    before, lost = len(network.calls), trio.current_time()
    del network.connected[PEER]
    await trio.sleep(CHECK_INTERVAL + FIRST_PAUSE * (1 + JITTER))
    first, second = network.times[before : before + 2]
    assert first <= lost + CHECK_INTERVAL
    assert second - first <= FIRST_PAUSE * (1 + JITTER)


async def test_a_call_that_nobody_answers_is_given_up(
    autojump_clock: MockClock, dialer: Dialer, network: Network, failures: Failures
) -> None:
    network.answers = lambda _: "hang"
    dialer.keep(PEER, [HOME])
    await trio.sleep(DIAL_TIMEOUT + 0.5)
    assert failures.told == [(PEER, "TooSlowError")]


@pytest.mark.parametrize("first", ["refuse", "hang"])
async def test_where_one_address_fails_the_next_is_tried(
    first: str, autojump_clock: MockClock, dialer: Dialer, network: Network, failures: Failures
) -> None:
    network.answers = lambda address: first if address == str(HOME) else "accept"
    await dialer.dial(PEER, [HOME, AWAY])
    assert [address for _, _, address in network.calls] == [str(HOME), str(AWAY)]
    assert dialer.connected(PEER)


async def test_the_rest_is_left_alone_once_one_address_answers(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    network.answers = lambda _: "accept"
    await dialer.dial(PEER, [HOME, AWAY])
    assert [address for _, _, address in network.calls] == [str(HOME)]


async def test_a_peer_without_an_address_cannot_be_dialled(
    autojump_clock: MockClock, dialer: Dialer
) -> None:
    with pytest.raises(SwarmException, match="no address is known"):
        await dialer.dial(PEER, [])


async def test_of_hundreds_of_addresses_a_few_are_tried(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    with pytest.raises(SwarmException):
        await dialer.dial(PEER, [HOME] * 500)
    assert len(network.calls) == MAX_ADDRESSES


# For peer exchange


async def test_a_peer_is_called_once_and_its_failure_told(
    autojump_clock: MockClock, dialer: Dialer, network: Network, failures: Failures
) -> None:
    dialer.once(Connect(PEER, (str(HOME),)))
    await trio.sleep(100)
    assert network.calls == [(0.0, PEER, str(HOME))]
    assert failures.told == [(PEER, "refused")]


async def test_a_peer_that_is_being_called_is_not_called_again_until_that_is_over(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    network.answers = lambda _: "hang"
    for _ in range(3):
        dialer.once(Connect(PEER, (str(HOME),)))
    await trio.sleep(DIAL_TIMEOUT + 1)
    assert len(network.calls) == 1
    dialer.once(Connect(PEER, (str(HOME),)))
    await trio.sleep(1)
    assert len(network.calls) == 2


async def test_a_connected_peer_is_not_called_for_peer_exchange(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    network.connected[PEER] = None
    dialer.once(Connect(PEER, (str(HOME),)))
    await trio.sleep(1)
    assert network.calls == []


async def test_few_calls_run_at_once_and_a_bounded_number_waits(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    network.answers = lambda _: "hang"
    for number in range(1000):
        dialer.once(Connect(b"\x00\x02" + number.to_bytes(2, "big"), (str(HOME),)))
    await wait_all_tasks_blocked()
    assert len(network.calls) == MAX_DIALS
    await trio.sleep(1000 * DIAL_TIMEOUT)
    assert len(network.calls) == 128  # go-libp2p-pubsub MaxPendingConnections


async def test_a_record_that_does_not_verify_is_told_and_not_dialled(
    autojump_clock: MockClock, dialer: Dialer, network: Network, failures: Failures
) -> None:
    dialer.once(Connect(PEER, (), b"no envelope"))
    await trio.sleep(1)
    assert network.calls == []
    [(peer, reason)] = failures.told
    assert peer == PEER
    assert reason.startswith("peer record that does not verify")


async def test_whom_peer_exchange_keeps_naming_is_left_alone_after_four_attempts(
    autojump_clock: MockClock, dialer: Dialer, failures: Failures
) -> None:
    """go-libp2p-pubsub: MaxBackoffAttempts 4, forgotten after 10 minutes without an attempt."""
    for _ in range(590):
        dialer.once(Connect(PEER, (), b"no envelope"))
        await trio.sleep(1)
    assert len(failures.told) == 4
    await trio.sleep(20)
    dialer.once(Connect(PEER, (), b"no envelope"))
    await trio.sleep(1)
    assert len(failures.told) == 5


async def test_a_direct_peer_is_dialled_however_often_the_router_asks(
    autojump_clock: MockClock, dialer: Dialer, network: Network
) -> None:
    for _ in range(20):
        dialer.once(Connect(PEER, (str(HOME),)))
        await trio.sleep(1)
    assert len(network.calls) == 20
