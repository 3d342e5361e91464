"""What a simulated network did."""

import msgspec


class SimStatistics(msgspec.Struct, frozen=True):
    """What the network did since it was made."""

    now: float  # seconds
    events: int  # taken from the queue
    frames: int  # sent, whether or not they arrived
    frame_bytes: int  # in those
    lost: int  # frames that loss took
    dropped: int  # frames refused by full queues
    cancelled: int  # messages taken out of queues by CancelQueued
    undeliverable: int  # frames for peers that were not connected
    deliveries: int  # messages handed to applications
    refused_records: int  # Connect actions whose record was not the peer's
