"""The relay of one node: its machines, their driver, its plugins and its audit, put together.

What of it an application uses is `Relay`, as ``node.relay``.
"""

import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import trio
from libp2p.abc import IHost

from bruit.node.audit import Audit, AuditReport
from bruit.node.auditing import Auditing
from bruit.node.config.relay import RelayConfig
from bruit.node.config.toml import dotted
from bruit.node.gossip.events import Subscribe
from bruit.node.gossip.params import Announced, RouterConfig
from bruit.node.identity import load_key_file
from bruit.node.net.dialer import Dialer
from bruit.node.net.driver import Driver
from bruit.node.net.relay.clock import UnixClock
from bruit.node.net.relay.driver import Channels, Machines, Outlets, RelayDriver, RelayReport
from bruit.node.net.relay.protocols import timestamp_of
from bruit.node.relay.actions import (
    BlockUndecided,
    ChunkDropped,
    DeliverBlock,
    Dispute,
    StakeAttached,
    Witnessed,
)
from bruit.node.relay.consumer import Consumer
from bruit.node.relay.directory import Directory
from bruit.node.relay.member import Member
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.producer import Producer
from bruit.node.relay.proof import ProofOfBroadcast
from bruit.node.relay.signing import address_of_secret
from bruit.node.relay.wants import ChunkWants
from bruit.node.relay_blocks import BlockSubscription, ReceivedBlock
from bruit.node.relay_publishing import RelayPublishing
from bruit.node.relay_status import ClusterStatus, RelayStatus, StakeStatus
from bruit.node.reports import Disputed, NodeReport
from bruit.node.statistics import PeerTraffic
from bruit.plugins.marketplace import Marketplace
from bruit.plugins.registry import PluginRegistry
from bruit.topics.errors import LocalError, PluginError
from bruit.topics.keys import KeyType, PeerId, PrivateKey
from bruit.topics.message import Message

MARKETPLACE_INTERVAL = 1.0  # seconds between questions to the marketplace's plugin; guess
MARKETPLACE_PATIENCE = 5.0  # seconds that a starting node waits for its first answer; guess
SCORES_INTERVAL = 5.0  # seconds between readings of peer scores for the producer; guess

_log = logging.getLogger(__name__)


class Surroundings(msgspec.Struct, frozen=True):
    """What a node lends its relay while it runs."""

    host: IHost
    dialer: Dialer
    driver: Driver  # of the gossip router
    write: Callable[[str, bytes], Awaitable[Message]]  # a message on a topic, signed
    scores: Callable[[], Mapping[PeerId, float]]  # of the connected peers
    misbehaved: Callable[[PeerId, str], None]  # hold something against a peer


