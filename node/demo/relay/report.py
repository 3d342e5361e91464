"""What a finished demonstration shows: tables, evidence, whether it ended as it should, JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bruit.node.demo.relay.coordinator import Progress
from bruit.node.demo.relay.folders import Folders
from bruit.node.demo.relay.plan import Role
from bruit.node.demo.relay.protocol import Found, Relayed
from bruit.node.demo.report import percentile

BAR = 32  # characters of the longest bar


class Checked(msgspec.Struct, frozen=True):
    """What an offline check of a file came to."""

    holds: bool
    statements: tuple[str, ...]


class EvidenceLine(msgspec.Struct, frozen=True):
    """One dispute in the line of JSON."""

    kind: str
    producers: tuple[str, ...]  # addresses
    culprits: tuple[str, ...]
    holds: bool  # checked offline
    file: str  # below the folder of all nodes' files
    reason: str


class Summary(msgspec.Struct, frozen=True):
    """The last line of ``bruit relay demo --json``. Times in milliseconds, null where none."""

    consumers: int
    delivered: int  # of them, those that have the first block
    chunks_sent: int  # to clusters, each time counted
    acks: int
    disputes: int
    evidence: tuple[EvidenceLine, ...]
    p50_ms: float | None  # from the broadcast's beginning to delivery
    max_ms: float | None
    selector: str


def summarise(progress: Progress, folders: Folders, checked: Mapping[str, Checked]) -> Summary:
    """``checked``: by the file of the evidence."""
    delivered = progress.delivered()
    delays = sorted(delay for index in delivered if (delay := latency(progress, index)) is not None)
    return Summary(
        consumers=len(progress.plan.of(Role.CONSUMER)),
        delivered=len(delivered),
        chunks_sent=sum(each.sent for each in progress.sent),
        acks=sum(sum(each.acknowledged.values()) for each in progress.sent),
        disputes=len(progress.found),
        evidence=tuple(
            EvidenceLine(
                each.kind,
                tuple(f"0x{who}" for who in each.producers),
                tuple(f"0x{who}" for who in each.culprits),
                _holds(each, checked),
                str(Path(each.file).relative_to(folders.root)) if each.file else "",
                each.reason,
            )
            for each in progress.found
        ),
        p50_ms=percentile(delays, 50),
        max_ms=percentile(delays, 100),
        selector=progress.plan.selector,
    )


def latency(progress: Progress, consumer: int) -> float | None:
    """Milliseconds from the first broadcast to its block's delivery."""
    got = progress.delivery(consumer)
    if got is None or not progress.sent:
        return None
    return round((got.at - progress.sent[0].at) * 1000, 1)


def _holds(found: Found, checked: Mapping[str, Checked]) -> bool:
    return found.file in checked and checked[found.file].holds


# Tables


def by_consumer(progress: Progress) -> Table:
    """Who has the block, when, and how many chunks each cluster had brought by then."""
    plan = progress.plan
    rows = Table(title="by consumer", title_justify="left")
    rows.add_column("consumer", no_wrap=True)
    rows.add_column("outcome")
    rows.add_column("ms", justify="right")
    for cluster in plan.clusters:
        rows.add_column(f"cluster {cluster}", justify="right")
    for index in plan.of(Role.CONSUMER):
        got, delay = progress.delivery(index), latency(progress, index)
        counts = [str(got.clusters.get(cluster, 0)) if got else "" for cluster in plan.clusters]
        rows.add_row(
            plan.places[index].name,
            _outcome(progress, index),
            "" if delay is None else f"{delay:.0f}",
            *counts,
        )
    return rows


def _outcome(progress: Progress, consumer: int) -> str:
    if progress.delivery(consumer) is not None:
        return "delivered"
    kinds = dict.fromkeys(each.kind for each in progress.found if each.place == consumer)
    return f"disputed: {', '.join(kinds)}" if kinds else "nothing delivered"


def by_cluster(progress: Progress) -> Table:
    """What the clusters took and what they did with it, in chunks."""
    plan = progress.plan
    rows = Table(title="by cluster", title_justify="left")
    for name in ("cluster", "acknowledged", "witnessed", "published", "in blocks"):
        rows.add_column(name, justify="right")
    rows.add_column("what it did")
    for cluster in plan.clusters:
        fault = next(place.fault for place in plan.places if place.cluster == cluster)
        counts = (
            acknowledged(progress, cluster),
            witnessed(progress, cluster),
            _published(progress, cluster),
            brought(progress, cluster),
        )
        rows.add_row(str(cluster), *map(str, counts), fault.value or "its work")
    return rows


def acknowledged(progress: Progress, cluster: int) -> int:
    return sum(each.acknowledged.get(cluster, 0) for each in progress.sent)


def witnessed(progress: Progress, cluster: int) -> int:
    return sum(each.witnessed for each in _members(progress, cluster))


def brought(progress: Progress, cluster: int) -> int:
    """Chunks that consumers had from a cluster when they had the block, all consumers together."""
    return sum(each.clusters.get(cluster, 0) for each in progress.got)


