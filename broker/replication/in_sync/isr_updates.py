"""IsrUpdates: follower fetches and the ISR timer propose changes of ISRs; the controller's answers are applied.

`Partition` decides what to propose and what an answer means. This class carries both ways, counts, and wakes the
requests that wait for a high watermark.

Threads: handlers (follower fetches), the scheduler's (`maybe_shrink`), the AlterPartition channel's (answers).
Source: Kafka's Partition.submitAlterPartition, ReplicaManager.maybeShrinkIsr (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.role import IsrOutcome, IsrProposal
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.replication")


class ProposalChannel(Protocol):
    """Takes proposed ISRs to the controller (`alter_partition.py`)."""

    def submit(
        self, tp: TopicPartition, topic_id: bytes, proposal: IsrProposal, on_done: Callable[[IsrOutcome], None]
    ) -> None:
        """Send the proposal; `on_done` is called once, on another thread, holding no lock."""


class IsrUpdates:
    """The ISR changes of every partition of a broker."""

    def __init__(self, registry: Registry, complete_delayed: Callable[[TopicPartition], None]) -> None:
        self.channel: ProposalChannel | None = None  # fixed before start; None only where no other broker replicates
        self._complete_delayed = complete_delayed  # fixed before start
        self._shrinks = registry.meter(catalogue.ISR_SHRINKS_PER_SEC)
        self._expands = registry.meter(catalogue.ISR_EXPANDS_PER_SEC)
        self._failures = registry.meter(catalogue.FAILED_ISR_UPDATES_PER_SEC)

    def note_fetch(
        self,
        partition: Partition,
        follower_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int,
    ) -> bool:
        """Note a follower's fetch at `now_ms` (monotonic) and propose a larger ISR if it may join.

        Returns whether a watermark moved.
        """
        moved, proposal = partition.update_follower(
            follower_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        if proposal is not None:
            self._submit(partition, proposal)
        return moved

    def maybe_shrink(self, partitions: Iterable[Partition], note_fetches: Callable[[TopicPartition], None]) -> None:
        """Propose a smaller ISR for each of these partitions whose followers lag.

        `note_fetches` tells a partition of the fetches that it was not told of (`idle_partitions.py`, rule 4). Why only
        those that lagged before: an append after it makes a follower lag of which nothing was told.
        """
        for partition in partitions:
            suspects = partition.lagging()
            if not suspects:
                continue
            note_fetches(partition.tp)
            proposal = partition.maybe_shrink_isr(suspects)
            if proposal is not None:
                log.info("shrinking ISR of %s to %s", partition.tp, [broker for broker, _ in proposal.isr])
                self._submit(partition, proposal)

    def _submit(self, partition: Partition, proposal: IsrProposal) -> None:
        assert self.channel is not None, "a partition with followers has a channel to the controller"
        on_done = partial(self._on_outcome, partition, proposal)
        self.channel.submit(partition.tp, partition.topic_id, proposal, on_done)

    def _on_outcome(self, partition: Partition, proposal: IsrProposal, outcome: IsrOutcome) -> None:
        moved, again = partition.finish_isr_change(proposal, outcome)
        if outcome.error != ErrorCode.NONE:
            self._failures.mark()
            log.info("ISR change of %s refused: %s", partition.tp, outcome.error.name)
        else:
            (self._expands if proposal.is_expansion else self._shrinks).mark()
        if again is not None:
            self._submit(partition, again)
        if moved:
            self._complete_delayed(partition.tp)
