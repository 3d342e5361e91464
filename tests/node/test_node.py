"""The node as an embedding program uses it."""

import gc
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from bruit import (
    ConfigError,
    LocalError,
    Node,
    NodeConfig,
    TopicConfig,
)
from bruit.node.config.schema import NetworkConfig
from bruit.node.gossip.actions import PeerJoined, PeerLeft, PeerSubscribed
from bruit.node.identity import create_key_file, new_key
from bruit.node.reports import DialFailed
from bruit.topics.keys import KeyType, peer_id_text
from tests.net.loopback import TIMEOUT, TOPIC, Visit, config, first, mesh, until_connected

OTHER = "/lux/test/relay/headers/other"


# Inside and outside


async def use_addresses(node: Node) -> None:
    node.addresses  # noqa: B018


async def use_subscribe(node: Node) -> None:
    node.subscribe(TOPIC)


async def use_publish(node: Node) -> None:
    await node.publish(TOPIC, b"data")


async def use_connect(node: Node) -> None:
    await node.connect(f"/ip4/127.0.0.1/tcp/1/p2p/{node.peer_id_text}")


async def use_wait_for_peers(node: Node) -> None:
    await node.wait_for_peers(TOPIC)


async def use_reports(node: Node) -> None:
    node.reports()


async def use_statistics(node: Node) -> None:
    node.statistics()


USES = [
    use_addresses,
    use_subscribe,
    use_publish,
    use_connect,
    use_wait_for_peers,
    use_reports,
    use_statistics,
]


@pytest.mark.parametrize("use", USES)
async def test_a_node_that_is_not_running_says_how_to_run_it(
    use: Callable[[Node], Awaitable[None]],
) -> None:
    with pytest.raises(LocalError, match="the node is not running: use it inside `async with`"):
        await use(Node(config()))


@pytest.mark.sockets
@pytest.mark.parametrize("use", USES)
async def test_a_node_that_has_stopped_says_the_same(
    use: Callable[[Node], Awaitable[None]],
) -> None:
    async with Node(config()) as node:
        pass
    with pytest.raises(LocalError, match="use it inside `async with`"):
        await use(node)


@pytest.mark.sockets
async def test_a_node_that_has_stopped_may_run_again() -> None:
    node = Node(config())
    with trio.fail_after(TIMEOUT):
        for _ in range(2):
            async with node, Node(config(peers=node.addresses)) as peer:
                await until_connected(node, peer)
                messages = node.subscribe(TOPIC)
                await peer.publish(TOPIC, b"hello")
                assert (await anext(messages)).data == b"hello"


@pytest.mark.sockets
async def test_a_node_runs_from_a_file_with_the_key_that_the_file_names(tmp_path: Path) -> None:
    key = new_key(KeyType.SECP256K1)
    create_key_file(tmp_path / "relay.key", key)
    file = tmp_path / "bruit.toml"
    file.write_text(
        f"""
        [network]
        listen = ["/ip4/127.0.0.1/tcp/0"]
        [identity]
        key_file = "relay.key"
        [topics."{TOPIC}"]
        """
    )
    for path in (file, str(file)):
        async with Node(path) as node:
            assert node.peer_id == key.public_key().peer_id()
            assert list(node.statistics().router.mesh) == [TOPIC]
    assert Node(file, new_key()).peer_id != key.public_key().peer_id()


def test_a_file_that_is_missing_or_wrong_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Node(tmp_path / "bruit.toml")
    (tmp_path / "bruit.toml").write_text("[gossip]\nd = 3")
    with pytest.raises(ConfigError, match=r"gossip\.d_lo"):
        Node(tmp_path / "bruit.toml", new_key())
    (tmp_path / "bruit.toml").write_text("")
    with pytest.raises(LocalError, match=r"node\.key does not exist"):
        Node(tmp_path / "bruit.toml")


def test_a_topic_that_names_an_unknown_plugin_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="no plugin 'chain' is installed"):
        Node(config(topic=TopicConfig(codec="chain")))


