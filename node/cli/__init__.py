"""The command line.

Every command is a module of this package, imported when it is wanted, and
imports what is heavy when it runs: ``bruit --help`` has to be quick.
"""

import importlib
import importlib.util
from typing import Any

import click

from bruit.topics.errors import BruitError, ConfigError

COMMANDS = (
    "init",
    "run",
    "publish",
    "listen",
    "peers",
    "scores",
    "relay",
    "demo",
    "keys",
    "config",
    "plugins",
)


class Failure(click.ClickException):
    """An error of ours as one line on standard error, without a traceback."""

    exit_code = 1


class WrongConfiguration(Failure):
    exit_code = 2  # click's own for wrong usage


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__name__}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:  # as click declares it
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise WrongConfiguration(str(error)) from error
        except BruitError as error:
            raise Failure(str(error)) from error


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from bruit import __version__

        click.echo(f"bruit {__version__}")
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 98},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def main() -> None:
    """A gossipsub node that blockchains plug into.

    \b
    A first node, its key and its configuration in the folder relay:
      bruit init relay
      bruit run -c relay/bruit.toml --set topics.hello.subscribe=true

    \b
    A message to it from another terminal, with the address that `run` logged:
      bruit publish hello note.txt --peer /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW…

    Exit codes: 0 when it worked, 1 when it did not, 2 when the command line or the
    configuration is wrong.
    """
