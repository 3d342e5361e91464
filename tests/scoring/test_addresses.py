"""From multiaddrs to IP addresses."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.scoring.addresses import MAX_ADDRESS, direct_ip, plain_ip


@pytest.mark.parametrize(
    ("address", "ip"),
    [
        ("/ip4/192.0.2.1/tcp/4001", "192.0.2.1"),
        ("/ip4/192.0.2.1", "192.0.2.1"),
        ("/ip4/127.0.0.1/udp/1/quic-v1", "127.0.0.1"),
        ("/ip4/192.0.2.1/tcp/4001/p2p/QmPeer", "192.0.2.1"),
        ("/ip6/2001:db8::1/tcp/4001", "2001:db8::1"),
        ("/ip6/2001:0DB8:0:0::0001/tcp/4001", "2001:db8::1"),
    ],
)
def test_the_ip_address_stands_first_in_a_multiaddr(address: str, ip: str) -> None:
    assert direct_ip(address) == ip_address(ip)


@pytest.mark.parametrize("mapped", ["::ffff:192.0.2.1", "::ffff:c000:201", "::FFFF:c000:0201"])
def test_an_ipv4_mapped_address_is_the_ipv4_address(mapped: str) -> None:
    assert direct_ip(f"/ip6/{mapped}/tcp/1") == IPv4Address("192.0.2.1")
    assert plain_ip(mapped) == IPv4Address("192.0.2.1")


def test_a_zone_is_left_out() -> None:
    assert direct_ip("/ip6zone/eth0/ip6/fe80::1/tcp/1") == IPv6Address("fe80::1")
    assert direct_ip("/ip6/fe80::1%eth0/tcp/1") == IPv6Address("fe80::1")
    assert plain_ip("fe80::1%eth0") == IPv6Address("fe80::1")
    assert plain_ip("192.0.2.1%eth0") is None


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/192.0.2.1/tcp/4001/p2p/QmRelay/p2p-circuit",
        "/ip4/192.0.2.1/tcp/4001/p2p/QmRelay/p2p-circuit/p2p/QmPeer",
        "/dns4/example.org/tcp/4001",
        "/dnsaddr/example.org",
        "/unix/tmp/socket",
        "/ip4/2001:db8::1/tcp/1",
        "/ip6/192.0.2.1/tcp/1",
        "/ip4/192.0.2/tcp/1",
        "/ip4/192.0.02.1/tcp/1",  # ambiguous: octal to some
        "/ip4//tcp/1",
        "/ip6zone/eth0",
        "/ip4",
        "192.0.2.1",
        "ip4/192.0.2.1",
        "/",
        "",
        "/ip4/192.0.2.1/" + "x" * MAX_ADDRESS,
    ],
)
def test_an_address_that_does_not_say_where_the_peer_is_gives_nothing(address: str) -> None:
    assert direct_ip(address) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_ip_address_is_found_again(ip: IPv4Address | IPv6Address) -> None:
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    assert direct_ip(f"/ip{ip.version}/{ip}/tcp/4001") == (mapped or ip)
    assert plain_ip(str(ip)) == (mapped or ip)


@given(st.text() | st.text("/ip46%:.0123456789abcdef", max_size=60).map("/ip6/".__add__))
def test_any_text_gives_an_ip_address_or_nothing(text: str) -> None:
    for found in (direct_ip(text), plain_ip(text)):
        assert found is None or isinstance(found, IPv4Address | IPv6Address)
