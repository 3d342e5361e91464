"""Bans of peers, addresses and subnets."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.scoring.bans import MAX_BANS, MAX_REASON, Ban, Bans, parse_target, target_text
from bruit.topics.errors import LocalError
from bruit.topics.keys import peer_id_from_text

# The examples of libp2p specs, peer-ids.md.
PEER_TEXT = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
PEER_CID = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe"
OTHER_TEXT = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
PEER, OTHER = peer_id_from_text(PEER_TEXT), peer_id_from_text(OTHER_TEXT)
NOW = 1_700_000_000.0


def one(target: str, seconds: float | None = None) -> Bans:
    bans = Bans()
    bans.ban(target, seconds, "", NOW)
    return bans


# What is banned


@pytest.mark.parametrize("text", [PEER_TEXT, PEER_CID])
def test_a_banned_peer_is_banned_wherever_it_comes_from(text: str) -> None:
    bans = one(text)
    for address in ("/ip4/192.0.2.1/tcp/4001", "/dns4/example.org/tcp/1", ""):
        ban = bans.banning(PEER, address, NOW)
        assert ban is not None
        assert ban.target == PEER_TEXT
        assert bans.banning(OTHER, address, NOW) is None


@pytest.mark.parametrize(
    ("target", "written", "address", "banned"),
    [
        ("192.0.2.1", "192.0.2.1", "/ip4/192.0.2.1/tcp/1", True),
        ("192.0.2.1", "192.0.2.1", "/ip6/::ffff:192.0.2.1/tcp/1", True),
        ("192.0.2.1", "192.0.2.1", "/ip4/192.0.2.2/tcp/1", False),
        ("192.0.2.1", "192.0.2.1", "/ip4/192.0.2.1/tcp/1/p2p/QmRelay/p2p-circuit", False),
        ("192.0.2.1/32", "192.0.2.1", "/ip4/192.0.2.1/tcp/1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", "/ip4/192.0.2.1/tcp/1", True),
        ("/ip4/192.0.2.1/tcp/4001", "192.0.2.1", "/ip4/192.0.2.1/udp/9/quic-v1", True),
        ("192.0.2.0/24", "192.0.2.0/24", "/ip4/192.0.2.255/tcp/1", True),
        ("192.0.2.0/24", "192.0.2.0/24", "/ip4/192.0.3.0/tcp/1", False),
        ("192.0.2.0/24", "192.0.2.0/24", "/ip6/c000:200::/tcp/1", False),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24", "/ip4/192.0.2.7/tcp/1", True),
        ("2001:db8::1", "2001:db8::1", "/ip6/2001:DB8:0::1/tcp/1", True),
        ("fe80::1%eth0", "fe80::1", "/ip6zone/eth1/ip6/fe80::1/tcp/1", True),
        ("2001:db8::/32", "2001:db8::/32", "/ip6/2001:db8:ffff::1/tcp/1", True),
        ("2001:db8::/32", "2001:db8::/32", "/ip6/2001:db9::1/tcp/1", False),
        ("128.0.0.0/1", "128.0.0.0/1", "/ip4/255.0.0.1/tcp/1", True),
        ("128.0.0.0/1", "128.0.0.0/1", "/ip4/127.0.0.1/tcp/1", False),
    ],
)
def test_an_address_or_subnet_bans_everybody_at_it(
    target: str, written: str, address: str, banned: bool
) -> None:
    bans = one(target)
    [ban] = bans
    assert ban.target == written
    assert bans.banning(PEER, address, NOW) == (ban if banned else None)
    assert bans.banning(b"", address, NOW) == (ban if banned else None)


def test_the_peers_own_ban_is_named_first_and_then_the_narrowest_subnet() -> None:
    bans = Bans()
    for target in ("192.0.0.0/16", "192.0.2.0/24", PEER_TEXT, "192.0.2.1", "192.0.2.0/28"):
        bans.ban(target, None, "", NOW)
    for target in (PEER_TEXT, "192.0.2.1", "192.0.2.0/28", "192.0.2.0/24", "192.0.0.0/16"):
        ban = bans.banning(PEER, "/ip4/192.0.2.1/tcp/1", NOW)
        assert ban is not None
        assert ban.target == target
        assert bans.lift(target)
    assert bans.banning(PEER, "/ip4/192.0.2.1/tcp/1", NOW) is None


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("0.0.0.0/0", "bans everybody"),
        ("::/0", "bans everybody"),
        ("::ffff:0:0/96", "bans everybody"),
        ("192.0.2.1/24", "was 192.0.2.0/24 meant?"),
        ("2001:db8::1/32", "was 2001:db8::/32 meant?"),
        ("192.0.2.0/33", "is no subnet"),
        ("192.0.2.0/255.255.255.0", "is no subnet"),
        ("192.0.2.0/", "is no subnet"),
        ("192.0.2.0/٢٤", "is no subnet"),
        ("192.0.2/24", "is no subnet"),
        ("fe80::%eth0/64", "is no subnet"),
        ("/ip4/192.0.2.1/tcp/1/p2p/" + PEER_TEXT, "names an address and a peer"),
        ("/ip4/192.0.2.1/tcp/1/p2p-circuit", "holds no IP address"),
        ("/dns4/example.org/tcp/1", "holds no IP address"),
        ("example.org", "cannot be banned"),
        ("192.0.2.256", "cannot be banned"),
        ("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5", "cannot be banned"),
        ("", "cannot be banned"),
        ("everybody\n", "cannot be banned"),
    ],
)
def test_an_impossible_target_is_refused_with_a_reason(target: str, problem: str) -> None:
    bans = Bans()
    for attempt in (lambda: bans.ban(target, 60, "", NOW), lambda: bans.lift(target)):
        with pytest.raises(LocalError, match=problem.replace("?", r"\?")):
            attempt()
    assert not list(bans)


@given(st.text(max_size=80) | st.text("0123456789abcdef.:/%", max_size=50))
def test_any_text_is_a_target_or_refused_and_is_read_as_it_is_written(text: str) -> None:
    try:
        target = parse_target(text)
    except LocalError:
        return
    assert parse_target(target_text(target)) == target


# For how long


def test_a_ban_holds_until_its_time_is_over() -> None:
    bans = one(PEER_TEXT, 60.0)
    [ban] = bans
    assert (ban.since, ban.until) == (NOW, NOW + 60)
    assert bans.banning(PEER, "", NOW + 59.9) == ban
    assert bans.banning(PEER, "", NOW + 60) is None
    assert bans.expire(NOW + 59.9) == []
    assert bans.expire(NOW + 60) == [ban]
    assert len(bans) == 0


def test_a_ban_without_an_end_never_ends() -> None:
    bans = one("192.0.2.0/24")
    assert bans.expire(NOW + 1e9) == []
    assert bans.banning(b"", "/ip4/192.0.2.1/tcp/1", NOW + 1e9) is not None


def test_when_the_narrow_ban_is_over_the_wide_one_still_holds() -> None:
    bans = one("192.0.2.0/24", 3600.0)
    bans.ban("192.0.2.1", 60.0, "", NOW)
    bans.ban(PEER_TEXT, 60.0, "", NOW)
    ban = bans.banning(PEER, "/ip4/192.0.2.1/tcp/1", NOW + 60)
    assert ban is not None
    assert ban.target == "192.0.2.0/24"


def test_a_second_ban_of_a_target_takes_the_place_of_the_first() -> None:
    bans = one(PEER_TEXT)
    bans.ban(PEER_CID, 60.0, "again", NOW + 1)
    assert list(bans) == [Ban(target=PEER_TEXT, since=NOW + 1, until=NOW + 61, reason="again")]


def test_a_lifted_ban_bans_nobody_and_cannot_be_lifted_twice() -> None:
    bans = one("192.0.2.0/24")
    assert bans.lift("192.0.2.0/24")
    assert bans.banning(PEER, "/ip4/192.0.2.1/tcp/1", NOW) is None
    assert not bans.lift("192.0.2.0/24")
    assert not bans.lift(PEER_CID)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_time_is_refused(seconds: float) -> None:
    bans = Bans()
    with pytest.raises(LocalError, match="a ban for"):
        bans.ban(PEER_TEXT, seconds, "", NOW)
    assert len(bans) == 0


@pytest.mark.parametrize("reason", ["x" * (MAX_REASON + 1), "two\nlines", "\x1b[2J"])
def test_a_reason_that_would_spoil_a_listing_is_refused(reason: str) -> None:
    bans = Bans()
    with pytest.raises(LocalError, match="printable characters"):
        bans.ban(PEER_TEXT, None, reason, NOW)
    assert len(bans) == 0


def test_bans_are_bounded_and_the_last_one_can_still_be_renewed() -> None:
    bans = Bans(
        Ban(target=str(ip_address(0x0A00_0000 + number)), since=NOW, until=None)
        for number in range(MAX_BANS)
    )
    with pytest.raises(LocalError, match="lift some"):
        bans.ban(PEER_TEXT, None, "", NOW)
    bans.ban("10.0.0.0", 60.0, "", NOW)
    assert len(bans) == MAX_BANS


def test_bans_made_of_those_of_another_are_the_same() -> None:
    bans = Bans()
    for target, seconds in ((PEER_TEXT, None), ("192.0.2.0/24", 60.0), ("2001:db8::1", 5.0)):
        bans.ban(target, seconds, "reason", NOW)
    assert list(Bans(bans)) == list(bans)
    with pytest.raises(LocalError):
        Bans([Ban(target="nobody", since=NOW, until=None)])


# Against a slow, obvious model: go through all entries

FEW_ADDRESSES = [
    *("10.0.0.0", "10.0.0.1", "10.0.0.128", "10.0.1.0", "10.0.1.128"),
    *("2001:db8::", "2001:db8::1", "2001:db8:1::", "2001:db8:1::1", "c000::1"),
]
TARGETS = [
    *(PEER_TEXT, OTHER_TEXT, *FEW_ADDRESSES),
    *("10.0.0.0/8", "10.0.0.0/23", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.128/25", "0.0.0.0/1"),
    *("2001:db8::/32", "2001:db8::/48", "2001:db8:1::/48", "8000::/1"),
]
STEPS = st.tuples(
    st.sampled_from(["ban", "ban", "ban", "lift", "expire"]),
    st.sampled_from(TARGETS),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(0, 3),
)


@given(st.lists(STEPS, max_size=25), st.sampled_from([PEER, OTHER]), st.sampled_from(FEW_ADDRESSES))
def test_bans_answer_as_going_through_all_of_them_would(
    steps: list[tuple[str, str, int | None, int]], peer: bytes, ip: str
) -> None:
    bans, now = Bans(), 0.0
    entries: dict[str, float] = {}  # target → until
    for kind, target, seconds, pause in steps:
        now += pause
        if kind == "ban":
            bans.ban(target, seconds, "", now)
            entries[target] = float("inf") if seconds is None else now + seconds
        elif kind == "lift":
            assert bans.lift(target) is (entries.pop(target, None) is not None)
        else:
            over = [target for target, until in entries.items() if until <= now]
            assert [ban.target for ban in bans.expire(now)] == over
            entries = {known: until for known, until in entries.items() if known not in over}
    assert [ban.target for ban in bans] == list(entries)

    live = [target for target, until in entries.items() if until > now]
    of_peer = [target for target in live if target[0] in "1Q" and target.isalnum()]
    fitting = [target for target in of_peer if peer_id_from_text(target) == peer]
    networks = [ip_network(target) for target in live if target not in of_peer]
    around = [network for network in networks if ip_address(ip) in network]
    around.sort(key=lambda network: network.prefixlen)
    expected = fitting[0] if fitting else target_text(around[-1]) if around else None
    found = bans.banning(peer, f"/ip{ip_address(ip).version}/{ip}/tcp/1", now)
    assert (found and found.target) == expected
