"""``bruit publish``: one message, from a file."""

from __future__ import annotations  # Node is heavy to import

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from bruit.node.cli.options import Flags, node_options, topic_options

if TYPE_CHECKING:
    from bruit.node.net.driver import Outcome
    from bruit.node.node import Node


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=10.0,
    show_default=True,
    help="How long to wait for a peer that is subscribed to TOPIC.",
)
@topic_options
@node_options
def publish(
    topic: str,
    file: BinaryIO,
    timeout: float,
    codec: str | None,
    validator: str | None,
    **flags: Any,  # as named in Flags
) -> None:
    """Publish the content of FILE on TOPIC, then leave. FILE may be - for standard input.

    Prints the message's id and the peers it was sent to. The exit code is 1 when
    nobody took it.

    Without -c the message comes from an identity made for the occasion. With -c it
    comes from the node of that file, which must not be running at the same time. In
    both cases no connections are accepted unless --listen says where.

    \b
    Examples:
      bruit publish hello note.txt --peer /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW…
      bruit publish blocks block.raw --validator bitcoin --codec zstd --peer /ip4/…
    """
    import trio

    from bruit.node.cli.process import log_dial_failures, run_visitor
    from bruit.topics.errors import LocalError
    from bruit.topics.keys import peer_id_text

    data = file.read()

    async def work(node: Node) -> Outcome:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_dial_failures, node)
            with trio.move_on_after(timeout) as waiting:
                await node.wait_for_peers(topic)
            if waiting.cancelled_caught:
                connected = len(node.statistics().peers)
                raise LocalError(
                    f"not published: of {connected} connected peers none subscribed to "
                    f"{topic!r} within {timeout:g} s"
                )
            outcome = await node.publish(topic, data)
            nursery.cancel_scope.cancel()
            return outcome

    outcome = run_visitor(Flags(**flags), (topic,), codec, validator, work)
    if outcome is None:
        raise LocalError("not published: stopped by a signal")
    if not outcome.peers:
        raise LocalError(f"not published: {outcome.problem}")
    click.echo(f"message  {outcome.message_id.hex()}")
    for peer in outcome.peers:
        click.echo(f"to       {peer_id_text(peer)}")
    for peer in outcome.dropped:
        click.echo(f"not to   {peer_id_text(peer)}, which reads too slowly")
