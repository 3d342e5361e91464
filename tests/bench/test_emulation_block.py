"""The block bench's own arithmetic, and its peers over loopback."""

import hashlib
import sys
from pathlib import Path

import pytest

from bench.block import NONCE, Figures, medians, read_block, time_to, variants
from bench.block_systems import DEGREE, Delivery, GossipSession, graph
from bench.lab import At, connect, subscribe, until_known
from bench.peer_chunked import CODE, HEAD, ID_LENGTH, Rebuilding
from bench.processors import share
from bench.remote import Remote

RECEIVERS = 15


def delivery(*ms: float | None) -> Delivery:
    """What comes so many milliseconds after it was published; None: never."""
    return Delivery(10**18, tuple(0 if each is None else 10**18 + int(each * 1e6) for each in ms))


def test_times_are_those_of_the_receiver_that_completes_the_part() -> None:
    found = delivery(*range(RECEIVERS, 0, -1))
    assert time_to(found, 0.5) == 8  # of 15 receivers, 7 are not half
    assert time_to(found, 0.95) == time_to(found, 1.0) == 15


def test_a_part_that_did_not_get_it_has_no_time() -> None:
    found = delivery(*range(1, RECEIVERS), None)
    assert time_to(found, 0.5) == 8
    assert time_to(found, 1.0) is None


def test_what_never_came_is_later_than_everything_in_a_median() -> None:
    def figures(t100: float | None) -> Figures:
        return Figures(1.0, 2.0, t100, 1.0, 0.1, 0.0, 0.05, 0.02)

    once = medians([figures(7.0), figures(None), figures(5.0)])
    assert once["t100_ms"] == 7.0
    assert once["t100_ms_each"] == [7.0, None, 5.0]
    assert medians([figures(7.0), figures(None), figures(None)])["t100_ms"] is None


def test_blocks_of_a_run_differ_in_their_nonce_only(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 4
    blocks = variants(raw, 3, tmp_path)
    assert len({block.sha256 for block in blocks}) == 3
    for block in blocks:
        data = block.path.read_bytes()
        assert len(data) == block.size == len(raw)
        assert hashlib.sha256(data).hexdigest() == block.sha256
        assert data[: NONCE.start] + data[NONCE.stop :] == raw[: NONCE.start] + raw[NONCE.stop :]


def test_without_recorded_data_a_block_of_that_size_is_generated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BRUIT_DATA", raising=False)
    raw, source = read_block()
    assert source == "generated"
    assert len(raw) == pytest.approx(999_887, rel=0.01)


def test_the_graph_connects_everyone_to_enough_others() -> None:
    pairs = graph(16, 1)
    degrees = [sum(node in pair for pair in pairs) for node in range(16)]
    assert min(degrees) >= DEGREE
    assert graph(16, 1) == pairs != graph(16, 2)


def test_a_share_of_ticks_is_what_was_busy_of_them() -> None:
    assert share((100, 1000), (150, 1200)) == 0.25
    assert share((100, 1000), (100, 1000)) == 0.0


def test_any_chunks_that_are_enough_give_the_message_once() -> None:
    message = bytes(range(256)) * 100
    name = hashlib.sha256(message).digest()[:ID_LENGTH]
    chunks = [HEAD.pack(name, index) + chunk for index, chunk in enumerate(CODE.encode(message))]
    rebuilt: list[bytes] = []
    rebuilding = Rebuilding(rebuilt.append)
    for chunk in [*chunks[:9], *chunks[:9], *chunks[16 : 16 + CODE.min_chunks - 10]]:
        rebuilding.add(chunk)
    assert rebuilt == []
    for chunk in chunks[-5:]:
        rebuilding.add(chunk)
    assert rebuilt == [message]


@pytest.mark.sockets
@pytest.mark.parametrize("program", ["peer_ours", "peer_chunked"])
def test_a_file_that_is_published_arrives_with_its_hash(program: str, tmp_path: Path) -> None:
    command = (sys.executable, "-m", f"bench.{program}")
    settings: dict[str, object] = {"nodes": 1, "policy": "sign", "listen": "127.0.0.2"}
    block = variants(bytes(100_000), 1, tmp_path)[0]
    with Remote("sender", command, settings) as sender, Remote("receiver", command, settings) as to:
        nodes = [At(sender), At(to)]
        for remote in (sender, to):
            remote.listen()
            assert remote.addresses[0].startswith("/ip4/127.0.0.2/tcp/")
        for node in nodes:
            subscribe(node)
        connect([(nodes[0], nodes[1])])
        for node in nodes:
            until_known(node, 1)
        sent = GossipSession([sender, to]).send(block, 30.0)
        assert len(sent.arrived) == 1
        assert sent.began < sent.arrived[0]
        other = "0" * 64
        to.ask("expect", size=block.size, sha256=other)
        asked = to.order("arrived", sha256=other, timeout=0.0)
        assert to.result(asked, 30.0, "answer to arrived")["times"] == [0]
