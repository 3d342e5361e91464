"""Print what is published on a topic: python examples/listener.py [TOPIC]"""

import sys

import trio

from bruit import NetworkConfig, Node, NodeConfig


async def main(topic: str = "hello") -> None:
    network = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",))  # any free port
    async with Node(NodeConfig(network=network)) as node, node.subscribe(topic) as messages:
        print(node.addresses[0], flush=True)
        async for message in messages:
            print(message.data.decode(errors="replace"), flush=True)


trio.run(main, *sys.argv[1:])
