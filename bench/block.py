"""A block of 1 MB to 16 nodes: whole over gossipsub, in coded chunks, and through the relay.

    python -m bench.block [--systems gossip_ours,relay] [--loss 0,0.1,1] [--blocks 5]

Processes in network namespaces with the delays, rates and loss of a world between them
(`bench.emulation`); needs root. The systems take turns, each on a new network. The last
line of output is one JSON object. BLOCK.md says what is measured.
"""

import argparse
import bz2
import hashlib
import itertools
import json
import math
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from bench.block_relay import relay_systems
from bench.block_systems import DEGREE, Block, Delivery, Session, System, gossip_systems, graph
from bench.emulation.network import CONGESTION_CONTROL, MTU, QUEUE, Network, open_network
from bench.emulation.regions import Place, bound, layout, places
from bench.lab import SEED
from bench.mesh import Record, cpu_model, prepared, rounded
from bench.processors import Load
from bench.remote import BenchError
from bruit.plugins.bitcoin.generate import generate_block

NODES = 16
SCALE = 0.1  # of the rates, so that the processors are not what is measured: see BLOCK.md
LOSSES = (0.0, 0.1, 1.0)  # per cent
TIMEOUT = 120.0  # seconds for a block
PAUSE = 2.0  # seconds between blocks at least; then until the network is quiet
QUIET = 0.02  # of a block's bytes, sent by all nodes together in a second: guess
QUIET_TIMEOUT = 60.0  # seconds to wait for that
REAL_BLOCK = "btc-413567.raw.bz2"  # in the folder in BRUIT_DATA: 999,887 bytes
TRANSACTIONS = 3_373  # of a generated block of that size, within 1 %
NONCE = slice(76, 80)  # of a block header: each block of a run has another one

# System → the implementation of bench.mesh, and the program where it is another.
GOSSIP = {"gossip_ours": "ours", "gossip_go": "go", "chunked": "ours"}
PROGRAMS = {"chunked": (sys.executable, "-m", "bench.peer_chunked")}
# System → blocks that count: fewer of those that take long, so that all takes under 25 minutes.
BLOCKS = {"gossip_ours": 2, "gossip_go": 2, "chunked": 3, "relay": 5, "relay_drop": 5}


class Figures(msgspec.Struct, frozen=True):
    """Of one block, or medians of several. None: not all that is asked for arrived."""

    t50_ms: float | None
    t95_ms: float | None
    t100_ms: float | None
    bytes_ratio: float
    cpu_load: float  # share of all processors, whoever used it
    cpu_saturated: float  # share of the time that all processors were busy
    peers_load: float  # share of all processors, in cpu_load
    wire_load: float  # the same


def read_block() -> tuple[bytes, str]:
    """The block, and where it is from."""
    folder = os.environ.get("BRUIT_DATA")
    if folder and Path(folder, REAL_BLOCK).is_file():
        return bz2.decompress(Path(folder, REAL_BLOCK).read_bytes()), REAL_BLOCK
    return generate_block(Random(SEED), TRANSACTIONS), "generated"


def variants(raw: bytes, count: int, folder: Path) -> list[Block]:
    """The block with so many different nonces, as files."""
    blocks = []
    for number in range(count):
        data = raw[: NONCE.start] + number.to_bytes(4, "little") + raw[NONCE.stop :]
        path = folder / f"{number}.block"
        path.write_bytes(data)
        blocks.append(Block(path, len(data), hashlib.sha256(data).hexdigest()))
    return blocks


def time_to(delivery: Delivery, part: float) -> float | None:
    """Milliseconds until that part of the receivers, rounded up, had the block."""
    took = sorted((each - delivery.began) / 1e6 for each in delivery.arrived if each)
    needed = math.ceil(part * len(delivery.arrived))
    return took[needed - 1] if len(took) >= needed else None


