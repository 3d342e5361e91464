"""A node: host, router, plugins and what the application holds of them."""

import os
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from types import TracebackType

import trio
from libp2p.abc import IHost

from bruit.node.app_scores import AppScores, Scored
from bruit.node.banning import Banning
from bruit.node.config import NodeConfig, load_config, router_config, scoring_of
from bruit.node.control import control_socket
from bruit.node.control_requests import answer
from bruit.node.gossip.actions import (
    Deliver,
    Disconnect,
    PeerJoined,
    PeerLeft,
    PeerSubscribed,
    Report,
    ThresholdCrossed,
)
from bruit.node.gossip.events import AddDirectPeer, AppScored, Subscribe, Unsubscribe
from bruit.node.gossip.router import Router
from bruit.node.identity import load_key_file, new_key
from bruit.node.net.dialer import Dialer
from bruit.node.net.driver import Driver, Outcome
from bruit.node.net.host import (
    NETWORK_ERRORS,
    listening,
    new_host,
    open_connections,
    parse_address,
    remote_addresses,
)
from bruit.node.net.link import Traffic
from bruit.node.net.verifiers import Verifiers, shared_verifiers
from bruit.node.relaying import Relay, Surroundings
from bruit.node.reports import (
    ConnectionRefused,
    DialFailed,
    PluginFailed,
    ReportFeed,
    Reports,
    ScoreCrossed,
)
from bruit.node.score_export import export_scores
from bruit.node.statistics import NodeStatistics, PeerInfo, PeerTraffic, by_peer
from bruit.node.subscription import Received, Subscription
from bruit.plugins.pipeline import TopicPipeline
from bruit.plugins.registry import PluginRegistry
from bruit.scoring.bans import Ban, parse_target
from bruit.scoring.explanation import Explanation
from bruit.scoring.history import PeerScoreRow, TopicScoreRow, rows
from bruit.scoring.params import TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.topics.errors import LocalError
from bruit.topics.keys import PeerId, PrivateKey, peer_id_text
from bruit.topics.message import Author, Message
from bruit.topics.names import check_topic
from bruit.topics.validation import Verdict

SIGN_ASIDE = 65_536  # bytes from which on a message is signed in a thread: some 200 µs; guess


