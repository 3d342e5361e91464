"""How a producer gets attested chunks into clusters, and acknowledgements back.

A chunk is sent to one member of the cluster that the selector chose. When its acknowledgement does
not come in time, or is forged, it goes through another of its options. That a member cannot be
reached is its own fault first: another one of the same cluster is asked before (MEMBERS_TRIED).
Nothing is sent that would be a replay on arrival.

An acknowledgement names neither the channel nor the time of what it acknowledges. Where several
broadcasts of one message id are under way, it counts for the one that began first and lacks it;
each counts once.
"""

from collections import deque
from collections.abc import Iterator
from random import Random

from bruit.node.relay.actions import (
    Broadcasted,
    BroadcastRefused,
    CheckAcknowledgement,
    Choose,
    ProducerAction,
    SetTimer,
    SubmitChunk,
)
from bruit.node.relay.broadcast import BroadcastUnderWay, ChunkUnderWay, Sent
from bruit.node.relay.directory import Directory, peer_of
from bruit.node.relay.events import (
    AcknowledgementChecked,
    AcknowledgementReceived,
    Chosen,
    ChunksHeard,
    Timer,
)
from bruit.node.relay.listening import Listening
from bruit.node.relay.params import RelayParams
from bruit.node.relay.proof import given_in_time
from bruit.node.relay.quality import Quality
from bruit.node.relay.wire import Acknowledgement, decode_acknowledgement
from bruit.plugins.hookspecs import Selection
from bruit.plugins.marketplace import Marketplace, Member
from bruit.topics.errors import RemoteError
from bruit.topics.keys import PeerId

MEMBERS_TRIED = 2  # of one cluster for one chunk, where members cannot be reached; guess

_ACKNOWLEDGEMENT = "relay acknowledgement"  # timers
_DEADLINE = "relay deadline"
_TOO_SLOW = (
    "signing and choosing clusters took longer than the tolerable latency, so that members would"
    " refuse the chunks: try again when the node has less to do"
)

_Asked = tuple[tuple[int, tuple[int, ...]], ...]  # chunk and the clusters it may go through


