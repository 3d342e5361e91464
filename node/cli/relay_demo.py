"""``bruit relay demo``: a block through clusters of real nodes on this machine, honest or not."""

from __future__ import annotations  # what the types below are from is heavy to import

import contextlib
import io
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bruit.node.cli.relay_verify import verify_evidence_file, verify_proof_file

if TYPE_CHECKING:
    import random

    from bruit.node.demo.relay.coordinator import Progress
    from bruit.node.demo.relay.folders import Folders
    from bruit.node.demo.relay.plan import Plan
    from bruit.node.demo.relay.report import Checked

TABLE_WIDTH = 120  # columns, where the output is no terminal that has its own
SELECTORS = ("random", "cheapest", "qos", "reputation", "mixed")  # that come with bruit


@click.command()
@click.option(
    "--block",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A block: raw or hexadecimal, also packed as .bz2 or .xz.",
)
@click.option(
    "--network",
    type=click.Choice(["main", "test", "signet", "regtest"]),
    default="main",
    show_default=True,
    help="Whose proof of work the --block must meet.",
)
@click.option(
    "--txs",
    type=click.IntRange(min=1),
    help="Transactions in the block made without --block; about 1 MB unless given.",
)
@click.option("--chunks", default="32/64", show_default=True, help="Chunks needed, of those made.")
@click.option(
    "--attest",
    type=click.Choice(["chunk", "merkle"]),
    default="chunk",
    show_default=True,
    help="Sign every chunk, or once the root of a Merkle tree over all.",
)
@click.option(
    "--selector",
    type=click.Choice(SELECTORS),
    default="random",
    show_default=True,
    help="How the producer chooses among a chunk's clusters.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of keys, block and roles.")
