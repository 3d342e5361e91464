"""Options that several commands share, and the configuration that they amount to."""

from __future__ import annotations  # the types below are heavy to import

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from bruit.node.config import Loaded, Override

DEFAULT_FILE = Path("bruit.toml")

Function = TypeVar("Function", bound=Callable[..., Any])

_CONFIG_FILE = click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file.",
)
_SET = click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set anything: --set gossip.d=8. Wins over file and environment. Repeatable.",
)
_LISTEN = click.option(
    "--listen",
    metavar="ADDRESS",
    multiple=True,
    help="Accept connections there; a multiaddr (network.listen). Repeatable.",
)
_PEER = click.option(
    "--peer",
    "peers",
    metavar="ADDRESS",
    multiple=True,
    help="Connect to this peer; a multiaddr with /p2p/… (network.peers). Repeatable.",
)
_LOG_LEVEL = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least important records written to standard error (log.level).",
)
_LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    help="For people or for programs (log.format).",
)
_CODEC = click.option(
    "--codec", metavar="PLUGIN", help="Plugin that encodes and decodes, such as zstd."
)
_VALIDATOR = click.option(
    "--validator", metavar="PLUGIN", help="Plugin that judges messages, such as bitcoin."
)


def config_options(function: Function) -> Function:
    """``-c`` and ``--set``: arguments config_file, assignments."""
    return _CONFIG_FILE(_SET(function))


def node_options(function: Function) -> Function:
    """Everything that a node is started with: arguments of `Flags`."""
    return config_options(_LISTEN(_PEER(_LOG_LEVEL(_LOG_FORMAT(function)))))


def topic_options(function: Function) -> Function:
    """How topics are encoded and judged: arguments codec, validator."""
    return _CODEC(_VALIDATOR(function))


class Flags(NamedTuple):
    """What was given on the command line, in the names of the options above."""

    config_file: Path | None = None
    assignments: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    log_level: str | None = None
    log_format: str | None = None

    def load(self, before: tuple[Override, ...] = ()) -> Loaded:
        """The configuration. Flags win over ``before``, that over environment and file.

        Raises ConfigError.
        """
        import os

        from bruit.node.config import Override, load_config, set_override

        friendly = (
            Override("flag --listen", ("network", "listen"), list(self.listen)),
            Override("flag --peer", ("network", "peers"), list(self.peers)),
            Override("flag --log-level", ("log", "level"), self.log_level),
            Override("flag --log-format", ("log", "format"), self.log_format),
        )
        given = [override for override in friendly if override.value]
        overrides = [*before, *map(set_override, self.assignments), *given]
        return load_config(self.config_file, os.environ, overrides)

    def load_file(self) -> Loaded:
        """`load`, from bruit.toml in the working directory where no file was named."""
        return self._replace(config_file=self.config_file or DEFAULT_FILE).load()


def topic_overrides(topics: tuple[str, ...], **settings: str | None) -> tuple[Override, ...]:
    """``settings`` (codec, validator) that were given, for each of ``topics``."""
    from bruit.node.config import Override

    return tuple(
        Override(f"flag --{name}", ("topics", topic, name), value)
        for topic in topics
        for name, value in settings.items()
        if value is not None
    )
