"""ReplicaFetchers: assigns each followed partition to a fetcher thread.

The thread is that of the partition's leader broker with the index (hash of the partition's name) modulo
num.replica.fetchers. A fetcher without partitions is stopped.

Threads: the handler of a push follows and forgets; metrics read.
Source: Kafka's AbstractFetcherManager, ReplicaFetcherManager (4.3).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.replication.fetching.fetcher import ReplicaFetcher
from barnabas.client.connection import NodeConnection
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.client.connection import Connect
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.metrics.meters import Meter
    from barnabas.metrics.registry import Labels
    from barnabas.metrics.table.catalogue import Metric

CLIENT_ID = "Replica"


class ReplicaFetchers:
    """All fetchers of a broker."""

    def __init__(
        self, manager: ReplicaManager, broker_epoch: Callable[[], int], connect: Connect = NodeConnection
    ) -> None:
        self._manager = manager  # fixed before start
        self._connect = connect  # fixed before start
        self._broker_epoch = broker_epoch  # fixed before start
        self._lock = threading.Lock()
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}  # guarded by: _lock; by (leader, index)
        self._addresses: dict[int, tuple[str, int]] = {}  # guarded by: _lock; from pushes
        self._register()

    def follow(self, partitions: Iterable[Partition], leaders: Mapping[int, tuple[str, int]]) -> None:
        """Fetch these from the leaders in their roles; `leaders` maps a leader's id to its host and port."""
        wanted: dict[tuple[int, int], list[Partition]] = {}
        count = self._manager.config.num_replica_fetchers
        tps = []
        for partition in partitions:
            tps.append(partition.tp)
            if partition.leader_id >= 0:
                wanted.setdefault((partition.leader_id, _index(partition.tp, count)), []).append(partition)
        with self._lock:
            self._addresses.update(leaders)
            for fetcher in self._fetchers.values():
                fetcher.remove(tps)
            for key, group in wanted.items():
                self._fetcher_locked(key).add(group)
        self._stop_idle()

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        listed = list(tps)
        if not listed:
            return
        with self._lock:
            for fetcher in self._fetchers.values():
                fetcher.remove(listed)
        self._stop_idle()

    def resize(self, count: int) -> None:
        """Use `count` fetchers for each leader (num.replica.fetchers), and assign every partition again."""
        with self._lock:
            held = [partition for fetcher in self._fetchers.values() for partition in fetcher.take_all()]
            for partition in held:
                if partition.leader_id >= 0 and not partition.is_leader:
                    index = _index(partition.tp, count)
                    self._fetcher_locked((partition.leader_id, index)).add([partition])
        self._stop_idle()

    def shutdown(self) -> None:
        """Stop all fetchers."""
        with self._lock:
            stopped, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in stopped:
            fetcher.begin_shutdown()
        for fetcher in stopped:
            fetcher.join()

    def _fetcher_locked(self, key: tuple[int, int]) -> ReplicaFetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            leader_id, index = key
            fetcher = self._fetchers[key] = ReplicaFetcher(
                leader_id, index, self._manager, partial(self._address, leader_id), self._broker_epoch, self._connect
            )
            fetcher.start()
        return fetcher

    def _address(self, leader_id: int) -> tuple[str, int] | None:
        """The broker's host and port: from the metadata cache or, before that knows it, from the push."""
        node = self._manager.metadata_cache.snapshot.node(leader_id, self._manager.config.inter_broker_listener_name)
        return self._addresses.get(leader_id) if node is None else (node.host, node.port)

    def _stop_idle(self) -> None:
        with self._lock:
            idle = {key: fetcher for key, fetcher in self._fetchers.items() if fetcher.is_idle()}
            for key in idle:
                del self._fetchers[key]
        for fetcher in idle.values():
            fetcher.begin_shutdown()

    # Metrics

    def fetchers(self) -> list[ReplicaFetcher]:
        """Every fetcher that runs now."""
        with self._lock:
            return list(self._fetchers.values())

    def _register(self) -> None:
        registry = self._manager.registry
        gauges: dict[Metric, Callable[[], float]] = {
            catalogue.FETCHER_MAX_LAG: lambda: max((f.max_lag() for f in self.fetchers()), default=0),
            catalogue.FETCHER_MIN_FETCH_RATE: self._min_fetch_rate,
            catalogue.FETCHER_FAILED_PARTITIONS_COUNT: lambda: sum(len(f.failed) for f in self.fetchers()),
            catalogue.FETCHER_DEAD_THREAD_COUNT: lambda: sum(f.is_dead() for f in self.fetchers()),
        }
        for row, read in gauges.items():
            registry.gauge(row, read, clientId=CLIENT_ID)
        registry.table((catalogue.FETCHER_LAG,), self._lags)
        registry.source(self._meters)

    def _min_fetch_rate(self) -> float:
        now_s = self._manager.registry.now_s()
        return min((f.fetches.snapshot(now_s)[1].one_minute for f in self.fetchers()), default=0.0)

    def _lags(self) -> list[tuple[Labels, tuple[int]]]:
        return [
            ((_client_id(fetcher), tp.topic, str(tp.partition)), (lag,))
            for fetcher in self.fetchers()
            for tp, lag in list(fetcher.lags.items())
        ]

    def _meters(self) -> Iterator[tuple[Metric, Labels, Meter]]:
        for fetcher in self.fetchers():
            host, port = self._address(fetcher.leader_id) or ("", 0)
            labels = (_client_id(fetcher), host, str(port))
            yield catalogue.FETCHER_REQUESTS_PER_SEC, labels, fetcher.fetches
            yield catalogue.FETCHER_BYTES_PER_SEC, labels, fetcher.bytes_in


def _client_id(fetcher: ReplicaFetcher) -> str:
    """The name that Kafka's metrics give to the fetcher."""
    return f"ReplicaFetcherThread-{fetcher.index}-{fetcher.leader_id}"


def _index(tp: TopicPartition, count: int) -> int:
    """The index of the leader's fetcher that copies the partition."""
    return zlib.crc32(str(tp).encode()) % count
