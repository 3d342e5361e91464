"""``bruit peers``: who is connected to a running node, what they score, and who is banned."""

from __future__ import annotations  # what the types below are from is heavy to import

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bruit.node.cli.options import Flags, config_options
from bruit.node.cli.tables import date, print_table

if TYPE_CHECKING:
    from bruit.node.ban_file import BanFile
    from bruit.node.config import Loaded
    from bruit.scoring.bans import Ban, Bans
    from bruit.scoring.explanation import Explanation

Result = TypeVar("Result")

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array.")


def _seconds(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """``90s``, ``15m``, ``24h``, ``7d`` or ``2w``, as seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", value, re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is no time such as 90s, 15m, 24h, 7d or 2w")
    return float(match[1]) * SECONDS[match[2]]


@click.group()
def peers() -> None:
    """Show the peers of a running node and what they score; ban peers and addresses.

    All of them ask the node of a configuration file, bruit.toml unless -c names another,
    through its control socket; only the user that the node runs as can do that. Bans
    can be read and changed while no node is running, too.

    \b
    Examples:
      bruit peers list -c relay/bruit.toml
      bruit peers scores 12D3KooW… --explain
      bruit peers ban 192.0.2.0/24 --for 24h --reason spam
    """


@peers.command("list")
@config_options
@_JSON
def list_peers(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """List the connected peers.

    \b
    With --json each is an object with peer, address, outbound (whether the node dialled
    it), protocol, since (Unix time, seconds), score, topics (that it is subscribed to),
    mesh (topics in whose mesh it is) and traffic (bytes_in, bytes_out, frames_in,
    frames_out, queued_bytes).

    \b
    Example:
      bruit peers list -c relay/bruit.toml
    """
    from bruit.node.cli.control_client import ask

    found = ask(Flags(config_file, assignments).load_file(), "peers")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    now = time.time()
    print_table(
        ("peer", "score", "address", "connected", "mesh", "topics", "bytes in", "bytes out"),
        (
            (
                peer["peer"],
                f"{peer['score']:.6g}",
                peer["address"] or "unknown",
                ("to " if peer["outbound"] else "from ") + _span(now - peer["since"]),
                str(len(peer["mesh"])),
                str(len(peer["topics"])),
                f"{peer['traffic']['bytes_in']:,}",
                f"{peer['traffic']['bytes_out']:,}",
            )
            for peer in found
        ),
        "Nobody is connected.",
    )


@peers.command("scores")
@click.argument("peer", required=False)
@config_options
@click.option("--explain", is_flag=True, help="Print what each score is made of.")
@_JSON
def scores(
    peer: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Print the score of PEER, or of all peers that are connected or remembered.

    A peer that left with a score of 0 or less is remembered for a time.

    --explain prints every counter, weight and contribution behind a score. With --json
    the contributions add up to the score exactly: the terms p1, p2, p3, p3b, p4 of a
    topic times its weight are its contribution, those of the topics topics_sum; and
    topics_capped, app_specific, ip_colocation, behaviour_penalty and slow_peer, added
    in this order, are the score.

    \b
    Examples:
      bruit peers scores -c relay/bruit.toml
      bruit peers scores 12D3KooW… --explain
      bruit peers scores --explain --json > scores.json
    """
    import msgspec

    from bruit.node.cli.control_client import ask
    from bruit.scoring.explanation import Explanation

    loaded = Flags(config_file, assignments).load_file()
    found: list[dict[str, Any]] = (
        ask(loaded, "scores") if peer is None else [ask(loaded, "explain", peer=peer)]
    )
    if as_json:
        brief = ("peer", "score", "connected", "below")
        shown = found if explain else [{name: each[name] for name in brief} for each in found]
        click.echo(json.dumps(shown, indent=2))
        return
    explanations = [
        (each["peer"], msgspec.convert(each | {"peer": b""}, Explanation)) for each in found
    ]
    if explain:
        for name, explanation in explanations:
            click.echo("\n".join([*explanation.lines(name), ""]))
        return
    print_table(
        ("peer", "score", "topics", "P5 app", "P6 address", "P7", "slow", "below"),
        ((name, *_parts(explanation)) for name, explanation in explanations),
        "No peer is known.",
    )


def _parts(explanation: Explanation) -> tuple[str, ...]:
    parts = (explanation.score, *explanation.parts().values())
    state = [] if explanation.connected else ["has left"]
    return (*(f"{part + 0.0:.6g}" for part in parts), ", ".join([*explanation.below, *state]))


@peers.command()
@click.argument("target")
@config_options
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    callback=_seconds,
    help="How long: 90s, 15m, 24h, 7d or 2w. Until it is lifted, unless given.",
)
@click.option("--reason", metavar="TEXT", required=True, help="Why, for whoever reads the list.")
def ban(
    target: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    seconds: float | None,
    reason: str,
) -> None:
    """Ban TARGET: a peer id, an IP address, or a subnet such as 192.0.2.0/24.

    Whoever it concerns is hung up on and refused from then on, and messages that a banned
    peer wrote are taken from nobody. A ban replaces an earlier one of the same target,
    and outlives the node.

    \b
    Examples:
      bruit peers ban 12D3KooW… --for 24h --reason "floods the mesh"
      bruit peers ban 2001:db8::/32 --reason "agreed with its operator"
    """
    import msgspec

    from bruit.node.cli.control_client import NoNodeError, ask
    from bruit.scoring.bans import Ban

    loaded = Flags(config_file, assignments).load_file()
    try:
        said = ask(loaded, "ban", target=target, seconds=seconds, reason=reason)
        made = msgspec.convert(said, Ban)
    except NoNodeError:
        made = _edit(loaded, lambda bans: bans.ban(target, seconds, reason, time.time()))
    click.echo(f"{made.target} is banned {_until(made)}")


