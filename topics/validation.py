"""What a validator says of a message (gossipsub v1.1, "Extended Validators")."""

from enum import Enum

import msgspec

Fact = str | int | float | bool


class Verdict(Enum):
    ACCEPT = "accept"  # deliver and forward
    REJECT = "reject"  # drop, and hold it against whoever sent it
    IGNORE = "ignore"  # drop, blame nobody


class Validation(msgspec.Struct, frozen=True):
    """A verdict, why, and what was learnt on the way.

    ``reason`` is one clause for people, empty on ACCEPT. ``facts`` are small
    named values (block hash, transaction count) handed to subscribers.
    """

    verdict: Verdict
    reason: str = ""
    facts: dict[str, Fact] = {}


ACCEPTED = Validation(Verdict.ACCEPT)


def reject(reason: str) -> Validation:
    return Validation(Verdict.REJECT, reason)


def ignore(reason: str) -> Validation:
    return Validation(Verdict.IGNORE, reason)
