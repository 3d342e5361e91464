"""Whether a run ended as the Marlin relay document wants, condition by condition."""

from collections.abc import Iterator, Mapping

import msgspec

from bruit.node.demo.relay.coordinator import Progress
from bruit.node.demo.relay.folders import Folders
from bruit.node.demo.relay.plan import Role, Variant
from bruit.node.demo.relay.report import Checked, acknowledged, brought
from bruit.node.relay import drops
from bruit.node.relay.evidence import Kind

EXPECTED: dict[Variant, Kind | None] = {
    Variant.PLAIN: None,
    Variant.DROP: None,
    Variant.CORRUPT: None,
    Variant.FALSE_WITNESS: Kind.FALSE_WITNESS,
    Variant.REPLAY: Kind.REPLAY,
    Variant.OVERSPEND: Kind.OVERLAPPING_STAKE,
    Variant.BAD_BLOCK: Kind.INVALID_BLOCK,
}


class Condition(msgspec.Struct, frozen=True):
    met: bool
    sentence: str


def conditions(
    progress: Progress,
    folders: Folders,
    checked: Mapping[str, Checked],
    proofs: Mapping[str, Checked],
) -> list[Condition]:
    """What must be so, and whether it is. ``checked``: evidence by file, ``proofs`` likewise."""
    plan = progress.plan
    consumers, delivered = len(plan.of(Role.CONSUMER)), len(progress.delivered())
    if plan.variant is Variant.BAD_BLOCK:
        found = [Condition(not progress.got, "no consumer delivers anything")]
    else:
        found = [
            Condition(
                delivered == consumers, f"{delivered} of {consumers} consumers have the block"
            )
        ]
    found += [*_proof(progress, proofs), *_of_variant(progress, folders)]
    return [*found, *_evidence(progress, checked)]


def _proof(progress: Progress, proofs: Mapping[str, Checked]) -> Iterator[Condition]:
    first = progress.sent[0]
    acks = sum(first.acknowledged.values())
    if progress.plan.variant is not Variant.OVERSPEND:  # whose producer is cut off for its second
        yield Condition(
            acks == first.chunks, f"{acks} of {first.chunks} chunks carry an acknowledgement"
        )
    holding = sum(each.holds for each in proofs.values())
    yield Condition(
        holding == len(proofs) == len(progress.sent),
        f"{holding} of {len(progress.sent)} proofs of broadcast hold",
    )


def _of_variant(progress: Progress, folders: Folders) -> Iterator[Condition]:
    plan = progress.plan
    consumers = plan.of(Role.CONSUMER)
    match plan.variant:
        case Variant.PLAIN:
            pass
        case Variant.DROP:
            for cluster in plan.faulty:
                yield Condition(
                    not brought(progress, cluster),
                    f"cluster {cluster} acknowledged {acknowledged(progress, cluster)} chunks "
                    f"and brought {brought(progress, cluster)}",
                )
        case Variant.CORRUPT:
            yield from _corrupt(progress)
        case Variant.FALSE_WITNESS:
            [outsider] = plan.of(Role.OUTSIDER)
            named = folders.ids[outsider].hex()
            finders = [
                each.place
                for each in progress.found
                if each.kind == Kind.FALSE_WITNESS.value and each.culprits == (named,)
            ]
            yield Condition(
                all(each in finders for each in consumers),
                f"{len(dict.fromkeys(finders))} nodes found the false witness and name it",
            )
            refused = _dropped(progress, drops.FALSE_WITNESS)
            yield Condition(refused > 0, f"{refused} falsely witnessed chunks were refused")
        case Variant.REPLAY:
            late = _dropped(progress, drops.REPLAYED)
            yield Condition(late > 0, f"{late} chunks were dropped for being too old")
        case Variant.OVERSPEND:
            second = len(progress.delivered(1))
            taken = sum(progress.sent[1].acknowledged.values())
            yield Condition(
                not second,
                f"{second} consumers have the second block; members that could not know better "
                f"took {taken} of its {progress.sent[1].chunks} chunks",
            )
            members = [
                index
                for index in progress.finders(Kind.OVERLAPPING_STAKE)
                if plan.places[index].role is Role.MEMBER
            ]
            yield Condition(bool(members), f"{len(members)} members found the stake spent twice")
            refused = _dropped(progress, drops.OVERSPENT)
            yield Condition(refused > 0, f"{refused} times a node refused a chunk of it")
        case Variant.BAD_BLOCK:
            finders = progress.finders(Kind.INVALID_BLOCK)
            yield Condition(
                all(each in finders for each in consumers),
                f"{len(finders)} of {len(consumers)} consumers dispute the block",
            )


def _corrupt(progress: Progress) -> Iterator[Condition]:
    plan = progress.plan
    for cluster in plan.faulty:
        yield Condition(
            not brought(progress, cluster),
            f"cluster {cluster} brought {brought(progress, cluster)} chunks into blocks",
        )
    refused: dict[int, None] = {}
    below: dict[int, None] = {}
    for figures in progress.figures.values():
        for peers, into in ((figures.refused, refused), (figures.blamed, below)):
            into.update((each, None) for each in map(progress.place_of, peers) if each is not None)
    cheats = [each for each in refused if plan.places[each].cluster in plan.faulty]
    yield Condition(
        bool(cheats) and len(cheats) == len(refused),
        f"{len(refused)} peers had messages refused, {len(cheats)} of them in clusters that cheat",
    )
    blamed = [each for each in cheats if each in below]
    yield Condition(
        len(blamed) == len(cheats), f"{len(blamed)} of these have a score below 0 with a peer"
    )


def _dropped(progress: Progress, reason: str) -> int:
    return sum(each.dropped.get(reason, 0) for each in progress.figures.values())


def _evidence(progress: Progress, checked: Mapping[str, Checked]) -> Iterator[Condition]:
    kind = EXPECTED[progress.plan.variant]
    kinds = dict.fromkeys(each.kind for each in progress.found)
    if kind is None:
        yield Condition(not kinds, f"disputes: {', '.join(kinds) or 'none'}")
        return
    found = [each for each in progress.found if each.kind == kind.value]
    yield Condition(bool(found), f"{len(found)} disputes for {kind.value}")
    holding = sum(each.file in checked and checked[each.file].holds for each in progress.found)
    yield Condition(
        holding == len(progress.found),
        f"{holding} of {len(progress.found)} pieces of evidence hold, checked offline",
    )
