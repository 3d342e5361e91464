"""The configuration of a node, as types, and the rules that types cannot say.

What each setting means, with its unit, stands in `bruit.node.config.fields`,
where the commented file of ``bruit init`` and docs/configuration.md come from.
No setting holds a secret: the private key is a file of its own.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import multiaddr

from bruit.node.config.relay import RelayConfig
from bruit.node.config.scoring import ScoringConfig
from bruit.node.config.toml import dotted
from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.gossip.topic_filter import TopicFilter
from bruit.scoring.gater import GaterParams
from bruit.topics.errors import ConfigError, LocalError
from bruit.topics.keys import PeerId, peer_id_from_text
from bruit.topics.message import (
    MessageIdFunction,
    SignaturePolicy,
    id_from_content,
    id_from_origin,
    message_id_function,
)
from bruit.topics.names import check_topic

# bytes: what a router keeps in validation per topic, beyond which a message cannot pass
MAX_MESSAGE_SIZE = TopicParams().max_validating_bytes
MAX_DECODED_SIZE = 1 << 30  # bytes; guess: a mistyped number of digits should not be believed
MAX_PEERS = 10_000  # guess: within the usual limits of open files
MAX_GRACE = 3600.0  # seconds; guess: longer than any service manager waits
MAX_VERIFIERS = 64  # processes; guess: more than any event loop keeps busy

Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE_SIZE)]
Table = dict[str, object]


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/4001",)
    peers: tuple[str, ...] = ()
    direct_peers: tuple[str, ...] = ()
    announce: tuple[str, ...] = ()
    max_peers: Annotated[int, msgspec.Meta(ge=1, le=MAX_PEERS)] = 50  # LP-6420 §1.2
    min_peers: Annotated[int, msgspec.Meta(ge=0, le=MAX_PEERS)] = 10  # LP-6420 §1.2
    verifiers: Annotated[int, msgspec.Meta(ge=0, le=MAX_VERIFIERS)] = 1  # guess


class IdentityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key_file: Annotated[str, msgspec.Meta(min_length=1)] = "node.key"


class GossipConfig(GossipParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    signature_policy: SignaturePolicy = SignaturePolicy.STRICT_SIGN
    topic_filter: tuple[str, ...] = ("*",)

    def params(self) -> GossipParams:
        return GossipParams(
            **{name: getattr(self, name) for name in GossipParams.__struct_fields__}
        )


class GaterConfig(GaterParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    topic_delivery_weights: dict[str, float] = msgspec.field(default_factory=dict)


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    subscribe: bool = True
    message_id: Literal["origin", "content"] = "origin"
    max_message_size: Size = 1_048_576  # go-libp2p-pubsub's limit per frame
    codec: str = ""
    validator: str = ""
    # guess: the 4,000,000 bytes that a Bitcoin block may have (BIP 141), rounded up
    max_decoded_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_DECODED_SIZE)] = 4_194_304

    @property
    def plugins(self) -> dict[str, str]:
        """The plugins that the topic asks for: setting → plugin name."""
        wanted = {"codec": self.codec, "validator": self.validator}
        return {setting: name for setting, name in wanted.items() if name}


class PluginLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_failures: Annotated[int, msgspec.Meta(ge=1)] = 10  # guess


class ControlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    socket: str = "bruit.sock"

    def path(self, directory: Path) -> Path | None:
        """Where the socket is, for a node with its files in ``directory``; None for nowhere."""
        return directory / self.socket if self.socket else None


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class ShutdownConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    grace: Annotated[float, msgspec.Meta(ge=0, le=MAX_GRACE)] = 5.0  # guess


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a node is told, beside its private key: its TOML file, table by table.

    ``plugins`` holds each plugin's table as it was written; the plugin registry
    checks it against the type that the plugin declares.
    """

    network: NetworkConfig = NetworkConfig()
    identity: IdentityConfig = IdentityConfig()
    gossip: GossipConfig = GossipConfig()
    scoring: ScoringConfig = ScoringConfig()
    gater: GaterConfig = GaterConfig()
    topics: dict[str, TopicConfig] = {}
    relay: RelayConfig = RelayConfig()
    plugins: dict[str, Table] = {}
    plugin_limits: PluginLimits = PluginLimits()
    control: ControlConfig = ControlConfig()
    log: LogConfig = LogConfig()
    shutdown: ShutdownConfig = ShutdownConfig()

    def check(self) -> None:
        """Raise ConfigError at the first value that contradicts another or cannot work."""
        self.gossip.params().check("gossip")
        topic_filter = TopicFilter(self.gossip.topic_filter)
        self.gater.check("gater")
        self.scoring.check()
        self._check_network()
        for name, topic in self.topics.items():
            self._check_topic(name, topic)
        self.relay.check(self.topics)
        for name, channel in self.relay.channels.items() if self.relay.roles else ():
            if not topic_filter.allows(channel.topic):
                raise ConfigError(
                    "gossip.topic_filter",
                    f'"{channel.topic}", the topic of {dotted(("relay", "channels", name))}, is '
                    "not among them: add it",
                )

    def _check_network(self) -> None:
        network = self.network
        for setting in ("listen", "announce"):
            for index, address in enumerate(getattr(network, setting)):
                path = f"network.{setting}[{index}]"
                if "p2p" in _protocols(path, address):
                    raise ConfigError(
                        path, f"{address!r} names a peer: the node adds its own /p2p/… itself"
                    )
        for setting in ("peers", "direct_peers"):
            for index, address in enumerate(getattr(network, setting)):
                path = f"network.{setting}[{index}]"
                protocols = _protocols(path, address)
                if len(protocols) < 2 or protocols[-1] != "p2p":
                    raise ConfigError(
                        path,
                        f"{address!r} must be an address and the peer's id, such as "
                        "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooW…",
                    )
        if network.min_peers > network.max_peers:
            raise ConfigError(
                "network.min_peers",
                f"{network.min_peers} must be ≤ max_peers ({network.max_peers})",
            )

    def _check_topic(self, name: str, topic: TopicConfig) -> None:
        path = dotted(("topics", name))
        try:
            check_topic(name)
        except LocalError as problem:
            raise ConfigError(path, str(problem)) from None
        if (
            self.gossip.signature_policy is SignaturePolicy.STRICT_NO_SIGN
            and topic.message_id == "origin"
        ):
            raise ConfigError(
                f"{path}.message_id",
                '"origin" needs the author that gossip.signature_policy "strict-no-sign" '
                'leaves out: use "content"',
            )


