"""What one signature over a Merkle root saves, beside one for each chunk.

    python -m bench.attesting [--rounds N]

CPU time of one thread, of the relay's own functions on a random block of 1 MB, medians over the
rounds, both ways in turns: attesting all chunks (hashes, tree, signatures), checking one witnessed
frame, and the frame's bytes beside its chunk. Every round has another block, so that no signer is
remembered from the round before; within one, a root's is, as in a node. The last line is JSON.
"""

import argparse
import json
import random
import time
from statistics import median

from bruit.node.relay.broadcast import BroadcastUnderWay
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_proof, merkle_tree
from bruit.node.relay.params import Attesting, ChannelParams
from bruit.node.relay.signing import attestation_of, check_chunk, message_id_of, sign
from bruit.node.relay.wire import Attested, Frame, decode_attested

SIZE = 1_000_000  # bytes of a block
SHAPES = ((32, 48), (32, 64), (256, 512))  # MIN_CHUNKS and NUM_CHUNKS
SECRET, MEMBER = bytes(31) + b"\x01", bytes(31) + b"\x02"
SEED = 1


def once(channel: ChannelParams, block: bytes) -> dict[str, float]:
    """Seconds to attest a block, seconds to check a chunk, bytes of a frame beside it."""
    chunks = [bytes(chunk) for chunk in channel.code().encode(block)]
    began = time.thread_time()
    hashes = tuple(keccak256(chunk) for chunk in chunks)
    broadcast = BroadcastUnderWay(1, 1, channel, message_id_of(block))
    digests = broadcast.attest(tuple(chunks), hashes, 0, 1)
    signatures = [sign(SECRET, digest) for digest in digests]
    attested = time.thread_time() - began
    frames = []
    tree = merkle_tree(hashes) if channel.attesting is Attesting.MERKLE else None
    for index, chunk in enumerate(chunks):
        which = 0 if tree else index
        said: Attested = decode_attested(broadcast._attested[which].encode())
        attestation = attestation_of(said, index, signatures[which])
        proof = merkle_proof(tree, index) if tree else ()
        message_hash = keccak256(attestation.encode(), *proof, chunk)
        frames.append(Frame(attestation, sign(MEMBER, message_hash), proof, chunk).encode())
    began = time.thread_time()
    for frame in frames:
        check_chunk(frame, channel, witnessed=True)
    checked = (time.thread_time() - began) / len(frames)
    beside = sum(map(len, frames)) / len(frames) - len(chunks[0])
    return {"attest_ms": 1e3 * attested, "check_us": 1e6 * checked, "frame_bytes": beside}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    rng = random.Random(SEED)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for least, count in SHAPES:
        found: dict[Attesting, list[dict[str, float]]] = {each: [] for each in Attesting}
        for _ in range(rounds):
            block = rng.randbytes(SIZE)
            for attesting in Attesting:
                channel = ChannelParams(
                    id=1, topic="/t", min_chunks=least, num_chunks=count, attesting=attesting
                )
                found[attesting].append(once(channel, block))
        shape = results[f"{least} of {count}"] = {
            attesting.value: {name: round(median(run[name] for run in runs), 2) for name in runs[0]}
            for attesting, runs in found.items()
        }
        print(f"{least} of {count}: {shape}")
    print(json.dumps(results | {"inputs": {"block": SIZE, "rounds": rounds, "seed": SEED}}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
