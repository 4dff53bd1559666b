"""The replicated log on disk: segments and snapshots in `__cluster_metadata-0/`, and `quorum-state` beside them.

Rules
1. Durable on return are: quorum-state, a truncation, a log that a snapshot replaced, and everything appended before
   a flush. A crash between any two steps leaves the state before or after one of them.
2. A start refuses a directory in which something that was durable is missing (DurableEnd), and a quorum-state that
   cannot be read. It never begins with an empty state instead.
3. A snapshot replaces the log once it has its name. If the process ends before the log is gone, the next start sees a
   log that ends before the snapshot (by epoch, then by offset), and removes it.
4. A torn tail was never flushed, so no replica relied on it: it is cut at start.
5. A log without quorum-state was written by a single controller, so all of it is committed: no leader may truncate it.
   Otherwise new controllers with empty logs, which may be a majority, would take its records away. quorum-state keeps
   where it ended.

Format: an ordinary partition log (broker/storage/log); see metadata/metadata_log.py and snapshot_files.py.

Threads: main at start, then the raft thread; `snapshots.write` and `read` see no half-done change.

Source: KafkaRaftLog, KafkaMetadataLog (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.log.log_types import AppendOrigin, FetchIsolation
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION, DurableEnd
from barnabas.controller.metadata.metadata_directory import REBUILD, DirectoryError
from barnabas.controller.metadata.metadata_log import load_log
from barnabas.controller.metadata.snapshot import SnapshotId, check_log_begins, list_snapshots
from barnabas.controller.raft.batches import Batch, control_records, decode_batches, encode_control
from barnabas.controller.raft.client.interface import CommittedBatch
from barnabas.controller.raft.client.snapshot_files import SnapshotFile, SnapshotFiles
from barnabas.controller.raft.effects import Persist
from barnabas.controller.raft.election_state import ElectionState, QuorumStateError, QuorumStateFile
from barnabas.controller.raft.log_outline import LogOutline, Membership, OffsetAndEpoch
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import BatchHeader, iter_headers, read_header

if TYPE_CHECKING:
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.controller.raft")

READ_BYTES: Final = 4 << 20


class RaftLog:
    """The log in a directory that the caller has locked; raises DirectoryError if it is damaged."""

    def __init__(self, directory: str, config: Config, clock: Clock, fs: FileSystem, bootstrap: Membership) -> None:
        """`bootstrap` has the voters of the configuration."""
        self._fs = fs  # fixed before start
        self._clock = clock  # fixed before start
        self._scheduler = ManualScheduler(clock)
        self.path = path = f"{directory}/{TOPIC_PARTITION.topic}-{TOPIC_PARTITION.partition}"  # fixed before start
        fs.mkdir(path)
        fs.fsync_dir(directory)
        self._state_file = QuorumStateFile(fs, path)  # fixed before start
        self.snapshots = SnapshotFiles(fs, path, bootstrap)  # fixed before start
        #: The snapshot that the log begins with. Owner: raft thread
        self.snapshot: SnapshotFile | None = None
        self._durable_end = DurableEnd(fs, directory, is_shared=config.shares_metadata_directory)  # fixed
        membership = self._find_snapshot(bootstrap)
        start = 0 if self.snapshot is None else self.snapshot.id.offset
        # Owner: raft thread
        self._log = load_log(fs, path, start, self._durable_end, config, clock, self._scheduler)
        #: The outline of what is on disk; the replica takes it over. Owner: main
        self.outline = self._outline(membership)
        self._applied_offset = self._committed_alone()  # fixed before start
        self.outline.committed_at_start = self._applied_offset or -1

    # At start

    def election(self) -> ElectionState | None:
        """Read quorum-state; None at the first start. Raises DirectoryError (rule 2)."""
        try:
            return self._state_file.read()
        except QuorumStateError as error:
            raise DirectoryError(f"{error}: restore it from a copy, or {REBUILD}") from error

    def _committed_alone(self) -> int:
        """Return where the log of a single controller ended, 0 if there was none (rule 5)."""
        try:
            found = self._state_file.applied_offset()
            if found is None:  # Why now: the first record of a leader may come before quorum-state changes
                self._state_file.join_quorum(self.outline.end_offset)
        except QuorumStateError as error:
            raise DirectoryError(f"{error}: restore it from a copy, or {REBUILD}") from error
        return self.outline.end_offset if found is None else found

    def _find_snapshot(self, bootstrap: Membership) -> Membership:
        found = self.snapshots.newest()
        if found is None:
            if lost := [each for each in list_snapshots(self._fs, self.path) if each.end_offset > 0]:
                check_log_begins(self._fs, self.path, lost[-1])
            return bootstrap
        self.snapshot, membership = found
        return membership

    def _outline(self, membership: Membership) -> LogOutline:
        """Return the outline of what is on disk, after a log that a snapshot replaced is gone (rule 3)."""
        outline = LogOutline(membership)
        start = 0
        # Why the offset: the snapshot of `kafka-storage format` has the first voters, and no log before it.
        if self.snapshot is not None and self.snapshot.id.offset > 0:
            snapshot = self.snapshot.id
            start = snapshot.offset
            outline.replace(snapshot, membership)
            if not OffsetAndEpoch(self._log.log_end_offset, self._log.latest_epoch).is_up_to_date_with(snapshot):
                log.info("Snapshot %s replaces the log, which ends at %d", self.snapshot.path, self._log.log_end_offset)
                self._restart(snapshot)
        try:
            for batch in self._batches(start):
                if batch.base_offset != outline.end_offset or batch.epoch < outline.last_epoch:
                    break
                outline.append(batch)
        except MalformedMessageError as error:
            raise DirectoryError(f"{self.path} cannot be read at offset {outline.end_offset}: {error}") from error
        if outline.end_offset < self._log.log_end_offset:  # rule 4; DurableEnd has checked what was flushed
            self.truncate(outline.end_offset)
        # Why a flush: the replica counts everything that it finds as durable.
        self.flush()
        return outline

    def _batches(self, offset: int) -> Iterator[Batch]:
        for header, data in self._read(offset, self._log.log_end_offset):
            control = control_records(data) if header.is_control else ()
            yield Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, control, None)

    def _read(self, offset: int, end_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches from `offset` on, up to `end_offset`."""
        while offset < end_offset:
            data = memoryview(self.read(offset, READ_BYTES))
            before = offset
            for position, header in iter_headers(data):
                if header.base_offset >= end_offset:
                    return
                if header.last_offset >= offset:
                    yield header, data[position : position + header.size_in_bytes]
                    offset = header.next_offset
            if offset <= before:
                raise MalformedMessageError(f"no batch follows offset {before}")

    # The effects of the replica

    def persist(self, effect: Persist) -> None:
        """Write quorum-state; durable on return."""
        self._state_file.write(effect.election, effect.kraft_version, effect.voter_ids, self._applied_offset)

    def append(self, batches: Sequence[Batch]) -> list[CommittedBatch]:
        """Append batches; return them as they are in the log."""
        found = []
        for batch in batches:
            data = batch.data if batch.data is not None else encode_control(batch, self._clock.wall_ms())
            is_control = read_header(data, 0).is_control
            self._log.append_as_leader(memoryview(data), leader_epoch=batch.epoch, origin=AppendOrigin.RAFT_LEADER)
            found.append(CommittedBatch(batch.base_offset, batch.last_offset, batch.epoch, is_control, data))
        return found

    def flush(self) -> None:
        """Make everything appended durable."""
        self._log.flush()
        self._durable_end.write(self._log.log_end_offset)
        self._scheduler.run_due()

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on; durable on return."""
        self._durable_end.lower(offset)
        self._log.truncate_to(offset)
        self._scheduler.run_due()
        self._fs.fsync_dir(self.path)

    def replace(self, snapshot: OffsetAndEpoch) -> None:
        """Let the fetched snapshot replace the whole log (rule 3); durable on return."""
        self._durable_end.lower(0)
        self.snapshot = self.snapshots.adopt_part(snapshot)
        self._restart(snapshot)
        self.snapshots.delete_older(snapshot)

    def _restart(self, snapshot: OffsetAndEpoch) -> None:
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._scheduler.run_due()
        self._fs.fsync_dir(self.path)
        self._durable_end.write(snapshot.offset)

    def delete_prefix(self, snapshot: OffsetAndEpoch) -> None:
        """Delete the segments below the end of a snapshot, which is on disk, and the snapshots before it."""
        self.snapshot = SnapshotFile(self._fs, self.snapshots.path(snapshot), snapshot)
        if self._log.active_segment.size:
            self._log.roll()
            self._log.flush()
        self._log.update_high_watermark(self._log.log_end_offset)
        old = self._log.deletable_segments(lambda _, after: after is not None and after <= snapshot.offset)
        self._log.delete_segments(old, f"snapshot {SnapshotId(*snapshot).file_name}")
        self._scheduler.run_due()
        self.snapshots.delete_older(snapshot)

    # Reading

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from `offset` on, at least one."""
        found = self._log.read(offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
        return b"" if found.slice is None else found.slice.read()

    def committed(self, offset: int, end_offset: int) -> Iterator[list[CommittedBatch]]:
        """Yield the batches from `offset` on, up to `end_offset`, some at a time; raises MalformedMessageError."""
        batches: list[CommittedBatch] = []
        size = 0
        for header, data in self._read(offset, end_offset):
            epoch = header.partition_leader_epoch
            batches.append(CommittedBatch(header.base_offset, header.last_offset, epoch, header.is_control, data))
            size += len(data)
            if size >= READ_BYTES:
                yield batches
                batches, size = [], 0
        if batches:
            yield batches

    def close(self) -> None:
        """Flush and close the files."""
        self.snapshots.discard_part()
        self._log.close()


def decode_fetched(records: object) -> list[Batch]:
    """Return the batches of a Fetch response."""
    assert isinstance(records, bytes | bytearray | memoryview)
    return decode_batches(records)
