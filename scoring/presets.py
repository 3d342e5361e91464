"""Sets of scoring parameters that are in use somewhere, and our own.

=========== ==================================================================================
`lux`       LP-6420 §5.3's thresholds. The proposal gives no parameters: these are ours (each
            a guess; docs/scoring.md has the reasons).
`filecoin`  filecoin-project/lotus, node/modules/lp2p/pubsub.go, on mainnet.
`ethereum`  sigp/lighthouse, service/gossipsub_scoring_parameters.rs (2024 to 2025), computed
            by its formulas for mainnet with 500,000 active validators.
`paper2020` libp2p/gossipsub-hardening, scripts/configs/1k.json: the runs behind
            arXiv:2007.02754.
=========== ==================================================================================

Ethereum's other clients differ in P3: lodestar's and teku's weight is as large as all
merits together when a peer is silent, lighthouse's is the topic's weight, prysm's is 0.
"""

import difflib
from collections.abc import Callable

import msgspec

from bruit.scoring.params import DECAY_TO_ZERO, PeerScoreParams, TopicScoreParams, decay_factor
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError

DEFAULT_PRESET = "lux"

HOUR = 3600.0  # seconds
MINUTE = 60.0


class ScoringPreset(msgspec.Struct, frozen=True):
    """A whole set: when a peer loses what, and what its score is computed from."""

    thresholds: Thresholds
    params: PeerScoreParams


def preset(name: str, path: str = "scoring.preset") -> ScoringPreset:
    """The set of that name. Raises ConfigError at ``path`` where there is none."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise ConfigError(
            path, f'there is no preset "{name}": {hint}the presets are {", ".join(PRESETS)}'
        )
    return PRESETS[name]()


def _lux() -> ScoringPreset:
    """Every number of the parameters is a guess."""
    thresholds = Thresholds(  # LP-6420 §5.3; the last two are not in it
        gossip=0.0,
        publish=0.0,
        mesh=-1000.0,
        graylist=-2500.0,
        disconnect=-5000.0,
        accept_px=0.0,
        opportunistic_graft=2.0,  # above what time alone gives (1 per topic)
    )
    topic = TopicScoreParams(
        topic_weight=1.0,
        time_in_mesh_weight=1 / 3600,  # reaches 1 after an hour
        time_in_mesh_quantum=1.0,
        time_in_mesh_cap=3600.0,
        first_message_deliveries_weight=1.0,
        first_message_deliveries_decay=decay_factor(10 * MINUTE),
        first_message_deliveries_cap=40.0,
        # P3 and P3b off: how many messages a topic has is not known here, and a peer in a
        # topic where nothing happens is innocent
        invalid_message_deliveries_weight=-100.0,
        invalid_message_deliveries_decay=decay_factor(HOUR),
    )
    params = PeerScoreParams(
        default_topic=topic,
        topic_score_cap=100.0,  # as much as one invalid message costs
        app_specific_weight=1.0,
        ip_colocation_factor_weight=-100.0,
        ip_colocation_factor_threshold=5,
        behaviour_penalty_weight=-50.0,
        behaviour_penalty_threshold=6.0,
        behaviour_penalty_decay=decay_factor(HOUR),
        slow_peer_weight=-0.2,  # and decay: rust-libp2p's defaults
        slow_peer_threshold=50.0,  # as many as cost its default gossip threshold, −10
        slow_peer_decay=0.2,
        retain_score=HOUR,
    )
    return ScoringPreset(thresholds, params)


# Filecoin mainnet: topics are /fil/blocks/<network> and /fil/msgs/<network>, and one of drand
# for each chain of it that is in use (lotus, build/drand.go): the quicknet chain since 2024.
FILECOIN_BLOCKS = "/fil/blocks/testnetnet"  # the name that mainnet has had since its start
FILECOIN_MESSAGES = "/fil/msgs/testnetnet"
FILECOIN_DRAND = (
    "/drand/pubsub/v0.0.0/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
)


def _filecoin() -> ScoringPreset:
    invalid_messages = {
        "invalid_message_deliveries_weight": -1000.0,
        "invalid_message_deliveries_decay": decay_factor(HOUR),
    }
    time_in_mesh = {"time_in_mesh_quantum": 1.0, "time_in_mesh_cap": 1.0}
    topics = {
        FILECOIN_BLOCKS: TopicScoreParams(  # 10 blocks a minute expected
            topic_weight=0.1,
            time_in_mesh_weight=0.00027,
            first_message_deliveries_weight=5.0,
            first_message_deliveries_decay=decay_factor(HOUR),
            first_message_deliveries_cap=100.0,
            **time_in_mesh,
            **invalid_messages,
        ),
        FILECOIN_MESSAGES: TopicScoreParams(  # more than one a second expected
            topic_weight=0.1,
            time_in_mesh_weight=0.0002778,
            first_message_deliveries_weight=0.5,
            first_message_deliveries_decay=decay_factor(10 * MINUTE),
            first_message_deliveries_cap=100.0,
            **time_in_mesh,
            **invalid_messages,
        ),
        FILECOIN_DRAND: TopicScoreParams(  # 2 beacons a minute expected
            topic_weight=0.5,
            time_in_mesh_weight=0.00027,
            first_message_deliveries_weight=5.0,
            first_message_deliveries_decay=decay_factor(HOUR),
            first_message_deliveries_cap=25.0,
            **time_in_mesh,
            **invalid_messages,
        ),
    }
    params = PeerScoreParams(
        topics=topics,
        app_specific_weight=1.0,
        ip_colocation_factor_weight=-100.0,
        ip_colocation_factor_threshold=5,
        behaviour_penalty_weight=-10.0,
        behaviour_penalty_threshold=6.0,
        behaviour_penalty_decay=decay_factor(HOUR),
        retain_score=6 * HOUR,
    )
    thresholds = Thresholds(
        gossip=-500.0,
        publish=-1000.0,
        graylist=-2500.0,
        accept_px=1000.0,
        opportunistic_graft=3.5,
    )
    return ScoringPreset(thresholds, params)


# Ethereum mainnet (consensus-specs, configs/mainnet.yaml and presets/mainnet/phase0.yaml)
SLOT = 12.0  # seconds
EPOCH = 32 * SLOT
SLOTS_PER_EPOCH = 32
ATTESTATION_SUBNETS = 64
MAX_COMMITTEES_PER_SLOT = 64
TARGET_COMMITTEE_SIZE = 128
TARGET_AGGREGATORS_PER_COMMITTEE = 16
MESH_DEGREE = 8  # phase0/p2p-interface.md, "The gossip domain"
# Assumed: mainnet between the merge and Capella
ETHEREUM_VALIDATORS = 500_000
ETHEREUM_FORK_DIGEST = "4a26c58b"  # Bellatrix
# lighthouse's constants
MAX_IN_MESH_SCORE = 10.0
MAX_FIRST_MESSAGE_DELIVERIES_SCORE = 40.0
BEACON_BLOCK_WEIGHT = 0.5
AGGREGATE_WEIGHT = 0.5
RARE_WEIGHT = 0.05  # of voluntary exits, proposer slashings and attester slashings
ETHEREUM_GOSSIP_THRESHOLD = -4000.0


class MeshDeliveries(msgspec.Struct, frozen=True):
    """How lighthouse expects a topic's messages in the mesh. Times in seconds."""

    decay: float
    cap_factor: float  # cap = factor × threshold, at least 2
    activation: float


