"""What the parts of a router share: its settings, its peers, and the actions under way.

Control entries gather here per peer during one event and leave together, in as
few frames as they fit into, when the event has been handled.
"""

import random
from collections.abc import Mapping

from bruit.node.gossip import drops
from bruit.node.gossip.actions import Action, Dropped, SendControl
from bruit.node.gossip.params import MAX_CONTROL_FRAME, RouterConfig
from bruit.node.gossip.peers import Peer, Peers
from bruit.node.gossip.tags import Tags
from bruit.node.gossip.wire import Batch, Prune, encode_batch, ihave_frames
from bruit.scoring.gater import PeerGater
from bruit.scoring.seam import Refusal, Scores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.keys import PeerId


class Context:
    def __init__(
        self,
        config: RouterConfig,
        own_id: PeerId,
        rng: random.Random,
        scores: Scores,
        thresholds: Thresholds,
    ) -> None:
        self.config = config
        self.params = config.params
        self.own_id = own_id
        self.rng = rng
        self.scores = scores
        self.thresholds = thresholds
        self.peers = Peers()
        self.tags = Tags(rng)
        self.direct: dict[PeerId, tuple[str, ...]] = {}  # peer → addresses to dial
        self.banned: dict[PeerId, None] = {}  # whose messages nobody may bring us
        self.gater = None if config.gater is None else PeerGater(config.gater, rng)
        self.ticks = 0  # heartbeats so far
        self.counters: dict[str, int] = {}
        self._max_frame = config.max_frame()
        self._actions: list[Action] = []
        self.max_control = min(config.params.max_rpc_size, MAX_CONTROL_FRAME)  # bytes of a frame
        self._batches: dict[PeerId, Batch] = {}
        self._heard: dict[PeerId, list[bytes]] = {}  # IHAVE for each, encoded

    def emit(self, action: Action) -> None:
        self._actions.append(action)

    def count(self, what: str, by: int = 1) -> None:
        self.counters[what] = self.counters.get(what, 0) + by

    def drop(self, reason: str, peer: PeerId, topic: str = "", count: int = 1) -> None:
        """Count a drop and report it. Duplicates are too many to report: only counted."""
        self.count(reason, count)
        if reason != drops.DUPLICATE:
            self.emit(Dropped(peer, topic, reason))

    # What peers do with messages: score and gater hear the same story

    def validating(self, message_id: bytes, takes_time: bool, now: float) -> None:
        if takes_time:  # else what becomes of it is said at once
            self.scores.validating(message_id, now)
        if self.gater is not None:
            self.gater.validating(now)

    def delivered(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        self.scores.first_delivery(peer, topic, message_id, now)
        if self.gater is not None:
            self.gater.delivered(peer, topic)

    def duplicate(self, peer: PeerId, topic: str, message_id: bytes, now: float) -> None:
        self.scores.duplicate(peer, topic, message_id, now)
        if self.gater is not None:
            self.gater.duplicate(peer)

    def refused(
        self, peer: PeerId, topic: str, message_id: bytes, refusal: Refusal, now: float
    ) -> None:
        self.scores.refused(peer, topic, message_id, refusal, now)
        if self.gater is not None:
            self.gater.refused(peer, refusal, now)

    # What peers are told

    def tell(self, peer: PeerId) -> Batch:
        """What the peer will be told when this event is done; add to it."""
        batch = self._batches.get(peer)
        if batch is None:
            batch = self._batches[peer] = Batch()
        return batch

    def tell_ihave(self, peer: PeerId, entries: list[bytes]) -> None:
        """Tell a peer of messages. ``entries`` may be told to many, and are not changed."""
        said = self._heard.get(peer)
        self._heard[peer] = entries if said is None else said + entries

    def tell_prune(
        self, peer: Peer, topic: str, backoff: float, offered: Mapping[PeerId, bytes]
    ) -> None:
        """PRUNE, as the peer's protocol has it: v1.0 knows neither backoff nor exchange."""
        if peer.protocol.has_peer_exchange:
            prune = Prune(topic, backoff, tuple(offered.items()))
        else:
            prune = Prune(topic, None)
        self.tell(peer.id).prunes[topic] = prune

    def drain(self) -> list[Action]:
        """All actions of this event, control frames first.

        An IDONTWANT must not wait behind the message that it speaks of.
        """
        actions = self._actions
        self._actions = []
        if not self._batches and not self._heard:
            return actions
        max_size = self.max_control
        control: list[Action] = []
        for peer, batch in self._batches.items():
            batch.ihave = self._heard.pop(peer, batch.ihave)
            max_iwant = max(self._max_frame // batch.largest_wanted, 1)
            frames = encode_batch(batch, max_size, max_iwant, self.params.max_idontwant_length)
            control += [SendControl(peer, frame) for frame in frames]
        for peer, entries in self._heard.items():
            control += [SendControl(peer, frame) for frame in ihave_frames(entries, max_size)]
        self._heard.clear()
        self._batches.clear()
        return control + actions