def _protocols(path: str, address: str) -> list[str]:
    try:
        names = [protocol.name for protocol in multiaddr.Multiaddr(address).protocols()]
    except multiaddr.exceptions.StringParseError as problem:
        raise ConfigError(path, f"{address!r} is not a multiaddr: {problem.message}") from None
    if not names:
        raise ConfigError(path, "an empty text is not a multiaddr")
    return names


def router_config(config: NodeConfig) -> RouterConfig:
    """What a gossip router is built from. A topic with a codec or a validator is validated."""
    signed = config.gossip.signature_policy is SignaturePolicy.STRICT_SIGN
    default_id: MessageIdFunction = id_from_origin if signed else id_from_content
    return RouterConfig(
        params=config.gossip.params(),
        signature_policy=config.gossip.signature_policy,
        topics={
            name: TopicParams(
                message_id=message_id_function(topic.message_id),
                max_message_size=topic.max_message_size,
                validated=bool(topic.plugins),
            )
            for name, topic in config.topics.items()
        }
        | config.relay.topic_params(config.topics),
        default_topic=TopicParams(message_id=default_id),
        gater=config.gater if config.gater.enabled else None,
        topic_filter=config.gossip.topic_filter,
        max_peers=config.network.max_peers,
        kept_peers=tuple(map(_peer_of, config.network.peers)),
    )


def _peer_of(address: str) -> PeerId:
    return peer_id_from_text(multiaddr.Multiaddr(address).value_for_protocol("p2p") or "")
