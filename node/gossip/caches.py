"""What was seen, and what can still be asked for (gossipsub-v1.0.md, "Message Cache")."""

from collections import OrderedDict, deque

from bruit.topics.keys import PeerId


class SeenCache:
    """Ids seen within a time, counted from the first sight (go: FirstSeen strategy).

    At ``capacity`` ids the oldest is forgotten early.
    """

    def __init__(self, ttl: float, capacity: int) -> None:
        self._ttl = ttl
        self._capacity = capacity
        # In order of expiry, the TTL being the same for all. Not a dict: popping
        # its first key takes time proportional to the keys popped before.
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, message_id: bytes, now: float) -> None:
        self._until.setdefault(message_id, now + self._ttl)
        if len(self._until) > self._capacity:
            self._until.popitem(last=False)

    def expire(self, now: float) -> None:
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                return
            del self._until[oldest]

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._until

    def __len__(self) -> int:
        return len(self._until)


class MessageCache:
    """The messages of the last ``length`` heartbeats; those of ``gossip`` are advertised.

    Holds at most ``max_bytes`` of messages: beyond that the oldest go early.
    """

    def __init__(self, length: int, gossip: int, max_bytes: int) -> None:
        self._gossip = gossip
        self._max_bytes = max_bytes
        # Newest first; their values are topics.
        self._windows: deque[OrderedDict[bytes, str]] = deque(maxlen=length)
        self._windows.append(OrderedDict())
        self._served: dict[bytes, dict[PeerId, int]] = {}
        # Only the bytes as they came: parsed, a message would take twice the room.
        self._messages: dict[bytes, bytes] = {}
        self.bytes = 0

    def put(self, message_id: bytes, topic: str, raw: bytes) -> None:
        if message_id in self._messages:
            return
        self._windows[0][message_id] = topic
        self._messages[message_id] = raw
        self.bytes += len(raw)
        while self.bytes > self._max_bytes:
            oldest = next(window for window in reversed(self._windows) if window)
            self._forget(oldest, next(iter(oldest)))

    def ask(self, message_id: bytes, peer: PeerId) -> tuple[bytes | None, int]:
        """The message on the wire, and how often ``peer`` has now asked for it."""
        raw = self._messages.get(message_id)
        if raw is None:
            return None, 0
        served = self._served.setdefault(message_id, {})
        served[peer] = served.get(peer, 0) + 1
        return raw, served[peer]

    def gossip_ids(self) -> dict[str, list[bytes]]:
        """Ids to advertise on each topic, newest window first."""
        ids: dict[str, list[bytes]] = {}
        for window in list(self._windows)[: self._gossip]:
            for message_id, topic in window.items():
                if topic in ids:
                    ids[topic].append(message_id)
                else:
                    ids[topic] = [message_id]
        return ids

    def shift(self) -> None:
        """A heartbeat has passed: the oldest window goes, a new one begins."""
        if len(self._windows) == self._windows.maxlen:
            oldest = self._windows[-1]
            for message_id in list(oldest):
                self._forget(oldest, message_id)
        self._windows.appendleft(OrderedDict())

    def _forget(self, window: OrderedDict[bytes, str], message_id: bytes) -> None:
        del window[message_id]
        self.bytes -= len(self._messages.pop(message_id))
        self._served.pop(message_id, None)

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)
