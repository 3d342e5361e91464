"""What a topic's plugins make of its messages, and what their faults do to it."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.plugins.bitcoin import BitcoinPlugin
from bruit.plugins.containment import MAX_TEXT
from bruit.plugins.hookspecs import ClusterOption, Selection, hookimpl
from bruit.plugins.pipeline import TopicPipeline
from bruit.plugins.registry import PluginRegistry
from bruit.plugins.zstd import ZstdPlugin
from bruit.topics.errors import LocalError, PluginError, RemoteError
from bruit.topics.validation import ACCEPTED, Validation, Verdict, ignore, reject

MAX_SIZE = 16
PLUGIN_FAULTS: list[Exception] = [
    ValueError("broken"),
    KeyError("missing"),
    RecursionError("deep"),
    MemoryError(),
    AssertionError(),
    PluginError("other", "validate", "nested"),
    ExceptionGroup("several", [ValueError("broken")]),
]


class NoSettings(msgspec.Struct, frozen=True):
    pass


def chain(
    pre: Callable[[bytes], Any] = bytes,
    post: Callable[[bytes], Any] = bytes,
    judge: Callable[[bytes], Any] = lambda data: ACCEPTED,
    *,
    max_failures: int = 10,
) -> tuple[PluginRegistry, TopicPipeline]:
    """A topic whose codec and validator are the plugin ``chain``, made of three functions."""

    class Chain:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def pre_process(self, data: bytes) -> Any:
            return pre(data)

        @hookimpl
        def post_process(self, data: bytes) -> Any:
            return post(data)

        @hookimpl
        def validate(self, data: bytes) -> Any:
            return judge(data)

    registry = PluginRegistry.discover(max_failures=max_failures, extra={"chain": Chain})
    return registry, registry.topic_pipeline(
        "news", codec="chain", validator="chain", max_size=MAX_SIZE
    )


def raising(error: BaseException) -> Callable[[bytes], Any]:
    def fail(data: bytes) -> Any:
        raise error

    return fail


def chain_status(registry: PluginRegistry) -> tuple[str, int]:
    [status] = [status for status in registry.statuses() if status.name == "chain"]
    return status.state, status.failures


# The healthy way


@given(st.binary(max_size=1000))
def test_a_topic_without_plugins_changes_nothing_and_accepts_everything(data: bytes) -> None:
    pipeline = PluginRegistry.discover().topic_pipeline("plain", max_size=MAX_SIZE)
    assert pipeline.encode(data) == data
    assert pipeline.check(data) == ACCEPTED
    assert pipeline.judge(data) == (ACCEPTED, data)


def test_a_message_is_decoded_and_then_judged() -> None:
    _, pipeline = chain(
        pre=bytes.upper,
        post=bytes.lower,
        judge=lambda data: Validation(Verdict.ACCEPT, "", {"n": 1}),
    )
    assert pipeline.encode(b"hello") == b"HELLO"
    assert pipeline.judge(b"HELLO") == (Validation(Verdict.ACCEPT, "", {"n": 1}), b"hello")


def test_an_own_publication_is_judged_as_it_was_before_encoding() -> None:
    seen: list[bytes] = []

    def judge(data: bytes) -> Validation:
        seen.append(data)
        return reject("too plain")

    _, pipeline = chain(post=raising(ValueError("must not be called")), judge=judge)
    assert pipeline.check(b"plain") == reject("too plain")
    assert seen == [b"plain"]


@pytest.mark.parametrize("verdict", [reject("forged"), ignore("stale")])
def test_a_message_that_is_not_accepted_hands_on_no_data(verdict: Validation) -> None:
    registry, pipeline = chain(judge=lambda data: verdict)
    assert pipeline.judge(b"x") == (verdict, b"")
    assert chain_status(registry) == ("active", 0)


def test_what_may_not_be_decoded_is_not_judged() -> None:
    registry, pipeline = chain(
        post=raising(RemoteError("bad frame")), judge=raising(ValueError("must not be called"))
    )
    assert pipeline.judge(b"x") == (reject("bad frame"), b"")
    assert chain_status(registry) == ("active", 0)


def test_a_validator_may_reject_by_raising() -> None:
    registry, pipeline = chain(judge=raising(RemoteError("bad header")))
    assert pipeline.judge(b"x") == (reject("bad header"), b"")
    assert pipeline.check(b"x") == reject("bad header")
    assert chain_status(registry) == ("active", 0)


def test_a_codec_may_refuse_what_the_application_publishes() -> None:
    registry, pipeline = chain(pre=raising(LocalError("not a block")))
    with pytest.raises(LocalError, match="not a block"):
        pipeline.encode(b"x")
    assert chain_status(registry) == ("active", 0)


def test_more_than_a_receiver_would_take_is_not_encoded() -> None:
    _, pipeline = chain(pre=lambda data: b"small")
    assert pipeline.encode(bytes(MAX_SIZE)) == b"small"
    with pytest.raises(LocalError, match="17 bytes for topic 'news': at most 16"):
        pipeline.encode(bytes(MAX_SIZE + 1))


def test_a_hook_gets_the_arguments_it_names_in_whatever_order() -> None:
    class Odd:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def post_process(self, max_size: int, data: bytes) -> bytes:
            return data + str(max_size).encode()

        @hookimpl
        @staticmethod
        def pre_process() -> bytes:
            return b"constant"

        @hookimpl(specname="validate")
        def inspect(self, data: bytes, topic: str) -> Validation:
            return reject(f"{topic} {data.decode()}")

    registry = PluginRegistry.discover(extra={"odd": Odd})
    pipeline = registry.topic_pipeline("news", codec="odd", validator="odd", max_size=MAX_SIZE)
    assert pipeline.encode(b"x") == b"constant"
    assert pipeline.judge(b"x") == (reject("news x16"), b"")


def test_asking_for_a_topics_pipeline_again_gives_the_same_one() -> None:
    registry, pipeline = chain()
    again = registry.topic_pipeline("news", codec="chain", validator="chain", max_size=MAX_SIZE)
    assert again is pipeline


# Plugins that fail


@pytest.mark.parametrize("error", PLUGIN_FAULTS, ids=lambda error: type(error).__name__)
def test_whatever_a_validator_raises_the_message_is_ignored_and_the_plugin_named(
    error: Exception,
) -> None:
    registry, pipeline = chain(judge=raising(error))
    validation, data = pipeline.judge(b"x")
    assert (validation.verdict, data) == (Verdict.IGNORE, b"")
    assert f"plugin 'chain' failed in validate: {type(error).__name__}" in validation.reason
    assert chain_status(registry) == ("active", 1)


def test_a_decoder_that_fails_leaves_the_message_ignored() -> None:
    registry, pipeline = chain(post=raising(ValueError("broken")))
    validation, data = pipeline.judge(b"x")
    assert (validation, data) == (
        ignore("plugin 'chain' failed in post_process: ValueError: broken"),
        b"",
    )
    assert chain_status(registry) == ("active", 1)


@pytest.mark.parametrize("error", [ValueError("broken"), RemoteError("no peer is involved")])
def test_publishing_fails_with_the_plugin_named_when_the_encoder_does(error: Exception) -> None:
    registry, pipeline = chain(pre=raising(error))
    with pytest.raises(PluginError, match=str(error)) as caught:
        pipeline.encode(b"x")
    assert (caught.value.plugin, caught.value.hook) == ("chain", "pre_process")
    assert chain_status(registry) == ("active", 1)


@pytest.mark.parametrize("hook", ["post_process", "validate"])
def test_the_callers_mistake_cannot_be_at_fault_where_only_peers_speak(hook: str) -> None:
    failing = raising(LocalError("wrong"))
    registry, pipeline = chain(post=failing) if hook == "post_process" else chain(judge=failing)
    assert pipeline.judge(b"x")[0].verdict is Verdict.IGNORE
    assert chain_status(registry) == ("active", 1)


@pytest.mark.parametrize("result", [None, "text", bytearray(b"x"), memoryview(b"x"), 7])
def test_a_codec_must_return_bytes(result: object) -> None:
    registry, pipeline = chain(pre=lambda data: result, post=lambda data: result)
    kind = type(result).__name__
    with pytest.raises(PluginError, match=f"returned {kind} where bytes are due"):
        pipeline.encode(b"x")
    assert f"returned {kind} where bytes are due" in pipeline.judge(b"x")[0].reason
    assert chain_status(registry) == ("active", 2)


@pytest.mark.parametrize(
    "result",
    [
        None,
        True,
        Verdict.ACCEPT,
        Validation("accept"),  # type: ignore[arg-type]
        Validation(Verdict.ACCEPT, None),  # type: ignore[arg-type]
        Validation(Verdict.ACCEPT, "", None),  # type: ignore[arg-type]
        Validation(Verdict.ACCEPT, "", {"hash": b"x"}),  # type: ignore[dict-item]
        Validation(Verdict.ACCEPT, "", {1: "x"}),  # type: ignore[dict-item]
    ],
)
def test_a_validator_must_return_a_well_formed_validation(result: object) -> None:
    registry, pipeline = chain(judge=lambda data: result)
    validation, data = pipeline.judge(b"x")
    assert (validation.verdict, data) == (Verdict.IGNORE, b"")
    assert "returned" in validation.reason
    assert chain_status(registry) == ("active", 1)


def test_a_decoder_may_fill_the_limit_but_not_exceed_it() -> None:
    registry, pipeline = chain(post=lambda data: data * MAX_SIZE)
    assert pipeline.judge(b"x") == (ACCEPTED, b"x" * MAX_SIZE)
    assert chain_status(registry) == ("active", 0)
    validation, data = pipeline.judge(b"xy")
    assert (validation.verdict, data) == (Verdict.IGNORE, b"")
    assert "returned 32 bytes where 16 are allowed" in validation.reason
    assert chain_status(registry) == ("active", 1)


class UnprintableError(RemoteError):
    def __str__(self) -> str:
        raise ZeroDivisionError


@given(st.text(max_size=2 * MAX_TEXT), st.sampled_from([RemoteError, ValueError]))
def test_a_reason_is_one_printable_line_of_bounded_length(text: str, kind: type[Exception]) -> None:
    for judge in (raising(kind(text)), lambda data: reject(text)):
        reason = chain(judge=judge)[1].judge(b"x")[0].reason
        assert reason.isprintable()
        assert len(reason) <= MAX_TEXT + len("plugin 'chain' failed in validate: ")
        if text.isprintable() and len(text) < MAX_TEXT - len("ValueError: "):
            assert reason.endswith(text)


def test_a_reason_that_quotes_a_megabyte_is_cut() -> None:
    for judge in (raising(RemoteError("x" * 1_000_000)), lambda data: reject("x" * 1_000_000)):
        assert chain(judge=judge)[1].judge(b"x")[0] == reject("x" * (MAX_TEXT - 1) + "…")


def test_an_exception_that_cannot_be_printed_is_contained_as_well() -> None:
    _, pipeline = chain(judge=raising(UnprintableError()))
    assert pipeline.judge(b"x")[0].verdict is Verdict.REJECT


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_request_to_stop_passes_through_a_plugin_uncounted(error: type[BaseException]) -> None:
    registry, pipeline = chain(raising(error()), raising(error()), raising(error()))
    for call in (pipeline.encode, pipeline.judge, pipeline.check):
        with pytest.raises(error):
            call(b"x")
    assert chain_status(registry) == ("active", 0)


# The built-in plugins


@given(st.binary(max_size=1000))
def test_zstd_as_a_codec_gives_back_what_was_published(data: bytes) -> None:
    pipeline = BUILT_IN.topic_pipeline("blocks", codec="zstd", max_size=1000)
    assert pipeline.judge(pipeline.encode(data)) == (ACCEPTED, data)


@given(st.binary(max_size=200))
def test_whatever_a_peer_sends_the_built_in_plugins_do_not_fail(wire: bytes) -> None:
    pipeline = BUILT_IN.topic_pipeline("blocks", codec="zstd", validator="bitcoin", max_size=1000)
    assert pipeline.judge(wire)[0].verdict is Verdict.REJECT
    assert pipeline.check(wire).verdict is Verdict.REJECT  # no block is so short


def test_a_compressed_block_is_judged_by_its_content() -> None:
    pipeline = BUILT_IN.topic_pipeline("blocks", codec="zstd", validator="bitcoin", max_size=1000)
    validation, data = pipeline.judge(pipeline.encode(GENESIS))
    assert (validation.verdict, data) == (Verdict.ACCEPT, GENESIS)
    assert validation.facts["hash"] == GENESIS_HASH
    validation, data = pipeline.judge(pipeline.encode(GENESIS[:-1]))
    assert (validation.verdict, data) == (Verdict.REJECT, b"")


BUILT_IN = PluginRegistry.discover(extra={"zstd": ZstdPlugin, "bitcoin": BitcoinPlugin})

# The first block of Bitcoin and its hash (Bitcoin Core, src/kernel/chainparams.cpp).
GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27a"
    "c72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c01010000000100000000"
    "00000000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468652054"
    "696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e"
    "64206261696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104678afdb0fe5548271967"
    "f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d"
    "578a4c702b6bf11d5fac00000000"
)
GENESIS_HASH = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"


# Cluster selectors


def option(cluster: int, price: int) -> ClusterOption:
    return ClusterOption(cluster, price, None, None, (), 0)


SELECTION = Selection(bytes(20), b"id", 0, 1200, [option(7, 3), option(1, 2)])


def selector(choose: Callable[[Selection, Random], Any]) -> Callable[[Selection, Random], int]:
    class Chooser:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def select_cluster(self, selection: Selection, rng: Random) -> Any:
            return choose(selection, rng)

    registry = PluginRegistry.discover(max_failures=2, extra={"chooser": Chooser})
    return registry.selector("chooser", "relay.selector")


def test_a_selector_chooses_one_of_the_options() -> None:
    cheapest = selector(
        lambda selection, rng: min(selection.options, key=lambda option: option.price).cluster
    )
    assert cheapest(SELECTION, Random(1)) == 1


def test_a_selector_draws_from_the_generator_it_is_given() -> None:
    chance = selector(lambda selection, rng: rng.choice(selection.options).cluster)
    drawn = [chance(SELECTION, Random(seed)) for seed in range(20)]
    assert drawn == [Random(seed).choice(SELECTION.options).cluster for seed in range(20)]


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (2, "chose cluster 2, which is none of the options"),
        (True, "returned bool where a cluster id is due"),
        (1.0, "returned float where a cluster id is due"),
        (None, "returned NoneType where a cluster id is due"),
        (SELECTION.options[0], "returned ClusterOption where a cluster id is due"),
    ],
)
def test_a_selector_that_chooses_none_of_the_options_fails_and_is_switched_off(
    choice: object, problem: str
) -> None:
    astray = selector(lambda selection, rng: choice)
    for _ in range(2):
        with pytest.raises(PluginError, match=problem):
            astray(SELECTION, Random(1))
    with pytest.raises(PluginError, match="switched off after 2 failures in a row"):
        astray(SELECTION, Random(1))
