"""bruit: a gossipsub node that blockchains plug into.

    from bruit import Node

    async with Node("bruit.toml") as node:
        async with node.subscribe("/lux/mainnet/relay/blocks/proposed") as blocks:
            async for block in blocks:
                print(block.topic, len(block.data), block.facts)

What stands here is the public API; everything else may change between releases.
Names are imported when first used, so that a job which needs one room does not
load the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bruit.node.config import NetworkConfig, NodeConfig, TopicConfig, load_config
    from bruit.node.net.driver import Outcome
    from bruit.node.node import Node
    from bruit.node.reports import (
        ConnectionRefused,
        DialFailed,
        NodeReport,
        PluginFailed,
        ScoreCrossed,
    )
    from bruit.node.statistics import NodeStatistics, PeerInfo
    from bruit.node.subscription import Received, Subscription
    from bruit.plugins.hookspecs import hookimpl
    from bruit.scoring.params import TopicScoreParams
    from bruit.topics.errors import BruitError, ConfigError, LocalError, PluginError, RemoteError
    from bruit.topics.validation import Validation, Verdict

_HOMES = {
    "BruitError": "topics.errors",
    "ConfigError": "topics.errors",
    "ConnectionRefused": "node.reports",
    "DialFailed": "node.reports",
    "LocalError": "topics.errors",
    "NetworkConfig": "node.config",
    "Node": "node.node",
    "NodeConfig": "node.config",
    "NodeReport": "node.reports",
    "NodeStatistics": "node.statistics",
    "Outcome": "node.net.driver",
    "PeerInfo": "node.statistics",
    "PluginError": "topics.errors",
    "PluginFailed": "node.reports",
    "Received": "node.subscription",
    "RemoteError": "topics.errors",
    "ScoreCrossed": "node.reports",
    "Subscription": "node.subscription",
    "TopicConfig": "node.config",
    "TopicScoreParams": "scoring.params",
    "Validation": "topics.validation",
    "Verdict": "topics.validation",
    "hookimpl": "plugins.hookspecs",
    "load_config": "node.config",
}

__all__ = [
    "BruitError",
    "ConfigError",
    "ConnectionRefused",
    "DialFailed",
    "LocalError",
    "NetworkConfig",
    "Node",
    "NodeConfig",
    "NodeReport",
    "NodeStatistics",
    "Outcome",
    "PeerInfo",
    "PluginError",
    "PluginFailed",
    "Received",
    "RemoteError",
    "ScoreCrossed",
    "Subscription",
    "TopicConfig",
    "TopicScoreParams",
    "Validation",
    "Verdict",
    "hookimpl",
    "load_config",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"bruit.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bruit' has no attribute {name!r}")
