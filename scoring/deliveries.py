"""What became of a message, and who else sent it: whom P3 and P4 count for.

A message is UNKNOWN while it is judged, and then one of the other states for good.
Records are kept as long as messages are remembered as seen, which is how long a
copy can be told from a new message (go-libp2p-pubsub: score.go, messageDeliveries).
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum

import msgspec

from bruit.topics.keys import PeerId

MAX_RECORDS = 1_000_000  # guess; the oldest go first


class Delivery(Enum):
    """What became of a message."""

    UNKNOWN = "unknown"  # it is being judged
    VALID = "valid"
    INVALID = "invalid"
    IGNORED = "ignored"
    THROTTLED = "throttled"


class Record(msgspec.Struct, gc=False):
    """One message. ``peers`` sent it: those who are not to count again."""

    expires: float
    state: Delivery = Delivery.UNKNOWN
    validated: float = 0.0  # seconds, where it is VALID
    peers: dict[PeerId, None] = {}


class Deliveries:
    """Records by message id, until the first `sweep` after ``ttl`` seconds. Times never go back."""

    def __init__(self, ttl: float, limit: int = MAX_RECORDS) -> None:
        self._ttl = ttl
        self._limit = limit
        # In the order in which they expire. (The first item of a plain dict, from which others
        # were deleted before, is found only by passing all of their places.)
        self._records: OrderedDict[bytes, Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def record(self, message_id: bytes, now: float) -> Record:
        """The record of a message, a new one where there is none."""
        record = self._records.get(message_id)
        if record is None:
            if len(self._records) >= self._limit:
                self._records.popitem(last=False)
            record = self._records[message_id] = Record(now + self._ttl)
        return record

    def valid(self, message_id: bytes, sender: PeerId, now: float) -> Iterable[PeerId]:
        """The message proved valid; who else sent it meanwhile, none where that is known.

        The sender is not to count again either when it sends another copy.
        """
        record = self.record(message_id, now)
        if record.state is not Delivery.UNKNOWN:
            return ()
        record.state = Delivery.VALID
        record.validated = now
        others = [peer for peer in record.peers if peer != sender]
        record.peers[sender] = None
        return others

    def invalid(self, message_id: bytes, sender: PeerId, now: float) -> Iterable[PeerId]:
        """The message proved invalid; all who sent it, none where that is known."""
        record = self.record(message_id, now)
        if record.state is not Delivery.UNKNOWN:
            return ()
        senders = {sender: None, **record.peers}
        record.state = Delivery.INVALID
        record.peers = {}
        return senders

    def let_go(self, message_id: bytes, state: Delivery, now: float) -> None:
        """The message is IGNORED or THROTTLED, and held against nobody."""
        record = self.record(message_id, now)
        if record.state is Delivery.UNKNOWN:
            record.state = state
            record.peers = {}

    def copy(self, message_id: bytes, peer: PeerId, now: float) -> Record | None:
        """The record of a VALID or INVALID message whose copy from ``peer`` may count now."""
        record = self.record(message_id, now)
        if record.state is Delivery.INVALID:
            return record
        if record.state in (Delivery.IGNORED, Delivery.THROTTLED) or peer in record.peers:
            return None
        record.peers[peer] = None
        return record if record.state is Delivery.VALID else None

    def sweep(self, now: float) -> None:
        """Drop what has expired. (go does once a minute, and much at a time.)"""
        while self._records and now > next(iter(self._records.values())).expires:
            self._records.popitem(last=False)
