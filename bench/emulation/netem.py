"""The same network by the kernel alone: veth, a bridge, tbf, htb and netem.

Written after tc(8), tc-tbf(8), tc-htb(8), tc-netem(8) and tc-u32(8); not tried so far, for
want of a kernel with netem. Each node's end of its veth sends through tbf: uplink rate and
queue. At the bridge, the port of each node sends through a class for each source: netem
delays and loses in it, and htb holds all classes together to the downlink's rate.

Differences from the wire: the downlink's queue is bounded for each source by itself, in
packets; MTU-sized frames carry 14 bytes of Ethernet header, which the rates count.
"""

from collections.abc import Sequence

from bench.emulation.namespaces import inside, ip, ip_batch, namespaces, run
from bench.emulation.regions import Layout
from bench.remote import BenchError

BRIDGE = "hub"
FRAME = 1514  # bytes: an MTU of 1500 and the Ethernet header
BURST = 2 * FRAME  # of tbf and htb: guess, the least that never stalls


def works() -> bool:
    """Whether this kernel has netem."""
    try:
        with namespaces(1) as [name], inside(name):
            run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    except (BenchError, OSError):
        return False
    return True


def build(
    names: Sequence[str],
    hub: str,
    device: str,
    addresses: Sequence[str],
    layout: Layout,
    loss: float,
    queue: float,
    seed: int,
) -> None:
    """Join namespaces to a bridge in the namespace ``hub``."""
    ip_batch(hub, [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"])
    for node, name in enumerate(names):
        ip(f"link add {device} netns {name} type veth peer name {port(node)} netns {hub}".split())
        ip_batch(hub, [f"link set {port(node)} master {BRIDGE} up"])
        # One segment a packet, so that what is lost is a packet of the MTU.
        ip_batch(
            name,
            [
                f"link set {device} gso_max_segs 1 up",
                f"address add {addresses[node]}/24 dev {device}",
            ],
        )
        with inside(name):
            run(uplink(device, layout.up[node], queue))
    with inside(hub):
        for node in range(len(names)):
            for command in downlink(node, addresses, layout, loss, queue, seed):
                run(command)


def port(node: int) -> str:
    """The bridge's end of a node's veth."""
    return f"port{node}"


def uplink(device: str, rate: float, queue: float) -> list[str]:
    limit = max(int(queue * rate / 8), 10 * FRAME)
    return (
        f"tc qdisc add dev {device} root tbf rate {rate:.0f}bit burst {BURST} limit {limit}"
    ).split()


def downlink(
    node: int,
    addresses: Sequence[str],
    layout: Layout,
    loss: float,
    queue: float,
    seed: int,
) -> list[list[str]]:
    """The commands for the port of one node."""
    device, rate = port(node), f"{layout.down[node]:.0f}bit"
    lines = [
        f"tc qdisc add dev {device} root handle 1: htb default 1",
        f"tc class add dev {device} parent 1: classid 1:1 htb rate {rate} burst {BURST}",
    ]
    for source, address in enumerate(addresses):
        if source == node:
            continue
        seconds = layout.delay[source][node]
        # Packets under way and packets that wait are in the same queue.
        limit = max(int((seconds + queue) * layout.down[node] / 8 / FRAME), 10)
        minor = f"{source + 16:x}"
        # Any may have the whole rate when the others do not use it: each is promised an
        # equal part and may borrow the rest.
        promised = f"{layout.down[node] / len(addresses):.0f}bit"
        leaf = f"delay {seconds * 1e3:g}ms loss random {loss * 100:g}% seed {seed + source}"
        lines += [
            f"tc class add dev {device} parent 1:1 classid 1:{minor} htb rate {promised}",
            f"tc qdisc add dev {device} parent 1:{minor} netem limit {limit} {leaf}",
            f"tc filter add dev {device} parent 1: protocol ip prio 1 u32",
        ]
        lines[-3] += f" ceil {rate} burst {BURST}"
        lines[-1] += f" match ip src {address}/32 flowid 1:{minor}"
    return [line.split() for line in lines]
