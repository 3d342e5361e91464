"""Meshes and fanout: who gets whole messages (gossipsub-v1.0.md and v1.1.md).

Theory of operation. For every topic we are subscribed to there is a mesh: peers
that we forward to and that forward to us. GRAFT asks a peer in, PRUNE puts it
out and opens a backoff on both sides. Each heartbeat restores the degree: a
peer whose score is below the mesh threshold (0 in the specification) goes;
below ``d_lo`` the mesh grows to ``d``; from ``d_hi`` on it shrinks to ``d``,
keeping the best scorers and enough outbound connections; a mesh whose median
score is poor takes in better peers. For topics that we only publish to there is
a fanout, which needs no consent of its peers.

Where the specification and go-libp2p-pubsub differ, go is followed (``≥ d_hi``),
except that a mesh below ``d_lo`` takes in a new subscriber at once instead of
at the next heartbeat, as rust and js do.
"""

from collections.abc import Callable, Iterable

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Connect, Grafted, PeerSubscribed, Pruned
from bruit.node.gossip.backoff import Backoffs
from bruit.node.gossip.chance import some_of
from bruit.node.gossip.context import Context
from bruit.node.gossip.params import (
    MAX_FANOUT_TOPICS,
    MAX_OFFERED,
    MAX_PEER_RECORD,
    MAX_PRUNE_PEERS,
)
from bruit.node.gossip.peers import Peer
from bruit.node.gossip.rpc_pb2 import Graft
from bruit.node.gossip.rpc_pb2 import Prune as PruneEntry
from bruit.topics.keys import PeerId, is_peer_id

_BACKOFF_SWEEP_TICKS = 15  # go: heartbeats between sweeps of the backoff table


