"""What a node can send and receive, shared by all its channels: an uplink and a downlink.

Theory of operation. Frames go in pieces of `PIECE` bytes. Of a node's channels those with
something to write take turns, one piece each, and on a channel so do the router's frames and
direct ones (`bruit.node.sim.direct`), as the streams of one connection do. A frame is taken out
of the queue when its first piece is written: until then it can be overtaken or cancelled.

A piece takes ``size / up`` seconds of the sender's uplink and ``size / down`` of the receiver's
downlink, which serves pieces in the order in which they arrive, and begins with the first bit:
two equal rates in a row do not take twice the time. What a link adds (`LinkModel`: latency,
jitter, a rate of its own, loss) lies between the two.

A connection has a window of bytes in flight, as TCP's have: what its fair share of the slower of
the two rates carries in a round trip, and `MIN_WINDOW` at least. So TCP is where it has settled;
neither its slow start nor its retransmissions are in here.
"""

import math
from collections import deque

from bruit.node.gossip.events import FrameReceived
from bruit.node.gossip.sendqueue import SendQueue
from bruit.node.sim.direct import DirectFrame
from bruit.node.sim.links import Carrier, Channel
from bruit.topics.errors import LocalError

PIECE = 16_384  # bytes; guess: the largest record of TLS, and less than 3 ms at 50 Mbit/s
MIN_WINDOW = 65_536  # bytes; guess: TCP's window without scaling (RFC 9293, 3.1)

Sent = FrameReceived | DirectFrame


class Uplink:
    """What a node can send, and which channels wait for their turn."""

    __slots__ = ("active", "rate", "turns", "written")

    def __init__(self, rate: float | None) -> None:
        self.rate = _rate(rate)  # bytes per second
        self.turns: deque[Channel] = deque()
        self.written: Channel | None = None  # a piece of which is being written
        self.active = 0  # channels that have something to write


class Downlink:
    """What a node can receive, and until when it is busy with what has arrived."""

    __slots__ = ("active", "free_at", "rate")

    def __init__(self, rate: float | None) -> None:
        self.rate = _rate(rate)  # bytes per second
        self.free_at = 0.0  # seconds
        self.active = 0  # channels with something in flight to us


def _rate(rate: float | None) -> float:
    if rate is None:
        return math.inf
    if not (math.isfinite(rate) and rate > 0):
        raise LocalError(f"bandwidth {rate}: use bytes per second above 0, or None")
    return rate


class Flow:
    """What a channel between two such nodes has under way."""

    __slots__ = (
        "downlink",
        "free_at",
        "in_flight",
        "jitter",
        "left",
        "turn",
        "under_way",
        "uplink",
        "waiting",
    )

    def __init__(self, uplink: Uplink, downlink: Downlink) -> None:
        self.uplink = uplink
        self.downlink = downlink
        self.in_flight = 0  # bytes written and not yet acknowledged
        self.waiting = False  # whether it waits for its turn
        self.free_at = 0.0  # when the link's own rate allows the next piece
        # Of the router's stream and the direct one: the frame being written, and its bytes left.
        self.under_way: list[Sent | None] = [None, None]
        self.left = [0, 0]
        self.jitter: list[float | None] = [0.0, 0.0]  # seconds; None for a frame that is lost
        self.turn = 1  # the stream that was written last

    def window(self, channel: Channel) -> float:
        """Bytes that may be in flight. Two pieces are being written and read meanwhile."""
        up, down = self.uplink, self.downlink
        rate = min(up.rate / max(1, up.active), down.rate / max(1, down.active), channel.rate)
        return max(MIN_WINDOW, rate * (channel.latency + channel.back.latency) + 2 * PIECE)


def pace(channel: Channel) -> None:
    """Make a new channel mind its sender's uplink and its receiver's downlink, if there are."""
    up, down = channel.sender.uplink, channel.receiver.downlink
    if up is not None or down is not None:
        channel.flow = Flow(up or Uplink(None), down or Downlink(None))
        channel.queue = SendQueue()


