"""What the linter finds, and that real scores agree with it."""

import itertools
import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bruit.scoring.adversary import Adversary, Behaviour, Kind, cycle
from bruit.scoring.lint import DEFAULT_TOPIC, OTHER_TOPICS, Finding, lint, pace
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.presets import PRESETS, ethereum, preset
from bruit.scoring.thresholds import Thresholds
from tests.scoring.driven import DrivenPeer
from tests.scoring.prysm import prysm_with_p3

# Sets made to be wrong, one for each kind of finding

TOPIC = TopicScoreParams(
    time_in_mesh_weight=0.1,
    time_in_mesh_cap=100.0,
    first_message_deliveries_weight=1.0,
    first_message_deliveries_decay=0.9,
    first_message_deliveries_cap=50.0,
    mesh_message_deliveries_weight=-1.0,
    mesh_message_deliveries_decay=0.9,
    mesh_message_deliveries_cap=90.0,
    mesh_message_deliveries_threshold=20.0,
    mesh_message_deliveries_activation=10.0,
    invalid_message_deliveries_weight=-200.0,
    invalid_message_deliveries_decay=0.99,
)
SOUND = PeerScoreParams(
    topics={"a": TOPIC, "b": msgspec.structs.replace(TOPIC, first_message_deliveries_cap=49.0)},
    behaviour_penalty_weight=-100.0,
    behaviour_penalty_threshold=1.0,
    behaviour_penalty_decay=0.99,
)


def with_topic(**values: Any) -> PeerScoreParams:
    """`SOUND`, but for topic "a"."""
    topic = msgspec.structs.replace(TOPIC, **values)
    return msgspec.structs.replace(SOUND, topics={**SOUND.topics, "a": topic})


SILENT = with_topic(mesh_message_deliveries_weight=-0.1)
WITHHELD = with_topic(mesh_message_deliveries_weight=-0.3)
INVALID = with_topic(invalid_message_deliveries_weight=-0.01)
INVALID_IN_BURSTS = with_topic(
    invalid_message_deliveries_weight=-0.001, invalid_message_deliveries_decay=0.5
)
VIOLATIONS = msgspec.structs.replace(SOUND, behaviour_penalty_weight=-0.001)
FORGIVEN_VIOLATIONS = msgspec.structs.replace(SOUND, behaviour_penalty_threshold=1000.0)

WRONG = {
    "silent": (SILENT, "a peer can be silent for ever"),
    "withheld": (WITHHELD, "a peer can withhold "),
    "invalid": (INVALID, "a peer can send an invalid message every "),
    "invalid in bursts": (INVALID_IN_BURSTS, "a peer can send an invalid message "),
    "violations": (VIOLATIONS, "a peer can violate the protocol "),
    "forgiven violations": (FORGIVEN_VIOLATIONS, "a peer can violate the protocol "),
}


def test_the_sound_set_is_sound() -> None:
    SOUND.check()
    report = lint(SOUND, Thresholds())
    assert report.findings == ()
    assert report.notes == ()


@pytest.mark.parametrize("name", WRONG)
def test_a_penalty_that_cannot_bite_is_the_one_finding(name: str) -> None:
    params, problem = WRONG[name]
    params.check()
    [finding] = lint(params, Thresholds()).findings
    assert problem in finding.problem
    assert (finding.topics and finding.topics.names) == (None if "viol" in name else ("a",))


def repaired(params: PeerScoreParams, finding: Finding) -> PeerScoreParams:
    values = {each.setting.rpartition(".")[2]: each.value for each in finding.remedies}
    if finding.topics is None:
        return msgspec.structs.replace(params, **values)
    if finding.topics.names == (DEFAULT_TOPIC,):
        assert params.default_topic is not None
        topic = msgspec.structs.replace(params.default_topic, **values)
        return msgspec.structs.replace(params, default_topic=topic)
    topics = {
        name: msgspec.structs.replace(topic, **values) if name in finding.topics.names else topic
        for name, topic in params.topics.items()
    }
    return msgspec.structs.replace(params, topics=topics)


CASES = {name: (params, Thresholds()) for name, (params, _) in WRONG.items()} | {
    name: (preset(name).params, preset(name).thresholds) for name in PRESETS
}
CASES["ethereum at its genesis"] = (ethereum(16_384).params, ethereum(16_384).thresholds)
CASES["cve"] = (prysm_with_p3().params, prysm_with_p3().thresholds)
CASES["lux with a timid penalty"] = (
    msgspec.structs.replace(preset("lux").params, behaviour_penalty_weight=-10.0),
    preset("lux").thresholds,
)


