"""Which acknowledged chunks came out, as far as a producer hears.

A cluster that acknowledges chunks and passes none on looks perfect to whoever counts
acknowledgements. But whoever has a chunk announces its name on the channel's topic (`wants`), and
a producer that subscribes hears it. Some time after a broadcast it asks what was heard: a chunk
that somebody outside of the acknowledging cluster has came out; one that nobody else has did not.
What the cluster's own members announce proves nothing: they need not serve it. Chunks that were
sent through several clusters say nothing of any.

Only who hears enough may judge by silence (`_listens`). And silence is no proof: nobody asks for
chunks beyond those that rebuild the block, so that a slow cluster's may stay where they are; and
a peer that announces what it does not have covers up for a cluster. Hence shares and rows, for
selectors to weigh, and no disputes.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from bruit.node.relay.actions import AskHeard, ProducerAction, SetTimer
from bruit.node.relay.broadcast import BroadcastUnderWay
from bruit.node.relay.directory import Directory
from bruit.node.relay.events import ChunksHeard, Timer
from bruit.node.relay.params import RelayParams
from bruit.node.relay.quality import Quality
from bruit.node.relay.wants import HERE
from bruit.node.relay.wire import decode_acknowledgement
from bruit.topics.keys import PeerId

# Acknowledgement time-outs from the end of a broadcast until what was heard counts; guess: one in
# which the last chunk leaves its cluster, one for some hops.
HEARD_AFTER = 2
MAX_LISTENED = 32  # broadcasts that have ended and are not judged yet; guess: of some seconds
MIN_OTHERS = 2  # chunks of other clusters by which silence is told from deafness; guess

_HEARD = "relay heard"  # timer


class _Ended(msgspec.Struct, frozen=True):
    channel: int
    message_id: bytes
    timestamp: int
    clusters: dict[int, int]  # chunk → the only cluster that had it, which acknowledged it


class Listening:
    """``quality``, ``tickets`` and ``actions`` are the producer's own."""

    def __init__(
        self,
        params: RelayParams,
        quality: Quality,
        tickets: Iterator[int],
        actions: list[ProducerAction],
    ) -> None:
        self._wait = HEARD_AFTER * params.acknowledgement_timeout  # seconds
        self._quality = quality
        self._tickets = tickets
        self._actions = actions
        # By the number of timer and ticket. A producer that does not subscribe is never answered.
        self._ended: dict[int, _Ended] = {}

    def ended(self, broadcast: BroadcastUnderWay, now: float) -> None:
        """A broadcast is over; its chunks may still be on their way."""
        clusters = {
            chunk.index: decode_acknowledgement(chunk.acknowledgement).cluster
            for chunk in broadcast.chunks
            if chunk.acknowledgement and len(chunk.tried()) == 1
        }
        if not clusters:
            return
        if len(self._ended) >= MAX_LISTENED:
            del self._ended[next(iter(self._ended))]
        number = next(self._tickets)
        self._ended[number] = _Ended(
            broadcast.channel.id, broadcast.message_id, broadcast.timestamp, clusters
        )
        self._actions.append(SetTimer(Timer(_HEARD, number), now + self._wait))

    def on_timer(self, timer: Timer) -> None:
        ended = self._ended.get(timer.epoch)
        if ended is not None and timer.name == _HEARD:
            self._actions.append(
                AskHeard(timer.epoch, ended.channel, ended.message_id, ended.timestamp)
            )

    def on_heard(self, event: ChunksHeard, directory: Directory, now: float) -> None:
        """Credit clusters with what came out, and hold against them what did not."""
        ended = self._ended.pop(event.ticket, None)
        if ended is None:
            return
        sent = Counter(ended.clusters.values())
        # A chunk that is only here may have come by another way than the topic.
        heard = Counter(
            cluster
            for chunk, cluster in ended.clusters.items()
            if any(peer != HERE for peer in event.chunks.get(chunk, ()))
        )
        came_out: list[int] = []  # clusters, one for each chunk
        for chunk, cluster in ended.clusters.items():
            if directory.cluster(cluster) is None or not _listens(sent, heard, cluster):
                continue
            if _is_outside(event.chunks.get(chunk, ()), cluster, directory):
                came_out.append(cluster)
            else:
                self._quality.not_passed_on(cluster, now)
        # All of a broadcast is of one time: a single chunk that came out ends a row of failures.
        for cluster in came_out:
            self._quality.passed_on(cluster, now)


def _listens(sent: Counter[int], heard: Counter[int], cluster: int) -> bool:
    """Whether enough was heard of a broadcast to judge a cluster by what was not.

    That is half of all chunks, or half of the other clusters': one that is sent most of a block
    must not be safe because most of the block is silent.
    """
    if 2 * heard.total() >= sent.total():
        return True
    others = sent.total() - sent[cluster]
    return others >= MIN_OTHERS and 2 * (heard.total() - heard[cluster]) >= others


def _is_outside(peers: tuple[PeerId, ...], cluster: int, directory: Directory) -> bool:
    """Whether one of these peers, or this node, is no member of the cluster."""
    members = (directory.member_at(peer) for peer in peers)
    return any(member is None or directory.cluster_of(member) != cluster for member in members)