def send(network: Network, session: Session, block: Block) -> Figures:
    """One block, and everything that is sent until the network is quiet again."""
    count = len(network.addresses)
    sent, cpu, start = total_sent(network), (session.cpu(), network.cpu()), time.monotonic()
    with Load() as load:
        delivery = session.send(block, TIMEOUT)
    took = (time.monotonic() - start) * (os.cpu_count() or 1)
    loads = (session.cpu() - cpu[0]) / took, (network.cpu() - cpu[1]) / took
    until_quiet(network, block.size)
    return Figures(
        t50_ms=time_to(delivery, 0.5),
        t95_ms=time_to(delivery, 0.95),
        t100_ms=time_to(delivery, 1.0),
        bytes_ratio=(total_sent(network) - sent) / count / block.size,
        cpu_load=load.busy,
        cpu_saturated=load.saturated,
        peers_load=loads[0],
        wire_load=loads[1],
    )


def total_sent(network: Network) -> int:
    return sum(network.sent(node) for node in range(len(network.addresses)))


def until_quiet(network: Network, size: int) -> None:
    time.sleep(PAUSE)
    deadline, before = time.monotonic() + QUIET_TIMEOUT, total_sent(network)
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = total_sent(network)
        if now - before < QUIET * size:
            return
        before = now
    raise BenchError(f"the network was not quiet {QUIET_TIMEOUT:g} s after a block")


def medians(figures: Sequence[Figures]) -> dict[str, object]:
    """A block that did not reach a part of the nodes counts as later than all others."""
    found: dict[str, object] = {}
    for name in Figures.__struct_fields__:
        values = [getattr(each, name) for each in figures]
        middle = median(math.inf if value is None else value for value in values)
        found[name] = None if math.isinf(middle) else rounded(middle)
    ends = [each.t100_ms for each in figures]
    found["t100_ms_each"] = [None if end is None else rounded(end) for end in ends]
    return found


def measure(
    name: str,
    system: System,
    nodes: Sequence[Place],
    loss: float,
    blocks: Sequence[Block],
    backend: str,
) -> tuple[dict[str, object], dict[str, str]]:
    """The figures of a system, and its versions. The first block is not in the figures."""
    with open_network(layout(nodes), loss / 100, backend=backend) as network:
        with system(network) as session:
            until_quiet(network, blocks[0].size)
            show(loss, name, "warm-up", msgspec.structs.asdict(send(network, session, blocks[0])))
            before = network.counts()
            each = []
            for number, block in enumerate(blocks[1:], 1):
                each.append(send(network, session, block))
                show(loss, name, str(number), msgspec.structs.asdict(each[-1]))
            versions = session.versions
        after = network.counts()
        found: dict[str, object] = medians(each) | {
            "blocks": len(each),
            "packets": {key: after[key] - before[key] for key in after},
            "backend": network.backend,
        }
    show(loss, name, "median", found)
    return found, versions


def show(loss: float, name: str, number: str, figures: Mapping[str, object]) -> None:
    cells = []
    for key in Figures.__struct_fields__:
        value = figures[key]
        text = "–" if not isinstance(value, float) else f"{value:.0f}"
        cells.append(text if key.endswith("ms") or text == "–" else f"{value:.2f}")
    line = "".join(f"{cell:>11}" for cell in cells)
    print(f"{loss:4g} %  {name:12} {number:>7}{line}", flush=True)


