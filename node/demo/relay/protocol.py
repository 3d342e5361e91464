"""What the coordinator and its workers say to each other, one JSON object a line.

A node is told by its index in the plan's places. All times are Unix times in seconds.
"""

import msgspec

from bruit.node.demo.relay.plan import Plan


class Task(msgspec.Struct, frozen=True):
    """What a worker is started with."""

    plan: Plan
    place: int
    folder: str  # of the node's files


class Connect(msgspec.Struct, tag=True, frozen=True):
    addresses: tuple[str, ...]


class Send(msgspec.Struct, tag=True, frozen=True):
    """Broadcast the content of a file."""

    path: str


class Account(msgspec.Struct, tag=True, frozen=True):
    """Ask for the Figures."""


Order = Connect | Send | Account


class Listening(msgspec.Struct, tag=True, frozen=True):
    place: int
    peer: str  # base58
    address: str


class Ready(msgspec.Struct, tag=True, frozen=True):
    """All neighbours are connected, and the whole marketplace is known."""

    place: int


class Sent(msgspec.Struct, tag=True, frozen=True):
    """A broadcast is over."""

    at: float  # when it began
    problem: str  # why nothing was sent; the rest is empty then
    message_id: str = ""  # hexadecimal
    chunks: int = 0
    sent: int = 0  # chunks handed to clusters, each time counted
    acknowledged: dict[int, int] = {}  # cluster → chunks


class Got(msgspec.Struct, tag=True, frozen=True):
    """A consumer delivered a block."""

    place: int
    at: float
    digest: str  # SHA-256 of the block
    clusters: dict[int, int]  # cluster → chunks that it had witnessed by then


class Found(msgspec.Struct, tag=True, frozen=True):
    """A node disputed."""

    place: int
    kind: str
    reason: str
    message_id: str  # hexadecimal
    producers: tuple[str, ...]  # 20-byte ids, hexadecimal
    culprits: tuple[str, ...]
    file: str


class Relayed(msgspec.Struct, tag=True, frozen=True):
    """What a member has done so far, in chunks."""

    place: int
    witnessed: int
    published: int  # that reached somebody; what a node publishes beside its relay is not counted


class Misdeed(msgspec.Struct, tag=True, frozen=True):
    """A node cheated on purpose, and how."""

    place: int
    deed: str


class Figures(msgspec.Struct, tag=True, frozen=True):
    place: int
    dropped: dict[str, int]  # reason → chunks that went nowhere
    refused: dict[str, int]  # peer → messages of it that broke the rules
    blamed: dict[str, float]  # peer → its score, where that is below 0


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The worker cannot go on."""

    place: int
    problem: str


Word = Listening | Ready | Sent | Got | Found | Relayed | Misdeed | Figures | Failed
