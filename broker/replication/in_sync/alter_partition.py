"""AlterPartitions: sends proposed ISRs to the controller, many in one request, one request at a time.

Rules
1. A partition has at most one proposal here: `Partition` proposes nothing more while one is in flight.
2. The partition judges the answer to its proposal (`Partition.finish_isr_change`). Here only an error of the whole
   request is handled: it is sent again after a pause.

Threads: any submits; the channel's thread handles responses; the scheduler's ends a pause.
Source: Kafka's AlterPartitionManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.replication.role import IsrOutcome, IsrProposal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k56_alter_partition as wire

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")

PAUSE_MS = 50
VERSION = 3


class _Item(NamedTuple):
    topic_id: bytes
    proposal: IsrProposal
    on_done: Callable[[IsrOutcome], None]


class AlterPartitions:
    """The only path of an ISR change to the controller (a `ProposalChannel`)."""

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
        self._unsent: dict[TopicPartition, _Item] = {}  # guarded by: _lock
        self._is_busy = False  # guarded by: _lock; a request is out, or a pause runs

    def submit(
        self, tp: TopicPartition, topic_id: bytes, proposal: IsrProposal, on_done: Callable[[IsrOutcome], None]
    ) -> None:
        """Send the proposal as soon as possible."""
        with self._lock:
            self._unsent[tp] = _Item(topic_id, proposal, on_done)
        self._maybe_send()

    def _maybe_send(self) -> None:
        with self._lock:
            if self._is_busy or not self._unsent:
                return
            self._is_busy = True
            items, self._unsent = self._unsent, {}
        self._channel.send(self._request(items), lambda response: self._on_response(items, response), version=VERSION)

    def _request(self, items: dict[TopicPartition, _Item]) -> wire.AlterPartitionRequest:
        topics: dict[bytes, list[wire.RequestPartitionData]] = {}
        for tp, item in items.items():
            proposal = item.proposal
            topics.setdefault(item.topic_id, []).append(
                wire.RequestPartitionData(
                    partition_index=tp.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        wire.BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.isr
                    ],
                    leader_recovery_state=proposal.leader_recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return wire.AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                wire.RequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _on_response(self, items: dict[TopicPartition, _Item], response: wire.AlterPartitionResponse | None) -> None:
        if response is None or response.error_code:
            reason = "no answer" if response is None else ErrorCode.of(response.error_code).name
            log.warning("changes of %d ISRs are sent again: %s", len(items), reason)
            with self._lock:
                self._unsent = {**items, **self._unsent}
            self._scheduler.schedule_once("alter-partition-retry", self._end_pause, PAUSE_MS)
            return
        outcomes = _outcomes(response)
        has_retries = False
        for tp, item in items.items():
            outcome = outcomes.get((item.topic_id, tp.partition), IsrOutcome(ErrorCode.UNKNOWN_SERVER_ERROR))
            try:
                item.on_done(outcome)
            except Exception:
                # Why: it wakes requests and coordinators. A bug there must not end the ISR changes of all partitions.
                log.exception("the outcome of an ISR change of %s could not be applied", tp)
            has_retries = has_retries or tp in self._unsent
        if has_retries:
            self._scheduler.schedule_once("alter-partition-retry", self._end_pause, PAUSE_MS)
        else:
            self._end_pause()

    def _end_pause(self) -> None:
        with self._lock:
            self._is_busy = False
        self._maybe_send()


def _outcomes(response: wire.AlterPartitionResponse) -> dict[tuple[bytes, int], IsrOutcome]:
    return {
        (topic.topic_id, p.partition_index): IsrOutcome(
            ErrorCode.of(p.error_code),
            p.leader_id,
            p.leader_epoch,
            tuple(p.isr),
            p.partition_epoch,
            p.leader_recovery_state,
        )
        for topic in response.topics
        for p in topic.partitions
    }
