"""What plugins together think of a peer, and what happens when one of them fails."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bruit.plugins.app_scores import MAX_APP_SCORE, AppScorer
from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.registry import PluginRegistry
from bruit.topics.errors import ConfigError
from bruit.topics.keys import PeerId

PEER, OTHER = b"peer", b"other"
PATH = "scoring.app_scores"


class NoSettings(msgspec.Struct, frozen=True):
    pass


def judge(opinion: Callable[[PeerId], Any]) -> type:
    class Judge:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def app_score(self, peer: PeerId) -> Any:
            return opinion(peer)

    return Judge


def registry(**opinions: Callable[[PeerId], Any]) -> PluginRegistry:
    extra = {name: judge(opinion) for name, opinion in opinions.items()}
    return PluginRegistry.discover(max_failures=3, extra=extra)


def scorer(**opinions: Callable[[PeerId], Any]) -> AppScorer:
    return registry(**opinions).app_scorer(list(opinions), PATH)


def test_the_answers_of_several_plugins_are_added_up() -> None:
    score = scorer(
        stake=lambda peer: 2.5 if peer == PEER else 0,
        history=lambda peer: -1,
        club=lambda peer: 10.0 if peer == OTHER else 0.0,
    )
    assert (score(PEER), score(OTHER)) == (1.5, 9)


def test_without_plugins_there_is_nothing_to_ask() -> None:
    score = scorer()
    assert not score
    assert score(PEER) == 0
    assert scorer(stake=lambda peer: 0)


def test_only_the_plugins_that_are_named_are_asked() -> None:
    both = registry(stake=lambda peer: 1, history=lambda peer: 2)
    assert both.app_scorer(["history"], PATH)(PEER) == 2


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "returned NoneType where a number is due"),
        ("7", "returned str where a number is due"),
        (True, "returned bool where a number is due"),
        (math.nan, "returned nan, which is not within ±1e+12"),
        (math.inf, "returned inf, which is not within ±1e+12"),
        (-math.inf, "returned -inf, which is not within ±1e+12"),
        (MAX_APP_SCORE * 1.01, "which is not within ±1e+12"),
        (10**400, "OverflowError"),
    ],
)
def test_an_answer_that_is_no_number_counts_as_nothing_and_as_a_failure(
    answer: object, problem: str
) -> None:
    plugins = registry(bad=lambda peer: answer, good=lambda peer: 4)
    assert plugins.app_scorer(["bad", "good"], PATH)(PEER) == 4
    [event] = plugins.drain_events()
    assert (event.plugin, event.hook) == ("bad", "app_score")
    assert problem in event.problem


def test_a_plugin_that_keeps_failing_is_switched_off_and_the_others_go_on() -> None:
    asked: list[PeerId] = []

    def fail(peer: PeerId) -> float:
        asked.append(peer)
        raise OSError("the chain is not there")

    plugins = registry(bad=fail, good=lambda peer: 4)
    score = plugins.app_scorer(["bad", "good"], PATH)
    assert [score(PEER) for _ in range(5)] == [4] * 5
    assert len(asked) == 3  # max_failures
    states = {status.name: status.state for status in plugins.statuses()}
    assert (states["bad"], states["good"]) == ("off", "active")


def test_a_success_starts_the_count_of_failures_anew() -> None:
    answers = iter([math.nan, math.nan, 1, math.nan, math.nan, 2])
    score = scorer(moody=lambda peer: next(answers))
    assert [score(PEER) for _ in range(6)] == [0, 0, 1, 0, 0, 2]


@pytest.mark.parametrize(
    ("names", "path", "problem"),
    [
        (["stakes"], "scoring.app_scores[0]", "no plugin 'stakes' is installed; did you mean 'st"),
        (["stake", "zstd"], "scoring.app_scores[1]", "no judge of peers, for it has no app_score"),
        (["stake", "stake"], "scoring.app_scores[1]", "'stake' stands in the list twice"),
    ],
)
def test_a_name_that_cannot_judge_is_refused_where_it_stands(
    names: list[str], path: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PluginRegistry.discover().app_scorer(names, PATH)
    assert caught.value.path == path
    assert problem in str(caught.value)
