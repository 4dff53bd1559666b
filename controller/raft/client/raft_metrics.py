"""Shows a replica under Kafka's names: `kafka.server:type=raft-metrics`.

A single controller shows the same rows: it is a quorum of one.

Threads: the scraper's; one status is taken for each scrape.

Source: KafkaRaftMetrics (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.clock import NS_PER_S
from barnabas.common.ids import ZERO_UUID, uuid_to_string
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.client.status import RaftStatus
from barnabas.metrics.meters import Window
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as rows
from barnabas.metrics.table.row import Metric

#: Kafka's words for roles that have voted.
VOTED: Final = {"unattached": "unattached-voted", "prospective": "prospective-voted"}
NOBODY: Final = -1


def show_quorum(registry: Registry, status: Callable[[], RaftStatus], broker_count: Callable[[], int]) -> None:
    """Show the state of a replica. Brokers count as observers, which they are in Kafka."""
    seen = [status()]  # owner: scraper

    def look() -> None:
        seen[0] = status()

    def gauge(row: Metric, read: Callable[[RaftStatus], int]) -> None:
        registry.gauge(row, lambda: read(seen[0]))

    registry.before_scrape(look)
    registry.text(rows.RAFT_CURRENT_STATE, lambda: (state_of(seen[0]),))
    registry.text(rows.RAFT_CURRENT_VOTE_DIRECTORY, lambda: (_directory(seen[0]),))
    gauge(rows.RAFT_CURRENT_LEADER, lambda s: NOBODY if s.leader_id is None else s.leader_id)
    gauge(rows.RAFT_CURRENT_VOTE, lambda s: NOBODY if s.voted is None else s.voted.id)
    gauge(rows.RAFT_CURRENT_EPOCH, lambda s: s.epoch)
    gauge(rows.RAFT_HIGH_WATERMARK, lambda s: s.high_watermark)
    gauge(rows.RAFT_LOG_END_OFFSET, lambda s: s.end_offset)
    gauge(rows.RAFT_LOG_END_EPOCH, lambda s: s.end_epoch)
    gauge(rows.RAFT_NUMBER_OF_VOTERS, lambda s: len(s.voters))
    gauge(rows.RAFT_NUMBER_OF_OBSERVERS, lambda s: len(s.observers) + broker_count())
    gauge(rows.RAFT_UNKNOWN_VOTERS, lambda s: s.unreachable_voters)
    gauge(rows.RAFT_UNCOMMITTED_VOTER_CHANGE, lambda s: int(s.is_changing))


def show_thread(registry: Registry, driver: RaftDriver) -> None:
    """Show the work of the raft thread, before it starts: elections, fetches, and its idle share (as AvgIdleRatio)."""
    busy, started_s = Window(registry.now_s()), registry.now_s()

    def idle_ratio() -> float:
        now_s = registry.now_s()
        return min(1.0, max(0.0, 1 - busy.rate(now_s - started_s - driver.idle_ns / NS_PER_S, now_s)))

    driver.history.on_elected = registry.avg_max(rows.RAFT_ELECTION_LATENCY).record
    registry.sensor_of(rows.RAFT_FETCH_RECORDS, lambda: driver.fetched_records)
    registry.gauge(rows.RAFT_POLL_IDLE_RATIO, idle_ratio)


def show_without_thread(registry: Registry, idle_ratio: Callable[[], float]) -> None:
    """Show the same rows for a single controller: it elects and fetches nothing, and its event thread commits."""
    registry.avg_max(rows.RAFT_ELECTION_LATENCY)
    registry.sensor(rows.RAFT_FETCH_RECORDS)
    registry.gauge(rows.RAFT_POLL_IDLE_RATIO, idle_ratio)


def state_of(status: RaftStatus) -> str:
    """Return Kafka's word for the role: a voter, or else an observer, that follows."""
    if status.role == "follower":
        return "follower" if status.is_voter else "observer"
    if status.role == "resigned":
        return "unattached"
    return status.role if status.voted is None else VOTED.get(status.role, status.role)


def _directory(status: RaftStatus) -> str:
    return uuid_to_string(ZERO_UUID if status.voted is None else status.voted.directory_id)
