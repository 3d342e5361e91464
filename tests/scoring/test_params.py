"""What parameters are refused, decay factors, and the hash of a set.

The rows of go-libp2p-pubsub's score_params_test.go are here with its numbers. It
has a mode in which groups of parameters that are all zero are skipped; here what is
left out has a default that is off and valid, so that such a set passes as well.
"""

import math
import random
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from bruit.scoring.params import PeerScoreParams, TopicScoreParams, decay_factor, params_hash
from bruit.scoring.presets import preset
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError, LocalError

INF = math.inf
NAN = math.nan

# Of go's TestTopicScoreParamsValidation_ValidParams_AtomicValidation
VALID_TOPIC: dict[str, Any] = {
    "topic_weight": 1,
    "time_in_mesh_weight": 0.01,
    "time_in_mesh_quantum": 1,
    "time_in_mesh_cap": 10,
    "first_message_deliveries_weight": 1,
    "first_message_deliveries_decay": 0.5,
    "first_message_deliveries_cap": 10,
    "mesh_message_deliveries_weight": -1,
    "mesh_message_deliveries_decay": 0.5,
    "mesh_message_deliveries_cap": 10,
    "mesh_message_deliveries_threshold": 5,
    "mesh_message_deliveries_window": 0.001,
    "mesh_message_deliveries_activation": 1,
    "mesh_failure_penalty_weight": -1,
    "mesh_failure_penalty_decay": 0.5,
    "invalid_message_deliveries_weight": -1,
    "invalid_message_deliveries_decay": 0.5,
}
P3 = {"mesh_message_deliveries_weight": -1, "mesh_message_deliveries_decay": 0.5}
P6 = {"ip_colocation_factor_weight": -1, "ip_colocation_factor_threshold": 1}


def topic(**values: Any) -> TopicScoreParams:
    return TopicScoreParams(**values)


def refused_topic(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        topic(**values).check("t")
    return str(caught.value)


def refused_peer(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        PeerScoreParams(**values).check("scoring")
    return str(caught.value)


# Topics


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"topic_weight": -1}, "t.topic_weight: -1 must be ≥ 0"),
        ({"time_in_mesh_weight": -1}, "t.time_in_mesh_weight: -1 must be ≥ 0"),
        (
            {"time_in_mesh_weight": 1, "time_in_mesh_quantum": -1e-9},
            "t.time_in_mesh_quantum: -1e-09 must be > 0",
        ),
        (
            {"time_in_mesh_weight": 1, "time_in_mesh_cap": -1},
            "t.time_in_mesh_cap: -1 must be > 0",
        ),
        (
            {"first_message_deliveries_weight": -1},
            "t.first_message_deliveries_weight: -1 must be ≥ 0",
        ),
        (
            {"first_message_deliveries_weight": 1, "first_message_deliveries_decay": -1},
            "t.first_message_deliveries_decay: -1 must be between 0 and 1",
        ),
        (
            {"first_message_deliveries_weight": 1, "first_message_deliveries_decay": 2},
            "t.first_message_deliveries_decay: 2 must be between 0 and 1",
        ),
        (
            {"first_message_deliveries_weight": 1, "first_message_deliveries_cap": -1},
            "t.first_message_deliveries_cap: -1 must be > 0",
        ),
        (
            {"mesh_message_deliveries_weight": 1},
            "t.mesh_message_deliveries_weight: 1 must be ≤ 0",
        ),
        (
            P3 | {"mesh_message_deliveries_decay": -1},
            "t.mesh_message_deliveries_decay: -1 must be between 0 and 1",
        ),
        (
            P3 | {"mesh_message_deliveries_decay": 2},
            "t.mesh_message_deliveries_decay: 2 must be between 0 and 1",
        ),
        (
            P3 | {"mesh_message_deliveries_cap": -1},
            "t.mesh_message_deliveries_cap: -1 must be > 0",
        ),
        (
            P3 | {"mesh_message_deliveries_cap": 5, "mesh_message_deliveries_threshold": -3},
            "t.mesh_message_deliveries_threshold: -3 must be > 0",
        ),
        (
            P3
            | {
                "mesh_message_deliveries_cap": 5,
                "mesh_message_deliveries_threshold": 3,
                "mesh_message_deliveries_window": -1e-9,
            },
            "t.mesh_message_deliveries_window: -1e-09 must be ≥ 0",
        ),
        (
            P3
            | {
                "mesh_message_deliveries_cap": 5,
                "mesh_message_deliveries_threshold": 3,
                "mesh_message_deliveries_window": 0.001,
                "mesh_message_deliveries_activation": 0.001,
            },
            "t.mesh_message_deliveries_activation: 0.001 must be ≥ 1",
        ),
        ({"mesh_failure_penalty_weight": 1}, "t.mesh_failure_penalty_weight: 1 must be ≤ 0"),
        (
            {"mesh_failure_penalty_weight": -1, "mesh_failure_penalty_decay": -1},
            "t.mesh_failure_penalty_decay: -1 must be between 0 and 1",
        ),
        (
            {"mesh_failure_penalty_weight": -1, "mesh_failure_penalty_decay": 2},
            "t.mesh_failure_penalty_decay: 2 must be between 0 and 1",
        ),
        (
            {"invalid_message_deliveries_weight": 1},
            "t.invalid_message_deliveries_weight: 1 must be ≤ 0",
        ),
        (
            {"invalid_message_deliveries_weight": -1, "invalid_message_deliveries_decay": -1},
            "t.invalid_message_deliveries_decay: -1 must be between 0 and 1",
        ),
        (
            {"invalid_message_deliveries_weight": -1, "invalid_message_deliveries_decay": 2},
            "t.invalid_message_deliveries_decay: 2 must be between 0 and 1",
        ),
    ],
)
def test_a_wrong_value_of_a_topic_is_refused_with_its_path_and_rule(
    values: dict[str, Any], problem: str
) -> None:
    assert problem in refused_topic(**values)


