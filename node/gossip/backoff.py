"""Who must not be grafted again yet, and until when (gossipsub-v1.1.md, "Prune Backoff").

An entry forbids our own GRAFT for as long as it is there, which is ``slack``
seconds longer than promised; a peer's GRAFT is judged by the promised time.
"""

from collections import OrderedDict

from bruit.node.gossip.params import MAX_BACKOFFS_PER_TOPIC, MAX_REMOTE_BACKOFF
from bruit.topics.keys import PeerId


class Backoffs:
    """Expiry in seconds by topic and peer. Bounded; the oldest entry goes first."""

    def __init__(self, slack: float) -> None:
        self._slack = slack
        self._until: dict[str, OrderedDict[PeerId, float]] = {}

    def add(self, topic: str, peer: PeerId, seconds: float, now: float) -> None:
        """Hold ``peer`` off for ``seconds`` (capped); never shortens what is there."""
        until = now + min(seconds, MAX_REMOTE_BACKOFF)
        entries = self._until.setdefault(topic, OrderedDict())
        if until > entries.get(peer, 0.0):
            entries[peer] = until
        if len(entries) > MAX_BACKOFFS_PER_TOPIC:
            entries.popitem(last=False)

    def holds(self, topic: str, peer: PeerId) -> bool:
        """Whether we may not graft the peer: slack included, cleared by `expire`."""
        return peer in self._until.get(topic, ())

    def until(self, topic: str, peer: PeerId) -> float:
        """When the promised backoff ends, seconds; 0 where there is none."""
        entries = self._until.get(topic)
        return entries.get(peer, 0.0) if entries else 0.0

    def expire(self, now: float) -> None:
        for topic in list(self._until):
            entries = self._until[topic]
            for peer in [p for p, until in entries.items() if until + self._slack < now]:
                del entries[peer]
            if not entries:
                del self._until[topic]

    def __len__(self) -> int:
        return sum(map(len, self._until.values()))
