"""The ``[relay]`` tables: what they come to, and what is refused with which words."""

from pathlib import Path

import pytest

from bruit.node.config import ChannelConfig, NodeConfig, RelayConfig, load_config, router_config
from bruit.node.config.load import leaves
from bruit.node.relay.coding.code import Coding
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.wants import chunk_name
from bruit.topics.errors import ConfigError

CHANNELS = """
[relay.channels.bitcoin]
id = 1
topic = "/marlin/bitcoin"

[relay.channels.ethereum]
id = 2
topic = "/marlin/ethereum"
min_chunks = 4
num_chunks = 7
coding = "ida"
attesting = "merkle"
max_block = 100_000
codec = "zstd"
"""


def load(tmp_path: Path, text: str) -> NodeConfig:
    file = tmp_path / "bruit.toml"
    file.write_text(text)
    return load_config(file).config


def refused(tmp_path: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return caught.value


def channel(name: str = "bitcoin", **settings: object) -> str:
    given = {"id": 1, "topic": f'"/marlin/{name}"'} | settings
    return "\n".join(
        [f"[relay.channels.{name}]", *(f"{key} = {value}" for key, value in given.items()), ""]
    )


def test_without_a_table_there_is_no_relay(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config.relay == RelayConfig()
    assert config.relay.roles == ()
    assert not config.relay.signs
    assert router_config(config).topics == {}


def test_channels_are_what_the_nodes_of_a_network_agree_on_without_this_nodes_plugins(
    tmp_path: Path,
) -> None:
    relay = load(tmp_path, CHANNELS).relay
    assert relay.channel_params() == {
        1: ChannelParams(id=1, topic="/marlin/bitcoin"),
        2: ChannelParams(
            id=2,
            topic="/marlin/ethereum",
            min_chunks=4,
            num_chunks=7,
            coding=Coding.IDA,
            attesting=Attesting.MERKLE,
            max_block=100_000,
        ),
    }
    assert {type(each) for each in relay.channel_params().values()} == {ChannelParams}
    assert relay.channels["ethereum"].plugins == {"codec": "zstd"}
    assert relay.channels["bitcoin"].plugins == {}


def test_parameters_have_a_table_and_variables_of_their_own() -> None:
    relay = load_config(None, {"BRUIT_RELAY__PARAMS__STAKE_PER_BYTE": "3"}).config.relay
    assert relay.params == RelayParams(stake_per_byte=3)


def test_a_variable_cannot_name_a_channel() -> None:
    with pytest.raises(ConfigError, match="cannot name one of the channels"):
        load_config(None, {"BRUIT_RELAY__CHANNELS__BITCOIN__ID": "1"})


def test_every_setting_of_a_channel_has_its_path_and_origin(tmp_path: Path) -> None:
    file = tmp_path / "bruit.toml"
    file.write_text(CHANNELS)
    loaded = load_config(file)
    assert loaded.origins["relay.channels.ethereum.codec"] == f"file {file}:14"
    paths = {path for path, _ in leaves(loaded.config) if path.startswith("relay.channels.")}
    names = ChannelConfig.__struct_fields__
    assert paths == {
        f"relay.channels.{each}.{n}" for each in ("bitcoin", "ethereum") for n in names
    }


@pytest.mark.parametrize("role", ["producer", "member", "consumer"])
def test_a_role_makes_the_channels_topics_of_the_router(tmp_path: Path, role: str) -> None:
    config = load(tmp_path, f'[relay]\nroles = ["{role}"]\n{CHANNELS}')
    topics = router_config(config).topics
    assert set(topics) == {"/marlin/bitcoin", "/marlin/ethereum"}
    for params in topics.values():
        assert params.message_id is chunk_name
        assert params.max_message_size == 1_048_576
        assert params.validated == (role == "consumer")
    assert config.relay.signs == (role != "consumer")


def test_channels_without_a_role_change_nothing_for_the_router(tmp_path: Path) -> None:
    assert router_config(load(tmp_path, CHANNELS)).topics == {}


def test_files_are_in_the_folder_of_the_configuration() -> None:
    assert RelayConfig().audit_path(Path("bob")) == Path("bob/relay.sqlite")
    assert RelayConfig(audit="").audit_path(Path("bob")) is None


# What is refused


@pytest.mark.parametrize(("missing", "kind"), [("id", "a whole number"), ("topic", "a text")])
def test_a_channel_needs_an_id_and_a_topic(tmp_path: Path, missing: str, kind: str) -> None:
    lines = [line for line in channel().splitlines() if not line.startswith(missing)]
    error = refused(tmp_path, "\n".join(lines))
    assert error.path == f"relay.channels.bitcoin.{missing}"
    assert f"has no default: set it to {kind}" in str(error)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ('[relay]\nroles = ["miner"]', "relay.roles", '"consumer", "member", "producer"'),
        (
            '[relay]\nroles = ["member", "consumer", "member"]\n' + channel(),
            "relay.roles",
            '"member" stands there twice',
        ),
        ('[relay]\nroles = ["member"]', "relay.roles", "add a table [relay.channels.NAME]"),
        (
            '[gossip]\ntopic_filter = ["/other/*"]\n[relay]\nroles = ["member"]\n' + channel(),
            "gossip.topic_filter",
            '"/marlin/bitcoin", the topic of relay.channels.bitcoin, is not among them: add it',
        ),
        ('[relay]\nmarketplace = ""', "relay.marketplace", "a text that is not empty"),
        ('[relay]\nproofs = "disputes"', "relay.proofs", "name another"),
        ("[relay]\nretention = 0", "relay.retention", "a number from 1"),
        (
            channel() + channel("other"),
            "relay.channels.other.id",
            "1 is the id of relay.channels.bitcoin, too: choose another",
        ),
        (
            channel() + channel("other", id=2, topic='"/marlin/bitcoin"'),
            "relay.channels.other.topic",
            '"/marlin/bitcoin" is the topic of relay.channels.bitcoin, too',
        ),
        (channel(topic='""'), "relay.channels.bitcoin.topic", ""),
        (channel(id=65_536), "relay.channels.bitcoin.id", "from 0 to 65,535"),
        (
            channel(min_chunks=9, num_chunks=8),
            "relay.channels.bitcoin.min_chunks",
            "9 must be ≤ num_chunks (8)",
        ),
        (
            channel(min_chunks=30_000, num_chunks=60_000, coding='"ida"'),
            "relay.channels.bitcoin.num_chunks",
            "",
        ),
        (
            channel(min_chunks=300, num_chunks=400),
            "relay.params.chunk_report_limit",
            "its min_chunks (300) or more",
        ),
        (
            "[relay.params]\ntolerable_latency = 61",
            "relay.params.refresh_interval",
            "60 must be ≥ tolerable_latency (61)",
        ),
        (
            "[relay.params]\nacknowledgement_timeout = 10",
            "relay.params.acknowledgement_timeout",
            "10 must be < tolerable_latency (10)",
        ),
        (
            "[relay.params]\nchunk_expiry = 0",
            "relay.params.chunk_expiry",
            "a number above 0, up to 3,600",
        ),
        (
            channel(min_chunks=4, num_chunks=6),
            "relay.channels.bitcoin.max_block",
            'or raise topics."/marlin/bitcoin".max_message_size',
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(
    tmp_path: Path, text: str, path: str, said: str
) -> None:
    error = refused(tmp_path, text)
    assert error.path == path
    assert said in str(error)


@pytest.mark.parametrize(
    ("settings", "setting", "said"),
    [
        ('codec = "zstd"', "codec", "set relay.channels.bitcoin.codec"),
        ('validator = "bitcoin"', "validator", "set relay.channels.bitcoin.validator"),
        ("subscribe = false", "message_id", 'set it to "content", or leave the table out'),
        ('message_id = "content"', "subscribe", "set it to false, or leave the table out"),
    ],
)
def test_a_channels_topic_is_not_used_otherwise(
    tmp_path: Path, settings: str, setting: str, said: str
) -> None:
    error = refused(tmp_path, f'{channel()}\n[topics."/marlin/bitcoin"]\n{settings}\n')
    assert error.path == f'topics."/marlin/bitcoin".{setting}'
    assert said in str(error)


def test_a_longer_frame_is_taken_where_its_topic_says_so(tmp_path: Path) -> None:
    text = '[relay]\nroles = ["member"]\n' + channel(min_chunks=4, num_chunks=6)
    table = '[topics."/marlin/bitcoin"]\nsubscribe = false\nmessage_id = "content"\n'
    config = load(tmp_path, f"{text}{table}max_message_size = 2_097_152\n")
    assert router_config(config).topics["/marlin/bitcoin"].max_message_size == 2_097_152


@pytest.mark.parametrize("attesting", list(Attesting))
def test_the_longest_frame_is_that_of_the_largest_block(attesting: Attesting) -> None:
    params = ChannelParams(
        id=1, topic="/a", min_chunks=4, num_chunks=6, max_block=10_000, attesting=attesting
    )
    chunk = len(params.code().encode(bytes(10_000))[0])
    proof = 3 * 32 if attesting is Attesting.MERKLE else 0  # six leaves: a tree of three levels
    assert params.max_frame() == 81 + 65 + proof + chunk  # Marlin, §Attestation and §Witness
