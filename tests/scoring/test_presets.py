"""The presets hold the numbers that their sources publish."""

import math
import re

import pytest

from bruit.scoring.params import TopicScoreParams
from bruit.scoring.presets import DEFAULT_PRESET, PRESETS, ethereum, preset
from bruit.topics.errors import ConfigError

HOUR_DECAY = 0.9987216039048303  # go-libp2p-pubsub's ScoreParameterDecay(time.Hour)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_passes_its_own_checks(name: str) -> None:
    chosen = preset(name)
    chosen.thresholds.check()
    chosen.params.check()


@pytest.mark.parametrize(("name", "hint"), [("filecoyn", "filecoin"), ("paper", "paper2020")])
def test_an_unknown_preset_is_refused_with_the_closest_and_all(name: str, hint: str) -> None:
    problem = re.escape(f'scoring.preset: there is no preset "{name}": did you mean "{hint}"? ')
    with pytest.raises(ConfigError, match=problem + ".*lux, filecoin, ethereum, paper2020"):
        preset(name)


def test_lux_has_the_thresholds_of_lp_6420() -> None:
    """§5.3: Gossip 0, Publish 0, Graylist −1000 (out of the mesh), Accept −2500, Reject −5000."""
    thresholds = preset("lux").thresholds
    assert (thresholds.gossip, thresholds.publish) == (0, 0)
    assert (thresholds.mesh, thresholds.graylist, thresholds.disconnect) == (-1000, -2500, -5000)
    assert DEFAULT_PRESET == "lux"


def test_with_lux_a_peer_of_full_merits_is_forgiven_one_invalid_message_and_not_two() -> None:
    params = preset("lux").params
    topic = params.topic("whatever")
    assert topic is not None
    cost = topic.topic_weight * topic.invalid_message_deliveries_weight
    assert params.topic_score_cap + cost == 0
    assert params.topic_score_cap + cost * 2**2 < 0


def test_with_lux_time_alone_does_not_make_a_mesh_good_enough() -> None:
    lux = preset("lux")
    topic = lux.params.topic("whatever")
    assert topic is not None
    assert topic.time_in_mesh_weight * topic.time_in_mesh_cap == pytest.approx(1)
    assert 1 < lux.thresholds.opportunistic_graft < topic.first_message_deliveries_cap


def test_filecoin_has_the_thresholds_and_peer_terms_of_lotus() -> None:
    filecoin = preset("filecoin")
    thresholds, params = filecoin.thresholds, filecoin.params
    assert (thresholds.gossip, thresholds.publish, thresholds.graylist) == (-500, -1000, -2500)
    assert (thresholds.accept_px, thresholds.opportunistic_graft) == (1000, 3.5)
    assert (thresholds.mesh, thresholds.disconnect) == (0, -math.inf)  # the specification's
    assert (params.ip_colocation_factor_weight, params.ip_colocation_factor_threshold) == (-100, 5)
    assert (params.behaviour_penalty_weight, params.behaviour_penalty_threshold) == (-10, 6)
    assert params.behaviour_penalty_decay == HOUR_DECAY
    assert (params.decay_interval, params.decay_to_zero) == (1, 0.01)
    assert params.retain_score == 6 * 3600
    assert params.topic_score_cap == 0
    assert params.default_topic is None


@pytest.mark.parametrize(
    ("prefix", "weight", "time", "first", "cap"),
    [  # of lotus's comments: 50, 5 and 62.5 at most, and 100 or 500 lost by an invalid message
        ("/fil/blocks/", 0.1, 0.00027, 5, 100),
        ("/fil/msgs/", 0.1, 0.0002778, 0.5, 100),
        ("/drand/pubsub/v0.0.0/", 0.5, 0.00027, 5, 25),
    ],
)
def test_filecoin_counts_its_topics_as_lotus_does(
    prefix: str, weight: float, time: float, first: float, cap: float
) -> None:
    [topic] = [
        topic for name, topic in preset("filecoin").params.topics.items() if name.startswith(prefix)
    ]
    assert (topic.topic_weight, topic.time_in_mesh_weight) == (weight, time)
    assert (topic.time_in_mesh_quantum, topic.time_in_mesh_cap) == (1, 1)
    assert (topic.first_message_deliveries_weight, topic.first_message_deliveries_cap) == (
        first,
        cap,
    )
    assert topic.invalid_message_deliveries_weight == -1000
    assert topic.invalid_message_deliveries_decay == HOUR_DECAY
    assert topic.mesh_message_deliveries_weight == topic.mesh_failure_penalty_weight == 0


# Ethereum. Teku's GossipScoringConfiguratorTest and lodestar's scoringParameters.test.ts give
# the numbers for 16,384 validators, to the places repeated here. Their weights of P3, P3b and
# P4 rest on other maxima than lighthouse's, which has its own.

VALIDATORS_AT_GENESIS = 16_384


def ethereum_topic(kind: str) -> TopicScoreParams:
    params = ethereum(VALIDATORS_AT_GENESIS).params
    topic = params.topic(f"/eth2/4a26c58b/{kind}/ssz_snappy")
    assert topic is not None
    return topic


