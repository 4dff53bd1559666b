"""The life of a shard: loading, active, then closed or failed. Shards of groups and of transactions share it.

States
    LOADING ---> ACTIVE ---> CLOSED   the leader moved, or the broker stops
       |            |
       +------------+------> FAILED   the load failed, or an event could not be handled

A failed shard stays offline until its partition has a new leader, or its leader a new epoch. Either loads it again.
Its clients look up their coordinator meanwhile, as with Apache Kafka. Other shards continue to serve.

Threads: any.
Source: Kafka's CoordinatorRuntime.CoordinatorState (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.runtime.log_replay import describe
from barnabas.broker.coordinators.runtime.shard_lock import ShardLock
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.common.topic_partition import TopicPartition


class ShardState(Enum):
    """Whether the shard serves requests."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"  # offline until the next leader, or leader epoch, loads it


class ShardLife:
    """The state of a shard and the lock that guards it."""

    __slots__ = ("_contents", "_log", "_release_locked", "lock", "state", "tp")

    def __init__(
        self, tp: TopicPartition, contents: str, log: logging.Logger, release_locked: Callable[[], None]
    ) -> None:
        """`contents` names what the shard holds, for the log; `release_locked` drops it when an active shard ends."""
        self.tp = tp  # fixed before start
        self.state = ShardState.LOADING  # guarded by: lock
        self.lock = ShardLock(self._on_failure_locked)
        self._contents = contents  # fixed before start
        self._log = log  # fixed before start
        self._release_locked = release_locked  # fixed before start

    @property
    def is_active(self) -> bool:
        """Whether the shard serves requests."""
        return self.state is ShardState.ACTIVE

    def activate_locked(self) -> bool:
        """Go from LOADING to ACTIVE; False if the shard ended while it was loading."""
        if self.state is not ShardState.LOADING:
            return False
        self.state = ShardState.ACTIVE
        return True

    def gate_locked(self) -> ErrorCode:
        """Return the error for requests that need an active shard, or NONE."""
        if self.state is ShardState.ACTIVE:
            return ErrorCode.NONE
        is_loading = self.state is ShardState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    def close(self) -> None:
        """Stop serving; waiting clients are sent to the new coordinator."""
        with self.lock:
            self._end_locked(ShardState.CLOSED)

    @contextmanager
    def isolate_failures(self) -> Iterator[None]:
        """Take the shard offline if the block raises; the caller goes on. The caller does not hold the lock.

        Why every kind of error: nothing in a log may end the process, or block other shards.
        """
        try:
            yield
        except Exception as error:
            with self.lock:
                self._fail_locked(describe(error), None)

    def _on_failure_locked(self, error: Exception) -> None:
        """Take the shard offline: an event failed half way, so its state can no longer be trusted."""
        self._fail_locked(f"{self.tp}: {describe(error)}", error)

    def _fail_locked(self, reason: str, error: Exception | None) -> None:
        if self.state not in (ShardState.LOADING, ShardState.ACTIVE):
            return
        self._log.error(
            "The %s of %s are offline until it has a new leader: %s", self._contents, self.tp, reason, exc_info=error
        )
        try:
            self._end_locked(ShardState.FAILED)
        except Exception:
            self._log.exception("%s did not close cleanly", self.tp)

    def _end_locked(self, state: ShardState) -> None:
        before, self.state = self.state, state
        if before is ShardState.ACTIVE:  # the contents of a loading shard belong to the loader
            self._release_locked()
