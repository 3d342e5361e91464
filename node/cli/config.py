"""``bruit config``: what is in force, whether it is right, and what there is to set."""

import json
from pathlib import Path

import click

from bruit.node.cli.options import Flags, config_options


@click.group()
def config() -> None:
    """Show, check and explain the configuration.

    \b
    Example:
      bruit config show -c relay/bruit.toml --origin
    """


@config.command()
@config_options
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: path to value.")
def show(
    config_file: Path | None, assignments: tuple[str, ...], origin: bool, as_json: bool
) -> None:
    """Print every setting in force, as TOML.

    Reads bruit.toml, unless -c names another file, and the environment.

    \b
    Examples:
      bruit config show -c relay/bruit.toml --origin
      BRUIT_GOSSIP__D=8 bruit config show --json
    """
    import msgspec

    from bruit.node.config.load import leaves
    from bruit.node.config.toml import write_value

    loaded = Flags(config_file, assignments).load_file()
    rows = [(path, value, loaded.origins[path]) for path, value in leaves(loaded.config)]
    if as_json:
        values = {
            path: {"value": value, "origin": source} if origin else value
            for path, value, source in rows
        }
        click.echo(json.dumps(msgspec.to_builtins(values), indent=2))
        return
    for path, value, source in rows:
        click.echo(f"{path} = {write_value(value)}" + (f"  # {source}" if origin else ""))


@config.command()
@config_options
def check(config_file: Path | None, assignments: tuple[str, ...]) -> None:
    """Check everything that a start would: settings, plugins and the key files.

    Prints the peer id when all is well; otherwise the first error, with exit code 2.

    \b
    Example:
      bruit config check -c relay/bruit.toml && systemctl restart bruit
    """
    from bruit.node.cli.process import load_key
    from bruit.node.cli.relay_key import relay_address
    from bruit.node.config import located
    from bruit.node.config.toml import dotted
    from bruit.plugins.registry import PluginRegistry
    from bruit.topics.errors import ConfigError, LocalError
    from bruit.topics.keys import peer_id_text

    loaded = Flags(config_file, assignments).load_file()
    settings = loaded.config
    try:
        registry = PluginRegistry.discover(
            settings.plugins, max_failures=settings.plugin_limits.max_failures
        )
        for name, topic in settings.topics.items():
            registry.topic_pipeline(
                name,
                codec=topic.codec,
                validator=topic.validator,
                max_size=topic.max_decoded_size,
            )
        registry.app_scorer(settings.scoring.app_scores, "scoring.app_scores")
        if settings.relay.roles:
            registry.marketplace(settings.relay.marketplace, "relay.marketplace")
            registry.selector(settings.relay.selector, "relay.selector")
            for name, channel in settings.relay.channels.items():
                registry.topic_pipeline(
                    channel.topic,
                    codec=channel.codec,
                    validator=channel.validator,
                    max_size=channel.max_decoded_size,
                    path=dotted(("relay", "channels", name)),
                )
    except ConfigError as error:
        raise located(error, loaded.origins) from None
    if settings.relay.signs:
        try:
            relay_address(loaded.directory / settings.relay.key_file)
        except LocalError as problem:
            raise ConfigError("relay.key_file", str(problem)) from None
    click.echo(f"ok, peer id {peer_id_text(load_key(loaded).public_key().peer_id())}")


@config.command()
def reference() -> None:
    """Print the reference of all settings, as Markdown.

    \b
    Example:
      bruit config reference | less
    """
    from bruit.node.config.reference import config_page

    click.echo(config_page(), nl=False)
