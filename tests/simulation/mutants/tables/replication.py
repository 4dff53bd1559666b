"""Mistakes in replication: high watermark, ISR, followers, truncation."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

REPLICATION: Final = {
    "acks-all-answered-early": Mutant(
        "broker.replication.partition",
        "if log.high_watermark < required_offset:",
        "if log.log_end_offset < required_offset:",
        "acks=all is answered when every member of the ISR has the batch",
    ),
    "watermark-ignores-followers": Mutant(
        "broker.replication.in_sync.isr",
        "if follower.log_end_offset < lowest and (",
        "if follower.log_end_offset < 0 and (",
        "the high watermark is the least log end of the ISR",
    ),
    "watermark-forgets-the-joining": Mutant(
        "broker.replication.partition",
        "maximal_isr=maximal_isr,\n                joining",
        "maximal_isr=role.isr,\n                joining",
        "the high watermark waits for a replica whose admission is in flight",
        life="laggards=1",
    ),
    "isr-shrinks-unasked": Mutant(
        "broker.replication.partition",
        "self.role = shrinking(role)",
        "self.role = replace(shrinking(role), maximal_isr=role.isr - lagging)",
        "a member of the ISR counts until the controller has removed it",
        life="laggards=1",
    ),
    "isr-joined-too-early": Mutant(
        "broker.replication.in_sync.isr",
        "and follower.log_end_offset >= high_watermark",
        "and follower.log_end_offset >= 0",
        "a replica joins the ISR when it has everything below the high watermark",
        life="laggards=1",
    ),
    "isr-joined-below-the-epoch": Mutant(
        "broker.replication.in_sync.isr",
        "and follower.log_end_offset >= leader_epoch_start_offset",
        "and leader_epoch_start_offset >= 0",
        "a replica joins the ISR when it has reached the start of the leader's epoch",
        life="overtakes=1,pause_ms=50",
    ),
    "a-repeated-push-forgets-the-joining": Mutant(
        "broker.replication.partition",
        "if old.is_isr_change_in_flight and change.partition_epoch == old.partition_epoch:",
        "if old.is_isr_change_in_flight and change.partition_epoch < old.partition_epoch:",
        "a push that repeats the present state leaves a proposal in flight",
        "b0c93cc",
        life="laggards=1,haste=1,amid=2",
    ),
    "append-from-a-former-leader": Mutant(
        "broker.replication.partition",
        "if self.log is None or not self._follows_locked(leader_epoch):",
        "if self.log is None:",
        "a broker appends what it fetched only while it follows the leader that sent it",
        life="stops=1,haste=1,restless=1,pause_ms=10,seconds=20",
    ),
    "divergence-is-not-truncated": Mutant(
        "broker.replication.fetching.fetcher",
        "partition.truncate_to(offset, leader_epoch=fetched.leader_epoch)",
        "offset = held.log_end_offset",
        "a follower drops the records that its leader does not have",
    ),
    "divergence-in-an-epoch-is-missed": Mutant(
        "broker.replication.offset_queries",
        "if epoch < last_fetched_epoch or end_offset < fetch_offset:",
        "if epoch < last_fetched_epoch:",
        "a follower that is longer than its leader was in an epoch is truncated",
    ),
    "epoch-ends-at-the-log-end": Mutant(
        "broker.storage.log.leader_epochs",
        "return epochs[above - 1], starts[above]",
        "return epochs[above - 1], log_end_offset",
        "a leader epoch ends where the next one begins",
    ),
    "truncates-to-the-own-watermark": Mutant(
        "broker.replication.partition",
        "self._followers.clear()\n            self.role = follower_role(change)",
        "self._followers.clear()\n            self.log.truncate_to(self.log.high_watermark)\n"
        "            self.role = follower_role(change)",
        "a follower truncates where the logs diverge, not at its high watermark (KIP-101)",
        life="laggards=1",
    ),
    "reads-of-the-unreplicated": Mutant(
        "broker.storage.log.reader",
        "if isolation is FetchIsolation.LOG_END:",
        "if isolation is not FetchIsolation.TXN_COMMITTED:",
        "a consumer sees nothing above the high watermark",
    ),
    "duplicates-are-appended": Mutant(
        "broker.storage.log.appender",
        "return entry.find_duplicate(header) if entry is not None and origin is AppendOrigin.CLIENT else None",
        "return None",
        "a batch that a producer repeats is appended once",
    ),
    "gaps-are-appended": Mutant(
        "broker.storage.producers.producer_append",
        "if current.epoch != NO_PRODUCER_EPOCH and not in_sequence:",
        "if current.epoch == NO_PRODUCER_EPOCH and not in_sequence and first < 0:",
        "a producer's batches are appended without a gap",
    ),
    "one-batch-is-remembered": Mutant(
        "broker.storage.producers.producer_entry",
        "for batch in self.batches:",
        "for batch in list(self.batches)[-1:]:",
        "a repetition of any of a producer's last five batches is recognized",
        life="haste=1",
    ),
}
