"""A persister that hands each operation to one share coordinator at once, without threads and retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateWrite


class DirectPersister:
    """Implements `Persister`; answers come while it is called, if the coordinator has them then."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Callable[[Any], object]
    ) -> None:
        self._coordinator.handle([op.Initialize(key, reply, state_epoch, start_offset)])

    def write(self, key: SharePartitionKey, write: StateWrite, reply: Callable[[Any], object]) -> None:
        self._coordinator.handle([op.Write(key, reply, write)])

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Callable[[Any], object]) -> None:
        self._coordinator.handle([op.Read(key, reply, leader_epoch)])

    def read_summary(self, key: SharePartitionKey, leader_epoch: int, reply: Callable[[Any], object]) -> None:
        self._coordinator.handle([op.ReadSummary(key, reply, leader_epoch)])

    def delete(self, key: SharePartitionKey, reply: Callable[[Any], object], is_wanted: Callable[[], bool]) -> None:
        self._coordinator.handle([op.Delete(key, reply, is_wanted)])