def test_a_topic_in_which_every_number_is_zero_is_refused() -> None:
    zeros = dict.fromkeys(TopicScoreParams.__struct_fields__, 0.0)
    assert "t.time_in_mesh_quantum: 0.0 must be > 0" in refused_topic(**zeros)


def test_a_topic_of_which_nothing_is_said_passes_with_every_term_off() -> None:
    nothing = topic()
    nothing.check()
    weights = [
        name
        for name in nothing.__struct_fields__
        if name.endswith("_weight") and name != "topic_weight"
    ]
    assert len(weights) == 5  # P1, P2, P3, P3b, P4
    assert [getattr(nothing, name) for name in weights] == [0.0] * 5


def test_a_topic_with_every_term_on_passes() -> None:
    topic(**VALID_TOPIC).check()


def test_a_topic_passes_term_by_term_as_its_parameters_are_filled_in() -> None:
    filled: dict[str, Any] = {}
    for prefix in ("topic_", "time_", "first_", "mesh_message_", "mesh_failure_", "invalid_"):
        filled |= {name: value for name, value in VALID_TOPIC.items() if name.startswith(prefix)}
        topic(**filled).check()
    assert filled == VALID_TOPIC


@pytest.mark.parametrize(
    "values",
    [
        {"time_in_mesh_cap": -1},
        {"first_message_deliveries_decay": 2, "first_message_deliveries_cap": -1},
        {
            "mesh_message_deliveries_decay": 0,
            "mesh_message_deliveries_cap": 0,
            "mesh_message_deliveries_threshold": 0,
            "mesh_message_deliveries_activation": 0,
            "mesh_failure_penalty_decay": 0,
        },
    ],
)
def test_what_belongs_to_a_term_that_is_off_is_not_looked_at(values: dict[str, Any]) -> None:
    topic(**values).check()


def test_the_decay_of_invalid_messages_binds_even_where_they_do_not_count() -> None:
    assert "t.invalid_message_deliveries_decay" in refused_topic(
        invalid_message_deliveries_weight=0, invalid_message_deliveries_decay=1
    )


@pytest.mark.parametrize("weight", ["mesh_message_deliveries", "mesh_failure_penalty"])
def test_a_cap_of_mesh_deliveries_below_their_threshold_is_refused(weight: str) -> None:
    """Ours: go lets it pass, and then every peer is in deficit for ever."""
    problem = refused_topic(
        **{f"{weight}_weight": -1},
        mesh_message_deliveries_cap=4,
        mesh_message_deliveries_threshold=5,
    )
    assert problem.startswith(
        "t.mesh_message_deliveries_cap: 4 must be ≥ mesh_message_deliveries_threshold (5)"
    )


@pytest.mark.parametrize("name", TopicScoreParams.__struct_fields__)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_no_number_of_a_topic_is_infinite_or_none(name: str, value: float) -> None:
    assert f"t.{name}: {value} must be a finite number" in refused_topic(**{name: value})


