"""When a plugin is switched off, against a slow model, in threads, and as the node sees it."""

import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bruit.plugins.containment import MAX_EVENTS, PluginEvent
from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.pipeline import TopicPipeline
from bruit.plugins.registry import PluginRegistry, PluginStatus
from bruit.topics.errors import LocalError, PluginError, RemoteError
from bruit.topics.validation import ACCEPTED, Validation, Verdict

FAIL, REFUSE, PASS = b"fail", b"refuse", b"pass"
MAX_FAILURES = 3
TOPICS = ("north", "south")


class NoSettings(msgspec.Struct, frozen=True):
    pass


class Obedient:
    """Does in every hook what the data says; the decoder takes its orders from the first byte."""

    Config = NoSettings

    def __init__(self, config: NoSettings) -> None:
        pass

    @hookimpl
    def pre_process(self, data: bytes) -> bytes:
        self._obey(data, LocalError("refused"))
        return data

    @hookimpl
    def post_process(self, data: bytes) -> bytes:
        if data.startswith(b"!"):
            self._obey(data[1:], RemoteError("refused"))
        return data

    @hookimpl
    def validate(self, data: bytes) -> Validation:
        self._obey(data, RemoteError("refused"))
        return ACCEPTED

    def _obey(self, order: bytes, refusal: Exception) -> None:
        if order == FAIL:
            raise ValueError("as ordered")
        if order == REFUSE:
            raise refusal


def discover(max_failures: int = MAX_FAILURES) -> PluginRegistry:
    extra: dict[str, type] = {"obedient": Obedient, "bystander": Obedient}
    return PluginRegistry.discover(max_failures=max_failures, extra=extra)


def pipeline_of(registry: PluginRegistry, topic: str) -> TopicPipeline:
    return registry.topic_pipeline(topic, codec="obedient", validator="obedient", max_size=100)


def status_of(registry: PluginRegistry, name: str = "obedient") -> PluginStatus:
    [status] = [status for status in registry.statuses() if status.name == name]
    return status


