"""Lazy gossip: IHAVE, IWANT, IDONTWANT and the promises they make.

Sources: gossipsub-v1.0.md ("Gossip"), v1.1 ("Broken Promises", "Spam
Protection Measures"), v1.2 (IDONTWANT). What a peer may make us remember, ask
for or send is bounded per heartbeat; the limits are go-libp2p-pubsub's.
"""

from collections.abc import Iterable

from bruit.node.gossip import drops
from bruit.node.gossip.actions import CancelQueued, Lane, SendMessage
from bruit.node.gossip.announcing import Announcing
from bruit.node.gossip.caches import MessageCache, SeenCache
from bruit.node.gossip.chance import some_of
from bruit.node.gossip.context import Context
from bruit.node.gossip.mesh import Mesh
from bruit.node.gossip.params import MAX_MESSAGE_ID, MAX_TRACKED_PER_PEER
from bruit.node.gossip.peers import Peer
from bruit.node.gossip.rpc_pb2 import IDontWant, IHave, IWant
from bruit.node.gossip.wire import WRAPPING, ihave_entries, message_frame
from bruit.topics.keys import PeerId


class Promises:
    """One message per IWANT that the peer must deliver in time, or be penalised."""

    def __init__(self, followup: float) -> None:
        self._followup = followup
        self._due: dict[bytes, dict[PeerId, float]] = {}

    def add(self, peer: PeerId, message_id: bytes, now: float) -> None:
        self._due.setdefault(message_id, {}).setdefault(peer, now + self._followup)

    def fulfil(self, message_id: bytes) -> None:
        """The message came, from whomever: nobody owes it any more."""
        self._due.pop(message_id, None)

    def excuse(self, peer: PeerId) -> None:
        """We could not take what the peer sent: it owes nothing."""
        for owed in self._due.values():
            owed.pop(peer, None)

    def broken(self, now: float) -> dict[PeerId, int]:
        """Who broke how many promises by now; they are forgotten."""
        counts: dict[PeerId, int] = {}
        for message_id in list(self._due):
            owed = self._due[message_id]
            for peer in [peer for peer, due in owed.items() if due < now]:
                counts[peer] = counts.get(peer, 0) + 1
                del owed[peer]
            if not owed:
                del self._due[message_id]
        return counts

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))


