"""What the linter says of parameters that are in use."""

import msgspec
import pytest

from bruit.scoring.adversary import Behaviour, Kind
from bruit.scoring.lint import DEFAULT_TOPIC, Report, lint
from bruit.scoring.presets import PRESETS, ethereum, preset
from tests.scoring.prysm import prysm_with_p3


def report_of(name: str) -> Report:
    chosen = preset(name)
    return lint(chosen.params, chosen.thresholds)


def kind_of(topic: str) -> str:
    """/eth2/4a26c58b/beacon_block/ssz_snappy → beacon_block"""
    return topic.split("/")[3]


def test_filecoin_passes_because_what_it_does_not_want_to_punish_is_off() -> None:
    report = report_of("filecoin")
    assert report.findings == ()
    assert [note.text for note in report.notes] == ["silence is not scored"] * 3


def test_lux_passes() -> None:
    report = report_of("lux")
    assert report.findings == ()
    assert [note.setting for note in report.notes] == [
        "scoring.topic.mesh_message_deliveries_weight"
    ]


def test_with_ethereums_parameters_a_peer_can_be_silent_about_blocks_and_attestations() -> None:
    findings = report_of("ethereum").findings
    assert [finding.behaviour for finding in findings] == [Behaviour(Kind.WITHHOLDS)] * 2
    topics = [finding.topics.names for finding in findings if finding.topics is not None]
    assert [[kind_of(name) for name in names] for names in topics] == [
        ["beacon_block"],
        [f"beacon_attestation_{subnet}" for subnet in range(64)],
    ]
    assert all(finding.setting.endswith(".mesh_message_deliveries_weight") for finding in findings)


def test_ethereums_aggregates_may_not_be_withheld() -> None:
    [tolerance] = [
        tolerance
        for tolerance in report_of("ethereum").tolerances
        if tolerance.topics is not None and "aggregate" in tolerance.topics.names[0]
    ]
    assert tolerance.text == "withhold 3% of what P3 expects"


def test_a_weight_of_all_merits_as_lodestar_and_teku_have_it_leaves_no_room_for_silence() -> None:
    """Theirs is −(all merits) ÷ (topic_weight × threshold²): −468.9689 for blocks."""
    params = ethereum(16_384).params
    most = 110.0
    topics = {
        name: msgspec.structs.replace(
            topic,
            mesh_message_deliveries_weight=-most
            / (topic.topic_weight * topic.mesh_message_deliveries_threshold**2),
        )
        if topic.mesh_message_deliveries_weight
        else topic
        for name, topic in params.topics.items()
    }
    blocks = next(topic for name, topic in topics.items() if "beacon_block" in name)
    assert blocks.mesh_message_deliveries_weight == pytest.approx(-468.9689, abs=0.00005)
    report = lint(msgspec.structs.replace(params, topics=topics), ethereum(16_384).thresholds)
    assert report.findings
    for finding in report.findings:
        assert finding.behaviour is None or finding.behaviour.count  # no finding of silence


def test_the_parameters_of_cve_2022_47547_let_a_peer_be_silent_in_an_attestation_subnet() -> None:
    cve = prysm_with_p3()
    cve.params.check()
    silent = [
        finding.topics.names[0]
        for finding in lint(cve.params, cve.thresholds).findings
        if finding.topics is not None and finding.behaviour == Behaviour(Kind.WITHHOLDS)
    ]
    assert "attestations 0" in silent
    assert "blocks" not in silent  # which the authors found, too: there silence costs 147


def test_paper2020_leaves_no_room_for_silence_as_it_was_run_but_does_with_more_topics() -> None:
    paper = preset("paper2020")
    alone = msgspec.structs.replace(paper.params, default_topic=None)
    [finding] = lint(alone, paper.thresholds).findings
    # P1 alone comes to 9.72, and a deficit of 6.2 (of 10) costs 0.25 × 6.2² = 9.61.
    assert finding.problem == "a peer can withhold 59% of what P3 expects for ever"
    silent = [
        finding.topics.names[0]
        for finding in lint(paper.params, paper.thresholds).findings
        if finding.topics is not None and finding.behaviour == Behaviour(Kind.WITHHOLDS)
    ]
    assert silent == ["blocks", DEFAULT_TOPIC]


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_puts_an_honest_peer_below_0(name: str) -> None:
    assert all(finding.behaviour is not None for finding in report_of(name).findings)
