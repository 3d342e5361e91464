"""A node for the length of a command: started, given work, stopped on a signal.

The first SIGTERM or SIGINT cancels the work and leaves the node
``shutdown.grace`` seconds to say goodbye; what hangs then is cut off. The
second one ends the process at once, with 128 and the number of the signal.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
import trio

from bruit.node.cli.options import Flags, topic_overrides
from bruit.node.config import Loaded, NodeConfig, Override, RelayConfig, located
from bruit.node.identity import load_key_file, new_key
from bruit.node.logs import set_up_logging
from bruit.node.node import Node
from bruit.node.reports import DialFailed
from bruit.topics.errors import BruitError, ConfigError, LocalError
from bruit.topics.keys import PrivateKey, peer_id_text

CLOSING = 2.0  # seconds beyond the grace for closing connections; guess

Result = TypeVar("Result")

log = structlog.get_logger()


def load_key(loaded: Loaded) -> PrivateKey:
    """The node's identity. Raises ConfigError when its file is missing, open to others or bad."""
    try:
        return load_key_file(loaded.key_path)
    except LocalError as problem:
        raise ConfigError("identity.key_file", str(problem)) from None


def run_visitor(
    flags: Flags,
    topics: tuple[str, ...],
    codec: str | None,
    validator: str | None,
    work: Callable[[Node], Awaitable[Result]],
) -> Result | None:
    """`run_node` for a short visit: accepts no connections, joins nothing by itself, no relay.

    Its identity is that of the configuration file, or a new one without a file.
    """
    deaf = Override("the command", ("network", "listen"), [])
    loaded = flags.load((deaf, *topic_overrides(topics, codec=codec, validator=validator)))
    topics_not_joined = {
        name: msgspec.structs.replace(topic, subscribe=False)
        for name, topic in loaded.config.topics.items()
    }
    config = msgspec.structs.replace(loaded.config, topics=topics_not_joined, relay=RelayConfig())
    key = load_key(loaded) if flags.config_file else new_key()
    directory = loaded.directory if flags.config_file else None
    return run_node(msgspec.structs.replace(loaded, config=config), key, work, directory)


def run_node(
    loaded: Loaded,
    key: PrivateKey,
    work: Callable[[Node], Awaitable[Result]],
    directory: Path | None = None,
) -> Result | None:
    """What ``work`` returned, or None when a signal ended it.

    ``directory`` is where the node's files are; without one it keeps none. Raises
    what stopped the node from starting or working. Where the node does not stop in
    time the process ends here, with exit code 1.
    """
    set_up_logging(loaded.config.log)
    try:
        return trio.run(_supervise, loaded.config, key, work, directory)
    except BaseExceptionGroup as group:
        problem, *others = _leaves(group)
        if isinstance(problem, ConfigError):
            raise located(problem, loaded.origins) from None
        if others and not isinstance(problem, BruitError):
            raise
        raise problem from None


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for inner in problem.exceptions:
            yield from _leaves(inner)
    else:
        yield problem


async def _supervise(
    config: NodeConfig,
    key: PrivateKey,
    work: Callable[[Node], Awaitable[Result]],
    directory: Path | None,
) -> Result | None:
    patience = config.shutdown.grace + CLOSING
    working = trio.CancelScope()
    result = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, working, patience)
            async with Node(config, key, directory=directory) as node:
                with working:
                    result = await work(node)
                nursery.start_soon(_cut_off, patience)
            nursery.cancel_scope.cancel()
    return result


async def _obey(signals: AsyncIterator[int], working: trio.CancelScope, patience: float) -> None:
    number = await anext(signals)
    log.info("stopping", signal=signal.Signals(number).name)
    working.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut_off, patience)
        number = await anext(signals)
        os._exit(128 + number)


async def _cut_off(patience: float) -> None:
    """The promise to stop in time, whatever hangs and however it is shielded."""
    await trio.sleep(patience)
    log.error("cut off", reason="the node did not stop within shutdown.grace")
    os._exit(1)


async def log_dial_failures(node: Node) -> None:
    """Say at once why a peer cannot be reached. Runs until cancelled."""
    async for report in node.reports():
        if isinstance(report, DialFailed):
            log.warning("dial failed", peer=peer_id_text(report.peer), reason=report.reason)
