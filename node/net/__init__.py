"""The driver over trio and py-libp2p: the machines on real sockets."""
