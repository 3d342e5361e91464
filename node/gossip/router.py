"""The gossipsub router: a pure machine (gossipsub v1.0, v1.1, v1.2, and floodsub peers).

``handle(event, now)`` in, a list of actions out: no clock, no socket, no task,
no randomness but the generator handed in. The contract is in `events`; the
parts are `mesh` (who gets whole messages), `lazy` (who hears of them), `intake`
(what is taken from whom); they meet in a `context`.

One event costs time proportional to what it touches; the heartbeat, to all
connected peers and subscribed topics.
"""

import random
from collections.abc import Sequence

import msgspec

from bruit.node.gossip import drops
from bruit.node.gossip.actions import (
    Action,
    Connect,
    Deliver,
    Disconnect,
    Lane,
    PeerJoined,
    PeerLeft,
    PeerSubscribed,
    Published,
    SendMessage,
    SetTimer,
)
from bruit.node.gossip.caches import SeenCache
from bruit.node.gossip.context import Context
from bruit.node.gossip.events import (
    AddDirectPeer,
    AppScored,
    Ban,
    Event,
    FrameReceived,
    FramesDropped,
    FramesReceived,
    PeerConnected,
    PeerDisconnected,
    PeerRenewed,
    Publish,
    PublishBatch,
    RecordLearnt,
    RemoveDirectPeer,
    SignaturesChecked,
    Start,
    Stop,
    Subscribe,
    Timer,
    TimerFired,
    Unban,
    Unsubscribe,
    Validated,
)
from bruit.node.gossip.intake import Intake
from bruit.node.gossip.lazy import LazyGossip
from bruit.node.gossip.mesh import Mesh
from bruit.node.gossip.params import MAX_LOST_CONTROL, MAX_PEER_RECORD, RouterConfig
from bruit.node.gossip.peers import Peer
from bruit.node.gossip.rpc_pb2 import Rpc
from bruit.node.gossip.standing import Standing
from bruit.node.gossip.topic_filter import TopicFilter
from bruit.node.gossip.wire import decode_frame, message_frame, sole_message
from bruit.scoring.seam import NeutralScores, Scores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import LocalError, RemoteError
from bruit.topics.keys import PeerId
from bruit.topics.message import id_from_origin
from bruit.topics.names import check_topic


class Statistics(msgspec.Struct, frozen=True):
    """A snapshot of a router. Counters count from its beginning."""

    peers: tuple[PeerId, ...]
    subscribers: dict[str, tuple[PeerId, ...]]  # topic → connected peers subscribed to it
    mesh: dict[str, tuple[PeerId, ...]]  # topics we are subscribed to
    fanout: dict[str, tuple[PeerId, ...]]
    counters: dict[str, int]
    heartbeats: int
    seen: int  # ids
    cached: int  # messages
    cached_bytes: int
    pending: int  # messages under signature check or validation
    backoffs: int
    promises: int


