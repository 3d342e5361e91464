"""What is remembered for a while, held against models that are slow and obvious.

A model is a plain list or dict that keeps everything and works out the answer
when asked.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bruit.node.gossip.backoff import Backoffs
from bruit.node.gossip.caches import MessageCache, SeenCache
from bruit.node.gossip.lazy import Promises
from bruit.node.gossip.params import MAX_BACKOFFS_PER_TOPIC, MAX_REMOTE_BACKOFF

ids = st.integers(0, 12).map(lambda number: b"id %d" % number)
peers = st.sampled_from([b"alice", b"bob", b"carol"])
topics = st.sampled_from(["blocks", "headers"])
some = settings(max_examples=60, stateful_step_count=50, deadline=None)


class Timed(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0

    @rule(seconds=st.floats(0.0, 4.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds


class SeenAgainstModel(Timed):
    """TTL 5 s, room for 6."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = SeenCache(5.0, 6)
        self.model: list[tuple[bytes, float]] = []  # id and when it was first seen, oldest first

    @rule(message_id=ids)
    def add(self, message_id: bytes) -> None:
        self.seen.add(message_id, self.now)
        if message_id not in dict(self.model):
            self.model.append((message_id, self.now))
        self.model = self.model[-6:]

    @rule()
    def expire(self) -> None:
        self.seen.expire(self.now)
        self.model = [each for each in self.model if self.now < each[1] + 5.0]

    @invariant()
    def the_same_is_seen(self) -> None:
        assert len(self.seen) == len(self.model) <= 6
        for number in range(13):
            assert (b"id %d" % number in self.seen) == (b"id %d" % number in dict(self.model))