@peers.command()
@click.argument("target")
@config_options
def unban(target: str, config_file: Path | None, assignments: tuple[str, ...]) -> None:
    """Lift the ban of TARGET, written as for ban.

    The exit code is 1 where there is no such ban. One of a subnet is lifted as a
    whole or not at all.

    \b
    Example:
      bruit peers unban 192.0.2.0/24
    """
    from bruit.node.cli.control_client import NoNodeError, ask
    from bruit.topics.errors import LocalError

    loaded = Flags(config_file, assignments).load_file()
    try:
        lifted = ask(loaded, "unban", target=target)
    except NoNodeError:
        lifted = _edit(loaded, lambda bans: bans.lift(target))
    if not lifted:
        raise LocalError(f"{target} is not banned: `bruit peers bans` lists who is")
    click.echo(f"{target} is no longer banned")


@peers.command("bans")
@config_options
@_JSON
def list_bans(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """List the bans in force.

    With --json each is an object with target, since, until (both Unix time, seconds;
    until is null where it holds until it is lifted) and reason.

    \b
    Example:
      bruit peers bans -c relay/bruit.toml
    """
    import msgspec

    from bruit.node.cli.control_client import NoNodeError, ask
    from bruit.scoring.bans import Ban

    loaded = Flags(config_file, assignments).load_file()
    try:
        found = msgspec.convert(ask(loaded, "bans"), list[Ban])
    except NoNodeError:
        file = _ban_file(loaded)
        file.reload()
        now = time.time()
        found = [ban for ban in file.bans if not ban.over(now)]
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    print_table(
        ("target", "since", "until", "reason"),
        (
            (
                ban.target,
                date(ban.since),
                "no end" if ban.until is None else date(ban.until),
                ban.reason,
            )
            for ban in found
        ),
        "Nobody is banned.",
    )


def _ban_file(loaded: Loaded) -> BanFile:
    from bruit.node.ban_file import BanFile
    from bruit.node.banning import BAN_FILE

    return BanFile(loaded.directory / BAN_FILE)


def _edit(loaded: Loaded, change: Callable[[Bans], Result]) -> Result:
    """Change the bans without a node."""
    from bruit.node.banning import edit_file

    return edit_file(_ban_file(loaded), change)


def _until(ban: Ban) -> str:
    return "until it is lifted" if ban.until is None else f"until {date(ban.until)}"


def _span(seconds: float) -> str:
    """Roughly how long, in the two largest units."""
    total = max(int(seconds), 0)
    parts: list[str] = []
    for unit in reversed(SECONDS):
        count, total = divmod(total, SECONDS[unit])
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
