"""``bruit init``: a folder with a configuration and a key."""

from pathlib import Path

import click

from bruit.node.cli.options import DEFAULT_FILE

KEY_FILE = Path("node.key")


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--key-type",
    type=click.Choice(["ed25519", "secp256k1"]),
    default="ed25519",
    show_default=True,
    help="Kind of the new key.",
)
def init(folder: Path, key_type: str) -> None:
    """Write a configuration and a private key for a new node.

    DIR, the working directory unless given, gets bruit.toml, in which every setting
    stands commented out with its default, and node.key, which only you can read.
    Neither is ever overwritten.

    \b
    Examples:
      bruit init relay
      bruit init relay --key-type secp256k1
    """
    from bruit.node.config.reference import config_template
    from bruit.node.identity import KEY_TYPES, create_key_file, new_key
    from bruit.topics.errors import LocalError
    from bruit.topics.keys import peer_id_text

    config_file, key_file = folder / DEFAULT_FILE, folder / KEY_FILE
    for path in (config_file, key_file):
        if path.exists():
            raise LocalError(f"{path} exists and is never overwritten: nothing was written")
    key = new_key(KEY_TYPES[key_type])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        create_key_file(key_file, key)
        with config_file.open("x", encoding="utf-8") as file:
            file.write(config_template())
    except OSError as problem:
        raise LocalError(f"{folder} cannot be written to: {problem.strerror}") from None
    click.echo(f"configuration  {config_file}")
    click.echo(f"key            {key_file}")
    click.echo(f"peer id        {peer_id_text(key.public_key().peer_id())}")
    click.echo(f"start with     bruit run -c {config_file}")
