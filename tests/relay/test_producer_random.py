"""Whatever is lost, doubled, late or forged: every broadcast ends once, with a true proof."""

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from bruit.node.relay.actions import Broadcasted, BroadcastRefused, StakeAttached, SubmitChunk
from bruit.node.relay.directory import Directory, peer_of
from bruit.node.relay.events import AcknowledgementReceived, MarketplaceChanged, MemberUnreachable
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import RelayParams
from bruit.node.relay.proof import decode_proof, encode_proof, verify_proof
from bruit.node.relay.submission import MEMBERS_TRIED
from bruit.node.relay.wire import decode_acknowledgement
from bruit.plugins.marketplace import Marketplace
from tests.relay.producing import (
    CHANNEL,
    MERKLE_CHANNEL,
    World,
    marketplace,
    secret_of,
    signed,
)

HONEST, TWICE, LATE, LOST, FORGED, FOREIGN, GARBAGE, DOWN, LYING = range(9)


class Chaos:
    """Members that do anything, by a seed. Knows what was honestly acknowledged."""

    def __init__(self, seed: int, habits: list[int], clusters: int, per_peer: int) -> None:
        self.rng = Random(seed)
        self.habits = habits
        self.params = RelayParams(chunks_per_peer=per_peer)
        self.world = World(marketplace(clusters, 2), params=self.params, seed=seed)
        self.world.on_submit = lambda _world, submitted: self.on_submit(submitted)
        self.world.lag = lambda _action: self.rng.choice([0.0, 0.0, 0.02, 0.5])
        self.world.select = lambda selection: self.rng.choice(
            [*(option.cluster for option in selection.options), 4711]
        )
        self.given: dict[bytes, None] = {}  # acknowledgements that were really given
        self.directories = [Directory(self.world.market)]

    def on_submit(self, submitted: SubmitChunk) -> None:
        world = self.world
        checked = world.checked(submitted)
        cluster = world.cluster_of(submitted.member)
        message_id = checked.attested.message_id
        assert any(
            cluster in directory.options(message_id, checked.chunk, self.params.cluster_options)
            and directory.cluster_of(submitted.member.address) == cluster
            for directory in self.directories
        )
        assert world.now < checked.attested.timestamp + self.params.tolerable_latency
        delay = self.rng.uniform(0.01, 1.0)
        honest = world.acknowledgement(submitted, world.now + delay)
        habit = self.rng.choice(self.habits)
        if habit in (HONEST, TWICE, LATE):
            self.given[honest.encode()] = None
            world.answer(submitted, honest, delay + 2.0 * (habit == LATE))
            if habit == TWICE:
                world.answer(submitted, honest, delay + self.rng.random())
        elif habit == FORGED:
            world.answer(submitted, signed(honest, keccak256(b"nobody")), delay)
        elif habit == FOREIGN:
            world.answer(submitted, signed(honest, secret_of(cluster % 8 + 1, 0)), delay)
        elif habit == GARBAGE:
            world.answer(submitted, self.rng.randbytes(self.rng.choice([0, 32, 97])), delay)
        elif habit == DOWN:
            world.later(delay, MemberUnreachable(peer_of(submitted.member)))
        elif habit == LYING:  # passes another's acknowledgement off as its own
            for frame in list(self.given)[-3:]:
                world.later(delay, AcknowledgementReceived(peer_of(submitted.member), frame))

    def change_marketplace(self) -> None:
        clusters = tuple(
            cluster for cluster in self.world.market.clusters if self.rng.random() < 0.7
        )
        changed = Marketplace(self.world.market.producers, clusters)
        self.directories.append(Directory(changed))
        self.world.tell(MarketplaceChanged(changed))


SEEDS = st.integers(0, 2**32)
HABITS = st.lists(st.sampled_from(range(9)), min_size=1, max_size=5)
CHAOS = st.builds(Chaos, SEEDS, HABITS, st.integers(1, 5), st.sampled_from([1, 2, 128]))


