"""A simulated node: a machine, its identity, and what came out of it."""

from collections.abc import Callable
from typing import Protocol as Interface

import msgspec

from bruit.node.gossip.actions import Action, Published, Report, Validate
from bruit.node.gossip.events import Event, Protocol
from bruit.node.gossip.params import RouterConfig
from bruit.node.gossip.router import Router
from bruit.node.sim.authors import SimAuthor
from bruit.node.sim.bandwidth import Downlink, Uplink
from bruit.node.sim.direct import DirectHandler
from bruit.node.sim.links import Channel
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId
from bruit.topics.message import Author
from bruit.topics.validation import Validation

Validator = Callable[[str, bytes], Validation]  # topic and data → verdict
Judge = Callable[[Validate], None]  # answered later, with a Validated event


class Machine(Interface):
    """What the network drives: a `Router`, or whatever a test puts in its place."""

    def handle(self, event: Event, now: float) -> list[Action]: ...


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message that a machine handed to its application."""

    time: float  # seconds
    message_id: bytes
    payload: bytes
    source: PeerId  # the neighbour that sent it first; the own id for an own message


class TopicValidator:
    """A topic's validator and when it will be free again: it judges one message at a time."""

    __slots__ = ("delay", "free_at", "function")

    def __init__(self, function: Validator, delay: float) -> None:
        self.function = function
        self.delay = delay
        self.free_at = 0.0


class SimNode:
    """One node. Read from it; to make it do something, ask its `SimNetwork`.

    Attributes: ``name`` (as it stands in the action log), ``peer_id``,
    ``address`` (multiaddr that its peers see), ``protocol`` (the newest that it
    speaks), ``config``, ``record`` (its signed peer record), ``author`` (writes
    its messages), ``machine``, ``up`` (False once it left or crashed),
    ``published`` (the outcomes of what it published) and ``reports`` (pairs of
    time and report, if the network keeps them). The rest is the network's own.
    """

    __slots__ = (
        "address",
        "author",
        "channels",
        "config",
        "delivered",
        "direct",
        "downlink",
        "group",
        "index",
        "judges",
        "machine",
        "name",
        "peer_id",
        "protocol",
        "published",
        "record",
        "reports",
        "up",
        "uplink",
        "validators",
        "verifier_free_at",
    )

    def __init__(
        self,
        index: int,
        name: str,
        author: Author | SimAuthor,
        config: RouterConfig,
        protocol: Protocol,
        address: str,
        machine: Machine,
    ) -> None:
        self.index = index
        self.name = name
        self.author = author
        self.peer_id = author.peer_id
        self.config = config
        self.protocol = protocol
        self.address = address
        self.machine = machine
        self.record = b"signed record of " + self.peer_id
        self.up = True
        self.published: list[Published] = []
        self.reports: list[tuple[float, Report]] = []
        self.delivered: dict[str, list[Delivery]] = {}  # by topic
        self.channels: dict[PeerId, Channel] = {}  # outgoing, by who is at the other end
        self.group = 0  # of a partition
        self.validators: dict[str, TopicValidator] = {}
        self.judges: dict[str, Judge] = {}
        self.direct: DirectHandler | None = None  # what hears frames outside of gossip
        self.uplink: Uplink | None = None  # None: without bound
        self.downlink: Downlink | None = None
        self.verifier_free_at = 0.0  # when the signature checks under way are done

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def router(self) -> Router:
        """The machine, where it is a router. Raises LocalError where it is another."""
        if isinstance(self.machine, Router):
            return self.machine
        raise LocalError(f"{self.name} runs a {type(self.machine).__name__}, not a router")

    def deliveries(self, topic: str) -> list[Delivery]:
        """What the application got on ``topic``, in order."""
        return list(self.delivered.get(topic, ()))

    def peers(self) -> list[PeerId]:
        """Who it is connected to, as far as it knows, in the order of connecting."""
        return list(self.channels)

    def set_validator(self, topic: str, validator: Validator, delay: float = 0.0) -> None:
        """Judge the messages of ``topic`` by a pure function.

        Each takes ``delay`` seconds, one after the other. Topics without one
        accept everything at once. Asked only where `TopicParams.validated` is set.
        """
        if delay < 0:
            raise LocalError(f"validator delay {delay}: use seconds from 0")
        self.validators[topic] = TopicValidator(validator, delay)

    def entrust(self, topic: str, judge: Judge) -> None:
        """Have the messages of ``topic`` judged by who takes its time.

        ``judge`` is called inside of an event and hands nothing in; later it answers with
        `SimNetwork.hand_in` of a Validated. It goes before a validator.
        """
        self.judges[topic] = judge