class Node:
    """A gossipsub node, to be used as an async context manager under trio.

    ``config`` is a `NodeConfig`, or the path of a TOML file, whose
    ``identity.key_file`` is then read. ``key`` overrides that; without either
    the node has a new identity each time. ``plugins`` are plugin classes that
    no installed package brings, by the name that the configuration uses.

    ``directory`` is where the node's files are: bans, control socket, exported
    scores. It is the folder of the TOML file; a node that is given neither keeps
    no files, and its bans end with it. ``relay_key`` is what it signs for the block
    relay with, instead of ``relay.key_file`` in that folder.

    Raises ConfigError or LocalError before anything is started.
    """

    def __init__(
        self,
        config: NodeConfig | str | os.PathLike[str],
        key: PrivateKey | None = None,
        *,
        plugins: Mapping[str, type] = {},
        directory: Path | None = None,
        relay_key: PrivateKey | None = None,
    ) -> None:
        if not isinstance(config, NodeConfig):
            loaded = load_config(Path(config), os.environ, ())
            config, key = loaded.config, key or load_key_file(loaded.key_path)
            directory = directory or loaded.directory
        config.check()
        self._config = config
        self._directory = directory
        self._key = key or new_key()
        self.peer_id: PeerId = self._key.public_key().peer_id()
        self._registry = PluginRegistry.discover(
            config.plugins, max_failures=config.plugin_limits.max_failures, extra=plugins
        )
        self._pipelines: dict[str, TopicPipeline] = {
            name: self._registry.topic_pipeline(
                name,
                codec=topic.codec,
                validator=topic.validator,
                max_size=topic.max_decoded_size,
            )
            for name, topic in config.topics.items()
            if topic.plugins
        }
        self._feed = ReportFeed()
        self.relay = (  # the node's part in the block relay, where it has a role
            Relay(
                config.relay,
                self._registry,
                relay_key,
                directory,
                self._feed.tell,
                self._tell_plugin_failures,
            )
            if config.relay.roles
            else None
        )
        self._app_scorer = self._registry.app_scorer(
            config.scoring.app_scores, "scoring.app_scores"
        )
        self._router_config = router_config(config)
        self._thresholds, self._score_params = scoring_of(config)
        self._subscriptions: dict[str, dict[Subscription, None]] = {}
        self._lost = 0
        self._changed = trio.lowlevel.ParkingLot()  # whoever waits for peers
        self._host: IHost | None = None
        self._driver: Driver | None = None
        self._dialer: Dialer | None = None
        self._author: Author | None = None
        self._joined: dict[PeerId, tuple[PeerJoined, float]] = {}  # and when, in Unix time
        # Made for each run, before the host listens:
        self._scores: PeerScores
        self._app_scores: AppScores
        self._banning: Banning
        self._running = AsyncExitStack()

    @property
    def peer_id_text(self) -> str:
        return peer_id_text(self.peer_id)

    @property
    def addresses(self) -> list[str]:
        """Where others reach this node: full multiaddrs, ending in /p2p/ and its id."""
        return [str(address) for address in self._started_host().get_addrs()]

    # Life

    async def __aenter__(self) -> "Node":
        try:
            await self._running.enter_async_context(self._run())
        except BaseExceptionGroup as group:
            raise _sole(group) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._running.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if _sole(group) is error:
                return False  # the caller's own exception goes on as it came
            raise

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with (
            shared_verifiers(self._config.network.verifiers) as verifiers,
            self._run_with(verifiers),
        ):
            yield

    @asynccontextmanager
    async def _run_with(self, verifiers: Verifiers) -> AsyncIterator[None]:
        config, rng = self._config, random.Random(os.urandom(32))
        host = new_host(self._key, config.network.max_peers, config.network.announce)
        self._scores = PeerScores(self._score_params, self._thresholds)
        self._app_scores = AppScores(self._app_scorer, self._on_app_scores)
        self._joined.clear()
        routing = self._router_config
        if self.relay is not None:
            routing = self.relay.announced(routing)
        router = Router(routing, self.peer_id, rng, self._scores, self._thresholds)
        dialer = Dialer(host, rng, self._on_dial_failure)
        driver = Driver(
            host,
            router,
            self._pipelines,
            dialer,
            self._router_config.max_frame(),
            config.network.max_peers,
            self._on_delivery,
            self._on_report,
            verifiers,
            self._admit,
        )
        self._banning = Banning(
            self._directory,
            lambda: (
                (peer, remote_addresses(open_connections(host, peer)))
                for peer in list(driver.streams.links)
            ),
            driver.feed,
            partial(self._hang_up, driver),
        )
        await self._banning.load()
        # Seqnos must grow over restarts: wall-clock nanoseconds, as in go-libp2p-pubsub.
        self._author = Author(self._key, self._router_config.signature_policy, time.time_ns())
        ended = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._serve, host, driver, ended)
            self._host, self._driver, self._dialer = host, driver, dialer
            try:
                for name, topic in config.topics.items():
                    if topic.subscribe:
                        driver.feed(Subscribe(name))
                self._dial_configured(driver, dialer)
                try:
                    async with self._relaying(), self._looked_after():
                        yield
                finally:
                    with trio.CancelScope(shield=True):
                        await driver.stop(config.shutdown.grace)
            finally:
                self._close()
                ended.set()

    async def _serve(
        self, host: IHost, driver: Driver, ended: trio.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        """Run the host and its driver until ``ended``, for a cancelled program to say goodbye."""
        with trio.CancelScope(shield=True):
            listen = self._config.network.listen
            async with listening(host, listen), trio.open_nursery() as nursery:
                await nursery.start(driver.run)
                task_status.started()
                await ended.wait()
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _looked_after(self) -> AsyncIterator[None]:
        """What goes on beside the driver while the program works."""
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(self._banning.run)
            nursery.start_soon(self._app_scores.run)
            if self._directory is not None:
                if self._config.scoring.export:
                    file = self._directory / self._config.scoring.export
                    nursery.start_soon(export_scores, file, self.score_snapshot)
                socket = self._config.control.path(self._directory)
                if socket is not None:
                    await stack.enter_async_context(control_socket(socket, partial(answer, self)))
            yield
            nursery.cancel_scope.cancel()

    def _relaying(self) -> AbstractAsyncContextManager[None]:
        """The relay at work, where there is one."""
        if self.relay is None:
            return nullcontext()
        driver, host = self._started_driver(), self._started_host()
        assert self._dialer is not None  # set and cleared together with the host
        around = Surroundings(host, self._dialer, driver, self._write, self.scores, self._blame)
        return self.relay.running(around, self._config.shutdown.grace)

    def _dial_configured(self, driver: Driver, dialer: Dialer) -> None:
        network = self._config.network
        for index, text in enumerate(network.peers):
            peer, address = parse_address(text, f"network.peers[{index}]")
            if peer != self.peer_id:  # the same list may serve every node of an operator
                dialer.keep(peer, [address])
        for index, text in enumerate(network.direct_peers):
            peer, address = parse_address(text, f"network.direct_peers[{index}]")
            if peer != self.peer_id:
                driver.feed(AddDirectPeer(peer, (str(address),)))

    def _close(self) -> None:
        self._host = self._driver = self._dialer = None
        for subscriptions in list(self._subscriptions.values()):
            for subscription in list(subscriptions):
                subscription.close()
        self._feed.close()
        self._changed.unpark_all()

    def _started_host(self) -> IHost:
        if self._host is None:
            raise LocalError("the node is not running: use it inside `async with`")
        return self._host

    def _started_driver(self) -> Driver:
        self._started_host()
        assert self._driver is not None  # set and cleared together with the host
        return self._driver

    # Messages

    def subscribe(self, topic: str) -> Subscription:
        """Join a topic and receive its messages from now on. Raises LocalError for a bad name."""
        self._started_driver().feed(Subscribe(topic))
        subscription = Subscription(topic, self._unsubscribe)
        self._subscriptions.setdefault(topic, {})[subscription] = None
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        topic = subscription.topic
        subscriptions = self._subscriptions.get(topic, {})
        if subscriptions.pop(subscription, self) is self or subscriptions:
            return
        del self._subscriptions[topic]
        configured = self._config.topics.get(topic)
        if self._driver is not None and (configured is None or not configured.subscribe):
            self._driver.feed(Unsubscribe(topic))

    async def publish(self, topic: str, data: bytes) -> Outcome:
        """Judge, encode, sign and send ``data``; say who it was queued for, or why for nobody.

        Waits where the peers' queues are full, a slow peer excepted. Raises
        LocalError for a topic name or data that cannot be, and PluginError when
        the topic's codec fails.
        """
        return (await self.publish_batch(topic, [data]))[0]

    async def publish_batch(self, topic: str, batch: Sequence[bytes]) -> list[Outcome]:
        """Publish several messages at once: as `publish`, with one outcome for each.

        Every peer gets them in another order, so that together they have all of
        them soon and can pass them on.
        """
        driver = self._started_driver()
        if topic not in self._pipelines:
            return await driver.publish([(await self._write(topic, data), data) for data in batch])
        outcomes: dict[int, Outcome] = {}
        messages: dict[int, tuple[Message, bytes]] = {}
        for index, data in enumerate(batch):
            try:
                wire, problem = await self._encode(driver, topic, data)
            finally:
                self._tell_plugin_failures()
            if problem:
                outcomes[index] = Outcome(b"", (), (), problem)
            else:
                messages[index] = (await self._write(topic, wire), data)
        if messages:
            published = await driver.publish(list(messages.values()))
            outcomes |= dict(zip(messages, published, strict=True))
        return [outcomes[index] for index in range(len(batch))]

    async def _write(self, topic: str, wire: bytes) -> Message:
        """The message, signed; a large one beside the event loop, as hashing it takes so long."""
        assert self._author is not None  # set before the driver
        if len(wire) < SIGN_ASIDE:
            return self._author.write(topic, wire)
        return await trio.to_thread.run_sync(self._author.write, topic, wire)

    async def _encode(self, driver: Driver, topic: str, data: bytes) -> tuple[bytes, str]:
        """What goes on the wire, or why nothing does."""
        pipeline = self._pipelines[topic]
        validation = await driver.judging.in_thread(topic, pipeline.check, data)
        if validation.verdict is not Verdict.ACCEPT:
            return b"", f"not valid on this topic: {validation.reason}"
        return await driver.judging.in_thread(topic, pipeline.encode, data), ""

    async def wait_for_peers(self, topic: str, count: int = 1) -> None:
        """Wait until so many connected peers are subscribed to a topic."""
        while len(self._started_driver().subscribers(topic)) < count:
            await self._changed.park()

    async def connect(self, address: str) -> None:
        """Dial a full multiaddr once. Raises ConfigError for a bad one, LocalError on failure."""
        self._started_host()
        assert self._dialer is not None  # set and cleared together with the host
        peer, dialable = parse_address(address, "address")
        if peer == self.peer_id:
            raise LocalError(f"{address} is this node itself")
        try:
            await self._dialer.dial(peer, [dialable])
        except trio.TooSlowError:
            raise LocalError(f"{address} did not answer in time") from None
        except NETWORK_ERRORS as problem:
            raise LocalError(f"{address} cannot be reached: {problem}") from problem

    # Scores and bans

    def scores(self) -> dict[PeerId, float]:
        """What each connected peer scores now."""
        self._started_host()
        now = trio.current_time()
        return {peer: self._scores.score(peer, now) for peer in self._joined}

    def explain(self, peer: PeerId) -> Explanation | None:
        """What a peer's score is made of; None for one that is neither connected nor remembered."""
        self._started_host()
        return self._scores.explain(peer, trio.current_time())

    async def explanations(self) -> list[Explanation]:
        """The same for all known peers, the connected first. Many do not hold up the node."""
        self._started_host()
        found = []
        for peer in self._scores.peers:
            explanation = self._scores.explain(peer, trio.current_time())
            if explanation is not None:  # as it is for one forgotten meanwhile
                found.append(explanation)
            await trio.lowlevel.checkpoint()
        return found

    async def score_snapshot(self) -> tuple[list[PeerScoreRow], list[TopicScoreRow]]:
        """The scores of all known peers as rows of `bruit.scoring.history`."""
        snapshot = await self.explanations()
        return rows(snapshot, time.time(), self._scores.params_hash)

    def topic_score_params(self, topic: str) -> TopicScoreParams | None:
        """How a topic counts; None where it does not."""
        self._started_host()
        return self._scores.params.topic(topic)

    def set_topic_score_params(self, topic: str, params: TopicScoreParams) -> None:
        """Let a topic count otherwise until the node stops.

        Raises LocalError or ConfigError, with nothing changed, for a name or a
        number that cannot be.
        """
        self._started_host()
        self._scores.set_topic_params(check_topic(topic), params, trio.current_time())

    async def ban(self, target: str, seconds: float | None, reason: str) -> Ban:
        """Ban a peer id, an IP address or a subnet, for a time or until it is lifted.

        Whoever it concerns is hung up on. Raises LocalError, with nothing changed,
        for what cannot be banned and where the ban cannot be written down.
        """
        self._started_host()
        if parse_target(target) == self.peer_id:
            raise LocalError(f"{target} is this node itself")
        return await self._banning.ban(target, seconds, reason)

    async def unban(self, target: str) -> bool:
        """Lift a ban; False where there is none. Raises LocalError for an impossible target."""
        self._started_host()
        return await self._banning.unban(target)

    def bans(self) -> tuple[Ban, ...]:
        """The bans in force."""
        self._started_host()
        return self._banning.bans()

    # Reports

    def reports(self) -> Reports:
        """Everything that happens from now on: peers, grafts, rejections, drops, failures."""
        self._started_host()
        return self._feed.listen()

    def peers(self) -> list[PeerInfo]:
        """The connected peers, in the order in which they came."""
        driver, host, now = self._started_driver(), self._started_host(), trio.current_time()
        router = driver.statistics()
        topics, mesh = by_peer(router.subscribers), by_peer(router.mesh)
        return [
            PeerInfo(
                peer=peer,
                address=next(iter(remote_addresses(open_connections(host, peer))), ""),
                outbound=joined.outbound,
                protocol=joined.protocol,
                since=since,
                score=self._scores.score(peer, now),
                topics=tuple(topics.get(peer, ())),
                mesh=tuple(mesh.get(peer, ())),
                traffic=PeerTraffic.of(link.traffic, link.queue.byte_count),
            )
            for peer, (joined, since) in self._joined.items()
            if (link := driver.streams.links.get(peer)) is not None
        ]

    def statistics(self) -> NodeStatistics:
        driver = self._started_driver()
        total = Traffic()
        total.add(driver.streams.past_traffic)
        peers: dict[PeerId, PeerTraffic] = {}
        for peer, link in driver.streams.links.items():
            total.add(link.traffic)
            peers[peer] = PeerTraffic.of(link.traffic, link.queue.byte_count)
        return NodeStatistics(
            router=driver.statistics(),
            traffic=PeerTraffic.of(total),
            peers=peers,
            stream_faults=dict(driver.streams.faults),
            subscribers_lost=self._lost,
            plugins=tuple(self._registry.statuses()),
        )

    def _on_delivery(self, action: Deliver) -> None:
        subscriptions = self._subscriptions.get(action.message.topic)
        if not subscriptions:
            return
        received = Received(
            action.message.topic,
            action.payload,
            action.message.author,
            action.source,
            action.message_id,
            action.facts,
            time.time(),
        )
        for subscription in subscriptions:
            if not subscription.deliver(received):
                self._lost += 1

    def _tell_plugin_failures(self) -> None:
        for event in self._registry.drain_events():
            self._feed.tell(PluginFailed(event))

    def _on_report(self, report: Report) -> None:
        self._tell_plugin_failures()
        match report:
            case PeerJoined(peer):
                self._joined[peer] = report, time.time()
                self._app_scores.joined(peer)
            case PeerLeft(peer):
                self._joined.pop(peer, None)
                self._app_scores.left(peer)
            case ThresholdCrossed(peer, threshold, below):
                explanation = self._scores.explain(peer, trio.current_time())
                if explanation is not None:
                    self._feed.tell(ScoreCrossed(peer, threshold, below, explanation))
                return
            case PeerSubscribed():
                self._changed.unpark_all()
        self._feed.tell(report)

    def _on_app_scores(self, scored: Scored) -> None:
        self._tell_plugin_failures()
        if scored and self._driver is not None:
            self._driver.feed(AppScored(scored))

    def _admit(self, peer: PeerId, addresses: tuple[str, ...]) -> str:
        reason = self._banning.admit(peer, addresses)
        if reason:
            self._feed.tell(ConnectionRefused(peer, reason))
        return reason

    def _hang_up(self, driver: Driver, peer: PeerId, reason: str) -> None:
        self._feed.tell(Disconnect(peer, reason))
        driver.streams.disconnect(peer)

    def _blame(self, peer: PeerId, reason: str) -> None:
        self._scores.misbehaved(peer, 1, reason, trio.current_time())

    def _on_dial_failure(self, peer: PeerId, reason: str) -> None:
        self._feed.tell(DialFailed(peer, reason))


def _sole(problem: BaseException) -> BaseException:
    """What nurseries have wrapped, where it is one exception."""
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    return problem
