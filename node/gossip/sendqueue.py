"""The bounded queue of frames to one peer, for any driver.

Three lanes, served in the order of `Lane`; each holds a number of bytes, and a
frame that would exceed it is refused, never waited for. A lane that is empty
takes any one frame, however large. Messages can be taken out again by id
(IDONTWANT) for as long as they have not been popped.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from bruit.node.gossip.actions import Lane

DEFAULT_LIMITS = {  # bytes; guesses
    Lane.CONTROL: 1_048_576,  # a frame of the largest size that control is split into
    Lane.OWN: 16_777_216,  # 16 messages of the default maximum size
    Lane.FORWARD: 16_777_216,
}


class SendQueue:
    def __init__(self, limits: dict[Lane, int] | None = None) -> None:
        self._limits = limits or DEFAULT_LIMITS
        self._control: deque[bytes] = deque()
        # By message id: first in, first out, and removal of any in one step.
        self._messages: dict[Lane, OrderedDict[bytes, bytes]] = {
            Lane.OWN: OrderedDict(),
            Lane.FORWARD: OrderedDict(),
        }
        self._sizes = dict.fromkeys(Lane, 0)

    def push_control(self, frame: bytes) -> bool:
        """Queue a control frame. False, and nothing queued, where there is no room."""
        if not self.has_room(Lane.CONTROL, len(frame)):
            return False
        self._control.append(frame)
        self._sizes[Lane.CONTROL] += len(frame)
        return True

    def push_message(self, message_id: bytes, frame: bytes, lane: Lane) -> bool:
        """Queue a message; one that is queued already is not queued twice."""
        queue = self._messages[lane]
        if message_id in queue:
            return True
        if not self.has_room(lane, len(frame)):
            return False
        queue[message_id] = frame
        self._sizes[lane] += len(frame)
        return True

    def has_room(self, lane: Lane, size: int) -> bool:
        queued = self._sizes[lane]
        return not queued or queued + size <= self._limits[lane]

    def cancel(self, message_ids: Iterable[bytes]) -> int:
        """Take messages out. Returns how many were still there."""
        cancelled = 0
        for message_id in message_ids:
            for lane, queue in self._messages.items():
                frame = queue.pop(message_id, None)
                if frame is not None:
                    self._sizes[lane] -= len(frame)
                    cancelled += 1
        return cancelled

    def pop(self) -> bytes | None:
        """The next frame to send, or None."""
        if self._control:
            frame = self._control.popleft()
            self._sizes[Lane.CONTROL] -= len(frame)
            return frame
        for lane, queue in self._messages.items():
            if queue:
                frame = queue.popitem(last=False)[1]
                self._sizes[lane] -= len(frame)
                return frame
        return None

    @property
    def has_control(self) -> bool:
        """Whether `pop` gives a control frame next."""
        return bool(self._control)

    @property
    def byte_count(self) -> int:
        return sum(self._sizes.values())

    def __len__(self) -> int:
        """Frames."""
        return len(self._control) + sum(map(len, self._messages.values()))

    @property
    def empty(self) -> bool:
        return not self._control and not any(self._messages.values())
