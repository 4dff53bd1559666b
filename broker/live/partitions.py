"""Partitions, with the knowledge of their leader or follower, and the fetcher threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.in_sync.isr import UNKNOWN_OFFSET, ReplicaState
from barnabas.common.ids import uuid_to_string

if TYPE_CHECKING:
    from barnabas.broker.live.look import Look
    from barnabas.broker.replication.fetching.fetchers import ReplicaFetchers
    from barnabas.broker.replication.partition import Partition as Held
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.common.pages.live_shape import Fetcher, Listed, Partition, Replica
    from barnabas.metrics.registry import Registry


def partitions(manager: ReplicaManager, fetchers: ReplicaFetchers, look: Look) -> Listed:
    """Return the partitions: under-replicated ones first, then by name, internal topics last."""
    held = [
        p for p in manager.partitions() if look.topic in (None, p.tp.topic) and look.partition in (None, p.tp.partition)
    ]
    held.sort(key=lambda p: (not p.role.is_under_replicated, p.tp.topic in INTERNAL_TOPICS, p.tp))
    lags = {tp: lag for fetcher in fetchers.fetchers() for tp, lag in list(fetcher.lags.items())}
    shown = [
        partition(manager, p, log, lags.get(p.tp), look)
        for p in held[: look.limit]
        if (log := p.log) is not None  # Why: a new partition has no log for a moment
    ]
    return look.some(shown, len(held))


def partition(manager: ReplicaManager, held: Held, log: Log, lag: int | None, look: Look) -> Partition:
    """Return one partition. `lag` is that of its fetcher, None on a leader."""
    role = held.role
    info = manager.metadata_cache.snapshot.partition(held.tp)
    isr = role.isr if role.is_leader else frozenset(info.isr if info is not None else ())
    end = log.log_end_offset
    return {
        "topic": held.tp.topic,
        "partition": held.tp.partition,
        "topic_id": uuid_to_string(held.topic_id),
        "role": "leader" if role.is_leader else "follower",
        "leader": role.leader_id,
        "leader_epoch": role.leader_epoch,
        "partition_epoch": role.partition_epoch,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": end,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "size_bytes": log.size_in_bytes,
        "segments": log.num_segments,
        "isr": sorted(isr),
        "joining": sorted(role.maximal_isr - role.isr),
        "min_isr": held.effective_min_isr(),
        "lag_max_ms": manager.config.replica_lag_time_max_ms,
        "is_isr_change_in_flight": role.is_isr_change_in_flight,
        "replica_ids": list(role.replicas),
        "replicas": _replicas(manager, held, log, end, look) if role.is_leader else [],
        "fetch_lag": None if role.is_leader else lag,
    }


def _replicas(manager: ReplicaManager, held: Held, log: Log, end: int, look: Look) -> list[Replica]:
    isr, alive = held.role.isr, manager.metadata_cache.snapshot.brokers
    known = {follower.broker_id: follower for follower in held.followers}
    fetches = manager.idle_partitions.last_fetches(held.tp)  # of which the partition has not been told
    shown: list[Replica] = []
    for broker_id in held.role.replicas:
        is_leader = broker_id == manager.broker_id
        state = known.get(broker_id, ReplicaState(broker_id))
        reached = end if is_leader else state.log_end_offset
        is_known = not is_leader and reached != UNKNOWN_OFFSET
        fetched_ms = fetches.get(broker_id, 0)
        shown.append(
            {
                "broker": broker_id,
                "is_leader": is_leader,
                "is_in_sync": broker_id in isr,
                "is_alive": is_leader or broker_id in alive,
                "log_end_offset": reached,
                "log_start_offset": log.log_start_offset if is_leader else state.log_start_offset,
                "lag": max(0, end - reached) if reached != UNKNOWN_OFFSET else -1,
                "last_fetch_ms": max(0, look.now_ms - max(state.last_fetch_ms, fetched_ms)) if is_known else -1,
                "last_caught_up_ms": max(0, look.now_ms - max(state.last_caught_up_ms, fetched_ms)) if is_known else -1,
            }
        )
    return shown


def fetchers(all_: ReplicaFetchers, registry: Registry) -> list[Fetcher]:
    """Return every fetcher thread."""
    shown: list[Fetcher] = []
    with registry.scraping:
        now_s = registry.now_s()
        for fetcher in all_.fetchers():
            fetches, rates = fetcher.fetches.snapshot(now_s)
            shown.append(
                {
                    "name": f"ReplicaFetcherThread-{fetcher.index}-{fetcher.leader_id}",
                    "leader": fetcher.leader_id,
                    "is_alive": not fetcher.is_dead(),
                    "partitions": fetcher.partition_count(),
                    "failed": len(fetcher.failed),
                    "max_lag": fetcher.max_lag(),
                    "fetches": fetches,
                    "bytes_in": fetcher.bytes_in.count,
                    "per_second": round(rates.one_minute, 2),
                }
            )
    return shown
