"""What a finished demonstration of the relay shows, counted from a run that is made up."""

import io
from pathlib import Path
from random import Random

import msgspec
import pytest
from rich.console import Console

from bruit.node.demo.relay.coordinator import Progress
from bruit.node.demo.relay.folders import Folders
from bruit.node.demo.relay.outcome import conditions
from bruit.node.demo.relay.plan import Plan, Role, Shape, Variant, make_plan
from bruit.node.demo.relay.protocol import (
    Figures,
    Found,
    Got,
    Listening,
    Misdeed,
    Relayed,
    Sent,
)
from bruit.node.demo.relay.report import (
    Checked,
    Summary,
    blame,
    by_cluster,
    by_consumer,
    evidence,
    misdeeds,
    summarise,
    view,
)
from bruit.node.relay import drops

ROOT = Path("/demo")
AT = 1_000_000.0  # Unix time, seconds
HOLDS = Checked(True, ("a producer signed it",))
FALLS = Checked(False, ("nobody signed it",))
PROOFS = {"proof": HOLDS}
SHAPE = Shape(clusters=2, members=2, consumers=2, min_chunks=2, num_chunks=4)


def plan_of(variant: Variant) -> Plan:
    faulty = 1 if variant in (Variant.DROP, Variant.CORRUPT) else 0
    return make_plan(msgspec.structs.replace(SHAPE, variant=variant, faulty=faulty), Random(1))


def folders_of(plan: Plan) -> Folders:
    count = len(plan.places)
    return Folders(
        ROOT,
        tuple(ROOT / place.name for place in plan.places),
        tuple(bytes([index]) * 20 for index in range(count)),
    )


def run_of(variant: Variant, delivered: int = 2) -> Progress:
    """All chunks went out and were acknowledged, two by each cluster."""
    plan = plan_of(variant)
    progress = Progress(plan, ("first", "second"))
    progress.listening = {
        index: Listening(index, f"peer{index}", "") for index in range(len(plan.places))
    }
    progress.ready = dict.fromkeys(progress.listening)
    progress.sent = [Sent(AT, "", "abcd", 4, 5, {1: 2, 2: 2})]
    good = [cluster for cluster in plan.clusters if cluster not in plan.faulty]
    for number, index in enumerate(plan.of(Role.CONSUMER)[:delivered], 1):
        progress.got.append(Got(index, AT + 0.1 * number, "first", dict.fromkeys(good, 2)))
    progress.relayed = {
        index: Relayed(index, 1, 0 if plan.places[index].cluster in plan.faulty else 2)
        for index in plan.of(Role.MEMBER)
    }
    progress.figures = {index: Figures(index, {}, {}, {}) for index in progress.listening}
    return progress


def found(progress: Progress, place: int, kind: str, culprits: tuple[int, ...] = ()) -> Found:
    ids = folders_of(progress.plan).ids
    file = str(folders_of(progress.plan).nodes[place] / "disputes" / "some.json")
    named = tuple(ids[each].hex() for each in culprits)
    return Found(place, kind, "it is wrong", "abcd", (ids[0].hex(),), named, file)


def met(progress: Progress, checked: dict[str, Checked] | None = None) -> bool:
    if checked is None:
        checked = {each.file: HOLDS for each in progress.found}
    proofs = {f"proof {number}": HOLDS for number in range(len(progress.sent))}
    said = conditions(progress, folders_of(progress.plan), checked, proofs)
    return all(each.met for each in said)


def dropped(progress: Progress, place: int, reason: str) -> None:
    old = progress.figures[place]
    progress.figures[place] = msgspec.structs.replace(old, dropped={reason: 3})


def text_of(*shown: object) -> str:
    written = io.StringIO()
    console = Console(width=200, file=written)
    for each in shown:
        console.print(each)
    return written.getvalue()


# The line of JSON


def test_the_summary_has_exactly_the_promised_fields() -> None:
    progress = run_of(Variant.PLAIN)
    line = msgspec.json.decode(
        msgspec.json.encode(summarise(progress, folders_of(progress.plan), {}))
    )
    assert line == {
        "consumers": 2,
        "delivered": 2,
        "chunks_sent": 5,
        "acks": 4,
        "disputes": 0,
        "evidence": [],
        "p50_ms": 100.0,
        "max_ms": 200.0,
        "selector": "random",
    }


