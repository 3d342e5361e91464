"""What a router can be told, with the source of every default."""

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec

from bruit.scoring.gater import GaterParams
from bruit.topics.errors import ConfigError
from bruit.topics.keys import PeerId
from bruit.topics.message import MessageIdFunction, SignaturePolicy, id_from_origin

# Caps on numbers that a remote peer supplies. None is configuration: raising one
# only helps whoever attacks.
MAX_REMOTE_BACKOFF = 3600.0  # seconds (rust-libp2p, after GHSA-gc42-3jg7-rxr2)
MAX_SUBSCRIPTIONS_PER_RPC = 5000  # js-libp2p decodeRpcLimits.maxSubscriptions
MAX_TOPICS_PER_PEER = 1000  # guess: every namespace of a large network
MAX_MESSAGES_PER_RPC = 5000  # js-libp2p decodeRpcLimits.maxMessages
MAX_CONTROL_PER_RPC = 5000  # entries of one control kind; js-libp2p decodeRpcLimits
MAX_MESSAGE_ID = 256  # bytes; guess: author + seqno is 52, a SHA-512 is 64
MAX_PRUNE_PEERS = 16  # go-libp2p-pubsub GossipSubPrunePeers
MAX_PEER_RECORD = 8192  # bytes of a signed peer record; guess: 100 addresses fit
MAX_CONTROL_FRAME = 16_384  # bytes of subscriptions and control that rust-libp2p takes in a frame
MAX_OFFERED = 12_288  # bytes of peer records in one PRUNE, which must fit into that
MAX_TRACKED_PER_PEER = 10_000  # ids remembered per peer (rust-libp2p IDONTWANT_CAP)
MAX_LOST_CONTROL = 64  # frames kept to say again to a slow peer; guess: it says much twice
MAX_FANOUT_TOPICS = 1000  # topics published to without being subscribed; guess
MAX_BACKOFFS_PER_TOPIC = 10_000  # guess: ten thousand peers pruned within a backoff
MIN_MAX_FRAME = 4_194_304  # bytes of a frame always taken: js-libp2p answers an IWANT in one frame
FRAME_OVERHEAD = 4096  # bytes of a frame beside its largest message; guess, a kilobyte suffices


class GossipParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mesh and its timing. Times in seconds, sizes in bytes, ticks in heartbeats.

    Defaults are LP-6420 §4.1 where it gives one ("LP"), else those of
    go-libp2p-pubsub ("go") or the specification ("v1.1", "v1.2").
    """

    d: int = 6  # LP: mesh degree aimed at
    d_lo: int = 4  # LP: fewer than this, graft
    d_hi: int = 12  # LP: this many or more, prune
    d_score: int = 4  # LP: how many of the best scorers survive a prune
    d_out: int = 2  # LP: outbound connections kept in every mesh
    d_lazy: int = 6  # LP: IHAVE goes to at least so many peers per heartbeat
    gossip_factor: float = 0.25  # v1.1: and to at least this share of the eligible
    heartbeat_interval: float = 0.7  # LP
    heartbeat_delay: float = 0.1  # go: before the first heartbeat
    fanout_ttl: float = 60.0  # LP
    history_length: int = 5  # LP: heartbeats a message can be asked for
    history_gossip: int = 3  # LP: heartbeats a message is advertised
    prune_backoff: float = 60.0  # v1.1: no GRAFT after a PRUNE
    unsubscribe_backoff: float = 10.0  # v1.1: the same after leaving the topic
    backoff_slack: float = 2.0  # go: kept longer than promised, for clocks that differ
    graft_flood_threshold: float = 10.0  # v1.1: a GRAFT this soon after PRUNE costs double
    peer_exchange: bool = False  # go: offer peers on PRUNE and believe those offered
    exchange_public_only: bool = False  # go: hand on records only if they name a public address
    flood_publish: bool = True  # v1.1: own messages go to every peer of the topic
    opportunistic_graft_ticks: int = 60  # go
    opportunistic_graft_peers: int = 2  # go
    direct_connect_ticks: int = 300  # go: how often lost direct peers are redialled
    max_ihave_messages: int = 10  # go: IHAVE taken from a peer per heartbeat
    max_ihave_length: int = 5000  # go: ids per heartbeat asked of a peer, by it, and in one IHAVE
    gossip_retransmission: int = 3  # go: how often one peer may have a message by IWANT
    iwant_followup: float = 3.0  # go: until a message asked for must have come
    idontwant_threshold: int = 1024  # go: smaller messages are not worth an IDONTWANT
    max_idontwant_messages: int = 1000  # go: frames with IDONTWANT taken per peer and heartbeat
    max_idontwant_length: int = 10  # go: ids taken from one of them, and put into one
    idontwant_ttl: int = 3  # go: heartbeats an IDONTWANT holds
    cache_bytes: int = 134_217_728  # messages kept to answer IWANT; guess: 128 of 1 MiB
    seen_ttl: float = 120.0  # go
    seen_capacity: int = 1_000_000  # ids; guess: 8,000 messages/s for the whole TTL
    max_rpc_size: int = 1_048_576  # go: larger frames are split, larger messages raise it

    def check(self, path: str = "gossip") -> None:
        """Raise ConfigError at the first relation that does not hold.

        The rules are go-libp2p-pubsub's, with ``d / 2`` taken exactly:
        ``d_lo ≤ d ≤ d_hi``, ``d_score ≤ d_hi``, ``d_out < d_lo`` and
        ``d_out < d / 2``; all degrees 0 make a bootstrapper, which keeps no mesh.
        ``history_gossip ≤ history_length``.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{path}.{name}", f"{value} must be finite")
            if not isinstance(value, bool) and value < 0:
                raise ConfigError(f"{path}.{name}", f"{value} must not be negative")
        self._require(path, "d_lo", self.d_lo <= self.d, f"≤ d ({self.d})")
        self._require(path, "d_hi", self.d_hi >= self.d, f"≥ d ({self.d})")
        self._require(path, "d_score", self.d_score <= self.d_hi, f"≤ d_hi ({self.d_hi})")
        if self.d:
            self._require(path, "d_out", self.d_out < self.d_lo, f"< d_lo ({self.d_lo})")
            self._require(path, "d_out", self.d_out < self.d / 2, f"< d / 2 ({self.d / 2})")
        else:
            self._require(path, "d_out", self.d_out == 0, "0 where d is 0")
        self._require(
            path,
            "history_gossip",
            self.history_gossip <= self.history_length,
            f"≤ history_length ({self.history_length})",
        )
        self._require(path, "history_length", self.history_length >= 1, "≥ 1")
        self._require(path, "gossip_factor", self.gossip_factor <= 1, "≤ 1")
        self._require(path, "heartbeat_interval", self.heartbeat_interval >= 0.01, "≥ 0.01 s")
        for name in (
            "opportunistic_graft_ticks",
            "direct_connect_ticks",
            "seen_capacity",
            "max_idontwant_length",
        ):
            self._require(path, name, getattr(self, name) >= 1, "≥ 1")
        self._require(path, "max_rpc_size", self.max_rpc_size >= 1024, "≥ 1024")
        for name in ("prune_backoff", "unsubscribe_backoff"):
            self._require(
                path, name, getattr(self, name) <= MAX_REMOTE_BACKOFF, f"≤ {MAX_REMOTE_BACKOFF:g} s"
            )

    def _require(self, path: str, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"{path}.{name}", f"{getattr(self, name)} must be {rule}")


