"""The five operations on the state of a share partition, as the persister and the APIs hand them to the coordinator.

An operation decides (`decide`, pure) which records it needs and what its answer is once they are committed. It is
answered once: by `reply` with that answer, or by `refuse` with an error.

Threads: a value; made by one thread, answered by any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.coordinators.share_state import state as share_state
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateRead, StateSummary, StateWrite
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.records import StateRecord
    from barnabas.broker.coordinators.share_state.state import ShareState, Times


class Decided(NamedTuple):
    """The records that an operation needs, and its answer once they are committed."""

    records: tuple[StateRecord, ...]
    answer: Any


@dataclass(slots=True, eq=False)
class Operation:
    """The fields of all operations. Known by identity."""

    key: SharePartitionKey
    reply: Completion[Any]

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide on the state as it is now; `is_known` says whether the partition exists. Raises ApiError."""
        raise NotImplementedError

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error."""
        self.reply(error)


@dataclass(slots=True, eq=False)
class Initialize(Operation):
    """Begins a state epoch. Answered with an ErrorCode."""

    state_epoch: int
    start_offset: int

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        record = share_state.initialize(
            state, self.state_epoch, self.start_offset, is_known=is_known, now_ms=times.now_ms
        )
        return Decided(() if record is None else (record,), ErrorCode.NONE)


@dataclass(slots=True, eq=False)
class Write(Operation):
    """Changes the state. Answered with an ErrorCode."""

    write: StateWrite

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        return Decided((share_state.write(state, self.write, is_known=is_known, times=times),), ErrorCode.NONE)


@dataclass(slots=True, eq=False)
class Read(Operation):
    """Reads the state for a leader. Answered with a StateRead."""

    leader_epoch: int

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        record = share_state.read(state, self.leader_epoch, is_known=is_known, times=times)
        assert state is not None
        return Decided(() if record is None else (record,), share_state.as_read(state))

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error."""
        self.reply(StateRead(error))


@dataclass(slots=True, eq=False)
class ReadSummary(Operation):
    """Reads the summary. Answered with a StateSummary."""

    leader_epoch: int

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        return Decided((), share_state.summary(state, is_known=is_known))

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error."""
        self.reply(StateSummary(error))


def always() -> bool:
    """Return true."""
    return True


@dataclass(slots=True, eq=False)
class Delete(Operation):
    """Removes the state. Answered with an ErrorCode.

    `is_wanted()` says whether the sender still wants it.
    """

    is_wanted: Callable[[], bool] = always

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        share_state.require_known(is_known)
        return Decided(() if state is None else (None,), ErrorCode.NONE)


@dataclass(slots=True, eq=False)
class Snapshot(Operation):
    """Writes the state once more, so that the log before it can be pruned. Answered with an ErrorCode.

    `is_due(state)` says whether it is still wanted.
    """

    is_due: Callable[[ShareState], bool]

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        if state is None or not self.is_due(state):
            return Decided((), ErrorCode.NONE)
        return Decided((share_state.snapshot(state, times.now_ms),), ErrorCode.NONE)


@dataclass(slots=True, eq=False)
class Remove(Operation):
    """Removes the state of a topic that was deleted. Answered with an ErrorCode."""

    def decide(self, state: ShareState | None, is_known: bool, times: Times) -> Decided:
        """Decide; see `Operation`."""
        return Decided((None,) if state is not None and not is_known else (), ErrorCode.NONE)
