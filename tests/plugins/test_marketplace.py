"""What a marketplace may hold, and how plugins tell it."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from bruit.plugins.hookspecs import hookimpl
from bruit.plugins.marketplace import MAX_MEMBERS, Cluster, Marketplace, Member, Producer
from bruit.plugins.registry import PluginRegistry
from bruit.topics.errors import ConfigError, LocalError, PluginError
from bruit.topics.keys import peer_id_text


def peer(number: int) -> str:
    """An identity multihash of an Ed25519 key (peer-ids.md)."""
    return peer_id_text(bytes.fromhex("002408011220") + number.to_bytes(32, "big"))


def member(number: int, *addresses: str) -> Member:
    return Member(number.to_bytes(20, "big"), addresses or (f"/ip4/192.0.2.1/p2p/{peer(number)}",))


def cluster(number: int, *members: Member) -> Cluster:
    return Cluster(number, 1, members)


ONE = Marketplace((Producer(bytes(20), 5),), (cluster(1, member(1), member(2)), cluster(2)))


# What it may hold


def test_one_key_may_be_a_producer_and_a_member() -> None:
    address = member(3).address
    found = Marketplace((Producer(address, 0),), (cluster(0, member(3)),))
    assert found.producers[0].address == found.clusters[0].members[0].address


@pytest.mark.parametrize(
    ("producers", "clusters", "problem"),
    [
        ([bytes(20), bytes(20)], [], "producer 0000000000000000000000000000000000000000 stands"),
        ([bytes(19)], [], "an id has 20 bytes"),
        ([], [cluster(1), cluster(1)], "cluster 1 stands in the marketplace twice"),
        ([], [cluster(1, member(1)), cluster(2, member(1))], "01 stands in the marketplace twice"),
        ([], [cluster(1, *map(member, range(MAX_MEMBERS + 1)))], "has 257 members: at most 256"),
        ([], [cluster(1, Member(bytes(20), ()))], "at least one address"),
        ([], [cluster(1, member(1, "/ip4/192.0.2.1/tcp/1"))], "ending in /p2p/"),
        ([], [cluster(1, member(1, "/p2p/" + peer(1), "/p2p/" + peer(2)))], "the same peer id"),
        ([], [cluster(1, member(1, "/ip4/192.0.2.1/p2p/nobody"))], "'nobody' is not a peer id"),
        ([], [cluster(1, member(1, f"/p2p/{peer(1)}/p2p-circuit"))], "is not a peer id"),
        (
            [],
            [cluster(1, member(1)), cluster(2, member(2, "/p2p/" + peer(1)))],
            "another member is the same peer",
        ),
    ],
)
def test_a_marketplace_that_contradicts_itself_cannot_be_made(
    producers: Iterable[bytes], clusters: Iterable[Cluster], problem: str
) -> None:
    with pytest.raises(LocalError, match=problem):
        Marketplace(tuple(Producer(each, 1) for each in producers), tuple(clusters))


# How it is told


class NoSettings(msgspec.Struct, frozen=True):
    pass


def registry(tell: Callable[[], Any]) -> PluginRegistry:
    class Teller:
        Config = NoSettings

        def __init__(self, config: NoSettings) -> None:
            pass

        @hookimpl
        def marketplace(self) -> Any:
            return tell()

    return PluginRegistry.discover(max_failures=2, extra={"teller": Teller})


def teller(tell: Callable[[], Any]) -> Callable[[], Marketplace | None]:
    return registry(tell).marketplace("teller", "relay.marketplace")


def test_a_marketplace_arrives_as_it_is_told_and_none_stands_for_no_change() -> None:
    answers = iter([ONE, None, Marketplace()])
    tell = teller(lambda: next(answers))
    assert [tell(), tell(), tell()] == [ONE, None, Marketplace()]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"producers": []}, "returned dict where a Marketplace or None is due"),
        (False, "returned bool where a Marketplace or None is due"),
        (Marketplace((Producer(bytes(20), -1),)), "Expected `int` >= 0"),
        (Marketplace((Producer(bytes(20), 1 << 32),)), "Expected `int` <= 4294967295"),
        (Marketplace(clusters=(Cluster(1 << 16, 0, ()),)), "Expected `int` <= 65535"),
        (Marketplace(clusters=(Cluster(1, -1, ()),)), "Expected `int` >= 0"),
        (Marketplace((Producer("A" * 20, 1),)), "Expected `bytes`, got `str`"),  # type: ignore[arg-type]
        (Marketplace((Producer(bytes(20), 1.5),)), "Expected `int`, got `float`"),  # type: ignore[arg-type]
    ],
)
def test_a_plugin_that_tells_no_marketplace_fails_and_is_switched_off(
    answer: object, problem: str
) -> None:
    tell = teller(lambda: answer)
    for _ in range(2):
        with pytest.raises(PluginError, match=problem):
            tell()
    with pytest.raises(PluginError, match="switched off after 2 failures in a row"):
        tell()


def test_a_plugin_that_raises_is_contained_and_may_recover() -> None:
    answers = iter([True, False, True])

    def tell() -> Marketplace:
        if next(answers):
            raise OSError("the contract does not answer")
        return ONE

    contained = teller(tell)
    for expected in (None, ONE, None):
        if expected is None:
            with pytest.raises(PluginError, match="the contract does not answer"):
                contained()
        else:
            assert contained() == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("marketplace-fill", "did you mean 'marketplace-file'"),
        ("zstd", "plugin 'zstd' is no marketplace, for it has no marketplace"),
        ("marketplace-file", "needs a table [plugins.marketplace-file]"),
    ],
)
def test_a_name_that_tells_no_marketplace_is_refused_where_it_stands(
    name: str, problem: str, tmp_path: Any
) -> None:
    file = tmp_path / "marketplace.toml"
    file.write_text("")
    tables = {} if name == "marketplace-file" else {"marketplace-file": {"file": str(file)}}
    plugins = PluginRegistry.discover(tables)
    with pytest.raises(ConfigError) as caught:
        plugins.marketplace(name, "relay.marketplace")
    assert caught.value.path == "relay.marketplace"
    assert problem in str(caught.value)
