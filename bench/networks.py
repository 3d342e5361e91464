"""Networks of one implementation: latency over three hops, and what twelve nodes can carry."""

import math
import time
from random import Random

import msgspec

from bench.lab import (
    SEED,
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
from bench.remote import BenchError, Remote
from bruit.node.sim.topologies import line, sparse_random

HOPS = 3
PROCESSES, EACH = 2, 6  # of the graph: processes, and nodes in each
DEGREE = 4
LATENESS = 1.15  # times what was planned that a step's publishing may take
DRAIN = 5.0  # seconds after a step in which all of it has to arrive
LOOK_INTERVAL = 0.25  # seconds between questions: each costs the processes under test something


def hop3(lab: Lab, kind: str) -> Result:
    """A – B – C – D, a process each: what A publishes at a rate, until D has it."""
    scale = lab.scale
    with lab.processes(kind, [1] * (HOPS + 1)) as remotes:
        nodes = [At(remote) for remote in remotes]
        for node in nodes:
            subscribe(node)
        connect([(nodes[dialler], nodes[listener]) for dialler, listener in line(len(nodes))])
        for node in nodes:
            until_known(node, 1 if node in (nodes[0], nodes[-1]) else 2)
        time.sleep(scale.warm_up)
        first, last = nodes[0], nodes[-1]
        until_meshed(lab, first, [last.remote])

        run = next(lab.runs)
        count = round(scale.hop_rate * scale.hop_seconds)
        said = first.remote.ask(
            "publish",
            2 * scale.hop_seconds + SILENCE,
            node=0,
            topic=TOPIC,
            run=run,
            count=count,
            size=SMALL,
            rate=scale.hop_rate,
        )
        last.remote.ask("wait", 4 * SILENCE, run=run, count=said["taken"], silence=SILENCE)
        delays = sorted(last.remote.ask("latencies", run=run)["ns"])
    if not delays:
        raise BenchError(f"hop3: nothing of {count} messages arrived")
    return Result(
        figures={
            "hop3_p50_ms": percentile(delays, 0.50) / 1e6,
            "hop3_p99_ms": percentile(delays, 0.99) / 1e6,
        },
        counts={"hop3_taken": said["taken"], "hop3_delivered": len(delays)},
    )


def percentile(ordered: list[int], share: float) -> int:
    """The smallest value that so large a share of all does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]


class Step(msgspec.Struct):
    """What became of the messages of one rate."""

    rate: float  # messages a second, all nodes together
    taken: int = 0
    offered: int = 0
    lateness: float = 0.0  # what the slowest publisher took, times what was planned
    missing: int = 0  # deliveries
    seconds: float = 0.0  # after the last publication until the last delivery
    problem: str = ""

    @property
    def holds(self) -> bool:
        return not self.problem


def graph(lab: Lab, kind: str) -> Result:
    """A random graph: the highest rate that reaches everybody, and what a node occupies."""
    with lab.processes(kind, [1]) as (single,):
        subscribe(At(single))
        time.sleep(lab.scale.warm_up)
        first = single.rss_mb()
    with lab.processes(kind, [EACH] * PROCESSES) as remotes:
        nodes = [At(remote, index) for remote in remotes for index in range(EACH)]
        for node in nodes:
            subscribe(node)
        connect([(nodes[dialler], nodes[listener]) for dialler, listener in regular_graph()])
        for node in nodes:
            until_known(node, DEGREE)
        time.sleep(lab.scale.warm_up)
        before = sum(remote.rss_mb() for remote in remotes) / len(remotes)
        # All but the publisher's process: there, one node of six is not to get its own.
        for index, remote in enumerate(remotes):
            until_meshed(lab, At(remote), [*remotes[:index], *remotes[index + 1 :]])
        steps: list[Step] = []
        for number in range(lab.scale.graph_steps):
            rate = lab.scale.graph_rate * lab.scale.graph_growth**number
            steps.append(step(lab, nodes, remotes, rate))
            if not steps[-1].holds:
                break
        after = sum(remote.rss_mb() for remote in remotes) / len(remotes)
    held = [each for each in steps if each.holds]
    print(f"           {kind}: {steps[-1].rate:.0f}/s: {steps[-1].problem or 'holds, the last'}")
    return Result(
        figures={
            "graph_rate": held[-1].rate if held else 0.0,
            "graph_drain_s": held[-1].seconds if held else 0.0,
            "rss_mb_first": first,
            "rss_mb_per_node": (before - first) / (EACH - 1),
            "rss_mb_per_node_after": (after - first) / (EACH - 1),
        }
    )


def regular_graph() -> list[tuple[int, int]]:
    """Who dials whom of the twelve: connected, four neighbours each, always the same."""
    count, seed = PROCESSES * EACH, SEED
    while True:
        pairs = sparse_random(count, DEGREE, Random(seed))
        if 2 * len(pairs) == count * DEGREE:  # it gives each node four or more
            return pairs
        seed += 1


def step(lab: Lab, nodes: list[At], remotes: list[Remote], rate: float) -> Step:
    """Every node publishes its share; the step tells how that went."""
    seconds = lab.scale.graph_step
    share = rate / len(nodes)
    count = max(1, round(share * seconds))
    planned = count / share
    done = Step(rate, offered=count * len(nodes))
    runs = {next(lab.runs): node for node in nodes}
    answers = [
        node.remote.order(
            "publish", node=node.node, topic=TOPIC, run=run, count=count, size=SMALL, rate=share
        )
        for run, node in runs.items()
    ]
    try:
        said = [
            node.remote.result(answer, 2 * planned + DRAIN, "answer to publish")
            for node, answer in zip(nodes, answers, strict=True)
        ]
    except BenchError as problem:
        done.problem = str(problem)
        return done
    ended = max(each["ended"] for each in said)
    done.taken = sum(each["taken"] for each in said)
    done.lateness = max(each["ended"] - each["began"] for each in said) / 1e9 / planned
    last = arrival(remotes, runs, count, ended, done)
    for remote in remotes:
        for run in runs:
            remote.ask("forget", run=run)
    done.seconds = max(0.0, (last - ended) / 1e9)
    if done.taken < done.offered:
        done.problem = f"{done.offered - done.taken} of {done.offered} not taken"
    elif done.lateness > LATENESS:
        done.problem = f"publishing took {done.lateness:.2f} of the planned time"
    elif done.missing:
        done.problem = f"{done.missing} deliveries missing after {DRAIN:g} s"
    elif done.seconds > DRAIN:
        done.problem = f"the last delivery after {done.seconds:.1f} s"
    return done


def arrival(remotes: list[Remote], runs: dict[int, At], count: int, ended: int, done: Step) -> int:
    """When the last delivery came. What has not come in time is counted as missing."""
    last = 0
    missing = {(remote, run): count for remote in remotes for run in runs}
    while missing:
        late = time.time_ns() > ended + DRAIN * 1e9
        for remote, run in list(missing):
            answer = remote.ask("received", run=run)
            publisher = runs[run]
            wanted = [count for node in range(EACH) if publisher != At(remote, node)]
            missing[remote, run] = sum(wanted) - sum(answer["counts"])
            last = max(last, answer["last"])
            if not missing[remote, run]:
                del missing[remote, run]
        if late:
            break
        if missing:
            time.sleep(LOOK_INTERVAL)
    done.missing = sum(missing.values())
    return last
