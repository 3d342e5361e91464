"""The erasure code of the block relay: a message as n chunks, any k of which rebuild it."""
