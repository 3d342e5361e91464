"""``bruit relay broadcast``: one block, from a file."""

from __future__ import annotations  # what the types below are from is heavy to import

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from bruit.node.cli.options import DEFAULT_FILE, Flags, node_options
from bruit.node.cli.relay_stake import open_audit

if TYPE_CHECKING:
    from bruit.node.node import Node
    from bruit.node.relay.proof import ProofOfBroadcast


@click.command()
@click.argument("channel")
@click.argument("file", type=click.File("rb"))
@node_options
def broadcast(channel: str, file: BinaryIO, **flags: Any) -> None:  # as named in Flags
    """Send the block in FILE through the clusters, then leave. FILE may be -.

    CHANNEL is the name of a table under relay.channels, an id or a topic. The producer is
    that of bruit.toml, unless -c names another file; it must not be running at the same time,
    as two would attach one stake twice. No connections are accepted unless --listen says where.

    Prints the message's id, how many chunks were acknowledged, and where the proof is. The
    exit code is 1 where too few were for anybody to rebuild the block.

    \b
    Example:
      bruit relay broadcast -c alice/bruit.toml blocks block.raw
    """
    import msgspec

    from bruit.node.cli.process import load_key, run_node
    from bruit.node.config import Override
    from bruit.topics.errors import LocalError

    deaf = Override("the command", ("network", "listen"), [])
    given = Flags(**flags)
    loaded = given._replace(config_file=given.config_file or DEFAULT_FILE).load((deaf,))
    config = loaded.config
    if "producer" not in config.relay.roles:
        raise LocalError('the node is no producer: relay.roles has no "producer"')
    visitor = msgspec.structs.replace(
        config,
        topics={
            name: msgspec.structs.replace(topic, subscribe=False)
            for name, topic in config.topics.items()
        },
        relay=msgspec.structs.replace(config.relay, roles=("producer",)),
    )
    block = file.read()

    async def work(node: Node) -> ProofOfBroadcast:
        assert node.relay is not None  # it has a role
        number = int(channel) if channel.isdecimal() else channel
        return await node.relay.broadcast(number, block)

    proof = run_node(
        msgspec.structs.replace(loaded, config=visitor), load_key(loaded), work, loaded.directory
    )
    if proof is None:
        raise LocalError("stopped by a signal: what was sent by then is on its way")
    acknowledged = sum(bool(receipt.acknowledgement) for receipt in proof.receipts)
    click.echo(f"message  {proof.message_id.hex()}")
    click.echo(f"chunks   {acknowledged} of {len(proof.receipts)} acknowledged")
    if config.relay.audit:
        with open_audit(loaded) as audit:
            newest = audit.broadcasts(proof.message_id)[0]
        click.echo(f"proof    {loaded.directory / config.relay.proofs / newest.proof_file}")
    if acknowledged < proof.channel.min_chunks:
        raise LocalError(
            f"too few chunks were acknowledged: {proof.channel.min_chunks} rebuild a block; "
            "`bruit relay verify-proof` says where the others were sent"
        )
