"""``bruit scores``: what peers are scored by, and what they could get away with."""

from __future__ import annotations  # the types below are heavy to import

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bruit.node.cli.options import Flags
from bruit.node.cli.scores_set import set_parameters

if TYPE_CHECKING:
    from bruit.node.config import Loaded
    from bruit.scoring.lint import Finding, Point, Report, Topics

WIDTH = 96  # columns of a paragraph
INDENT = " " * 9
BAR_WIDTH = 40  # columns

Function = TypeVar("Function", bound=Callable[..., Any])


def scoring_options(function: Function) -> Function:
    """Arguments config_file, chosen, assignments: of `_load`."""
    for option in (
        click.option(
            "--set",
            "assignments",
            metavar="PATH=VALUE",
            multiple=True,
            help="Set anything, such as scoring.peer.topic_score_cap=50. Repeatable.",
        ),
        click.option(
            "--preset",
            "chosen",
            metavar="NAME",
            help="Preset to start from (scoring.preset): without CONFIG, nothing else is read.",
        ),
        click.argument(
            "config_file", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path)
        ),
    ):
        function = option(function)
    return function


def _load(config_file: Path | None, chosen: str | None, assignments: tuple[str, ...]) -> Loaded:
    from bruit.node.config import Override

    flags = Flags(config_file, assignments)
    if chosen is None:
        return flags.load_file()
    return flags.load((Override("flag --preset", ("scoring", "preset"), chosen),))


@click.group()
def scores() -> None:
    """Show and examine what peers are scored by.

    \b
    Example:
      bruit scores lint relay/bruit.toml
    """


scores.add_command(set_parameters)


@scores.command()
@scoring_options
def show(config_file: Path | None, chosen: str | None, assignments: tuple[str, ...]) -> None:
    """Print the thresholds and parameters in force, preset and all, as TOML.

    CONFIG is a node's configuration, bruit.toml unless given. Topics that count alike
    are printed once. The hash is the one that exported score histories carry.

    \b
    Examples:
      bruit scores show relay/bruit.toml
      bruit scores show --preset ethereum
    """
    from bruit.node.config import scoring_of
    from bruit.node.config.toml import write_value
    from bruit.scoring.lint import alike
    from bruit.scoring.params import PeerTerms, params_hash

    config = _load(config_file, chosen, assignments).config
    thresholds, params = scoring_of(config)
    terms = PeerTerms(**{name: getattr(params, name) for name in PeerTerms.__struct_fields__})
    click.echo(f"# hash {params_hash(params, thresholds)}")
    click.echo(f"\n[scoring]\npreset = {write_value(config.scoring.preset)}")
    tables: list[tuple[str, str, Any]] = [
        ("", "scoring.thresholds", thresholds),
        ("", "scoring.peer", terms),
        *((_names(topics), topics.path, topic) for topics, topic in alike(params, ()).items()),
    ]
    for names, path, table in tables:
        click.echo(f"\n[{path}]" + (f"  # {names}" if names else ""))
        for name in table.__struct_fields__:
            click.echo(f"{name} = {write_value(getattr(table, name))}")


@scores.command()
@scoring_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def lint(
    context: click.Context,
    config_file: Path | None,
    chosen: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look for ways in which a peer could misbehave for ever.

    Takes a peer that is perfect in everything but one: it is silent in a topic, or
    withholds a share of its messages, or sends invalid ones, or violates the protocol. A
    finding is a penalty that is on, but under which such a peer never falls below the
    mesh threshold. Honest peers that fall below 0 are findings, too. A note tells of
    what is not scored at all, its weight being 0.

    CONFIG is a node's configuration, bruit.toml unless given. Exits with 1 if there is
    a finding, else with 0.

    \b
    Examples:
      bruit scores lint relay/bruit.toml
      bruit scores lint --preset ethereum
      bruit scores lint --set scoring.topic.invalid_message_deliveries_weight=-1
    """
    import msgspec

    from bruit.node.config import scoring_of
    from bruit.scoring import lint as linter

    config = _load(config_file, chosen, assignments).config
    thresholds, params = scoring_of(config)
    report = linter.lint(params, thresholds, config.topics)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        for line in _report(report):
            click.echo(line)
    context.exit(1 if report.findings else 0)


def _report(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield from _finding(finding)
        yield ""
    for note in report.notes:
        yield from _paragraph("note", f"{note.text}{_in(note.topics)}: {note.setting} is 0")
    for tolerance in report.tolerances:
        yield from _paragraph(
            "allowed", f"for ever, a peer can {tolerance.text}{_in(tolerance.topics)}"
        )
    findings = len(report.findings)
    yield f"{findings or 'no'} finding{'s' if findings != 1 else ''}"


def _finding(finding: Finding) -> Iterator[str]:
    yield from _paragraph("finding", f"{finding.problem}{_in(finding.topics)}")
    yield from _paragraph("setting", f"{finding.setting} = {finding.value:g}")
    yield from _paragraph("why", finding.reason)
    if finding.remedies:
        values = " and ".join(f"{each.setting} = {each.value:g}" for each in finding.remedies)
        yield from _paragraph("remedy", f"{values} would do, if nothing else changes")
    yield from _curve(finding.curve)
    if finding.behaviour is not None:
        yield f"{INDENT}{'…':>8}  and so on for ever"


def _curve(points: tuple[Point, ...]) -> Iterator[str]:
    """The lowest score up to each time, and a bar between it and 0."""
    low = min(0.0, *(point.score for point in points))
    high = max(0.0, *(point.score for point in points))
    scale = BAR_WIDTH / (high - low or 1.0)
    yield f"{INDENT}{'after':>8}{'score':>10}"
    for point in points:
        start, end = sorted((round(-low * scale), round((point.score - low) * scale)))
        bar = " " * start + "█" * (end - start)
        yield f"{INDENT}{_duration(point.seconds):>8}{point.score:>10.2f}  {bar}".rstrip()


def _duration(seconds: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def _names(topics: Topics) -> str:
    """The topics beside the first, or what stands for those that are not named."""
    from bruit.scoring.lint import DEFAULT_TOPIC

    if topics.names == (DEFAULT_TOPIC,):
        return DEFAULT_TOPIC
    return f"and {topics.count - 1} alike, up to {topics.names[-1]}" if topics.count > 1 else ""


def _in(topics: Topics | None) -> str:
    if topics is None:
        return ""
    more = f" and {len(topics.names) - 1} alike" if len(topics.names) > 1 else ""
    return f", in {topics.names[0]}{more}"


def _paragraph(label: str, text: str) -> Iterator[str]:
    """``text`` beside ``label``, in lines that are no longer than they must be."""
    import textwrap

    first, *more = textwrap.wrap(
        text, WIDTH - len(INDENT), break_long_words=False, break_on_hyphens=False
    )
    yield f"{label:<{len(INDENT)}}{first}"
    for line in more:
        yield INDENT + line
