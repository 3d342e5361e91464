"""``python -m bruit.node.cli`` is ``bruit``."""

from bruit.node.cli import main

main(prog_name="bruit")
