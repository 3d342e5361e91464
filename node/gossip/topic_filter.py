"""Which topics we take note of when peers say what they are subscribed to.

Without a filter, peers fill our tables with names of their own making. The
rule for the subscriptions of one frame is that of go-libp2p-pubsub
(subscription_filter.go) and rust-libp2p (subscription_filter.rs).
"""

from collections.abc import Iterable

from bruit.node.gossip.params import MAX_SUBSCRIPTIONS_PER_RPC
from bruit.topics.errors import ConfigError, LocalError, RemoteError
from bruit.topics.names import check_topic


class TopicFilter:
    """An allow-list of names and patterns, in which ``*`` stands for any text, even none.

    No other character is special, so that every topic can be named. A look-up
    takes time proportional to the patterns and the topic: nothing is tried twice.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        limit: int = MAX_SUBSCRIPTIONS_PER_RPC,
        path: str = "gossip.topic_filter",
    ) -> None:
        """``limit``: subscriptions taken in one frame. Raises ConfigError for an impossible one."""
        self._limit = limit
        self._names: dict[str, None] = {}
        self._patterns: list[list[str]] = []  # what stands before, between and after the stars
        for pattern in patterns:
            try:
                check_topic(pattern)
            except LocalError as problem:
                raise ConfigError(path, str(problem)) from None
            if "*" in pattern:
                self._patterns.append(pattern.split("*"))
            else:
                self._names[pattern] = None
        if limit < 1:
            raise ConfigError(path, f"a limit of {limit} subscriptions in a frame: allow 1 or more")

    def allows(self, topic: str) -> bool:
        return topic in self._names or any(_matches(parts, topic) for parts in self._patterns)

    def subscriptions(self, said: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
        """What to note of ``said``, the (topic, subscribes) of one frame, in its order.

        Topics not allowed are left out, repetitions too. A contradiction takes
        back what it contradicts and says nothing itself. Raises RemoteError, and
        nothing is to be noted, where more than the limit is said.
        """
        if len(said) > self._limit:
            raise RemoteError(f"{len(said)} subscriptions in a frame: the limit is {self._limit}")
        noted: dict[str, bool] = {}
        for topic, subscribes in said:
            if noted.get(topic, subscribes) != subscribes:
                del noted[topic]
            elif self.allows(topic):
                noted[topic] = subscribes
        return list(noted.items())


def _matches(parts: list[str], topic: str) -> bool:
    """Whether the first part begins the topic, the last ends it, and the others lie between."""
    first, *middle, last = parts
    if len(first) + len(last) > len(topic):
        return False
    if not (topic.startswith(first) and topic.endswith(last)):
        return False
    place, end = len(first), len(topic) - len(last)
    for part in middle:
        found = topic.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True
