"""What several commands print: tables for people, and moments."""

import datetime as dt
import sys
from collections.abc import Iterable

import click

PIPE_WIDTH = 200  # columns where nobody says how many there are: nothing is cut off


def date(when: float) -> str:
    return dt.datetime.fromtimestamp(when, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]], nothing: str) -> None:
    """A table without lines on standard output, or ``nothing`` on standard error if it is empty."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # as it stands, brackets and all
    if not table.row_count:
        click.echo(nothing, err=True)
        return
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)
