"""What an operator decides: from TOML, environment and flags, checked before anything starts."""

from bruit.node.config.load import Loaded, Override, load_config, located, set_override
from bruit.node.config.relay import ChannelConfig, RelayConfig
from bruit.node.config.schema import NetworkConfig, NodeConfig, TopicConfig, router_config
from bruit.node.config.scoring import ScoringConfig, scoring_of

__all__ = [
    "ChannelConfig",
    "Loaded",
    "NetworkConfig",
    "NodeConfig",
    "Override",
    "RelayConfig",
    "ScoringConfig",
    "TopicConfig",
    "load_config",
    "located",
    "router_config",
    "scoring_of",
    "set_override",
]
