"""Loading a configuration: layers, origins, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.config import (
    Loaded,
    NodeConfig,
    Override,
    TopicConfig,
    load_config,
    located,
    router_config,
    set_override,
)
from bruit.node.config.schema import NetworkConfig
from bruit.node.config.toml import KeyPath, dotted, line_numbers, read_assignment, write_value
from bruit.node.gossip.params import GossipParams, TopicParams
from bruit.node.identity import new_key
from bruit.topics.errors import ConfigError
from bruit.topics.keys import peer_id_text
from bruit.topics.message import SignaturePolicy, id_from_content, id_from_origin

PEER = "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWJt1mrDQw6sUC4Xb3J6XN7RmRTj3jWuKHmmEVyS1XNNVV"
BLOCKS = "/lux/mainnet/relay/blocks/proposed"


def from_text(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "bruit.toml"
    file.write_text(text)
    return load_config(file)


def refused(*assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, [set_override(text) for text in assignments])
    assert str(caught.value).startswith(caught.value.path)
    return str(caught.value)


def test_without_file_environment_or_flags_the_defaults_hold() -> None:
    loaded = load_config(None)
    assert loaded.config == NodeConfig()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.config.network.max_peers == 50  # LP-6420 §1.2
    assert loaded.config.network.min_peers == 10
    assert loaded.config.gossip.params() == GossipParams()


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text("[gossip]\nd = 7\nd_hi = 20\n\nd_lazy = 7\n")
    loaded = load_config(
        file,
        {"BRUIT_GOSSIP__D": "8", "BRUIT_GOSSIP__D_LAZY": "8"},
        [set_override("gossip.d_lazy=9")],
    )
    gossip = loaded.config.gossip
    assert (gossip.d_lo, gossip.d_hi, gossip.d, gossip.d_lazy) == (4, 20, 8, 9)
    assert loaded.origins["gossip.d_lo"] == "default"
    assert loaded.origins["gossip.d_hi"] == f"file {file}:3"
    assert loaded.origins["gossip.d"] == "environment BRUIT_GOSSIP__D"
    assert loaded.origins["gossip.d_lazy"] == "flag --set"


def test_the_environment_takes_toml_values_and_bare_words() -> None:
    config = load_config(
        None,
        {
            "BRUIT_NETWORK__LISTEN": '["/ip4/0.0.0.0/tcp/1"]',
            "BRUIT_LOG__LEVEL": "debug",
            "BRUIT_GOSSIP__FLOOD_PUBLISH": "false",
            "BRUIT_SCORING__THRESHOLDS__GRAYLIST": "-1500",
        },
    ).config
    assert config.network.listen == ("/ip4/0.0.0.0/tcp/1",)
    assert config.log.level == "debug"
    assert not config.gossip.flood_publish
    assert config.scoring.thresholds.graylist == -1500.0


def test_variables_of_other_programs_are_left_alone() -> None:
    environ = {"BRUIT_DATA": "/x", "GOSSIP__D": "8", "PATH": "/bin"}
    assert load_config(None, environ).config == NodeConfig()


def test_a_variable_that_names_no_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean gossip\?.*environment BRUIT_GOSIP__D"):
        load_config(None, {"BRUIT_GOSIP__D": "8"})


@pytest.mark.parametrize("name", ["BRUIT_TOPICS__A__CODEC", "BRUIT_PLUGINS__ZSTD__LEVEL"])
def test_topics_and_plugins_are_not_set_by_variables(name: str) -> None:
    with pytest.raises(ConfigError, match="use the file or --set"):
        load_config(None, {name: "1"})


def test_set_reaches_a_topic_by_its_quoted_name() -> None:
    config = load_config(None, {}, [set_override(f'topics."{BLOCKS}".codec=zstd')]).config
    assert config.topics == {BLOCKS: TopicConfig(codec="zstd")}


def test_set_changes_one_setting_of_a_table_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(f'[topics."{BLOCKS}"]\ncodec = "zstd"\nvalidator = "bitcoin"\n')
    loaded = load_config(file, {}, [set_override(f'topics."{BLOCKS}".validator=""')])
    assert loaded.config.topics[BLOCKS] == TopicConfig(codec="zstd")


def test_a_plugins_table_is_kept_as_it_was_written(tmp_path: Path) -> None:
    loaded = from_text(tmp_path, "[plugins.chain]\nlevel = 3\ndeep = { a = [1], b = 1.5 }\n")
    assert loaded.config.plugins == {"chain": {"level": 3, "deep": {"a": [1], "b": 1.5}}}
    assert loaded.origins["plugins.chain.deep"].endswith("bruit.toml:3")


def test_the_key_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    assert from_text(tmp_path, "").key_path == tmp_path / "node.key"
    assert from_text(tmp_path, "[identity]\nkey_file = '/k/a'").key_path == Path("/k/a")
    assert load_config(None).key_path == Path("node.key")


# What is refused


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("gosip.d=3", ["gosip:", "did you mean gossip?", "the sections are network"]),
        ("gossip.dlo=3", ["gossip.dlo:", "did you mean gossip.d_lo?", "[gossip] has d, d_lo,"]),
        ("scoring.threshold.gossip=1", ["did you mean scoring.thresholds?"]),
        (
            'topics."/a".codek=zstd',
            ['topics."/a".codek:', 'did you mean topics."/a".codec?', '[topics."/a"] has'],
        ),
        ("log.zzz=3", ["log.zzz:", "[log] has level, format"]),
    ],
)
def test_a_wrong_name_is_refused_with_the_closest_and_all_that_are_allowed(
    assignment: str, parts: list[str]
) -> None:
    message = refused(assignment)
    for part in [*parts, "there is no such setting", "(flag --set)"]:
        assert part in message


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("gossip.d='8'", 'gossip.d: "8" must be a whole number'),
        ("gossip.d=8.5", "gossip.d: 8.5 must be a whole number"),
        ("gossip.d=true", "gossip.d: true must be a whole number"),
        ("gossip.fanout_ttl=long", 'gossip.fanout_ttl: "long" must be a number'),
        ("gossip.flood_publish=1", "gossip.flood_publish: 1 must be true or false"),
        ("network.listen=3", "network.listen: 3 must be a list of texts"),
        ("network.listen=[3]", "network.listen: [3] must be a list of texts"),
        ("network.max_peers=0", "network.max_peers: 0 must be a whole number from 1 to 10,000"),
        ("plugin_limits.max_failures=0", "0 must be a whole number, 1 or more"),
        ("log.format=xml", 'log.format: "xml" must be one of "console", "json"'),
        ("gossip.signature_policy=no", '"no" must be one of "strict-sign", "strict-no-sign"'),
        ("identity.key_file=''", 'identity.key_file: "" must be a text that is not empty'),
        ("shutdown.grace=nan", "shutdown.grace: nan must be a number from 0 to 3,600"),
        ("gossip=3", "gossip: 3 must be a table of settings"),
        ("topics.a=true", "topics.a: true must be a table of settings"),
        ("plugins.a=1", "plugins.a: 1 must be a table of settings"),
        ("topics.a.max_message_size=40000000", "whole number from 1 to 33,554,432"),
    ],
)
def test_a_wrong_value_is_refused_with_path_value_rule_and_origin(
    assignment: str, message: str
) -> None:
    assert message in refused(assignment)
    assert refused(assignment).endswith("(flag --set)")


def test_a_long_wrong_value_is_not_repeated_whole() -> None:
    assert len(refused(f"gossip.d='{'x' * 5000}'")) < 200


def test_an_error_in_the_file_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^gossip.d: .*\(file .*bruit.toml:4\)$"):
        from_text(tmp_path, "[gossip]\nd_lo = 4\n# more\nd = 'six'\n")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["gossip.d=3"], "gossip.d_lo: 4 must be ≤ d (3)"),
        (["gossip.fanout_ttl=inf"], "gossip.fanout_ttl: inf must be finite (flag --set)"),
        (["scoring.thresholds.gossip=1"], "scoring.thresholds.gossip: 1.0 must be ≤ 0"),
        (["network.max_peers=3"], "network.min_peers: 10 must be ≤ max_peers (3)"),
        (["topics.''.codec=zstd"], 'topics."": topic'),
        (["topics.'a\tb'.codec=zstd"], "use printable characters only"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    assignments: list[str], message: str
) -> None:
    assert message in refused(*assignments)


@pytest.mark.parametrize(
    ("setting", "address", "problem"),
    [
        ("listen", "/ip4/300.0.0.1/tcp/1", "is not a multiaddr"),
        ("announce", "example.org:4001", "is not a multiaddr"),
        ("listen", "", "an empty text is not a multiaddr"),
        ("listen", PEER, "the node adds its own /p2p/"),
        ("peers", "/ip4/192.0.2.1/tcp/4001", "must be an address and the peer's id"),
        ("direct_peers", PEER.removeprefix("/ip4/192.0.2.1/tcp/4001"), "must be an address and"),
    ],
)
def test_an_address_that_cannot_serve_is_refused_with_its_place(
    setting: str, address: str, problem: str
) -> None:
    good = PEER if setting.endswith("peers") else "/ip4/192.0.2.1/tcp/4001"
    message = refused(f"network.{setting}={write_value([good, address])}")
    assert message.startswith(f"network.{setting}[1]: ")
    assert problem in message
    assert message.endswith("(flag --set)")


def test_ids_from_the_origin_are_refused_where_messages_have_none() -> None:
    message = refused("gossip.signature_policy=strict-no-sign", "topics.a.message_id=origin")
    assert message.startswith('topics.a.message_id: "origin" needs the author')


def test_an_error_found_after_loading_gets_its_origin(tmp_path: Path) -> None:
    loaded = from_text(tmp_path, "[plugins.zstd]\nlevel = 99\n")
    error = located(ConfigError("plugins.zstd.level", "99 is too high"), loaded.origins)
    assert str(error) == f"plugins.zstd.level: 99 is too high (file {tmp_path}/bruit.toml:2)"


def test_a_missing_file_is_refused_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist: write one with `bruit init`"):
        load_config(tmp_path / "bruit.toml")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[gossip\n", "is not TOML: .*line 1"),
        (b"d = \xff\n", "is not UTF-8 text: .* byte 4"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_the_place(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "bruit.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        load_config(file)


@pytest.mark.parametrize("text", ["", "gossip.d", "=3", "gossip..d=3", 'topics."\\q".codec=x'])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not PATH=VALUE"):
        set_override(text)


def test_a_value_cannot_smuggle_in_a_second_setting() -> None:
    _, value = read_assignment("gossip.d=8\nother = 9")
    assert value == "8\nother = 9"


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4),
    st.recursive(
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
)
def test_whatever_is_written_as_an_assignment_is_read_back(path: list[str], value: object) -> None:
    assert read_assignment(f"{dotted(path)} = {write_value(value)}") == (tuple(path), value)


@given(st.text())
def test_any_text_is_an_assignment_or_refused(text: str) -> None:
    try:
        path, _ = read_assignment(text)
    except ConfigError:
        return
    assert path


def test_line_numbers_follow_tables_and_quoted_keys() -> None:
    text = 'a = 1\n[b.c]\n  "x y" = 2\n# d = 3\n[topics."/a"]\ncodec = "z"\n'
    expected: dict[KeyPath, int] = {
        ("a",): 1,
        ("b", "c"): 2,
        ("b", "c", "x y"): 3,
        ("topics", "/a"): 5,
        ("topics", "/a", "codec"): 6,
    }
    assert line_numbers(text) == expected


# What a router is built from


def test_the_router_gets_every_topic_and_validates_those_with_a_codec_or_a_validator() -> None:
    config = NodeConfig(
        topics={
            "plain": TopicConfig(message_id="content", max_message_size=10),
            "packed": TopicConfig(codec="zstd"),
            "judged": TopicConfig(validator="bitcoin"),
        }
    )
    router = router_config(config)
    assert router.params == GossipParams()
    assert router.topics == {
        "plain": TopicParams(message_id=id_from_content, max_message_size=10),
        "packed": TopicParams(validated=True),
        "judged": TopicParams(validated=True),
    }
    assert router.default_topic.message_id is id_from_origin


def test_without_signatures_topics_of_no_table_take_their_ids_from_the_content() -> None:
    config = load_config(None, {}, [set_override("gossip.signature_policy=strict-no-sign")]).config
    router = router_config(config)
    assert router.signature_policy is SignaturePolicy.STRICT_NO_SIGN
    assert router.default_topic.message_id is id_from_content


def test_an_override_says_where_it_came_from() -> None:
    override = Override("flag --listen", ("network", "listen"), ["/ip4/127.0.0.1/tcp/0"])
    loaded = load_config(None, {}, [override])
    assert loaded.origins["network.listen"] == "flag --listen"


def test_configured_peers_are_kept_when_there_are_too_many() -> None:
    peer = new_key().public_key().peer_id()
    network = NetworkConfig(peers=(f"/ip4/192.0.2.1/tcp/4001/p2p/{peer_id_text(peer)}",))
    assert router_config(NodeConfig(network=network)).kept_peers == (peer,)