def test_the_summary_lists_evidence_with_what_its_check_said() -> None:
    progress = run_of(Variant.FALSE_WITNESS)
    [outsider] = progress.plan.of(Role.OUTSIDER)
    first, second = progress.plan.of(Role.CONSUMER)
    progress.found = [
        found(progress, first, "false-witness", (outsider,)),
        found(progress, second, "false-witness", (outsider,)),
    ]
    checked = {progress.found[0].file: HOLDS, progress.found[1].file: FALLS}
    summary: Summary = summarise(progress, folders_of(progress.plan), checked)
    assert summary.disputes == 2
    assert [each.holds for each in summary.evidence] == [True, False]
    assert summary.evidence[0].file == "consumer-1/disputes/some.json"
    assert summary.evidence[0].producers == ("0x" + "00" * 20,)
    assert summary.evidence[0].culprits == ("0x" + f"{outsider:02x}" * 20,)


def test_a_block_that_never_came_has_no_times() -> None:
    progress = run_of(Variant.BAD_BLOCK, delivered=0)
    summary = summarise(progress, folders_of(progress.plan), {})
    assert (summary.delivered, summary.p50_ms, summary.max_ms) == (0, None, None)


# What people see


def test_the_table_shows_which_cluster_brought_nothing() -> None:
    progress = run_of(Variant.DROP)
    [cheat] = progress.plan.faulty
    rows = [line for line in text_of(by_consumer(progress)).splitlines() if "consumer-" in line]
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert [row[:3] for row in cells] == [
        ["consumer-1", "delivered", "100"],
        ["consumer-2", "delivered", "200"],
    ]
    assert all(row[2 + cheat] == "0" for row in cells)
    assert all(row[2 + 3 - cheat] == "2" for row in cells)
    assert "passes none on" in text_of(by_cluster(progress))


def test_the_live_view_has_a_line_for_each_cluster_and_a_mark_for_each_consumer() -> None:
    progress = run_of(Variant.PLAIN, delivered=1)
    shown = text_of(view(progress))
    assert shown.count("cluster") == 2
    assert shown.count("2 chunks witnessed") == 2
    assert (shown.count("●"), shown.count("○")) == (1, 1)
    progress.ready = {}
    assert "0 ready" in text_of(view(progress))


def test_who_cheats_and_who_is_blamed_are_named() -> None:
    progress = run_of(Variant.CORRUPT)
    cheat = next(
        index
        for index, place in enumerate(progress.plan.places)
        if place.cluster in progress.plan.faulty
    )
    name = progress.plan.places[cheat].name
    consumer = progress.plan.of(Role.CONSUMER)[0]
    peer = f"peer{cheat}"
    progress.figures[consumer] = Figures(consumer, {}, {peer: 3}, {peer: -7.25})
    progress.misdeeds = [Misdeed(cheat, "does what it must not")]
    assert misdeeds(progress) == [f"{name} does what it must not"]
    [sentence] = blame(progress)
    assert sentence.startswith(f"{name}: 3 messages refused")
    assert "-7.2" in sentence


def test_evidence_of_one_kind_against_the_same_is_shown_once_with_its_check() -> None:
    progress = run_of(Variant.BAD_BLOCK, delivered=0)
    progress.found = [
        found(progress, place, "invalid-block") for place in progress.plan.of(Role.CONSUMER)
    ]
    checked = {each.file: HOLDS for each in progress.found}
    lines = evidence(progress, folders_of(progress.plan), checked, "check")
    assert lines[0].startswith("invalid-block: producers 0x")
    assert "(producer); 2 found by consumer-1, consumer-2" in lines[0]
    assert "  - a producer signed it" in lines
    assert "  checked offline: 2 of 2 hold" in lines
    assert lines[-1] == "  check /demo/consumer-1/disputes/some.json"


# Whether it ended as it should


def ended(variant: Variant) -> Progress:
    """A run that ended as the document wants."""
    progress = run_of(variant, delivered=0 if variant is Variant.BAD_BLOCK else 2)
    plan = progress.plan
    consumers, members = plan.of(Role.CONSUMER), plan.of(Role.MEMBER)
    match variant:
        case Variant.CORRUPT:
            cheats = [each for each in members if plan.places[each].cluster in plan.faulty]
            peers = [f"peer{each}" for each in cheats]
            progress.figures[consumers[0]] = Figures(
                consumers[0], {}, dict.fromkeys(peers, 2), dict.fromkeys(peers, -5.0)
            )
        case Variant.FALSE_WITNESS:
            outsider = plan.of(Role.OUTSIDER)[0]
            progress.found = [
                found(progress, each, "false-witness", (outsider,)) for each in consumers
            ]
            dropped(progress, consumers[0], drops.FALSE_WITNESS)
        case Variant.REPLAY:
            progress.found = [found(progress, consumers[0], "replay")]
            dropped(progress, consumers[0], drops.REPLAYED)
        case Variant.OVERSPEND:
            progress.sent.append(Sent(AT + 1, "", "dcba", 4, 4, {1: 1}))
            progress.found = [found(progress, members[0], "overlapping-stake")]
            dropped(progress, members[0], drops.OVERSPENT)
        case Variant.BAD_BLOCK:
            progress.found = [found(progress, each, "invalid-block") for each in consumers]
        case _:
            pass
    return progress


