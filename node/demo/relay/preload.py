"""Loads what every worker needs, once, in the process from which they are forked.

Imports and compiled kernels take a process about 1.5 s. No thread may be started here.
"""

import bruit.node.demo.relay.worker
import bruit.plugins.bitcoin
import bruit.plugins.zstd  # noqa: F401, to be there
from bruit.node.relay.coding.code import Code
from bruit.node.relay.params import ChannelParams


def _warm() -> None:
    code = Code(2, 4, ChannelParams(id=0, topic="t").coding)
    chunks = code.encode(b"warm")
    code.decode({2: chunks[2], 3: chunks[3]})


_warm()
