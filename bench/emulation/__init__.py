"""A network of namespaces on one machine, with delays, link rates and loss between them.

- `regions`: where nodes are, how far from each other, how fast, and the bound that follows.
- `links`: the scheduling core, compiled, in virtual time: delay, rates, queues, loss.
- `wire`: the process that carries the packets of TUN devices through that core.
- `namespaces`: namespaces of the machine, made and removed.
- `network`: a network of all that, over the wire or over netem, behind one interface.
- `netem`: the commands that have the kernel do the same, where it has netem.
- `probe`: what a network delivers, measured with plain sockets.
"""
