"""``bruit plugins``: what chains have added."""

import json
from pathlib import Path

import click

from bruit.node.cli.options import Flags, config_options


@click.group()
def plugins() -> None:
    """Show the installed plugins.

    \b
    Example:
      bruit plugins list
    """


@plugins.command("list")
@config_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array, an object per plugin.")
def list_plugins(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """List the installed plugins: name, package, hooks, and why one is not loaded.

    A plugin that needs a table [plugins.NAME] needs -c to be loaded.

    \b
    Examples:
      bruit plugins list
      bruit plugins list -c relay/bruit.toml --json
    """
    import msgspec

    from bruit.node.config import located
    from bruit.plugins.registry import PluginRegistry
    from bruit.topics.errors import ConfigError

    loaded = Flags(config_file, assignments).load()
    try:
        statuses = PluginRegistry.discover(loaded.config.plugins).statuses()
    except ConfigError as error:
        raise located(error, loaded.origins) from None
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(statuses), indent=2))
        return
    if not statuses:
        click.echo("No plugins are installed.", err=True)
    for status in statuses:
        package = f"{status.distribution} {status.version}".strip()
        hooks = ", ".join(status.hooks) or "no hooks"
        click.echo(f"{status.name}  ({package})  {status.state}: {status.last_error or hooks}")
