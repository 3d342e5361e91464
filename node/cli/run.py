"""``bruit run``: a node until it is told to stop."""

from typing import Any

import click

from bruit.node.cli.options import Flags, node_options


@click.command()
@node_options
def run(**flags: Any) -> None:  # as named in Flags
    """Run a node until it is told to stop.

    Reads bruit.toml in the working directory, unless -c names another file, joins the
    topics that say subscribe = true, and writes what happens to standard error. With
    --log-format json each record is one object per line; its `event` is one of:

    \b
      listening     address: complete with /p2p/…, one record for each
      ready         peer, topics
      peer joined   peer, protocol, outbound
      peer left     peer
      hung up       peer, reason: a score too low, a ban, or too many peers
      dial failed   peer, reason; a configured peer is tried again
      few peers     peers, min_peers: checked every 10 s, said when it changes
      enough peers  likewise
      delivered     topic, message_id, bytes, sha256 (its first 16 digits), source
      rejected      topic, message_id, peer, author, reason
      block         channel, message_id, bytes, keccak256 (its first 16 digits), producers,
                    milliseconds since its first chunk; from the relay, as is disputed
      disputed      kind, message_id, producers, reason, file: with the evidence
      score below   threshold, peer, score, why: what the score is the sum of
      score recovered   likewise, of one that is no longer below the threshold
      summary       every 10 s in which anything happened: delivered, rejected, dropped
                    by reason, and how many records of a kind were left_out of the log
      stopping      signal
      stopped       or cut off: reason

    At most 1,000 records of a kind are written in 10 s; `bruit listen` shows every
    message. The level debug adds what peers subscribe to, who enters and leaves the
    meshes, and whose connections are refused.

    On SIGTERM or SIGINT the node sends what is queued, hangs up and exits with
    0, or with 1 when it had to be cut off after shutdown.grace. A second signal ends it
    at once.

    \b
    Examples:
      bruit run -c relay/bruit.toml
      bruit run --set 'topics."hello".subscribe=true' --listen /ip4/0.0.0.0/tcp/4001
      bruit run --log-format json 2>> bruit.log
    """
    import structlog

    from bruit.node.cli.process import load_key, run_node
    from bruit.node.cli.watch import Watch

    loaded = Flags(**flags).load_file()
    run_node(loaded, load_key(loaded), Watch(loaded.config).work, loaded.directory)
    structlog.get_logger().info("stopped")
