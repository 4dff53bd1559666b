"""DirAssignments: tells the controller in which log directory each replica of this broker lies (KIP-858).

The controller must know, for of a broker with several directories it takes only the replicas on the failed one out of
their ISRs. A broker with one directory need tell nothing: its failure is the broker's.

Rules
1. What is to be told waits in `_unsent`, the newest for a partition; one request is out at a time and takes all there
   is, up to `PARTITIONS_MAX`. A request that fails is repeated after a pause.
2. A directory that failed is told all the same: the controller learns from it whom to replace.
3. After a new registration everything is told again: the controller may have lost its log, and one that was rebuilt
   (`barnabas controller recover`) does not say where replicas lie. An answer from before does not count.
4. Whoever asked to hear is told once whether the controller took it; holding no lock.

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
    from barnabas.broker.controller_channel import ControllerChannel
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
        self._told: Assignments = {}  # guarded by: _lock; what the controller has accepted
        self._waiting: dict[TopicIdPartition, tuple[bytes, OnDone]] = {}  # guarded by: _lock; who hears of which one
        self._is_busy = False  # guarded by: _lock; a request is out, or a pause runs
        self._registrations = 0  # guarded by: _lock; how often everything was to be told again

    def tell_again(self) -> None:
        """The broker has registered anew (rule 3)."""
        with self._lock:
            self._registrations += 1
            self._unsent = {**self._told, **self._unsent}
            self._told = {}
            if not self._unsent:
                return
        self._pause(0)

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, on_done: OnDone | None = None) -> None:
        """Tell, soon, that the replica lies in this directory; nothing if the controller knows.

        `on_done` hears whether the controller accepted it (at once if it knew), or False if something else is told
        before it could.
        """
        key = (topic_id, partition)
        overtaken = None
        with self._lock:
            is_known = self._told.get(key) == directory_id and key not in self._unsent
            if not is_known:
                self._unsent[key] = directory_id
                overtaken = self._waiting.pop(key, None)
                if on_done is not None:
                    self._waiting[key] = (directory_id, on_done)
        if overtaken is not None:
            overtaken[1](False)
        if not is_known:
            # Why with a pause: a push makes many logs, one after another.
            self._pause(0)
        elif on_done is not None:
            on_done(True)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The replica is gone; nobody hears of it any more."""
        with self._lock:
            key = (topic_id, partition)
            self._unsent.pop(key, None)
            self._told.pop(key, None)
            self._waiting.pop(key, None)

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

    def _take(self, batch: Assignments, response: Any, registrations: int) -> None:
        if response is None or response.error_code:
            reason = "no answer" if response is None else ErrorCode(response.error_code).name
            log.warning("the directories of %d replicas are told again: %s", len(batch), reason)
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
        """Note what the controller took; what it refused (a topic that is gone, say) is not told again."""
        taken = {
            ((topic.topic_id, partition.partition_index), directory.id): ErrorCode(partition.error_code)
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        heard: list[tuple[OnDone, bool]] = []
        with self._lock:
            if registrations != self._registrations:
                return
            for key, directory_id in batch.items():
                error = taken.get((key, directory_id), ErrorCode.UNKNOWN_SERVER_ERROR)
                if error:
                    log.warning("directory of %s refused: %s", key, error.name)
                else:
                    self._told[key] = directory_id
                if self._unsent.get(key) == directory_id:
                    del self._unsent[key]
                waiting = self._waiting.get(key)
                if waiting is not None and waiting[0] == directory_id:
                    del self._waiting[key]
                    heard.append((waiting[1], not error))
        for on_done, is_accepted in heard:
            on_done(is_accepted)
