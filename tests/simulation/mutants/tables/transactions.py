"""Mistakes in transactions: what readers see, markers, producers that are fenced, offsets of transactions."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

TRANSACTIONS: Final = {
    "open-transactions-are-read": Mutant(
        "broker.storage.log.reader",
        "if unstable is None or unstable.offset >= high_watermark.offset:",
        "if unstable is None or unstable.offset >= 0:",
        "a reader of committed records sees nothing of an open transaction",
    ),
    "aborted-transactions-are-not-indexed": Mutant(
        "broker.storage.log.appender",
        "if completed.is_aborted:",
        "if completed.is_aborted and completed.last_offset < 0:",
        "a reader of committed records gets nothing that was aborted",
    ),
    "aborted-transactions-are-not-recovered": Mutant(
        "broker.storage.log.recovery",
        "replay(state, header, batch, segment.txn_index.append)",
        "replay(state, header, batch)",
        "what was aborted stays so after a crash",
    ),
    "zombies-may-append": Mutant(
        "broker.storage.producers.producer_append",
        "if epoch > current or (epoch == current and not is_v2):",
        "if epoch >= 0 or (epoch == current and not is_v2):",
        "a producer with an older epoch is refused",
        life="producers=0,pipelining=2,transactional=0,copiers=0,seconds=40",
    ),
    "zombies-may-end": Mutant(
        "broker.coordinators.transactions.transaction",
        "if data.producer_epoch != producer.epoch:\n        raise ApiError(ErrorCode.PRODUCER_FENCED)",
        "if data.producer_epoch < producer.epoch:\n        raise ApiError(ErrorCode.PRODUCER_FENCED)",
        "the coordinator refuses a producer with an older epoch",
    ),
    "a-new-producer-keeps-the-epoch": Mutant(
        "broker.coordinators.transactions.transaction",
        "return data.producer_epoch + 1, NO_EPOCH",
        "return max(data.producer_epoch, 0), NO_EPOCH",
        "a producer that begins anew fences its predecessor",
    ),
    "ends-are-answered-early": Mutant(
        "broker.coordinators.transactions.shard",
        "self._write_locked(transaction, target, settled)\n\n    def _answer_producer_locked",
        "self._write_locked(transaction, target, lambda _error: None)\n        settled(ErrorCode.NONE)\n\n"
        "    def _answer_producer_locked",
        "a transaction is committed when the decision is, on every replica",
    ),
    "decisions-are-not-continued": Mutant(
        "broker.coordinators.transactions.shard",
        "if transaction.data.state in PREPARED:\n                    self._complete_locked(transaction)",
        "if transaction.data.state in PREPARED and not transaction.data.partitions:\n"
        "                    self._complete_locked(transaction)",
        "the next coordinator completes what the last one decided",
    ),
    "the-next-coordinator-does-not-wait": Mutant(
        "broker.coordinators.runtime.led_shards",
        "elif partition.high_watermark >= end_offset:",
        "elif partition.high_watermark >= 0:",
        "a coordinator serves when all that it read is committed",
        life="haste=1,relays=2",
    ),
    "coordinators-count-the-unreplicated": Mutant(
        "broker.replication.replica_manager",
        "if partition.has_reached(info.last_offset + 1) == (True, ErrorCode.NONE):",
        "if partition.has_reached(0) == (True, ErrorCode.NONE):",
        "a coordinator's record counts when every member of the ISR has it",
    ),
    "one-marker-is-enough": Mutant(
        "broker.coordinators.transactions.shard",
        "if not transaction.data.partitions:\n            self._write_end_locked(transaction)\n\n    def abandoned",
        "if transaction.data.partitions or partitions:\n            self._write_end_locked(transaction)\n\n"
        "    def abandoned",
        "a transaction is complete when all its partitions have the marker",
    ),
    "commits-become-aborts": Mutant(
        "broker.coordinators.transactions.shard",
        "is_commit = data.state is PREPARE_COMMIT",
        "is_commit = data.state is PREPARE_COMMIT and len(data.partitions) > 1",
        "what was committed is readable",
    ),
    "timeouts-are-inverted": Mutant(
        "broker.coordinators.transactions.transaction",
        "data.start_ms + data.timeout_ms < now_ms",
        "data.start_ms + data.timeout_ms > now_ms",
        "a transaction is aborted after its timeout, and not before",
        life="faults=0",
    ),
    "aborted-offsets-count": Mutant(
        "broker.coordinators.offsets.store",
        "if is_committed:\n                        self._put_newer(",
        "if is_committed or producer_id >= 0:\n                        self._put_newer(",
        "offsets of an aborted transaction are dropped",
    ),
    "offsets-count-before-the-commit": Mutant(
        "broker.coordinators.groups.group_offsets",
        "self.store.put_pending(producer_id, group_id, commit.topic, commit.partition, committed)",
        "self.store.put(group_id, commit.topic, commit.partition, committed)",
        "offsets count when their transaction is committed",
    ),
    "unstable-offsets-are-served": Mutant(
        "broker.coordinators.offsets.store",
        "if require_stable and self._open and self.has_pending(",
        "if require_stable and not self._open and self.has_pending(",
        "a reader of stable offsets waits for the open transaction (KIP-447)",
        life="seconds=40",
    ),
    "refused-ends-are-forgotten": Mutant(
        "broker.coordinators.transactions.shard",
        "self._unwritten_ends.add(transactional_id)",
        "assert transactional_id",
        "an end that the log refused is written again",
        "7d7b416",
        life="laggards=1,haste=1",
    ),
    "guards-are-not-renewed": Mutant(
        "broker.apis.verified",
        "held.clear()\n        held.update(drawn)\n        return is_dropped",
        "return is_dropped and not held",
        "a transaction may begin while the one before is concluded",
        "0cf47f9",
        life="faults=0,seconds=15,pause_ms=5",
    ),
    "the-next-end-is-fenced": Mutant(
        "broker.coordinators.transactions.transaction",
        "def _end_v2(self, producer: Producer, is_commit: bool) -> End:\n        self._refuse_pending()\n",
        "def _end_v2(self, producer: Producer, is_commit: bool) -> End:\n",
        "the next transaction is not fenced while the last one ends",
        "a1e5200",
        life="faults=0,seconds=15,pause_ms=5",
    ),
}