class Mesh:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._mesh: dict[str, dict[PeerId, None]] = {}
        self._fanout: dict[str, dict[PeerId, None]] = {}
        self._newcomers: dict[str, dict[PeerId, None]] = {}
        self._published: dict[str, float] = {}  # fanout topic → time of the last publication
        self.backoffs = Backoffs(context.params.backoff_slack)

    # What we know

    def newcomers(self) -> dict[str, dict[PeerId, None]]:
        """Who has joined which mesh since this was last asked; may have left it again."""
        newcomers, self._newcomers = self._newcomers, {}
        return newcomers

    def topics(self) -> list[str]:
        """The topics we are subscribed to."""
        return list(self._mesh)

    def joined(self, topic: str) -> bool:
        return topic in self._mesh

    def members(self, topic: str) -> Iterable[PeerId]:
        return self._mesh.get(topic, ())

    def snapshot(self) -> tuple[dict[str, tuple[PeerId, ...]], dict[str, tuple[PeerId, ...]]]:
        """Mesh and fanout by topic."""
        return (
            {topic: tuple(peers) for topic, peers in self._mesh.items()},
            {topic: tuple(peers) for topic, peers in self._fanout.items()},
        )

    def fanout_topics(self) -> list[str]:
        return list(self._fanout)

    # What the application does

    def join(self, topic: str, now: float) -> None:
        """Start a mesh, with the fanout's peers first."""
        context, fanout = self._context, self._fanout.pop(topic, {})
        self._published.pop(topic, None)
        self._mesh[topic] = {}
        for peer in fanout:
            known = context.peers.get(peer)
            if known is not None and self._may_graft(known, topic, now):
                self._graft(known, topic, now, by_peer=False)
        self._fill(topic, context.params.d - len(self._mesh[topic]), now)

    def leave(self, topic: str, now: float) -> None:
        """Dissolve a mesh: every member is pruned with the shorter backoff."""
        backoff = self._context.params.unsubscribe_backoff
        for peer in list(self._mesh[topic]):
            self._prune(peer, topic, backoff, "left topic", now)
        del self._mesh[topic]

    def fanout_for(self, topic: str, now: float) -> Iterable[PeerId]:
        """The peers to publish to on a topic that we are not subscribed to."""
        params, thresholds = self._context.params, self._context.thresholds
        if not self._fanout.get(topic):
            chosen = self._choose(
                topic,
                params.d,
                lambda peer: (
                    peer.id not in self._context.direct
                    and self._score(peer.id, now) >= thresholds.publish
                ),
            )
            if not chosen:
                return ()
            self._fanout[topic] = {peer.id: None for peer in chosen}
            if len(self._fanout) > MAX_FANOUT_TOPICS:
                quietest = min(self._published, key=self._published.__getitem__)
                self._drop_fanout(quietest)
        self._published[topic] = now
        return self._fanout[topic]

    # What peers do

    def on_subscribed(self, peer: Peer, topic: str, now: float) -> None:
        members = self._mesh.get(topic)
        if members is None or len(members) >= self._context.params.d_lo:
            return
        if peer.id not in members and self._may_graft(peer, topic, now):
            self._graft(peer, topic, now, by_peer=False)

    def on_unsubscribed(self, peer: Peer, topic: str, now: float) -> None:
        self._fanout.get(topic, {}).pop(peer.id, None)
        if peer.id in self._mesh.get(topic, ()):
            self._remove(peer.id, topic, "unsubscribed", now)

    def on_disconnected(self, peer: PeerId) -> None:
        """Forget the peer. What it costs its score is the scores' own business."""
        for members in (*self._mesh.values(), *self._fanout.values()):
            members.pop(peer, None)

    def on_graft(self, peer: Peer, grafts: Iterable[Graft], now: float) -> None:
        context, params = self._context, self._context.params
        refused: dict[str, None] = {}
        exchange = True  # one decision per frame, as in go: any abuse withholds our peers
        for graft in grafts:
            topic = graft.topic
            members = self._mesh.get(topic)
            if members is None:
                exchange = False  # an answer would tell a prober who our peers are
            elif peer.id in members:
                continue
            elif peer.id in context.direct:
                exchange = False
                refused[topic] = None
            elif now < (until := self.backoffs.until(topic, peer.id)):
                exchange = False
                early = now < until + params.graft_flood_threshold - params.prune_backoff
                context.scores.misbehaved(peer.id, 2 if early else 1, "GRAFT in backoff", now)
                context.count("GRAFT in backoff")
                refused[topic] = None
            elif not context.scores.reaches(peer.id, context.thresholds.mesh, now):
                exchange = False
                refused[topic] = None
            elif self._is_full(topic, peer) or not self._counts_as_subscribed(peer, topic):
                refused[topic] = None
            else:
                self._graft(peer, topic, now, by_peer=True)
        for topic in refused:
            if peer.id not in context.direct:
                self.backoffs.add(topic, peer.id, params.prune_backoff, now)
            offered = self._peers_to_offer(peer, topic, now) if exchange else {}
            context.tell_prune(peer, topic, params.prune_backoff, offered)

    def _is_full(self, topic: str, peer: Peer) -> bool:
        return len(self._mesh[topic]) >= self._context.params.d_hi and not peer.outbound

    def _counts_as_subscribed(self, peer: Peer, topic: str) -> bool:
        """Who grafts us is subscribed, though its word for it be lost. False if to too much."""
        if topic in peer.topics:
            return True
        if not self._context.peers.subscribe(peer, topic):
            self._context.drop(drops.TOO_MANY_TOPICS, peer.id)
            return False
        self._context.emit(PeerSubscribed(peer.id, topic, True))
        return True

    def on_prune(self, peer: Peer, prunes: Iterable[PruneEntry], now: float) -> None:
        params = self._context.params
        offered: dict[PeerId, bytes] = {}
        for prune in prunes:
            topic = prune.topic
            if topic not in self._mesh:
                continue
            if peer.id in self._mesh[topic]:
                self._remove(peer.id, topic, "by peer", now)
            self.backoffs.add(topic, peer.id, prune.backoff or params.prune_backoff, now)
            offered.update((info.peer_id, info.signed_peer_record) for info in prune.peers)
        if offered:
            self._on_peer_exchange(peer, offered, now)

    def _on_peer_exchange(self, peer: Peer, offered: dict[PeerId, bytes], now: float) -> None:
        """Dial peers that one frame offered (peer → signed record), a limited number of them."""
        context = self._context
        if not context.params.peer_exchange:
            return
        if not context.scores.reaches(peer.id, context.thresholds.accept_px, now):
            context.drop(drops.PX_LOW_SCORE, peer.id)
            return
        candidates = list(offered.items())
        if len(candidates) > MAX_PRUNE_PEERS:
            candidates = context.rng.sample(candidates, MAX_PRUNE_PEERS)
        for candidate, record in candidates:
            stranger = candidate not in context.peers and candidate != context.own_id
            if stranger and is_peer_id(candidate) and len(record) <= MAX_PEER_RECORD:
                context.emit(Connect(candidate, (), record))

    def on_made_direct(self, peer: PeerId, now: float) -> None:
        """A direct peer gets everything anyway: it leaves every mesh it is in."""
        for topic, members in self._mesh.items():
            if peer in members:
                self._prune(
                    peer, topic, self._context.params.prune_backoff, "made direct", now, False
                )

    def graft_again(self, peer: PeerId) -> None:
        """Repeat the GRAFT of every mesh that the peer is in; who knows it does nothing."""
        for topic, members in self._mesh.items():
            if peer in members:
                self._context.tell(peer).grafts[topic] = None

    def say_again(
        self, peer: Peer, grafts: Iterable[Graft], prunes: Iterable[PruneEntry], now: float
    ) -> None:
        """Repeat lost GRAFTs and PRUNEs, as far as they are still true."""
        for graft in grafts:
            if peer.id in self._mesh.get(graft.topic, ()):
                self._context.tell(peer.id).grafts[graft.topic] = None
        for prune in prunes:
            if peer.id not in self._mesh.get(prune.topic, ()):
                self.backoffs.add(prune.topic, peer.id, prune.backoff, now)  # it counts from now
                self._context.tell_prune(peer, prune.topic, prune.backoff, {})

    # The heartbeat

    def maintain(self, now: float) -> None:
        """Bring every mesh and fanout back to its degree."""
        if self._context.ticks % _BACKOFF_SWEEP_TICKS == 0:
            self.backoffs.expire(now)
        scores: dict[PeerId, float] = {}  # one score per peer and heartbeat, as in go

        def score(peer: PeerId) -> float:
            if peer not in scores:
                scores[peer] = self._score(peer, now)
            return scores[peer]

        for topic in self._mesh:
            self._maintain_mesh(topic, score, now)
        for topic in list(self._fanout):
            self._maintain_fanout(topic, score, now)

    def _maintain_mesh(self, topic: str, score: Callable[[PeerId], float], now: float) -> None:
        context, params, members = self._context, self._context.params, self._mesh[topic]
        lowest = context.thresholds.mesh
        for peer in [peer for peer in members if score(peer) < lowest]:
            self._prune(peer, topic, params.prune_backoff, "low score", now, exchange=False)
        if len(members) < params.d_lo:
            self._fill(topic, params.d - len(members), now, score)
        if len(members) >= params.d_hi:
            for peer in self._surplus(topic, score):
                self._prune(peer, topic, params.prune_backoff, "oversubscribed", now)
        if len(members) >= params.d_lo:
            missing = params.d_out - sum(1 for peer in members if self._is_outbound(peer))
            if missing > 0:
                dialled = [peer for peer in context.peers.outbound() if topic in peer.topics]
                self._fill(topic, missing, now, score, among=dialled)
        if self._context.ticks % params.opportunistic_graft_ticks == 0 and len(members) > 1:
            median = sorted(map(score, members))[len(members) // 2]
            if median < self._context.thresholds.opportunistic_graft:
                self._fill(
                    topic,
                    params.opportunistic_graft_peers,
                    now,
                    score,
                    lambda peer: score(peer.id) > median,
                )

    def _surplus(self, topic: str, score: Callable[[PeerId], float]) -> list[PeerId]:
        """Whom to prune: all but ``d``, among them the best ``d_score`` and ``d_out`` outbound."""
        params, rng = self._context.params, self._context.rng
        ranked = list(self._mesh[topic])
        rng.shuffle(ranked)  # so that equal scores are in no order that a peer can choose
        ranked.sort(key=score, reverse=True)
        rest = ranked[params.d_score :]
        rng.shuffle(rest)
        ranked[params.d_score :] = rest
        kept, surplus = ranked[: params.d], ranked[params.d :]
        missing = params.d_out - sum(map(self._is_outbound, kept))
        for peer in [peer for peer in surplus if self._is_outbound(peer)][: max(missing, 0)]:
            given_up = next(each for each in reversed(kept) if not self._is_outbound(each))
            kept.remove(given_up)
            kept.append(peer)
            surplus.remove(peer)
            surplus.append(given_up)
        return surplus

    def _maintain_fanout(self, topic: str, score: Callable[[PeerId], float], now: float) -> None:
        context, params = self._context, self._context.params
        if self._published[topic] + params.fanout_ttl < now:
            self._drop_fanout(topic)
            return
        members, threshold = self._fanout[topic], context.thresholds.publish
        for peer in list(members):
            if not context.peers.is_subscribed(peer, topic) or score(peer) < threshold:
                del members[peer]
        more = self._choose(
            topic,
            params.d - len(members),
            lambda peer: (
                peer.id not in members
                and peer.id not in context.direct
                and score(peer.id) >= threshold
            ),
        )
        members.update((peer.id, None) for peer in more)

    def _drop_fanout(self, topic: str) -> None:
        self._fanout.pop(topic, None)
        self._published.pop(topic, None)

    # In and out

    def _fill(
        self,
        topic: str,
        count: int,
        now: float,
        score: Callable[[PeerId], float] | None = None,
        wanted: Callable[[Peer], bool] = lambda peer: True,
        among: list[Peer] | None = None,
    ) -> None:
        """Graft up to ``count`` random peers that may be grafted and are ``wanted``.

        ``among``: subscribers to choose from; all of them where it is not given.
        """
        members = self._mesh[topic]
        for peer in self._choose(
            topic,
            count,
            lambda peer: (
                peer.id not in members and self._may_graft(peer, topic, now, score) and wanted(peer)
            ),
            among,
        ):
            self._graft(peer, topic, now, by_peer=False)

    def _may_graft(
        self,
        peer: Peer,
        topic: str,
        now: float,
        score: Callable[[PeerId], float] | None = None,
    ) -> bool:
        return (
            peer.protocol.has_mesh
            and peer.id not in self._context.direct
            and not self.backoffs.holds(topic, peer.id)
            and (score(peer.id) if score else self._score(peer.id, now)) >= 0
        )

    def _choose(
        self,
        topic: str,
        count: int,
        accept: Callable[[Peer], bool],
        among: list[Peer] | None = None,
    ) -> list[Peer]:
        """Up to ``count`` random mesh-speaking subscribers that are accepted."""
        if count <= 0:
            return []
        pool = self._context.peers.subscribed(topic) if among is None else among
        return some_of(
            pool,
            count,
            self._context.rng,
            lambda peer: peer.protocol.has_mesh and accept(peer),
        )

    def _graft(self, peer: Peer, topic: str, now: float, by_peer: bool) -> None:
        self._mesh[topic][peer.id] = None
        self._newcomers.setdefault(topic, {})[peer.id] = None
        self._context.scores.grafted(peer.id, topic, now)
        self._context.tags.grafted(peer.id, topic)
        if not by_peer:
            self._context.tell(peer.id).grafts[topic] = None
        self._context.emit(Grafted(peer.id, topic, by_peer))

    def _prune(
        self,
        peer: PeerId,
        topic: str,
        backoff: float,
        reason: str,
        now: float,
        exchange: bool = True,
    ) -> None:
        """Put a member out, tell it so, and hold each other off."""
        self._remove(peer, topic, reason, now)
        self.backoffs.add(topic, peer, backoff, now)
        known = self._context.peers.get(peer)
        if known is not None:
            offered = self._peers_to_offer(known, topic, now) if exchange else {}
            self._context.tell_prune(known, topic, backoff, offered)

    def _remove(self, peer: PeerId, topic: str, reason: str, now: float) -> None:
        del self._mesh[topic][peer]
        self._context.tell(peer).grafts.pop(topic, None)  # of this same event
        self._context.scores.pruned(peer, topic, now)
        self._context.tags.pruned(peer, topic)
        self._context.emit(Pruned(peer, topic, reason))

    def _peers_to_offer(self, pruned: Peer, topic: str, now: float) -> dict[PeerId, bytes]:
        """Peer exchange: other subscribers with no negative score, and their records."""
        if not self._context.params.peer_exchange:
            return {}
        chosen = self._choose(
            topic,
            MAX_PRUNE_PEERS,
            lambda peer: peer.id != pruned.id and self._score(peer.id, now) >= 0,
        )
        offered: dict[PeerId, bytes] = {}
        room = MAX_OFFERED
        for peer in chosen:
            record = peer.record if len(peer.record) <= room else b""
            room -= len(record)
            offered[peer.id] = record
        return offered

    def _score(self, peer: PeerId, now: float) -> float:
        return self._context.scores.score(peer, now)

    def _is_outbound(self, peer: PeerId) -> bool:
        known = self._context.peers.get(peer)
        return known is not None and known.outbound
