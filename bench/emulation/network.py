"""Nodes in namespaces with a network between them: over the wire, or over the kernel's netem.

    with open_network(layout(places(16, 0.2, seed)), loss=0.001) as network:
        network.command(0, ["curl", network.addresses[1]])

Both back ends give each node an address of its own in a namespace of its own, drop-tail
queues at its uplink and downlink, the delay of each pair, and loss by chance. TCP is as
Linux has it by default (cubic, slow start after idle), whatever the machine is set to.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from bench.emulation import netem
from bench.emulation.namespaces import command_inside, inside, ip_batch, missing, namespaces
from bench.emulation.regions import Layout
from bench.emulation.wire import DEVICE, WireSettings
from bench.remote import BenchError, Remote

PREFIX = (10, 64, 20)  # of the addresses; private, and in namespaces only: any would do
MTU = 1500  # bytes: that of Ethernet, and of what lies between homes
DEVICE_QUEUE = 4096  # packets between stack and wire, which empties it at once: guess
# Seconds that a full queue takes to drain: guess, about the mean round trip between the
# regions, so that a queue holds one bandwidth-delay product.
QUEUE = 0.2
SEED = 6420
CONGESTION_CONTROL = "cubic"  # Linux's own default
SETTINGS = Path("/proc/sys/net")  # of the namespace that the reading thread is in


class Network(Protocol):
    """What both back ends have. Nodes are indexes."""

    backend: str
    addresses: list[str]

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """The command that starts ``command`` at the node."""

    def inside(self, node: int) -> AbstractContextManager[None]:
        """The calling thread is at the node meanwhile: sockets that it opens stay there."""

    def sent(self, node: int) -> int:
        """Bytes that the node has sent so far: whole IP packets, by its interface's counter."""

    def counts(self) -> dict[str, int]:
        """What became of the packets so far; empty where the kernel is not asked."""

    def cpu(self) -> float:
        """CPU seconds that the emulation has taken so far, beside the kernel's own work."""


class _InNamespaces:
    """What the back ends share."""

    frame_header = 0  # bytes that the interface counts for each packet beside the IP packet

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.addresses = [address(node) for node in range(len(names))]

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        return command_inside(self._names[node], command)

    def inside(self, node: int) -> AbstractContextManager[None]:
        return inside(self._names[node])

    def sent(self, node: int) -> int:
        with inside(self._names[node]):
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        fields = next(line for line in lines if line.strip().startswith(f"{DEVICE}:"))
        numbers = fields.partition(":")[2].split()
        return int(numbers[8]) - self.frame_header * int(numbers[9])  # bytes, packets sent

    def counts(self) -> dict[str, int]:
        return {}

    def cpu(self) -> float:
        return 0.0


class WireNetwork(_InNamespaces):
    """Over `bench.emulation.wire`, a process of its own."""

    backend = "wire"

    def __init__(self, names: Sequence[str], wire: Remote) -> None:
        super().__init__(names)
        self._wire = wire

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self._wire.ask("counts")["counts"]
        return counts

    def cpu(self) -> float:
        return self._wire.cpu()


class NetemNetwork(_InNamespaces):
    """Over netem: nothing but the kernel. Not tried so far, see `bench.emulation.netem`."""

    backend = "netem"
    frame_header = 14  # Ethernet's, which veth counts


@contextmanager
def open_network(
    layout: Layout,
    loss: float = 0.0,
    *,
    backend: str = "",
    queue: float = QUEUE,
    seed: int = SEED,
) -> Iterator[Network]:
    """A network of these nodes. ``backend``: "wire" or "netem"; by default what is there.

    Raises BenchError where neither can be had.
    """
    if reason := missing():
        raise BenchError(f"no network can be emulated here: {reason}")
    chosen = backend or ("netem" if netem.works() else "wire")
    opened = {"wire": _wire, "netem": _netem}[chosen]
    with opened(layout, loss, queue, seed) as network:
        yield network


@contextmanager
def _wire(layout: Layout, loss: float, queue: float, seed: int) -> Iterator[Network]:
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(len(layout.up)))
        settle(names)
        settings = WireSettings(
            namespaces=tuple(names),
            prefix=PREFIX,
            layout=layout,
            queue=queue,
            loss=loss,
            seed=seed,
        )
        command = (sys.executable, "-m", "bench.emulation.wire")
        wire = stack.enter_context(Remote("wire", command, msgspec.to_builtins(settings)))
        wire.listen()
        for node, name in enumerate(names):
            ip_batch(
                name,
                [
                    f"link set {DEVICE} mtu {MTU} txqueuelen {DEVICE_QUEUE} up",
                    f"address add {address(node)}/32 dev {DEVICE}",
                    f"route add default dev {DEVICE}",
                ],
            )
        yield WireNetwork(names, wire)


@contextmanager
def _netem(layout: Layout, loss: float, queue: float, seed: int) -> Iterator[Network]:
    with namespaces(len(layout.up) + 1) as [*names, hub]:
        settle(names)
        addresses = [address(node) for node in range(len(names))]
        netem.build(names, hub, DEVICE, addresses, layout, loss, queue, seed)
        yield NetemNetwork(names)


def address(node: int) -> str:
    return ".".join(map(str, (*PREFIX, node + 1)))


def settle(names: Sequence[str]) -> None:
    """The settings of namespaces that differ between machines."""
    for name in names:
        ip_batch(name, ["link set lo up"])
        with inside(name):
            for family in ("all", "default"):  # no router solicitations among the packets
                ipv6 = SETTINGS / f"ipv6/conf/{family}/disable_ipv6"
                if ipv6.exists():
                    ipv6.write_text("1")
            (SETTINGS / "ipv4/tcp_slow_start_after_idle").write_text("1")
    with congestion_control_allowed():
        for name in names:
            with inside(name):
                (SETTINGS / "ipv4/tcp_congestion_control").write_text(CONGESTION_CONTROL)


@contextmanager
def congestion_control_allowed() -> Iterator[None]:
    """A namespace may choose only what the machine allows everybody: allow it that long."""
    setting = SETTINGS / "ipv4/tcp_allowed_congestion_control"
    before = setting.read_text().split()
    if CONGESTION_CONTROL in before:
        yield
        return
    setting.write_text(" ".join([*before, CONGESTION_CONTROL]))
    try:
        yield
    finally:
        setting.write_text(" ".join(before))
