"""What scores cost: a refresh of all peers, and one peer's score before and after an event.

    python -m bench.scoring [--peers N] [--topics N] [--rounds N]

Every peer is in the mesh of every topic with a history in each, and every term
counts. Figures are medians over the rounds. The last line of output is one JSON
object.
"""

import argparse
import json
import platform
import random
import time
from statistics import median

import numpy as np

import bruit
from bench.lab import SEED
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.seam import Refusal
from bruit.scoring.thresholds import Thresholds

TOPIC = TopicScoreParams(
    topic_weight=0.5,
    time_in_mesh_weight=0.01,
    first_message_deliveries_weight=1.0,
    first_message_deliveries_decay=0.999,
    mesh_message_deliveries_weight=-1.0,
    mesh_message_deliveries_decay=0.999,
    mesh_failure_penalty_weight=-1.0,
    mesh_failure_penalty_decay=0.999,
    invalid_message_deliveries_weight=-10.0,
    invalid_message_deliveries_decay=0.999,
)
PARAMS = PeerScoreParams(
    default_topic=TOPIC,
    ip_colocation_factor_weight=-1.0,
    behaviour_penalty_weight=-1.0,
    behaviour_penalty_decay=0.999,
    slow_peer_weight=-1.0,
    slow_peer_decay=0.999,
    seen_message_ttl=3600.0,  # nothing expires meanwhile
)
REPEATED = 1000  # calls timed together where one is too short


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.scoring")
    arguments.add_argument("--peers", type=int, default=1000)
    arguments.add_argument("--topics", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=100)
    options = arguments.parse_args()
    peers = [f"peer {number}".encode() for number in range(options.peers)]
    topics = [f"topic {number}" for number in range(options.topics)]
    scores = with_history(peers, topics)
    peer, topic, now = peers[0], topics[0], 100.0
    refresh, unchanged, after_event = [], [], []
    for _ in range(options.rounds):
        now += scores.refresh_interval
        start = time.perf_counter()
        scores.refresh(now)
        refresh.append(time.perf_counter() - start)

        start = time.perf_counter()
        for _ in range(REPEATED):
            scores.score(peer, now)
        unchanged.append((time.perf_counter() - start) / REPEATED)

        start = time.perf_counter()
        for _ in range(REPEATED):
            scores.refused(peer, topic, b"", Refusal.FORGED, now)
            scores.score(peer, now)
        after_event.append((time.perf_counter() - start) / REPEATED)

    result = {
        "peers": options.peers,
        "topics": options.topics,
        "rounds": options.rounds,
        "refresh_ms": round(median(refresh) * 1e3, 3),
        "refresh_ms_range": [round(min(refresh) * 1e3, 3), round(max(refresh) * 1e3, 3)],
        "score_us": round(median(unchanged) * 1e6, 3),
        "event_and_score_us": round(median(after_event) * 1e6, 3),
        "versions": {
            "python": platform.python_version(),
            "bruit": bruit.__version__,
            "numpy": np.__version__,
        },
        "system": platform.platform(),
    }
    print(f"refresh of {options.peers} peers in {options.topics} topics: {result['refresh_ms']} ms")
    print(f"a score, nothing changed: {result['score_us']} µs")
    print(f"an event and the score after it: {result['event_and_score_us']} µs")
    print(json.dumps(result))


def with_history(peers: list[bytes], topics: list[str]) -> PeerScores:
    """Scores at second 100 of peers that have done something of everything everywhere."""
    rng = random.Random(SEED)
    scores = PeerScores(PARAMS, Thresholds())
    message = 0
    for peer in peers:
        scores.connected(peer, (f"/ip4/10.0.{rng.randrange(256)}.{rng.randrange(256)}/tcp/1",), 0.0)
        scores.misbehaved(peer, rng.randrange(1, 5), "made up", 0.0)
        scores.slow(peer, rng.randrange(1, 5), 0.0)
        scores.set_app_score(peer, rng.random(), 0.0)
        for topic in topics:
            scores.grafted(peer, topic, rng.random() * 90)
            for _ in range(rng.randrange(1, 5)):
                message += 1
                scores.first_delivery(peer, topic, message.to_bytes(8, "big"), 0.0)
            scores.refused(peer, topic, b"", Refusal.FORGED, 0.0)
    scores.refresh(100.0)
    for peer in peers:
        for topic in topics:
            if rng.random() < 0.5:
                scores.pruned(peer, topic, 100.0)
                scores.grafted(peer, topic, 100.0)
    return scores


if __name__ == "__main__":
    main()
