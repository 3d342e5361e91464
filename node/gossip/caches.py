"""What was seen, and what can still be asked for (gossipsub-v1.0.md, "Message Cache")."""

from collections import OrderedDict, deque

from bruit.topics.keys import PeerId
from bruit.topics.message import Message


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
        self._windows: deque[OrderedDict[bytes, Message]] = deque(maxlen=length)  # newest first
        self._windows.append(OrderedDict())
        self._served: dict[bytes, dict[PeerId, int]] = {}
        self._messages: dict[bytes, Message] = {}
        self.bytes = 0

    def put(self, message_id: bytes, message: Message) -> None:
        if message_id in self._messages:
            return
        self._windows[0][message_id] = message
        self._messages[message_id] = message
        self.bytes += len(message.raw)
        while self.bytes > self._max_bytes:
            oldest = next(window for window in reversed(self._windows) if window)
            self._forget(oldest, next(iter(oldest)))

    def ask(self, message_id: bytes, peer: PeerId) -> tuple[Message | None, int]:
        """The message, and how often ``peer`` has now asked for it."""
        message = self._messages.get(message_id)
        if message is None:
            return None, 0
        served = self._served.setdefault(message_id, {})
        served[peer] = served.get(peer, 0) + 1
        return message, served[peer]

    def gossip_ids(self, topic: str) -> list[bytes]:
        """Ids to advertise on a topic, newest window first."""
        return [
            message_id
            for window in list(self._windows)[: self._gossip]
            for message_id, message in window.items()
            if message.topic == topic
        ]

    def shift(self) -> None:
        """A heartbeat has passed: the oldest window goes, a new one begins."""
        if len(self._windows) == self._windows.maxlen:
            oldest = self._windows[-1]
            for message_id in list(oldest):
                self._forget(oldest, message_id)
        self._windows.appendleft(OrderedDict())

    def _forget(self, window: OrderedDict[bytes, Message], message_id: bytes) -> None:
        self.bytes -= len(window.pop(message_id).raw)
        del self._messages[message_id]
        self._served.pop(message_id, None)

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)
