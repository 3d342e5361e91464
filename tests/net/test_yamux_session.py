"""yamux without sockets: windows against an obvious model, and peers that break the rules."""

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bruit.node.net.yamux_session import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    HEADER_SIZE,
    INITIAL_WINDOW,
    MAX_BODY,
    MAX_GROWTH,
    MAX_INCOMING,
    MAX_LINGERING,
    MAX_OUTGOING,
    MAX_PONGS,
    MAX_QUEUED,
    MAX_REFUSALS,
    MAX_UNREAD,
    MAX_WINDOW,
    NORMAL,
    PING,
    PROTOCOL_ERROR,
    ROOM,
    RST,
    SYN,
    WINDOW_UPDATE,
    Flow,
    ProtocolViolationError,
    Session,
    SessionEndedError,
)

Frame = tuple[int, int, int, int]  # type, flags, stream, length


def frame(kind: int, flags: int = 0, stream: int = 0, length: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream, length or len(body)) + body


def data(stream: int, body: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream, body=body)


def update(stream: int, flags: int = 0, length: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, flags, stream, length)


def written(session: Session) -> bytes:
    return b"".join(session.take())


def frames(wire: bytes) -> list[Frame]:
    """What is on the wire, without the bodies."""
    found: list[Frame] = []
    while wire:
        version, *fields = struct.unpack_from(">BBHII", wire)
        assert version == 0
        kind, flags, stream, length = fields
        found.append((kind, flags, stream, length))
        wire = wire[HEADER_SIZE + (length if kind == DATA else 0) :]
    return found


def server() -> Session:
    return Session(is_initiator=False)


def accepted(session: Session, stream: int = 1) -> Flow:
    """A stream that the peer opened."""
    session.receive(update(stream, SYN))
    return session.accepted.popleft()


def pump(*ends: Session) -> None:
    """Carry everything, until nobody has anything to say."""
    while any(end.waiting for end in ends):
        for end, other in (ends, ends[::-1]):
            other.receive(written(end))


# Frames


def test_a_stream_is_opened_used_and_ended() -> None:
    ours, theirs = Session(is_initiator=True), server()
    flow = ours.open()
    assert ours.write(flow, memoryview(b"question")) == 8
    ours.close(flow)
    wire = written(ours)
    assert frames(wire) == [
        (WINDOW_UPDATE, SYN, 1, 0),
        (DATA, 0, 1, 8),
        (WINDOW_UPDATE, FIN, 1, 0),
    ]
    theirs.receive(wire)
    other = theirs.accepted.popleft()
    assert theirs.read(other, 100) == b"question"
    assert other.ended
    assert not other.gone
    theirs.write(other, memoryview(b"answer"))
    theirs.close(other)
    wire = written(theirs)
    assert frames(wire) == [(DATA, 0, 1, 6), (WINDOW_UPDATE, FIN, 1, 0)]
    ours.receive(wire)
    assert flow.gone
    assert ours.read(flow, 100) == b"answer"
    for session in (ours, theirs):
        assert not session.flows
        assert (session.incoming, session.outgoing, session.unread) == (0, 0, 0)


def test_each_side_numbers_its_streams() -> None:
    for initiator, ids in ((True, [1, 3, 5]), (False, [2, 4, 6])):
        session = Session(initiator)
        assert [session.open().id for _ in range(3)] == ids


def test_an_accepted_stream_is_acknowledged_once() -> None:
    session = server()
    flow = accepted(session)
    assert frames(written(session)) == [(WINDOW_UPDATE, ACK, 1, 0)]
    session.receive(data(1, bytes(INITIAL_WINDOW)))
    session.read(flow, INITIAL_WINDOW)
    assert [flags for _, flags, _, _ in frames(written(session))] == [0]


def test_a_long_write_is_cut_into_frames_of_one_record() -> None:
    session = Session(is_initiator=True)
    flow = session.open()
    written(session)
    assert session.write(flow, memoryview(bytes(2 * MAX_BODY + 5))) == 2 * MAX_BODY + 5
    assert [length for *_, length in frames(written(session))] == [MAX_BODY, MAX_BODY, 5]


