"""The relay on simulated networks: what reaches everybody, whatever happens to some of them."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from bruit.node.relay import drops
from bruit.node.relay.actions import BroadcastRefused
from bruit.node.relay.evidence import Kind
from bruit.node.relay.evidence_check import verify_evidence
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import Attesting, ChannelParams, RelayParams
from bruit.node.relay.proof import verify_proof
from bruit.node.sim import LinkModel, relay_faults
from bruit.node.sim.relay import SCORES_INTERVAL
from bruit.node.sim.relay_work import Prices
from bruit.plugins.hookspecs import Selection
from bruit.scoring.params import PeerScoreParams, TopicScoreParams
from bruit.scoring.peer_scores import PeerScores
from bruit.scoring.thresholds import Thresholds
from bruit.topics.validation import ACCEPTED, reject
from tests.sim import relay_churn
from tests.sim.relaying import CHANNEL, READY, SIZE, Town, acknowledged, block, blocks

HALF = ChannelParams(id=7, topic="blocks", min_chunks=32, num_chunks=64)  # half may be lost


@pytest.mark.parametrize("attesting", Attesting)
def test_a_block_reaches_every_consumer_once_and_every_chunk_is_acknowledged(
    attesting: Attesting,
) -> None:
    town = Town(channel=replace(CHANNEL, attesting=attesting))
    ticket = town.send()
    town.net.run_for(10.0)
    for host in [*town.consumers, *town.members]:
        assert blocks(host) == [block(0)]
        assert host.disputes == []
    assert acknowledged(town.producer, ticket) == CHANNEL.num_chunks
    finding = verify_proof(town.producer.proof(ticket), town.relay.marketplace)
    assert finding.holds, finding.statements


def test_chunks_are_witnessed_once_in_a_cluster_and_published_by_all_of_it() -> None:
    town = Town()
    town.send()
    town.net.run_for(5.0)
    assert sum(host.witnessed for host in town.members) == CHANNEL.num_chunks
    # A member publishes what no other node has brought it before.
    for members in town.clusters.values():
        witnessed = sum(host.witnessed for host in members)
        assert all(0 < host.published <= witnessed for host in members)


def test_a_delivery_says_which_clusters_brought_the_chunks() -> None:
    town = Town()
    town.send()
    town.net.run_for(5.0)
    for host in town.consumers:
        [delivery] = host.deliveries
        assert sum(delivery.action.clusters.values()) >= CHANNEL.min_chunks
        assert set(delivery.action.clusters) <= set(town.clusters)
        assert delivery.action.producers == (town.producer.address,)


def test_several_blocks_at_a_time_do_not_get_in_each_others_way() -> None:
    town = Town()
    for number in range(5):
        town.send(number)
    town.net.run_for(10.0)
    for host in town.consumers:
        assert sorted(blocks(host)) == sorted(block(number) for number in range(5))


def test_lost_frames_are_made_up_for() -> None:
    town = Town(link=LinkModel(jitter=0.01, loss=0.05), channel=HALF)
    ticket = town.send()
    town.net.run_for(12.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    assert acknowledged(town.producer, ticket) >= HALF.min_chunks


def test_a_member_that_crashes_is_replaced_by_the_rest_of_its_cluster_or_another_option() -> None:
    town = Town(prices=Prices(check=0.002))
    ticket = town.send()
    town.net.run_for(0.05)  # its share of the chunks has been sent to it, and is being checked
    town.net.crash(town.clusters[0][0].node)
    town.net.crash(town.clusters[1][1].node)
    town.net.run_for(12.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    assert acknowledged(town.producer, ticket) == CHANNEL.num_chunks


def test_a_producer_may_crash_once_its_chunks_are_submitted() -> None:
    town = Town()
    town.send()
    town.net.run_for(0.1)  # a dial and the way there take 0.06 s
    town.net.crash(town.producer.node)
    town.net.run_for(12.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20


def test_a_producer_that_crashes_half_way_is_disputed_by_all_who_saw_too_little() -> None:
    # At 100,000 bytes/s some 14 of 48 chunks of 3,200 bytes are out after half a second.
    town = Town(producer_up=100_000.0)
    town.send()
    town.net.run_for(0.5)
    town.net.crash(town.producer.node)
    town.net.run_for(15.0)
    for host in town.consumers:
        assert blocks(host) == []
        assert [evidence.kind for _, evidence in host.disputes] == [Kind.TOO_FEW_CHUNKS]
        assert host.disputes[0][1].producers == (town.producer.address,)


def test_a_partition_that_heals_in_time_delays_a_block_and_loses_none() -> None:
    # Peers are told of a message at once, and others than mesh peers at the next three heartbeats,
    # 2.1 s: there must be others.
    town = Town(seed=2, degree=10)
    cut_off = town.consumers[:8]
    town.net.partition(host.node for host in cut_off)
    town.net.run_for(0.1)
    town.send()
    town.net.run_for(1.0)
    assert [blocks(host) for host in cut_off] == [[]] * 8
    assert [blocks(host) for host in town.consumers[8:]] == [[block(0)]] * 12
    town.net.heal()
    town.net.run_for(10.0)
    assert [blocks(host) for host in cut_off] == [[block(0)]] * 8


def test_clusters_may_come_and_go_while_blocks_are_under_way() -> None:
    town = Town(seed=3, channel=HALF)
    for number in range(4):
        town.send(number)
        town.open_market(without=[number])  # some know at once, others after a second
        town.net.run_for(3.0)
        town.open_market()
        town.net.run_for(3.0)
    town.net.run_for(12.0)
    for host in town.consumers:
        assert blocks(host) == [block(number) for number in range(4)]
        assert host.disputes == []
        assert not +host.blamed  # to be late with a change is nobody's fault


def test_a_cluster_that_drops_everything_does_not_keep_a_block_from_anybody() -> None:
    town = Town(channel=HALF, faulty={2: relay_faults.Dropping})
    ticket = town.send()
    town.net.run_for(10.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    # It has acknowledged what it dropped: to the producer all seems well.
    assert acknowledged(town.producer, ticket) == HALF.num_chunks
    assert all(2 not in host.deliveries[0].action.clusters for host in town.consumers)


def test_a_cluster_that_refuses_is_gone_around() -> None:
    town = Town(faulty={2: relay_faults.Refusing})
    ticket = town.send()
    town.net.run_for(10.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    assert acknowledged(town.producer, ticket) == CHANNEL.num_chunks
    receipts = town.producer.proof(ticket).receipts
    assert any(len(receipt.tried) > 1 and receipt.tried[0] == 2 for receipt in receipts)


def scores() -> PeerScores:
    """P4 for invalid messages, and nothing else."""
    topic = TopicScoreParams(
        invalid_message_deliveries_weight=-10.0, invalid_message_deliveries_decay=0.9
    )
    return PeerScores(
        PeerScoreParams(topics={CHANNEL.topic: topic}),
        Thresholds(gossip=-100.0, publish=-200.0, graylist=-300.0),
    )


def test_corrupt_chunks_are_refused_and_who_sends_them_pays_for_it() -> None:
    town = Town(channel=HALF, faulty={2: relay_faults.corrupting}, scores=scores)
    town.send()
    town.net.run_for(10.0)
    corrupt = {host.node.peer_id for host in town.clusters[2]}
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    blamed = 0
    for host in town.consumers:
        now = town.net.now
        for peer in host.node.peers():
            score = host.scores.score(peer, now)
            assert (score < 0) <= (peer in corrupt)
            blamed += score < 0
        assert set(+host.blamed) <= corrupt
    assert blamed > 0


def test_a_false_witness_is_refused_and_leaves_evidence_that_can_be_checked() -> None:
    stranger = keccak256(b"stranger")
    faulty = relay_faults.false_witness(stranger)
    town = Town(channel=HALF, faulty={2: faulty})
    town.send()
    town.net.run_for(10.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    found = [evidence for host in town.consumers for _, evidence in host.disputes]
    assert {evidence.kind for evidence in found} == {Kind.FALSE_WITNESS}
    for evidence in found:
        finding = verify_evidence(evidence, town.relay.marketplace, None)
        assert finding.holds, finding.statements
    assert sum(host.dropped[drops.FALSE_WITNESS] for host in town.consumers) > 0


def test_a_replay_is_refused_and_delivers_nothing_twice() -> None:
    params = RelayParams(tolerable_latency=2.0, chunk_expiry=2.0)
    faulty = partial(
        relay_faults.Replaying, partner=keccak256(f"{1}/relay key/n4".encode()), after=4.0
    )
    town = Town(params=params, faulty={0: faulty})
    town.send()
    town.net.run_for(12.0)
    assert [blocks(host) for host in town.consumers] == [[block(0)]] * 20
    assert sum(host.dropped[drops.REPLAYED] for host in town.consumers) > 0
    kinds = {evidence.kind for host in town.consumers for _, evidence in host.disputes}
    assert kinds == {Kind.REPLAY}


def test_an_invalid_block_is_delivered_to_nobody_and_disputed_by_everybody() -> None:
    town = Town(judge=lambda data: reject("bad proof of work"))
    town.send()
    town.net.run_for(10.0)
    for host in town.consumers:
        assert blocks(host) == []
        assert [evidence.kind for _, evidence in host.disputes] == [Kind.INVALID_BLOCK]
    [(_, evidence), *_] = town.consumers[0].disputes
    judged = verify_evidence(evidence, town.relay.marketplace, lambda data: reject("bad"))
    assert judged.holds, judged.statements
    assert not verify_evidence(evidence, town.relay.marketplace, lambda data: ACCEPTED).holds


def test_what_costs_takes_its_time() -> None:
    times = []
    for prices in (Prices(), Prices(judge=0.5)):
        town = Town(prices=prices)
        town.send()
        town.net.run_for(10.0)
        times.append([host.deliveries[0].time for host in town.consumers])
    free, dear = times
    assert dear == pytest.approx([time + 0.5 for time in free])


def test_nobody_has_a_block_before_its_bytes_can_have_come() -> None:
    rate, latency = 50_000.0, 0.02
    town = Town(bandwidth=rate, link=LinkModel(latency=latency))
    before = town.net.statistics().frame_bytes
    town.send()
    town.net.run_for(15.0)
    bound = READY + 2 * latency + SIZE / rate  # by way of a member
    times = [host.deliveries[0].time for host in town.consumers]
    assert min(times) > bound
    assert max(times) < READY + 3 * (bound - READY)
    # Announced chunks go to who needs them. Small ones have a tenth of overhead, members get more
    # than they need; all chunks to all of a mesh of six would be some five blocks for every node.
    sent = town.net.statistics().frame_bytes - before
    assert sent < 2.5 * SIZE * len(town.relay.hosts)


def test_a_producer_is_told_what_the_mesh_thinks_of_members() -> None:
    heard: list[Selection] = []

    def select(selection: Selection, rng: Random) -> int:
        heard.append(selection)
        return selection.options[0].cluster

    town = Town(select=select)
    town.net.run_for(2 * SCORES_INTERVAL)
    town.send()
    town.net.run_for(1.0)
    histories = [option.score_history for each in heard for option in each.options]
    assert any(histories)
    assert all(score == 0.0 for history in histories for score in history)


def test_who_is_no_producer_sends_nothing() -> None:
    town = Town()
    town.relay.open({}, {})
    town.net.run_for(2.0)
    ticket = town.send()
    assert isinstance(town.producer.outcomes[ticket][1], BroadcastRefused)


def test_the_same_seed_gives_the_same_trace_whatever_the_seed_of_pythons_hashes() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim.relay_churn", "7"],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests == [relay_churn.run(7)] * 2
    assert relay_churn.run(8) != digests[0]