class LazyGossip:
    def __init__(self, context: Context, mesh: Mesh, seen: SeenCache) -> None:
        self._context = context
        self._mesh = mesh
        self._seen = seen
        params = context.params
        self.cache = MessageCache(params.history_length, params.history_gossip, params.cache_bytes)
        self.promises = Promises(params.iwant_followup)
        self.announcing = Announcing(context, seen)

    def has(self, topic: str, message_id: bytes, raw: bytes) -> None:
        """A message is here, and may be asked for."""
        self.cache_of(topic).put(message_id, topic, raw)

    def cache_of(self, topic: str) -> MessageCache:
        announced = self._context.config.topic(topic).announced
        return self.cache if announced is None else self.announcing.cache

    # From peers

    def on_ihave(self, peer: Peer, entries: Iterable[IHave], now: float) -> None:
        context, params = self._context, self._context.params
        if not context.scores.reaches(peer.id, context.thresholds.gossip, now):
            context.drop(drops.IHAVE_LOW_SCORE, peer.id)
            return
        pushed: list[IHave] = []  # of topics whose messages come by themselves, mostly
        for entry in entries:
            if context.config.topic(entry.topic).announced is None:
                pushed.append(entry)
            elif self._mesh.joined(entry.topic):
                self.announcing.on_ihave(peer, entry.topic, list(entry.message_ids), now)
        if not pushed:
            return
        peer.ihaves += 1
        if peer.ihaves > params.max_ihave_messages:
            context.drop(drops.IHAVE_FLOOD, peer.id)
            return
        allowance = params.max_ihave_length - peer.ids_asked
        if allowance <= 0:
            context.drop(drops.IHAVE_LENGTH, peer.id)
            return
        wanted: dict[bytes, None] = {}
        largest = 0  # bytes
        left = params.max_ihave_length  # ids to look at, over all entries
        for entry in pushed:
            if not self._mesh.joined(entry.topic):
                continue
            for message_id in entry.message_ids[: max(left, 0)]:
                if message_id not in self._seen and 0 < len(message_id) <= MAX_MESSAGE_ID:
                    wanted[message_id] = None
            left -= len(entry.message_ids)
            largest = max(largest, context.config.topic(entry.topic).max_message_size + WRAPPING)
        if left < 0:
            context.count(drops.IHAVE_LENGTH, -left)
        if not wanted:
            return
        asked = list(wanted)
        context.rng.shuffle(asked)
        if len(asked) > allowance:
            context.count(drops.IHAVE_LENGTH, len(asked) - allowance)
            del asked[allowance:]
        peer.ids_asked += len(asked)
        context.count("IWANT ids sent", len(asked))
        self.promises.add(peer.id, asked[0], now)  # already in random order
        batch = context.tell(peer.id)
        batch.iwant += asked
        batch.largest_wanted = max(batch.largest_wanted, largest)

    def on_iwant(self, peer: Peer, entries: Iterable[IWant], now: float) -> None:
        context, params = self._context, self._context.params
        if not context.scores.reaches(peer.id, context.thresholds.gossip, now):
            context.drop(drops.IWANT_LOW_SCORE, peer.id)
            return
        asked: dict[bytes, None] = {}
        for entry in entries:
            left = params.max_ihave_length - peer.ids_wanted
            asked.update(dict.fromkeys(entry.message_ids[: max(left, 0)]))
            peer.ids_wanted += len(entry.message_ids)
            if len(entry.message_ids) > left:
                context.count(drops.IWANT_LENGTH, len(entry.message_ids) - max(left, 0))
        for message_id in asked:
            if message_id in peer.unwanted:
                continue
            raw, times = self.cache.ask(message_id, peer.id)
            if raw is None:
                raw, times = self.announcing.cache.ask(message_id, peer.id)
            if raw is None:
                continue
            if times > params.gossip_retransmission:
                context.count(drops.IWANT_REPEATED)
                continue
            context.count("IWANT messages served")
            frame = message_frame(raw)
            context.emit(SendMessage((peer.id,), message_id, frame, Lane.FORWARD))

    def on_idontwant(self, peer: Peer, entries: Iterable[IDontWant]) -> None:
        context, params = self._context, self._context.params
        peer.idontwants += 1
        if peer.idontwants > params.max_idontwant_messages:
            context.drop(drops.IDONTWANT_FLOOD, peer.id)
            return
        ids = [message_id for entry in entries for message_id in entry.message_ids]
        if len(ids) > params.max_idontwant_length:
            context.count(drops.IDONTWANT_LENGTH, len(ids) - params.max_idontwant_length)
            del ids[params.max_idontwant_length :]
        taken: list[bytes] = []
        for message_id in ids:
            room = len(peer.unwanted) < MAX_TRACKED_PER_PEER or message_id in peer.unwanted
            if room and len(message_id) <= MAX_MESSAGE_ID:
                peer.unwanted[message_id] = context.ticks + params.idontwant_ttl
                taken.append(message_id)
        if taken:
            context.emit(CancelQueued(peer.id, tuple(taken)))

    # To peers

    def say_unwanted(self, topic: str, message_id: bytes, size: int, source: PeerId) -> None:
        """Tell the mesh that a large message is here already (v1.2), but not who sent it."""
        context = self._context
        if size < context.params.idontwant_threshold:
            return
        if context.config.topic(topic).announced is not None:
            return  # that we announce it says the same
        for member in self._mesh.members(topic):
            peer = context.peers.get(member)
            if peer is not None and member != source and peer.protocol.has_idontwant:
                context.tell(member).idontwant.append(message_id)
                context.count("IDONTWANT ids sent")

    def heartbeat_counters(self, now: float) -> None:
        """Reset the per-heartbeat limits, forget old IDONTWANTs, charge broken promises."""
        context = self._context
        for peer in context.peers:
            peer.ihaves = peer.ids_asked = peer.ids_wanted = peer.idontwants = 0
            peer.ids_announced = 0
            if peer.unwanted:
                for message_id in [m for m, end in peer.unwanted.items() if end <= context.ticks]:
                    del peer.unwanted[message_id]
        for debtor, count in self.promises.broken(now).items():
            context.count("broken promises", count)
            context.scores.misbehaved(debtor, count, "broken promise", now)
        self.announcing.heartbeat(now)

    def advertise(self, now: float) -> None:
        """IHAVE for each topic of mesh and fanout, to peers outside of it; then shift the cache.

        On announced topics to those, too, that have joined the mesh since the last time.
        """
        context, threshold = self._context, self._context.thresholds.gossip
        deaf = {  # one look at each peer, not one for each of its topics
            peer.id: None
            for peer in context.peers
            if not peer.protocol.has_mesh
            or peer.id in context.direct
            or not context.scores.reaches(peer.id, threshold, now)
        }
        meshes, fanouts = self._mesh.snapshot()
        newcomers = self._mesh.newcomers()
        ids = self.cache.gossip_ids() | self.announcing.cache.gossip_ids()
        for topic, members in (*meshes.items(), *fanouts.items()):
            if topic in ids:
                told = dict.fromkeys(members)
                if context.config.topic(topic).announced is not None:
                    for peer in newcomers.get(topic, ()):  # were not told of what came before
                        told.pop(peer, None)
                self._advertise(topic, ids[topic], {**deaf, **told})
        self.cache.shift()
        self.announcing.cache.shift()

    def _advertise(self, topic: str, ids: list[bytes], excluded: dict[PeerId, None]) -> None:
        context, params = self._context, self._context.params
        subscribed = context.peers.subscribed(topic)
        eligible = len(subscribed) - sum(
            context.peers.is_subscribed(peer, topic) for peer in excluded
        )
        target = max(params.d_lazy, int(params.gossip_factor * eligible))
        chosen = some_of(subscribed, target, context.rng, lambda peer: peer.id not in excluded)
        context.rng.shuffle(ids)
        said = ids[: params.max_ihave_length]
        entries = ihave_entries(topic, said, context.max_control)
        for peer in chosen:
            if len(ids) > len(said):
                # Another subset for each peer, so that together they know more.
                other = context.rng.sample(ids, len(said))
                entries = ihave_entries(topic, other, context.max_control)
            context.tell_ihave(peer.id, entries)
        context.count("IHAVE ids sent", len(said) * len(chosen))
