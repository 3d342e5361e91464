"""``bruit relay stake``: what a producer may still attach, and when more will be free."""

from __future__ import annotations  # what the types below are from is heavy to import

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from bruit.node.cli.options import Flags, config_options
from bruit.node.cli.relay_key import relay_address
from bruit.node.cli.tables import date

if TYPE_CHECKING:
    from bruit.node.audit_reader import AuditReader
    from bruit.node.config import Loaded


class _InUse(NamedTuple):
    """Tokens from ``start`` to before ``end``, free again at ``free_at`` (Unix time)."""

    start: int
    end: int
    free_at: int


@click.command()
@config_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stake(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Print a producer's stake: how much there is, in use and free, and when more is free.

    How much there is says the running node, or without one the marketplace of the
    configuration; what is in use stands in the audit.

    \b
    With --json: stake, used, free (tokens), and in_use, a list of objects with start, end
    (the first token and the one behind the last) and free_at (Unix time).

    \b
    Example:
      bruit relay stake -c alice/bruit.toml
    """
    from bruit.node.cli.control_client import NoNodeError, ask
    from bruit.topics.errors import LocalError

    loaded = Flags(config_file, assignments).load_file()
    if "producer" not in loaded.config.relay.roles:
        raise LocalError('the node is no producer: relay.roles has no "producer"')
    try:
        said = ask(loaded, "relay.status")["stake"]
        registered = None if said is None else said["registered"]
    except NoNodeError:
        registered = _registered(loaded)
    if registered is None:
        raise LocalError("the node's relay key is no producer in the marketplace")
    in_use = _in_use(loaded, time.time())
    used = _covered(in_use, registered)
    if as_json:
        told = {
            "stake": registered,
            "used": used,
            "free": registered - used,
            "in_use": [each._asdict() for each in in_use],
        }
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{registered:,} tokens, {used:,} in use, {registered - used:,} free")
    for each in in_use:
        click.echo(f"tokens {each.start:,} to {each.end - 1:,}: free again {date(each.free_at)}")


def open_audit(loaded: Loaded) -> AuditReader:
    """The audit of the node. Raises LocalError where there is none."""
    from bruit.node.audit_reader import AuditReader
    from bruit.topics.errors import LocalError

    path = loaded.config.relay.audit_path(loaded.directory)
    if path is None:
        raise LocalError('the node keeps no audit: relay.audit is ""')
    return AuditReader(path)


def _registered(loaded: Loaded) -> int | None:
    """The stake of the node's relay key, by the marketplace; None where it has none there."""
    from bruit.node.config import located
    from bruit.plugins.registry import PluginRegistry
    from bruit.topics.errors import ConfigError

    settings = loaded.config.relay
    own = relay_address(loaded.directory / settings.key_file)
    try:
        registry = PluginRegistry.discover(loaded.config.plugins)
        marketplace = registry.marketplace(settings.marketplace, "relay.marketplace")()
    except ConfigError as error:
        raise located(error, loaded.origins) from None
    if marketplace is None:
        return None
    return next((each.stake for each in marketplace.producers if each.address == own), None)


def _in_use(loaded: Loaded, now: float) -> list[_InUse]:
    interval = math.ceil(loaded.config.relay.params.refresh_interval)  # of whole seconds
    with open_audit(loaded) as audit:
        rows = audit.stake(now - interval)
    return [_InUse(row.start, row.end, row.timestamp + interval) for row in rows]


def _covered(in_use: Iterable[_InUse], stake: int) -> int:
    """Tokens of the first ``stake`` that are in use; pieces, by start, may overlap."""
    covered = reached = 0
    for each in in_use:
        end = min(each.end, stake)
        covered += max(end - max(each.start, reached), 0)
        reached = max(reached, end)
    return covered