# Peers


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"topic_score_cap": -1}, "topic_score_cap: -1 must be ≥ 0"),
        ({"ip_colocation_factor_weight": 1}, "ip_colocation_factor_weight: 1 must be ≤ 0"),
        (
            {"ip_colocation_factor_weight": -1, "ip_colocation_factor_threshold": -1},
            "ip_colocation_factor_threshold: -1 must be ≥ 1",
        ),
        (P6 | {"decay_interval": 0.001}, "decay_interval: 0.001 must be ≥ 1"),
        (P6 | {"decay_to_zero": -1}, "decay_to_zero: -1 must be between 0 and 1"),
        (P6 | {"decay_to_zero": 2}, "decay_to_zero: 2 must be between 0 and 1"),
        ({"behaviour_penalty_weight": 1}, "behaviour_penalty_weight: 1 must be ≤ 0"),
        (
            {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 0},
            "behaviour_penalty_decay: 0 must be between 0 and 1",
        ),
        (
            {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 2},
            "behaviour_penalty_decay: 2 must be between 0 and 1",
        ),
        ({"behaviour_penalty_threshold": -1}, "behaviour_penalty_threshold: -1 must be ≥ 0"),
        ({"slow_peer_weight": 0.1}, "slow_peer_weight: 0.1 must be ≤ 0"),
        ({"slow_peer_threshold": -1}, "slow_peer_threshold: -1 must be ≥ 0"),
        (
            {"slow_peer_weight": -1, "slow_peer_decay": 1},
            "slow_peer_decay: 1 must be between 0 and 1",
        ),
        ({"retain_score": -1}, "retain_score: -1 must be ≥ 0"),
        ({"seen_message_ttl": 0}, "seen_message_ttl: 0 must be > 0"),
    ],
)
def test_a_wrong_value_of_a_peer_is_refused_with_its_path_and_rule(
    values: dict[str, Any], problem: str
) -> None:
    assert refused_peer(**values).startswith(f"scoring.{problem}")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, default in msgspec.structs.asdict(PeerScoreParams()).items()
        if isinstance(default, float)
    ],
)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_no_number_of_a_peer_is_infinite_or_none(name: str, value: float) -> None:
    assert f"scoring.{name}: {value} must be a finite number" in refused_peer(**{name: value})


@pytest.mark.parametrize("block", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "", "::1/129"])
def test_a_whitelist_takes_cidr_blocks_only(block: str) -> None:
    problem = refused_peer(ip_colocation_factor_whitelist=("192.0.2.0/24", block))
    assert problem.startswith(
        f"scoring.ip_colocation_factor_whitelist[1]: {block!r} must be a CIDR block"
    )


@pytest.mark.parametrize(
    "whitelist", [(), ("192.0.2.0/24", "2001:db8::/32"), ("192.0.2.7",), ("0.0.0.0/0",)]
)
def test_whitelists_of_addresses_and_blocks_pass(whitelist: tuple[str, ...]) -> None:
    PeerScoreParams(ip_colocation_factor_whitelist=whitelist).check()


@pytest.mark.parametrize(
    "values",
    [
        P6 | {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 0.999},
        P6
        | {
            "behaviour_penalty_weight": -1,
            "behaviour_penalty_decay": 0.999,
            "topic_score_cap": 1,
        },
        P6 | {"topic_score_cap": 1, "topics": {"test": TopicScoreParams(**VALID_TOPIC)}},
    ],
)
def test_the_sets_that_go_takes_pass(values: dict[str, Any]) -> None:
    PeerScoreParams(**values, decay_interval=1, decay_to_zero=0.01).check()


def test_a_peer_of_which_nothing_is_said_passes_and_is_filled_in_term_by_term() -> None:
    filled: dict[str, Any] = {}
    for more in (
        {},
        {"topic_score_cap": 1},
        {"decay_interval": 1, "decay_to_zero": 0.01},
        P6,
        {"behaviour_penalty_weight": -1, "behaviour_penalty_decay": 0.999},
        {"topics": {"test": TopicScoreParams(**VALID_TOPIC)}},
    ):
        filled |= more
        PeerScoreParams(**filled).check()


@pytest.mark.parametrize(
    "values",
    [
        VALID_TOPIC | {"topic_weight": -1},
        VALID_TOPIC
        | {
            "topic_weight": INF,
            "time_in_mesh_weight": NAN,
            "first_message_deliveries_weight": INF,
            "mesh_message_deliveries_weight": -INF,
            "mesh_message_deliveries_decay": NAN,
            "mesh_message_deliveries_cap": INF,
            "mesh_failure_penalty_decay": NAN,
            "invalid_message_deliveries_weight": INF,
            "invalid_message_deliveries_decay": NAN,
        },
    ],
)
def test_a_wrong_topic_makes_the_whole_set_wrong_and_is_named(values: dict[str, Any]) -> None:
    problem = refused_peer(topics={"/lux/a": TopicScoreParams(**values)})
    assert problem.startswith('scoring.topics."/lux/a".topic_weight: ')


