"""Score thresholds: gossipsub-v1.1.md ("Score Thresholds") and LP-6420 §5.3 in one vocabulary.

| here         | specification      | LP-6420            | what happens below                |
|--------------|--------------------|--------------------|-----------------------------------|
| `gossip`     | gossipThreshold    | Gossip (0)         | no IHAVE or IWANT either way      |
| `publish`    | publishThreshold   | Publish (0)        | own messages are not sent to it   |
| `mesh`       | 0, fixed           | Graylist (−1000)   | out of the mesh, GRAFT refused    |
| `graylist`   | graylistThreshold  | Accept (−2500)     | its frames are ignored whole      |
| `disconnect` | –                  | Reject (−5000)     | disconnected, connections refused |
"""

import math

import msgspec

from bruit.topics.errors import ConfigError

# Below which a peer is treated worse. The other two thresholds are reached, not fallen below.
LIMITS = ("gossip", "publish", "mesh", "graylist", "disconnect")


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Below (or, for the last two, from) which score what happens to a peer."""

    gossip: float = 0.0
    publish: float = 0.0
    mesh: float = 0.0
    graylist: float = -1000.0  # guess: where no preset says otherwise
    disconnect: float = -math.inf  # never, as in the specification
    accept_px: float = 0.0  # from: its peer exchange is believed (guess; the paper ran with 0)
    opportunistic_graft: float = 0.0  # mesh median below: graft better peers (guess, as above)

    def above(self, score: float) -> tuple[str, ...]:
        """Which of LIMITS the score is below."""
        return tuple(name for name in LIMITS if score < getattr(self, name))

    def check(self, path: str = "scoring.thresholds") -> None:
        """Raise ConfigError naming the first value that breaks the order.

        ``publish ≤ gossip ≤ 0``, ``mesh ≤ 0``, ``graylist`` ≤ both, ``disconnect ≤
        graylist``, the last two ≥ 0 (go-libp2p-pubsub's rules; it has no others).
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) and not (name == "disconnect" and value == -math.inf):
                raise ConfigError(f"{path}.{name}", f"{value} must be a finite number")
        for name, limit in (
            ("gossip", None),
            ("publish", "gossip"),
            ("mesh", None),
            ("graylist", "publish"),
            ("graylist", "mesh"),
            ("disconnect", "graylist"),
        ):
            value, bound = getattr(self, name), 0.0 if limit is None else getattr(self, limit)
            if value > bound:
                rule = "≤ 0" if limit is None else f"≤ {limit} ({bound})"
                raise ConfigError(f"{path}.{name}", f"{value} must be {rule}")
        for name in ("accept_px", "opportunistic_graft"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{path}.{name}", f"{getattr(self, name)} must be ≥ 0")
