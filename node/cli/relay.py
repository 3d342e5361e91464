"""``bruit relay``: the block relay of a node, what it has done, and checks of what others say."""

from __future__ import annotations  # what the types below are from is heavy to import

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bruit.node.cli.options import Flags, config_options
from bruit.node.cli.relay_broadcast import broadcast
from bruit.node.cli.relay_demo import demo
from bruit.node.cli.relay_key import key
from bruit.node.cli.relay_stake import open_audit, stake
from bruit.node.cli.relay_verify import (
    MARKETPLACE,
    read_marketplace_file,
    verify_evidence_file,
    verify_proof_file,
)
from bruit.node.cli.tables import date, print_table

if TYPE_CHECKING:
    from bruit.node.relay_status import ClusterStatus, RelayStatus
    from bruit.plugins.marketplace import Marketplace


def _message_id(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> bytes | None:
    if text is None:
        return None
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{8})", text)
    if match is None:
        raise click.BadParameter(
            f"{text!r} is no message id: 8 hexadecimal digits, such as 1a2b3c4d"
        )
    return bytes.fromhex(match[1])


_MESSAGE = click.option(
    "--message", "message_id", metavar="ID", callback=_message_id, help="Of this message alone."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array.")


@click.group()
def relay() -> None:
    """Send blocks through clusters; show what a node did; check proofs and evidence; make keys.

    status asks the node of a configuration file, bruit.toml unless -c names another, through
    its control socket. proofs, disputes, blocks and stake read its audit, whether it runs or
    not. The verify commands need no node and no configuration.

    \b
    Examples:
      bruit relay key new bob/relay.key
      bruit relay status -c bob/bruit.toml
      bruit relay broadcast -c alice/bruit.toml blocks block.raw
    """


relay.add_command(broadcast)
relay.add_command(demo)
relay.add_command(verify_evidence_file)
relay.add_command(verify_proof_file)
relay.add_command(key)
relay.add_command(stake)


@relay.command()
@config_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Print what the relay of a running node is doing.

    That is its roles and address, its stake, what is under way, what was disputed and dropped
    and why; and for every cluster how many chunks of delivered blocks it witnessed, how fast
    and how often it acknowledges chunks, and its failures since it last did.

    \b
    Example:
      bruit relay status -c alice/bruit.toml
    """
    from bruit.node.cli.control_client import ask

    said = ask(Flags(config_file, assignments).load_file(), "relay.status")
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return
    found = _relay_status(said)
    for line in _status_lines(found):
        click.echo(line)
    click.echo()
    print_table(
        (
            "cluster",
            "price",
            "members",
            "chunks",
            "latency",
            "acknowledged",
            "passed on",
            "failures",
        ),
        map(_cluster_row, found.clusters),
        "The marketplace has no clusters.",
    )


@relay.command()
@config_options
@_MESSAGE
@click.option("--verify", is_flag=True, help="Check each proof, as verify-proof does.")
@MARKETPLACE
@_JSON
def proofs(
    config_file: Path | None,
    assignments: tuple[str, ...],
    message_id: bytes | None,
    verify: bool,
    marketplace_file: Path | None,
    as_json: bool,
) -> None:
    """List the broadcasts of the node, newest first, and where their proofs are.

    With --verify the exit code is 1 if a proof does not hold; one whose file has been taken
    away is only said to be gone.

    \b
    With --json each is an object with kept_at, timestamp (both Unix time, seconds), channel,
    message_id, producer, chunks, acknowledged (how many of them), proof_file (a path) and,
    with --verify, holds (null for a file that is gone) and statements.

    \b
    Examples:
      bruit relay proofs -c alice/bruit.toml
      bruit relay proofs -c alice/bruit.toml --message 1a2b3c4d --verify
    """
    loaded = Flags(config_file, assignments).load_file()
    folder = loaded.directory / loaded.config.relay.proofs
    with open_audit(loaded) as audit:
        found = audit.broadcasts(message_id)
    marketplace = read_marketplace_file(marketplace_file)
    rows: list[dict[str, object]] = []
    for each in found:
        path = folder / each.proof_file if each.proof_file else None
        row: dict[str, object] = {
            "kept_at": each.kept_at,
            "timestamp": each.timestamp,
            "channel": each.channel,
            "message_id": each.message_id.hex(),
            "producer": _address(each.producer),
            "chunks": each.chunks,
            "acknowledged": each.acknowledged,
            "proof_file": str(path or ""),
        }
        rows.append(row | _verified(path, marketplace) if verify else row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        words = {True: "holds", False: "does not hold", None: "gone"}
        print_table(
            (
                "attested",
                "channel",
                "message",
                "acknowledged",
                *(["proof"] if verify else []),
                "file",
            ),
            (
                (
                    date(each.timestamp),
                    str(each.channel),
                    each.message_id.hex(),
                    f"{each.acknowledged} of {each.chunks}",
                    *([words[row["holds"]]] if verify else []),  # type: ignore[index]
                    str(row["proof_file"]),
                )
                for each, row in zip(found, rows, strict=True)
            ),
            "There is no broadcast in the audit.",
        )
    if verify and any(row["holds"] is False for row in rows):
        click.get_current_context().exit(1)


@relay.command()
@config_options
@_MESSAGE
@_JSON
def disputes(
    config_file: Path | None,
    assignments: tuple[str, ...],
    message_id: bytes | None,
    as_json: bool,
) -> None:
    """List the disputes that the node has found, newest first, and where the evidence is.

    \b
    With --json each is an object with kept_at, found_at (both Unix time, seconds), kind,
    reason, channel, message_id, producers, culprits (addresses) and evidence_file (a path).

    \b
    Examples:
      bruit relay disputes -c carol/bruit.toml
      bruit relay disputes -c carol/bruit.toml --json
    """
    from bruit.node.relay.evidence import plain

    loaded = Flags(config_file, assignments).load_file()
    folder = loaded.directory / loaded.config.relay.disputes
    with open_audit(loaded) as audit:
        found = audit.disputes(message_id)
    files = [str(folder / each.evidence_file) if each.evidence_file else "" for each in found]
    if as_json:
        rows = [
            {
                "kept_at": each.kept_at,
                "found_at": each.found_at,
                "kind": each.kind,
                "reason": each.reason,
                "channel": each.channel,
                "message_id": each.message_id.hex(),
                "producers": [_address(who) for who in each.producers],
                "culprits": [_address(who) for who in each.culprits],
                "evidence_file": file,
            }
            for each, file in zip(found, files, strict=True)
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    if not found:
        click.echo("There is no dispute in the audit.", err=True)
    for each, file in zip(found, files, strict=True):
        click.echo(f"{date(each.found_at)}  {each.kind}, message {each.message_id.hex()}")
        click.echo(f"  {plain(each.reason)}")
        for role, members in (("producer", each.producers), ("signer at fault", each.culprits)):
            for who in members:
                click.echo(f"  {role} {_address(who)}")
        click.echo(f"  {file or 'the evidence could not be written'}")


@relay.command()
@config_options
@_MESSAGE
@_JSON
def blocks(
    config_file: Path | None,
    assignments: tuple[str, ...],
    message_id: bytes | None,
    as_json: bool,
) -> None:
    """List the blocks that the node rebuilt and delivered, newest first.

    \b
    With --json each is an object with kept_at, first_chunk_at (both Unix time, seconds),
    channel, message_id, block_hash (Keccak-256), size (bytes), producers (addresses) and
    clusters (by id: how many of its chunks each had witnessed).

    \b
    Example:
      bruit relay blocks -c carol/bruit.toml
    """
    with open_audit(Flags(config_file, assignments).load_file()) as audit:
        found = audit.blocks(message_id)
    if as_json:
        rows = [
            {
                "kept_at": each.kept_at,
                "first_chunk_at": each.first_chunk_at,
                "channel": each.channel,
                "message_id": each.message_id.hex(),
                "block_hash": each.block_hash.hex(),
                "size": each.size,
                "producers": [_address(who) for who in each.producers],
                "clusters": each.clusters,
            }
            for each in found
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    print_table(
        ("delivered", "after", "channel", "message", "bytes", "producers", "chunks by cluster"),
        (
            (
                date(each.kept_at),
                f"{1000 * (each.kept_at - each.first_chunk_at):.0f} ms",
                str(each.channel),
                each.message_id.hex(),
                f"{each.size:,}",
                ", ".join(map(_address, each.producers)),
                ", ".join(f"{count} by {cluster}" for cluster, count in each.clusters.items()),
            )
            for each in found
        ),
        "There is no block in the audit.",
    )


def _relay_status(said: object) -> RelayStatus:
    import msgspec

    from bruit.node.relay_status import RelayStatus

    return msgspec.convert(said, RelayStatus)


def _status_lines(found: RelayStatus) -> Iterator[str]:
    where = "" if found.cluster is None else f" of cluster {found.cluster}"
    roles = [f"{role}{where}" if role == "member" else role for role in found.roles]
    yield f"roles      {', '.join(roles) or 'none'}"
    if found.address:
        yield f"address    0x{found.address.removeprefix('0x')}"
    yield f"producers  {found.producers} in the marketplace"
    if found.stake is not None:
        total, used = found.stake.registered, found.stake.in_use
        yield f"stake      {total:,} tokens, {used:,} in use, {total - used:,} free"
    yield f"under way  {found.broadcasting} broadcasts, {found.waiting} signatures to check or make"
    yield (
        f"so far     {found.broadcasts} broadcasts, {found.witnessed} chunks witnessed, "
        f"{found.published} published, {found.delivered} blocks delivered"
    )
    for kind, count in sorted(found.disputes.items()):
        yield f"disputed   {count}: {kind}"
    for reason, count in sorted(found.dropped.items()):
        yield f"dropped    {count}: {reason}"
    for what, count in (
        ("chunks that could not be published", found.unpublished),
        ("blocks lost to slow subscribers", found.blocks_lost),
        ("reports without room in the audit", found.unaudited),
        *sorted(found.stream_faults.items()),
    ):
        if count:
            yield f"faults     {count}: {what}"


def _cluster_row(each: ClusterStatus) -> tuple[str, ...]:
    latency = "–" if each.latency is None else f"{1000 * each.latency:.0f} ms"
    counts = (each.id, each.price, each.members, each.chunks)
    rates = (_share(each.acknowledgement_rate), _share(each.delivery_rate))
    return (*map(str, counts), latency, *rates, str(each.recent_failures))


def _share(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.0f} %"


def _verified(path: Path | None, marketplace: Marketplace | None) -> dict[str, object]:
    from bruit.node.relay.proof import MAX_PROOF, decode_proof, verify_proof
    from bruit.topics.errors import LocalError

    try:
        with (path or Path()).open("rb") as file:
            data = file.read(MAX_PROOF + 1)
    except OSError as problem:
        return {"holds": None, "statements": [f"it cannot be read: {problem.strerror}"]}
    try:
        finding = verify_proof(decode_proof(data), marketplace)
    except LocalError as problem:
        return {"holds": False, "statements": [str(problem)]}
    return {"holds": finding.holds, "statements": list(finding.statements)}


def _address(address: bytes) -> str:
    return f"0x{address.hex()}"
