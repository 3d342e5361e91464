"""What the coordinator and its worker processes say to each other, one JSON object a line."""

import msgspec


class Begin(msgspec.Struct, tag=True, frozen=True):
    """First line to a worker: which nodes it runs, and how."""

    nodes: tuple[int, ...]
    neighbours: dict[int, int]  # node → how many links it will have
    topic: str
    network: str  # whose proof-of-work limit the bitcoin plugin holds
    careless: int = -1  # a node that does not judge what it publishes itself


class Dial(msgspec.Struct, tag=True, frozen=True):
    node: int
    address: str


class Send(msgspec.Struct, tag=True, frozen=True):
    """Publish the content of a file."""

    node: int
    path: str


class Account(msgspec.Struct, tag=True, frozen=True):
    """Ask for the Figures of every node."""


Order = Begin | Dial | Send | Account


class Listening(msgspec.Struct, tag=True, frozen=True):
    node: int
    peer: str  # base58
    address: str


class Ready(msgspec.Struct, tag=True, frozen=True):
    """All neighbours are connected and subscribed, and the node has a mesh."""

    node: int


class Sent(msgspec.Struct, tag=True, frozen=True):
    node: int
    at: float  # Unix time, seconds, just before publishing
    peers: int
    problem: str


class Got(msgspec.Struct, tag=True, frozen=True):
    node: int
    at: float  # Unix time, seconds
    source: str  # base58; the node itself for the publisher
    digest: str  # SHA-256 of the payload
    size: int
    facts: dict[str, str | int | float | bool]


class Refused(msgspec.Struct, tag=True, frozen=True):
    node: int
    peer: str  # who sent it
    author: str  # who signed it
    reason: str


class Figures(msgspec.Struct, tag=True, frozen=True):
    node: int
    bytes_in: int
    bytes_out: int
    duplicates: int
    mesh: int  # mesh degree
    forwarded: int  # copies of messages sent on


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The worker cannot go on."""

    problem: str


Word = Listening | Ready | Sent | Got | Refused | Figures | Failed
