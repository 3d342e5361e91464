"""The network in virtual time: one clock, one queue of events, any number of nodes.

Time only moves in `SimNetwork.run_for` and `SimNetwork.run_until`, from event to
event; what happens at the same time happens in the order in which it was
scheduled. All chance comes from the seed, by one generator per node and per
link, so that a change in one corner leaves the dice of the others alone.

The contract with the machines is the one of the real driver: every list of
actions is carried out in order before the next event is handed in, and frames
go through the same queues. What differs is said where it is decided: loss in
`bruit.node.sim.links`, signatures in `bruit.node.sim.authors`, dialling, cuts
and crashes in the methods below.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import Random
from typing import assert_never

import msgspec

from bruit.node.gossip.actions import (
    Action,
    CancelQueued,
    CheckSignature,
    Connect,
    Deliver,
    Disconnect,
    Dropped,
    Grafted,
    PeerJoined,
    PeerLeft,
    PeerSubscribed,
    Pruned,
    Published,
    Rejected,
    Report,
    SendControl,
    SendMessage,
    SetTimer,
    ThresholdCrossed,
    Validate,
)
from bruit.node.gossip.events import (
    PROTOCOLS,
    Event,
    FrameReceived,
    FramesDropped,
    PeerConnected,
    PeerDisconnected,
    Protocol,
    Publish,
    RecordLearnt,
    SignaturesChecked,
    Start,
    Stop,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from bruit.node.gossip.params import RouterConfig
from bruit.node.gossip.router import Router
from bruit.node.sim.action_log import ActionLog
from bruit.node.sim.authors import Notary, Signatures
from bruit.node.sim.bandwidth import Downlink, PacedCarrier, Uplink, pace
from bruit.node.sim.clock import Clock, Function
from bruit.node.sim.direct import DirectFrame, DirectFrames
from bruit.node.sim.links import Channel, LinkModel
from bruit.node.sim.nodes import Delivery, Machine, SimNode
from bruit.node.sim.statistics import SimStatistics
from bruit.node.sim.stubs import PeerStub
from bruit.scoring.seam import NeutralScores, Scores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import LocalError
from bruit.topics.keys import KeyType, PeerId, PrivateKey
from bruit.topics.message import SignaturePolicy
from bruit.topics.validation import ACCEPTED

MachineFactory = Callable[[PeerId, Random], Machine]  # own id and dice → machine


class SimNetwork:
    """A network of simulated nodes.

    ``seed`` decides everything that chance decides. ``link`` is the model of
    every link that `set_link` does not name. A node checks one signature at a
    time and each takes ``signature_price`` seconds. Peers of a node that
    vanishes notice after ``detection_delay`` seconds. Reports and the action log
    are kept only if asked for. ::

        net = SimNetwork(seed=7)
        nodes = net.add_nodes(20)
        net.connect_all(topologies.sparse_random(20, 4, net.rng))
        net.subscribe_all("blocks")
        net.run_for(2.0)
        net.publish(nodes[0], "blocks", b"payload")
        net.run_for(1.0)
        assert nodes[3].deliveries("blocks")
    """

    def __init__(
        self,
        *,
        seed: int,
        link: LinkModel | None = None,
        signatures: Signatures = Signatures.STAND_IN,
        signature_price: float = 0.0,
        detection_delay: float = 10.0,  # guess: a keep-alive and its time-out
        keep_reports: bool = False,
        action_log: ActionLog | None = None,
    ) -> None:
        if signature_price < 0 or detection_delay < 0:
            raise LocalError("signature_price and detection_delay are seconds from 0")
        self.rng = Random(seed)
        self.nodes: list[SimNode] = []  # all but the stubs, in the order of joining
        self._seed = seed
        self._default_link = link or LinkModel()
        self._links: dict[tuple[PeerId, PeerId], LinkModel] = {}
        self._notary = Notary(signatures)
        self._signature_price = signature_price
        self._detection_delay = detection_delay
        self._keep_reports = keep_reports
        self._action_log = action_log
        self._directory: dict[PeerId, SimNode] = {}
        self._names: dict[PeerId, str] = {}
        self._records: dict[bytes, PeerId] = {}
        self._dialling: dict[tuple[int, int], None] = {}  # pairs of indices, lower first
        self._severed: dict[tuple[int, int], tuple[SimNode, SimNode]] = {}  # dialer, listener
        self._tickets = count(1)
        self._connections = count()
        self._answers: deque[Event] = deque()  # to actions that take no time
        self._clock = Clock()
        self._carrier = PacedCarrier(self._clock, self._arrived, self._ended)
        self._direct = DirectFrames(self._clock, self._carrier, self._dial)
        self._dropped = self._undeliverable = self._deliveries = self._refused_records = 0

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._clock.now

    # Nodes

    def add_nodes(
        self,
        count: int,
        *,
        config: RouterConfig | None = None,
        scores: Callable[[], Scores] = NeutralScores,
        thresholds: Thresholds | None = None,
        protocol: Protocol = Protocol.GOSSIPSUB_12,
        machine: MachineFactory | None = None,
    ) -> list[SimNode]:
        """Start ``count`` nodes, now. ``scores`` is called once for each of them.

        They run routers built from the arguments, or what ``machine`` makes.
        Their names are n0, n1, … in the order of joining; names decide identities.
        Nodes added at the same time beat in step; to spread their heartbeats, let
        some time pass between calls.
        """
        config = config or RouterConfig()
        added = []
        for _ in range(count):
            name = f"n{len(self.nodes)}"
            author = self._notary.author(self._key(name), config.signature_policy)
            rng = Random(f"{self._seed}/machine/{name}")
            if machine is None:
                built: Machine = Router(config, author.peer_id, rng, scores(), thresholds)
            else:
                built = machine(author.peer_id, rng)
            index = len(self._directory)
            node = SimNode(index, name, author, config, protocol, _address(index), built)
            self.nodes.append(node)
            self._enter(node)
            added.append(node)
        return added

    def add_peer_stub(
        self,
        name: str,
        *,
        protocol: Protocol = Protocol.GOSSIPSUB_12,
        policy: SignaturePolicy = SignaturePolicy.STRICT_SIGN,
        address: str = "",
    ) -> PeerStub:
        """Add a peer that does nothing but what the test makes it do.

        ``address`` is the multiaddr that others see; it has one of its own by default.
        """
        index = len(self._directory)
        author = self._notary.author(self._key(name), policy)
        stub = PeerStub(self, index, name, author, protocol, address or _address(index))
        self._enter(stub)
        return stub

    def _key(self, name: str) -> PrivateKey:
        secret = hashlib.sha256(f"{self._seed}/identity/{name}".encode()).digest()
        key = PrivateKey(KeyType.ED25519, secret)
        if key.public_key().peer_id() in self._names:
            raise LocalError(f"there is a node called {name!r} already: use another name")
        return key

    def _enter(self, node: SimNode) -> None:
        self._directory[node.peer_id] = node
        self._names[node.peer_id] = node.name
        self._records[node.record] = node.peer_id
        self.hand_in(node, Start())

    def leave(self, node: SimNode) -> None:
        """Go in good order: Stop, then the end of each connection behind what is still queued."""
        self._require_up(node)
        self.hand_in(node, Stop())
        node.up = False
        for channel in list(node.channels.values()):
            self._close(channel)

    def crash(self, node: SimNode) -> None:
        """Vanish: nothing more is written or taken, and peers notice after the detection delay."""
        self._require_up(node)
        node.up = False
        for channel in node.channels.values():
            channel.fall_silent()
            channel.back.receiving = False
            self._clock.at(self.now + self._detection_delay, self._ended, channel, None)
        node.channels.clear()

    def _require_up(self, node: SimNode) -> None:
        if not node.up:
            raise LocalError(f"{node.name} has left or crashed already")

    # Connections

    def set_link(
        self, one: SimNode, other: SimNode, model: LinkModel, back: LinkModel | None = None
    ) -> None:
        """What lies between two nodes from now on: ``model``, and ``back`` for the way back
        where the two directions differ."""
        for sender, receiver, way in ((one, other, model), (other, one, back or model)):
            self._links[sender.peer_id, receiver.peer_id] = way
            channel = sender.channels.get(receiver.peer_id)
            if channel is not None:
                channel.reshape(way)

    def set_bandwidth(
        self, node: SimNode, *, up: float | None = None, down: float | None = None
    ) -> None:
        """What ``node`` sends and receives over all its connections: bytes per second, None for
        no limit. Counts for connections made from now on."""
        node.uplink = None if up is None else Uplink(up)
        node.downlink = None if down is None else Downlink(down)

    def connect(self, dialer: SimNode, listener: SimNode) -> None:
        """Dial. Both are connected one round trip later, if they still can be; at most once."""
        self._require_up(dialer)
        if dialer is listener:
            raise LocalError(f"{dialer.name} cannot dial itself")
        self._dial(dialer, listener)

    def connect_all(
        self, pairs: Iterable[tuple[int, int]], nodes: Sequence[SimNode] | None = None
    ) -> None:
        """Dial along a topology: pairs of indices into ``nodes``, by default all nodes."""
        nodes = self.nodes if nodes is None else nodes
        for dialer, listener in pairs:
            self.connect(nodes[dialer], nodes[listener])

    def disconnect(self, node: SimNode, other: SimNode) -> None:
        """``node`` closes its connection; ``other`` learns it behind what is still queued."""
        channel = node.channels.get(other.peer_id)
        if channel is None:
            raise LocalError(f"{node.name} is not connected to {other.name}")
        self._close(channel)
        self.hand_in(node, PeerDisconnected(other.peer_id))

    def connected(self, one: SimNode, other: SimNode) -> bool:
        """Whether frames get through between the two."""
        channel = one.channels.get(other.peer_id)
        return channel is not None and channel.receiving and channel.back.receiving

    def partition(self, *groups: Iterable[SimNode]) -> None:
        """Cut the network into ``groups`` and, as one more group, everybody else.

        From now on nothing crosses: frames under way vanish and connections are
        dead, which both ends notice after the detection delay. Replaces an
        earlier partition, without mending what that one cut.
        """
        for node in self._directory.values():
            node.group = 0
        for number, group in enumerate(groups, 1):
            for node in group:
                node.group = number
        for node in self._directory.values():
            for channel in node.channels.values():
                if channel.receiver.group == node.group or not channel.receiving:
                    continue
                channel.receiving = False
                self._clock.at(self.now + self._detection_delay, self._ended, channel, None)
                if channel.outbound:
                    pair = (node.index, channel.receiver.index)
                    self._severed[pair] = (node, channel.receiver)

    def heal(self) -> None:
        """End the partition. Who had dialled a connection that was cut dials again."""
        for node in self._directory.values():
            node.group = 0
        severed, self._severed = self._severed, {}
        for dialer, listener in severed.values():
            self._dial(dialer, listener)

    def _dial(self, dialer: SimNode, listener: SimNode) -> None:
        pair = (min(dialer.index, listener.index), max(dialer.index, listener.index))
        if pair in self._dialling or not self._may_connect(dialer, listener):
            return
        self._dialling[pair] = None
        there, back = self._link(dialer, listener), self._link(listener, dialer)
        self._clock.at(self.now + there.latency + back.latency, self._dialled, dialer, listener)

    def _may_connect(self, dialer: SimNode, listener: SimNode) -> bool:
        up = dialer.up and listener.up and dialer.group == listener.group
        return up and dialer is not listener and not self.connected(dialer, listener)

    def _link(self, sender: SimNode, receiver: SimNode) -> LinkModel:
        return self._links.get((sender.peer_id, receiver.peer_id), self._default_link)

    def _dialled(self, dialer: SimNode, listener: SimNode) -> None:
        del self._dialling[min(dialer.index, listener.index), max(dialer.index, listener.index)]
        if not self._may_connect(dialer, listener):
            return
        for node, other in ((dialer, listener), (listener, dialer)):
            stale = node.channels.get(other.peer_id)
            if stale is not None:  # it has not noticed the end of the last connection
                self._ended(stale.back, None)
        seed = f"{self._seed}/link/{next(self._connections)}"
        there = Channel(dialer, listener, True, self._link(dialer, listener), seed + "/there")
        back = Channel(listener, dialer, False, self._link(listener, dialer), seed + "/back")
        there.back, back.back = back, there
        for channel in (there, back):
            pace(channel)
        dialer.channels[listener.peer_id] = there
        listener.channels[dialer.peer_id] = back
        protocol = max(dialer.protocol, listener.protocol, key=PROTOCOLS.index)  # newest first
        for channel in (there, back):
            peer = channel.receiver
            connected = PeerConnected(peer.peer_id, protocol, channel.outbound, (peer.address,))
            self._hand_in(channel.sender, connected)
        for channel in (there, back):
            peer = channel.receiver
            self._hand_in(channel.sender, RecordLearnt(peer.peer_id, peer.record))
        for channel in (there, back):
            self._direct.on_connected(channel)

    def _close(self, channel: Channel) -> None:
        """The sender of ``channel`` ends the connection: it takes nothing more from it."""
        del channel.sender.channels[channel.receiver.peer_id]
        channel.back.receiving = False
        self._direct.on_ended(channel)
        if channel.receiving:  # else a cut is between the two
            self._carrier.end(channel)

    def _arrived(self, channel: Channel, event: FrameReceived | DirectFrame) -> None:
        if not channel.receiving:
            return
        if isinstance(event, DirectFrame):
            self._direct.arrived(channel, event)
        else:
            self._hand_in(channel.receiver, event)

    def _ended(self, channel: Channel, _: None) -> None:
        """The receiver of ``channel`` learns that the connection is over, if it does not know."""
        node, peer = channel.receiver, channel.sender.peer_id
        channel.receiving = False
        if node.channels.get(peer) is channel.back:
            self._direct.on_ended(channel.back)
            channel.back.fall_silent()
            del node.channels[peer]
            self._hand_in(node, PeerDisconnected(peer))

    # Commands

    def subscribe(self, node: SimNode, topic: str) -> None:
        self.hand_in(node, Subscribe(topic))

    def subscribe_all(self, topic: str) -> None:
        """Subscribe every node that is up."""
        for node in self.nodes:
            if node.up:
                self.subscribe(node, topic)

    def unsubscribe(self, node: SimNode, topic: str) -> None:
        self.hand_in(node, Unsubscribe(topic))

    def publish(self, node: SimNode, topic: str, data: bytes) -> Published:
        """Publish a message that ``node`` writes; the outcome tells its id and who gets it."""
        ticket = next(self._tickets)
        self.hand_in(node, Publish(ticket, node.author.write(topic, data), data))
        if not node.published or node.published[-1].ticket != ticket:
            raise LocalError(f"the machine of {node.name} did not answer Publish")
        return node.published[-1]

    def send_direct(self, node: SimNode, peer: PeerId, protocol: str, frame: bytes) -> bool:
        """Send a frame outside of gossip to the ``direct`` handler of a peer, which is dialled
        where need be. False where there is no room for it. Not inside of an event."""
        self._require_up(node)
        other = self._directory.get(peer)
        if other is None:
            raise LocalError(f"there is no node {peer.hex()}")
        return self._direct.send(node, other, DirectFrame(node.peer_id, protocol, frame))

    def at(self, time: float, function: Function, subject: object, argument: object) -> None:
        """Call ``function(subject, argument)`` at ``time``, between two events."""
        self._clock.at(time, function, subject, argument)

    def log(self, node: SimNode, action: msgspec.Struct) -> None:
        """Write the action of another machine of ``node`` to the action log, if there is one."""
        if self._action_log is not None:
            self._action_log.write(self.now, node.name, action, self._names)

    def hand_in(self, node: SimNode, event: Event) -> None:
        """Give a machine any event, now, and carry out what follows from it."""
        self._require_up(node)
        self._hand_in(node, event)

    def _hand_in(self, node: SimNode, event: Event) -> None:
        answers = self._answers
        while True:
            try:
                actions = node.machine.handle(event, self._clock.now)
            except Exception as problem:
                answers.clear()
                what = type(event).__name__
                problem.add_note(f"{node.name} at {self.now} s, {what}, seed {self._seed}")
                raise
            if actions:
                self._perform(node, actions)
            if not answers:
                return
            event = answers.popleft()

    # Time

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def run_until(self, time: float) -> None:
        """Let everything happen that is due until ``time``, inclusive, and stop there."""
        self._clock.run_until(time)

    def _due(self, node: SimNode, event: Event) -> None:
        if node.up:
            self._hand_in(node, event)

    # Actions

    def perform(self, node: SimNode, actions: list[Action]) -> None:
        """Carry out ``actions`` as if the machine of ``node`` had asked for them."""
        self._require_up(node)
        self._perform(node, actions)
        while self._answers:
            self.hand_in(node, self._answers.popleft())

    def _perform(self, node: SimNode, actions: list[Action]) -> None:  # noqa: C901, a flat dispatch
        for action in actions:
            if self._action_log is not None:
                self._action_log.write(self.now, node.name, action, self._names)
            match action:
                case SendMessage():
                    self._send_message(node, action)
                case SendControl():
                    self._send_control(node, action)
                case Deliver():
                    self._deliver(node, action)
                case CheckSignature():
                    self._check_signature(node, action)
                case Validate():
                    self._validate(node, action)
                case SetTimer():
                    self._clock.at(action.at, self._due, node, TimerFired(action.timer))
                case CancelQueued():
                    channel = node.channels.get(action.peer)
                    if channel is not None:
                        self._carrier.cancel(channel, action.message_ids)
                case Connect():
                    self._on_connect(node, action)
                case Disconnect():
                    channel = node.channels.get(action.peer)
                    if channel is not None:
                        self._close(channel)
                        self._answers.append(PeerDisconnected(action.peer))
                    self._keep(node, action)
                case Published():
                    node.published.append(action)
                case (
                    PeerJoined()
                    | PeerLeft()
                    | PeerSubscribed()
                    | Grafted()
                    | Pruned()
                    | Rejected()
                    | Dropped()
                    | ThresholdCrossed()
                ):
                    self._keep(node, action)
                case _:
                    assert_never(action)

    def _keep(self, node: SimNode, report: Report) -> None:
        if self._keep_reports:
            node.reports.append((self.now, report))

    def _send_message(self, node: SimNode, action: SendMessage) -> None:
        event = FrameReceived(node.peer_id, action.frame)
        for peer in action.peers:
            channel = node.channels.get(peer)
            if channel is None:
                self._undeliverable += 1
            elif not self._carrier.send_message(channel, action.message_id, event, action.lane):
                self._dropped += 1
                self._answers.append(FramesDropped(peer, 1))

    def _send_control(self, node: SimNode, action: SendControl) -> None:
        channel = node.channels.get(action.peer)
        if channel is None:
            self._undeliverable += 1
        elif not self._carrier.send_control(channel, FrameReceived(node.peer_id, action.frame)):
            self._dropped += 1
            self._answers.append(FramesDropped(action.peer, 1, (action.frame,)))

    def _deliver(self, node: SimNode, action: Deliver) -> None:
        self._deliveries += 1
        delivery = Delivery(self.now, action.message_id, action.payload, action.source)
        topic = action.message.topic
        if topic in node.delivered:
            node.delivered[topic].append(delivery)
        else:
            node.delivered[topic] = [delivery]

    def _check_signature(self, node: SimNode, action: CheckSignature) -> None:
        answer = SignaturesChecked(((action.ticket, self._notary.valid(action.message)),))
        if not self._signature_price:
            self._answers.append(answer)
            return
        done = max(self.now, node.verifier_free_at) + self._signature_price
        node.verifier_free_at = done
        self._clock.at(done, self._due, node, answer)

    def _validate(self, node: SimNode, action: Validate) -> None:
        message = action.message
        judge = node.judges.get(message.topic)
        if judge is not None:
            judge(action)
            return
        validator = node.validators.get(message.topic)
        if validator is None:
            self._answers.append(Validated(action.ticket, ACCEPTED, message.data))
            return
        validation = validator.function(message.topic, message.data)
        answer = Validated(action.ticket, validation, message.data)
        if not validator.delay:
            self._answers.append(answer)
            return
        validator.free_at = max(self.now, validator.free_at) + validator.delay
        self._clock.at(validator.free_at, self._due, node, answer)

    def _on_connect(self, node: SimNode, action: Connect) -> None:
        """Dial as the driver would: any node is found by its id, a record must be the peer's."""
        if action.record and self._records.get(action.record) != action.peer:
            self._refused_records += 1
            return
        peer = self._directory.get(action.peer)
        if peer is not None:
            self._dial(node, peer)

    def statistics(self) -> SimStatistics:
        return SimStatistics(
            now=self.now,
            events=self._clock.happened,
            frames=self._carrier.frames,
            frame_bytes=self._carrier.frame_bytes,
            lost=self._carrier.lost,
            dropped=self._dropped,
            cancelled=self._carrier.cancelled,
            undeliverable=self._undeliverable,
            deliveries=self._deliveries,
            refused_records=self._refused_records,
        )


def _address(index: int) -> str:
    high, low = divmod(index, 256)
    return f"/ip4/10.{high // 256}.{high % 256}.{low}/tcp/4001"