def ethereum(validators: int = ETHEREUM_VALIDATORS) -> ScoringPreset:
    """Of lighthouse, for so many active validators."""
    attestation_weight = 1 / ATTESTATION_SUBNETS
    most = (MAX_IN_MESH_SCORE + MAX_FIRST_MESSAGE_DELIVERIES_SCORE) * (
        BEACON_BLOCK_WEIGHT
        + AGGREGATE_WEIGHT
        + attestation_weight * ATTESTATION_SUBNETS
        + 3 * RARE_WEIGHT
    )

    def topic(
        weight: float, rate: float, first_decay: float, mesh: MeshDeliveries | None = None
    ) -> TopicScoreParams:
        """``rate`` in messages per slot, of the whole topic."""
        return _lighthouse_topic(weight, rate, first_decay, mesh, most)

    def name(kind: str) -> str:
        return f"/eth2/{ETHEREUM_FORK_DIGEST}/{kind}/ssz_snappy"

    aggregates, bursts = _ethereum_aggregates(validators)
    attestation = topic(
        attestation_weight,
        validators / ATTESTATION_SUBNETS / SLOTS_PER_EPOCH,
        EPOCH * (1 if bursts else 4),
        MeshDeliveries(4 * EPOCH, 16.0, SLOT * (SLOTS_PER_EPOCH // 2 + 1))
        if bursts
        else MeshDeliveries(16 * EPOCH, 16.0, 3 * EPOCH),
    )
    topics = {
        name("voluntary_exit"): topic(RARE_WEIGHT, 4 / SLOTS_PER_EPOCH, 100 * EPOCH),
        name("attester_slashing"): topic(RARE_WEIGHT, 1 / 5 / SLOTS_PER_EPOCH, 100 * EPOCH),
        name("proposer_slashing"): topic(RARE_WEIGHT, 1 / 5 / SLOTS_PER_EPOCH, 100 * EPOCH),
        name("beacon_block"): topic(
            BEACON_BLOCK_WEIGHT, 1.0, 20 * EPOCH, MeshDeliveries(5 * EPOCH, 3.0, EPOCH)
        ),
        name("beacon_aggregate_and_proof"): topic(
            AGGREGATE_WEIGHT, aggregates, EPOCH, MeshDeliveries(2 * EPOCH, 4.0, EPOCH)
        ),
    }
    for subnet in range(ATTESTATION_SUBNETS):
        topics[name(f"beacon_attestation_{subnet}")] = attestation
    violations_decay = decay_factor(10 * EPOCH, SLOT)
    violations = _settled(violations_decay, 10 / SLOTS_PER_EPOCH) - 6.0
    params = PeerScoreParams(
        topics=topics,
        topic_score_cap=most / 2,
        app_specific_weight=1.0,
        ip_colocation_factor_weight=-most / 2,
        ip_colocation_factor_threshold=8,
        behaviour_penalty_weight=ETHEREUM_GOSSIP_THRESHOLD / violations**2,
        behaviour_penalty_threshold=6.0,
        behaviour_penalty_decay=violations_decay,
        slow_peer_weight=-10.0,
        slow_peer_threshold=0.0,
        slow_peer_decay=0.1,
        decay_interval=SLOT,
        decay_to_zero=DECAY_TO_ZERO,
        retain_score=100 * EPOCH,
    )
    thresholds = Thresholds(
        gossip=ETHEREUM_GOSSIP_THRESHOLD,
        publish=-8000.0,
        graylist=-16000.0,
        accept_px=100.0,
        opportunistic_graft=5.0,
    )
    return ScoringPreset(thresholds, params)


def _ethereum_aggregates(validators: int) -> tuple[float, bool]:
    """Aggregates expected per slot, and whether a subnet has several bursts per epoch."""
    committees_per_slot = max(
        1,
        min(MAX_COMMITTEES_PER_SLOT, validators // SLOTS_PER_EPOCH // TARGET_COMMITTEE_SIZE),
    )
    committees = committees_per_slot * SLOTS_PER_EPOCH
    size = validators // committees
    larger = validators - size * committees  # committees with one member more

    def aggregators(count: int, size: int) -> float:
        return count * size / max(1, size // TARGET_AGGREGATORS_PER_COMMITTEE)

    per_epoch = aggregators(committees - larger, size) + aggregators(larger, size + 1)
    bursts = committees_per_slot >= 2 * ATTESTATION_SUBNETS // SLOTS_PER_EPOCH
    return per_epoch / SLOTS_PER_EPOCH, bursts


def _settled(decay: float, rate: float) -> float:
    """Where a counter comes to rest that gains ``rate`` and then decays, every tick."""
    return rate / (1 - decay)


def _lighthouse_topic(
    weight: float, rate: float, first_decay: float, mesh: MeshDeliveries | None, most: float
) -> TopicScoreParams:
    time_cap = HOUR / SLOT
    decay = decay_factor(first_decay, SLOT)
    first_cap = _settled(decay, 2 * rate / MESH_DEGREE)
    topic = TopicScoreParams(
        topic_weight=weight,
        time_in_mesh_weight=MAX_IN_MESH_SCORE / time_cap,
        time_in_mesh_quantum=SLOT,
        time_in_mesh_cap=time_cap,
        first_message_deliveries_weight=MAX_FIRST_MESSAGE_DELIVERIES_SCORE / first_cap,
        first_message_deliveries_decay=decay,
        first_message_deliveries_cap=first_cap,
        invalid_message_deliveries_weight=-most / weight,
        invalid_message_deliveries_decay=decay_factor(50 * EPOCH, SLOT),
    )
    if mesh is None:
        return topic
    mesh_decay = decay_factor(mesh.decay, SLOT)
    threshold = _settled(mesh_decay, rate / 50) * mesh_decay  # a 50th of what is expected
    return msgspec.structs.replace(
        topic,
        mesh_message_deliveries_weight=-weight,
        mesh_message_deliveries_decay=mesh_decay,
        mesh_message_deliveries_cap=max(2.0, mesh.cap_factor * threshold),
        mesh_message_deliveries_threshold=threshold,
        mesh_message_deliveries_window=2.0,
        mesh_message_deliveries_activation=mesh.activation,
        mesh_failure_penalty_weight=-weight,
        mesh_failure_penalty_decay=mesh_decay,
    )


def _paper2020() -> ScoringPreset:
    blocks = TopicScoreParams(  # 120 messages a second from 100 publishers
        topic_weight=0.25,
        time_in_mesh_weight=0.0027,
        time_in_mesh_quantum=1.0,
        time_in_mesh_cap=3600.0,
        first_message_deliveries_weight=0.664,
        first_message_deliveries_decay=0.9916,
        first_message_deliveries_cap=1500.0,
        mesh_message_deliveries_weight=-0.25,
        mesh_message_deliveries_decay=0.997,
        mesh_message_deliveries_cap=400.0,
        mesh_message_deliveries_threshold=10.0,
        mesh_message_deliveries_window=0.005,
        mesh_message_deliveries_activation=60.0,
        mesh_failure_penalty_weight=-0.25,
        mesh_failure_penalty_decay=0.997,
        invalid_message_deliveries_weight=-99.0,
        invalid_message_deliveries_decay=0.9994,
    )
    params = PeerScoreParams(  # its one topic was "blocks"; IP addresses counted in one run only
        topics={"blocks": blocks}, default_topic=blocks, retain_score=30.0
    )
    thresholds = Thresholds(gossip=-4000.0, publish=-5000.0, graylist=-10000.0)
    return ScoringPreset(thresholds, params)


PRESETS: dict[str, Callable[[], ScoringPreset]] = {
    "lux": _lux,
    "filecoin": _filecoin,
    "ethereum": ethereum,
    "paper2020": _paper2020,
}