class Relay:
    """A node's part in the relay. Made with the node; works while that is running."""

    def __init__(
        self,
        config: RelayConfig,
        registry: PluginRegistry,
        key: PrivateKey | None,
        files: Path | None,
        tell: Callable[[NodeReport], None],
        tell_plugin_failures: Callable[[], None],
    ) -> None:
        """``files``: the folder of the key, unless there is ``key``, and for audit, evidence and
        proofs; None for nowhere.

        Raises ConfigError for a plugin that is not fit, and LocalError for a key that is not.
        """
        self._config = config
        self._files = files
        self._tell = tell
        self._tell_plugin_failures = tell_plugin_failures
        secret = _secret(config, key, files)
        self.address = address_of_secret(secret) if secret else b""  # 20-byte id
        self._ask_marketplace = registry.marketplace(config.marketplace, "relay.marketplace")
        self._channels = Channels(
            params=config.channel_params(),
            pipelines={
                channel.id: registry.topic_pipeline(
                    channel.topic,
                    codec=channel.codec,
                    validator=channel.validator,
                    max_size=channel.max_decoded_size,
                    path=dotted(("relay", "channels", name)),
                )
                for name, channel in config.channels.items()
            },
            validators={
                channel.id: channel.validator or channel.codec
                for channel in config.channels.values()
            },
            latency=config.params.tolerable_latency,
            select=registry.selector(config.selector, "relay.selector"),
            secret=secret,
        )
        self._topics = {channel.id: channel.topic for channel in config.channels.values()}
        # The plugin tells of changes only, and to all runs of the node together:
        self._directory: Directory | None = None
        self._attached: list[StakeAttached] = []  # within the refresh interval
        self._subscriptions: dict[int, dict[BlockSubscription, None]] = {}
        self._driver: RelayDriver | None = None
        # Made for each run:
        self._wants: dict[int, ChunkWants] = {}
        self._asked: trio.Event  # the plugin, for the first time
        self._clock: UnixClock
        self._auditing: Auditing
        self._publishing: RelayPublishing
        self._broadcasts = self._broadcasting = self._witnessed = 0
        self._delivered = self._blocks_lost = 0
        self._disputes: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._chunks_of: dict[int, int] = {}  # cluster → chunks of delivered blocks

    # For the application

    async def broadcast(self, channel: int | str, block: bytes) -> ProofOfBroadcast:
        """Send a block through the clusters. ``channel``: an id, a name, or a topic.

        Returns when every chunk is acknowledged, or can be sent no further: the proof says
        which. Raises LocalError where nothing is sent, and PluginError where the codec fails.
        """
        driver, number = self._running(), self._number(channel)
        self._broadcasts += 1
        self._broadcasting += 1
        try:
            return await driver.broadcast(number, block)
        finally:
            self._broadcasting -= 1
            self._tell_plugin_failures()

    def blocks(self, channel: int | str) -> BlockSubscription:
        """The blocks of a channel from now on. Raises LocalError for who is no consumer."""
        self._running()
        if "consumer" not in self._config.roles:
            raise LocalError('this node is no consumer: add "consumer" to relay.roles')
        subscription = BlockSubscription(self._number(channel), self._unsubscribe)
        self._subscriptions.setdefault(subscription.channel, {})[subscription] = None
        return subscription

    def status(self) -> RelayStatus:
        """What this node does for the relay, and what it knows of it."""
        driver = self._running()
        directory = self._directory or Directory(Marketplace())
        return RelayStatus(
            roles=self._config.roles,
            address=self.address.hex(),
            cluster=directory.cluster_of(self.address),
            producers=len(directory.marketplace.producers),
            clusters=self._cluster_statuses(driver, directory),
            stake=self._stake_status(directory),
            broadcasts=self._broadcasts,
            broadcasting=self._broadcasting,
            witnessed=self._witnessed,
            published=self._publishing.published,
            unpublished=self._publishing.unpublished,
            delivered=self._delivered,
            blocks_lost=self._blocks_lost,
            disputes=dict(self._disputes),
            dropped=dict(self._dropped),
            waiting=driver.jobs.count,
            traffic=PeerTraffic.of(driver.streams.traffic),
            stream_faults=dict(driver.streams.faults),
            unaudited=self._auditing.left_out,
        )

    def _cluster_statuses(
        self, driver: RelayDriver, directory: Directory
    ) -> tuple[ClusterStatus, ...]:
        found = []
        for cluster in directory.marketplace.clusters:
            option = driver.options.get(cluster.id)
            found.append(
                ClusterStatus(
                    cluster.id,
                    len(cluster.members),
                    cluster.price,
                    self._chunks_of.get(cluster.id, 0),
                    option.latency if option else None,
                    option.acknowledgement_rate if option else None,
                    option.delivery_rate if option else None,
                    option.recent_failures if option else 0,
                )
            )
        return tuple(found)

    def _stake_status(self, directory: Directory) -> StakeStatus | None:
        producer = directory.producer(self.address)
        if producer is None:
            return None
        self._forget_stake(self._clock.now())
        return StakeStatus(producer.stake, sum(each.end - each.start for each in self._attached))

    def _running(self) -> RelayDriver:
        if self._driver is None:
            raise LocalError("the node is not running: use it inside `async with`")
        return self._driver

    def _number(self, channel: int | str) -> int:
        """The id of a channel. Raises LocalError for one that is not configured."""
        for name, each in self._config.channels.items():
            if channel in (each.id, name, each.topic):
                return each.id
        known = ", ".join(f"{each.id} ({name})" for name, each in self._config.channels.items())
        raise LocalError(f"channel {channel!r} is not configured; configured: {known}")

    def _unsubscribe(self, subscription: BlockSubscription) -> None:
        self._subscriptions.get(subscription.channel, {}).pop(subscription, None)

    # Life

    def announced(self, config: RouterConfig) -> RouterConfig:
        """How the router of the next run treats the channels' topics: see `ChunkWants`."""
        topics = dict(config.topics)
        for number, channel in self._channels.params.items():
            wants = self._wants[number] = ChunkWants(channel.min_chunks)
            keep = self._config.params.tolerable_latency  # beyond, a chunk is a replay
            topics[channel.topic] = msgspec.structs.replace(
                topics[channel.topic], announced=Announced(pushed=0, keep=keep, wants=wants)
            )
        return msgspec.structs.replace(config, topics=topics)

    @asynccontextmanager
    async def running(self, around: Surroundings, grace: float) -> AsyncIterator[None]:
        """Take part while in the context; then let peers read the rest for ``grace`` seconds."""
        async with AsyncExitStack() as stack:
            audit = None
            if self._files is not None:
                audit = await trio.to_thread.run_sync(Audit.open, self._config, self._files)
                stack.enter_context(audit)
                since = time.time() - self._config.params.refresh_interval
                earlier = await trio.to_thread.run_sync(audit.attached, since)
                self._attached = list(dict.fromkeys([*self._attached, *earlier]))
            await trio.to_thread.run_sync(_warm, list(self._channels.params.values()))
            driver = self._new_driver(around)
            self._clock = driver.clock
            self._auditing = Auditing(audit, self._on_kept)
            stack.push_async_callback(self._auditing.finish)
            self._publishing = RelayPublishing(around.driver, around.write)
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(self._auditing.run)
            nursery.start_soon(self._publishing.run)
            await nursery.start(driver.run)
            for number, topic in self._topics.items():
                around.driver.judging.entrust(topic, partial(driver.judge, number))
                if "consumer" in self._config.roles:
                    around.driver.feed(Subscribe(topic))
            if self._directory is not None:
                driver.marketplace_changed(self._directory)
            self._asked = trio.Event()
            nursery.start_soon(self._watch_marketplace, driver)
            nursery.start_soon(self._watch_scores, driver, around.scores)
            with trio.move_on_after(MARKETPLACE_PATIENCE):
                await self._asked.wait()
            self._driver = driver
            try:
                yield
            finally:
                self._driver = None
                for subscriptions in list(self._subscriptions.values()):
                    for subscription in list(subscriptions):
                        subscription.close()
                with trio.CancelScope(shield=True):
                    await driver.streams.stop(grace)
                nursery.cancel_scope.cancel()

    def _new_driver(self, around: Surroundings) -> RelayDriver:
        config, params = self._config, self._config.params
        dice = [Random(os.urandom(32)) for _ in range(4)]
        channels = self._channels.params
        machines = Machines(
            Producer(channels, params, self.address, dice[0], self._attached)
            if "producer" in config.roles
            else None,
            Member(channels, params, self.address, dice[1]) if "member" in config.roles else None,
            Consumer(channels, params, dice[2], self._wants)
            if "consumer" in config.roles
            else None,
        )
        outlets = Outlets(
            publish=self._publish,
            judged=around.driver.feed,
            report=self._on_report,
            keep=self._keep_stake,
            fault=around.misbehaved,
        )
        admit = around.driver.streams.admits
        return RelayDriver(
            around.host,
            around.dialer,
            admit,
            machines,
            self._channels,
            outlets,
            dice[3],
            self._wants,
        )

    def _publish(self, channel: int, frame: bytes) -> None:
        until = timestamp_of(frame) + self._config.params.tolerable_latency
        self._publishing.publish(self._topics[channel], frame, self._clock.on_trio(until))

    async def _watch_marketplace(self, driver: RelayDriver) -> None:
        problem = ""
        while True:
            try:
                directory = await trio.to_thread.run_sync(self._ask, abandon_on_cancel=True)
            except PluginError:
                self._tell_plugin_failures()
            except LocalError as error:  # a peer id that is none
                if str(error) != problem:
                    problem = str(error)
                    _log.error("the marketplace cannot be used, the last one holds: %s", problem)
            else:
                if directory is not None:
                    self._directory = directory
                    driver.marketplace_changed(directory)
            self._asked.set()
            await trio.sleep(MARKETPLACE_INTERVAL)

    def _ask(self) -> Directory | None:
        marketplace = self._ask_marketplace()
        return None if marketplace is None else Directory(marketplace)

    async def _watch_scores(
        self, driver: RelayDriver, scores: Callable[[], Mapping[PeerId, float]]
    ) -> None:
        while "producer" in self._config.roles:
            driver.peers_scored(scores())
            await trio.sleep(SCORES_INTERVAL)

    # Reports

    def _on_report(self, report: RelayReport) -> None:
        self._tell_plugin_failures()
        match report:
            case ChunkDropped(reason=reason):
                self._dropped[reason] = self._dropped.get(reason, 0) + 1
                return
            case BlockUndecided():
                _log.warning(
                    "block %s on channel %d is not delivered: %s",
                    report.message_id.hex(),
                    report.channel,
                    report.reason,
                )
                self._tell(report)
                return
            case Dispute(evidence):
                kind = evidence.kind.value
                self._disputes[kind] = self._disputes.get(kind, 0) + 1
            case Witnessed():
                self._witnessed += 1
            case DeliverBlock():
                self._deliver(report)
        self._auditing.keep(report, self._clock.now())

    def _deliver(self, action: DeliverBlock) -> None:
        self._delivered += 1
        for cluster, count in action.clusters.items():
            self._chunks_of[cluster] = self._chunks_of.get(cluster, 0) + count
        received = ReceivedBlock.of(action, self._clock.now())
        for subscription in self._subscriptions.get(action.channel, {}):
            if not subscription.deliver(received):
                self._blocks_lost += 1

    async def _keep_stake(self, action: StakeAttached) -> None:
        self._forget_stake(self._clock.now())
        self._attached.append(action)
        await self._auditing.keep_first(action, self._clock.now())

    def _forget_stake(self, now: float) -> None:
        interval = self._config.params.refresh_interval
        self._attached = [each for each in self._attached if now - each.timestamp <= interval]

    def _on_kept(self, report: AuditReport, file: Path | None) -> None:
        if isinstance(report, Dispute):
            evidence = report.evidence
            if file is not None:  # listeners may be behind, and exhibits are whole blocks
                evidence = msgspec.structs.replace(evidence, exhibits=())
            self._tell(Disputed(evidence, file))


def _warm(channels: list[ChannelParams]) -> None:
    """Code something small: the first time takes up to seconds, which the first block has not."""
    for channel in channels:
        code = channel.code()
        chunks = code.encode(b"warm")
        code.decode({at: chunks[at] for at in range(len(chunks))[-channel.min_chunks :]})


def _secret(config: RelayConfig, key: PrivateKey | None, files: Path | None) -> bytes:
    """The 32 bytes that sign for the node; none for who signs nothing. Raises LocalError."""
    if "producer" not in config.roles and "member" not in config.roles:
        return b""
    if key is None and files is not None:
        key = load_key_file(files / config.key_file)
    if key is None or key.kind is not KeyType.SECP256K1:
        raise LocalError(
            "a producer or member of the relay signs with a secp256k1 key of its own: make one "
            f"with `bruit relay key new {config.key_file}`"
        )
    return key.secret
