"""What the runner and a peer say to each other, one JSON object a line: see README.md."""

import msgspec

TOPIC = "/bruit/interop"
_PATTERN = bytes(7 * position & 0xFF for position in range(256))  # of a payload, repeated


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a peer process. Times in seconds, sizes in bytes."""

    topic: str = TOPIC
    port: int = 0  # on 127.0.0.1; 0: any
    secret: str  # base64 of libp2p's encoding of a private key
    policy: str = "sign"  # or "nosign"
    flood_publish: bool = False
    validation_delay: float = 0.0
    idontwant_threshold: int = 1024
    d: int = 6
    d_lo: int = 4
    d_hi: int = 12
    d_out: int = 1
    d_lazy: int = 6
    heartbeat: float = 1.0
    prune_backoff: int = 60
    unsubscribe_backoff: int = 10
    expected_deliveries: int = 0  # P3's threshold; 0: no P3
    activation: float = 1.0  # P3's
    peers: tuple[str, ...] = ()  # to stay connected to; ours alone does


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command to a peer, with the fields that some of them have."""

    id: int
    do: str
    address: str = ""
    tag: str = ""
    count: int = 0
    size: int = 0
    rate: float = 0.0


class Tally(msgspec.Struct):
    """Messages of one tag that reached the application."""

    distinct: int = 0
    repeated: int = 0
    wrong: int = 0


class Control(msgspec.Struct):
    """What control messages said: GRAFTs and PRUNEs, else ids. None: not to be seen."""

    graft: int | None = None
    prune: int | None = None
    ihave: int | None = None
    iwant: int | None = None
    idontwant: int | None = None


class Neighbour(msgspec.Struct):
    """A connected peer as another one sees it. None: not to be seen."""

    protocol: str | None = None  # of the gossipsub stream; None before there is one, too
    subscribed: bool = False
    mesh: bool = False
    score: float | None = None
    lowest: float | None = None  # of all its scores

    @property
    def ready(self) -> bool:
        return self.subscribed and self.protocol is not None


class Status(msgspec.Struct):
    """The answer to "status"."""

    received: dict[str, Tally]
    peers: dict[str, Neighbour]
    sent: Control
    got: Control
    duplicates: int | None = None
    rejected: int | None = None
    forwarded: int | None = None

    def neighbour(self, peer: str) -> Neighbour:
        """What is known of a peer, connected or not."""
        return self.peers.get(peer, Neighbour())

    def tally(self, tag: str) -> Tally:
        return self.received.get(tag, Tally())


class Line(msgspec.Struct, frozen=True):
    """A line from a peer: an event, or the answer to the order of this number."""

    event: str = ""
    answer: int = 0
    error: str = ""
    peer: str = ""
    address: str = ""
    backoff: int | None = None


def payload(tag: str, index: int, size: int) -> bytes:
    """Message number ``index`` of a tag: its name, then a pattern."""
    head = f"{tag}:{index}:".encode()
    return head + (_PATTERN * (size // len(_PATTERN) + 1))[len(head) : size]
