"""``bruit scores set``: other parameters for a topic of a running node."""

import json
from pathlib import Path

import click

from bruit.node.cli.options import Flags, config_options


def _values(
    _ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    values = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is not NAME=NUMBER, such as invalid_message_deliveries_weight=-20"
            ) from None
    return values


@click.command("set")
@click.argument("topic")
@click.argument("values", metavar="NAME=NUMBER...", nargs=-1, required=True, callback=_values)
@config_options
@click.option("--json", "as_json", is_flag=True, help="All parameters, as one JSON object.")
def set_parameters(
    topic: str,
    values: dict[str, float],
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change how TOPIC counts in a running node, until the node stops.

    Names and meanings are those of scoring.topics."NAME" in the configuration, which is
    where a change that shall last belongs; parameters not named stay as they are. All
    scores are computed anew at once, from what has been counted so far.

    Asks the node of bruit.toml, unless -c names another file, through its control socket.

    \b
    Examples:
      bruit scores set hello topic_weight=0.5
      bruit scores set hello -c relay/bruit.toml invalid_message_deliveries_weight=-20
    """
    from bruit.node.cli.control_client import ask
    from bruit.node.config.toml import dotted

    loaded = Flags(config_file, assignments).load_file()
    params = ask(loaded, "set_topic_params", topic=topic, values=values)
    if as_json:
        click.echo(json.dumps(params, indent=2))
        return
    click.echo(f"[{dotted(('scoring', 'topics', topic))}]  # until the node stops")
    for name in values:
        click.echo(f"{name} = {params[name]}")