class MessagesAgainstModel(RuleBasedStateMachine):
    """Four windows, of which two are advertised, and room for 100 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = MessageCache(4, 2, 100)
        self.model: list[
            tuple[bytes, tuple[str, bytes], int]
        ] = []  # oldest first; with shifts since
        self.asked: dict[tuple[bytes, bytes], int] = {}

    @rule(message_id=ids, topic=topics, size=st.integers(1, 45))
    def put(self, message_id: bytes, topic: str, size: int) -> None:
        raw = bytes(size)
        self.cache.put(message_id, topic, raw)
        if all(message_id != each[0] for each in self.model):
            self.model.append((message_id, (topic, raw), 0))
        while sum(len(raw) for _, (_, raw), _ in self.model) > 100:
            self.forget(self.model[0][0])

    @rule(message_id=ids, peer=peers)
    def ask(self, message_id: bytes, peer: bytes) -> None:
        held = [raw for each, (_, raw), _ in self.model if each == message_id]
        if not held:
            assert self.cache.ask(message_id, peer) == (None, 0)
            return
        times = self.asked[message_id, peer] = self.asked.get((message_id, peer), 0) + 1
        assert self.cache.ask(message_id, peer) == (held[0], times)

    @rule()
    def shift(self) -> None:
        self.cache.shift()
        self.model = [(each, message, shifts + 1) for each, message, shifts in self.model]
        for message_id in [each for each, _, shifts in self.model if shifts == 4]:
            self.forget(message_id)

    def forget(self, message_id: bytes) -> None:
        self.model = [each for each in self.model if each[0] != message_id]
        self.asked = {key: times for key, times in self.asked.items() if key[0] != message_id}

    @invariant()
    def the_same_is_held_and_advertised(self) -> None:
        assert len(self.cache) == len(self.model)
        assert self.cache.bytes == sum(len(raw) for _, (_, raw), _ in self.model) <= 100
        for number in range(13):
            held = any(each == b"id %d" % number for each, _, _ in self.model)
            assert (b"id %d" % number in self.cache) == held
        expected: dict[str, list[bytes]] = {}
        for window in (0, 1):
            for each, (topic, _), shifts in self.model:
                if shifts == window:
                    expected.setdefault(topic, []).append(each)
        assert self.cache.gossip_ids() == expected


class BackoffsAgainstModel(Timed):
    """A slack of 2 s."""

    def __init__(self) -> None:
        super().__init__()
        self.backoffs = Backoffs(2.0)
        self.model: dict[tuple[str, bytes], float] = {}  # until when

    @rule(topic=topics, peer=peers, seconds=st.one_of(st.floats(0.1, 10.0), st.just(1e9)))
    def add(self, topic: str, peer: bytes, seconds: float) -> None:
        self.backoffs.add(topic, peer, seconds, self.now)
        until = self.now + min(seconds, 3600.0)
        self.model[topic, peer] = max(until, self.model.get((topic, peer), 0.0))

    @rule()
    def expire(self) -> None:
        self.backoffs.expire(self.now)
        self.model = {key: until for key, until in self.model.items() if self.now <= until + 2.0}

    @invariant()
    def the_same_are_held_off(self) -> None:
        assert len(self.backoffs) == len(self.model)
        for topic in ("blocks", "headers"):
            for peer in (b"alice", b"bob", b"carol"):
                assert self.backoffs.holds(topic, peer) == ((topic, peer) in self.model)
                assert self.backoffs.until(topic, peer) == self.model.get((topic, peer), 0.0)


class PromisesAgainstModel(Timed):
    """3 s to keep one."""

    def __init__(self) -> None:
        super().__init__()
        self.promises = Promises(3.0)
        self.model: dict[tuple[bytes, bytes], float] = {}  # message and peer → due

    @rule(peer=peers, message_id=ids)
    def add(self, peer: bytes, message_id: bytes) -> None:
        self.promises.add(peer, message_id, self.now)
        self.model.setdefault((message_id, peer), self.now + 3.0)

    @rule(message_id=ids)
    def fulfil(self, message_id: bytes) -> None:
        self.promises.fulfil(message_id)
        self.model = {key: due for key, due in self.model.items() if key[0] != message_id}

    @rule(peer=peers)
    def excuse(self, peer: bytes) -> None:
        self.promises.excuse(peer)
        self.model = {key: due for key, due in self.model.items() if key[1] != peer}

    @rule()
    def charge(self) -> None:
        expected: dict[bytes, int] = {}
        for (_, peer), due in self.model.items():
            if due < self.now:
                expected[peer] = expected.get(peer, 0) + 1
        assert self.promises.broken(self.now) == expected
        self.model = {key: due for key, due in self.model.items() if due >= self.now}

    @invariant()
    def as_much_is_owed(self) -> None:
        assert len(self.promises) == len(self.model)


def test_what_was_seen_is_what_a_list_of_times_says() -> None:
    run_state_machine_as_test(SeenAgainstModel, settings=some)


def test_what_is_cached_and_advertised_is_what_a_list_of_messages_says() -> None:
    run_state_machine_as_test(MessagesAgainstModel, settings=some)


def test_who_is_held_off_is_what_a_table_of_times_says() -> None:
    run_state_machine_as_test(BackoffsAgainstModel, settings=some)


def test_who_broke_promises_is_what_a_table_of_times_says() -> None:
    run_state_machine_as_test(PromisesAgainstModel, settings=some)


@given(st.floats(0.0, 1e12))
def test_a_backoff_is_never_longer_than_an_hour(seconds: float) -> None:
    backoffs = Backoffs(0.0)
    backoffs.add("blocks", b"alice", seconds, now=1000.0)
    assert backoffs.until("blocks", b"alice") <= 1000.0 + MAX_REMOTE_BACKOFF == 4600.0


def test_a_topic_remembers_ten_thousand_backoffs_and_the_oldest_goes_first() -> None:
    backoffs = Backoffs(2.0)
    for number in range(MAX_BACKOFFS_PER_TOPIC + 3):
        backoffs.add("blocks", b"%d" % number, 60.0, now=0.0)
    backoffs.add("headers", b"0", 60.0, now=0.0)
    assert len(backoffs) == 10_000 + 1
    assert not any(backoffs.holds("blocks", b"%d" % number) for number in range(3))
    assert backoffs.holds("blocks", b"3")
    assert backoffs.holds("blocks", b"10002")


def test_a_message_larger_than_the_cache_is_not_kept() -> None:
    cache = MessageCache(5, 3, 100)
    cache.put(b"large", "blocks", bytes(101))
    assert (len(cache), cache.bytes) == (0, 0)
    assert cache.gossip_ids() == {}
