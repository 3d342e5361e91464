"""What a peer's score says about it: which thresholds it is below, and when that is the end.

The rooms that act on a score ask for it themselves at the time; here is what
happens by itself. At each heartbeat a peer that has crossed a threshold is
reported, and one below ``disconnect`` is hung up on (LP-6420 §5.3, "Reject").
Direct peers are not: they are trusted whatever they do.
"""

from bruit.node.gossip.actions import Disconnect, ThresholdCrossed
from bruit.node.gossip.context import Context
from bruit.node.gossip.peers import Peer
from bruit.scoring.thresholds import LIMITS


class Standing:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._highest = max(getattr(context.thresholds, name) for name in LIMITS)

    def review(self, peer: Peer, now: float) -> None:
        """Look at one peer: when it connects, with the score that it left behind, and later."""
        context = self._context
        score = context.scores.score(peer.id, now)
        if score >= self._highest and not peer.below:
            return
        below = context.thresholds.above(score)
        for name in LIMITS:
            if (name in below) != (name in peer.below):
                context.emit(ThresholdCrossed(peer.id, name, name in below, score))
        peer.below = below
        if "disconnect" in below and peer.id not in context.direct:
            context.count("peers disconnected for their score")
            limit = context.thresholds.disconnect
            context.emit(Disconnect(peer.id, f"score {score:g} is below {limit:g}"))
