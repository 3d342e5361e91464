"""``bruit relay key``: the key that a producer or a member of a cluster signs with."""

from pathlib import Path

import click

RELAY_KEY_FILE = Path("relay.key")  # as relay.key_file has it, unless told otherwise

_FILE = click.argument("file", type=click.Path(path_type=Path), default=RELAY_KEY_FILE)


@click.group()
def key() -> None:
    """Make and show the key that a relay node signs with.

    It is a secp256k1 key in a file of its own, beside that of the peer id: the file is
    relay.key_file in the configuration, the address that belongs to it is the node's id
    in the marketplace, and is written as Ethereum writes addresses.

    \b
    Example:
      bruit relay key new bob/relay.key
    """


@key.command()
@_FILE
def new(file: Path) -> None:
    """Write a new key to FILE, relay.key unless given, and print its address.

    A file that exists is never overwritten; only its owner can read it.

    \b
    Example:
      bruit relay key new bob/relay.key
    """
    from bruit.node.identity import create_key_file, new_key
    from bruit.node.relay.signing import address_of_secret
    from bruit.topics.keys import KeyType

    made = new_key(KeyType.SECP256K1)
    create_key_file(file, made)
    click.echo(f"0x{address_of_secret(made.secret).hex()}")


@key.command()
@_FILE
def show(file: Path) -> None:
    """Print the address of the key in FILE, relay.key unless given.

    The key itself is not shown.

    \b
    Example:
      bruit relay key show bob/relay.key
    """
    click.echo(f"0x{relay_address(file).hex()}")


def relay_address(file: Path) -> bytes:
    """The 20-byte id of the key in a file. Raises LocalError where there is none."""
    from bruit.node.identity import load_key_file
    from bruit.node.relay.signing import address_of_secret
    from bruit.topics.errors import LocalError
    from bruit.topics.keys import KeyType

    found = load_key_file(file)
    if found.kind is not KeyType.SECP256K1:
        raise LocalError(
            f"key file {file} holds an {found.kind.name.lower()} key, but a relay signs with "
            "secp256k1: make one with `bruit relay key new`, under another name"
        )
    return address_of_secret(found.secret)
