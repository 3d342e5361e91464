"""One process publishes to another: messages a second, and what one costs."""

import time
from statistics import median

from bench.lab import (
    LARGE,
    RUN_TIMEOUT,
    SILENCE,
    SLOW,
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

SETTLE = 0.3  # seconds in which what a first message has caused comes to rest; guess


def small(lab: Lab, kind: str) -> int:
    return lab.scale.slow_small if kind in SLOW else lab.scale.small


def large(lab: Lab, kind: str) -> int:
    return lab.scale.slow_large if kind in SLOW else lab.scale.large


def pair(
    lab: Lab,
    kind: str,
    key: str,
    count: int,
    *,
    size: int = SMALL,
    policy: str = "sign",
    member: bool = True,
) -> Result:
    """``member``: whether the publisher is subscribed, too."""
    with lab.processes(kind, [1, 1], policy=policy) as (receiving, sending):
        subscriber, publisher = At(receiving), At(sending)
        subscribe(subscriber)
        if member:
            subscribe(publisher)
        connect([(publisher, subscriber)])
        until_known(publisher, 1)
        if member:
            until_known(subscriber, 1)
        until_meshed(lab, publisher, [receiving])
        time.sleep(SETTLE)

        run = next(lab.runs)
        cpu = receiving.cpu(), sending.cpu()
        said = sending.ask(
            "publish", RUN_TIMEOUT, node=0, topic=TOPIC, run=run, count=count, size=size, rate=0
        )
        got = receiving.ask("wait", RUN_TIMEOUT, run=run, count=said["taken"], silence=SILENCE)
        spent = receiving.cpu() - cpu[0], sending.cpu() - cpu[1]

    taken, delivered = said["taken"], got["counts"][0]
    seconds = (got["last"] - said["began"]) / 1e9
    rate = delivered / seconds if delivered else 0.0
    lost = ""
    if delivered != taken or got["wrong"]:
        lost = f"{key}: {delivered} of {taken} delivered, {got['wrong']} changed"
    return Result(
        figures={
            key: rate * size / 1e6 if size == LARGE else rate,
            f"{key}_cpu_us": spent[0] / max(delivered, 1) * 1e6,
            f"{key}_cpu_us_publisher": spent[1] / max(taken, 1) * 1e6,
        },
        counts={
            f"{key}_offered": count,
            f"{key}_taken": taken,
            f"{key}_delivered": delivered,
            f"{key}_repeated": got["repeated"],
        },
        lost=lost,
    )


def pair_1k(lab: Lab, kind: str) -> Result:
    result = pair(lab, kind, "pair_1k", small(lab, kind))
    lab.rates.setdefault(kind, []).append(result.figures["pair_1k"])
    result.figures["cpu_us_per_msg"] = result.figures.pop("pair_1k_cpu_us")
    result.figures["cpu_us_per_msg_publisher"] = result.figures.pop("pair_1k_cpu_us_publisher")
    return result


def pair_1k_fanout(lab: Lab, kind: str) -> Result:
    return pair(lab, kind, "pair_1k_fanout", small(lab, kind), member=False)


def pair_1k_nosign(lab: Lab, kind: str) -> Result:
    return pair(lab, kind, "pair_1k_nosign", small(lab, kind), policy="nosign")


def pair_500k(lab: Lab, kind: str) -> Result:
    return pair(lab, kind, "pair_500k", large(lab, kind), size=LARGE)


def rate_1k(lab: Lab, kind: str) -> float:
    """The rate of `pair_1k` in this run, which is measured now where it was not."""
    if kind not in lab.rates:
        pair_1k(lab, kind)
    return median(lab.rates[kind])
