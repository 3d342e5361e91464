"""The files of a demonstration's nodes: configurations that hold, and a marketplace that grows."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from bruit.node.config import load_config
from bruit.node.config.relay import ChannelConfig
from bruit.node.demo.relay.folders import (
    CHANNEL,
    CONFIG,
    Folders,
    write_folders,
    write_marketplace,
)
from bruit.node.demo.relay.plan import Plan, Role, Shape, Variant, make_plan
from bruit.node.identity import load_key_file
from bruit.node.relay.signing import address_of_secret
from bruit.plugins.marketplace_file import read_marketplace
from bruit.plugins.registry import PluginRegistry
from bruit.topics.keys import KeyType, peer_id_text

SHAPE = Shape(clusters=2, members=2, consumers=2)
SIZE = 1_000_000  # bytes of a block


def written(root: Path, **asked: object) -> tuple[Plan, Folders]:
    faulty = 1 if asked.get("variant") in (Variant.DROP, Variant.CORRUPT) else 0
    shape = msgspec.structs.replace(SHAPE, faulty=faulty, **asked)
    rng = Random(1)
    plan = make_plan(shape, rng)
    return plan, write_folders(root, plan, "regtest", SIZE, rng)


def channel_of(folders: Folders, index: int) -> ChannelConfig:
    return load_config(folders.nodes[index] / CONFIG).config.relay.channels[CHANNEL]


@pytest.mark.parametrize("variant", Variant)
def test_every_node_has_keys_and_a_configuration_that_holds(
    tmp_path: Path, variant: Variant
) -> None:
    plan, folders = written(tmp_path, variant=variant)
    for place, folder, address in zip(plan.places, folders.nodes, folders.ids, strict=True):
        loaded = load_config(folder / CONFIG)
        roles = () if place.role is Role.OUTSIDER else (place.role.value,)
        assert loaded.config.relay.roles == roles
        assert load_key_file(loaded.key_path).kind is KeyType.ED25519
        relay_key = load_key_file(folder / loaded.config.relay.key_file)
        assert address_of_secret(relay_key.secret) == address
    assert len(set(folders.ids)) == len(plan.places)


@pytest.mark.parametrize("selector", ["random", "cheapest", "qos", "reputation", "mixed"])
def test_the_producer_has_the_selector_that_was_asked_for(tmp_path: Path, selector: str) -> None:
    plan, folders = written(tmp_path, selector=selector)
    [producer] = plan.of(Role.PRODUCER)
    config = load_config(folders.nodes[producer] / CONFIG).config
    assert config.relay.selector == f"{selector}-selector"
    registry = PluginRegistry.discover(config.plugins)
    registry.selector(config.relay.selector, "relay.selector")  # raises for one that cannot be


def test_consumers_judge_blocks_and_members_do_not(tmp_path: Path) -> None:
    plan, folders = written(tmp_path)
    for index, place in enumerate(plan.places):
        channel = channel_of(folders, index)
        expected = ("", "") if place.role is Role.MEMBER else ("zstd", "bitcoin")
        assert (channel.codec, channel.validator) == expected
        assert (channel.min_chunks, channel.num_chunks) == (32, 64)


def test_a_producer_that_sends_a_bad_block_does_not_judge_it(tmp_path: Path) -> None:
    plan, folders = written(tmp_path, variant=Variant.BAD_BLOCK)
    [producer] = plan.of(Role.PRODUCER)
    assert channel_of(folders, producer).validator == ""
    assert all(channel_of(folders, each).validator for each in plan.of(Role.CONSUMER))


def test_a_producer_that_overspends_writes_down_no_stake(tmp_path: Path) -> None:
    plan, folders = written(tmp_path, variant=Variant.OVERSPEND)
    [producer] = plan.of(Role.PRODUCER)
    audits = [load_config(folder / CONFIG).config.relay.audit for folder in folders.nodes]
    assert [bool(audit) for audit in audits] == [
        index != producer for index in range(len(plan.places))
    ]


def test_the_marketplace_names_the_members_when_they_are_known(tmp_path: Path) -> None:
    plan, folders = written(tmp_path)
    first = read_marketplace(folders.marketplace)
    assert [each.address for each in first.producers] == [folders.ids[0]]
    assert first.clusters == ()
    addresses = {}
    for index in plan.of(Role.MEMBER):
        key = load_key_file(folders.nodes[index] / "node.key")
        peer = peer_id_text(key.public_key().peer_id())
        addresses[index] = f"/ip4/127.0.0.1/tcp/{4000 + index}/p2p/{peer}"
    write_marketplace(folders, plan, addresses)
    then = read_marketplace(folders.marketplace)
    assert then.producers == first.producers
    assert {
        member.address: (cluster.id, member.addresses)
        for cluster in then.clusters
        for member in cluster.members
    } == {
        folders.ids[index]: (plan.places[index].cluster, (address,))
        for index, address in addresses.items()
    }
    assert len({cluster.price for cluster in then.clusters}) == 2  # something to choose by


def test_the_seed_decides_all_keys(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    assert written(tmp_path / "one")[1].ids == written(tmp_path / "other")[1].ids
