"""One node under load: many peers and topics, and a flood of forged messages."""

import sys
import time
from statistics import median

from bench.lab import (
    SILENCE,
    SMALL,
    TOPIC,
    At,
    Lab,
    Result,
    connect,
    subscribe,
    until_known,
    until_meshed,
)
from bench.pairs import rate_1k
from bench.remote import BenchError, Remote

CROWD_TIMEOUT = 120.0  # seconds until all of a crowd is subscribed
EACH = 100  # nodes of a crowd in one process, where that is Python; go hosts all in one
HEARTBEATS_TIMEOUT = 60.0  # seconds for the heartbeats to be timed
FLOODER = (sys.executable, "-m", "bench.flooder")
TIMES = 5  # forged messages for each valid one
AHEAD = 0.5  # seconds that the flood begins before the valid messages


def heartbeat(lab: Lab, kind: str) -> Result:
    """How long a heartbeat takes a node of many peers and topics, with messages to gossip of."""
    scale = lab.scale
    topics = [f"/bench/local/relay/blocks/t{number}" for number in range(scale.crowd_topics)]
    each = min(scale.crowd if lab.crowd == "go" else EACH, scale.crowd)
    with (
        lab.processes(kind, [1], heartbeats=True) as (remote,),
        lab.processes(lab.crowd, [each] * (scale.crowd // each)) as crowd,
    ):
        measured = At(remote)
        subscribe(measured, topics)
        nodes = [At(process, index) for process in crowd for index in range(each)]
        for node in nodes:
            subscribe(node, topics)
        connect([(node, measured) for node in nodes])
        until_known(measured, scale.crowd, topics, CROWD_TIMEOUT)
        longest = scale.heartbeat_delay + HEARTBEATS_TIMEOUT
        for topic in topics:  # answered when it is over, which nobody waits for
            remote.order(
                "publish",
                node=0,
                topic=topic,
                run=next(lab.runs),
                count=round(longest),
                size=SMALL,
                rate=1.0,
            )
        time.sleep(scale.heartbeat_delay)
        remote.ask("heartbeats")
        seconds: list[float] = []
        deadline = time.monotonic() + HEARTBEATS_TIMEOUT
        while len(seconds) < scale.heartbeats:
            if time.monotonic() > deadline:
                raise BenchError(
                    f"heartbeat: {len(seconds)} of {scale.heartbeats} in {HEARTBEATS_TIMEOUT:g} s"
                )
            time.sleep(0.5)
            seconds += remote.ask("heartbeats")["seconds"]
    seconds = seconds[: scale.heartbeats]
    return Result(
        figures={
            "heartbeat_ms": median(seconds) * 1e3,
            "heartbeat_ms_longest": max(seconds) * 1e3,
        }
    )


def flood(lab: Lab, kind: str) -> Result:
    """What arrives of valid messages beside forged ones, against what arrives without them."""
    rate = rate_1k(lab, kind) / 2
    with (
        lab.processes(kind, [1, 1]) as (receiving, sending),
        Remote("flooder", FLOODER, {"address": receiving.addresses[0], "topic": TOPIC}) as flooder,
    ):
        flooder.listen()
        subscriber, publisher = At(receiving), At(sending)
        subscribe(subscriber)
        subscribe(publisher)
        connect([(publisher, subscriber)])
        until_known(publisher, 1)
        until_known(subscriber, 1)
        until_meshed(lab, publisher, [receiving])
        without, offered, _ = goodput(lab, sending, receiving, rate)
        flooder.ask("flood", rate=TIMES * rate)
        time.sleep(AHEAD)
        with_flood, _, delivered = goodput(lab, sending, receiving, rate)
        wrote = flooder.ask("stop")
    if not without:
        raise BenchError("flood: nothing arrived, even without it")
    return Result(
        figures={
            "flood_goodput_ratio": with_flood / without,
            "flood_goodput": with_flood,
            "flood_goodput_without": without,
            "flood_valid_rate": rate,
            "flood_written_per_s": wrote["written"] / wrote["seconds"],
        },
        counts={
            "flood_offered": offered,
            "flood_delivered": delivered,
            "flood_connections": wrote["connections"],
        },
    )


def goodput(lab: Lab, sending: Remote, receiving: Remote, rate: float) -> tuple[float, int, int]:
    """Messages a second that arrived, how many were offered, and how many arrived."""
    seconds = lab.scale.flood_seconds
    run, count = next(lab.runs), max(1, round(rate * seconds))
    said = sending.ask(
        "publish",
        6 * seconds + SILENCE,
        node=0,
        topic=TOPIC,
        run=run,
        count=count,
        size=SMALL,
        rate=rate,
    )
    got = receiving.ask(
        "wait", 6 * seconds + 2 * SILENCE, run=run, count=said["taken"], silence=SILENCE
    )
    delivered = got["counts"][0]
    if not delivered:
        return 0.0, count, 0
    return delivered / (got["last"] - said["began"]) * 1e9, count, delivered