@pytest.mark.parametrize("name", CASES)
def test_the_value_that_would_do_does(name: str) -> None:
    params, thresholds = CASES[name]
    findings = lint(params, thresholds).findings
    for finding in findings:
        better = repaired(params, finding)
        better.check()
        left = lint(better, thresholds).findings
        assert finding.setting not in [other.setting for other in left]
        assert all(other.behaviour is not None for other in left)  # nor is it at honest peers' cost


def test_a_peer_whose_score_is_just_the_mesh_threshold_stays() -> None:
    """Below it a peer leaves the mesh, as in go; 50 + 50 − 0.25 × 20² is 0."""
    even = msgspec.structs.replace(
        TOPIC,
        time_in_mesh_weight=0.5,
        first_message_deliveries_weight=0.0,
        mesh_message_deliveries_weight=-0.25,
    )
    params = PeerScoreParams(topics={"a": even, "b": even}, topic_score_cap=100.0)
    assert adversary_of(params, "a").long_run(Behaviour(Kind.WITHHOLDS)) == 0
    problems = [finding.problem for finding in lint(params, Thresholds()).findings]
    assert problems == ["a peer can be silent for ever, in 1 of the topics at once"]


def test_a_lower_mesh_threshold_asks_for_harder_penalties() -> None:
    low = Thresholds(mesh=-1000, graylist=-2000)
    silent = Behaviour(Kind.WITHHOLDS)  # 54.1 + 10 − 20² is below 0, and not below −1000
    assert [each.behaviour for each in lint(SOUND, low).findings].count(silent) == 2
    assert lint(SOUND, Thresholds()).findings == ()


@pytest.mark.parametrize(("weight", "findings"), [(-75.0, 1), (-79.0, 0)])
def test_a_violation_a_minute_is_where_a_finding_begins(weight: float, findings: int) -> None:
    """The counter comes to 1 ÷ (1 − 0.99⁶⁰) = 2.21, a tick later to 2.19, which is 1.19 too many;
    merits, which have faded by then, to 109.1: so 109.1 ÷ 1.19² = 77 is the least that bites."""
    params = msgspec.structs.replace(SOUND, behaviour_penalty_weight=weight)
    assert len(lint(params, Thresholds()).findings) == findings


# Real scores

ALL_FINDINGS = [
    pytest.param(params, thresholds, finding, id=f"{name}: {finding.setting}")
    for name, (params, thresholds) in CASES.items()
    for finding in lint(params, thresholds).findings
    if name != "ethereum"  # takes 5,000 messages a tick; the same at its genesis takes few
]
TICKS = 120  # followed at most


def names_in(params: PeerScoreParams) -> list[str]:
    others = [f"other {number}" for number in range(OTHER_TOPICS)]
    return [*params.topics, *(others if params.default_topic is not None else [])]


def place_of(finding: Finding) -> str | None:
    if finding.topics is None:
        return None
    return "other 0" if finding.topics.names == (DEFAULT_TOPIC,) else finding.topics.names[0]


def adversary_of(params: PeerScoreParams, where: str | None) -> Adversary:
    others = [params.topic(name) for name in names_in(params) if name != where]
    return Adversary(
        params,
        params.topic(where) if where is not None else None,
        [(topic, 1) for topic in others if topic is not None],
    )


@pytest.mark.parametrize(("params", "thresholds", "finding"), ALL_FINDINGS)
def test_real_scores_of_the_peer_stay_up_as_the_linter_says(
    params: PeerScoreParams, thresholds: Thresholds, finding: Finding
) -> None:
    assert finding.behaviour is not None
    where = place_of(finding)
    adversary = adversary_of(params, where)
    peer = DrivenPeer(params, names_in(params))
    computed = adversary.run(finding.behaviour, TICKS)
    driven = peer.run(finding.behaviour, where, TICKS)
    for expected, samples in zip(computed, driven, strict=True):
        assert samples.faded == pytest.approx(expected.faded, rel=1e-9, abs=1e-9)
        assert samples.acted == pytest.approx(expected.acted, rel=1e-9, abs=1e-9)
        assert samples.lowest >= thresholds.mesh
    assert min(point.score for point in finding.curve) >= thresholds.mesh


@pytest.mark.parametrize("name", ["silent", "withheld", "invalid", "violations"])
def test_with_the_remedy_the_same_behaviour_ends_in_real_scores(name: str) -> None:
    params, thresholds = CASES[name]
    [finding] = lint(params, thresholds).findings
    assert finding.behaviour is not None
    better = repaired(params, finding)
    peer = DrivenPeer(better, names_in(better))
    driven = peer.run(finding.behaviour, place_of(finding), 2000)
    assert any(samples.lowest < thresholds.mesh for samples in driven)


