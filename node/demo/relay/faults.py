"""Nodes that cheat: machines around the relay's own that change what these want done."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bruit.node.gossip.params import RouterConfig
from bruit.node.net.relay.driver import Machine, Machines, RelayAction, RelayDriver
from bruit.node.node import Node
from bruit.node.relay.actions import PassOn, PublishChunk, SendAcknowledgement
from bruit.node.relay.keccak import keccak256
from bruit.node.relay.params import ChannelParams
from bruit.node.relay.signing import sign
from bruit.node.relay.wire import decode_frame
from bruit.node.relaying import Relay, Surroundings
from bruit.topics.errors import LocalError

Wrap = Callable[[Machine], Machine]


class DroppingMember:
    """Takes chunks, witnesses and acknowledges them, and forwards none."""

    def __init__(self, honest: Machine) -> None:
        self._honest = honest

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]:
        return [
            action
            for action in self._honest.handle(event, now)
            if not isinstance(action, PassOn | PublishChunk)
        ]


class CorruptingMember:
    """Flips a bit of the last byte of every frame that it passes on: the chunk's."""

    def __init__(self, honest: Machine) -> None:
        self._honest = honest

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]:
        return [
            msgspec.structs.replace(action, frame=corrupted(action.frame))
            if isinstance(action, PassOn | PublishChunk)
            else action
            for action in self._honest.handle(event, now)
        ]


class WithholdingMember:
    """Acknowledges the first chunk that is submitted to it, and keeps it back.

    ``keep`` is given the frame, witnessed, that should have been published.
    """

    def __init__(self, honest: Machine, keep: Callable[[bytes], None]) -> None:
        self._honest = honest
        self._keep = keep
        self._kept = False

    def handle(self, event: Any, now: float) -> Sequence[RelayAction]:
        actions = self._honest.handle(event, now)
        if self._kept or not any(isinstance(each, SendAcknowledgement) for each in actions):
            return actions
        published = [each for each in actions if isinstance(each, PublishChunk)]
        if not published:
            return actions
        self._kept = True
        self._keep(published[0].frame)
        return [each for each in actions if not isinstance(each, PassOn | PublishChunk)]


def corrupted(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


def forged(frame: bytes, channel: ChannelParams, secret: bytes) -> bytes:
    """A witnessed frame with the witness of the key ``secret`` in place of its own.

    Raises RemoteError for what is no frame of the channel.
    """
    depth = channel.proof_depth()
    parts = decode_frame(frame, witnessed=True, depth=depth, max_chunk=channel.max_chunk())
    passed_on = msgspec.structs.replace(parts, witness=b"").encode()
    return msgspec.structs.replace(parts, witness=sign(secret, keccak256(passed_on))).encode()


UNASKED = 1000  # peers: all of them


class CheatingNode(Node):
    """A node whose member's machine is not the relay's own."""

    def __init__(self, config: Path, wrap: Wrap) -> None:
        super().__init__(config)
        self.relay = _CheatingRelay(
            self._config.relay,
            self._registry,
            None,
            self._directory,
            self._feed.tell,
            self._tell_plugin_failures,
        )
        self.relay.wrap = wrap


class _CheatingRelay(Relay):
    wrap: Wrap

    def announced(self, config: RouterConfig) -> RouterConfig:
        """A cheat does not wait to be asked: nobody asks for chunks of a block that is there."""
        config = super().announced(config)
        topics = {
            name: topic
            if topic.announced is None
            else msgspec.structs.replace(
                topic, announced=msgspec.structs.replace(topic.announced, pushed=UNASKED)
            )
            for name, topic in config.topics.items()
        }
        return msgspec.structs.replace(config, topics=topics)

    def _new_driver(self, around: Surroundings) -> RelayDriver:
        driver = super()._new_driver(around)
        honest = driver._machines  # before it has run
        if honest.member is None:
            raise LocalError("only members cheat this way")
        driver._machines = Machines(honest.producer, self.wrap(honest.member), honest.consumer)
        return driver
