"""Those who cheat in an `exchange`: a producer, a member and a peer of the topic.

Their keys are their own, and nobody else's: whatever else they sign or send is theirs to make up.
"""

from collections.abc import Callable, Sequence

import msgspec

from bruit.node.relay.events import (
    AcknowledgementReceived,
    ChunkGossiped,
    ChunkPassedOn,
    ChunkSubmitted,
)
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting
from bruit.node.relay.signing import attestation_of
from bruit.node.relay.wire import (
    ATTESTATION_SIZE,
    WHOLE,
    Attested,
    Frame,
    decode_acknowledgement,
)
from tests.relay.exchange import CHANNELS, Flight, World, hash_of, signature_of
from tests.relay.handheld_member import address, peer

BARE = slice(0, ATTESTATION_SIZE)
WITNESS_END = ATTESTATION_SIZE + 65


def bare_of(witnessed: bytes) -> bytes:
    return witnessed[BARE] + witnessed[WITNESS_END:]


def attest(
    world: World,
    name: str,
    channel: int,
    contents: Sequence[bytes],
    *,
    message_id: bytes,
    timestamp: int,
    offset: int,
) -> list[bytes]:
    """Frames without a witness, over whatever contents, with whatever else."""
    hashes = [keccak256(each) for each in contents]

    def signed(chunk: int, length: int, start: int, digest: bytes) -> tuple[Attested, bytes]:
        made = Attested(message_id, channel, chunk, timestamp, length, start, digest)
        over = keccak256(made.encode())
        signature = signature_of(name, over)
        world.oracle.signed[over, signature] = address(name)
        return made, signature

    frames = []
    if CHANNELS[channel].attesting is Attesting.MERKLE:
        tree = merkle_tree(hashes)
        made, signature = signed(WHOLE, len(contents[0]), offset, tree[-1][0])
        for index, content in enumerate(contents):
            proof = merkle_proof(tree, index)
            frames.append(Frame(attestation_of(made, index, signature), b"", proof, content))
    else:
        for index, content in enumerate(contents):
            made, signature = signed(index, len(content), offset, hashes[index])
            frames.append(Frame(attestation_of(made, index, signature), b"", (), content))
            offset += len(content) + ATTESTATION_SIZE
    encoded = [each.encode() for each in frames]
    for frame in encoded:
        world.made(frame)
    return encoded


def witness(world: World, name: str, bare: bytes) -> bytes:
    """``bare`` with the witness of whoever."""
    digest = keccak256(bare)
    signature = signature_of(name, digest)
    world.oracle.signed[digest, signature] = address(name)
    return bare[BARE] + signature + bare[ATTESTATION_SIZE:]


class FoulProducer:
    """A registered producer who signs what it must not. Each method is one way."""

    def __init__(self, world: World, name: str, blocks: Sequence[bytes]) -> None:
        self.world = world
        self.name = name
        self.rng = world.rng
        self.blocks = list(blocks)
        self.offset = 0
        self.ways: list[Callable[[], list[bytes]]] = [
            self.fair,
            self.inconsistent,
            self.other_times,
            self.same_stake,
            self.conflicting,
            self.overspent,
            self.ground_id,
        ]

    def move(self) -> None:
        """Send something in one of the ways, to some members, in any order, some of it twice."""
        frames = self.rng.choice(self.ways)()
        self.rng.shuffle(frames)
        market = self.world.market
        members = [each.address for cluster in market.clusters for each in cluster.members]
        names = [name for name in self.world.nodes if address(name) in members]
        for frame in frames:
            for name in self.rng.sample(names, self.rng.randint(1, len(names))):
                self.world.send(self.name, name, ChunkSubmitted(peer(self.name), frame))

    def cut(self, block: bytes, channel: int) -> list[bytes]:
        self.world.oracle.blocks[channel, hash_of(block)] = block
        return [bytes(each) for each in CHANNELS[channel].code().encode(block)]

    def take(self, contents: Sequence[bytes]) -> int:
        """Stake that was not attached yet."""
        start = self.offset
        self.offset += sum(len(each) + ATTESTATION_SIZE for each in contents)
        return start

    def _draw(self) -> tuple[bytes, int, list[bytes]]:
        block, channel = self.rng.choice(self.blocks), self.rng.choice(list(CHANNELS))
        return block, channel, self.cut(block, channel)

    def _attest(
        self,
        block: bytes,
        channel: int,
        contents: Sequence[bytes],
        *,
        message_id: bytes | None = None,
        later: int = 0,
        offset: int | None = None,
    ) -> list[bytes]:
        return attest(
            self.world,
            self.name,
            channel,
            contents,
            message_id=hash_of(block)[:4] if message_id is None else message_id,
            timestamp=int(self.world.now) + later,
            offset=self.take(contents) if offset is None else offset,
        )

    def fair(self) -> list[bytes]:
        return self._attest(*self._draw())

    def inconsistent(self) -> list[bytes]:
        """Chunks that are of no one message."""
        block, channel, contents = self._draw()
        for index in self.rng.sample(range(len(contents)), self.rng.randint(1, 2)):
            contents[index] = self.rng.randbytes(len(contents[index]))
        return self._attest(block, channel, contents)

    def other_times(self) -> list[bytes]:
        block, channel, contents = self._draw()
        later = self.rng.choice([-30, -6, -5, -4, 1, 3, 5, 6, 30])
        return self._attest(block, channel, contents, later=later)

    def same_stake(self) -> list[bytes]:
        block, channel, contents = self._draw()
        return self._attest(block, channel, contents, offset=self.rng.randint(0, self.offset))

    def conflicting(self) -> list[bytes]:
        block, channel, contents = self._draw()
        frames = self._attest(block, channel, contents)
        others = [self.rng.randbytes(len(each)) for each in contents]
        return frames + self._attest(block, channel, others)

    def overspent(self) -> list[bytes]:
        block, channel, contents = self._draw()
        stakes = [each.stake for each in self.world.market.producers]
        return self._attest(block, channel, contents, offset=max(stakes, default=0))

    def ground_id(self) -> list[bytes]:
        """Under the name of another's message."""
        block, channel, contents = self._draw()
        stolen = hash_of(self.rng.choice(self.blocks))[:4]
        return self._attest(block, channel, contents, message_id=stolen)