def drive(chaos: Chaos, blocks: int, churn: bool) -> None:
    for number in range(blocks):
        channel = chaos.rng.choice([CHANNEL, MERKLE_CHANNEL])
        chaos.world.broadcast(bytes((number % 3,)) * 40, channel.id)
        chaos.world.run(chaos.rng.choice([0.0, 0.3, 2.0]))
        if churn and chaos.rng.random() < 0.5:
            chaos.change_marketplace()
    chaos.world.run(60)


@settings(deadline=None, max_examples=60)
@given(CHAOS, st.integers(1, 4), st.booleans())
def test_every_broadcast_ends_once_and_its_proof_is_true(
    chaos: Chaos, blocks: int, churn: bool
) -> None:
    drive(chaos, blocks, churn)
    world = chaos.world
    answered = [answer.ticket for answer in world.of(Broadcasted)]
    answered += [refusal.ticket for refusal in world.of(BroadcastRefused)]
    assert sorted(answered) == list(range(1, blocks + 1))
    for answer in world.of(Broadcasted):
        proof = answer.proof
        assert decode_proof(encode_proof(proof)) == proof
        finding = verify_proof(proof, None if churn else world.market)
        assert finding.holds, finding.statements
        for receipt in proof.receipts:
            assert not receipt.acknowledgement or receipt.acknowledgement in chaos.given


@settings(deadline=None, max_examples=60)
@given(CHAOS, st.integers(1, 4), st.booleans())
def test_no_chunk_goes_to_more_clusters_than_it_has_options_or_to_a_member_twice(
    chaos: Chaos, blocks: int, churn: bool
) -> None:
    drive(chaos, blocks, churn)
    sent: Counter[tuple[bytes, int, bytes]] = Counter()  # frame, cluster, member
    clusters: dict[bytes, dict[int, int]] = {}  # frame → cluster → times
    for submitted in chaos.world.of(SubmitChunk):
        cluster = chaos.world.cluster_of(submitted.member)
        sent[submitted.frame, cluster, submitted.member.address] += 1
        times = clusters.setdefault(submitted.frame, {})
        times[cluster] = times.get(cluster, 0) + 1
    assert all(count == 1 for count in sent.values())
    for times in clusters.values():
        assert len(times) <= chaos.params.cluster_options
        assert max(times.values()) <= MEMBERS_TRIED


@settings(deadline=None, max_examples=30)
@given(CHAOS, st.integers(2, 4))
def test_no_two_broadcasts_share_stake_or_a_name(chaos: Chaos, blocks: int) -> None:
    drive(chaos, blocks, churn=False)
    pieces = sorted((each.start, each.end) for each in chaos.world.of(StakeAttached))
    assert all(one[1] <= other[0] for one, other in pairwise(pieces))
    names = [(a.channel, a.message_id, a.timestamp) for a in chaos.world.of(StakeAttached)]
    assert len(set(names)) == len(names)


@settings(deadline=None, max_examples=20)
@given(SEEDS, HABITS)
def test_the_same_seed_gives_the_same_actions(seed: int, habits: list[int]) -> None:
    one, other = (Chaos(seed, habits, 4, 2) for _ in range(2))
    for chaos in (one, other):
        drive(chaos, 3, churn=True)
    assert one.world.log == other.world.log


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.integers(1, 5))
def test_a_chunk_with_an_honest_option_arrives_whatever_the_others_do(
    seed: int, clusters: int
) -> None:
    chaos = Chaos(seed, [LOST, FORGED, FOREIGN, GARBAGE, DOWN, LYING], clusters, per_peer=128)
    honest = chaos.rng.choice(chaos.world.market.clusters).id
    chaos.world.on_submit = lambda w, s: (
        World.acknowledge_soon(w, s) if w.cluster_of(s.member) == honest else chaos.on_submit(s)
    )
    chaos.world.broadcast()
    chaos.world.run(60)
    directory, proof = chaos.directories[0], chaos.world.proof()
    for receipt in proof.receipts:
        if honest in directory.options(proof.message_id, receipt.chunk, 3):
            assert decode_acknowledgement(receipt.acknowledgement).cluster == honest
