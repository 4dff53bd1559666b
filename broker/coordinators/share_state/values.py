"""Values of share state, and the interface through which a broker's other parts keep it: `Persister`.

A share partition is a topic partition as one share group consumes it. The share coordinator keeps its state: the start
offset (SPSO), and batches of offsets from there on that were delivered, with their delivery state and count. All
offsets are inclusive.

Source: Kafka's SharePartitionKey, PersisterStateBatch, Persister, DefaultStatePersister (4.3), KIP-932.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.common.ids import uuid_from_string, uuid_to_string
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.coordinators.runtime.completion import Completion

# Delivery states in records and requests; ACQUIRED (1) is never kept.
AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4

INT32_LIMIT: Final = 1 << 31

_INT32: Final = re.compile("[+-]?[0-9]{1,10}")

NO_START_OFFSET: Final = -1  # a share partition that has no start yet, or a write that leaves it
NO_STATE_EPOCH: Final = 0  # of a share partition without state
ANY_EPOCH: Final = -1  # of a request that fences nobody and is not fenced
NO_LEADER_EPOCH: Final = 0  # of a share partition that no leader has read yet
NO_DELIVERY_COMPLETE_COUNT: Final = -1


class SharePartitionKey(NamedTuple):
    """A share partition: a topic partition as one share group consumes it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator (type 2), whose hash chooses the partition of __share_group_state."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"


def is_coordinator_key(text: str) -> bool:
    """Return whether a text is `group:topic id:partition`; the group id may contain colons."""
    rest, _, partition = text.rpartition(":")
    group_id, _, topic_id = rest.rpartition(":")
    try:
        uuid_from_string(topic_id)
    except ValueError:
        return False
    return bool(group_id.strip() and _INT32.fullmatch(partition)) and -INT32_LIMIT <= int(partition) < INT32_LIMIT


class StateBatch(NamedTuple):
    """Offsets with the same delivery state and count; both ends are inclusive."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class StateWrite(NamedTuple):
    """A change of a share partition's state: batches of offsets, and the start offset, which never moves back.

    `delivery_complete_count` is the number of records from the start offset on that are acknowledged or archived.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int  # NO_START_OFFSET: unchanged
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT


class StateRead(NamedTuple):
    """The state of a share partition, as its leader reads it; only `error` counts with an error."""

    error: ErrorCode
    state_epoch: int = NO_STATE_EPOCH
    start_offset: int = NO_START_OFFSET
    batches: tuple[StateBatch, ...] = ()


class StateSummary(NamedTuple):
    """The state of a share partition without its batches; only `error` counts with an error."""

    error: ErrorCode
    state_epoch: int = NO_STATE_EPOCH
    leader_epoch: int = NO_LEADER_EPOCH
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT


class Persister(Protocol):
    """Keeps the state of share partitions, at the share coordinator of each.

    Every method returns at once and calls its `reply` once: on another thread, while no lock of the persister or of a
    coordinator is held, possibly before the method returns. The caller may hold locks if `reply` does not want them at
    once (it may post an event, say). Operations of one share partition take effect in the order of the calls. Errors
    that are normal while coordinators move are retried, for some seconds. After an error a write may have taken effect
    or not.

    Errors of every method: COORDINATOR_NOT_AVAILABLE (no coordinator answered in time), UNKNOWN_TOPIC_OR_PARTITION (the
    topic was deleted), INVALID_REQUEST (a write or read of state that was never initialized), UNKNOWN_SERVER_ERROR.
    """

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Completion[ErrorCode]
    ) -> None:
        """Replace the state by an empty one of this epoch; also FENCED_STATE_EPOCH (a newer epoch is known).

        State that has this epoch already stays as it is, unless the start offset is a later one.
        """

    def write(self, key: SharePartitionKey, write: StateWrite, reply: Completion[ErrorCode]) -> None:
        """Change the state; also FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH (newer ones are known).

        Of two batches that cover an offset the one with the higher delivery count wins, then the one with the higher
        state.
        """

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Completion[StateRead]) -> None:
        """Read the state and fence leaders of older epochs; also FENCED_LEADER_EPOCH."""

    def read_summary(self, key: SharePartitionKey, leader_epoch: int, reply: Completion[StateSummary]) -> None:
        """Read the summary, which fences nobody; `leader_epoch` may be ANY_EPOCH."""

    def delete(self, key: SharePartitionKey, reply: Completion[ErrorCode], is_wanted: Callable[[], bool]) -> None:
        """Delete the state; NONE also if there is none.

        `is_wanted()` is asked before each attempt, on any thread; once it is false, the error is NOT_COORDINATOR. Why:
        nothing fences a deletion. A late one of a former group coordinator would remove what the next one initialised.
        """


def batches_of(wire: Sequence[object]) -> tuple[StateBatch, ...]:
    """Return the batches of a message or record."""
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)  # type: ignore[attr-defined]
        for batch in wire
    )
