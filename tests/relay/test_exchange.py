"""The whole relay along one script, with one fault at every place where one can be.

The script: a producer sends a block through two clusters to two consumers. Everything that a
machine does and everything that is sent is numbered; each number in turn is where it goes wrong.
"""

from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from bruit.node.relay.evidence import Kind
from tests.relay.exchange import CHANNELS, START, Flight, World
from tests.relay.exchange_footprint import footprint
from tests.relay.test_exchange_random import honest_run, hostile_run

BLOCK = b"good block"
PRODUCERS: list[str] = ["alice", "bob", "mallory"]
OTHERS = [b"good block number two", b"good block number three", b"bad block"]


def world(seed: int = 1) -> World:
    return World(Random(seed), producers=("alice", "mallory"), foes=("mallory",), stake=10_000)


def script(alice: World, channel: int) -> None:
    alice.broadcast("alice", channel, BLOCK)
    alice.drain()


def delivered(after: World, block: bytes) -> list[int]:
    """How often each consumer has delivered a block."""
    books = [after.oracle.books[name] for name in after.consumers]
    return [sum(each.block == block for _, each in book.delivered) for book in books]


def disputes(after: World) -> list[Kind]:
    return [evidence.kind for evidence, _ in after.oracle.evidence]


def unharmed(channel: int) -> World:
    calm = world()
    script(calm, channel)
    calm.check()
    return calm


@pytest.mark.parametrize("channel", CHANNELS)
def test_without_faults_everybody_gets_the_block_and_the_proof_is_whole(channel: int) -> None:
    calm = unharmed(channel)
    assert delivered(calm, BLOCK) == [1, 1]
    assert disputes(calm) == []
    (proof,) = calm.oracle.proofs
    assert all(receipt.acknowledgement for receipt in proof.receipts)


def crash_points(channel: int) -> Iterator[World]:
    """The script's end, with a producer or member dead after each of its actions."""
    for lose in (False, True):
        for at in range(1, unharmed(channel).carried_out + 1):
            shaken = world()
            shaken.crash_at, shaken.crash_loses = at, lose
            script(shaken, channel)
            assert shaken.carried_out >= at
            yield shaken


@pytest.mark.parametrize("channel", CHANNELS)
def test_whoever_dies_after_whichever_action_no_account_stays_open(channel: int) -> None:
    points = 0
    for shaken in crash_points(channel):
        shaken.check()
        points += 1
        # One death, of a producer or of one of three members, and every consumer may have lost
        # what was under way: a block or a dispute, and whoever has neither has got nothing.
        for name, count in zip(shaken.consumers, delivered(shaken, BLOCK), strict=True):
            book = shaken.oracle.books[name]
            found = [evidence.kind for _, evidence in book.disputes]
            assert (count, found) in [(1, []), (0, [Kind.TOO_FEW_CHUNKS]), (0, [])]
            assert bool(book.accounts) == bool(count or found)
    assert points > 60


