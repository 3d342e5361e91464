"""The ``[relay]`` tables: what a node does for the block relay, and the channels it does it on.

The channels, and ``relay.params``, must be the same in every node of a relay network; the rest is
the node's own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from bruit.node.config.toml import dotted
from bruit.node.gossip.params import TopicParams
from bruit.node.relay.params import ChannelParams, RelayParams
from bruit.node.relay.wants import chunk_name
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.names import check_topic

if TYPE_CHECKING:
    from bruit.node.config.schema import TopicConfig

Role = Literal["producer", "member", "consumer"]
Name = Annotated[str, msgspec.Meta(min_length=1)]  # of a file, a folder or a plugin

MAX_RETENTION = 3_153_600_000.0  # seconds, a hundred years; guess: for ever
MIN_AUDIT = 1_048_576  # bytes; guess: room for the latest blocks, whatever happens
MAX_AUDIT = 1 << 40  # bytes; guess: a mistyped number of digits should not be believed
MAX_DECODED_SIZE = 1 << 30  # bytes; as for topics


class ChannelConfig(ChannelParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel, and the plugins that this node prepares and judges its blocks with."""

    codec: str = ""
    validator: str = ""
    # guess: the 4,000,000 bytes that a Bitcoin block may have (BIP 141), rounded up
    max_decoded_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_DECODED_SIZE)] = 4_194_304

    @property
    def plugins(self) -> dict[str, str]:
        """The plugins that the channel asks for: setting → plugin name."""
        wanted = {"codec": self.codec, "validator": self.validator}
        return {setting: name for setting, name in wanted.items() if name}

    def params(self) -> ChannelParams:
        """What the nodes of the channel agree on."""
        return ChannelParams(
            **{name: getattr(self, name) for name in ChannelParams.__struct_fields__}
        )


class RelayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files are relative to the folder of the configuration file."""

    roles: tuple[Role, ...] = ()
    key_file: Name = "relay.key"
    marketplace: Name = "marketplace-file"
    selector: Name = "random-selector"
    audit: str = "relay.sqlite"
    retention: Annotated[float, msgspec.Meta(ge=1, le=MAX_RETENTION)] = 2_592_000.0  # guess: 30 d
    audit_size: Annotated[int, msgspec.Meta(ge=MIN_AUDIT, le=MAX_AUDIT)] = 268_435_456  # guess
    disputes: Name = "disputes"
    proofs: Name = "proofs"
    params: RelayParams = RelayParams()
    channels: dict[str, ChannelConfig] = {}

    @property
    def signs(self) -> bool:
        """Whether the node needs its relay key."""
        return "producer" in self.roles or "member" in self.roles

    def channel_params(self) -> dict[int, ChannelParams]:
        """All channels by their id, in the order of the file."""
        return {channel.id: channel.params() for channel in self.channels.values()}

    def audit_path(self, directory: Path) -> Path | None:
        """Where the audit is, for a node with its files in ``directory``; None for nowhere."""
        return directory / self.audit if self.audit else None

    def topic_params(self, topics: Mapping[str, "TopicConfig"]) -> dict[str, TopicParams]:
        """How a gossip router treats the channels' topics; nothing for a node without a role.

        All members of a cluster publish the same frame: its name is made of what it contains.
        """
        if not self.roles:
            return {}
        return {
            channel.topic: TopicParams(
                message_id=chunk_name,
                max_message_size=_size_limit(channel.topic, topics),
                validated="consumer" in self.roles,
            )
            for channel in self.channels.values()
        }

    def check(self, topics: Mapping[str, "TopicConfig"]) -> None:
        """Raise ConfigError at the first value that contradicts another or cannot work.

        ``topics``: the ``[topics]`` tables, by name.
        """
        for index, role in enumerate(self.roles):
            if role in self.roles[:index]:
                raise ConfigError("relay.roles", f'"{role}" stands there twice: once is enough')
        if self.roles and not self.channels:
            raise ConfigError(
                "relay.roles",
                f'"{self.roles[0]}" has nothing to do without a channel: add a table '
                "[relay.channels.NAME] with an id and a topic",
            )
        if self.disputes == self.proofs:
            raise ConfigError(
                "relay.proofs", f'"{self.proofs}" is the folder of relay.disputes: name another'
            )
        self._check_times()
        ids: dict[int, str] = {}
        names: dict[str, str] = {}
        for name, channel in self.channels.items():
            path = dotted(("relay", "channels", name))
            other = ids.setdefault(channel.id, path)
            if other != path:
                raise ConfigError(
                    f"{path}.id", f"{channel.id} is the id of {other}, too: choose another"
                )
            other = names.setdefault(channel.topic, path)
            if other != path:
                raise ConfigError(
                    f"{path}.topic",
                    f'"{channel.topic}" is the topic of {other}, too: choose another',
                )
            _check_channel(path, channel, topics)
            if channel.min_chunks > self.params.chunk_report_limit:
                raise ConfigError(
                    "relay.params.chunk_report_limit",
                    f"{self.params.chunk_report_limit} chunks cannot show that a block of {path} "
                    f"is invalid: set it to its min_chunks ({channel.min_chunks}) or more",
                )

    def _check_times(self) -> None:
        params = self.params
        if params.refresh_interval < params.tolerable_latency:
            raise ConfigError(
                "relay.params.refresh_interval",
                f"{params.refresh_interval:g} must be ≥ tolerable_latency "
                f"({params.tolerable_latency:g}): stake would be free while its chunk still counts",
            )
        if params.acknowledgement_timeout >= params.tolerable_latency:
            raise ConfigError(
                "relay.params.acknowledgement_timeout",
                f"{params.acknowledgement_timeout:g} must be < tolerable_latency "
                f"({params.tolerable_latency:g}): no time would be left for a second cluster",
            )


# Bytes of a message beside its frame: author, signature, sequence number, topic. Guess, with room.
WRAPPING = 1024


def _size_limit(topic: str, topics: Mapping[str, "TopicConfig"]) -> int:
    return topics[topic].max_message_size if topic in topics else TopicParams().max_message_size


def _check_channel(path: str, channel: ChannelConfig, topics: Mapping[str, "TopicConfig"]) -> None:
    try:
        check_topic(channel.topic)
    except LocalError as problem:
        raise ConfigError(f"{path}.topic", str(problem)) from None
    if channel.min_chunks > channel.num_chunks:
        raise ConfigError(
            f"{path}.min_chunks",
            f"{channel.min_chunks} must be ≤ num_chunks ({channel.num_chunks})",
        )
    channel.check(path)
    table = dotted(("topics", channel.topic))
    if channel.topic in topics:
        _check_topic(path, table, topics[channel.topic])
    longest, limit = channel.max_frame() + WRAPPING, _size_limit(channel.topic, topics)
    if longest > limit:
        raise ConfigError(
            f"{path}.max_block",
            f"{channel.max_block:,} in {channel.min_chunks} chunks makes messages of up to "
            f"{longest:,} bytes, but {channel.topic} takes {limit:,}: raise min_chunks, lower "
            f"max_block, or raise {table}.max_message_size",
        )


def _check_topic(path: str, table: str, topic: "TopicConfig") -> None:
    """``table`` is the path of ``topic``, the settings of a channel's topic."""
    for setting in topic.plugins:
        raise ConfigError(
            f"{table}.{setting}",
            f"what goes over the topic of a channel are chunks, not blocks: set {path}.{setting}",
        )
    if topic.message_id != "content":
        raise ConfigError(
            f"{table}.message_id",
            f'chunks of {path} are the same whoever publishes them: set it to "content", or '
            "leave the table out",
        )
    if topic.subscribe:
        raise ConfigError(
            f"{table}.subscribe",
            f'the relay joins the topic of {path} itself, where relay.roles has "consumer": '
            "set it to false, or leave the table out",
        )