@click.option("--drop-clusters", type=int, metavar="N", help="N clusters forward no chunk.")
@click.option("--corrupt-cluster", type=int, metavar="N", help="N clusters flip bytes of chunks.")
@click.option("--false-witness", is_flag=True, help="A stranger witnesses chunks.")
@click.option("--replay", is_flag=True, help="Members pass chunks on when they are too old.")
@click.option("--overspend-stake", is_flag=True, help="One stake behind two blocks.")
@click.option("--bad-block", is_flag=True, help="The producer attests a tampered block.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Make this folder for the nodes' files, and leave them there.",
)
@click.option("--clusters", type=int, default=4, hidden=True)
@click.option("--members", type=int, default=3, hidden=True)
@click.option("--consumers", type=int, default=6, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.pass_context
def demo(
    context: click.Context,
    file: Path | None,
    network: str,
    txs: int | None,
    chunks: str,
    attest: str,
    selector: str,
    seed: int,
    drop_clusters: int | None,
    corrupt_cluster: int | None,
    false_witness: bool,
    replay: bool,
    overspend_stake: bool,
    bad_block: bool,
    keep: Path | None,
    clusters: int,
    members: int,
    consumers: int,
    as_json: bool,
) -> None:
    """Send a Bitcoin block through competing clusters of real nodes.

    Starts 4 clusters of 3 members, 1 producer and 6 consumers, each a process of its own,
    connects them over loopback TCP, broadcasts a block as 64 chunks, any 32 of which rebuild
    it, and shows who brought what. Nothing is downloaded: without --block, a block is made and
    mined at regtest difficulty. All proofs and evidence are checked offline before they are
    printed, as verify-proof and verify-evidence do.

    One of --drop-clusters, --corrupt-cluster, --false-witness, --replay, --overspend-stake and
    --bad-block makes somebody cheat. --seed decides keys, block and who cheats; what the nodes
    themselves draw is drawn anew each time.

    Exits with 0 if all conditions printed at the end are met, else with 1.

    \b
    The line of --json is an object with consumers, delivered (how many have the block),
    chunks_sent, acks, disputes, evidence (an array of objects with kind, producers, culprits,
    holds, file (below DIR), reason), p50_ms, max_ms (from the broadcast to delivery) and selector.

    \b
    Examples:
      bruit relay demo
      bruit relay demo --drop-clusters 1 --selector qos
      bruit relay demo --bad-block --keep /tmp/relay-demo
    """
    import random

    from bruit.node.demo.relay.folders import write_folders
    from bruit.node.demo.relay.plan import Shape, Variant, make_plan, parse_chunks
    from bruit.node.relay.params import Attesting
    from bruit.topics.errors import LocalError

    if file is not None and txs is not None:
        raise click.UsageError("--txs makes a block and --block names one: use either")
    chosen = [
        variant
        for variant, wanted in (
            (Variant.DROP, drop_clusters is not None),
            (Variant.CORRUPT, corrupt_cluster is not None),
            (Variant.FALSE_WITNESS, false_witness),
            (Variant.REPLAY, replay),
            (Variant.OVERSPEND, overspend_stake),
            (Variant.BAD_BLOCK, bad_block),
        )
        if wanted
    ]
    if len(chosen) > 1:
        names = " and ".join(f"--{variant.value}" for variant in chosen)
        raise click.UsageError(f"{names} are several demonstrations: use one")
    rng = random.Random(seed)
    try:
        needed, made = parse_chunks(chunks)
        shape = Shape(
            variant=chosen[0] if chosen else Variant.PLAIN,
            faulty=drop_clusters or corrupt_cluster or 0,
            clusters=clusters,
            members=members,
            consumers=consumers,
            min_chunks=needed,
            num_chunks=made,
            attesting=Attesting(attest),
            selector=selector,
        )
        plan = make_plan(shape, rng)
    except LocalError as problem:
        raise click.UsageError(str(problem)) from None
    with _folder(keep) as root:
        network = network if file is not None else "regtest"
        blocks = _write_blocks(root, plan, file, txs, rng)
        folders = write_folders(root, plan, network, max(map(_size, blocks)), rng)
        met = _demonstrate(plan, folders, blocks, keep is not None, as_json)
    context.exit(0 if met else 1)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    import tempfile

    from bruit.topics.errors import LocalError

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="bruit-relay-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir()
    except OSError as problem:
        raise LocalError(f"folder {keep} cannot be made: {problem.strerror}") from None
    yield keep.absolute()


def _size(path: Path) -> int:
    return path.stat().st_size


def _write_blocks(
    root: Path, plan: Plan, file: Path | None, txs: int | None, rng: random.Random
) -> list[Path]:
    """The files to broadcast: one, or two for a producer that overspends."""
    from bruit.node.demo.blocks import load_block, tamper_with
    from bruit.node.demo.relay.plan import Variant
    from bruit.plugins.bitcoin import block_hash
    from bruit.plugins.bitcoin.generate import TRANSACTIONS_PER_MEGABYTE, generate_block

    count = txs or TRANSACTIONS_PER_MEGABYTE
    block = generate_block(rng, count) if file is None else load_block(file)
    _say(f"block {block_hash(block)}, {len(block):,} bytes")
    blocks = [block]
    match plan.variant:
        case Variant.BAD_BLOCK:
            bad, at = tamper_with(block, rng)
            blocks = [bad]
            _say(f"the producer flips one bit of byte {at:,}")
        case Variant.OVERSPEND:
            second = generate_block(rng, count) if file is None else tamper_with(block, rng)[0]
            blocks.append(second)
            _say(f"and a second one, {len(second):,} bytes")
        case _:
            pass
    paths = []
    for number, each in enumerate(blocks, 1):
        paths.append(root / f"block-{number}")
        paths[-1].write_bytes(each)
    return paths


def _demonstrate(
    plan: Plan, folders: Folders, blocks: Sequence[Path], kept: bool, as_json: bool
) -> bool:
    """Run, print, and say whether all conditions are met."""
    import msgspec
    import trio
    from rich.console import Console
    from rich.live import Live

    from bruit.node.demo.relay import report
    from bruit.node.demo.relay.coordinator import run_demo
    from bruit.node.demo.relay.outcome import conditions

    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    _say(
        f"{len(plan.places)} processes: {', '.join(_census(plan))}; "
        f"{plan.min_chunks} of {plan.num_chunks} chunks, selector {plan.selector}"
    )
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def show(progress: Progress) -> None:
            if console.is_terminal:
                live.update(report.view(progress), refresh=True)

        try:
            progress = trio.run(run_demo, plan, folders, blocks, show)
        except* KeyboardInterrupt:
            raise click.Abort from None

    proofs = _check_proofs(plan, folders)
    checked = _check_evidence(progress, folders)
    console.print(report.by_consumer(progress))
    console.print(report.by_cluster(progress))
    command = f"bruit relay verify-evidence {shlex.join(_settings(plan, folders))}" if kept else ""
    for title, sentences in (
        ("misdeeds", report.misdeeds(progress)),
        ("blamed", report.blame(progress)),
        ("chunks that went nowhere", report.drops(progress)),
        ("evidence", report.evidence(progress, folders, checked, command)),
    ):
        if sentences:
            _say(title)
        for sentence in sentences:
            _say(f"  {sentence}")
    found = conditions(progress, folders, checked, proofs)
    for condition in found:
        _say(f"{'ok  ' if condition.met else 'FAIL'} {condition.sentence}")
    if as_json:
        click.echo(msgspec.json.encode(report.summarise(progress, folders, checked)))
    return all(condition.met for condition in found)


def _census(plan: Plan) -> Iterator[str]:
    from bruit.node.demo.relay.plan import Role

    for role in Role:
        if count := len(plan.of(role)):
            yield f"{count} {role.value}{'s' if count > 1 else ''}"


def _say(line: str) -> None:
    click.echo(line)


# Checks, by the commands that anybody has


def _settings(plan: Plan, folders: Folders) -> list[str]:
    """Options by which evidence is judged: the marketplace, and a consumer's plugins."""
    from bruit.node.demo.relay.folders import CONFIG
    from bruit.node.demo.relay.plan import Role

    config = folders.nodes[plan.of(Role.CONSUMER)[0]] / CONFIG
    return ["--marketplace", str(folders.marketplace), "-c", str(config)]


def _check_evidence(progress: Progress, folders: Folders) -> dict[str, Checked]:
    settings = _settings(progress.plan, folders)
    return {
        found.file: _checked(verify_evidence_file, [*settings, found.file])
        for found in progress.found
        if found.file
    }


def _check_proofs(plan: Plan, folders: Folders) -> dict[str, Checked]:
    from bruit.node.demo.relay.plan import Role

    [producer] = plan.of(Role.PRODUCER)
    files = sorted((folders.nodes[producer] / "proofs").glob("*.json"))
    settings = ["--marketplace", str(folders.marketplace)]
    return {str(file): _checked(verify_proof_file, [*settings, str(file)]) for file in files}


def _checked(command: click.Command, arguments: list[str]) -> Checked:
    """What a command of ours prints as JSON about a file."""
    from bruit.node.demo.relay.report import Checked

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        command.main([*arguments, "--json"], standalone_mode=False)
    said = json.loads(printed.getvalue())
    return Checked(said["holds"], tuple(said["statements"]))