def test_without_a_key_every_node_is_somebody_else() -> None:
    one, other = Node(config()), Node(config())
    assert one.peer_id != other.peer_id
    assert one.peer_id_text == peer_id_text(one.peer_id)


@pytest.mark.sockets
async def test_an_address_names_the_port_that_was_given_and_the_node() -> None:
    async with Node(config()) as node:
        [address] = node.addresses
        parts = address.split("/")
        assert parts[:4] == ["", "ip4", "127.0.0.1", "tcp"]
        assert int(parts[4]) > 0
        assert parts[5:] == ["p2p", node.peer_id_text]


@pytest.mark.sockets
async def test_a_port_that_is_taken_is_an_error_that_names_the_address() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(LocalError, match=f"cannot listen on /ip4/127.0.0.1/tcp/{port}"):
            async with Node(config(port=port)):
                pass


# Leaving


@pytest.mark.sockets
async def test_an_exception_of_the_program_leaves_the_node_as_it_came() -> None:
    problem = ValueError("the program's own")
    with pytest.raises(ValueError, match="the program's own") as caught:
        async with Node(config()):
            raise problem
    assert caught.value is problem


@pytest.mark.sockets
async def test_a_cancelled_program_hangs_up_all_the_same() -> None:
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery, Node(config()) as stays:
            leaves = Node(config(peers=stays.addresses))
            await nursery.start(Visit(leaves).run)
            await until_connected(stays, leaves)
            reports = stays.reports()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(TIMEOUT):
                assert (await first(reports, PeerLeft)).peer == leaves.peer_id


def tasks() -> Iterator[str]:
    """The names of all tasks of the run."""

    def below(task: trio.lowlevel.Task) -> Iterator[str]:
        yield task.name
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                yield from below(child)

    root = trio.lowlevel.current_root_task()
    assert root is not None
    return below(root)


def open_files() -> int:
    gc.collect()  # what is only open because nobody has closed it is a ResourceWarning
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.sockets
async def test_a_stopped_node_leaves_no_task_and_no_socket_behind() -> None:
    async with mesh(2):  # whatever is opened only once
        pass
    tasks_before, files_before = sorted(tasks()), open_files()
    async with mesh(3) as (node, *_):
        await node.publish(TOPIC, b"message")
        assert len(sorted(tasks())) > len(tasks_before)
    assert (sorted(tasks()), open_files()) == (tasks_before, files_before)


@pytest.mark.sockets
async def test_whoever_waits_for_a_node_is_told_that_it_has_stopped() -> None:
    told: list[str] = []

    async def wait_for_peers(node: Node) -> None:
        with pytest.raises(LocalError, match="not running"):
            await node.wait_for_peers(TOPIC)
        told.append("peers")

    async def read(node: Node) -> None:
        async for _ in node.subscribe(TOPIC):
            pass
        told.append("messages")

    async def watch(node: Node) -> None:
        async for _ in node.reports():
            pass
        told.append("reports")

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery, Node(config()) as node:
            for wait in (wait_for_peers, read, watch):
                nursery.start_soon(wait, node)
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(told) == ["messages", "peers", "reports"]


# Connecting


@pytest.mark.sockets
async def test_peers_are_waited_for_until_there_are_enough() -> None:
    enough = trio.Event()

    async def wait(node: Node) -> None:
        await node.wait_for_peers(TOPIC, 2)
        enough.set()

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery, Node(config()) as node:
            nursery.start_soon(wait, node)
            reports = node.reports()
            async with Node(config(peers=node.addresses)):
                await first(reports, PeerSubscribed)
                assert not enough.is_set()
                async with Node(config(peers=node.addresses)):
                    await enough.wait()
                    await node.wait_for_peers(TOPIC, 2)
                    await node.wait_for_peers(OTHER, 0)


@pytest.mark.sockets
async def test_a_node_connects_to_an_address_when_told_to() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as caller, Node(config()) as called:
            calls, answers = caller.reports(), called.reports()
            await caller.connect(called.addresses[0])
            joined = await first(calls, PeerJoined)
            assert (joined.peer, joined.outbound) == (called.peer_id, True)
            joined = await first(answers, PeerJoined)
            assert (joined.peer, joined.outbound) == (caller.peer_id, False)


