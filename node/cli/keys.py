"""``bruit keys``: identities on disk."""

from pathlib import Path

import click

from bruit.node.cli.init import KEY_FILE

_FILE = click.argument("file", type=click.Path(path_type=Path), default=KEY_FILE)


@click.group()
def keys() -> None:
    """Make and show private keys.

    A key file is one line of text that only its owner can read; the key's peer id is
    what other nodes know the node by.

    \b
    Example:
      bruit keys new relay/node.key
    """


@keys.command()
@_FILE
@click.option(
    "--key-type",
    type=click.Choice(["ed25519", "secp256k1"]),
    default="ed25519",
    show_default=True,
    help="Kind of the new key.",
)
def new(file: Path, key_type: str) -> None:
    """Write a new private key to FILE, node.key unless given, and print its peer id.

    A file that exists is never overwritten.

    \b
    Example:
      bruit keys new relay/node.key --key-type secp256k1
    """
    from bruit.node.identity import KEY_TYPES, create_key_file, new_key
    from bruit.topics.keys import peer_id_text

    key = new_key(KEY_TYPES[key_type])
    create_key_file(file, key)
    click.echo(peer_id_text(key.public_key().peer_id()))


@keys.command()
@_FILE
@click.option("--id", "id_only", is_flag=True, help="Print the peer id and nothing else.")
def show(file: Path, id_only: bool) -> None:
    """Print the peer id and the kind of the private key in FILE, node.key unless given.

    The key itself is not shown.

    \b
    Examples:
      bruit keys show relay/node.key
      bruit run --peer /ip4/192.0.2.1/tcp/4001/p2p/$(bruit keys show --id relay/node.key)
    """
    from bruit.node.identity import load_key_file
    from bruit.topics.keys import peer_id_text

    key = load_key_file(file)
    peer = peer_id_text(key.public_key().peer_id())
    if id_only:
        click.echo(peer)
        return
    click.echo(f"peer id  {peer}")
    click.echo(f"kind     {key.kind.name.lower()}")