@given(
    bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 1000), max_size=30),
)
def test_frames_may_be_cut_anywhere(bodies: list[bytes], cuts: list[int]) -> None:
    wire = update(1, SYN) + b"".join(data(1, body) for body in bodies) + update(1, FIN)
    session = server()
    places = sorted({cut % len(wire) for cut in cuts} | {0, len(wire)})
    begun = sum(session.receive(wire[start:end]) for start, end in pairwise(places))
    assert begun == len(bodies) + 2
    flow = session.accepted.popleft()
    assert session.read(flow, 10_000) == b"".join(bodies)
    assert flow.ended


def test_what_arrives_is_readable_before_its_frame_is_whole() -> None:
    session = server()
    session.receive(data(1, b"0123456789", SYN)[:-5])
    flow = session.accepted.popleft()
    assert session.read(flow, 3) == b"012"
    assert session.read(flow, 100) == b"34"


@pytest.mark.parametrize("flags", [SYN | FIN, SYN | RST])
def test_a_stream_may_end_as_it_begins(flags: int) -> None:
    session = server()
    session.receive(data(1, b"all", flags))
    flow = session.accepted.popleft()
    assert flow.ended == (flags == SYN | FIN)
    assert flow.reset == (flags == SYN | RST)
    assert session.read(flow, 10) == (b"all" if flags & FIN else b"")
    assert session.incoming == (1 if flags & FIN else 0)


def test_a_reset_ends_both_halves_and_forgets_what_was_unread() -> None:
    ours, theirs = Session(is_initiator=True), server()
    flow = ours.open()
    ours.write(flow, memoryview(b"data"))
    pump(ours, theirs)
    other = theirs.accepted.popleft()
    theirs.reset(other)
    theirs.reset(other)
    assert theirs.unread == 0
    wire = written(theirs)
    assert frames(wire) == [(WINDOW_UPDATE, RST, 1, 0)]
    ours.receive(wire)
    assert flow.reset
    assert flow.gone
    ours.close(flow)
    ours.reset(flow)
    assert not ours.waiting


def test_what_was_under_way_to_a_stream_that_is_gone_is_dropped() -> None:
    session = server()
    flow = accepted(session)
    session.receive(data(1, b"the first half and")[:-4])
    session.reset(flow)
    written(session)
    session.receive(b" and" + data(1, b"more") + update(1, 0, 5) + update(1, FIN) + update(1, RST))
    assert not session.waiting
    assert session.read(flow, 100) == b""
    assert accepted(session, 3).id == 3  # and the connection goes on


def test_a_stream_that_was_reset_within_its_last_frame_ends_once() -> None:
    session = server()
    flow = accepted(session)
    wire = data(1, b"the last", FIN)
    session.receive(wire[:-4])
    session.close(flow)
    session.reset(flow)
    session.receive(wire[-4:])
    assert session.incoming == 0


def test_what_a_peer_writes_after_its_end_is_dropped() -> None:
    session = server()
    session.receive(data(1, b"all", SYN | FIN) + data(1, b" and more") + data(1, b"", RST))
    flow = session.accepted.popleft()
    assert session.read(flow, 100) == b"all"
    assert flow.window == INITIAL_WINDOW - 3


def test_the_end_of_the_session_leaves_what_was_read_to_be_read() -> None:
    session = server()
    flow = accepted(session)
    session.receive(data(1, b"the last"))
    session.fail()
    assert flow.lost
    assert not flow.reset
    assert session.read(flow, 3) == b"the"
    session.fail()
    assert session.read(flow, 100) == b" last"
    assert (session.incoming, session.unread) == (0, 0)


def test_going_away_comes_last_and_once() -> None:
    session = Session(is_initiator=True)
    session.write(session.open(), memoryview(b"data"))
    session.go_away(PROTOCOL_ERROR)
    session.go_away(NORMAL)
    kinds = [(kind, length) for kind, _, _, length in frames(written(session))]
    assert kinds == [(WINDOW_UPDATE, 0), (DATA, 4), (GO_AWAY, PROTOCOL_ERROR)]


@pytest.mark.parametrize("code", [NORMAL, PROTOCOL_ERROR, 2, 4101])
def test_a_peer_that_goes_away_ends_the_session(code: int) -> None:
    with pytest.raises(SessionEndedError):
        server().receive(frame(GO_AWAY, length=code))


# Windows


