"""The relay over py-libp2p: its streams, and the driver of its machines."""
