"""What a log knows of its idempotent and transactional producers.

For each producer id: epoch, the last five batches (to recognise a retry), and the first offset of an open
transaction. Open transactions and those closed above the high watermark hold the last stable offset back. The state
is a function of the log; a snapshot at each roll shortens its rebuilding.

Format of `<offset>.snapshot` (state as of all records below that offset; big-endian): int16 version (1), uint32
crc32c of what follows, int32 count, and for each producer 50 bytes: int64 producer id, int16 epoch, int32 last
sequence, int64 last offset, int32 offset delta of the last batch, int64 timestamp, int32 coordinator epoch, int64
first offset of the open transaction (-1 none).

Threads: all methods under the log's lock.

Invariants
1. `ongoing` has one entry for each producer entry with an open transaction, keyed by its first offset, ascending.
2. `map_end_offset` is the offset up to which (exclusive) the log has been taken in.

Source: Kafka's ProducerStateManager, ProducerStateEntry, ProducerAppendInfo, 4.3 (KIP-98, KIP-360, KIP-890's epochs).
"""

from __future__ import annotations

import contextlib
import logging
import struct
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import crc32c

from barnabas.broker.storage.log_types import NO_OFFSET, NO_TIMESTAMP, AppendOrigin
from barnabas.broker.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_of_file, segment_file
from barnabas.broker.storage.verification import Verification, VerificationGuard
from barnabas.common.clock import Clock
from barnabas.common.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    ControlType,
    EndTxnMarker,
)

log = logging.getLogger("barnabas.storage.producer_state")

BATCHES_RETAINED: Final = 5
SNAPSHOT_VERSION: Final = 1
INT16_MAX: Final = 2**15 - 1
TRANSACTION_VERSION_UNKNOWN: Final = -1

_SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6


class CorruptSnapshotError(Exception):
    """A snapshot that cannot be trusted; an older one or the log itself is used."""


class BatchMetadata(NamedTuple):
    """A batch a producer wrote: enough to recognise it again and to answer for it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction whose marker was just appended at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """One producer's state."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset  # -1 if no transaction is open
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_RETAINED)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch that `header` repeats, if it is one of the last five."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def copy(self) -> ProducerEntry:
        """A copy of what it is now."""
        copied = ProducerEntry(
            self.producer_id, self.epoch, self.coordinator_epoch, self.last_timestamp, self.txn_first_offset
        )
        copied.batches.extend(self.batches)
        return copied

    def set_epoch(self, epoch: int) -> None:
        """Move to another epoch, whose sequences start afresh."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        """Note one more batch."""
        self.set_epoch(epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp


class ProducerAppend:
    """The change that one append makes to one producer: checked first, applied once the write is done.

    Raises ApiError from its methods, leaving the manager's state untouched.
    """

    __slots__ = ("_current", "_origin", "_tp", "_verification", "is_transactional", "started", "updated")

    def __init__(
        self,
        tp: TopicPartition,
        producer_id: int,
        current: ProducerEntry | None,
        origin: AppendOrigin,
        verification: Verification | None = None,
    ) -> None:
        self._tp = tp
        self._origin = origin
        self._verification = verification
        self.is_transactional = False  # whether it held a transactional batch or a marker
        self._current = current if current is not None else ProducerEntry(producer_id)
        self.updated = ProducerEntry(
            producer_id,
            self._current.epoch,
            self._current.coordinator_epoch,
            self._current.last_timestamp,
            self._current.txn_first_offset,
        )
        self.started: list[int] = []  # first offsets of transactions begun by this append

    def append_data(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: int) -> None:
        """Check and add a data batch that takes offsets first … last."""
        self._check_epoch(header.producer_epoch, first_offset, 0)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header, first_offset)
        delta = last_offset - first_offset
        self.is_transactional = self.is_transactional or header.is_transactional
        self.updated.add_batch(
            header.producer_epoch, BatchMetadata(header.last_sequence, last_offset, delta, timestamp)
        )
        if self.updated.txn_first_offset >= 0 and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset {first_offset} in "
                f"{self._tp}",
            )
        if header.is_transactional and self.updated.txn_first_offset < 0:
            self.updated.txn_first_offset = first_offset
            self.started.append(first_offset)

    def append_marker(
        self, marker: EndTxnMarker, header: BatchHeader, offset: int, timestamp: int, transaction_version: int
    ) -> CompletedTxn | None:
        """Check and apply a transaction's closing marker; returns the transaction that it closes, if one was open."""
        self._check_epoch(header.producer_epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker, offset)
        completed = None
        self.is_transactional = True
        entry = self.updated
        if entry.txn_first_offset >= 0:
            completed = CompletedTxn(
                entry.producer_id, entry.txn_first_offset, offset, marker.control_type is ControlType.ABORT
            )
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.txn_first_offset = NO_OFFSET
        entry.last_timestamp = timestamp
        return completed

    def _check_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        current = self.updated.epoch
        is_v2 = transaction_version >= 2
        if epoch > current or (epoch == current and not is_v2):
            return
        if is_v2 and epoch == current and (self.updated.txn_first_offset < 0 or epoch == INT16_MAX):
            return  # the marker of a transaction already closed, sent again
        message = (
            f"Epoch of producer {self.updated.producer_id} at offset {offset} in {self._tp} is {epoch}, "
            f"which is smaller than the last seen epoch {current}"
        )
        if self._origin is AppendOrigin.REPLICATION:
            log.warning(message)
        else:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    def _check_sequence(self, header: BatchHeader, offset: int) -> None:
        first = header.base_sequence
        updated, current = self.updated, self._current
        if self._verification is not None:
            self._check_first_sequence(self._verification, header, offset)
        if header.producer_epoch != updated.epoch:
            if first != 0 and updated.epoch != NO_PRODUCER_EPOCH:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id} at offset {offset} in "
                    f"partition {self._tp}: {header.producer_epoch} (request epoch), {first} (seq. number), "
                    f"{updated.epoch} (current producer epoch)",
                )
            return
        last = updated.last_sequence if updated.batches else current.last_sequence
        in_sequence = first == last + 1 or (first == 0 and last == INT32_MAX)
        if current.epoch != NO_PRODUCER_EPOCH and not in_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number), {last} (current end sequence number)",
            )

    def _check_first_sequence(self, verification: Verification, header: BatchHeader, offset: int) -> None:
        """Check a batch that begins a transaction: retries may arrive before what was sent first (KIP-890)."""
        first = header.base_sequence
        if verification.supports_epoch_bump and first != 0 and self._current.epoch == NO_PRODUCER_EPOCH:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number). Expected sequence 0 for a producer with no existing "
                f"state.",
            )
        if first > verification.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {offset} in partition "
                f"{self._tp}: {first} (incoming seq. number), {verification.lowest_sequence} (earliest seen sequence)",
            )

    def _check_coordinator_epoch(self, marker: EndTxnMarker, offset: int) -> None:
        if self.updated.coordinator_epoch <= marker.coordinator_epoch:
            return
        message = (
            f"Invalid coordinator epoch for producer {self.updated.producer_id} at offset {offset} in partition "
            f"{self._tp}: {marker.coordinator_epoch} (zombie), {self.updated.coordinator_epoch} (current)"
        )
        if self._origin is AppendOrigin.REPLICATION:
            log.info(message)
        else:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)