@pytest.mark.parametrize("variant", Variant)
def test_a_run_that_ended_as_it_should_meets_all_conditions(variant: Variant) -> None:
    assert met(ended(variant))


@pytest.mark.parametrize("variant", [each for each in Variant if each is not Variant.BAD_BLOCK])
def test_every_consumer_must_have_the_block(variant: Variant) -> None:
    progress = ended(variant)
    progress.got.pop()
    assert not met(progress)


@pytest.mark.parametrize(
    "variant", [Variant.FALSE_WITNESS, Variant.REPLAY, Variant.OVERSPEND, Variant.BAD_BLOCK]
)
def test_evidence_must_be_there_and_hold(variant: Variant) -> None:
    progress = ended(variant)
    assert not met(progress, {each.file: FALLS for each in progress.found})
    progress.found = []
    assert not met(progress)


@pytest.mark.parametrize("variant", [Variant.PLAIN, Variant.DROP, Variant.CORRUPT])
def test_nobody_may_be_disputed_where_no_evidence_is_due(variant: Variant) -> None:
    progress = ended(variant)
    progress.found = [found(progress, progress.plan.of(Role.CONSUMER)[0], "too-few-chunks")]
    assert not met(progress)


def test_a_chunk_without_acknowledgement_is_a_failure() -> None:
    progress = ended(Variant.PLAIN)
    progress.sent[0] = msgspec.structs.replace(progress.sent[0], acknowledged={1: 2, 2: 1})
    assert not met(progress)


@pytest.mark.parametrize("proofs", [{}, {"proof": FALLS}])
def test_the_proof_of_broadcast_must_hold(proofs: dict[str, Checked]) -> None:
    progress = ended(Variant.PLAIN)
    said = conditions(progress, folders_of(progress.plan), {}, proofs)
    assert [each.met for each in said].count(False) == 1


@pytest.mark.parametrize("variant", [Variant.DROP, Variant.CORRUPT])
def test_a_cluster_that_cheats_must_bring_nothing(variant: Variant) -> None:
    progress = ended(variant)
    [cheat] = progress.plan.faulty
    progress.got[0].clusters[cheat] = 1
    assert not met(progress)


def test_an_honest_peer_must_not_be_refused_for_a_corrupt_cluster() -> None:
    progress = ended(Variant.CORRUPT)
    honest = next(
        index
        for index in progress.plan.of(Role.MEMBER)
        if progress.plan.places[index].cluster not in progress.plan.faulty
    )
    consumer = progress.plan.of(Role.CONSUMER)[1]
    progress.figures[consumer] = Figures(consumer, {}, {f"peer{honest}": 1}, {})
    assert not met(progress)


def test_a_false_witness_must_be_the_one_who_is_named() -> None:
    progress = ended(Variant.FALSE_WITNESS)
    member = progress.plan.of(Role.MEMBER)[0]
    place = progress.found[0].place
    progress.found[0] = found(progress, place, "false-witness", (member,))
    assert not met(progress)


def test_a_second_block_on_the_same_stake_must_not_be_delivered() -> None:
    progress = ended(Variant.OVERSPEND)
    progress.got.append(Got(progress.plan.of(Role.CONSUMER)[0], AT + 2, "second", {}))
    assert not met(progress)


def test_stake_that_is_spent_twice_must_be_found_by_members() -> None:
    progress = ended(Variant.OVERSPEND)
    consumer = progress.plan.of(Role.CONSUMER)[0]
    progress.found = [found(progress, consumer, "overlapping-stake")]
    assert not met(progress)


def test_a_bad_block_must_not_be_delivered() -> None:
    progress = ended(Variant.BAD_BLOCK)
    progress.got.append(Got(progress.plan.of(Role.CONSUMER)[0], AT + 1, "first", {}))
    assert not met(progress)
