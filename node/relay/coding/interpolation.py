"""The inner loops of `matrices.Recovery`, compiled: every new set of lost chunks needs them."""

from typing import Any

from bruit.node.relay.coding.compiled import compiled


def _log_weights(logs: Any, lost: Any, used: Any, of_lost: Any, of_used: Any) -> None:
    data = len(used)
    for i in range(len(lost)):
        total = 0
        for j in range(data):
            total += logs[lost[i] ^ used[j]] - logs[lost[i] ^ j]
        of_lost[i] = total
    for i in range(data):
        total = 0
        for j in range(data):
            total += logs[used[i] ^ j] - logs[used[i] ^ used[j]]
        of_used[i] = total


def _lagrange(
    logs: Any, powers: Any, lost: Any, used: Any, of_lost: Any, of_used: Any, rows: Any
) -> None:
    cycle = len(powers) // 2
    for i in range(len(lost)):
        for j in range(len(used)):
            rows[i, j] = powers[(of_lost[i] + of_used[j] - logs[lost[i] ^ used[j]]) % cycle]


log_weights = compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", _log_weights
)
lagrange = compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1])",
    _lagrange,
)