@pytest.mark.parametrize(
    ("kind", "weight", "first_weight", "first_decay", "first_cap"),
    [
        ("voluntary_exit", 0.05, 1.8407, 0.99856, 21.73035),
        ("attester_slashing", 0.05, 36.81486, 0.998561, 1.08652),
        ("proposer_slashing", 0.05, 36.81486, 0.998561, 1.08652),
        ("beacon_aggregate_and_proof", 0.5, 0.33509, 0.86596, 119.3712),
        ("beacon_block", 0.5, 1.14716, 0.99283, 34.8687),
        ("beacon_attestation_0", 0.015625, 2.6807, 0.86596, 14.9214),
        ("beacon_attestation_63", 0.015625, 2.6807, 0.86596, 14.9214),
    ],
)
def test_ethereum_rewards_first_deliveries_as_its_clients_do(
    kind: str, weight: float, first_weight: float, first_decay: float, first_cap: float
) -> None:
    topic = ethereum_topic(kind)
    near = pytest.approx(
        (0.03333, first_weight, first_decay, first_cap, 0.99713), rel=0, abs=0.00005
    )
    assert (
        topic.time_in_mesh_weight,
        topic.first_message_deliveries_weight,
        topic.first_message_deliveries_decay,
        topic.first_message_deliveries_cap,
        topic.invalid_message_deliveries_decay,
    ) == near
    assert topic.topic_weight == weight
    assert (topic.time_in_mesh_quantum, topic.time_in_mesh_cap) == (12, 300)


@pytest.mark.parametrize(
    ("kind", "decay", "cap", "threshold", "activation"),
    [
        ("beacon_aggregate_and_proof", 0.930572, 68.6255, 17.15638, 384),
        ("beacon_block", 0.97163, 2.0547574, 0.68491, 384),
        ("beacon_attestation_0", 0.96466, 69.88248, 4.367655, 204),
    ],
)
def test_ethereum_expects_mesh_deliveries_as_its_clients_do(
    kind: str, decay: float, cap: float, threshold: float, activation: float
) -> None:
    topic = ethereum_topic(kind)
    assert (
        topic.mesh_message_deliveries_decay,
        topic.mesh_message_deliveries_cap,
        topic.mesh_message_deliveries_threshold,
        topic.mesh_failure_penalty_decay,
    ) == pytest.approx((decay, cap, threshold, decay), rel=0, abs=0.00005)
    assert topic.mesh_message_deliveries_activation == activation


@pytest.mark.parametrize("kind", ["voluntary_exit", "attester_slashing", "proposer_slashing"])
def test_ethereum_expects_nothing_where_messages_are_rare(kind: str) -> None:
    topic = ethereum_topic(kind)
    assert topic.mesh_message_deliveries_weight == topic.mesh_failure_penalty_weight == 0


def test_ethereum_weighs_penalties_as_lighthouse_does() -> None:
    chosen = preset("ethereum")
    thresholds, params = chosen.thresholds, chosen.params
    assert (thresholds.gossip, thresholds.publish, thresholds.graylist) == (-4000, -8000, -16000)
    assert (thresholds.accept_px, thresholds.opportunistic_graft) == (100, 5)
    most = 50 * (0.5 + 0.5 + 1 + 3 * 0.05)  # all merits in all topics
    assert params.topic_score_cap == most / 2
    assert (params.ip_colocation_factor_weight, params.ip_colocation_factor_threshold) == (
        -most / 2,
        8,
    )
    assert (params.behaviour_penalty_threshold, params.decay_interval) == (6, 12)
    assert params.retain_score == 100 * 32 * 12
    # prysm's rounded numbers for the same: −15.92
    assert params.behaviour_penalty_weight == pytest.approx(-15.92, rel=0.005)
    assert len(params.topics) == 5 + 64
    for topic in params.topics.values():
        assert topic.invalid_message_deliveries_weight == -most / topic.topic_weight
        if topic.mesh_message_deliveries_weight:
            assert topic.mesh_message_deliveries_weight == -topic.topic_weight
            assert topic.mesh_failure_penalty_weight == -topic.topic_weight


def test_more_validators_mean_more_attestations_and_no_more_blocks() -> None:
    few, many = ethereum(VALIDATORS_AT_GENESIS).params, ethereum(1_000_000).params
    for name, topic in few.topics.items():
        now = many.topics[name].first_message_deliveries_cap
        if "attestation" in name or "aggregate" in name:
            assert now > topic.first_message_deliveries_cap
        else:
            assert now == topic.first_message_deliveries_cap


def test_paper2020_has_the_parameters_of_the_runs() -> None:
    chosen = preset("paper2020")
    assert chosen.params.topics == {"blocks": chosen.params.default_topic}
    assert chosen.params.topics["blocks"] == TopicScoreParams(
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
        mesh_message_deliveries_activation=60.0,
        mesh_message_deliveries_window=0.005,
        mesh_failure_penalty_weight=-0.25,
        mesh_failure_penalty_decay=0.997,
        invalid_message_deliveries_weight=-99.0,
        invalid_message_deliveries_decay=0.9994,
    )
    thresholds = chosen.thresholds
    assert (thresholds.gossip, thresholds.publish, thresholds.graylist) == (-4000, -5000, -10000)
    assert (thresholds.accept_px, thresholds.opportunistic_graft) == (0, 0)
    assert chosen.params.retain_score == 30
