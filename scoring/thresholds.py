"""Score thresholds (libp2p specs, gossipsub-v1.1.md, "Score Thresholds"; LP-6420 §5.3)."""

import math

import msgspec

from bruit.topics.errors import ConfigError


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Below (or, for the last two, from) which score what happens to a peer."""

    gossip: float = 0.0  # below: no IHAVE or IWANT either way (LP-6420)
    publish: float = 0.0  # below: own messages are not sent to it (LP-6420)
    graylist: float = -1000.0  # below: its frames are dropped whole (LP-6420)
    accept_px: float = 0.0  # from: its peer exchange is believed (guess; the paper ran with 0)
    opportunistic_graft: float = 0.0  # mesh median below: graft better peers (guess, as above)

    def check(self, path: str = "scoring.thresholds") -> None:
        """Raise ConfigError naming the first value that breaks the specification's order."""
        for name in self.__struct_fields__:
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{path}.{name}", "must be a finite number")
        if self.gossip > 0:
            raise ConfigError(f"{path}.gossip", f"{self.gossip} must be ≤ 0")
        if self.publish > self.gossip:
            raise ConfigError(f"{path}.publish", f"{self.publish} must be ≤ gossip ({self.gossip})")
        if self.graylist > self.publish:
            raise ConfigError(
                f"{path}.graylist", f"{self.graylist} must be ≤ publish ({self.publish})"
            )
        for name in ("accept_px", "opportunistic_graft"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{path}.{name}", f"{getattr(self, name)} must be ≥ 0")
