"""What the cases share: sizes, processes of an implementation, links between their nodes."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from bench.remote import BenchError, Remote

TOPIC = "/bench/local/relay/blocks/t0"
SMALL, LARGE = 1024, 500_000  # bytes of a payload
SEED = 6420
KNOWN_TIMEOUT = 30.0  # seconds for subscriptions to be known over a new connection
MESH_TIMEOUT = 30.0  # seconds until a first message arrives: heartbeats graft, js's after 1 s
SILENCE = 5.0  # seconds without a message after which the rest counts as lost
RUN_TIMEOUT = 60.0  # seconds for one run of a pair
LOOK_INTERVAL = 0.1  # seconds between questions
CONNECT_TIMEOUT = 60.0
AT_A_TIME = 10  # connections opened at a time; guess: no node is overrun by handshakes


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything. Times in seconds."""

    small: int = 20_000  # messages of a pair
    large: int = 200
    slow_small: int = 2000  # the same for SLOW, which would take half a minute each
    slow_large: int = 100
    hop_rate: float = 50.0  # messages a second
    hop_seconds: float = 15.0
    warm_up: float = 3.0  # for meshes to form
    graph_step: float = 3.0
    graph_rate: float = 60.0  # messages a second of the first step, all nodes together
    graph_growth: float = 1.3
    graph_steps: int = 20  # the last one is 60 × 1.3^19 = 8,770/s: more than two cores verify
    crowd: int = 200  # nodes around the one whose heartbeats are timed
    crowd_topics: int = 20
    heartbeats: int = 10
    heartbeat_delay: float = 5.0
    flood_seconds: float = 5.0


SLOW = {"py-libp2p"}  # implementations that get fewer messages

FULL = Scale()
QUICK = Scale(
    small=4000,
    large=40,
    slow_small=400,
    slow_large=20,
    hop_seconds=4.0,
    graph_step=1.0,
    graph_growth=2.0,
    graph_steps=4,
    crowd=20,
    crowd_topics=5,
    heartbeats=3,
    heartbeat_delay=2.0,
    flood_seconds=2.0,
)


class Result(msgspec.Struct):
    """What one run of a case gave: see README.md for the keys."""

    figures: dict[str, float]  # the median over the rounds is reported
    counts: dict[str, int] = {}  # the sum is
    lost: str = ""  # what the API took and nobody got, in the cases where that is a failure


class Lab:
    """How to start each implementation, and what is known of them in this run.

    ``commands``: implementation → how its peers are started; ``crowd``: the one that
    hosts many nodes around the one under test.
    """

    def __init__(
        self, commands: Mapping[str, Sequence[str]], scale: Scale = FULL, crowd: str = "ours"
    ) -> None:
        self.commands = commands
        self.scale = scale
        self.crowd = crowd
        self.versions: dict[str, dict[str, str]] = {}
        self.rates: dict[str, list[float]] = {}  # of pair_1k
        self.runs = itertools.count(1)

    @contextmanager
    def processes(
        self, kind: str, nodes: Sequence[int], *, policy: str = "sign", heartbeats: bool = False
    ) -> Iterator[list[Remote]]:
        """Processes of an implementation with so many nodes each, listening."""
        settings = {"policy": policy, "heartbeats": heartbeats}
        with ExitStack() as stack:
            remotes = [
                stack.enter_context(Remote(kind, self.commands[kind], {"nodes": count} | settings))
                for count in nodes
            ]
            for remote in remotes:
                remote.listen()
                self.versions[kind] = remote.versions
            yield remotes


class At(msgspec.Struct, frozen=True):
    """A node: its process, and its index there."""

    remote: Remote
    node: int = 0

    @property
    def address(self) -> str:
        return self.remote.addresses[self.node]


def subscribe(node: At, topics: Sequence[str] = (TOPIC,)) -> None:
    node.remote.ask("subscribe", node=node.node, topics=list(topics))


def connect(pairs: Sequence[tuple[At, At]]) -> None:
    """Have the first of each pair dial the second."""
    for start in range(0, len(pairs), AT_A_TIME):
        answers = [
            (dialler.remote, dialler.remote.order("connect", node=dialler.node, address=to.address))
            for dialler, to in pairs[start : start + AT_A_TIME]
        ]
        for remote, answer in answers:
            remote.result(answer, CONNECT_TIMEOUT, "connection")


def until_known(
    node: At, count: int, topics: Sequence[str] = (TOPIC,), timeout: float = KNOWN_TIMEOUT
) -> None:
    """Wait until a node knows that so many peers are subscribed to each topic."""
    for topic in topics:

        def known(topic: str = topic) -> bool:
            answer = node.remote.ask("peers", node=node.node, topic=topic)
            return bool(answer["count"] >= count)

        until(known, timeout, f"{node.remote.name}: {count} peers subscribed to {topic}")


def until(holds: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise BenchError(f"not in {timeout:g} s: {what}")
        time.sleep(LOOK_INTERVAL)


def until_meshed(lab: Lab, publisher: At, receivers: Sequence[Remote]) -> None:
    """Publish single messages until one arrives everywhere; none is counted.

    What happens once (the first message on a topic, imports) is over then, too.
    """

    def arrives() -> bool:
        run = next(lab.runs)
        publisher.remote.ask(
            "publish", node=publisher.node, topic=TOPIC, run=run, count=1, size=SMALL, rate=0
        )
        answers = [remote.ask("wait", run=run, count=1, silence=0.5) for remote in receivers]
        return all(min(answer["counts"]) for answer in answers)

    until(arrives, MESH_TIMEOUT, f"a first message of {publisher.remote.name} everywhere")