class FoulMember:
    """What a member sends goes through it: some is dropped, some corrupted, some forged."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = world.rng
        self.past: list[Flight] = []
        world.intercept[name] = self.intercept

    def intercept(self, flight: Flight) -> list[Flight]:
        match flight.event:
            case AcknowledgementReceived():
                flights = self._acknowledge(flight)
            case ChunkGossiped() | ChunkPassedOn():
                flights = self._pass_on(flight)
            case _:
                flights = [flight]
        self.past.append(flight)
        if self.rng.random() < 0.1:
            again = self.rng.choice(self.past)  # a replay, where it is old enough
            flights.append(Flight(again.sender, again.to, again.event))
        return flights

    def _acknowledge(self, flight: Flight) -> list[Flight]:
        assert isinstance(flight.event, AcknowledgementReceived)
        given, forged = decode_acknowledgement(flight.event.frame), b""
        match self.rng.randrange(6):
            case 0:
                return []
            case 1:
                forged = msgspec.structs.replace(given, chunk=given.chunk ^ 1).encode()
            case 2:
                other = msgspec.structs.replace(given, chunk=given.chunk ^ 1)
                digest = keccak256(other.signed_part())
                signature = signature_of(self.name, digest)
                self.world.oracle.signed[digest, signature] = address(self.name)
                forged = msgspec.structs.replace(other, signature=signature).encode()
            case 3:
                forged = self.rng.randbytes(self.rng.choice([0, 96, 97]))
            case _:
                return [flight]
        event = AcknowledgementReceived(flight.event.peer, forged)
        return [Flight(flight.sender, flight.to, event), flight]

    def _pass_on(self, flight: Flight) -> list[Flight]:
        assert isinstance(flight.event, ChunkGossiped | ChunkPassedOn)
        frame = flight.event.frame
        match self.rng.randrange(6):
            case 0:
                return []
            case 1:
                frame = corrupted(self.world, frame)
            case 2:
                frame = witness(self.world, "stranger", bare_of(frame))
            case 3:
                frame = witness(self.world, self.name, bare_of(frame))  # whoever was the first
            case _:
                return [flight]
        event = msgspec.structs.replace(flight.event, frame=frame)
        return [Flight(flight.sender, flight.to, event)]


def corrupted(world: World, frame: bytes) -> bytes:
    if world.rng.random() < 0.2:
        return frame[: world.rng.randrange(len(frame))]
    data = bytearray(frame)
    data[world.rng.randrange(len(data))] ^= world.rng.randint(1, 255)
    return bytes(data)


class FoulPeer:
    """A peer of the topic that has heard everything and says anything."""

    def __init__(self, world: World, name: str = "eve") -> None:
        self.world = world
        self.name = name
        self.rng = world.rng

    def move(self) -> None:
        world, rng = self.world, self.rng
        made = list(world.oracle.made)
        if not made:
            return
        bare, other = rng.choice(made), rng.choice(made)
        match rng.randrange(6):
            case 0:
                frame = rng.randbytes(rng.choice([0, 1, 80, 147, 200]))
            case 1:
                frame = corrupted(world, witness(world, self.name, bare))
            case 2:
                frame = witness(
                    world, rng.choice([self.name, "stranger", "mallory"]), bare
                )  # not a member
            case 3:
                # One's attestation, another's chunk.
                frame = witness(world, self.name, bare[BARE] + other[ATTESTATION_SIZE:])
            case 4:
                # A witness that was given for another chunk.
                signatures = [each for _, each in world.oracle.signed]
                frame = bare[BARE] + rng.choice(signatures) + bare[ATTESTATION_SIZE:]
            case _:
                frame = witness(world, "eve", forged_attestation(world, bare))
        channel = int.from_bytes(frame[4:6], "big")
        wrong = channel not in CHANNELS or rng.random() < 0.1
        world.gossip(self.name, rng.choice(list(CHANNELS)) if wrong else channel, frame)


def forged_attestation(world: World, bare: bytes) -> bytes:
    """A chunk of another's, attested anew by one who is no producer."""
    made = world.oracle.made[bare]
    digest = keccak256(made.attested.encode())
    signature = signature_of("eve", digest)
    attestation = msgspec.structs.replace(made.frame.attestation, signature=signature)
    return msgspec.structs.replace(made.frame, attestation=attestation).encode()