def test_the_path_of_a_topic_is_that_of_the_configuration_file() -> None:
    wrong = TopicScoreParams(**VALID_TOPIC | {"mesh_message_deliveries_cap": 1})
    problem = refused_peer(topics={'say "hé"\n': wrong})
    assert problem.startswith('scoring.topics."say \\"hé\\"\\n".mesh_message_deliveries_cap: 1 ')


def test_the_default_topic_is_checked_too() -> None:
    problem = refused_peer(default_topic=TopicScoreParams(topic_weight=-1))
    assert problem.startswith("scoring.default_topic.topic_weight: -1 ")


def test_several_wrong_numbers_of_a_peer_are_refused() -> None:
    problem = refused_peer(
        decay_to_zero=INF,
        ip_colocation_factor_weight=-INF,
        behaviour_penalty_weight=INF,
        behaviour_penalty_decay=NAN,
    )
    assert "must be a finite number" in problem


def test_a_topic_that_is_not_named_counts_as_the_default_says() -> None:
    named, default = TopicScoreParams(topic_weight=2), TopicScoreParams(topic_weight=3)
    params = PeerScoreParams(topics={"a": named}, default_topic=default)
    assert (params.topic("a"), params.topic("b")) == (named, default)
    assert PeerScoreParams(topics={"a": named}).topic("b") is None


# Decay factors


def test_a_decay_over_an_hour_is_what_go_computes() -> None:
    assert decay_factor(3600) == 0.9987216039048303  # go: TestScoreParameterDecay


def test_a_decay_takes_one_to_its_end_in_its_time() -> None:
    counter = 1.0
    for _ in range(160):  # lighthouse: 5 epochs in slots
        counter *= decay_factor(160 * 12, interval=12)
    assert counter == pytest.approx(0.01)
    assert decay_factor(10, to_zero=0.5) ** 10 == pytest.approx(0.5)


def test_part_of_an_interval_does_not_count_as_in_go() -> None:
    assert decay_factor(23.9, interval=12) == decay_factor(12, interval=12) == 0.01


@pytest.mark.parametrize(("seconds", "interval"), [(0.5, 1), (0, 1), (-1, 1), (5, 12), (NAN, 1)])
def test_a_decay_shorter_than_an_interval_is_refused(seconds: float, interval: float) -> None:
    with pytest.raises(LocalError, match="cannot be a decay time"):
        decay_factor(seconds, interval)


# The hash of a set


def test_the_order_in_which_topics_are_named_does_not_change_the_hash() -> None:
    ethereum = preset("ethereum")
    names = list(ethereum.params.topics)
    random.Random(7).shuffle(names)
    shuffled = msgspec.structs.replace(
        ethereum.params, topics={name: ethereum.params.topics[name] for name in names}
    )
    assert list(shuffled.topics) != list(ethereum.params.topics)
    assert params_hash(shuffled, ethereum.thresholds) == params_hash(
        ethereum.params, ethereum.thresholds
    )


@pytest.mark.parametrize(
    ("params", "thresholds"),
    [
        (PeerScoreParams(retain_score=3601.0), Thresholds()),
        (PeerScoreParams(topics={"a": TopicScoreParams()}), Thresholds()),
        (PeerScoreParams(default_topic=TopicScoreParams()), Thresholds()),
        (PeerScoreParams(), Thresholds(graylist=-1001.0)),
        (PeerScoreParams(), Thresholds(disconnect=-5000.0)),
    ],
)
def test_whatever_is_different_changes_the_hash(
    params: PeerScoreParams, thresholds: Thresholds
) -> None:
    assert params_hash(params, thresholds) != params_hash(PeerScoreParams(), Thresholds())


def test_the_hash_is_the_same_in_every_run() -> None:
    program = (
        "from bruit.scoring.params import params_hash\n"
        "from bruit.scoring.presets import preset\n"
        "p = preset('filecoin'); print(params_hash(p.params, p.thresholds))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    filecoin = preset("filecoin")
    assert hashes == {params_hash(filecoin.params, filecoin.thresholds) + "\n"}


def test_whole_numbers_and_numbers_have_one_hash() -> None:
    whole = PeerScoreParams(retain_score=60, topics={"a": TopicScoreParams(topic_weight=2)})
    same = PeerScoreParams(retain_score=60.0, topics={"a": TopicScoreParams(topic_weight=2.0)})
    assert params_hash(whole, Thresholds(graylist=-9)) == params_hash(
        same, Thresholds(graylist=-9.0)
    )
