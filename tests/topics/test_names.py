"""Topic names and the relay hierarchy (LP-6420 §2)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bruit.topics.errors import LocalError
from bruit.topics.names import RelayTopic, check_topic, parse_relay_topic

segments = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@pytest.mark.parametrize("topic", ["a", "t" * 256, "ü" * 128, "a topic with spaces", "/lux/+/#"])
def test_any_printable_name_of_1_to_256_bytes_is_a_topic(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize("topic", ["", "t" * 257, "ü" * 129])
def test_the_length_of_a_name_is_counted_in_bytes(topic: str) -> None:
    with pytest.raises(LocalError, match="1 to 256 bytes"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["a\nb", "a\x00b", "\u202eabc", "a\ud800"])
def test_a_name_that_does_not_print_is_refused(topic: str) -> None:
    """A line break would forge log lines; a lone surrogate has no bytes at all."""
    with pytest.raises(LocalError, match="printable"):
        check_topic(topic)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("/lux/mainnet/relay/headers/global", RelayTopic("mainnet", "headers", "global")),
        ("/lux/mainnet/relay/namespace/0x1234", RelayTopic("mainnet", "namespace", "0x1234")),
        ("/lux/mainnet/relay/blobs/available", RelayTopic("mainnet", "blobs", "available")),
    ],
)
def test_the_examples_of_the_proposal_are_names_of_the_hierarchy(
    name: str, topic: RelayTopic
) -> None:
    """LP-6420 §2.1."""
    assert parse_relay_topic(name) == topic
    assert str(topic) == name


@given(segments, segments, segments)
def test_a_name_of_the_hierarchy_says_what_it_was_made_of(
    network: str, kind: str, identifier: str
) -> None:
    topic = RelayTopic(network, kind, identifier)
    assert parse_relay_topic(str(topic)) == topic
    assert check_topic(str(topic))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/lux/mainnet/relay/headers",
        "/lux/mainnet/relay/headers/global/",
        "lux/mainnet/relay/headers/global",
        "/lux/mainnet/headers/relay/global",
        "/LUX/mainnet/relay/headers/global",
        "/lux//relay/headers/global",
        "/lux/mainnet/relay/headers/glo bal",
        "/lux/mainnet/relay/headers/" + "g" * 65,
        "/lux/mainnet/relay/headers/global\n",
    ],
)
def test_another_form_is_no_name_of_the_hierarchy(name: str) -> None:
    with pytest.raises(LocalError):
        parse_relay_topic(name)


@given(st.one_of(st.text(), st.lists(st.text(max_size=3), max_size=7).map("/".join)))
@example("/lux/a/relay/b/c")
def test_any_text_is_a_name_of_the_hierarchy_to_the_letter_or_an_error(text: str) -> None:
    try:
        topic = parse_relay_topic(text)
    except LocalError:
        return
    assert str(topic) == text


@pytest.mark.parametrize("segment", ["", "a/b", "ä", "a" * 65, "a\n"])
def test_a_segment_is_1_to_64_plain_characters(segment: str) -> None:
    for parts in ((segment, "k", "i"), ("n", segment, "i"), ("n", "k", segment)):
        with pytest.raises(LocalError):
            RelayTopic(*parts)
