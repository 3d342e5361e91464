"""Cluster members that cheat: each stands in the place of a real member, and uses one.

They answer producers as the real one does, unless said otherwise, and do something else with the
chunks. `RelayNetwork.add` takes one as ``faulty``.
"""

from collections.abc import Callable, Sequence

import msgspec

from bruit.node.relay.actions import MemberAction, PassOn, PublishChunk, SetTimer
from bruit.node.relay.events import MemberEvent, Timer, TimerFired
from bruit.node.relay.member import Member
from bruit.node.relay.signing import CheckedChunk, sign

_REPLAY = "replay"  # timer


class Refusing:
    """Takes chunks, and neither acknowledges them nor passes them on."""

    def __init__(self, member: Member) -> None:
        pass

    def handle(self, event: MemberEvent, now: float) -> Sequence[MemberAction]:
        return []


class Dropping:
    """Acknowledges chunks, and passes nothing on."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def handle(self, event: MemberEvent, now: float) -> Sequence[MemberAction]:
        actions = self._member.handle(event, now)
        return [each for each in actions if not isinstance(each, PassOn | PublishChunk)]


class Rewriting:
    """Sends frames of its own making in place of the right ones."""

    def __init__(self, member: Member, rewrite: Callable[[CheckedChunk, bytes], bytes]) -> None:
        self._member = member
        self._rewrite = rewrite

    def handle(self, event: MemberEvent, now: float) -> Sequence[MemberAction]:
        published: bytes = b""
        actions: list[MemberAction] = []
        # The frame that is passed on is the one that is published right after.
        for action in reversed(self._member.handle(event, now)):
            if isinstance(action, PublishChunk):
                published = self._rewrite(action.checked, action.frame)
                actions.append(msgspec.structs.replace(action, frame=published))
            elif isinstance(action, PassOn):
                actions.append(msgspec.structs.replace(action, frame=published))
            else:
                actions.append(action)
        return actions[::-1]


def corrupting(member: Member) -> Rewriting:
    """Flips a bit of every chunk."""
    return Rewriting(member, lambda checked, frame: frame[:-1] + bytes((frame[-1] ^ 1,)))


def false_witness(stranger: bytes) -> Callable[[Member], Rewriting]:
    """Has chunks witnessed by ``stranger``, the private key of who is no member."""

    def rewrite(checked: CheckedChunk, frame: bytes) -> bytes:
        witness = sign(stranger, checked.message_hash)
        return msgspec.structs.replace(checked.frame, witness=witness).encode()

    return lambda member: Rewriting(member, rewrite)


class Replaying:
    """Does its work, and sends everything once more ``after`` seconds after its timestamp.

    With the witness of ``partner``, another member's private key: the same frame would be known.
    """

    def __init__(self, member: Member, partner: bytes, after: float) -> None:
        self._member = member
        self._partner = partner
        self._after = after
        self._kept: list[PublishChunk] = []

    def handle(self, event: MemberEvent, now: float) -> Sequence[MemberAction]:
        if isinstance(event, TimerFired) and event.timer.name == _REPLAY:
            kept, self._kept = self._kept, []
            return [self._witnessed_again(each) for each in kept]
        actions = self._member.handle(event, now)
        for action in tuple(actions):
            if isinstance(action, PublishChunk):
                if not self._kept:
                    at = action.checked.attested.timestamp + self._after
                    actions.append(SetTimer(Timer(_REPLAY, 0), at))
                self._kept.append(action)
        return actions

    def _witnessed_again(self, action: PublishChunk) -> PublishChunk:
        witness = sign(self._partner, action.checked.message_hash)
        frame = msgspec.structs.replace(action.checked.frame, witness=witness).encode()
        return msgspec.structs.replace(action, frame=frame)
