"""Values at the border of what a parameter may be, as other implementations test them.

The values are those of go-libp2p-pubsub and nim-libp2p. Where nim is stricter
than we are, go is not, and a comment says so.
"""

import math
from typing import Any

import pytest

from bruit.node.gossip.params import GossipParams
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.thresholds import Thresholds
from bruit.topics.errors import ConfigError

INF, NAN = math.inf, math.nan
P1 = {"time_in_mesh_weight": 1.0}
P3 = {"mesh_message_deliveries_weight": -1.0}
P7 = {"behaviour_penalty_weight": -1.0}
SLOW = {"slow_peer_weight": -1.0}

# The router


@pytest.mark.parametrize(
    "params",
    [
        {"d": 8, "d_lo": 4, "d_out": 4},
        {"d": 5, "d_lo": 4, "d_out": 3},
        {"d": 6, "d_lo": 4, "d_out": 3},  # nim and the specification allow d / 2
        {"history_length": 0},
        {"history_gossip": -1},
    ],
    ids=str,
)
def test_these_values_of_the_router_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        GossipParams(**params).check()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"history_gossip": 0},
        {"unsubscribe_backoff": 1.0},
        {"unsubscribe_backoff": 0.0},  # nim refuses it
        {"iwant_followup": 1.0, "gossip_factor": 0.12},
    ],
    ids=str,
)
def test_these_values_of_the_router_are_accepted(params: dict[str, Any]) -> None:
    GossipParams(**params).check()


# Thresholds


def thresholds(*values: float) -> Thresholds:
    """Those for gossip, publishing and the graylist, then for peer exchange and grafting."""
    names = ("gossip", "publish", "graylist", "accept_px", "opportunistic_graft")
    return Thresholds(**dict(zip(names, values, strict=False)))


@pytest.mark.parametrize(
    "values",
    [
        (1.0,),
        (0.0, 1.0),
        (-1.0, 0.0),
        (-1.0, -2.0, 0.0),
        (0.0, 0.0, 0.0, -1.0),
        (0.0, 0.0, 0.0, 0.0, -1.0),
        (-INF, -2.0, -3.0, 1.0, 2.0),
        (-1.0, -INF, -3.0, 1.0, 2.0),
        (-1.0, -2.0, -INF, 1.0, 2.0),
        (-1.0, -2.0, -3.0, NAN, 2.0),
        (-1.0, -2.0, -3.0, 1.0, INF),
        (0.0, 0.0, 0.0, -0.1),
        (0.0, 0.0, 0.0, 0.0, -0.1),
    ],
    ids=str,
)
def test_these_thresholds_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError):
        thresholds(*values).check()


@pytest.mark.parametrize(
    "values",
    [
        (-1.0, -2.0, -3.0, 1.0, 2.0),
        (-0.1, -0.1),
        (-0.1, -1.1, -2.1),
        (0.0, 0.0, 0.0, 0.0, 0.0),  # nim refuses a gossip of 0, and equal ones
        (-1.0, -1.0, -1.0),
    ],
    ids=str,
)
def test_these_thresholds_are_accepted(values: tuple[float, ...]) -> None:
    thresholds(*values).check()


# How a peer counts


@pytest.mark.parametrize(
    "params",
    [
        {"decay_to_zero": 0.0},
        {"ip_colocation_factor_weight": 0.1},
        {"ip_colocation_factor_weight": -1.0, "ip_colocation_factor_threshold": 0.9},
        P7 | {"behaviour_penalty_decay": -0.1},
        P7 | {"behaviour_penalty_decay": 1.0},
        P7 | {"behaviour_penalty_decay": 0.0},  # nim accepts it
        {"slow_peer_weight": 0.1},
        {"slow_peer_threshold": -0.1},
        SLOW | {"slow_peer_decay": -0.1},
        SLOW | {"slow_peer_decay": 0.0},
        SLOW | {"slow_peer_decay": 1.0},
    ],
    ids=str,
)
def test_these_values_of_a_peer_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PeerScoreParams(**params).check()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"decay_to_zero": 0.51},  # nim refuses it
        {"decay_to_zero": 0.5},
        {"decay_to_zero": 0.00001},
        {"app_specific_weight": -0.1},  # nim refuses it
        {"app_specific_weight": 0.0},
        {"ip_colocation_factor_weight": 0.0},
        {"ip_colocation_factor_weight": -10.0},
        {"ip_colocation_factor_weight": -1.0, "ip_colocation_factor_threshold": 1},
        {"behaviour_penalty_weight": 0.0},  # nim refuses it
        {"behaviour_penalty_weight": -0.0001},
        P7 | {"behaviour_penalty_decay": 0.5},
        {"slow_peer_weight": 0.0},
        {"slow_peer_weight": -0.0001},
        SLOW | {"slow_peer_threshold": 0.0},
        SLOW | {"slow_peer_threshold": 1.0},
        SLOW | {"slow_peer_decay": 0.5},
    ],
    ids=str,
)
def test_these_values_of_a_peer_are_accepted(params: dict[str, Any]) -> None:
    PeerScoreParams(**params).check()


# How a topic counts


@pytest.mark.parametrize(
    "params",
    [
        P1 | {"time_in_mesh_cap": 0.0},
        P3 | {"mesh_message_deliveries_threshold": 0.0},
        P3 | {"mesh_message_deliveries_threshold": 10.0, "mesh_message_deliveries_cap": 9.0},
    ],
    ids=str,
)
def test_these_values_of_a_topic_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TopicScoreParams(**params).check()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"time_in_mesh_weight": 1.1},  # nim refuses it
        {"time_in_mesh_weight": 1.0},
        {"time_in_mesh_weight": 0.01},
        P1 | {"time_in_mesh_cap": 10.0},
        {"first_message_deliveries_weight": 1.0},
        {"mesh_message_deliveries_weight": -1.0},
        P3 | {"mesh_message_deliveries_threshold": 1.0},
        P3 | {"mesh_message_deliveries_threshold": 10.0, "mesh_message_deliveries_cap": 10.0},
        {"mesh_failure_penalty_weight": -1.0},
        {"invalid_message_deliveries_weight": -1.0},
        # nim refuses each of these: here it switches a term off
        {"time_in_mesh_weight": 0.0},
        {"first_message_deliveries_weight": 0.0},
        {"mesh_message_deliveries_weight": 0.0},
        {"mesh_failure_penalty_weight": 0.0},
        {"invalid_message_deliveries_weight": 0.0},
    ],
    ids=str,
)
def test_these_values_of_a_topic_are_accepted(params: dict[str, Any]) -> None:
    TopicScoreParams(**params).check()
