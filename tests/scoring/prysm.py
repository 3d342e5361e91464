"""The parameters that CVE-2022-47547 is about."""

from bruit.scoring.params import PeerScoreParams, TopicScoreParams, decay_factor
from bruit.scoring.presets import ScoringPreset
from bruit.scoring.thresholds import Thresholds

SLOT = 12.0
EPOCH = 32 * SLOT


def prysm_with_p3() -> ScoringPreset:
    """The parameters that CVE-2022-47547 is about.

    prysm's beacon-chain/p2p/gossip_scoring_params.go, as gossipsubfm/gossipsubfm
    (scoring-eth2.lisp) cites it, with mainnet's constants and 16,384 validators. The
    model itself has made-up constants, such as epochs of one slot.
    """

    def decay(epochs: int) -> float:
        return decay_factor(epochs * EPOCH, SLOT)

    time = {"time_in_mesh_weight": 0.0324, "time_in_mesh_quantum": SLOT, "time_in_mesh_cap": 300.0}
    invalid_decay = decay(50)
    blocks = TopicScoreParams(
        topic_weight=0.8,
        **time,
        first_message_deliveries_weight=1.0,
        first_message_deliveries_decay=decay(20),
        first_message_deliveries_cap=23.0,
        mesh_message_deliveries_weight=-0.717,
        mesh_message_deliveries_decay=decay(5),
        mesh_message_deliveries_cap=160.0,
        mesh_message_deliveries_threshold=16.0,
        mesh_message_deliveries_activation=4 * EPOCH,
        invalid_message_deliveries_weight=-140.4475,
        invalid_message_deliveries_decay=invalid_decay,
    )
    aggregates = TopicScoreParams(
        topic_weight=0.5,
        **time,
        first_message_deliveries_weight=0.128,
        first_message_deliveries_decay=decay(1),
        first_message_deliveries_cap=179.0,
        mesh_message_deliveries_weight=-0.064,
        mesh_message_deliveries_decay=decay(1),
        mesh_message_deliveries_cap=2048.0,
        mesh_message_deliveries_threshold=40.0,
        mesh_message_deliveries_activation=EPOCH,
        invalid_message_deliveries_weight=-140.4475,
        invalid_message_deliveries_decay=invalid_decay,
    )
    attestations = TopicScoreParams(
        topic_weight=1 / 64,
        **time,
        first_message_deliveries_weight=0.955,
        first_message_deliveries_decay=decay(4),
        first_message_deliveries_cap=24.0,
        mesh_message_deliveries_weight=-37.55,
        mesh_message_deliveries_decay=decay(16),
        mesh_message_deliveries_cap=256.0,
        mesh_message_deliveries_threshold=5.0,
        mesh_message_deliveries_activation=17 * SLOT,
        invalid_message_deliveries_weight=-4544.0,
        invalid_message_deliveries_decay=invalid_decay,
    )
    params = PeerScoreParams(
        topics={
            "blocks": blocks,
            "aggregates": aggregates,
            **{f"attestations {subnet}": attestations for subnet in range(64)},
        },
        topic_score_cap=32.72,
        behaviour_penalty_weight=-15.92,
        behaviour_penalty_threshold=6.0,
        behaviour_penalty_decay=decay(10),
        decay_interval=SLOT,
    )
    return ScoringPreset(Thresholds(gossip=-4000, publish=-8000, graylist=-16000), params)