def _published(progress: Progress, cluster: int) -> int:
    """Every member publishes what it has, so that a chunk counts up to as often as there are."""
    return sum(each.published for each in _members(progress, cluster))


def _members(progress: Progress, cluster: int) -> list[Relayed]:
    places = progress.plan.places
    return [each for index, each in progress.relayed.items() if places[index].cluster == cluster]


def view(progress: Progress) -> RenderableType:
    """The live view: a bar of chunks for each cluster, a mark for each consumer."""
    plan = progress.plan
    lines = [Text(progress.stage, style="bold")]
    if len(progress.ready) < len(plan.places):
        lines.append(
            Text(
                f"  {progress.started} of {len(plan.places)} started, "
                f"{len(progress.listening)} listening, {len(progress.ready)} ready"
            )
        )
        return Group(*lines)
    expected = plan.num_chunks * len(progress.digests)
    for cluster in plan.clusters:
        count = witnessed(progress, cluster)
        bar = "█" * min(BAR, round(BAR * count / expected))
        style = "red" if cluster in plan.faulty else "green"
        lines.append(
            Text.assemble(
                f"  cluster {cluster:>2}  ",
                (f"{bar:<{BAR}}", style),
                f"  {count:>3} chunks witnessed, {_published(progress, cluster):>3} published",
            )
        )
    marks = Text("  consumers   ")
    for index in plan.of(Role.CONSUMER):
        marks.append(*_mark(progress, index))
        marks.append(" ")
    lines += [marks, Text(f"  {len(progress.found)} disputes")]
    return Group(*lines)


def _mark(progress: Progress, consumer: int) -> tuple[str, str]:
    if progress.delivery(consumer) is not None:
        return "●", "green"
    if any(each.place == consumer for each in progress.found):
        return "⊘", "yellow"
    return "○", ""


# Sentences


def misdeeds(progress: Progress) -> list[str]:
    """Who cheated, as far as it is not to be seen in the tables."""
    places = progress.plan.places
    return [f"{places[each.place].name} {each.deed}" for each in progress.misdeeds]


def blame(progress: Progress) -> list[str]:
    """One sentence for each peer that is below 0 somewhere, or whose messages were refused."""
    places = progress.plan.places
    refused: dict[int, int] = {}
    scores: dict[int, list[float]] = {}
    for figures in progress.figures.values():
        for peer, count in figures.refused.items():
            if (index := progress.place_of(peer)) is not None:
                refused[index] = refused.get(index, 0) + count
        for peer, score in figures.blamed.items():
            if (index := progress.place_of(peer)) is not None:
                scores.setdefault(index, []).append(score)
    sentences = []
    for index in sorted({**refused, **scores}):
        sentence = f"{places[index].name}: {refused.get(index, 0)} messages refused"
        if found := scores.get(index):
            sentence += f"; its score is below 0 at {len(found)} peers, {min(found):.1f} at one"
        sentences.append(sentence)
    return sentences


def drops(progress: Progress) -> list[str]:
    """Why chunks went nowhere, all nodes together."""
    counts: dict[str, int] = {}
    for figures in progress.figures.values():
        for reason, count in figures.dropped.items():
            counts[reason] = counts.get(reason, 0) + count
    return [f"{count}: {reason}" for reason, count in sorted(counts.items())]


def evidence(
    progress: Progress, folders: Folders, checked: Mapping[str, Checked], command: str
) -> list[str]:
    """What was disputed: for each kind and who is named, one piece with what its check says.

    ``command``: what checks a file, which is appended; empty where files are not kept.
    """
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Found]] = {}
    for found in progress.found:
        groups.setdefault((found.kind, found.producers, found.culprits), []).append(found)
    sentences = []
    for (kind, producers, culprits), each in groups.items():
        finders = list(dict.fromkeys(progress.plan.places[found.place].name for found in each))
        whom = f"producers {_names(progress, folders, producers)}"
        if culprits:
            whom += f", signers at fault {_names(progress, folders, culprits)}"
        holding = sum(_holds(found, checked) for found in each)
        sentences.append(f"{kind}: {whom}; {len(each)} found by {', '.join(finders)}")
        sentences.append(f"  {_with_names(progress, each[0].reason)}")
        shown = checked.get(each[0].file)
        sentences += [f"  - {statement}" for statement in (shown.statements if shown else ())]
        sentences.append(f"  checked offline: {holding} of {len(each)} hold")
        if command:
            sentences.append(f"  {command} {each[0].file}")
    return sentences


def _names(progress: Progress, folders: Folders, ids: Sequence[str]) -> str:
    known = {address.hex(): index for index, address in enumerate(folders.ids)}
    return ", ".join(
        f"0x{each} ({progress.plan.places[known[each]].name})" if each in known else f"0x{each}"
        for each in ids
    )


def _with_names(progress: Progress, text: str) -> str:
    for index, each in progress.listening.items():
        text = text.replace(each.peer, f"{each.peer} ({progress.plan.places[index].name})")
    return text
