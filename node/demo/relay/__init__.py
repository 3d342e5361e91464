"""The demonstration of the relay: a block through clusters of real nodes, some of which cheat."""
