"""A busy scenario that uses every source of chance, for tests that compare whole logs.

Run as a program it prints the digest of its action log: ``python -m tests.sim.churn SEED``.
"""

import sys
from io import BytesIO

from bruit.node.gossip.params import GossipParams, RouterConfig, TopicParams
from bruit.node.sim import ActionLog, LinkModel, SimNetwork, topologies
from bruit.topics.validation import ACCEPTED


def run(seed: int, sink: BytesIO | None = None) -> str:
    """Thirty nodes, two topics, loss, jitter, rates, churn, a partition; the log's digest."""
    log = ActionLog(sink)
    net = SimNetwork(
        seed=seed,
        link=LinkModel(jitter=0.01, loss=0.02, rate=200_000.0),
        signature_price=0.0001,
        detection_delay=2.0,
        action_log=log,
    )
    config = RouterConfig(
        params=GossipParams(d=4, d_lo=3, d_hi=5, d_score=2, d_out=1, peer_exchange=True),
        topics={"blocks": TopicParams(validated=True)},
    )
    nodes = net.add_nodes(30, config=config)
    for node in nodes:
        node.set_validator("blocks", lambda topic, data: ACCEPTED, delay=0.002)
    net.connect_all(topologies.sparse_random(30, 6, net.rng))
    net.subscribe_all("blocks")
    for node in nodes[::2]:
        net.subscribe(node, "votes")
    net.run_for(2.0)
    for number in range(40):
        net.publish(nodes[number % 20], "blocks", bytes(3000))
        net.publish(nodes[(number + 7) % 20], "votes", b"%d" % number)
        net.run_for(0.1)
        if number == 10:
            net.crash(nodes[25])
            net.leave(nodes[26])
        if number == 20:
            net.partition(nodes[:12])
        if number == 30:
            net.heal()
    net.run_for(5.0)
    return log.digest()


if __name__ == "__main__":
    sys.stdout.write(run(int(sys.argv[1])))
