"""The queue of frames to one peer, held against a model of three plain lists."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bruit.node.gossip.actions import Lane
from bruit.node.gossip.sendqueue import DEFAULT_LIMITS, SendQueue

LIMITS = {Lane.CONTROL: 40, Lane.OWN: 60, Lane.FORWARD: 50}
ids = st.integers(0, 9).map(lambda number: b"id %d" % number)
frames = st.binary(min_size=1, max_size=70)
message_lanes = st.sampled_from([Lane.OWN, Lane.FORWARD])


class QueueAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = SendQueue(LIMITS)
        self.model: dict[Lane, list[tuple[bytes, bytes]]] = {lane: [] for lane in Lane}

    def fits(self, lane: Lane, frame: bytes) -> bool:
        queued = sum(len(each) for _, each in self.model[lane])
        return queued == 0 or queued + len(frame) <= LIMITS[lane]

    @rule(frame=frames)
    def push_control(self, frame: bytes) -> None:
        fits = self.fits(Lane.CONTROL, frame)
        assert self.queue.has_room(Lane.CONTROL, len(frame)) == fits
        assert self.queue.push_control(frame) == fits
        if fits:
            self.model[Lane.CONTROL].append((b"", frame))

    @rule(message_id=ids, frame=frames, lane=message_lanes)
    def push_message(self, message_id: bytes, frame: bytes, lane: Lane) -> None:
        queued = message_id in dict(self.model[lane])
        fits = self.fits(lane, frame)
        assert self.queue.push_message(message_id, frame, lane) == (queued or fits)
        if fits and not queued:
            self.model[lane].append((message_id, frame))

    @rule(message_ids=st.lists(ids, max_size=4))
    def cancel(self, message_ids: list[bytes]) -> None:
        before = sum(map(len, self.model.values()))
        for lane in (Lane.OWN, Lane.FORWARD):
            self.model[lane] = [each for each in self.model[lane] if each[0] not in message_ids]
        gone = before - sum(map(len, self.model.values()))
        assert self.queue.cancel(message_ids) == gone

    @rule()
    def pop(self) -> None:
        lanes = [self.model[lane] for lane in (Lane.CONTROL, Lane.OWN, Lane.FORWARD)]
        waiting = [lane for lane in lanes if lane]
        assert self.queue.pop() == (waiting[0].pop(0)[1] if waiting else None)

    @invariant()
    def as_much_is_queued(self) -> None:
        queued = [frame for lane in self.model.values() for _, frame in lane]
        assert self.queue.byte_count == sum(map(len, queued))
        assert self.queue.empty == (not queued)
        assert self.queue.has_control == bool(self.model[Lane.CONTROL])


def test_a_queue_does_what_three_lists_do() -> None:
    run_state_machine_as_test(
        QueueAgainstModel, settings=settings(max_examples=60, stateful_step_count=50, deadline=None)
    )


def test_control_goes_before_own_publications_and_those_before_what_is_forwarded() -> None:
    queue = SendQueue()
    queue.push_message(b"1", b"forwarded", Lane.FORWARD)
    queue.push_message(b"2", b"own", Lane.OWN)
    queue.push_control(b"control")
    assert [queue.pop() for _ in range(4)] == [b"control", b"own", b"forwarded", None]


def test_a_lane_that_is_empty_takes_one_frame_however_large() -> None:
    for lane in (Lane.OWN, Lane.FORWARD):
        queue = SendQueue()
        giant = bytes(DEFAULT_LIMITS[lane] + 1)
        assert queue.push_message(b"giant", giant, lane)
        assert not queue.push_message(b"small", b"x", lane)
        assert queue.pop() == giant
        assert queue.push_message(b"small", b"x", lane)


def test_a_full_lane_leaves_the_others_their_room() -> None:
    queue = SendQueue(LIMITS)
    assert queue.push_message(b"1", bytes(50), Lane.FORWARD)
    assert not queue.push_message(b"2", b"x", Lane.FORWARD)
    assert queue.push_message(b"2", bytes(60), Lane.OWN)
    assert queue.push_control(bytes(40))
    assert not queue.push_control(b"x")


@given(st.lists(st.tuples(ids, frames), max_size=30))
def test_no_lane_holds_more_than_its_limit_or_one_frame(pushed: list[tuple[bytes, bytes]]) -> None:
    queue = SendQueue(LIMITS)
    for message_id, frame in pushed:
        queue.push_message(message_id, frame, Lane.FORWARD)
    sizes = []
    while frame_out := queue.pop():
        sizes.append(len(frame_out))
    assert len(sizes) <= 1 or sum(sizes) <= LIMITS[Lane.FORWARD]