def print_head() -> None:
    head = ("t50 ms", "t95 ms", "t100 ms", "sent/block", "cpu", "cpu full", "peers", "wire")
    print(f"{'loss':6}  {'system':12} {'block':>7}" + "".join(f"{each:>11}" for each in head))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.block", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--systems", default=",".join(BLOCKS), help="which of them (all)")
    parser.add_argument("--loss", default=",".join(f"{each:g}" for each in LOSSES), help="per cent")
    each = ", ".join(f"{name} {blocks}" for name, blocks in BLOCKS.items())
    parser.add_argument("--blocks", type=int, default=0, help=f"of each system ({each})")
    parser.add_argument("--scale", type=float, default=SCALE, help=f"of the rates ({SCALE})")
    parser.add_argument("--seed", type=int, default=SEED, help="of places and graph")
    parser.add_argument("--fast-producer", action="store_true", help="node 0 has a fast link")
    parser.add_argument("--backend", choices=("wire", "netem"), default="", help="of the network")
    arguments = parser.parse_args()
    arguments.systems = arguments.systems.split(",")
    if unknown := [name for name in arguments.systems if name not in BLOCKS]:
        parser.error(f"--systems: no {', '.join(unknown)}; there are {', '.join(BLOCKS)}")
    arguments.loss = [float(each) for each in arguments.loss.split(",")]
    return arguments


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and clean up
    arguments = parse_arguments()
    record = Record()
    kinds = {GOSSIP[name] for name in arguments.systems if name in GOSSIP}
    commands = prepared(sorted(kinds), record)
    programs = {
        name: PROGRAMS.get(name, commands[GOSSIP[name]])
        for name in arguments.systems
        if GOSSIP.get(name) in commands
    }
    systems = gossip_systems(programs, arguments.seed) | relay_systems(arguments.seed)
    systems = {name: systems[name] for name in arguments.systems if name in systems}
    nodes = places(NODES, arguments.scale, arguments.seed, fast_producer=arguments.fast_producer)
    raw, source = read_block()
    print(f"block: {source}, {len(raw):,} bytes; bound {1e3 * bound(nodes, len(raw)):.0f} ms")
    print_head()
    results: dict[float, dict[str, object]] = {loss: {} for loss in arguments.loss}
    versions: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="bruit-bench-") as folder:
        counts = {name: arguments.blocks or BLOCKS[name] for name in systems}
        blocks = variants(raw, max(counts.values(), default=0) + 1, Path(folder))
        try:
            for loss, (name, system) in itertools.product(arguments.loss, systems.items()):
                results[loss][name] = None
                try:
                    results[loss][name], versions[name] = measure(
                        name, system, nodes, loss, blocks[: counts[name] + 1], arguments.backend
                    )
                except Exception as problem:  # noqa: BLE001, the others are measured all the same
                    reason = f"{type(problem).__name__}: {problem}"
                    record.leave_out(name, f"loss {loss:g} %", reason)
        finally:
            found = summary(arguments, nodes, (raw, source), results, versions, record)
            print(json.dumps(found), flush=True)


def summary(
    arguments: argparse.Namespace,
    nodes: Sequence[Place],
    block: tuple[bytes, str],
    results: Mapping[float, Mapping[str, object]],
    versions: Mapping[str, Mapping[str, str]],
    record: Record,
) -> dict[str, object]:
    raw, source = block
    bound_ms = rounded(1e3 * bound(nodes, len(raw)))
    found: dict[str, object] = {}
    for loss, systems in results.items():
        loads = [each["cpu_load"] for each in systems.values() if isinstance(each, dict)]
        part = dict(systems) | {"bound_ms": bound_ms, "cpu_load": max(loads, default=None)}
        if loss:
            found[f"loss_{loss:g}%"] = part
        else:
            found |= part
    return found | {
        "left_out": record.left_out,
        "inputs": {
            "block": source,
            "bytes": len(raw),
            "blocks": {name: arguments.blocks or BLOCKS[name] for name in arguments.systems},
            "scale": arguments.scale,
            "seed": arguments.seed,
            "nodes": msgspec.to_builtins(nodes),
            "degree": DEGREE,
            "graph": graph(len(nodes), arguments.seed),
            "queue_s": QUEUE,
            "mtu": MTU,
            "congestion_control": CONGESTION_CONTROL,
        },
        "versions": versions,
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
    }


if __name__ == "__main__":
    main()