class ProducerStateManager:
    """The producers of one log and their snapshots."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        tp: TopicPartition,
        clock: Clock,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> None:
        self.directory = directory  # replaced by renames
        self.producer_id_expiration_ms = producer_id_expiration_ms  # replaced by dynamic configuration
        self.map_end_offset = 0
        self._fs = fs
        self._tp = tp
        self._clock = clock
        self._producers: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, ascending (inv. 1)
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        self.verifies = False  # replaced by configuration; whether transactions must be proved to be open
        self._verifications: dict[int, Verification] = {}  # by producer id; of transactions that have not begun here
        self._snapshots: list[int] = self._list_snapshots()  # offsets, ascending
        self._last_snapshot_offset = 0

    # Reading

    @property
    def producers(self) -> dict[int, ProducerEntry]:
        """Every active producer; not to be changed by the caller."""
        return self._producers

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open, or closed but perhaps not below the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or closed but not below the high watermark."""
        ongoing = next(iter(self._ongoing), None)
        unreplicated = min(self._unreplicated, default=None)
        if ongoing is None or unreplicated is None:
            return unreplicated if ongoing is None else ongoing
        return min(ongoing, unreplicated)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshots)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset once `completed` is done: the next open transaction's start, or past its
        marker.
        """
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return min(first_offset, completed.last_offset + 1)  # it may be of a later batch of the same append
        return completed.last_offset + 1

    # Verifying

    @property
    def oldest_transaction_timestamp(self) -> int:
        """When the producer of the oldest open transaction last wrote (its records' time); -1 if none is open."""
        producer_id = next(iter(list(self._ongoing.values())), None)
        entry = None if producer_id is None else self._producers.get(producer_id)
        return -1 if entry is None else entry.last_timestamp

    def is_ongoing(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer is open here."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Draw a guard for a transaction that is about to begin here: the same until it has begun or ended."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = Verification(
                epoch, sequence, supports_epoch_bump, self._clock.wall_ms()
            )
        else:
            verification.note(epoch, sequence)
        return verification.guard

    def require_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Raise INVALID_TXN_STATE unless the batch continues an open transaction, or is proved to begin one."""
        if not self.verifies or self.is_ongoing(header.producer_id, header.producer_epoch):
            return
        verification = self._verifications.get(header.producer_id)
        if guard is None or verification is None or verification.guard is not guard:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    # Appending

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppend:
        """Begin a change to one producer."""
        return ProducerAppend(
            self._tp, producer_id, self._producers.get(producer_id), origin, self._verifications.get(producer_id)
        )

    def apply(self, change: ProducerAppend) -> None:
        """Make a prepared change, after its batches were written."""
        updated = change.updated
        assert updated.producer_id != NO_PRODUCER_ID
        current = self._producers.get(updated.producer_id)
        if current is None:
            self._producers[updated.producer_id] = updated
        else:
            current.set_epoch(updated.epoch)
            current.batches.extend(updated.batches)
            current.coordinator_epoch = updated.coordinator_epoch
            current.txn_first_offset = updated.txn_first_offset
            current.last_timestamp = updated.last_timestamp
        for first_offset in change.started:
            self._add_ongoing(first_offset, updated.producer_id)
        if change.is_transactional and self._verifications:
            self._verifications.pop(updated.producer_id, None)  # it has begun, or has ended without having begun here

    def _add_ongoing(self, first_offset: int, producer_id: int) -> None:
        if self._ongoing and first_offset < next(reversed(self._ongoing)):
            ordered = list(self._ongoing.items())
            insort(ordered, (first_offset, producer_id))
            self._ongoing = dict(ordered)
        else:
            self._ongoing[first_offset] = producer_id

    def complete(self, completed: CompletedTxn) -> None:
        """Move a closed transaction to those that wait for the high watermark."""
        owner = self._ongoing.pop(completed.first_offset, None)
        assert owner is not None, f"{completed} on {self._tp} was never started"
        self._unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget closed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Follow the log's start forward."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else log_start_offset

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

    def look_back(self, offset: int) -> None:
        """Pass over the snapshots above an offset, which stay: the state as of then is wanted, nothing is truncated."""
        self._snapshots = [found for found in self._snapshots if found <= offset]

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot in (log start, log end]; `map_end_offset` then says from where to replay."""
        for offset in list(self._snapshots):
            if offset > log_end_offset or offset <= log_start_offset:
                self.delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load_newest_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log begins anew at `offset`."""
        self._clear()
        for snapshot in list(self._snapshots):
            self.delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._producers.clear()
        self._verifications.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_newest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            path = segment_file(self.directory, offset, SNAPSHOT_SUFFIX)
            try:
                entries = read_snapshot(self._fs.read_bytes(path))
            except (CorruptSnapshotError, FileNotFoundError) as error:
                log.warning("Failed to load producer snapshot %s: %s", path, error)
                self.delete_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.load_entry(entry)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def load_entry(self, entry: ProducerEntry) -> None:
        """Take over one producer's state, as from a snapshot."""
        self._producers[entry.producer_id] = entry
        if entry.txn_first_offset >= 0:
            self._add_ongoing(entry.txn_first_offset, entry.producer_id)

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> bool:
        """Write the state as of `map_end_offset`, unless a snapshot of it exists; returns whether one was written."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return False
        offset = self.map_end_offset
        path = segment_file(self.directory, offset, SNAPSHOT_SUFFIX)
        self._fs.write_bytes(path, format_snapshot(self._producers.values()), sync=sync)
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self._last_snapshot_offset = offset
        return True

    def delete_snapshots_before(self, offset: int) -> None:
        for snapshot in [found for found in self._snapshots if found < offset]:
            self.delete_snapshot(snapshot)

    def delete_snapshot(self, offset: int) -> None:
        """Remove one snapshot, if it is there."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
        self._fs.unlink(segment_file(self.directory, offset, SNAPSHOT_SUFFIX))

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Rename one snapshot for deletion and return its new path; None if there was none."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = segment_file(self.directory, offset, SNAPSHOT_SUFFIX)
        try:
            self._fs.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots that belong to a segment, and the newest one if it is above all segments."""
        bases = set(segment_base_offsets)
        newest_base = max(bases, default=-1)
        stray = [offset for offset in self._list_snapshots() if offset not in bases]
        keep = stray[-1] if stray and stray[-1] >= newest_base else None
        for offset in stray:
            if offset != keep:
                self.delete_snapshot(offset)
        self._snapshots = self._list_snapshots()

    def _list_snapshots(self) -> list[int]:
        if not self._fs.is_dir(self.directory):
            return []
        names = [entry.name for entry in self._fs.listdir(self.directory) if not entry.is_dir]
        offsets = [offset_of_file(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        return sorted(offset for offset in offsets if offset is not None)


def sync_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    """Make a snapshot durable, unless it is gone already. Without a lock; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        handle = fs.open(segment_file(directory, offset, SNAPSHOT_SUFFIX))
        try:
            handle.fsync()
        finally:
            handle.close()


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Write a snapshot's bytes."""
    rows = [
        _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in entries
    ]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c.crc32c(body)) + body


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a snapshot's bytes; raises CorruptSnapshotError."""
    return list(_read_entries(data))


def _read_entries(data: bytes) -> Iterator[ProducerEntry]:
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshotError(f"a snapshot of {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"a snapshot of version {version}")
    if crc32c.crc32c(data[_CRC_START:]) != crc:
        raise CorruptSnapshotError("the CRC of a snapshot is wrong")
    if count < 0 or len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"a snapshot of {count} producers in {len(data)} bytes")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        yield entry
