"""The hooks that a chain may fill.

A plugin is a class behind an entry point of the group ``bruit``. It names the
type of its configuration and is built once per node::

    class MyChain:
        Config = MyConfig            # a msgspec.Struct, checked before the node starts

        def __init__(self, config: MyConfig) -> None: ...

        @hookimpl
        def validate(self, topic: str, data: bytes) -> Validation: ...

Which plugin serves which topic is configuration (``[topics."NAME"]``), and so is
which of them judge peers (``scoring.app_scores``) and serve the relay
(``relay.selector``, ``relay.marketplace``): an installed plugin does
nothing until it is asked for. Hooks are compiled into plain calls: hook wrappers
do not apply to them. They run in a worker thread, one call at a time per topic
(hooks without a topic: one call at a time), and must not keep the GIL for long.

Whatever a plugin raises is contained and counted against it. To refuse bad
input from the network, raise `bruit.topics.errors.RemoteError` (post_process)
or return a REJECT (validate): neither counts as a failure.
"""

from collections.abc import Sequence
from random import Random

import msgspec
import pluggy

from bruit.plugins.marketplace import Marketplace
from bruit.topics.keys import PeerId
from bruit.topics.validation import Validation

GROUP = "bruit"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


class ClusterOption(msgspec.Struct, frozen=True):
    """One cluster that a chunk may go through."""

    cluster: int  # 16-bit cluster id
    price: int  # tokens per byte, 0 = free
    latency: float | None  # seconds, decayed mean of send → acknowledgement; None = never used
    acknowledgement_rate: float | None  # 0..1, decayed; None = never used
    score_history: Sequence[float]  # peer scores of its members, oldest first
    # Sends without acknowledgement since the last with one, and acknowledged chunks that others
    # did not have since the last that they had.
    recent_failures: int
    # 0..1, decayed share of acknowledged chunks that others had afterwards; None = never observed
    delivery_rate: float | None = None


class Selection(msgspec.Struct, frozen=True):
    """What a selector is asked to decide for."""

    producer: bytes  # 20-byte producer id
    message_id: bytes
    chunk_index: int  # 0-based
    chunk_size: int  # bytes on the wire
    options: Sequence[ClusterOption]  # never empty, in protocol order


class HookSpecs:
    @hookspec(firstresult=True)
    def pre_process(self, topic: str, data: bytes) -> bytes:  # type: ignore[empty-body]
        """Turn what the application publishes into what goes on the wire."""

    @hookspec(firstresult=True)
    def post_process(self, topic: str, data: bytes, max_size: int) -> bytes:  # type: ignore[empty-body]
        """Undo `pre_process`. The result must not exceed ``max_size`` bytes.

        Raises RemoteError when ``data`` is not what a peer may send; it must
        notice an oversized result before allocating it.
        """

    @hookspec(firstresult=True)
    def validate(self, topic: str, data: bytes) -> Validation:  # type: ignore[empty-body]
        """Judge a message after `post_process`, before it is delivered or forwarded."""

    @hookspec(firstresult=True)
    def select_cluster(self, selection: Selection, rng: Random) -> int:  # type: ignore[empty-body]
        """Choose one of ``selection.options`` and return its ``cluster``.

        Pure: the same selection and generator state give the same answer; use
        ``rng`` and no other source of chance.
        """

    @hookspec(firstresult=True)
    def marketplace(self) -> Marketplace | None:
        """The marketplace as it is now; None for unchanged since the last call.

        The first call answers with a marketplace. Called every few seconds; what
        is slow, such as asking a contract, may take its time. A failure leaves
        what was told before in force.
        """

    @hookspec
    def app_score(self, peer: PeerId) -> float:  # type: ignore[empty-body]
        """What the chain thinks of a connected peer: P5 of its score, before its weight.

        0 for a peer that the chain knows nothing of; a finite number of at most
        1e12 either way. Where several plugins are asked, their answers are added
        up, and one that fails counts as 0. Asked for every connected peer when it
        connects and every 10 seconds: remember what is dear to find out.
        """