def unused_address(peer: str) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"/ip4/127.0.0.1/tcp/{probe.getsockname()[1]}/p2p/{peer}"


@pytest.mark.sockets
async def test_a_peer_that_cannot_be_reached_is_an_error_that_names_its_address() -> None:
    address = unused_address(Node(config()).peer_id_text)
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node:
            with pytest.raises(LocalError, match=f"{address} cannot be reached: "):
                await node.connect(address)


@pytest.mark.sockets
async def test_somebody_else_at_an_address_is_not_the_peer() -> None:
    with trio.fail_after(TIMEOUT):
        async with Node(config()) as node, Node(config()) as somebody:
            place = somebody.addresses[0].rpartition("/")[0]
            expected = f"{place}/{Node(config()).peer_id_text}"
            with pytest.raises(LocalError, match="cannot be reached"):
                await node.connect(expected)
            assert node.statistics().peers == {}


@pytest.mark.sockets
async def test_an_address_that_is_none_is_a_configuration_error() -> None:
    async with Node(config()) as node:
        with pytest.raises(ConfigError, match="'nowhere' is not an address such as"):
            await node.connect("nowhere")


@pytest.mark.sockets
async def test_a_node_does_not_connect_to_itself() -> None:
    key, absent = new_key(), Node(config())
    address = unused_address(peer_id_text(key.public_key().peer_id()))
    network = NetworkConfig(
        listen=(address.rpartition("/p2p/")[0],),
        peers=(address, unused_address(absent.peer_id_text)),
    )
    with trio.fail_after(TIMEOUT):
        async with Node(NodeConfig(network=network), key) as node:
            reports = node.reports()
            with pytest.raises(LocalError, match="is this node itself"):
                await node.connect(node.addresses[0])
            failed = await anext(reports)  # the first report of all: of the other peer
            assert isinstance(failed, DialFailed)
            assert failed.peer == absent.peer_id


@pytest.mark.sockets
async def test_a_configured_peer_that_cannot_be_reached_is_reported() -> None:
    absent = Node(config())
    with trio.fail_after(TIMEOUT):
        async with Node(config(peers=[unused_address(absent.peer_id_text)])) as node:
            report = await first(node.reports(), DialFailed)
            assert report.peer == absent.peer_id
            assert report.reason


# Statistics


@pytest.mark.sockets
async def test_statistics_are_a_snapshot_of_traffic_peers_and_plugins() -> None:
    with trio.fail_after(TIMEOUT):
        async with mesh(2) as (writer, reader):
            messages = reader.subscribe(TOPIC)
            before = reader.statistics()
            await writer.publish(TOPIC, bytes(1000))
            await anext(messages)
            after = reader.statistics()
            assert before.router.counters.get("messages delivered", 0) == 0
            assert after.router.counters["messages delivered"] == 1
            assert after.router.peers == (writer.peer_id,)
            assert after.traffic.bytes_in >= before.traffic.bytes_in + 1000
            assert after.peers[writer.peer_id].bytes_in == after.traffic.bytes_in
            assert after.stream_faults == {}
            assert {status.name: status.state for status in after.plugins} == {
                "bitcoin": "active",
                "cheapest-selector": "active",
                "marketplace-file": "not loaded",  # it needs a file
                "mixed-selector": "active",
                "qos-selector": "active",
                "random-selector": "active",
                "reputation-selector": "not loaded",  # so does it
                "stake": "active",
                "zstd": "active",
            }
            assert writer.statistics().traffic.bytes_out >= 1000


@pytest.mark.sockets
async def test_the_traffic_of_a_peer_that_left_still_counts() -> None:
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery, Node(config()) as node:
            peer = Node(config(peers=node.addresses))
            visit = Visit(peer)
            await nursery.start(visit.run)
            await until_connected(node, peer)
            messages = node.subscribe(TOPIC)
            await peer.publish(TOPIC, bytes(1000))
            await anext(messages)
            reports = node.reports()
            visit.end()
            await first(reports, PeerLeft)
            assert node.statistics().traffic.bytes_in >= 1000