def test_a_window_is_raised_when_half_of_it_is_used_and_doubles() -> None:
    session = server()
    flow = accepted(session)
    written(session)
    session.receive(data(1, bytes(INITIAL_WINDOW // 2 - 1)))
    session.read(flow, INITIAL_WINDOW)
    assert not session.waiting
    session.receive(data(1, b"0"))
    assert not session.waiting  # it arrived, but nobody has read it
    session.read(flow, 1)
    grown = INITIAL_WINDOW // 2 + INITIAL_WINDOW
    assert frames(written(session)) == [(WINDOW_UPDATE, 0, 1, grown)]
    assert flow.window == flow.target == 2 * INITIAL_WINDOW


def fill(session: Session, flow: Flow) -> None:
    """Write as much as the peer may."""
    while flow.window:
        session.receive(data(flow.id, bytes(min(flow.window, 2**20))))


def test_windows_grow_to_their_limit_each_and_together() -> None:
    session = server()
    flows = [accepted(session, stream) for stream in (1, 3, 5, 7)]
    for flow in flows:
        for _ in range(8):
            fill(session, flow)
            session.read(flow, MAX_WINDOW)
    assert [flow.window for flow in flows[:2]] == [MAX_WINDOW] * 2
    assert session.growth == sum(flow.target - INITIAL_WINDOW for flow in flows) == MAX_GROWTH
    for flow in flows:
        session.reset(flow)
    assert session.growth == 0


def test_nobody_is_invited_to_write_on_a_stream_that_has_ended() -> None:
    session = server()
    flow = accepted(session)
    written(session)
    session.receive(data(1, bytes(INITIAL_WINDOW), FIN))
    session.read(flow, INITIAL_WINDOW)
    assert not session.waiting


def test_writing_stops_at_the_window_and_at_the_queue() -> None:
    session = Session(is_initiator=True)
    first, second = session.open(), session.open()
    written(session)
    session.receive(update(1, ACK, 2**32 - 1) + update(3, ACK))
    assert ROOM <= session.write(first, memoryview(bytes(2 * ROOM))) <= ROOM + MAX_BODY
    assert session.write(second, memoryview(b"data")) == 0  # no room
    written(session)
    assert session.write(second, memoryview(bytes(INITIAL_WINDOW))) == INITIAL_WINDOW
    written(session)
    assert session.write(second, memoryview(b"data")) == 0  # no window


class Windows(RuleBasedStateMachine):
    """Two sessions, a pipe each way that hands on any number of bytes, and what it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = Session(is_initiator=True), server()
        self.pipes = bytearray(), bytearray()  # from each end
        self.flows: list[list[Flow | None]] = []  # of a stream, at each end
        self.sent: list[list[bytearray]] = []
        self.got: list[list[bytearray]] = []
        self.finished: list[list[bool]] = []
        self.broken: set[int] = set()
        self.counter = 0

    @initialize()
    def begin(self) -> None:
        self.open_stream(0)

    @rule(end=st.integers(0, 1))
    def open_stream(self, end: int) -> None:
        if len(self.flows) < 6:
            flow = self.ends[end].open()
            self.flows.append([flow, None] if end == 0 else [None, flow])
            self.sent.append([bytearray(), bytearray()])
            self.got.append([bytearray(), bytearray()])
            self.finished.append([False, False])

    def pick(self, number: int) -> int:
        return number % len(self.flows)

    @rule(number=st.integers(0, 5), end=st.integers(0, 1), size=st.integers(1, 2**20))
    def write(self, number: int, end: int, size: int) -> None:
        stream = self.pick(number)
        flow = self.flows[stream][end]
        if flow is None or flow.closed or flow.gone:
            return
        self.counter += 1
        content = struct.pack(">I", self.counter) * (size // 4 + 1)
        taken = self.ends[end].write(flow, memoryview(content))
        self.sent[stream][end] += content[:taken]

    @rule(number=st.integers(0, 5), end=st.integers(0, 1), size=st.integers(1, 2**20))
    def read(self, number: int, end: int, size: int) -> None:
        stream = self.pick(number)
        flow = self.flows[stream][end]
        if flow is not None:
            self.got[stream][end] += self.ends[end].read(flow, size)

    @rule(end=st.integers(0, 1), size=st.integers(1, 2**20))
    def carry(self, end: int, size: int) -> None:
        """Hand on some bytes."""
        pipe = self.pipes[end]
        pipe += written(self.ends[end])
        other = self.ends[1 - end]
        other.receive(bytes(pipe[:size]))
        del pipe[:size]
        while other.accepted:
            flow = other.accepted.popleft()
            for flows in self.flows:
                opener = flows[end]
                if opener is not None and opener.id == flow.id:
                    flows[1 - end] = flow

    @rule(number=st.integers(0, 5), end=st.integers(0, 1))
    def close(self, number: int, end: int) -> None:
        stream = self.pick(number)
        flow = self.flows[stream][end]
        if flow is not None and not flow.gone:
            self.ends[end].close(flow)
            self.finished[stream][end] = True

    @precondition(lambda self: len(self.flows) > 3)
    @rule(number=st.integers(0, 5), end=st.integers(0, 1))
    def reset(self, number: int, end: int) -> None:
        stream = self.pick(number)
        flow = self.flows[stream][end]
        if flow is not None:
            self.ends[end].reset(flow)
            self.broken.add(stream)

    @invariant()
    def what_was_read_is_what_was_written(self) -> None:
        for sent, got in zip(self.sent, self.got, strict=True):
            for end in (0, 1):
                assert sent[end].startswith(got[1 - end])

    @invariant()
    def limits_hold(self) -> None:
        for session in self.ends:
            live = session.flows.values()
            assert session.unread == sum(len(flow.unread) for flow in live) <= MAX_UNREAD
            assert session.growth == sum(flow.target - INITIAL_WINDOW for flow in live)
            assert session.growth <= MAX_GROWTH
            assert session.incoming == sum(not flow.ours for flow in live)
            assert session.outgoing == sum(flow.ours and not flow.closed for flow in live)
            for flow in live:
                assert flow.window >= 0
                assert flow.window + len(flow.unread) <= flow.target <= MAX_WINDOW

    def teardown(self) -> None:
        """Whatever happened: all that was written arrives, and no byte of window is lost."""
        if not self.flows:
            return
        for _ in range(60):
            for end in (0, 1):
                self.carry(end, 2**24)
                for stream in range(len(self.flows)):
                    self.read(stream, end, 2**24)
        for stream, flows in enumerate(self.flows):
            if stream in self.broken:
                continue
            for end, flow in enumerate(flows):
                other = flows[1 - end]
                assert flow is not None
                assert other is not None
                assert self.got[stream][end] == self.sent[stream][1 - end]
                assert flow.ended == self.finished[stream][1 - end]
                if not other.ended:
                    assert flow.credit == other.window
                    assert 2 * other.window > other.target
        for session in self.ends:
            assert not session.waiting


Windows.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWindows = Windows.TestCase


# Peers that break the rules


BREACHES = {
    "version": struct.pack(">BBHII", 1, DATA, SYN, 1, 0),
    "type": frame(4),
    "more than the window": data(1, b"", SYN) + frame(DATA, 0, 1, INITIAL_WINDOW + 1),
    "more than the window, with the first frame": frame(DATA, SYN, 1, INITIAL_WINDOW + 1),
    "the same stream twice": update(1, SYN) + update(1, SYN),
    "an id that is ours": update(2, SYN),
    "stream 0": update(0, SYN),
    "more than any window, for no stream": frame(DATA, 0, 99, MAX_WINDOW + 1),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_ends_the_session(breach: bytes) -> None:
    with pytest.raises(ProtocolViolationError):
        server().receive(breach)


def test_a_window_is_used_up_by_what_came_before() -> None:
    session = server()
    accepted(session)
    session.receive(data(1, bytes(INITIAL_WINDOW)))
    with pytest.raises(ProtocolViolationError):
        session.receive(data(1, b"0"))


def test_streams_beyond_the_limit_are_refused_and_the_others_go_on() -> None:
    session = server()
    for number in range(MAX_INCOMING + 2):
        session.receive(data(2 * number + 1, b"data", SYN))
    assert len(session.accepted) == session.incoming == len(session.flows) == MAX_INCOMING
    refused = [stream for _, flags, stream, _ in frames(written(session)) if flags == RST]
    assert refused == [2 * MAX_INCOMING + 1, 2 * MAX_INCOMING + 3]
    session.reset(session.accepted.popleft())
    session.receive(update(9999, SYN))
    assert session.incoming == MAX_INCOMING


def test_streams_that_are_reset_at_once_pile_up_nowhere() -> None:
    session = server()
    for number in range(5 * MAX_INCOMING):
        session.receive(update(2 * number + 1, SYN) + update(2 * number + 1, RST))
    assert len(session.accepted) == MAX_INCOMING
    assert not session.flows
    kept = frames(written(session))
    assert {flags for _, flags, _, _ in kept} == {RST}
    assert len(kept) == 4 * MAX_INCOMING <= MAX_REFUSALS


def test_a_peer_that_opens_streams_without_end_is_left() -> None:
    session = server()
    for number in range(MAX_INCOMING + MAX_REFUSALS):
        session.receive(update(2 * number + 1, SYN))
    with pytest.raises(ProtocolViolationError):
        session.receive(update(99_999, SYN))


def test_a_peer_that_opens_streams_and_reads_no_answer_is_left() -> None:
    session = server()

    def opened_and_reset() -> None:
        for number in range(MAX_QUEUED):
            session.reset(accepted(session, 2 * number + 1))

    with pytest.raises(ProtocolViolationError):
        opened_and_reset()
    assert session.queued <= MAX_QUEUED + HEADER_SIZE


def test_pings_are_answered_as_far_as_answers_are_taken() -> None:
    session = server()
    for value in range(10 * MAX_PONGS):
        session.receive(frame(PING, SYN, 0, value + 1))
    answers = [(PING, ACK, 0, value + 1) for value in range(MAX_PONGS)]
    assert frames(written(session)) == answers
    session.receive(frame(PING, ACK, 0, 7))
    assert not session.waiting
    session.receive(frame(PING, SYN, 0, 7))
    assert frames(written(session)) == [(PING, ACK, 0, 7)]


def test_a_peer_whose_data_nobody_reads_loses_the_stream_that_goes_too_far() -> None:
    session = server()
    streams = MAX_UNREAD // INITIAL_WINDOW
    flows = [accepted(session, 2 * number + 1) for number in range(streams + 1)]
    for flow in flows:
        session.receive(data(flow.id, bytes(INITIAL_WINDOW)))
    assert [flow.reset for flow in flows] == [False] * streams + [True]
    assert session.unread == MAX_UNREAD
    assert (WINDOW_UPDATE, RST, flows[-1].id, 0) in frames(written(session))


def test_we_keep_to_our_own_limit_and_count_what_is_open() -> None:
    session = Session(is_initiator=True)
    flows = [session.open() for _ in range(MAX_OUTGOING)]
    ends: list[Callable[[Flow], object]] = [
        session.close,
        session.reset,
        lambda flow: session.receive(update(flow.id, RST)),
    ]
    for end, flow in zip(ends, flows, strict=False):
        allowed = [session.can_open]
        end(flow)
        allowed.append(session.can_open)
        assert allowed == [False, True]
        session.open()
    assert session.outgoing == MAX_OUTGOING


def test_a_peer_that_never_ends_its_streams_has_the_oldest_reset() -> None:
    session = Session(is_initiator=True)
    flows = []
    for _ in range(MAX_LINGERING + 3):
        flows.append(session.open())
        session.close(flows[-1])
    assert [flow.reset for flow in flows] == [True] * 3 + [False] * MAX_LINGERING
    assert len(session.flows) == MAX_LINGERING
    assert session.outgoing == 0


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda kind, flags, stream, length, body: (
                    struct.pack(">BBHII", 0, kind, flags, stream, length) + body
                ),
                st.integers(0, 4),
                st.integers(0, 15),
                st.integers(0, 9),
                st.one_of(st.integers(0, 20), st.integers(0, 2**32 - 1)),
                st.binary(max_size=20),
            ),
        ),
        max_size=20,
    )
)
def test_no_bytes_break_more_than_the_session(chunks: list[bytes]) -> None:
    session = server()
    try:
        for chunk in chunks:
            session.receive(chunk)
            while session.accepted:
                session.read(session.accepted.popleft(), 10)
    except (ProtocolViolationError, SessionEndedError):
        session.go_away(PROTOCOL_ERROR)
    frames(written(session))
    session.fail()
    assert (session.incoming, session.unread, session.growth) == (0, 0, 0)
