"""What ``bruit run`` does with its node: subscribes, and logs what happens."""

import hashlib
import logging
from enum import Enum

import msgspec
import structlog
import trio

from bruit.node.config import NodeConfig
from bruit.node.gossip.actions import (
    Disconnect,
    Dropped,
    Grafted,
    PeerJoined,
    PeerLeft,
    PeerSubscribed,
    Pruned,
    Rejected,
)
from bruit.node.node import Node
from bruit.node.reports import (
    ConnectionRefused,
    DialFailed,
    Disputed,
    NodeReport,
    ReportsLost,
    ScoreCrossed,
)
from bruit.scoring.explanation import Explanation
from bruit.topics.keys import peer_id_text

INTERVAL = 10.0  # seconds between summaries; guess
MAX_RECORDS = 1000  # of a kind per interval, since peers cause them; guess
SHOWN_DIGITS = 16  # hexadecimal, of a hash

# Reports that are records of their own: level and event. Their fields are the report's.
RECORDS: dict[type[NodeReport], tuple[int, str]] = {
    PeerJoined: (logging.INFO, "peer joined"),
    PeerLeft: (logging.INFO, "peer left"),
    Disconnect: (logging.INFO, "hung up"),
    DialFailed: (logging.WARNING, "dial failed"),
    Rejected: (logging.WARNING, "rejected"),
    ConnectionRefused: (logging.DEBUG, "refused"),
    PeerSubscribed: (logging.DEBUG, "peer subscribed"),
    Grafted: (logging.DEBUG, "grafted"),
    Pruned: (logging.DEBUG, "pruned"),
}

log = structlog.get_logger()


class Tally:
    """Counts of one interval, and which events still go into the log by themselves."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._dropped: dict[str, int] = {}

    def admit(self, kind: str) -> bool:
        """Count an event of ``kind``; whether there is room for its record."""
        self._seen[kind] = self._seen.get(kind, 0) + 1
        return self._seen[kind] <= MAX_RECORDS

    def drop(self, reason: str) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def lose(self, count: int) -> None:
        """Reports that came too fast to be read."""
        self._seen["reports"] = self._seen.get("reports", MAX_RECORDS) + count

    def take(self) -> dict[str, object] | None:
        """The fields of a summary, None when nothing happened. Starts the next interval."""
        if not self._seen and not self._dropped:
            return None
        left_out = {
            kind: count - MAX_RECORDS for kind, count in self._seen.items() if count > MAX_RECORDS
        }
        fields: dict[str, object] = {
            "delivered": self._seen.get("delivered", 0),
            "rejected": self._seen.get("rejected", 0),
            "dropped": self._dropped,
            "left_out": left_out,
        }
        self._seen, self._dropped = {}, {}
        return fields


class Watch:
    """The log of one node: deliveries on its configured topics, peers, faults, summaries."""

    def __init__(self, config: NodeConfig) -> None:
        self._topics = [name for name, topic in config.topics.items() if topic.subscribe]
        consumer = "consumer" in config.relay.roles
        self._channels = list(config.relay.channels) if consumer else []
        self._min_peers = config.network.min_peers
        self._enough = True
        self._tally = Tally()

    async def work(self, node: Node) -> None:
        """Log until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._log_reports, node)
                for topic in self._topics:
                    await nursery.start(self._log_deliveries, node, topic)
                for channel in self._channels:
                    await nursery.start(self._log_blocks, node, channel)
                for address in node.addresses:
                    log.info("listening", address=address)
                log.info("ready", peer=node.peer_id_text, topics=self._topics)
                while True:
                    await trio.sleep(INTERVAL)
                    self._summarise()
                    self._count_peers(len(node.statistics().peers))
        finally:
            self._summarise()

    def _summarise(self) -> None:
        if fields := self._tally.take():
            log.info("summary", **fields)

    def _count_peers(self, peers: int) -> None:
        enough = peers >= self._min_peers
        if enough != self._enough:
            say = log.info if enough else log.warning
            say("enough peers" if enough else "few peers", peers=peers, min_peers=self._min_peers)
        self._enough = enough

    async def _log_deliveries(
        self, node: Node, topic: str, task_status: trio.TaskStatus[None]
    ) -> None:
        async with node.subscribe(topic) as subscription:
            task_status.started()
            async for message in subscription:
                if self._tally.admit("delivered"):
                    log.info(
                        "delivered",
                        topic=topic,
                        message_id=message.message_id.hex(),
                        bytes=len(message.data),
                        sha256=hashlib.sha256(message.data).hexdigest()[:SHOWN_DIGITS],
                        source=peer_id_text(message.source),
                    )

    async def _log_blocks(
        self, node: Node, channel: str, task_status: trio.TaskStatus[None]
    ) -> None:
        assert node.relay is not None  # it has a role
        async with node.relay.blocks(channel) as subscription:
            task_status.started()
            async for received in subscription:
                if self._tally.admit("block"):
                    log.info(
                        "block",
                        channel=channel,
                        message_id=received.message_id.hex(),
                        bytes=len(received.block),
                        keccak256=received.block_hash.hex()[:SHOWN_DIGITS],
                        producers=[f"0x{each.hex()}" for each in received.producers],
                        milliseconds=round(1000 * (received.received_at - received.first_chunk_at)),
                    )

    async def _log_reports(self, node: Node) -> None:
        async for report in node.reports():
            match report:
                case Dropped(reason=reason):
                    self._tally.drop(reason)
                case ReportsLost(count):
                    self._tally.lose(count)
                case ScoreCrossed():
                    self._log_crossing(report)
                case Disputed(evidence, file):
                    if self._tally.admit("disputed"):
                        log.warning(
                            "disputed",
                            kind=evidence.kind.value,
                            message_id=evidence.message_id.hex(),
                            producers=[f"0x{each.hex()}" for each in evidence.producers],
                            reason=evidence.reason,
                            file=str(file or ""),
                        )
                case _ if type(report) in RECORDS:  # a plugin's failures log themselves
                    level, event = RECORDS[type(report)]
                    if log.is_enabled_for(level) and self._tally.admit(event):
                        log.log(level, event, **_fields(report))

    def _log_crossing(self, crossing: ScoreCrossed) -> None:
        level = logging.WARNING if crossing.below else logging.INFO
        event = "score below" if crossing.below else "score recovered"
        if log.is_enabled_for(level) and self._tally.admit(event):
            log.log(
                level,
                event,
                threshold=crossing.threshold,
                peer=peer_id_text(crossing.peer),
                score=crossing.explanation.score,
                why=_why(crossing.explanation),
            )


def _why(explanation: Explanation) -> dict[str, float]:
    """What a score is the sum of, without what adds nothing."""
    return {name: part for name, part in explanation.parts().items() if part}


def _fields(report: NodeReport) -> dict[str, object]:
    return {name: _plain(name, value) for name, value in msgspec.structs.asdict(report).items()}


def _plain(name: str, value: object) -> object:
    match value:
        case bytes():
            return value.hex() if name == "message_id" else peer_id_text(value)
        case Enum():
            return value.value
        case _:
            return value
