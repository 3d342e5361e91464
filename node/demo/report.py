"""What a finished demonstration shows: a table by node, a summary, one line of JSON."""

import math

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bruit.node.demo.coordinator import Progress

SHOWN_PEER = 8  # last characters of a peer id that a person can tell apart


class Summary(msgspec.Struct, frozen=True):
    """The last line of ``bruit demo --json``. Times in milliseconds, null where none."""

    nodes: int
    alive: int
    delivered: int
    block_bytes: int
    block_hash: str
    wire_bytes: int  # written to pubsub streams by the nodes that lived
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None
    duplicates: int
    rejected: int


def summarise(progress: Progress, block: bytes, block_hash: str, tampered: bool) -> Summary:
    delivered = progress.delivered
    if tampered:  # the publisher has its own block whatever the others think of it
        delivered = [node for node in delivered if node != progress.plan.publisher]
    delays = sorted(delay for node in delivered if (delay := latency(progress, node)) is not None)
    figures = progress.figures.values()
    return Summary(
        nodes=progress.plan.nodes,
        alive=progress.plan.nodes - len(progress.killed),
        delivered=len(delivered),
        block_bytes=len(block),
        block_hash=block_hash,
        wire_bytes=sum(each.bytes_out for each in figures),
        p50_ms=percentile(delays, 50),
        p95_ms=percentile(delays, 95),
        max_ms=percentile(delays, 100),
        duplicates=sum(each.duplicates for each in figures),
        rejected=len(progress.refused),
    )


def latency(progress: Progress, node: int) -> float | None:
    """Milliseconds from publishing to delivery; None for the publisher and where it never came."""
    got, sent = progress.got.get(node), progress.sent
    if got is None or sent is None or node == progress.plan.publisher:
        return None
    return round((got.at - sent.at) * 1000, 1)


def percentile(ordered: list[float], share: float) -> float | None:
    """Nearest-rank percentile of an ascending list."""
    if not ordered:
        return None
    return ordered[max(math.ceil(share / 100 * len(ordered)), 1) - 1]


def hops(progress: Progress, node: int) -> int | None:
    """Links between publisher and node along the copies that came first."""
    count = 0
    while node != progress.plan.publisher:
        if node not in progress.got or count > progress.plan.nodes:
            return None
        node = progress.node_of(progress.got[node].source)
        count += 1
    return count


def table(progress: Progress) -> Table:
    rows = Table(title="by node", title_justify="left")
    rows.add_column("node", justify="right")
    rows.add_column("peer id", no_wrap=True)
    for name in ("ms", "hops", "bytes in", "bytes out", "duplicates", "mesh"):
        rows.add_column(name, justify="right")
    rows.add_column("outcome")
    for node in range(progress.plan.nodes):
        figures = progress.figures.get(node)
        counts = (
            (figures.bytes_in, figures.bytes_out, figures.duplicates, figures.mesh)
            if figures
            else ("", "", "", "")
        )
        delay, links = latency(progress, node), hops(progress, node)
        rows.add_row(
            str(node),
            "…" + progress.addresses[node].peer[-SHOWN_PEER:],
            "" if delay is None else f"{delay:.1f}",
            "" if links is None else str(links),
            *(f"{count:,}" if count != "" else "" for count in counts),
            _outcome(progress, node),
        )
    return rows


def _outcome(progress: Progress, node: int) -> str:
    if node in progress.killed:
        return "killed"
    if node == progress.plan.publisher:
        return "published"
    if node in progress.delivered:
        return "delivered"
    if any(each.node == node for each in progress.refused):
        return "refused"
    return "nothing arrived"


def refusals(progress: Progress) -> list[str]:
    """One sentence per refusal: who refused whose block from whom, and why."""
    return [
        f"node {each.node} refused the block from node {progress.node_of(each.peer)} "
        f"({each.peer}): {each.reason}"
        for each in progress.refused
    ]


def view(progress: Progress) -> RenderableType:
    """The live view while a run goes on."""
    plan = progress.plan
    alive = plan.nodes - len(progress.killed)
    marks = Text("  ")
    for node in range(plan.nodes):
        marks.append(*_mark(progress, node))
        marks.append(" ")
    line = Text(
        f"  {len(progress.addresses)} up, {len(progress.ready)} meshed, "
        f"{len(progress.delivered)} of {alive} have the block, {len(progress.refused)} refusals"
    )
    return Group(Text(progress.stage, style="bold"), marks, line)


def _mark(progress: Progress, node: int) -> tuple[str, str]:
    if node in progress.killed:
        return "✗", "red"
    if node in progress.delivered:
        return "●", "green"
    if any(each.node == node for each in progress.refused):
        return "⊘", "yellow"
    return ("○", "") if node in progress.ready else ("·", "dim")
