"""Which events came in which states: methods of state machines note (state, event) before they run.

A machine is a class of the code under test, with a function that names its state. `MACHINES` lists them.

Threads: the one thread of the simulation.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

Cell = tuple[str, str, str]  # machine, state, event


class Machine(NamedTuple):
    """A state machine: where its events arrive, and what they find."""

    name: str
    module: str
    owner: str  # a class of the module
    states: tuple[str, ...]
    events: tuple[str, ...]  # methods; or, with `event_of`, what that returns
    state_of: Callable[[Any], str]
    method: str = ""  # the only one that takes events
    event_of: Callable[[Any], str] | None = None

    def cells(self) -> list[Cell]:
        """All that could be."""
        return [(self.name, state, event) for state in self.states for event in self.events]


def _role(partition: Any) -> str:
    role = partition.role
    if role.is_leader:
        return "leads, ISR whole" if len(role.isr) == len(role.replicas) else "leads, ISR not whole"
    return "follows" if role.leader_id >= 0 else "no leader"


def _value(found: Any) -> str:
    return str(found.state.value)


GROUP_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

MACHINES: Final = (
    Machine(
        "partition", "barnabas.broker.replication.partition", "Partition",
        ("leads, ISR whole", "leads, ISR not whole", "follows", "no leader"),
        (
            "append_as_leader", "has_reached", "delete_records_on_leader", "update_follower", "maybe_shrink_isr",
            "finish_isr_change", "make_leader", "make_follower", "resign", "replace_log", "append_as_follower",
            "update_follower_watermarks", "truncate_to", "truncate_fully_and_start_at",
        ),
        _role,
    ),
    Machine(
        "transaction", "barnabas.broker.coordinators.transactions.transaction", "Transaction",
        ("EMPTY", "ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT", "COMPLETE_COMMIT", "COMPLETE_ABORT"),
        (
            "init_producer_id", "add_partitions", "verify", "end", "fence", "finish", "expire", "marked", "complete",
            "give_up",
        ),
        lambda transaction: transaction.data.state.name,
    ),
    Machine(
        "consumer group", "barnabas.broker.coordinators.consumer.group", "ConsumerGroup",
        ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
        (
            "GroupEpoch", "MemberMetadata", "CurrentAssignment", "TargetEpoch", "TargetAssignment", "RegexTopics",
            "PartitionMetadata",
        ),
        _value, "replay", lambda record: type(record).__name__,
    ),
    Machine(
        "classic group", "barnabas.broker.coordinators.classic.group", "Group",
        GROUP_STATES,
        ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
        _value, "move_to", lambda state: str(state.value),
    ),
    Machine(
        "purgatory", "barnabas.broker.purgatory", "DelayedOperation",
        ("DelayedProduce", "DelayedFetch", "DelayedDeleteRecords", "Deferred"),
        ("safe_try_complete", "force_complete", "run", "cancel"),
        lambda operation: type(operation).__name__,
    ),
)  # fmt: skip


class Cells:
    """Notes the cells that were reached."""

    def __init__(self) -> None:
        self.reached: set[Cell] = set()

    def watch(self, machines: tuple[Machine, ...] = MACHINES) -> None:
        """Let the methods of machines note what they are called with. Compiled classes cannot be changed like this."""
        for machine in machines:
            owner = getattr(importlib.import_module(machine.module), machine.owner)
            for event in (machine.method,) if machine.event_of is not None else machine.events:
                setattr(owner, event, self._noting(machine, event, getattr(owner, event)))

    def _noting(self, machine: Machine, event: str, method: Callable[..., Any]) -> Callable[..., Any]:
        reached = self.reached

        @functools.wraps(method)
        def noting(self: Any, *arguments: Any, **named: Any) -> Any:
            name = event if machine.event_of is None else machine.event_of(arguments[0])
            reached.add((machine.name, machine.state_of(self), name))
            return method(self, *arguments, **named)

        return noting
