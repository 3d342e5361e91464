"""A busy relay that uses every source of chance, for tests that compare whole logs.

Run as a program it prints the digest of its action log: ``python -m tests.sim.relay_churn SEED``.
"""

import sys

from bruit.node.relay.params import ChannelParams
from bruit.node.sim import ActionLog, LinkModel
from bruit.node.sim.relay_work import Prices
from tests.sim.relaying import Town


def run(seed: int) -> str:
    """Loss, jitter, bandwidth, prices, a changing marketplace, a partition, a crash; the digest."""
    log = ActionLog()
    town = Town(
        seed,
        channel=ChannelParams(id=7, topic="blocks", min_chunks=4, num_chunks=8),
        clusters=3,
        members=2,
        consumers=6,
        bandwidth=1e6,
        link=LinkModel(jitter=0.01, loss=0.02),
        prices=Prices(
            check=0.001, receipt=0.0005, sign=0.0005, encode=0.01, decode=0.01, judge=0.01
        ),
        action_log=log,
    )
    for number in range(4):
        town.send(number, 20_000)
        town.net.run_for(1.5)
        if number == 1:
            town.open_market(without=[1])
            town.net.partition(host.node for host in town.consumers[:2])
        if number == 2:
            town.net.crash(town.clusters[2][0].node)
            town.net.heal()
    town.net.run_for(15.0)
    return log.digest()


if __name__ == "__main__":
    sys.stdout.write(run(int(sys.argv[1])))
