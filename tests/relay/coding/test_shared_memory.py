"""Kernels work with addresses: what they write to must stay theirs while other threads allocate."""

import os
import subprocess
import sys

import pytest

from bruit.node.relay.coding.kernels import Kernel, supported

# Three threads code while three others allocate and free. One arena for all of them makes memory
# that is let go of too early somebody else's at once; glibc then ends the process.
CROWD = """
import random, sys, threading
from bruit.node.relay.coding.code import Code
from bruit.node.relay.coding.kernels import Kernel

code = Code(32, 48, kernel=Kernel(sys.argv[1]))
block = random.Random(1).randbytes(200_000)
expected = [bytes(chunk) for chunk in code.encode(block)]
over = threading.Event()

def allocate():
    while not over.is_set():
        for size in (600, 1500, 4000, 9000, 17000, 18000, 20000):
            bytes(bytearray(b"\\xff" * size))

def work():
    for _ in range(80):
        chunks = [bytes(chunk) for chunk in code.encode(block)]
        assert chunks == expected
        assert code.decode(dict(list(enumerate(chunks))[16:])) == block
    done.append(None)

done = []
workers = [threading.Thread(target=work) for _ in range(3)]
others = [threading.Thread(target=allocate) for _ in range(3)]
for thread in workers + others:
    thread.start()
for thread in workers:
    thread.join()
over.set()
sys.exit(len(done) != 3)
"""


@pytest.mark.parametrize("kernel", [each for each in supported() if each is not Kernel.PORTABLE])
def test_coding_beside_threads_that_allocate_disturbs_nobody(kernel: Kernel) -> None:
    environment = dict(os.environ, MALLOC_ARENA_MAX="1")
    ended = subprocess.run(
        [sys.executable, "-c", CROWD, kernel.value],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