def test_in_so_many_topics_at_once_a_peer_can_be_silent_and_in_no_more() -> None:
    names = [f"topic {number}" for number in range(10)]
    alike = msgspec.structs.replace(TOPIC, mesh_message_deliveries_weight=-0.3)
    params = PeerScoreParams(topics=dict.fromkeys(names, alike))
    [finding] = lint(params, Thresholds()).findings
    match = re.search(r"in (\d) of the topics at once", finding.problem)
    assert match is not None
    most = int(match[1])
    assert 1 < most < 9
    for silent, escapes in ((most, True), (most + 1, False)):
        peer = DrivenPeer(params, names)
        lowest = math.inf
        for _ in range(200):
            peer.now += 1
            peer.scores.refresh(peer.now)
            lowest = min(lowest, peer.score())
            for name in names[silent:]:
                peer.shine(name)
        assert (lowest >= 0) is escapes


def test_what_is_tolerated_is_and_a_little_more_is_not() -> None:
    filecoin = preset("filecoin")
    report = lint(filecoin.params, filecoin.thresholds)
    [tolerance] = [each for each in report.tolerances if each.topics is None]
    allowed = tolerance.behaviour
    assert (allowed.count, tolerance.text) == (1, "violate the protocol every 1.47 min")
    names = list(filecoin.params.topics)
    worse = Behaviour(Kind.VIOLATES, 1, allowed.every - 1)
    for behaviour, escapes in ((allowed, True), (worse, False)):
        peer = DrivenPeer(filecoin.params, names)
        lowest = min(samples.lowest for samples in peer.run(behaviour, None, 4000))
        assert (lowest >= 0) is escapes


# The arithmetic


@example(count=1, every=1, decay=0.25, to_zero=0.3125, cap=None)  # never leaves 0 behind it
@given(
    st.integers(0, 20),
    st.integers(1, 20),
    st.floats(0.05, 0.99),
    st.floats(0.001, 0.5),
    st.none() | st.floats(0.5, 50),
)
def test_a_cycle_is_where_stepping_comes_to(
    count: int, every: int, decay: float, to_zero: float, cap: float | None
) -> None:
    counter = rest = peak = cap or 0.0
    ticks = every * (2 + math.ceil(math.log(1e-13) / math.log(decay) / every))
    for tick in range(1, ticks + 1):
        counter *= decay
        assume(abs(counter - to_zero) > 1e-9)
        counter = counter if counter >= to_zero else 0.0
        if tick % every == 0:
            rest = counter
            peak = counter = min(cap or math.inf, counter + count)
    assert (rest, peak) == pytest.approx(
        msgspec.structs.astuple(cycle(count, every, decay, to_zero, cap)), abs=1e-9
    )


BEHAVIOURS = st.builds(
    Behaviour, st.sampled_from(list(Kind)), st.integers(0, 5), st.integers(1, 30)
)


@settings(max_examples=50, deadline=None)
@given(
    BEHAVIOURS,
    st.sampled_from([SOUND, SILENT, INVALID, INVALID_IN_BURSTS, VIOLATIONS]),
    st.sampled_from([0.0, 20.0, 75.0]),
)
def test_in_the_long_run_the_score_is_as_low_as_stepping_finds(
    behaviour: Behaviour, params: PeerScoreParams, cap: float
) -> None:
    capped = msgspec.structs.replace(params, topic_score_cap=cap)
    adversary = adversary_of(capped, "a")
    ticks = 4000
    tail = itertools.islice(adversary.run(behaviour, ticks), ticks - 60, None)
    assert min(samples.lowest for samples in tail) == pytest.approx(
        adversary.long_run(behaviour), rel=1e-6, abs=1e-6
    )


# Who is innocent


def test_an_honest_peer_that_is_judged_too_early_is_a_finding() -> None:
    params = with_topic(mesh_message_deliveries_decay=0.99, mesh_message_deliveries_activation=1.0)
    [finding] = [each for each in lint(params, Thresholds()).findings if each.behaviour is None]
    assert finding.problem == "an honest peer falls below 0"
    assert finding.setting == 'scoring.topics."a".mesh_message_deliveries_activation'
    assert min(point.score for point in finding.curve) < 0
    better = repaired(params, finding)
    assert all(each.behaviour for each in lint(better, Thresholds()).findings)


def test_an_honest_peer_under_a_cap_that_is_too_close_to_the_threshold_is_a_finding() -> None:
    params = with_topic(
        mesh_message_deliveries_cap=20.0,
        mesh_message_deliveries_weight=-10.0,
        time_in_mesh_weight=0.0,
    )
    params.check()
    [finding] = lint(params, Thresholds()).findings
    assert finding.setting == 'scoring.topics."a".mesh_message_deliveries_threshold'
    assert finding.remedies[0].value <= 18.0  # 20 × 0.9, what decay leaves of a full counter
    [next_one] = lint(repaired(params, finding), Thresholds()).findings
    assert next_one.setting == 'scoring.topics."a".mesh_message_deliveries_activation'
    assert lint(repaired(repaired(params, finding), next_one), Thresholds()).findings == ()


