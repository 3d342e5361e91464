"""The second driver: the same machines in virtual time, thousands of nodes in one process.

`SimNetwork` is the entry; its docstring shows a whole simulation. Beside it:
`topologies` (who dials whom), `LinkModel` (delay, rate, loss), `bandwidth` (of a
node over all its links), `PeerStub` (a peer played by hand), `relay` (the block
relay's machines on such nodes), `invariants` (what must hold between two phases),
`ActionLog` (every action of every node, the same to the byte for the same seed).
"""

from bruit.node.sim import invariants, topologies
from bruit.node.sim.action_log import ActionLog
from bruit.node.sim.authors import Signatures, SimAuthor
from bruit.node.sim.links import LinkModel
from bruit.node.sim.network import MachineFactory, SimNetwork
from bruit.node.sim.nodes import Delivery, Machine, SimNode
from bruit.node.sim.statistics import SimStatistics
from bruit.node.sim.stubs import PeerStub

__all__ = [
    "ActionLog",
    "Delivery",
    "LinkModel",
    "Machine",
    "MachineFactory",
    "PeerStub",
    "Signatures",
    "SimAuthor",
    "SimNetwork",
    "SimNode",
    "SimStatistics",
    "invariants",
    "topologies",
]
