"""Real namespaces with the wire between them."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.emulation.namespaces import NAMES, PREFIX, ip, missing, namespaces
from bench.emulation.network import Network, open_network
from bench.emulation.probe import PORT, SIZE, connect_ms, echo_ms, open_socket
from bench.emulation.regions import Layout
from bench.remote import BenchError

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.skipif(bool(missing()), reason=f"network namespaces: {missing()}"),
]

DELAY_MS = 20.0
PAIR = Layout((20e6, 20e6), (20e6, 20e6), ((0.0, DELAY_MS / 1e3), (DELAY_MS / 1e3, 0.0)))
HEADERS = 28  # bytes of IPv4 and UDP before the content


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with open_network(PAIR, backend="wire") as opened:
        yield opened


def test_a_round_trip_takes_twice_the_delay(network: Network) -> None:
    # The quickest of some: how late others are depends on what else the machine does.
    assert 2 * DELAY_MS <= min(echo_ms(network)) < 2 * DELAY_MS + 5
    assert connect_ms(network) >= 2 * DELAY_MS


def test_a_program_can_be_started_at_a_node(network: Network) -> None:
    command = network.command(1, ["ip", "-brief", "address", "show", "dev", "wire"])
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{network.addresses[1]}/32" in shown


def test_what_is_lost_was_sent_and_does_not_come() -> None:
    with open_network(PAIR, 1.0, backend="wire") as lossy:
        with (
            closing(open_socket(lossy, 1, socket.SOCK_DGRAM)) as server,
            closing(open_socket(lossy, 0, socket.SOCK_DGRAM)) as client,
        ):
            server.bind((lossy.addresses[1], PORT))
            server.settimeout(4 * DELAY_MS / 1e3)
            for _ in range(10):
                client.sendto(bytes(SIZE), (lossy.addresses[1], PORT))
            with pytest.raises(TimeoutError):
                server.recv(SIZE)
        assert lossy.sent(0) == 10 * (SIZE + HEADERS)
        assert lossy.sent(1) == 0
        assert lossy.counts() | {"offered": 10, "lost": 10, "delivered": 0} == lossy.counts()


def test_namespaces_are_gone_after_a_failure() -> None:
    made: list[str] = []

    def fail() -> None:
        with namespaces(2) as names:
            made.extend(names)
            assert all((NAMES / name).exists() for name in names)
            ip(["unknown"])

    with pytest.raises(BenchError, match="unknown"):
        fail()
    assert not any((NAMES / name).exists() for name in made)


def test_what_a_killed_process_left_is_removed_by_the_next() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = f"{PREFIX}{ended.pid}-0"
    ip(["netns", "add", name])
    with namespaces(0):
        assert not (NAMES / name).exists()
