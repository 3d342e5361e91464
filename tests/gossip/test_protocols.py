"""What each protocol of a peer means: mesh, peer exchange, IDONTWANT."""

import pytest

from bruit.node.gossip.events import PROTOCOLS, Protocol


@pytest.mark.parametrize(
    ("name", "mesh", "exchange", "idontwant"),
    [
        ("/floodsub/1.0.0", False, False, False),
        ("/meshsub/1.0.0", True, False, False),
        ("/meshsub/1.1.0", True, True, False),
        ("/meshsub/1.2.0", True, True, True),
    ],
)
def test_a_later_protocol_has_what_an_earlier_one_has_and_more(
    name: str, mesh: bool, exchange: bool, idontwant: bool
) -> None:
    protocol = Protocol(name)
    assert (protocol.has_mesh, protocol.has_peer_exchange) == (mesh, exchange)
    assert protocol.has_idontwant is idontwant


def test_the_latest_protocol_is_offered_first_and_floodsub_last() -> None:
    assert [protocol.value for protocol in PROTOCOLS] == [
        "/meshsub/1.2.0",
        "/meshsub/1.1.0",
        "/meshsub/1.0.0",
        "/floodsub/1.0.0",
    ]