class SwitchingOff(RuleBasedStateMachine):
    """The registry beside lists of outcomes, one for each hook on each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = discover()
        self.pipelines = {topic: pipeline_of(self.registry, topic) for topic in TOPICS}
        self.outcomes: dict[tuple[str, str], list[bool]] = {}
        self.events: list[PluginEvent] = []
        self.off = False

    def expect(self, hook: str, topic: str, order: bytes) -> str:
        """Note what a call should come to, and say it."""
        if self.off:
            return "off"
        outcomes = self.outcomes.setdefault((hook, topic), [])
        outcomes.append(order != FAIL)
        if order == FAIL:
            self.off = len(outcomes) >= MAX_FAILURES and not any(outcomes[-MAX_FAILURES:])
            self.events.append(
                PluginEvent("obedient", hook, topic, "ValueError: as ordered", self.off)
            )
        return order.decode()

    @rule(topic=st.sampled_from(TOPICS), order=st.sampled_from([FAIL, REFUSE, PASS]))
    def publish(self, topic: str, order: bytes) -> None:
        expected = self.expect("pre_process", topic, order)
        try:
            assert self.pipelines[topic].encode(order) == order
            outcome = "pass"
        except LocalError:
            outcome = "refuse"
        except PluginError as error:
            outcome = "off" if "switched off" in str(error) else "fail"
        assert outcome == expected

    @rule(topic=st.sampled_from(TOPICS), order=st.sampled_from([FAIL, REFUSE, PASS]))
    def receive_what_the_decoder_obeys(self, topic: str, order: bytes) -> None:
        expected = self.expect("post_process", topic, order)
        if expected == "pass":  # then the validator is asked, and has no order in this
            assert self.expect("validate", topic, PASS) == "pass"
        self.compare(self.pipelines[topic].judge(b"!" + order)[0], expected)

    @rule(topic=st.sampled_from(TOPICS), order=st.sampled_from([FAIL, REFUSE, PASS]))
    def receive_what_the_validator_obeys(self, topic: str, order: bytes) -> None:
        expected = self.expect("post_process", topic, PASS)
        if expected == "pass":
            expected = self.expect("validate", topic, order)
        self.compare(self.pipelines[topic].judge(order)[0], expected)

    @rule(topic=st.sampled_from(TOPICS), order=st.sampled_from([FAIL, REFUSE, PASS]))
    def check_an_own_publication(self, topic: str, order: bytes) -> None:
        expected = self.expect("validate", topic, order)
        self.compare(self.pipelines[topic].check(order), expected)

    def compare(self, validation: Validation, expected: str) -> None:
        verdicts = {"pass": Verdict.ACCEPT, "refuse": Verdict.REJECT}
        assert validation.verdict is verdicts.get(expected, Verdict.IGNORE)
        if expected == "off":
            assert "it is switched off after 3 failures in a row" in validation.reason

    @rule()
    def drain(self) -> None:
        assert self.registry.drain_events() == self.events
        self.events = []

    @invariant()
    def status_agrees(self) -> None:
        status = status_of(self.registry)
        assert status.state == ("off" if self.off else "active")
        assert status.failures == sum(outcomes.count(False) for outcomes in self.outcomes.values())
        assert bool(status.last_error) == bool(status.failures)


TestSwitchingOff = SwitchingOff.TestCase


def test_a_plugin_that_is_switched_off_closes_all_its_topics_and_no_others() -> None:
    registry = discover()
    north, south = (pipeline_of(registry, topic) for topic in TOPICS)
    other = registry.topic_pipeline("other", validator="bystander", max_size=100)
    for _ in range(MAX_FAILURES):
        north.check(FAIL)
    for closed in (north, south):
        validation, data = closed.judge(PASS)
        assert (validation.verdict, data) == (Verdict.IGNORE, b"")
        assert "plugin 'obedient'" in validation.reason
        assert "switched off after 3 failures in a row" in validation.reason
        with pytest.raises(PluginError, match="switched off"):
            closed.encode(PASS)
    assert other.judge(PASS) == (ACCEPTED, PASS)
    assert status_of(registry).state == "off"
    assert status_of(registry).last_error == "validate: ValueError: as ordered"
    assert status_of(registry, "bystander").state == "active"


def test_a_codec_that_works_does_not_hide_a_validator_that_never_does() -> None:
    registry = discover()
    pipeline = pipeline_of(registry, "north")
    for _ in range(MAX_FAILURES):
        pipeline.judge(FAIL)  # the decoder passes it, the validator fails
    assert status_of(registry).state == "off"


def test_a_plugin_that_is_switched_off_is_not_called_again() -> None:
    registry = discover()
    pipeline = pipeline_of(registry, "north")
    for _ in range(MAX_FAILURES + 5):
        pipeline.check(FAIL)
    assert status_of(registry).failures == MAX_FAILURES
    assert len(registry.drain_events()) == MAX_FAILURES


def test_a_plugin_that_two_topics_find_broken_at_once_is_switched_off_once() -> None:
    class Entangled(Obedient):
        @hookimpl
        def validate(self, data: bytes) -> Validation:
            if data == b"both":
                for _ in range(MAX_FAILURES):
                    south.check(FAIL)
            raise ValueError("as ordered")

    registry = PluginRegistry.discover(max_failures=MAX_FAILURES, extra={"obedient": Entangled})
    north, south = (pipeline_of(registry, topic) for topic in TOPICS)
    for order in (FAIL, FAIL, b"both"):
        north.check(order)
    assert [event.topic for event in registry.drain_events() if event.switched_off] == ["south"]
    assert status_of(registry).failures == 2 * MAX_FAILURES


def test_registries_do_not_share_their_plugins_failures() -> None:
    one, other = discover(), discover()
    for _ in range(MAX_FAILURES):
        pipeline_of(one, "north").check(FAIL)
    assert status_of(one).state == "off"
    assert pipeline_of(other, "north").check(PASS) == ACCEPTED
    assert status_of(other) == PluginStatus(
        "obedient", "", "", ("pre_process", "post_process", "validate"), "active", 0, ""
    )


def test_events_that_nobody_drains_are_bounded_and_the_oldest_go_first() -> None:
    registry = discover()
    old, new = (pipeline_of(registry, topic) for topic in TOPICS)
    for pipeline, count in ((old, 10), (new, MAX_EVENTS)):
        for _ in range(count):
            pipeline.check(FAIL)
            pipeline.check(PASS)
    events = registry.drain_events()
    assert [event.topic for event in events] == ["south"] * MAX_EVENTS
    assert registry.drain_events() == []
    assert status_of(registry).failures == MAX_EVENTS + 10


def test_the_log_grows_with_the_logarithm_of_the_failures(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = pipeline_of(discover(), "north")
    with caplog.at_level(logging.WARNING, "bruit"):
        for _ in range(1000):
            pipeline.check(FAIL)
            pipeline.check(PASS)
    assert len(caplog.records) == 10  # the 1st, 2nd, 4th, … 512th
    first = caplog.records[0].getMessage()
    assert "plugin obedient failed in validate on topic 'north'" in first
    assert "_obey" in first  # the traceback leads into the plugin


def test_switching_off_is_logged_once_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = pipeline_of(discover(), "north")
    with caplog.at_level(logging.ERROR, "bruit"):
        for _ in range(MAX_FAILURES + 5):
            pipeline.check(FAIL)
    assert [record.getMessage() for record in caplog.records] == [
        "plugin obedient is switched off after 3 failures in a row"
    ]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that change as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_no_failure_is_lost_when_topics_in_many_threads_share_a_plugin() -> None:
    registry = discover()
    rounds, topics = 200, [f"topic {number}" for number in range(4)]

    def work(pipeline: TopicPipeline) -> int:
        verdicts = [
            pipeline.judge(order)[0].verdict for _ in range(rounds) for order in (FAIL, FAIL, PASS)
        ]
        return verdicts.count(Verdict.IGNORE)

    with ThreadPoolExecutor(len(topics)) as pool:
        ignored = list(pool.map(work, [pipeline_of(registry, topic) for topic in topics]))
    assert ignored == [2 * rounds] * len(topics)  # never three in a row on one topic
    assert status_of(registry).state == "active"
    assert status_of(registry).failures == 2 * rounds * len(topics)


@pytest.mark.usefixtures("eager_threads")
def test_a_plugin_that_fails_in_many_threads_is_switched_off_in_all_of_them() -> None:
    registry = discover(max_failures=50)
    topics = [f"topic {number}" for number in range(4)]

    def work(pipeline: TopicPipeline) -> str:
        return [pipeline.judge(FAIL)[0].reason for _ in range(200)][-1]

    with ThreadPoolExecutor(len(topics)) as pool:
        reasons = list(pool.map(work, [pipeline_of(registry, topic) for topic in topics]))
    assert all("switched off after 50 failures in a row" in reason for reason in reasons)
    assert 50 <= status_of(registry).failures <= 50 * len(topics)
