"""``bruit demo``: a block through a mesh of real nodes on this machine."""

from pathlib import Path

import click

TABLE_WIDTH = 100  # columns, where the output is no terminal that has its own


@click.command()
@click.option(
    "--nodes", type=int, default=16, show_default=True, help="libp2p hosts in the network."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides all that is random.")
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
@click.option(
    "--kill", type=int, default=0, metavar="K", help="Kill K random nodes while the block spreads."
)
@click.option("--tamper", is_flag=True, help="Let the publisher flip one transaction bit.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.pass_context
def demo(
    context: click.Context,
    nodes: int,
    seed: int,
    file: Path | None,
    network: str,
    txs: int | None,
    kill: int,
    tamper: bool,
    as_json: bool,
) -> None:
    """Send a Bitcoin block through a mesh of real nodes.

    Starts the nodes in several processes, connects them over loopback TCP into a sparse
    random network (4 links each), publishes a block at one of them and shows how it
    spreads. Every node packs with the zstd plugin and checks with the bitcoin plugin
    before it forwards. Nothing is downloaded: without --block, a block is made and mined
    at regtest difficulty.

    Exits with 0 if every living node has the identical block, or, with --tamper, if no
    node but the publisher has it and somebody refused it; else with 1.

    \b
    Examples:
      bruit demo
      bruit demo --kill 3 --seed 7
      bruit demo --block block-574200.blk --json
      bruit demo --tamper
    """
    if file is not None and txs is not None:
        raise click.UsageError("--txs makes a block and --block names one: use either")
    if kill and tamper:
        raise click.UsageError("--kill and --tamper are two demonstrations: use either")

    import random

    import msgspec
    import trio
    from rich.console import Console
    from rich.live import Live

    from bruit.node.demo.blocks import load_block, tamper_with
    from bruit.node.demo.coordinator import Progress, run_demo
    from bruit.node.demo.plan import make_plan
    from bruit.node.demo.report import refusals, summarise, table, view
    from bruit.plugins.bitcoin import block_hash
    from bruit.plugins.bitcoin.generate import TRANSACTIONS_PER_MEGABYTE, generate_block
    from bruit.topics.errors import LocalError

    rng = random.Random(seed)
    try:
        plan = make_plan(nodes, kill, rng)
    except LocalError as problem:
        raise click.UsageError(str(problem)) from None
    if file is None:
        network = "regtest"
        block = generate_block(rng, txs or TRANSACTIONS_PER_MEGABYTE)
    else:
        block = load_block(file)
    name = block_hash(block)
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(
        f"block {name}, {len(block):,} bytes ({network})", highlight=False, soft_wrap=True
    )
    console.print(
        f"{plan.nodes} nodes in {len(plan.groups)} processes, {len(plan.pairs)} connections, "
        f"publisher: node {plan.publisher}",
        highlight=False,
    )
    sent = block
    if tamper:
        sent, at = tamper_with(block, rng)
        console.print(f"the publisher flips one bit of byte {at:,}", highlight=False)

    with Live(console=console, transient=True, auto_refresh=False) as live:

        def show(progress: Progress) -> None:
            if console.is_terminal:
                live.update(view(progress), refresh=True)

        progress = trio.run(run_demo, plan, sent, network, tamper, show)

    summary = summarise(progress, block, name, tamper)
    console.print(table(progress))
    for sentence in refusals(progress):
        console.print(sentence, highlight=False, soft_wrap=True)
    if tamper:
        success = summary.delivered == 0 and summary.rejected > 0
        others = summary.nodes - 1
        console.print(
            f"{summary.delivered} of {others} other nodes took the tampered block, "
            f"{summary.rejected} refused it",
            highlight=False,
        )
    else:
        success = summary.delivered == summary.alive
        console.print(
            f"{summary.delivered} of {summary.alive} living nodes have the identical block: "
            f"p50 {_milliseconds(summary.p50_ms)}, p95 {_milliseconds(summary.p95_ms)}, "
            f"max {_milliseconds(summary.max_ms)}; "
            f"{summary.wire_bytes:,} bytes on the wire, {summary.duplicates} duplicates",
            highlight=False,
            soft_wrap=True,
        )
    if as_json:
        click.echo(msgspec.json.encode(summary))
    context.exit(0 if success else 1)


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"
