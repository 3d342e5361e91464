"""The reference of every setting, written from the types: a commented file, a page of docs."""

import textwrap
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec

from bruit.node.config.fields import FIELDS, SECTIONS, Field
from bruit.node.config.load import ENVIRONMENT_PREFIX, describe
from bruit.node.config.relay import ChannelConfig
from bruit.node.config.schema import NodeConfig, TopicConfig
from bruit.node.config.toml import write_value

WIDTH = 88  # columns of a comment
_EXAMPLE_NAMES = {
    "scoring.topics.NAME": 'scoring.topics."/lux/mainnet/relay/blocks/proposed"',
    "topics.NAME": 'topics."/lux/mainnet/relay/blocks/proposed"',
    "plugins.NAME": "plugins.bitcoin",
    "relay.channels.NAME": "relay.channels.bitcoin",
}
# Tables under names of an operator's choice; what has no default in them has an example here
_NAMED_EXAMPLES: dict[str, msgspec.Struct] = {
    "topics.NAME": TopicConfig(),
    "relay.channels.NAME": ChannelConfig(id=1, topic="/marlin/bitcoin/blocks"),
}

_FILE_HEAD = """\
The configuration of a bruit node (TOML). Every setting stands here with its default,
commented out: remove the # before a setting to change it, and before a [table] where
that has one. A flag wins over an environment variable, that over this file.
`bruit config check` checks it; `bruit config show --origin` shows what is in force."""

_PAGE_HEAD = """\
# Configuration

*Written by `bruit config reference`; a test compares the two.*

A node reads one TOML file, `bruit.toml` unless `-c` names another. `bruit init` writes one in
which every setting stands commented out, with its default.

**Precedence.** A flag wins over an environment variable, that over the file, that over the
default. `bruit config show --origin` prints every setting in force and where it comes from.

**Environment.** `BRUIT_GOSSIP__D=8` sets `gossip.d`: the prefix `BRUIT_`, then the path in
capitals with two underscores between its parts. Variables without two underscores in a row are
ignored; one with them that names no setting is an error. The value is a TOML value
(`'["/ip4/0.0.0.0/tcp/4001"]'`, `true`, `0.5`); a word needs no quotes. Topics and plugins carry
names that a variable cannot spell: set them in the file or with `--set`.

**Flags.** `--set PATH=VALUE`, any number of times, sets anything: `--set gossip.d=8`,
`--set 'topics."/lux/mainnet/relay/blocks/proposed".codec=zstd'`. Names with anything but
letters, digits, `-` and `_` stand in double quotes. Some settings have a flag of their own; see
[the commands](cli.md).

**Errors.** A name that is no setting, a value of the wrong type or out of range, and values that
contradict each other are refused before anything starts, with the path, the value, the rule and
where it was set. The exit code is then 2.

**Secrets.** There are none in the configuration. The private key is a file of its own, which
`identity.key_file` names; it is refused when others than its owner can read it.
"""


class Setting(msgspec.Struct, frozen=True):
    """One row of the reference."""

    name: str
    kind: str  # what values it takes, in words
    default: str  # as TOML; an example where ``required``
    required: bool
    variable: str  # of the environment, empty where there is none
    field: Field


def settings(section: str) -> list[Setting]:
    """The settings of one of `SECTIONS`, in the order of the types.

    None for plugins, whose settings are their own, and for scores of one topic, which
    are those of all topics.
    """
    if section in {"plugins.NAME", "scoring.topics.NAME"}:
        return []
    named = section in _NAMED_EXAMPLES
    table: Any = NodeConfig()  # becomes the struct of the section, with its defaults
    if named:
        table = _NAMED_EXAMPLES[section]
    else:
        for name in section.split("."):
            table = getattr(table, name)
    required = {field.name for field in msgspec.structs.fields(table) if field.required}
    prefix = f"{ENVIRONMENT_PREFIX}{section}.".upper().replace(".", "__")
    return [
        Setting(
            name,
            describe(kind),
            write_value(getattr(table, name)),
            name in required,
            "" if named else f"{prefix}{name.upper()}",
            FIELDS[f"{section}.{name}"],
        )
        for name, kind in get_type_hints(type(table), include_extras=True).items()
        if f"{section}.{name}" not in SECTIONS and f"{section}.{name}.NAME" not in SECTIONS
    ]


def config_template() -> str:
    """The file that ``bruit init`` writes: loading it gives exactly the defaults."""
    blocks = [_comment(_FILE_HEAD)]
    for section, doc in SECTIONS.items():
        example = _EXAMPLE_NAMES.get(section)
        header = f"# [{example}]" if example else f"[{section}]"
        blocks.append(f"\n{_comment(doc)}\n{header}")
        blocks += [_entry(setting) for setting in settings(section)]
    return "\n\n".join(blocks) + "\n"


def _entry(setting: Setting) -> str:
    facts = f"Type: {_kind(setting)}."
    if setting.required:
        facts += " It has no default."
    if setting.variable:
        facts += f" Environment: {setting.variable}"
    default = f"# {setting.name} = {setting.default}"
    return "\n".join([_comment(setting.field.doc), _comment(facts), default])


def _kind(setting: Setting) -> str:
    unit = setting.field.unit
    return f"{setting.kind}; unit: {unit}" if unit else setting.kind


def _comment(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def config_page() -> str:
    """The text of docs/configuration.md."""
    return "\n".join([_PAGE_HEAD, *_page_sections()])


def _page_sections() -> Iterator[str]:
    for section, doc in SECTIONS.items():
        title = section.replace("NAME", '"NAME"') if section.endswith("topics.NAME") else section
        yield f"## `[{title}]`\n\n{textwrap.fill(doc, 98)}\n"
        for setting in settings(section):
            given = "no default, such as" if setting.required else "default"
            facts = [_kind(setting), f"{given} `{setting.default}`"]
            if setting.variable:
                facts.append(f"`{setting.variable}`")
            yield f"- **`{setting.name}`** ({'; '.join(facts)})  \n  {setting.field.doc}"
        yield ""
