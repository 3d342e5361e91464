"""What each of the built-in selectors prefers, and that it never leaves the options."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.plugins.hookspecs import ClusterOption, Selection
from bruit.plugins.registry import PluginRegistry
from bruit.topics.errors import ConfigError

NAMES = ["cheapest", "mixed", "qos", "random", "reputation"]
Choose = Callable[[Selection, Random], int]

# Chi-square at a significance of 0.001, by degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.4)
CRITICAL = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467}


@pytest.fixture(scope="module")
def reputations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("reputation") / "reputation.json"
    file.write_text(json.dumps({str(number): number / 10 for number in range(11)}))
    return file


def selector(name: str, file: Path | None = None, **settings: object) -> Choose:
    if file is not None:
        key = "reputation_file" if name == "mixed" else "file"
        settings[key] = str(file)
    full = f"{name}-selector"
    return PluginRegistry.discover({full: settings}).selector(full, "relay.selector")


def option(cluster: int, **known: object) -> ClusterOption:
    """A cluster that has never been used, but for what is ``known``."""
    return msgspec.structs.replace(ClusterOption(cluster, 1, None, None, (), 0), **known)


def used(cluster: int, **known: object) -> ClusterOption:
    """A cluster with a clean record, but for what is ``known``."""
    clean: dict[str, object] = {"latency": 0.2, "acknowledgement_rate": 1.0}
    return option(cluster, **{**clean, **known})


def selection(options: Sequence[ClusterOption]) -> Selection:
    return Selection(bytes(20), b"\x01\x02\x03\x04", 0, 1200, options)


def drawn(choose: Choose, options: Sequence[ClusterOption], times: int) -> Counter[int]:
    rng = Random(1)
    asked = selection(options)
    return Counter(choose(asked, rng) for _ in range(times))


def chi_square(found: Counter[int], expected: dict[int, float]) -> float:
    total, shares = found.total(), sum(expected.values())
    assert set(found) <= {cluster for cluster, share in expected.items() if share}
    return sum(
        (found[cluster] - total * share / shares) ** 2 / (total * share / shares)
        for cluster, share in expected.items()
        if share
    )


rates = st.none() | st.floats(0, 1)
any_option = st.builds(
    ClusterOption,
    st.integers(0, 0xFFFF),
    st.integers(0, 1 << 53),
    st.none() | st.floats(0, 3600),
    rates,
    st.lists(st.floats(-1e12, 1e12), max_size=5),
    st.integers(0, 5000),
    rates,
)
any_options = st.lists(any_option, min_size=1, max_size=6, unique_by=lambda each: each.cluster)


# All of them


@pytest.mark.parametrize("name", NAMES)
def test_the_choice_is_always_an_option_and_repeats_with_the_generator(
    name: str, reputations: Path
) -> None:
    if name == "mixed":
        choose = selector(name, reputations, reputation=1.0)
    else:
        choose = selector(name, reputations if name == "reputation" else None)

    @given(any_options, st.integers(0, 1 << 32))
    def check(options: list[ClusterOption], seed: int) -> None:
        asked = selection(options)
        rng, again = Random(seed), Random(seed)
        for _ in range(3):
            chosen = choose(asked, rng)
            assert chosen in [each.cluster for each in options]
            assert chosen == choose(asked, again)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_single_option_is_taken_however_bad_it_is(name: str, reputations: Path) -> None:
    choose = selector(name, reputations if name == "reputation" else None)
    bad = option(0, latency=3600.0, acknowledgement_rate=0.0, recent_failures=10**6)
    assert drawn(choose, [bad], 50) == {0: 50}


@pytest.mark.parametrize("name", ["cheapest", "mixed", "qos"])
def test_equals_are_taken_in_the_order_of_the_protocol(name: str) -> None:
    greedy: dict[str, Any] = {"retry": 0.0} if name == "cheapest" else {"explore": 0.0}
    choose = selector(name, **greedy)
    for order in ((3, 1, 2), (2, 3, 1)):
        assert drawn(choose, [used(number) for number in order], 20) == {order[0]: 20}


# random


@pytest.mark.parametrize("count", [2, 3, 5])
def test_random_gives_every_option_the_same_share(count: int) -> None:
    options = [used(number, price=number**5, recent_failures=number) for number in range(count)]
    found = drawn(selector("random"), options, 20_000)
    assert chi_square(found, dict.fromkeys(range(count), 1.0)) < CRITICAL[count - 1]


# cheapest


@given(any_options)
def test_cheapest_takes_the_lowest_price_among_those_that_do_not_keep_failing(
    options: list[ClusterOption],
) -> None:
    chosen = CHEAPEST(selection(options), Random(1))
    works = [each for each in options if each.recent_failures < 3] or options
    assert chosen == min(works, key=lambda each: (each.price, works.index(each))).cluster


CHEAPEST = selector("cheapest", retry=0.0)


def test_cheapest_gives_a_failing_cluster_another_chance_now_and_then() -> None:
    options = [option(1, price=1, recent_failures=3), option(2, price=2)]
    found = drawn(selector("cheapest", retry=0.05), options, 20_000)
    assert chi_square(found, {1: 0.05, 2: 0.95}) < CRITICAL[1]


# qos


def qos(*options: ClusterOption) -> int:
    return QOS(selection(options), Random(1))


QOS = selector("qos", explore=0.0)


def test_qos_prefers_who_acknowledges_sooner() -> None:
    assert qos(used(1, latency=0.3), used(2, latency=0.1), used(3, latency=0.2)) == 2


def test_qos_prefers_who_acknowledges_more() -> None:
    assert qos(used(1, acknowledgement_rate=0.9), used(2, acknowledgement_rate=0.95)) == 2
    assert qos(used(1, acknowledgement_rate=0.0), used(2, acknowledgement_rate=0.05)) == 2


def test_qos_prefers_who_passes_on_more_of_what_it_acknowledges() -> None:
    dropper = used(1, latency=0.1, delivery_rate=0.0)
    assert qos(dropper, used(2, latency=10.0, delivery_rate=0.9)) == 2
    assert qos(used(1, delivery_rate=0.9), used(2, delivery_rate=0.95)) == 2


def test_qos_believes_acknowledgements_where_nobody_listens() -> None:
    assert qos(used(1, latency=0.3), used(2, latency=0.1)) == 2
    # After 1.5 s for every chunk that goes nowhere: 0.1 + 1.5/9 = 0.267 s against 0.25 s.
    assert qos(used(1, latency=0.1, delivery_rate=0.9), used(2, latency=0.25)) == 2


def test_qos_weighs_speed_against_losses_by_the_time_until_an_acknowledgement() -> None:
    # After 1.5 s for every lost one: 0.1 + 1.5/9 = 0.267 s against 0.25 s and 0.28 s.
    lossy = used(1, latency=0.1, acknowledgement_rate=0.9)
    assert qos(lossy, used(2, latency=0.25)) == 2
    assert qos(lossy, used(2, latency=0.28)) == 1


def test_qos_sees_an_outage_in_the_failures_since_the_last_success() -> None:
    assert qos(used(1, recent_failures=1), used(2, latency=1.6)) == 2
    assert qos(used(1, recent_failures=1), used(2, latency=1.8)) == 1
    assert qos(used(1, recent_failures=3), used(2, latency=1.6, recent_failures=2)) == 2


def test_qos_counts_a_cluster_that_never_acknowledged_as_slow_and_not_as_unknown() -> None:
    silent = option(1, acknowledgement_rate=0.0, recent_failures=2)
    assert qos(silent, used(2, latency=100.0)) == 2


def test_qos_passes_over_the_unknown_unless_it_explores() -> None:
    assert qos(option(1), used(2, latency=3.0)) == 2


@given(any_options, st.data())
def test_a_cluster_that_qos_takes_it_takes_as_well_when_it_has_become_better(
    options: list[ClusterOption], data: st.DataObject
) -> None:
    fields = ["latency", "acknowledgement_rate", "delivery_rate", "recent_failures"]
    assert_monotone(QOS, options, data, fields)


def assert_monotone(
    choose: Choose, options: list[ClusterOption], data: st.DataObject, fields: list[str]
) -> None:
    chosen = choose(selection(options), Random(1))
    at = next(at for at, each in enumerate(options) if each.cluster == chosen)
    field = data.draw(st.sampled_from(fields))
    value = getattr(options[at], field)
    if value is None:
        return
    if field in ("acknowledgement_rate", "delivery_rate"):
        better: object = data.draw(st.floats(value, 1))
    elif field == "latency":
        better = data.draw(st.floats(0, value))
    else:
        better = data.draw(st.integers(0, value))
    options[at] = msgspec.structs.replace(options[at], **{field: better})
    assert choose(selection(options), Random(1)) == chosen


@pytest.mark.parametrize("name", ["qos", "mixed"])
def test_exploring_goes_to_the_unknown_first(name: str) -> None:
    options = [used(1), option(2), option(3), used(4, latency=3.0)]
    found = drawn(selector(name, explore=0.1), options, 20_000)
    assert chi_square(found, {1: 0.9, 2: 0.05, 3: 0.05, 4: 0.0}) < CRITICAL[2]


@pytest.mark.parametrize("name", ["qos", "mixed"])
def test_exploring_goes_anywhere_once_all_are_known(name: str) -> None:
    options = [used(1), used(2, latency=3.0), used(3, latency=3.0, recent_failures=9)]
    found = drawn(selector(name, explore=0.3), options, 20_000)
    assert chi_square(found, {1: 0.8, 2: 0.1, 3: 0.1}) < CRITICAL[2]


@pytest.mark.parametrize("name", ["qos", "mixed"])
def test_where_nothing_is_known_chance_decides(name: str) -> None:
    options = [option(number, price=number) for number in range(3)]
    found = drawn(selector(name, explore=0.0), options, 20_000)
    assert chi_square(found, dict.fromkeys(range(3), 1.0)) < CRITICAL[2]


# reputation


def test_reputation_gives_chunks_in_proportion(reputations: Path) -> None:
    options = [option(number) for number in (0, 2, 4, 10)]
    found = drawn(selector("reputation", reputations), options, 20_000)
    assert chi_square(found, {0: 0.0, 2: 0.2, 4: 0.4, 10: 1.0}) < CRITICAL[2]


def test_a_cluster_that_is_not_in_the_file_has_the_reputation_of_the_unlisted(
    reputations: Path,
) -> None:
    options = [option(10), option(11)]
    found = drawn(selector("reputation", reputations, unlisted=0.25), options, 20_000)
    assert chi_square(found, {10: 1.0, 11: 0.25}) < CRITICAL[1]
    assert set(drawn(selector("reputation", reputations, unlisted=0.0), options, 500)) == {10}


def test_every_failure_in_a_row_halves_the_chance(reputations: Path) -> None:
    options = [option(5), option(6, recent_failures=1), option(8, recent_failures=3)]
    found = drawn(selector("reputation", reputations), options, 20_000)
    assert chi_square(found, {5: 0.5, 6: 0.3, 8: 0.1}) < CRITICAL[2]


def test_without_any_reputation_all_are_alike(reputations: Path) -> None:
    options = [option(0), option(11), option(12)]
    found = drawn(selector("reputation", reputations, unlisted=0.0), options, 20_000)
    assert chi_square(found, {0: 1.0, 11: 1.0, 12: 1.0}) < CRITICAL[2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reputation.toml", "1 = {}\n2 = 1\n"),
        ("reputation.json", '{{"1": {}, "2": 1}}'),
    ],
)
def test_reputations_are_read_again_when_their_file_changes(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text.format(0))
    for choose in (
        selector("reputation", file),
        selector("mixed", file, reputation=1.0, explore=0.0),
    ):
        file.write_text(text.format(0))
        options = [used(1), used(2)]
        assert set(drawn(choose, options, 50)) == {2}
        new = tmp_path / "new"
        new.write_text(text.format("1.0 "))
        new.rename(file)
        assert 1 in drawn(choose, options, 50)
        file.write_text("spoilt")
        assert 1 in drawn(choose, options, 50)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 1", "is not TOML"),
        ("1 = 1.5", "is no table from cluster id to a reputation of 0 to 1: Expected `float` <= 1"),
        ("1 = -0.5", "Expected `float` >= 0"),
        ("1 = nan", "Expected `float` >= 0"),
        ("65536 = 1", "Expected `int` <= 65535"),
        ("one = 1", "Expected `int`"),
        ("[clusters]\n1 = 1", "Expected `int`"),
    ],
)
def test_a_reputation_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "reputation.toml"
    file.write_text(text)
    for name, path in (
        ("reputation", "plugins.reputation-selector.file"),
        ("mixed", "plugins.mixed-selector.reputation_file"),
    ):
        settings = {"reputation": 1.0} if name == "mixed" else {}
        with pytest.raises(ConfigError) as caught:
            selector(name, file, **settings)
        assert caught.value.path == path
        assert problem in str(caught.value)


# mixed


NO_WEIGHTS: dict[str, Any] = dict.fromkeys(
    ["price", "latency", "acknowledgement_rate", "delivery_rate", "score"], 0.0
)


def only(**weights: float) -> Choose:
    """`mixed` with these weights and no others."""
    return selector("mixed", explore=0.0, **{**NO_WEIGHTS, **weights})


@pytest.mark.parametrize(
    ("weight", "worse", "better"),
    [
        ("price", {"price": 3}, {"price": 2}),
        ("latency", {"latency": 0.3}, {"latency": 0.2}),
        ("acknowledgement_rate", {"acknowledgement_rate": 0.8}, {"acknowledgement_rate": 0.9}),
        ("delivery_rate", {"delivery_rate": 0.8}, {"delivery_rate": 0.9}),
        ("delivery_rate", {"delivery_rate": 0.4}, {"delivery_rate": None}),
        ("score", {"score_history": [9.0, 1.0]}, {"score_history": [1.0, 9.0]}),
        ("price", {"recent_failures": 2}, {"recent_failures": 1}),
    ],
)
def test_mixed_follows_a_criterion_that_stands_alone(
    weight: str, worse: dict[str, object], better: dict[str, object]
) -> None:
    choose = only(**{weight: 1.0})
    asked = selection([used(1, **worse), used(2, **better)])
    assert choose(asked, Random(1)) == 2


def test_mixed_follows_reputation_where_it_has_a_weight(reputations: Path) -> None:
    choose = selector("mixed", reputations, reputation=10.0, explore=0.0)
    assert choose(selection([used(3), used(9), used(5)]), Random(1)) == 9


def test_the_weights_decide_between_a_cheap_cluster_and_a_fast_one() -> None:
    asked = selection([used(1, price=1, latency=0.9), used(2, price=9, latency=0.1)])
    assert only(price=2.0, latency=1.0)(asked, Random(1)) == 1
    assert only(price=1.0, latency=2.0)(asked, Random(1)) == 2


def test_a_missing_value_is_worth_half() -> None:
    asked = selection([used(1, latency=0.1), used(2, latency=None), used(3, latency=0.9)])
    assert only(latency=1.0)(asked, Random(1)) == 1
    asked = selection([used(2, latency=None), used(3, latency=0.9), used(4, latency=0.8)])
    # Marks 0.5, 0 and 1: the missing value stands between the known ones.
    assert only(latency=1.0)(asked, Random(1)) == 4
    failing = used(4, latency=0.8, recent_failures=2)
    asked = selection([used(2, latency=None), used(3, latency=0.9), failing])
    assert only(latency=1.0)(asked, Random(1)) == 2


@given(any_options, st.data())
def test_a_cluster_that_mixed_takes_it_takes_as_well_when_it_has_become_better(
    options: list[ClusterOption], data: st.DataObject
) -> None:
    fields = ["price", "latency", "acknowledgement_rate", "delivery_rate", "recent_failures"]
    assert_monotone(MIXED, options, data, fields)


MIXED = selector("mixed", explore=0.0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"reputation": 1.0}, "give both or none"),
        ({"reputation_file": "reputation.toml"}, "give both or none"),
        (NO_WEIGHTS, "all weights"),
        ({"price": -1.0}, "Expected `float` >= 0"),
        ({"explore": 1.5}, "Expected `float` <= 1"),
    ],
)
def test_settings_of_mixed_that_cannot_work_are_refused(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.mixed-selector") as caught:
        selector("mixed", **settings)
    assert problem in str(caught.value)
