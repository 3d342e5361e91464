"""The text of docs/cli.md: what ``--help`` says of every command.

``python -m bruit.node.cli.reference > docs/cli.md`` writes it.
"""

from collections.abc import Iterator

import click

from bruit.node.cli import main

WIDTH = 88  # columns

_HEAD = """\
# The command line

*Written by `python -m bruit.node.cli.reference`; a test compares the two.*

Settings of the configuration are explained in [configuration.md](configuration.md).
"""


def cli_page() -> str:
    context = click.Context(main, info_name="bruit", **main.context_settings)
    return "\n".join([_HEAD, *_sections(main, context)])


def _sections(command: click.Command, ctx: click.Context) -> Iterator[str]:
    ctx.terminal_width = ctx.max_content_width = WIDTH
    yield f"## `{ctx.command_path}`\n\n```text\n{command.get_help(ctx)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                yield from _sections(below, click.Context(below, info_name=name, parent=ctx))


if __name__ == "__main__":
    click.echo(cli_page(), nl=False)
