"""What a check of a proof or of evidence comes to."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Whether it holds, and why, or what it does not show: one sentence each, for people."""

    holds: bool
    statements: tuple[str, ...]