class Wants(Protocol):
    """What an application wants of an announced topic. Asked often: it must be quick, and pure."""

    def wants(self, message_id: bytes) -> bool:
        """Whether a message that is announced is worth asking for, now."""

    def shares(self, message_id: bytes) -> bool:
        """Whether to announce a message of somebody else's that has come, now."""

    def offered(self, message_id: bytes, peer: PeerId) -> None:
        """A peer says that it has this message, which may be here or not.

        Told of every announcement that is taken note of: again where the peer repeats it.
        """

    def asked(self, message_id: bytes) -> None:
        """It has been asked for."""

    def came(self, message_id: bytes) -> None:
        """It was asked for and has come, from whomever, signed by its author; not judged yet."""

    def given_up(self, message_id: bytes) -> None:
        """It was asked for and is not to be expected any more."""


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic is told of instead of pushed: see `announcing`. Guesses, tried in simulation."""

    pushed: int = 2  # peers that own publications go to unasked; the others hear of them
    at_once: int = 4  # messages asked of one peer at a time
    keep: float = 15.0  # seconds in which a message may be asked for
    wants: Wants | None = None  # what to ask for; None: everything


class TopicParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one topic's messages are named, bounded and judged."""

    message_id: MessageIdFunction = id_from_origin
    max_message_size: int = 1_048_576  # bytes of a message on the wire (go's limit per frame)
    validated: bool = False  # whether messages wait for a Validated event
    max_validating: int = 1024  # messages in validation at a time (go: per-topic concurrency)
    max_validating_bytes: int = 33_554_432  # bytes of those; guess, 32 of the largest default
    announced: Announced | None = None  # None: accepted messages are pushed to the mesh


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a router is built from, beside its identity and its dice."""

    params: GossipParams = GossipParams()
    signature_policy: SignaturePolicy = SignaturePolicy.STRICT_SIGN
    topics: Mapping[str, TopicParams] = {}
    default_topic: TopicParams = TopicParams()
    gater: GaterParams | None = None  # None: messages are taken from everybody at any load
    topic_filter: tuple[str, ...] = ("*",)  # names and patterns of topics that we take note of
    max_peers: int | None = None  # beyond: the least useful are hung up on; None: never
    kept_peers: tuple[PeerId, ...] = ()  # never for that reason

    def check(self) -> None:
        """Raise ConfigError where the parts cannot work together, or one by itself cannot."""
        self.params.check()
        if self.gater is not None:
            self.gater.check()
        if self.signature_policy is SignaturePolicy.STRICT_NO_SIGN:
            for name, topic in [*self.topics.items(), ("(default)", self.default_topic)]:
                if topic.message_id is id_from_origin:
                    raise ConfigError(
                        f'topics."{name}".message_id',
                        "unsigned messages have no origin: name them by content",
                    )

    def topic(self, name: str) -> TopicParams:
        return self.topics.get(name, self.default_topic)

    def max_message(self) -> int:
        """The largest message that any topic allows, bytes on the wire."""
        return max(
            [self.default_topic.max_message_size]
            + [topic.max_message_size for topic in self.topics.values()]
        )

    def max_frame(self) -> int:
        """The largest frame worth reading, bytes: the largest message allowed and its wrapping."""
        return max(MIN_MAX_FRAME, self.params.max_rpc_size, self.max_message() + FRAME_OVERHEAD)