def honest_scores(params: PeerScoreParams, name: str, seconds: int) -> list[float]:
    """Real scores of a peer that joins, and sends a copy of just enough messages, never first."""
    topic = params.topics[name]
    rate = topic.mesh_message_deliveries_cap * (1 - topic.mesh_message_deliveries_decay)
    count, every = (math.ceil(rate), 1) if rate >= 1 else (1, int(1 / rate))
    scores = PeerScores(params, Thresholds())
    for peer in (b"honest", b"fast"):
        scores.connected(peer, (), 0.0)
        scores.grafted(peer, name, 0.0)
    found = []
    for second in range(1, seconds + 1):
        scores.refresh(float(second))
        found.append(scores.score(b"honest", float(second)))
        for number in range(count if second % every == 0 else 0):
            message = b"%d %d" % (second, number)
            scores.validating(message, float(second))
            scores.first_delivery(b"fast", name, message, float(second))
            scores.duplicate(b"honest", name, message, float(second))
    return found


@pytest.mark.parametrize(
    "values",
    [
        {"mesh_message_deliveries_decay": 0.99, "mesh_message_deliveries_activation": 1.0},
        {"mesh_message_deliveries_cap": 20.0, "mesh_message_deliveries_weight": -10.0},
        {
            "mesh_message_deliveries_cap": 2.1,
            "mesh_message_deliveries_threshold": 1.5,
            "mesh_message_deliveries_weight": -50.0,
        },
    ],
)
def test_real_scores_of_an_honest_peer_fall_as_low_as_the_linter_says(
    values: dict[str, float],
) -> None:
    params = with_topic(**values, time_in_mesh_weight=0.001)
    [finding] = [each for each in lint(params, Thresholds()).findings if each.behaviour is None]
    driven = honest_scores(params, "a", int(finding.curve[-1].seconds))
    lowest = min(point.score for point in finding.curve)
    assert lowest < 0
    assert min(driven) == pytest.approx(lowest)
    for _ in range(2):  # one remedy may ask for a second
        for each in lint(params, Thresholds()).findings:
            if each.behaviour is None:
                params = repaired(params, each)
    assert min(honest_scores(params, "a", len(driven))) >= 0


# Notes and words


@pytest.mark.parametrize(
    ("params", "setting", "text"),
    [
        (with_topic(topic_weight=0.0), 'scoring.topics."a".topic_weight', "nothing"),
        (
            with_topic(invalid_message_deliveries_weight=0.0),
            'scoring.topics."a".invalid_message_deliveries_weight',
            "invalid messages are not scored",
        ),
        (
            msgspec.structs.replace(SOUND, behaviour_penalty_weight=0.0),
            "scoring.peer.behaviour_penalty_weight",
            "protocol violations are not scored",
        ),
        (
            msgspec.structs.replace(
                SOUND, default_topic=TopicScoreParams(time_in_mesh_weight=1e-4, topic_weight=1.0)
            ),
            "scoring.peer.topic_score_cap",
            "without end",
        ),
    ],
)
def test_what_is_off_is_a_note_and_no_finding(
    params: PeerScoreParams, setting: str, text: str
) -> None:
    report = lint(params, Thresholds())
    assert report.findings == ()
    [note] = [note for note in report.notes if note.setting == setting]
    assert text in note.text


def test_the_more_topics_are_in_use_the_less_a_penalty_bites() -> None:
    """Where topics that are not named count and nothing caps their sum."""
    params = msgspec.structs.replace(
        SOUND,
        default_topic=TopicScoreParams(time_in_mesh_weight=0.1, time_in_mesh_cap=100.0),
    )
    few = lint(params, Thresholds()).findings
    many = lint(params, Thresholds(), [f"topic {number}" for number in range(100)]).findings
    assert few == ()
    assert {finding.problem for finding in many} >= {"a peer can be silent for ever"}


@pytest.mark.parametrize(
    ("per_second", "words"),
    [
        (1 / 3600, "every 1 h"),
        (1 / 5400, "every 1.5 h"),
        (1 / 90, "every 1.5 min"),
        (0.5, "every 2 s"),
        (1.0, "every 1 s"),
        (25.0, "25 times a second"),
    ],
)
def test_a_rate_in_words(per_second: float, words: str) -> None:
    assert pace(per_second) == words
