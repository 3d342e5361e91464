"""How it runs: the machines, their drivers, and the node built from them."""
