"""Which addresses count as shared, and by how many."""

import pytest

from bruit.scoring.colocation import Colocation

A, B, C = b"A", b"B", b"C"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("/ip4/192.0.2.1/tcp/4001", ["192.0.2.1"]),
        ("/ip4/192.0.2.1/udp/4001/quic-v1", ["192.0.2.1"]),
        ("/ip6/2001:db8:1:2:3::4/tcp/4001", ["2001:db8:1:2:3::4", "2001:db8:1:2::/64"]),
        ("/ip6zone/eth0/ip6/2001:db8::4/tcp/4001", ["2001:db8::4", "2001:db8::/64"]),
        ("/ip6/::ffff:192.0.2.1/tcp/4001", ["192.0.2.1"]),
        ("/ip4/127.0.0.1/tcp/4001", []),
        ("/ip4/127.1.2.3/tcp/4001", []),
        ("/ip6/::1/tcp/4001", []),
        ("/ip6/::ffff:127.0.0.1/tcp/4001", []),
        ("/ip4/192.0.2.1/tcp/4001/p2p/QmRelay/p2p-circuit", []),
        ("/dns4/node.example/tcp/4001", []),
        ("/dnsaddr/node.example", []),
        ("", []),
        ("192.0.2.1", []),
        ("/ip4/192.0.2.256/tcp/4001", []),
        ("/ip4/2001:db8::1/tcp/4001", []),
        ("/ip4", []),
        ("/\0/\uffff", []),
    ],
)
def test_what_counts_of_an_address(address: str, counted: list[str]) -> None:
    colocation = Colocation(1, ())
    colocation.place(A, (address,))
    assert colocation.shared(A) == [(each, 1) for each in counted]


def test_the_excess_at_every_address_of_a_peer_is_squared_and_added_up() -> None:
    colocation = Colocation(1, ())
    colocation.place(A, ("/ip6/2001:db8::1/tcp/1",))
    colocation.place(B, ("/ip6/2001:db8::1/tcp/2",))
    colocation.place(C, ("/ip6/2001:db8::2/tcp/3",))
    assert colocation.shared(A) == [("2001:db8::1", 2), ("2001:db8::/64", 3)]
    assert [colocation.factor(peer) for peer in (A, B, C)] == [1 + 4, 1 + 4, 4]


def test_the_first_address_of_a_subnet_is_not_the_subnet() -> None:
    colocation = Colocation(1, ())
    colocation.place(A, ("/ip6/2001:db8::/tcp/1",))
    colocation.place(B, ("/ip6/2001:db8::2/tcp/1",))
    assert colocation.shared(A) == [("2001:db8::", 1), ("2001:db8::/64", 2)]


def test_a_whitelisted_block_covers_what_lies_in_it() -> None:
    colocation = Colocation(1, ("192.0.2.0/24", "2001:db8::1/128"))
    for peer in (A, B):
        colocation.place(peer, ("/ip4/192.0.2.7/tcp/1",))
    assert colocation.factor(A) == 0
    for peer in (A, B):
        colocation.place(peer, ("/ip6/2001:db8::1/tcp/1",))
    assert colocation.shared(A) == [("2001:db8::/64", 2)]  # go: its base is not in the block


def test_a_peer_counts_where_it_is_now_and_nowhere_when_it_is_forgotten() -> None:
    colocation = Colocation(1, ())
    colocation.place(A, ("/ip4/192.0.2.1/tcp/1",))
    colocation.place(B, ("/ip4/192.0.2.1/tcp/1",))
    colocation.place(A, ("/ip4/192.0.2.2/tcp/1",))
    assert (colocation.shared(A), colocation.shared(B)) == ([("192.0.2.2", 1)], [("192.0.2.1", 1)])
    colocation.place(A, ("/ip4/127.0.0.1/tcp/1",))
    assert colocation.shared(A) == []
    colocation.forget(B)
    colocation.forget(B)
    assert colocation.shared(B) == []
    assert colocation.factor(B) == 0


def test_the_version_grows_when_a_factor_may_have_changed_and_only_then() -> None:
    colocation = Colocation(1, ())
    colocation.place(A, ("/ip4/127.0.0.1/tcp/1",))
    assert colocation.version == 0
    colocation.place(A, ("/ip4/192.0.2.1/tcp/1",))
    after = colocation.version
    assert after > 0
    colocation.place(A, ("/ip4/192.0.2.1/udp/2/quic-v1",))
    assert colocation.version == after
    colocation.forget(A)
    assert colocation.version > after
