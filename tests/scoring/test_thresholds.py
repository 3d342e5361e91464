"""Which thresholds are refused. The numbers are those of go's score_params_test.go."""

import math
from typing import Any

import msgspec
import pytest

from bruit.scoring.presets import PRESETS, preset
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError

INF = math.inf
NAN = math.nan

# Of go's testPeerScoreThresholdsValidation: the set that passes
VALID: dict[str, Any] = {
    "gossip": -1,
    "publish": -2,
    "graylist": -3,
    "accept_px": 1,
    "opportunistic_graft": 2,
}


def refused(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Thresholds(**values).check()
    return str(caught.value).removeprefix("scoring.thresholds.")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"gossip": 1}, "gossip: 1 must be ≤ 0"),
        ({"publish": 1}, "publish: 1 must be ≤ gossip (0.0)"),
        ({"gossip": -1, "publish": 0}, "publish: 0 must be ≤ gossip (-1)"),
        (
            {"gossip": -1, "publish": -2, "graylist": 0},
            "graylist: 0 must be ≤ publish (-2)",
        ),
        ({"accept_px": -1}, "accept_px: -1 must be ≥ 0"),
        ({"opportunistic_graft": -1}, "opportunistic_graft: -1 must be ≥ 0"),
        (VALID | {"gossip": -INF}, "gossip: -inf must be a finite number"),
        (VALID | {"publish": -INF}, "publish: -inf must be a finite number"),
        (VALID | {"graylist": -INF}, "graylist: -inf must be a finite number"),
        (VALID | {"accept_px": NAN}, "accept_px: nan must be a finite number"),
        (VALID | {"opportunistic_graft": INF}, "opportunistic_graft: inf must be a finite number"),
    ],
)
def test_thresholds_that_go_refuses_are_refused_with_path_value_and_rule(
    values: dict[str, Any], problem: str
) -> None:
    assert refused(**values) == problem


def test_the_thresholds_that_go_takes_pass() -> None:
    Thresholds(**VALID).check()


def test_thresholds_of_zero_pass_although_the_specification_wants_less() -> None:
    Thresholds(gossip=0, publish=0, mesh=0, graylist=0, disconnect=0).check()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"mesh": 0.5}, "mesh: 0.5 must be ≤ 0"),
        ({"mesh": -2000}, "graylist: -1000.0 must be ≤ mesh (-2000)"),
        ({"disconnect": -999}, "disconnect: -999 must be ≤ graylist (-1000.0)"),
        ({"disconnect": NAN}, "disconnect: nan must be a finite number"),
        ({"disconnect": INF}, "disconnect: inf must be a finite number"),
    ],
)
def test_the_thresholds_that_lp_6420_adds_are_held_to_their_order(
    values: dict[str, Any], problem: str
) -> None:
    assert refused(**values) == problem


def test_nobody_is_disconnected_for_a_score_unless_that_is_asked_for() -> None:
    thresholds = Thresholds()
    thresholds.check()
    assert thresholds.disconnect == -INF


def test_wrong_thresholds_are_named_where_they_were_set() -> None:
    with pytest.raises(ConfigError, match=r"^somewhere\.gossip: 1 "):
        Thresholds(gossip=1).check("somewhere")


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_thresholds_are_in_order(name: str) -> None:
    thresholds = preset(name).thresholds
    thresholds.check()
    ordered = [0.0, thresholds.gossip, thresholds.publish, thresholds.graylist]
    assert ordered == sorted(ordered, reverse=True)


def test_only_the_threshold_of_disconnection_may_be_infinite() -> None:
    for name in Thresholds.__struct_fields__:
        if name != "disconnect":
            wrong = msgspec.structs.replace(Thresholds(), **{name: -INF})
            with pytest.raises(ConfigError, match=f"{name}: -inf must be a finite"):
                wrong.check()
