"""What the emulation delivers when it is asked for a delay, a rate and loss.

    python -m bench.emulation.probe [--delay-ms 25] [--mbit 50] [--loss 0] [--seconds 5]

Two nodes: the time a TCP connection takes to be made (a round trip), echoes of small UDP
packets one at a time, UDP packets that arrive, and TCP in one direction. The last line is
one JSON object; ``packets_per_cpu_s`` is what the wire carried for each second of CPU time
that it took, the kernel's work in its reads and writes included.
"""

import argparse
import json
import socket
import threading
import time
from contextlib import closing
from statistics import median

from bench.emulation.network import Network, open_network
from bench.emulation.regions import Layout

PORT = 4000  # in a namespace of its own: any
ECHOES = 50
PACKETS = 5000  # UDP, for the share that is lost
SIZE = 100  # bytes of one of those
PACE = 0.8  # of the link's rate that they are sent at, so that no queue overflows
SILENCE = 1.0  # seconds without a packet after which the others are lost
CHUNK = 1 << 18  # bytes for each call of send


def open_socket(network: Network, node: int, kind: socket.SocketKind) -> socket.socket:
    with network.inside(node):
        return socket.socket(socket.AF_INET, kind)


def connect_ms(network: Network) -> float:
    """Median of ten connections, from 0 to 1."""
    took = []
    with closing(open_socket(network, 1, socket.SOCK_STREAM)) as server:
        server.bind((network.addresses[1], PORT))
        server.listen()
        for _ in range(10):
            with closing(open_socket(network, 0, socket.SOCK_STREAM)) as client:
                began = time.perf_counter()
                client.connect((network.addresses[1], PORT))
                took.append(1e3 * (time.perf_counter() - began))
    return median(took)


def echo_ms(network: Network) -> list[float]:
    """Round trips of UDP packets, one after the other."""
    took = []
    with (
        closing(open_socket(network, 1, socket.SOCK_DGRAM)) as server,
        closing(open_socket(network, 0, socket.SOCK_DGRAM)) as client,
    ):
        server.bind((network.addresses[1], PORT))
        for each in (server, client):
            each.settimeout(SILENCE)
        for _ in range(ECHOES):
            began = time.perf_counter()
            try:
                client.sendto(bytes(SIZE), (network.addresses[1], PORT))
                data, sender = server.recvfrom(SIZE)
                server.sendto(data, sender)
                client.recv(SIZE)
            except TimeoutError:  # lost
                continue
            took.append(1e3 * (time.perf_counter() - began))
    return took


def lost_share(network: Network, rate: float) -> float:
    """The share of UDP packets that do not arrive, sent somewhat below ``rate`` bits/s."""
    arrived = 0
    pause = (SIZE + 28) * 8 / (PACE * rate)  # 28 bytes: IP and UDP headers
    with (
        closing(open_socket(network, 1, socket.SOCK_DGRAM)) as server,
        closing(open_socket(network, 0, socket.SOCK_DGRAM)) as client,
    ):
        server.bind((network.addresses[1], PORT))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        server.settimeout(SILENCE)
        client.connect((network.addresses[1], PORT))

        def send() -> None:
            began = time.perf_counter()
            for index in range(PACKETS):
                client.send(bytes(SIZE))
                time.sleep(max(0.0, began + index * pause - time.perf_counter()))

        sender = threading.Thread(target=send)
        sender.start()
        try:
            while arrived < PACKETS:
                server.recv(SIZE)
                arrived += 1
        except TimeoutError:
            pass
        sender.join()
    return 1 - arrived / PACKETS


def tcp_mbit(network: Network, seconds: float) -> float:
    """What one connection from 0 to 1 brings in the last half of the time."""
    with (
        closing(open_socket(network, 1, socket.SOCK_STREAM)) as server,
        closing(open_socket(network, 0, socket.SOCK_STREAM)) as client,
    ):
        server.bind((network.addresses[1], PORT))
        server.listen()
        client.connect((network.addresses[1], PORT))
        client.settimeout(SILENCE * 10)
        receiving, _ = server.accept()
        began = time.perf_counter()

        def send() -> None:
            while time.perf_counter() - began < seconds:
                client.send(bytes(CHUNK))
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        counted = 0
        with closing(receiving):
            while data := receiving.recv(CHUNK):
                if seconds / 2 <= time.perf_counter() - began < seconds:
                    counted += len(data)
        sender.join()
    return 8 * counted / (seconds / 2) / 1e6


def measure(delay: float, rate: float, loss: float, seconds: float) -> dict[str, object]:
    """``delay`` in seconds one way, ``rate`` in bits/s."""
    pair = Layout((rate, rate), (rate, rate), ((0.0, delay), (delay, 0.0)))
    with open_network(pair, loss) as network:
        echoes = sorted(echo_ms(network))
        figures: dict[str, object] = {
            "backend": network.backend,
            "connect_ms": round(connect_ms(network), 2),
            "echo_ms": {
                "median": round(median(echoes), 2),
                "most": round(echoes[-1], 2),
            },
            "lost": round(lost_share(network, rate), 5),
        }
        before, cpu = network.counts(), network.cpu()
        figures["tcp_mbit"] = round(tcp_mbit(network, seconds), 1)
        after, took = network.counts(), network.cpu() - cpu
        if after and took:
            carried = after["delivered"] - before["delivered"]
            figures["packets_per_s"] = round(carried / seconds)
            figures["packets_per_cpu_s"] = round(carried / took)
            figures["wire_cpu_share"] = round(took / seconds, 3)
        figures["counts"] = after
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.emulation.probe", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--delay-ms", type=float, default=25.0, help="one way (25)")
    parser.add_argument("--mbit", type=float, default=50.0, help="of every link (50)")
    parser.add_argument("--loss", type=float, default=0.0, help="per cent of packets (0)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of TCP (5)")
    asked = parser.parse_args()
    figures = measure(asked.delay_ms / 1e3, asked.mbit * 1e6, asked.loss / 100, asked.seconds)
    print(json.dumps({"asked": vars(asked)} | figures))


if __name__ == "__main__":
    main()
