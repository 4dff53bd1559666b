"""DirAssignments: tells the controller in which log directory each replica of this broker lies (KIP-858).

The controller must know, for of a broker with several directories it takes only the replicas on the failed one out of
their ISRs. A broker with one directory need tell nothing: its failure is the broker's.

Rules
1. What is to be told waits in `_unsent`, the newest for a partition; one request is out at a time and takes all there
   is, up to `PARTITIONS_MAX`. A request that fails is repeated after a pause.
2. A directory that failed is told all the same: the controller learns from it whom to replace.

Threads: any assigns; the channel's thread takes the answers; the scheduler's ends a pause.
Source: Kafka's AssignmentsManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire

if TYPE_CHECKING:
    from broker.controller_channel import ControllerChannel
    from broker.storage.scheduler import TaskScheduler

log = logging.getLogger("barnabas.replication")

PARTITIONS_MAX = 2250
PAUSE_MS = 500

TopicIdPartition = tuple[bytes, int]
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
        self._told: Assignments = {}  # guarded by: _lock; what the controller has accepted
        self._is_busy = False  # guarded by: _lock; a request is out, or a pause runs

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """Tell, soon, that the replica lies in this directory; nothing if the controller knows."""
        key = (topic_id, partition)
        with self._lock:
            if self._told.get(key) == directory_id and key not in self._unsent:
                return
            self._unsent[key] = directory_id
        # Why with a pause: a push makes many logs, one after another.
        self._pause(0)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The replica is gone."""
        with self._lock:
            self._unsent.pop((topic_id, partition), None)
            self._told.pop((topic_id, partition), None)

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
        if batch:
            self._channel.send(self._request(batch), lambda response: self._take(batch, response))

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

    def _take(self, batch: Assignments, response: Any) -> None:
        if response is None or response.error_code:
            reason = "no answer" if response is None else ErrorCode(response.error_code).name
            log.warning("the directories of %d replicas are told again: %s", len(batch), reason)
            delay_ms = PAUSE_MS
        else:
            self._accept(batch, response)
            delay_ms = 0
        with self._lock:
            self._is_busy = False
            has_more = bool(self._unsent)
        if has_more:
            self._pause(delay_ms)

    def _accept(self, batch: Assignments, response: wire.AssignReplicasToDirsResponse) -> None:
        """Note what the controller took; what it refused (a topic that is gone, say) is not told again."""
        with self._lock:
            for directory in response.directories:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        key = (topic.topic_id, partition.partition_index)
                        if partition.error_code:
                            log.warning("directory of %s refused: %s", key, ErrorCode(partition.error_code).name)
                        else:
                            self._told[key] = directory.id
            for key, directory_id in batch.items():
                if self._unsent.get(key) == directory_id:
                    del self._unsent[key]