class Router:
    def __init__(
        self,
        config: RouterConfig,
        own_id: PeerId,
        rng: random.Random,
        scores: Scores | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        """Raises ConfigError where the configuration cannot work."""
        config.check()
        self._params = config.params
        self._context = Context(
            config, own_id, rng, scores or NeutralScores(), thresholds or Thresholds()
        )
        self._context.thresholds.check()
        self._seen = SeenCache(self._params.seen_ttl, self._params.seen_capacity)
        self._mesh = Mesh(self._context)
        self._gossip = LazyGossip(self._context, self._mesh, self._seen)
        self._intake = Intake(self._context, self._mesh, self._gossip, self._seen)
        self._standing = Standing(self._context)
        self._filter = TopicFilter(config.topic_filter)
        for peer in config.kept_peers:
            self._context.tags.protect(peer)
        self._epoch = 0

    def handle(self, event: Event, now: float) -> list[Action]:  # noqa: C901, a flat dispatch
        """Take one event; return everything that follows from it, in order.

        Raises LocalError, with nothing changed, for a command that makes no sense.
        """
        match event:
            case FrameReceived(peer, frame):
                self._on_frame(peer, frame, now)
            case FramesReceived(peer, frames):
                for frame in frames:
                    self._on_frame(peer, frame, now)
            case SignaturesChecked(answers):
                for ticket, valid in answers:
                    self._intake.on_signature(ticket, valid, now)
            case Validated():
                self._intake.on_validated(event, now)
            case Publish():
                send = self._publish(event, now)
                if send is not None:
                    self._context.emit(send)
            case PublishBatch(items):
                sends = [self._publish(item, now) for item in items]
                self._send_in_turn([send for send in sends if send is not None])
            case TimerFired(timer):
                if timer.epoch == self._epoch:
                    self._on_timer(timer.name, now)
            case FramesDropped():
                self._on_dropped(event, now)
            case PeerConnected():
                self._on_connected(event, now)
            case PeerRenewed():
                self._on_renewed(event, now)
            case PeerDisconnected(peer):
                self._on_disconnected(peer, now)
            case RecordLearnt():
                self._on_record(event)
            case Subscribe(topic):
                self._subscribe(topic, now)
            case Unsubscribe(topic):
                self._unsubscribe(topic, now)
            case AddDirectPeer(peer, addresses):
                self._context.direct[peer] = addresses
                self._context.tags.protect(peer)
                self._mesh.on_made_direct(peer, now)
                self._dial_direct([peer])
            case RemoveDirectPeer(peer):
                self._context.direct.pop(peer, None)
                if peer not in self._context.config.kept_peers:
                    self._context.tags.unprotect(peer)
            case AppScored(scores):
                for peer, value in scores:
                    self._context.scores.set_app_score(peer, value, now)
            case Ban(peer):
                self._context.banned[peer] = None
                if peer in self._context.peers:
                    self._context.emit(Disconnect(peer, "banned"))
            case Unban(peer):
                self._context.banned.pop(peer, None)
            case Start():
                self._epoch += 1
                self._arm("heartbeat", now + self._params.heartbeat_delay)
                self._arm_refreshes(now)
            case Stop():
                self._epoch += 1
        return self._context.drain()

    def subscribers(self, topic: str) -> tuple[PeerId, ...]:
        """The connected peers that are subscribed to a topic."""
        return tuple(peer.id for peer in self._context.peers.subscribed(topic))

    def statistics(self) -> Statistics:
        mesh, fanout = self._mesh.snapshot()
        return Statistics(
            peers=tuple(peer.id for peer in self._context.peers),
            subscribers=self._context.peers.topics(),
            mesh=mesh,
            fanout=fanout,
            counters=dict(self._context.counters),
            heartbeats=self._context.ticks,
            seen=len(self._seen),
            cached=len(self._gossip.cache) + len(self._gossip.announcing.cache),
            cached_bytes=self._gossip.cache.bytes + self._gossip.announcing.cache.bytes,
            pending=self._intake.pending,
            backoffs=len(self._mesh.backoffs),
            promises=len(self._gossip.promises),
        )

    # Peers

    def _on_connected(self, event: PeerConnected, now: float) -> None:
        context = self._context
        if event.peer in context.peers:
            raise LocalError("PeerConnected twice for one peer: send PeerDisconnected in between")
        peer = Peer(event.peer, event.protocol, event.outbound)
        context.peers.add(peer)
        context.tags.connected(event.peer, event.outbound, now)
        self._note_addresses(event.peer, event.addresses, now)
        context.emit(PeerJoined(event.peer, event.protocol, event.outbound))
        self._standing.review(peer, now)
        self._say_hello(event.peer)

    def _on_renewed(self, event: PeerRenewed, now: float) -> None:
        """Say it all again: the subscriptions, and which meshes the peer is in."""
        if event.peer in self._context.peers:
            self._note_addresses(event.peer, event.addresses, now)
            self._say_hello(event.peer)
            self._mesh.graft_again(event.peer)

    def _note_addresses(self, peer: PeerId, addresses: tuple[str, ...], now: float) -> None:
        self._context.scores.connected(peer, addresses, now)
        if self._context.gater is not None:  # counts a peer at one address
            self._context.gater.connected(peer, addresses[0] if addresses else "", now)

    def _say_hello(self, peer: PeerId) -> None:
        """All our subscriptions, in one frame."""
        topics = self._mesh.topics()
        if topics:
            self._context.tell(peer).subscriptions.update(dict.fromkeys(topics, True))

    def _on_disconnected(self, peer: PeerId, now: float) -> None:
        context = self._context
        if context.peers.remove(peer) is None:
            return
        self._mesh.on_disconnected(peer)
        self._gossip.announcing.on_disconnected(peer, now)
        context.tags.disconnected(peer)
        context.scores.disconnected(peer, now)
        if context.gater is not None:
            context.gater.disconnected(peer, now)
        context.emit(PeerLeft(peer))

    def _on_record(self, event: RecordLearnt) -> None:
        known = self._context.peers.get(event.peer)
        wanted = event.public or not self._params.exchange_public_only
        if known is not None and wanted and len(event.envelope) <= MAX_PEER_RECORD:
            known.record = event.envelope

    def _on_frame(self, sender: PeerId, frame: bytes, now: float) -> None:
        context = self._context
        peer = context.peers.get(sender)
        if peer is None:
            context.drop(drops.UNKNOWN_PEER, sender)
            return
        raw = sole_message(frame)
        if raw is not None:
            if self._heeded(sender, now):
                self._take([raw], sender, now)
            return
        try:
            rpc = decode_frame(frame)
            said = [(each.topic, each.subscribe) for each in rpc.subscriptions]
            noted = self._filter.subscriptions(said) if said else said
        except RemoteError:
            context.drop(drops.MALFORMED_FRAME, sender)
            context.scores.misbehaved(sender, 1, "malformed frame", now)
            return
        # What a graylisted peer subscribes to is still noted, as in go: it says so
        # only once, and its score may recover.
        for topic, subscribe in noted:
            self._on_subscription(peer, topic, subscribe, now)
        if not self._heeded(sender, now):
            return
        if rpc.publish:
            self._take(rpc.publish, sender, now)
        if rpc.HasField("control"):
            self._on_control(peer, rpc, now)

    def _heeded(self, sender: PeerId, now: float) -> bool:
        """Whether we listen to a peer at all; if not, its frame is dropped."""
        context = self._context
        if context.scores.reaches(sender, context.thresholds.graylist, now):
            return True
        if sender in context.direct:
            return True
        context.drop(drops.GRAYLISTED, sender)
        return False

    def _take(self, messages: Sequence[bytes], sender: PeerId, now: float) -> None:
        """Take the messages of a frame, unless the gater is against it."""
        context = self._context
        if context.gater is None or context.gater.accepts(sender, now) or sender in context.direct:
            for raw in messages:
                self._intake.receive(raw, sender, now)
        else:
            context.drop(drops.GATED, sender, count=len(messages))

    def _on_subscription(self, peer: Peer, topic: str, subscribe: bool, now: float) -> None:
        context = self._context
        try:
            check_topic(topic)
        except LocalError:
            context.drop(drops.MALFORMED_FRAME, peer.id)
            return
        if subscribe == (topic in peer.topics):
            return
        if not subscribe:
            context.peers.unsubscribe(peer, topic)
            self._mesh.on_unsubscribed(peer, topic, now)
        elif context.peers.subscribe(peer, topic):
            self._mesh.on_subscribed(peer, topic, now)
        else:
            context.drop(drops.TOO_MANY_TOPICS, peer.id)
            return
        context.emit(PeerSubscribed(peer.id, topic, subscribe))

    def _on_control(self, peer: Peer, rpc: Rpc, now: float) -> None:
        if not peer.protocol.has_mesh:
            self._context.drop(drops.NOT_A_MESH_PEER, peer.id)
            return
        control = rpc.control
        if control.ihave:
            self._gossip.on_ihave(peer, control.ihave, now)
        if control.iwant:
            self._gossip.on_iwant(peer, control.iwant, now)
        if control.graft:
            self._mesh.on_graft(peer, control.graft, now)
        if control.prune:
            self._mesh.on_prune(peer, control.prune, now)
        if control.idontwant:
            self._gossip.on_idontwant(peer, control.idontwant)

    def _on_dropped(self, event: FramesDropped, now: float) -> None:
        self._context.drop(drops.SLOW_PEER, event.peer, count=event.count)
        self._context.scores.slow(event.peer, event.count, now)
        peer = self._context.peers.get(event.peer)
        if peer is None:
            return
        for frame in event.control:
            if decode_frame(frame).control.iwant:
                self._gossip.promises.excuse(peer.id)  # it never heard what we asked for
            if len(peer.lost_control) < MAX_LOST_CONTROL:
                peer.lost_control.append(frame)

    def _repeat_lost_control(self, peer: Peer, now: float) -> None:
        """Say again what a full queue lost, as far as it still holds."""
        lost, peer.lost_control = peer.lost_control, []
        for frame in lost:
            rpc = decode_frame(frame)
            for subscription in rpc.subscriptions:
                topic = subscription.topic
                self._context.tell(peer.id).subscriptions[topic] = self._mesh.joined(topic)
            self._mesh.say_again(peer, rpc.control.graft, rpc.control.prune, now)

    # Commands

    def _subscribe(self, topic: str, now: float) -> None:
        check_topic(topic)
        if not self._filter.allows(topic):
            raise LocalError(f"topic {topic!r} is not allowed by the topic filter: add it there")
        if self._mesh.joined(topic):
            return
        for peer in self._context.peers:
            self._context.tell(peer.id).subscriptions[topic] = True
        self._mesh.join(topic, now)

    def _unsubscribe(self, topic: str, now: float) -> None:
        if not self._mesh.joined(topic):
            return
        for peer in self._context.peers:
            self._context.tell(peer.id).subscriptions[topic] = False
        self._mesh.leave(topic, now)
        self._gossip.announcing.left(topic)
        self._context.tags.left(topic)

    def _publish(self, command: Publish, now: float) -> SendMessage | None:
        """Everything but the sending, which is returned: None where there is nothing to send."""
        context, message = self._context, command.message
        topic = message.topic
        params = context.config.topic(topic)
        message_id = params.message_id(message)

        def refuse(problem: str) -> None:
            context.emit(Published(command.ticket, message_id, (), problem))

        if len(message.raw) > params.max_message_size:
            limit = params.max_message_size
            refuse(f"{len(message.raw)} bytes on the wire, the topic's limit is {limit}")
            return None
        if message_id in self._seen:
            refuse("a message with this id was published or received before")
            return None
        self._seen.add(message_id, now)
        self._gossip.promises.fulfil(message_id)
        self._gossip.announcing.arrived(message_id, now)
        self._gossip.has(topic, message_id, message.raw)
        peers = tuple(self._publish_targets(topic, message_id, now))
        problem = "" if peers else "no connected peer is subscribed to the topic and would take it"
        if peers and params.message_id is not id_from_origin:  # somebody else may say the same
            self._gossip.say_unwanted(topic, message_id, len(message.data), context.own_id)
        context.emit(Published(command.ticket, message_id, peers, problem))
        context.count("messages published")
        # Own messages are valid from the start: copies that come back are judged by that.
        context.scores.first_delivery(context.own_id, topic, message_id, now)
        if self._mesh.joined(topic):
            context.emit(Deliver(message, message_id, command.payload, context.own_id, {}))
        if params.announced is not None:
            peers = self._gossip.announcing.tell_of(
                topic, message_id, peers, params.announced.pushed
            )
        if not peers:
            return None
        return SendMessage(peers, message_id, message_frame(message.raw), Lane.OWN)

    def _send_in_turn(self, sends: list[SendMessage]) -> None:
        """Send own messages, to the first peer from the first on, to the second from the second."""
        peers = dict.fromkeys(peer for send in sends for peer in send.peers)
        targets = [(send, frozenset(send.peers)) for send in sends]
        for turn, peer in enumerate(peers):
            first = turn % len(sends)
            for send, receivers in (*targets[first:], *targets[:first]):
                if peer in receivers:
                    self._context.emit(msgspec.structs.replace(send, peers=(peer,)))

    def _publish_targets(self, topic: str, message_id: bytes, now: float) -> list[PeerId]:
        context = self._context
        if self._params.flood_publish and context.config.topic(topic).announced is None:
            chosen = {
                peer.id: None
                for peer in context.peers.subscribed(topic)
                if peer.id in context.direct
                or context.scores.reaches(peer.id, context.thresholds.publish, now)
            }
            return self._intake.willing(chosen, message_id)
        targets = self._intake.targets(topic, message_id, now)
        if self._mesh.joined(topic):
            return targets
        fanout = dict.fromkeys((*targets, *self._mesh.fanout_for(topic, now)))
        return self._intake.willing(fanout, message_id)

    # Time

    def _arm(self, name: str, at: float) -> None:
        self._context.emit(SetTimer(Timer(name, self._epoch), at))

    def _on_timer(self, name: str, now: float) -> None:
        match name:
            case "heartbeat":
                self._heartbeat(now)
                self._arm(name, now + self._params.heartbeat_interval)
            case "scores":
                self._context.scores.refresh(now)
                self._arm(name, now + self._context.scores.refresh_interval)
            case "gater" if self._context.gater is not None:
                self._context.gater.refresh(now)
                self._arm(name, now + self._context.gater.params.decay_interval)

    def _arm_refreshes(self, now: float) -> None:
        if self._context.scores.refresh_interval:
            self._arm("scores", now + self._context.scores.refresh_interval)
        if self._context.gater is not None:
            self._arm("gater", now + self._context.gater.params.decay_interval)

    def _heartbeat(self, now: float) -> None:
        context = self._context
        context.ticks += 1
        self._gossip.heartbeat_counters(now)
        for peer in context.peers:
            self._standing.review(peer, now)
            if peer.lost_control:
                self._repeat_lost_control(peer, now)
        if context.ticks % self._params.direct_connect_ticks == 0:
            self._dial_direct(list(context.direct))
        self._mesh.maintain(now)
        self._gossip.advertise(now)
        self._trim(now)
        self._seen.expire(now)

    def _trim(self, now: float) -> None:
        """Hang up on the least useful peers where there are more than we may have."""
        context, limit = self._context, self._context.config.max_peers
        context.tags.refresh(now)
        for peer in () if limit is None else context.tags.surplus(limit, now):
            context.count("peers disconnected for being too many")
            context.emit(Disconnect(peer, f"more than {limit} peers, and it is the least useful"))

    def _dial_direct(self, peers: list[PeerId]) -> None:
        for peer in peers:
            if peer not in self._context.peers:
                self._context.emit(Connect(peer, self._context.direct[peer]))
