"""DirAssignments: reports the log directory of each replica of this broker to the controller (KIP-858).

If one of several directories of a broker fails, the controller removes only its replicas from the ISRs. So it must know
the directory of each replica. A broker with a single directory reports nothing, since its failure ends the broker.

Rules
1. `_unsent` holds the newest unreported directory of each partition. One request is in flight at a time; it takes up to
   `PARTITIONS_MAX` of them. A request that fails is repeated after a pause.
2. A failed directory is reported too, since the controller then replaces the leaders there.
3. After a new registration everything is reported again. The controller may have lost its log, and a rebuilt one
   (`barnabas controller recover`) does not have the directories. An older response does not count.
4. A callback runs once, with the controller's decision, holding no lock.

Threads: any thread assigns; the channel's thread takes the responses; the scheduler's thread ends a pause.
Source: Kafka's AssignmentsManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel
    from barnabas.broker.storage.scheduler import TaskScheduler

log = logging.getLogger("barnabas.replication")

PARTITIONS_MAX = 2250
PAUSE_MS = 500

TopicIdPartition = tuple[bytes, int]
OnDone = Callable[[bool], object]
Assignments = dict[TopicIdPartition, bytes]  # -> directory id


class DirAssignments:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        scheduler: TaskScheduler,
    ) -> None:
        self._broker_id = broker_id  # fixed before start
        self._broker_epoch = broker_epoch  # fixed before start
        self._channel = channel  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._lock = threading.Lock()
        self._unsent: Assignments = {}  # guarded by: _lock
        self._accepted: Assignments = {}  # guarded by: _lock; what the controller has accepted
        self._callbacks: dict[TopicIdPartition, tuple[bytes, OnDone]] = {}  # guarded by: _lock; (directory, callback)
        self._is_busy = False  # guarded by: _lock; a request is in flight, or a pause runs
        self._registrations = 0  # guarded by: _lock; the number of calls of `report_again`

    def report_again(self) -> None:
        """Report everything again, after a new registration (rule 3)."""
        with self._lock:
            self._registrations += 1
            self._unsent = {**self._accepted, **self._unsent}
            self._accepted = {}
            if not self._unsent:
                return
        self._pause(0)

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, on_done: OnDone | None = None) -> None:
        """Report the directory of a replica soon, unless the controller has accepted it already.

        `on_done(is_accepted)` is called once, at once if it was accepted already. It gets False if a newer directory
        replaces this one before the response.
        """
        key = (topic_id, partition)
        replaced = None
        with self._lock:
            is_known = self._accepted.get(key) == directory_id and key not in self._unsent
            if not is_known:
                self._unsent[key] = directory_id
                replaced = self._callbacks.pop(key, None)
                if on_done is not None:
                    self._callbacks[key] = (directory_id, on_done)
        if replaced is not None:
            replaced[1](False)
        if not is_known:
            # Why through the scheduler: a push creates many logs, one after another.
            self._pause(0)
        elif on_done is not None:
            on_done(True)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """Drop a replica that is gone; its callback is never called."""
        with self._lock:
            key = (topic_id, partition)
            self._unsent.pop(key, None)
            self._accepted.pop(key, None)
            self._callbacks.pop(key, None)

    def _pause(self, delay_ms: int) -> None:
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
        self._scheduler.schedule_once("assign-replicas-to-dirs", self._send, delay_ms)

    def _send(self) -> None:
        with self._lock:
            batch = dict(list(self._unsent.items())[:PARTITIONS_MAX])
            self._is_busy = bool(batch)
            registrations = self._registrations
        if batch:
            self._channel.send(self._request(batch), lambda response: self._take(batch, response, registrations))

    def _request(self, batch: Assignments) -> wire.AssignReplicasToDirsRequest:
        by_directory: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, partition), directory_id in batch.items():
            by_directory.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
        return wire.AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                wire.RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        wire.RequestTopicData(
                            topic_id=topic_id,
                            partitions=[wire.RequestPartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )

    def _take(self, batch: Assignments, response: wire.AssignReplicasToDirsResponse | None, registrations: int) -> None:
        if response is None or response.error_code:
            reason = "no response" if response is None else ErrorCode.of(response.error_code).name
            log.warning("the directories of %d replicas will be reported again: %s", len(batch), reason)
            delay_ms = PAUSE_MS
        else:
            self._accept(batch, response, registrations)
            delay_ms = 0
        with self._lock:
            self._is_busy = False
            has_more = bool(self._unsent)
        if has_more:
            self._pause(delay_ms)

    def _accept(self, batch: Assignments, response: wire.AssignReplicasToDirsResponse, registrations: int) -> None:
        """Note what the controller accepted; a refused assignment (of a deleted topic, say) is not reported again."""
        results = {
            ((topic.topic_id, partition.partition_index), directory.id): ErrorCode.of(partition.error_code)
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        calls: list[tuple[OnDone, bool]] = []
        with self._lock:
            if registrations != self._registrations:
                return
            for key, directory_id in batch.items():
                error = results.get((key, directory_id), ErrorCode.UNKNOWN_SERVER_ERROR)
                if error:
                    log.warning("directory of %s refused: %s", key, error.name)
                else:
                    self._accepted[key] = directory_id
                if self._unsent.get(key) == directory_id:
                    del self._unsent[key]
                callback = self._callbacks.get(key)
                if callback is not None and callback[0] == directory_id:
                    del self._callbacks[key]
                    calls.append((callback[1], not error))
        for on_done, is_accepted in calls:
            try:
                on_done(is_accepted)
            except Exception:  # Why: else nothing would be reported any more
                log.exception("a callback for the directory of a replica failed")