class Submissions:
    """All broadcasts of a producer from the choice of clusters on.

    ``tickets``, ``under_way`` and ``actions`` are the producer's own. `settle` ends every event.
    """

    def __init__(
        self,
        params: RelayParams,
        address: bytes,
        rng: Random,
        tickets: Iterator[int],
        under_way: dict[int, BroadcastUnderWay],
        actions: list[ProducerAction],
    ) -> None:
        self._params = params
        self._address = address
        self._rng = rng
        self._tickets = tickets
        self._under_way = under_way
        self._actions = actions
        self._directory = Directory(Marketplace())
        self._quality = Quality()
        self._listening = Listening(params, self._quality, tickets, actions)
        self._choosing: dict[int, tuple[BroadcastUnderWay, _Asked]] = {}  # by ticket
        self._checking: dict[
            int, tuple[BroadcastUnderWay, Acknowledgement, PeerId, float]
        ] = {}  # by ticket; the time is that of arrival
        self._timers: dict[int, BroadcastUnderWay] = {}  # by epoch
        self._peers: dict[bytes, PeerId] = {}  # of the directory's members, as asked for
        self._loads: dict[PeerId, int] = {}  # chunks a member has and has not acknowledged, ≥ 1
        self._queues: dict[int, deque[tuple[BroadcastUnderWay, ChunkUnderWay]]] = {}  # by cluster
        # Within one event:
        self._volleys: dict[int, int] = {}  # broadcast → timer of all its chunks sent now
        self._freed: dict[int, None] = {}  # clusters with a member that has room again
        self._failed: dict[int, list[int]] = {}  # broadcast → chunks that must go another way

    def on_directory(self, directory: Directory) -> None:
        self._directory = directory
        self._peers.clear()
        self._quality.retain(directory)
        self._freed.update(dict.fromkeys(self._queues))

    def on_scores(self, scores: tuple[tuple[bytes, float], ...]) -> None:
        self._quality.scored(scores, self._directory)

    def on_heard(self, event: ChunksHeard, now: float) -> None:
        self._listening.on_heard(event, self._directory, now)

    def settle(self, now: float) -> None:
        """Do what follows from all that an event changed."""
        for cluster in self._freed:
            self._serve_queue(cluster, now)
        for number, indexes in self._failed.items():
            self._choose_further(self._under_way[number], indexes, now)
        self._freed.clear()
        self._failed.clear()
        self._volleys.clear()

    # --- through which cluster ---

    def choose_first(self, broadcast: BroadcastUnderWay, now: float) -> None:
        """Ask the selector about all chunks. There must be a cluster with members."""
        self._choose(broadcast, list(range(broadcast.channel.num_chunks)), now)

    def _choose_further(self, broadcast: BroadcastUnderWay, indexes: list[int], now: float) -> None:
        """Ask about chunks whose cluster failed; those without another way are given up."""
        left = []
        for index in indexes:
            chunk = broadcast.chunks[index]
            if now < broadcast.deadline and self._options(broadcast, index):
                left.append(index)
            else:
                self._give_up(broadcast, chunk, now)
        if left:
            self._choose(broadcast, left, now)

    def _options(self, broadcast: BroadcastUnderWay, index: int) -> tuple[int, ...]:
        """Clusters that a chunk may still go through, in protocol order."""
        count = self._params.cluster_options
        tried = broadcast.chunks[index].tried() if broadcast.chunks else ()
        if len(tried) >= count:  # more would be possible only after a change of the marketplace
            return ()
        options = self._directory.options(broadcast.message_id, index, count)
        return tuple(number for number in options if number not in tried)

    def _choose(self, broadcast: BroadcastUnderWay, indexes: list[int], now: float) -> None:
        asked = tuple((index, self._options(broadcast, index)) for index in indexes)

        selections = tuple(
            Selection(
                self._address,
                broadcast.message_id,
                index,
                broadcast.frame_sizes[index],
                tuple(
                    self._quality.option(cluster, now)
                    for cluster in map(self._directory.cluster, clusters)
                    if cluster is not None
                ),
            )
            for index, clusters in asked
        )
        ticket = next(self._tickets)
        self._choosing[ticket] = (broadcast, asked)
        self._actions.append(Choose(ticket, selections))

    def on_chosen(self, event: Chosen, now: float) -> None:
        broadcast, asked = self._choosing.pop(event.ticket, (None, ()))
        if broadcast is None or broadcast.number not in self._under_way:
            return
        # A selector may answer anything: what is no option becomes the first one.
        chosen = {
            index: cluster if cluster in options else options[0]
            for (index, options), cluster in zip(asked, event.clusters, strict=True)
        }
        if not broadcast.chunks:
            broadcast.clusters = chosen
            self.start_if_ready(broadcast, now)
            return
        for index, cluster in chosen.items():
            if not broadcast.chunks[index].done:
                self._submit(broadcast, broadcast.chunks[index], cluster, now)

    # --- to which member ---

    def start_if_ready(self, broadcast: BroadcastUnderWay, now: float) -> None:
        """Send all chunks, once they are signed and chosen for."""
        if not broadcast.signatures or not broadcast.clusters:
            return
        if now >= broadcast.deadline:
            del self._under_way[broadcast.number]
            self._actions.append(BroadcastRefused(broadcast.ticket, _TOO_SLOW))
            return
        broadcast.start()
        self._set_timer(_DEADLINE, broadcast, broadcast.deadline)
        for chunk in broadcast.chunks:
            self._submit(broadcast, chunk, broadcast.clusters[chunk.index], now)

    def _submit(
        self, broadcast: BroadcastUnderWay, chunk: ChunkUnderWay, cluster: int, now: float
    ) -> None:
        """Send a chunk to a member, or queue it until one has room."""
        members = self._untried(chunk, cluster)
        if not members or now >= broadcast.deadline:
            self._failed.setdefault(broadcast.number, []).append(chunk.index)
            return
        free = [member for member in members if self._has_room(member)]
        if not free:
            chunk.queued_for = cluster
            self._queues.setdefault(cluster, deque()).append((broadcast, chunk))
            return
        member = self._quality.in_turn(free, self._rng, now)[0]
        peer = self._peer(member)
        chunk.peer = peer
        chunk.sent[peer] = Sent(cluster, member.address, now)
        chunk.timer = self._volley(broadcast, now)
        self._loads[peer] = self._loads.get(peer, 0) + 1
        self._actions.append(SubmitChunk(member, chunk.frame))

    def _untried(self, chunk: ChunkUnderWay, cluster: int) -> list[Member]:
        """Members of a cluster that have not been sent a chunk."""
        found = self._directory.cluster(cluster)
        members = found.members if found else ()
        return [member for member in members if self._peer(member) not in chunk.sent]

    def _has_room(self, member: Member) -> bool:
        return self._loads.get(self._peer(member), 0) < self._params.chunks_per_peer

    def _peer(self, member: Member) -> PeerId:
        if member.address not in self._peers:
            self._peers[member.address] = peer_of(member)
        return self._peers[member.address]

    def _volley(self, broadcast: BroadcastUnderWay, now: float) -> int:
        """The timer for what is sent within this event."""
        if broadcast.number not in self._volleys:
            # A timestamp ahead of the clock is waited for by members.
            at = max(now, broadcast.timestamp) + self._params.acknowledgement_timeout
            self._volleys[broadcast.number] = self._set_timer(_ACKNOWLEDGEMENT, broadcast, at)
        return self._volleys[broadcast.number]

    def _set_timer(self, name: str, broadcast: BroadcastUnderWay, at: float) -> int:
        epoch = next(self._tickets)
        self._timers[epoch] = broadcast
        broadcast.timers[epoch] = None
        self._actions.append(SetTimer(Timer(name, epoch), at))
        return epoch

    def _serve_queue(self, cluster: int, now: float) -> None:
        """Send what waits for a cluster, as far as its members have room."""
        found = self._directory.cluster(cluster)
        members = found.members if found else ()
        queue = self._queues.pop(cluster, deque())
        for _ in range(len(queue)):
            if members and not any(self._has_room(member) for member in members):
                break
            broadcast, chunk = queue.popleft()
            if chunk.queued_for == cluster:
                chunk.queued_for = None
                self._submit(broadcast, chunk, cluster, now)
        if queue:
            self._queues.setdefault(cluster, deque()).extend(queue)

    # --- what comes back ---

    def on_acknowledgement(self, event: AcknowledgementReceived, now: float) -> None:
        try:
            given = decode_acknowledgement(event.frame)
        except RemoteError:
            return
        if given.producer != self._address:
            return
        for broadcast in self._under_way.values():
            if self._may_count(broadcast, given, event.peer):
                # A peer is believed or not at its first attempt: no floods of forgeries.
                broadcast.chunks[given.chunk].checked[event.peer] = None
                ticket = next(self._tickets)
                self._checking[ticket] = (broadcast, given, event.peer, now)
                self._actions.append(CheckAcknowledgement(ticket, given))
                return

    def _may_count(
        self, broadcast: BroadcastUnderWay, given: Acknowledgement, peer: PeerId
    ) -> bool:
        """Whether all is as it must be but the signature, which is not yet known."""
        if given.message_id != broadcast.message_id or given.chunk >= len(broadcast.chunks):
            return False
        chunk = broadcast.chunks[given.chunk]
        sent = chunk.sent.get(peer)
        return (
            not chunk.acknowledgement
            and sent is not None
            and sent.cluster == given.cluster
            and peer not in chunk.checked
            and given_in_time(given, broadcast.timestamp, self._params)
        )

    def on_checked(self, event: AcknowledgementChecked, now: float) -> None:
        if event.ticket not in self._checking:
            return
        broadcast, given, peer, received_at = self._checking.pop(event.ticket)
        if broadcast.number not in self._under_way:
            return
        chunk = broadcast.chunks[given.chunk]
        if chunk.acknowledgement:
            return
        sent = chunk.sent[peer]
        if self._directory.cluster_of(event.signer) != given.cluster:
            if chunk.peer == peer:
                self._fail(broadcast, chunk, now)
            return
        latency = received_at - max(sent.at, broadcast.timestamp)
        broadcast.heard_at = received_at
        self._quality.acknowledged(sent.cluster, sent.member, max(0.0, latency), now)
        self._release(chunk)
        chunk.acknowledgement = given.encode()
        if chunk.given_up:
            chunk.given_up = False  # a late one
        else:
            self._one_done(broadcast, now)

    def on_unreachable(self, peer: PeerId, now: float) -> None:
        for broadcast in self._under_way.values():
            for chunk in broadcast.chunks:
                if chunk.peer != peer:
                    continue
                sent = chunk.sent[peer]
                self._quality.member_failed(sent.member, now)
                others = self._untried(chunk, sent.cluster)
                if others and chunk.members_tried(sent.cluster) < MEMBERS_TRIED:
                    self._release(chunk)
                    self._submit(broadcast, chunk, sent.cluster, now)
                else:
                    self._fail(broadcast, chunk, now)

    def on_timer(self, timer: Timer, now: float) -> None:
        broadcast = self._timers.pop(timer.epoch, None)
        if broadcast is None:
            self._listening.on_timer(timer)
            return
        del broadcast.timers[timer.epoch]
        until = broadcast.heard_at + self._params.acknowledgement_timeout
        if timer.name == _ACKNOWLEDGEMENT and now < min(until, broadcast.deadline):
            # Acknowledgements still come: what is missing may wait for the uplink yet.
            waiting = [chunk for chunk in broadcast.chunks if chunk.timer == timer.epoch]
            epoch = self._set_timer(_ACKNOWLEDGEMENT, broadcast, until)
            for chunk in waiting:
                chunk.timer = epoch
            return
        for chunk in broadcast.chunks:
            if timer.name == _DEADLINE and chunk.queued_for is not None:
                self._give_up(broadcast, chunk, now)
            elif chunk.peer is not None and chunk.timer == timer.epoch:
                self._fail(broadcast, chunk, now)

    def _fail(self, broadcast: BroadcastUnderWay, chunk: ChunkUnderWay, now: float) -> None:
        """The member that has a chunk will not acknowledge it: it must go another way."""
        if chunk.peer is not None:
            sent = chunk.sent[chunk.peer]
            self._quality.failed(sent.cluster, now)
            self._quality.member_failed(sent.member, now)
        self._release(chunk)
        self._failed.setdefault(broadcast.number, []).append(chunk.index)

    def _release(self, chunk: ChunkUnderWay) -> None:
        """Nothing is awaited for a chunk any more."""
        chunk.queued_for = None
        if chunk.peer is None:
            return
        self._freed[chunk.sent[chunk.peer].cluster] = None
        load = self._loads.pop(chunk.peer) - 1
        if load:
            self._loads[chunk.peer] = load
        chunk.peer = None

    def _give_up(self, broadcast: BroadcastUnderWay, chunk: ChunkUnderWay, now: float) -> None:
        if chunk.done:
            return
        chunk.given_up = True
        chunk.queued_for = None
        self._one_done(broadcast, now)

    def _one_done(self, broadcast: BroadcastUnderWay, now: float) -> None:
        broadcast.open -= 1
        if broadcast.open:
            return
        del self._under_way[broadcast.number]
        for epoch in broadcast.timers:
            del self._timers[epoch]
        self._actions.append(
            Broadcasted(broadcast.ticket, broadcast.proof(self._address, self._params))
        )
        self._listening.ended(broadcast, now)
