"""What a log knows of its idempotent and transactional producers.

For each producer id: epoch, the last five batches (to recognise a retry), and the first offset of an open
transaction. The last stable offset lies below open transactions and below ended ones whose marker is not yet below the
high watermark. The state is a function of the log; a snapshot at each roll shortens its rebuilding (`snapshots.py`).

Threads: all methods under the log's lock.

Invariants (`invariants()` checks them)
1. `_ongoing` has one entry for each producer with an open transaction, keyed by its first offset, ascending.
2. `map_end_offset` is the offset up to which (exclusive) the log has been taken in; no producer's last batch is at or
   above it.

Source: Kafka's ProducerStateManager, 4.3 (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterable
from typing import Final

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.producers.producer_append import ProducerAppend
from barnabas.broker.storage.producers.producer_entry import CompletedTxn, ProducerEntry
from barnabas.broker.storage.producers.snapshots import CorruptSnapshotError, SnapshotFiles
from barnabas.broker.storage.producers.verification import Verification, VerificationGuard
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import NO_PRODUCER_ID, BatchHeader

log = logging.getLogger("barnabas.storage.producer_state")


# What most logs have for ever. Never changed: the first entry comes with a dict of its own.
_NO_PRODUCERS: Final[dict[int, ProducerEntry]] = {}
_NO_OFFSETS: Final[dict[int, int]] = {}
_NO_VERIFICATIONS: Final[dict[int, Verification]] = {}


class ProducerStateManager:
    """The producers of one log."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        clock: Clock,
        producer_id_expiration_ms: int = 86_400_000,
        *,
        is_new: bool = False,
    ) -> None:
        """With `is_new` the log has no snapshots."""
        self.producer_id_expiration_ms = producer_id_expiration_ms  # replaced by dynamic configuration
        self.verifies = False  # replaced by configuration; whether a transaction must be verified to be open
        self.map_end_offset = 0
        self._tp = tp
        self._clock = clock
        self._producers: dict[int, ProducerEntry] = _NO_PRODUCERS
        self._ongoing: dict[int, int] = _NO_OFFSETS  # first offset -> producer id, ascending (inv. 1)
        self._unreplicated: dict[int, int] = _NO_OFFSETS  # first offset -> offset of the marker
        # By producer id; of transactions that have not begun here.
        self._verifications: dict[int, Verification] = _NO_VERIFICATIONS
        self._snapshots = SnapshotFiles(fs, directory, is_new=is_new)
        self._last_snapshot_offset = 0

    # Reading

    @property
    def producers(self) -> dict[int, ProducerEntry]:
        """Every active producer; the caller must not change it."""
        return self._producers

    @property
    def is_empty(self) -> bool:
        """Whether no producer and no unreplicated transaction is known."""
        return not self._producers and not self._unreplicated

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open, or ended but perhaps not below the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or ended but not below the high watermark."""
        if not self.has_transactions:
            return None
        ongoing = next(iter(self._ongoing), None)
        unreplicated = min(self._unreplicated, default=None)
        if ongoing is None or unreplicated is None:
            return unreplicated if ongoing is None else ongoing
        return min(ongoing, unreplicated)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        """The offsets that have a snapshot, ascending."""
        return self._snapshots.offsets

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return one producer's state; None if it is unknown."""
        return self._producers.get(producer_id)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after `completed`: the next open transaction's start, or past its marker."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                # Why min: the other transaction may begin in a later batch of the same append.
                return min(first_offset, completed.last_offset + 1)
        return completed.last_offset + 1

    @property
    def oldest_transaction_timestamp(self) -> int:
        """When the producer of the oldest open transaction last wrote (its records' time in ms); -1 if none is open."""
        producer_id = next(iter(list(self._ongoing.values())), None)
        entry = None if producer_id is None else self._producers.get(producer_id)
        return -1 if entry is None else entry.last_timestamp

    def invariants(self) -> None:
        """Check the invariants in the module's header; raises AssertionError."""
        starts = list(self._ongoing)
        assert starts == sorted(starts), f"inv. 1: {starts}"
        for first_offset, producer_id in self._ongoing.items():
            assert self._producers[producer_id].txn_first_offset == first_offset, f"inv. 1: {producer_id}"
        for entry in self._producers.values():
            assert entry.txn_first_offset < 0 or entry.txn_first_offset in self._ongoing, f"inv. 1: {entry.producer_id}"
            assert entry.last_offset < self.map_end_offset, f"inv. 2: {entry.producer_id}"

    # Verifying

    def is_ongoing(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this producer and epoch is open here."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Return the guard of a transaction that is about to begin here: the same until it has begun or ended.

        Raises ApiError(INVALID_PRODUCER_EPOCH).
        """
        self._require_epoch(producer_id, epoch)
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, supports_epoch_bump, self._clock.wall_ms())
            if not self._verifications:
                self._verifications = {}
            self._verifications[producer_id] = verification
        else:
            verification.note(epoch, sequence)
        return verification.guard

    def require_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Raise INVALID_TXN_STATE unless the batch continues an open transaction or was verified to begin one.

        Raises INVALID_PRODUCER_EPOCH for a batch of an old epoch: its producer can recover from that error.
        """
        if self.is_ongoing(header.producer_id, header.producer_epoch):
            return
        self._require_epoch(header.producer_id, header.producer_epoch)
        if not self.verifies:
            return
        verification = self._verifications.get(header.producer_id)
        if guard is None or verification is None or verification.guard is not guard:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _require_epoch(self, producer_id: int, epoch: int) -> None:
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}",
            )

    # Appending

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppend:
        """Begin a change to one producer."""
        return ProducerAppend(
            self._tp, producer_id, self._producers.get(producer_id), origin, self._verifications.get(producer_id)
        )

    def apply(self, change: ProducerAppend) -> None:
        """Apply a prepared change, after its batches were written."""
        updated = change.updated
        assert updated.producer_id != NO_PRODUCER_ID
        current = self._producers.get(updated.producer_id)
        if current is None:
            self._add_producer(updated)
        else:
            current.set_epoch(updated.epoch)
            current.add_batches(updated.batches)
            current.coordinator_epoch = updated.coordinator_epoch
            current.txn_first_offset = updated.txn_first_offset
            current.last_timestamp = updated.last_timestamp
        for first_offset in change.started:
            self._add_ongoing(first_offset, updated.producer_id)
        if change.is_transactional and self._verifications:
            # The transaction has begun here, or has ended without having begun here.
            self._verifications.pop(updated.producer_id, None)

    def _add_producer(self, entry: ProducerEntry) -> None:
        if not self._producers:
            self._producers = {}
        self._producers[entry.producer_id] = entry

    def _add_ongoing(self, first_offset: int, producer_id: int) -> None:
        if self._ongoing and first_offset < next(reversed(self._ongoing)):
            ordered = list(self._ongoing.items())
            insort(ordered, (first_offset, producer_id))
            self._ongoing = dict(ordered)
        else:
            if not self._ongoing:
                self._ongoing = {}
            self._ongoing[first_offset] = producer_id

    def complete(self, completed: CompletedTxn) -> None:
        """Move an ended transaction to those that wait for the high watermark."""
        owner = self._ongoing.pop(completed.first_offset, None)
        assert owner is not None, f"{completed} on {self._tp} was never started"
        if not self._unreplicated:
            self._unreplicated = {}
        self._unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Follow the log's start forward."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        newest = self._snapshots.newest
        self._last_snapshot_offset = log_start_offset if newest is None else newest

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for producer.id.expiration.ms; returns how many."""
        expired = [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        forgotten_before_ms = now_ms - self.producer_id_expiration_ms
        for producer_id, verification in list(self._verifications.items()):
            if verification.timestamp_ms <= forgotten_before_ms:
                del self._verifications[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms

    # Loading and truncating

    def ignore_snapshots_above(self, offset: int) -> None:
        """Ignore later snapshots without deleting them: the state as of `offset` is wanted, nothing is truncated."""
        self._snapshots.ignore_above(offset)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot in (log start, log end]; the caller replays the log from `map_end_offset`."""
        for offset in self._snapshots.offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                self._snapshots.delete(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load_newest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log begins again at `offset`."""
        self._clear()
        for snapshot in self._snapshots.offsets:
            self._snapshots.delete(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._producers = _NO_PRODUCERS
        self._verifications = _NO_VERIFICATIONS
        self._ongoing = _NO_OFFSETS
        self._unreplicated = _NO_OFFSETS

    def _load_newest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while (offset := self._snapshots.newest) is not None:
            try:
                entries = self._snapshots.read(offset)
            except (CorruptSnapshotError, FileNotFoundError) as error:
                log.warning("Failed to load producer snapshot %s: %s", self._snapshots.path(offset), error)
                self._snapshots.delete(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self._load_entry(entry)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load_entry(self, entry: ProducerEntry) -> None:
        self._add_producer(entry)
        if entry.txn_first_offset >= 0:
            self._add_ongoing(entry.txn_first_offset, entry.producer_id)

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> bool:
        """Write the state as of `map_end_offset`, unless a snapshot of it exists; returns whether one was written."""
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return False
        self._snapshots.write(offset, self._producers.values(), sync=sync)
        self._last_snapshot_offset = offset
        return True

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Rename one snapshot for deletion and return its new path; None if there was none."""
        return self._snapshots.mark_deleted(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots that belong to a segment, and the newest one if it is above all segments."""
        self._snapshots.remove_stray(segment_base_offsets)

    def move_to(self, directory: str) -> None:
        """Follow the partition's directory to a new path."""
        self._snapshots.directory = directory