class PacedCarrier(Carrier):
    """A carrier that minds uplinks and downlinks, on the channels that have a `Flow`."""

    def _begin(self, channel: Channel) -> None:
        flow = channel.flow
        if flow is None:
            super()._begin(channel)
            return
        if not channel.writing:
            channel.writing = True
            flow.uplink.active += 1
        self._line_up(channel, None)

    def _line_up(self, channel: Channel, _: None) -> None:
        """Wait for a turn, if the window allows."""
        flow = channel.flow
        assert flow is not None
        if flow.waiting or not channel.writing or flow.in_flight >= flow.window(channel):
            return  # an acknowledgement comes
        flow.waiting = True
        flow.uplink.turns.append(channel)
        if flow.uplink.written is None:
            self._serve(flow.uplink)

    def _serve(self, uplink: Uplink) -> None:
        """Write one piece of whoever's turn it is."""
        now = self._clock.now
        while uplink.turns:
            channel = uplink.turns.popleft()
            flow = channel.flow
            assert flow is not None
            flow.waiting = False
            if flow.free_at > now:
                self._clock.at(flow.free_at, self._line_up, channel, None)
                continue
            size = self._write_piece(channel, flow)
            if size is not None:
                uplink.written = channel
                self._clock.at(now + size / uplink.rate, self._written, uplink, channel)
                return

    def _written(self, uplink: Uplink, channel: Channel) -> None:
        """A piece has been written: its channel stands behind all others."""
        self._line_up(channel, None)
        uplink.written = None
        self._serve(uplink)

    def _write_piece(self, channel: Channel, flow: Flow) -> int | None:
        """Put the next piece of a channel on its way: its size; None where there is none."""
        stream = self._next_stream(channel, flow)
        if stream is None:
            self._fall_idle(channel, flow)
            return None
        event, now = flow.under_way[stream], self._clock.now
        size = min(PIECE, flow.left[stream])
        flow.left[stream] -= size
        jitter = flow.jitter[stream]
        if flow.left[stream]:
            event = None
        else:
            flow.under_way[stream] = None
            if jitter is None:
                event = None
        writing = size / min(flow.uplink.rate, channel.rate)
        flow.free_at = now + size / channel.rate
        if not flow.in_flight:
            flow.downlink.active += 1
        flow.in_flight += max(1, size)
        first_bit = channel.first_bit(now, jitter or 0.0, writing)
        self._clock.at(first_bit, self._reach, channel, (size, writing, event))
        if not self._has_more(channel, flow):
            self._fall_idle(channel, flow)
        return size

    def _next_stream(self, channel: Channel, flow: Flow) -> int | None:
        """Which of its streams is written next; None where there is nothing."""
        for stream in (1 - flow.turn, flow.turn):
            if flow.under_way[stream] is None:
                event = channel.pop(stream)
                if event is None:
                    continue
                flow.under_way[stream] = event
                flow.left[stream] = len(event.frame)
                flow.jitter[stream] = channel.roll()
                self.frames += 1
                self.frame_bytes += len(event.frame)
                self.lost += flow.jitter[stream] is None
            flow.turn = stream
            return stream
        return None

    def _has_more(self, channel: Channel, flow: Flow) -> bool:
        return any(flow.under_way) or channel.has_queued

    def _fall_idle(self, channel: Channel, flow: Flow) -> None:
        if channel.writing:
            channel.writing = False
            flow.uplink.active -= 1
            if channel.closing:
                self._send_end(channel)

    def _reach(self, channel: Channel, piece: tuple[int, float, Sent | None]) -> None:
        """The first bit of a piece is at the receiver's downlink."""
        flow = channel.flow
        assert flow is not None
        size, writing, event = piece
        now, downlink = self._clock.now, flow.downlink
        done = now + writing
        if channel.receiving:
            downlink.free_at = max(now, downlink.free_at) + size / downlink.rate
            done = max(done, downlink.free_at)
            if event is not None:
                self._clock.at(done, self._arrived, channel, event)
        # To what nobody takes there is an answer too, so that what was counted is uncounted.
        self._clock.at(done + channel.back.latency, self._acknowledged, channel, max(1, size))

    def _acknowledged(self, channel: Channel, size: int) -> None:
        flow = channel.flow
        assert flow is not None
        flow.in_flight -= size
        if not flow.in_flight:
            flow.downlink.active -= 1
        self._line_up(channel, None)

    def _send_end(self, channel: Channel) -> None:
        if channel.flow is None:
            super()._send_end(channel)
        else:
            self._clock.at(channel.end_arrival(self._clock.now), self._end_reaches, channel, None)

    def _end_reaches(self, channel: Channel, _: None) -> None:
        """The end waits at the downlink behind what came before it."""
        assert channel.flow is not None
        done = max(self._clock.now, channel.flow.downlink.free_at)
        self._clock.at(done, self._ended, channel, None)
