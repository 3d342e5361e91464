"""A peer that is perfect but in one thing, in real `PeerScores` and virtual time."""

import math
from collections.abc import Iterator

from bruit.scoring.adversary import Behaviour, Kind, Samples
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds

PEER = b"somebody"


class DrivenPeer:
    """In the mesh of every topic of ``names``, long enough for all that time can bring."""

    def __init__(self, params: PeerScoreParams, names: list[str]) -> None:
        self.params = params
        self.names = names
        self.scores = PeerScores(params, Thresholds())
        self.messages = 0
        self.now = 0.0
        self.scores.connected(PEER, (), self.now)
        for name in names:
            self.scores.grafted(PEER, name, self.now)
        self.now = 2 * max(
            max(topic.time_in_mesh_cap * topic.time_in_mesh_quantum, self._activation(topic))
            for topic in map(self.topic, names)
        )
        self.scores.refresh(self.now)
        for name in names:
            topic = self.topic(name)
            caps = topic.first_message_deliveries_cap, topic.mesh_message_deliveries_cap
            self.deliver(name, math.ceil(max(caps)))

    @staticmethod
    def _activation(topic: TopicScoreParams) -> float:
        return topic.mesh_message_deliveries_activation

    def topic(self, name: str) -> TopicScoreParams:
        topic = self.params.topic(name)
        assert topic is not None
        return topic

    def score(self) -> float:
        return self.scores.score(PEER, self.now)

    def deliver(self, name: str, count: int) -> None:
        for _ in range(count):
            message = self.messages.to_bytes(8)
            self.messages += 1
            self.scores.validating(message, self.now)
            self.scores.first_delivery(PEER, name, message, self.now)

    def send_invalid(self, name: str, count: int) -> None:
        for _ in range(count):
            message = self.messages.to_bytes(8)
            self.messages += 1
            self.scores.validating(message, self.now)
            self.scores.refused(PEER, name, message, Refusal.INVALID, self.now)

    def shine(self, name: str) -> None:
        """Deliver what brings the counters back to their caps after one decay."""
        topic = self.topic(name)
        counters = [(topic.first_message_deliveries_cap, topic.first_message_deliveries_decay)]
        if topic.mesh_message_deliveries_weight:
            counters.append(
                (topic.mesh_message_deliveries_cap, topic.mesh_message_deliveries_decay)
            )
        self.deliver(name, max(math.ceil(cap * (1 - decay)) for cap, decay in counters))

    def run(self, behaviour: Behaviour, where: str | None, ticks: int) -> Iterator[Samples]:
        for tick in range(1, ticks + 1):
            self.now += self.params.decay_interval
            self.scores.refresh(self.now)
            faded = self.score()
            count = behaviour.count if tick % behaviour.every == 0 else 0
            for name in self.names:
                if name != where or behaviour.kind is not Kind.WITHHOLDS:
                    self.shine(name)
            match behaviour.kind:
                case Kind.WITHHOLDS:
                    assert where is not None
                    self.deliver(where, count)
                case Kind.INVALID:
                    assert where is not None
                    self.send_invalid(where, count)
                case Kind.VIOLATES:
                    self.scores.misbehaved(PEER, count, "made up", self.now)
            yield Samples(faded, self.score())
