"""Every attack against every set of defences: the table in docs/attacks.md.

``python -m tests.attacks`` prints it, one run a cell, in some eight minutes.
"""

import math
import sys
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from tests.attacks import (
    test_censor_one,
    test_cold_boot,
    test_colocation,
    test_covert_flash,
    test_degrade,
    test_eclipse_one_node,
    test_eclipse_publishers,
)
from tests.attacks.arena import SCORES_ALONE, V1_0, V1_1, Defences, Outcome


class Attack(msgspec.Struct, frozen=True):
    name: str
    attackers: str
    deed: str
    attacked: Callable[[Defences], Outcome]


ATTACKS = (
    Attack(
        "eclipse one node",
        "400 at 60 s, all on one publisher",
        "drop everything",
        test_eclipse_one_node.attacked,
    ),
    Attack(
        "eclipse publishers",
        "400 at 60 s, on all 10 publishers",
        "drop everything",
        test_eclipse_publishers.attacked,
    ),
    Attack(
        "censor one",
        "200 at 60 s, on 50 nodes each",
        "drop what one publisher writes",
        test_censor_one.attacked,
    ),
    Attack(
        "degrade",
        "200 at 60 s, on 75 nodes each",
        "drop nine messages in ten",
        test_degrade.attacked,
    ),
    Attack(
        "cold boot",
        "400 from the start, on 25 nodes each",
        "drop everything",
        test_cold_boot.attacked,
    ),
    Attack(
        "covert flash",
        "400 from the start, on 20 nodes each",
        "behave for 120 s, then drop everything",
        test_covert_flash.attacked,
    ),
    Attack(
        "colocation",
        "160 from the start, on 50 nodes each, from 25 addresses",
        "drop everything",
        test_colocation.attacked,
    ),
)
DEFENCES = {
    "v1.1": V1_1,
    "v1.0 and scores": SCORES_ALONE,
    "v1.0": V1_0,
    "v1.1 without scores": replace(V1_1, scores=False),
}


def cell(outcome: Outcome) -> str:
    """Share delivered and p99. The share is rounded down, so that 100 % means all."""
    share = math.floor(outcome.share * 10_000) / 100
    p99 = outcome.percentile(99)
    return f"{share:g} %, {p99:.2f} s" if p99 < math.inf else f"{share:g} %, –"


def rows() -> list[str]:
    """The table in Markdown, line by line."""
    lines = [
        f"| attack | sybils | what they do | {' | '.join(DEFENCES)} |",
        f"|---|---|---|{'---|' * len(DEFENCES)}",
    ]
    for attack in ATTACKS:
        cells = [cell(attack.attacked(defences)) for defences in DEFENCES.values()]
        texts = (attack.name, attack.attackers, attack.deed, *cells)
        lines.append(f"| {' | '.join(texts)} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