@pytest.mark.parametrize("channel", CHANNELS)
def test_after_a_crash_the_same_block_sent_again_arrives(channel: int) -> None:
    """The restarted producer puts no stake behind two blocks and signs nothing twice in two ways:
    the oracle accuses it otherwise."""
    for shaken in crash_points(channel):
        shaken.broadcast("alice", channel, BLOCK)
        shaken.drain()
        shaken.check()
        assert delivered(shaken, BLOCK) == [1, 1]


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_producer_that_dies_can_send_the_same_block_within_the_same_second(channel: int) -> None:
    deaths = 0
    for at in range(1, unharmed(channel).carried_out + 1):
        shaken = world()
        shaken.crash_at = at
        shaken.broadcast("alice", channel, BLOCK)
        while shaken.under_way and shaken.nodes["alice"].up:
            shaken.go_on()
        if shaken.nodes["alice"].up:
            continue  # it was a member's action
        deaths += 1
        shaken.restart("alice")
        shaken.broadcast("alice", channel, BLOCK)
        shaken.drain()
        shaken.check()
        assert delivered(shaken, BLOCK) == [1, 1]
    assert deaths > 10


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_member_that_dies_takes_no_block_along(channel: int) -> None:
    """The producer notices, and goes another way."""
    for shaken in crash_points(channel):
        if shaken.nodes["alice"].life == 0 and not shaken.crash_loses:
            assert delivered(shaken, BLOCK) == [1, 1]


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("fault", ["lose_at", "repeat_at"])
def test_one_frame_or_acknowledgement_lost_or_repeated_changes_nothing(
    channel: int, fault: str
) -> None:
    for at in range(1, unharmed(channel).sent + 1):
        shaken = world()
        setattr(shaken, fault, at)
        script(shaken, channel)
        shaken.check()
        assert delivered(shaken, BLOCK) == [1, 1]
        assert disputes(shaken) == []
        (proof,) = shaken.oracle.proofs
        assert all(receipt.acknowledgement for receipt in proof.receipts)


def test_two_deaths_at_any_two_actions_are_accounted_for() -> None:
    rng, channel = Random(7), 1
    count = unharmed(channel).carried_out
    for _ in range(300):
        first, second = sorted(rng.sample(range(1, 2 * count), 2))
        shaken = world()
        shaken.crash_at, shaken.crash_loses = first, rng.random() < 0.5
        shaken.broadcast("alice", channel, BLOCK)
        for _ in range(rng.randrange(3)):
            shaken.broadcast("alice", channel, rng.choice([BLOCK, *OTHERS[:2]]))
        shaken.crash_next = second
        shaken.drain()
        shaken.check()


@pytest.mark.parametrize("channel", CHANNELS)
def test_whatever_is_lost_a_consumer_with_too_few_chunks_says_so_once(channel: int) -> None:
    """Every subset of the chunks, for one consumer; the other one hears all."""
    count, least = CHANNELS[channel].num_chunks, CHANNELS[channel].min_chunks
    for subset in range(1 << count):
        shaken = world()
        for name in list(shaken.nodes):
            shaken.intercept[name] = partial(only, subset)
        script(shaken, channel)
        shaken.check()
        got = subset.bit_count()
        assert delivered(shaken, BLOCK) == [int(got >= least), 1]
        assert disputes(shaken) == ([Kind.TOO_FEW_CHUNKS] if 0 < got < least else [])


def only(subset: int, flight: Flight) -> list[Flight]:
    """To one consumer, of a frame whose chunk is none of ``subset``: nothing."""
    frame = getattr(flight.event, "frame", bytes(8))
    chunk = int.from_bytes(frame[6:8], "big")
    return [flight] if flight.to != "walter" or subset >> chunk & 1 else []


@pytest.mark.parametrize("seed", range(40))
def test_when_all_is_over_nothing_is_left_of_it(seed: int) -> None:
    """Machines with a past hold no more than machines without one, after the same block."""
    old = hostile_run(seed) if seed % 2 else honest_run(seed)
    new = World(
        Random(seed),
        producers=[name for name in PRODUCERS if name in old.nodes],
        members=[
            [name for name in old.nodes if name[0] == letter and name[1:].isdigit()]
            for letter in "mno"
            if f"{letter}0" in old.nodes
        ],
    )
    old.intercept.clear()
    for each in (new, old):
        each.change(new.market)
        each.now = START + 10_000
        each.change(new.market)  # what is over is forgotten when something comes next
        each.choose = lambda options: options[0]
        for name in [name for name in PRODUCERS if name in each.nodes]:
            for number in range(6):  # so that some chunk comes to each cluster
                each.broadcast(name, 1 + number % 2, b"good last block %d" % number)
                each.drain()
    for name, node in new.nodes.items():
        assert footprint(old.nodes[name].machine) == footprint(node.machine), name
