"""What a broker remembers beside the batches of its logs, which must agree with them.

1. A producer's last batch is below the end of the log. What was truncated is remembered by nobody.
2. A producer's last batch that one replica remembers, and all have replicated, every replica remembers, or a later one.
   A leader without it would take a repetition for a new batch.
3. A log remembers where some of its last batches are. Each is there.
4. While a broker serves, no file says that it has stopped in order.

Rules 1 to 3 hold between two changes, and a look may come amid one. So what is wrong must be so in two looks in a row.
Rule 2 is for topics from which nothing is removed.

Threads: the driver's task. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from barnabas.broker.storage.directories.names import CLEAN_SHUTDOWN_FILE, LOG_SUFFIX, segment_file
from tests.simulation.cluster.serving import serving

if TYPE_CHECKING:
    from barnabas.broker.storage.producers.producer_entry import ProducerEntry


class Remembered:
    """The looks at all brokers."""

    def __init__(self, nodes: Any, not_whole: Collection[str]) -> None:
        self._nodes = nodes
        self._not_whole = frozenset(not_whole)  # topics whose records are removed
        self._before: set[str] = set()

    def check(self) -> list[str]:
        """Return what was wrong at the last look, and is now, one line each."""
        found = list(self._look())
        wrong = [line for line in found if line in self._before]
        self._before = set(found)
        return wrong

    def _look(self) -> Iterator[str]:
        logs: dict[Any, dict[str, Any]] = {}
        for broker, services in serving(self._nodes):
            if not broker.is_stopping and any(path.endswith(CLEAN_SHUTDOWN_FILE) for path in broker.disk.files()):
                yield f"{broker.name} serves with a {CLEAN_SHUTDOWN_FILE}"
            for partition in services.replica_manager.partitions():
                log = partition.log
                if log is not None and log._state.is_usable:
                    logs.setdefault((partition.topic_id, partition.tp), {})[broker.name] = log
                    yield from self._positions(broker, partition.tp, log)
        for (_, tp), replicas in logs.items():
            yield from _producers_above(tp, replicas)
            if tp.topic not in self._not_whole:
                yield from _producers_forgotten(tp, replicas)

    @staticmethod
    def _positions(broker: Any, tp: Any, log: Any) -> Iterator[str]:
        names = set(broker.disk.files())
        contents: dict[str, bytes] = {}
        for offset, (segment_base, position) in log._state.recent.items():
            path = segment_file(log.directory, segment_base, LOG_SUFFIX)
            if path not in names:
                continue  # its segment was removed
            if path not in contents:
                contents[path] = broker.disk.written(path)
            if contents[path][position : position + 8] != offset.to_bytes(8, "big"):
                yield f"{tp}: {broker.name} remembers offset {offset} at {position}, where it is not"


def _entries(log: Any) -> dict[int, ProducerEntry]:
    found: dict[int, ProducerEntry] = log.producer_state._producers
    return found


def _producers_above(tp: Any, replicas: dict[str, Any]) -> Iterator[str]:
    for name, log in replicas.items():
        for producer_id, entry in _entries(log).items():
            if entry.last_offset >= log.log_end_offset:
                yield (
                    f"{tp}: {name} remembers offset {entry.last_offset} of producer {producer_id}, "
                    f"and ends at {log.log_end_offset}"
                )


def _producers_forgotten(tp: Any, replicas: dict[str, Any]) -> Iterator[str]:
    high_watermark = min(log.high_watermark for log in replicas.values())
    for name, log in replicas.items():
        for producer_id, entry in _entries(log).items():
            if not 0 <= entry.last_offset < high_watermark:
                continue
            for other, held in replicas.items():
                its = _entries(held).get(producer_id)
                if its is None or (its.epoch, its.last_offset) < (entry.epoch, entry.last_offset):
                    known = None if its is None else its.last_offset
                    yield (
                        f"{tp}: {name} remembers offset {entry.last_offset} of producer {producer_id} in epoch "
                        f"{entry.epoch}, {other} remembers {known}"
                    )
