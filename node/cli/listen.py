"""``bruit listen``: messages as they come."""

from __future__ import annotations  # Node is heavy to import

import datetime as dt
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bruit.node.cli.options import Flags, node_options, topic_options

if TYPE_CHECKING:
    import trio

    from bruit.node.node import Node
    from bruit.node.subscription import Received


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--count",
    metavar="N",
    type=click.IntRange(min=1),
    help="Leave after N messages.",
)
@click.option(
    "--save",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each payload to DIR, in a file named by the message's id.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message.")
@topic_options
@node_options
def listen(
    topics: tuple[str, ...],
    count: int | None,
    folder: Path | None,
    as_json: bool,
    codec: str | None,
    validator: str | None,
    **flags: Any,  # as named in Flags
) -> None:
    """Print the messages of each TOPIC as they come, one per line.

    \b
    A line is: time, topic, bytes, message id, and the peer that sent it first. With
    --json it has topic, message_id, bytes, sha256, author, source, facts (what the
    validator found out) and received_at (Unix time, seconds).

    Payloads are what was published, after the codec. SIGINT (Ctrl-C) ends it.

    Without -c the node has an identity made for the occasion. With -c it is the node
    of that file, which must not be running at the same time. In both cases no
    connections are accepted unless --listen says where.

    \b
    Examples:
      bruit listen hello --peer /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW…
      bruit listen blocks --codec zstd --count 1 --save blocks --peer /ip4/…
    """
    import structlog
    import trio

    from bruit.node.cli.process import log_dial_failures, run_visitor
    from bruit.topics.errors import LocalError

    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise LocalError(f"{folder} cannot be made: {problem.strerror}") from None

    async def work(node: Node) -> None:
        send, receive = trio.open_memory_channel["Received"](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_dial_failures, node)
            for topic in dict.fromkeys(topics):
                await nursery.start(_forward, node, topic, send)
            structlog.get_logger().info("ready", peer=node.peer_id_text, topics=list(topics))
            left = count
            async for message in receive:
                if folder is not None:
                    await _save(message, folder)
                click.echo(_json_line(message) if as_json else _line(message))
                if left is not None:
                    left -= 1
                    if not left:
                        break
            nursery.cancel_scope.cancel()

    run_visitor(Flags(**flags), topics, codec, validator, work)


async def _forward(
    node: Node,
    topic: str,
    messages: trio.MemorySendChannel[Received],
    task_status: trio.TaskStatus[None],
) -> None:
    import structlog

    lost = 0
    async with node.subscribe(topic) as subscription:
        task_status.started()
        async for message in subscription:
            if subscription.lost > lost:
                missing, lost = subscription.lost - lost, subscription.lost
                structlog.get_logger().warning("messages lost", topic=topic, count=missing)
            await messages.send(message)


async def _save(message: Received, folder: Path) -> None:
    import trio

    from bruit.topics.errors import LocalError

    path = trio.Path(folder / message.message_id.hex())
    try:
        await path.write_bytes(message.data)
    except OSError as problem:
        raise LocalError(f"{path} cannot be written: {problem.strerror}") from None


def _line(message: Received) -> str:
    from bruit.topics.keys import peer_id_text

    received = dt.datetime.fromtimestamp(message.received_at, dt.UTC)
    return (
        f"{received.isoformat(timespec='milliseconds')}  {message.topic}  {len(message.data)}  "
        f"{message.message_id.hex()}  {peer_id_text(message.source)}"
    )


def _json_line(message: Received) -> str:
    from bruit.topics.keys import peer_id_text

    return json.dumps(
        {
            "topic": message.topic,
            "message_id": message.message_id.hex(),
            "bytes": len(message.data),
            "sha256": hashlib.sha256(message.data).hexdigest(),
            "author": peer_id_text(message.author),
            "source": peer_id_text(message.source),
            "facts": message.facts,
            "received_at": message.received_at,
        }
    )
