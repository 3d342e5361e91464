"""Publish standard input: echo hi | python examples/publisher.py ADDRESS [TOPIC]"""

import sys

import trio

from bruit import NetworkConfig, Node, NodeConfig


async def main(address: str, topic: str = "hello") -> None:
    network = NetworkConfig(listen=(), peers=(address,))
    async with Node(NodeConfig(network=network)) as node:
        await node.wait_for_peers(topic)
        outcome = await node.publish(topic, sys.stdin.buffer.read())
        print("sent to", len(outcome.peers), "peers", outcome.problem)


trio.run(main, *sys.argv[1:])
