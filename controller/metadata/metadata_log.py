"""The metadata log: every change of the cluster, in order. A change is on disk before any effect of it is visible.

Rules
1. The records of one append are one batch: after a crash the log has all of them or none.
2. `flush` returns once everything appended survives a power cut. Before that, nothing outside this process may rely
   on it.
3. A snapshot replaces the log's contents (snapshot.py).
4. A batch carries the epoch of the controller that wrote it. Each start of a controller opens the next epoch.

Threads: the event thread (and main before it starts).

Format: `__cluster_metadata-0/` is an ordinary partition log (broker/storage/log). Its records have no key; the value is
a metadata record in Kafka's frame (version 1, type, version, payload). `kafka-dump-log --cluster-metadata-decoder`
reads it. A torn tail was never acknowledged and is truncated at start. If more is missing, the controller does not
start (durable_end.py).

Source: the parts of KafkaRaftClient and KafkaMetadataLog (Kafka 4.3) that a single controller needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.storage.directories.names import LEADER_EPOCH_FILE, LOG_SUFFIX, segment_file
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.log_types import AppendOrigin, FetchIsolation
from barnabas.broker.storage.log.recovery import LogLoader
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.controller.image import Image
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION, DurableEnd
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.record_batches import decode_values
from barnabas.controller.metadata.snapshot import (
    SnapshotId,
    check_log_begins,
    list_snapshots,
    newest_snapshot,
    unreadable,
    write_snapshot,
)
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.records.batch import iter_headers, iter_records, set_offset_and_epoch

if TYPE_CHECKING:
    from barnabas.config.config import Config
    from barnabas.config.resources.topic import TopicConfig

log = logging.getLogger("barnabas.controller.log")

READ_BYTES: Final = 256 << 10
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class MetadataLog:
    """The log in a directory that the caller has locked; raises DirectoryError if it is damaged."""

    def __init__(self, directory: str, config: Config, clock: Clock, fs: FileSystem) -> None:
        self._fs = fs  # fixed before start
        self._root = directory  # fixed before start
        self._clock = clock  # fixed before start
        self._scheduler = ManualScheduler(clock)
        path = f"{directory}/{TOPIC_PARTITION.topic}-{TOPIC_PARTITION.partition}"
        fs.mkdir(path)
        fs.fsync_dir(directory)
        found = newest_snapshot(fs, path)
        if found is None and (lost := [s for s in list_snapshots(fs, path) if s.end_offset > 0]):
            check_log_begins(fs, path, lost[-1])
        self._end_of_snapshot = 0 if found is None else found[0].end_offset
        #: The image that the replay starts from. Owner: main
        self.snapshot = Image() if found is None else found[1]
        self._durable_end = DurableEnd(fs, directory, is_shared=config.shares_metadata_directory)  # fixed before start
        self._log = load_log(fs, path, self._end_of_snapshot, self._durable_end, config, clock, self._scheduler)
        #: The epoch of the last batch; -1 in an empty log. Owner: event thread
        self.epoch = max(self._log.latest_epoch, -1 if found is None else found[0].epoch)

    @property
    def directory(self) -> str:
        """The directory of the log's files."""
        return self._log.directory

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the segments."""
        return self._log.size_in_bytes

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    def image(self) -> Image:
        """Return the image of the snapshot and the log after it; raises DirectoryError if a record cannot be applied.

        The error names file and offset. The record may have an unknown version, or contradict an earlier record.
        """
        editor = ImageEditor(self.snapshot)
        offset = self._log.log_start_offset
        try:
            for base_offset, next_offset, records in self.replay():
                offset = base_offset
                editor.apply_all(records, offset)
                editor.forget_changes()
                offset = next_offset
            image = editor.image(self._log.log_end_offset - 1)
            image.invariants()
        except OSError:
            raise
        except Exception as error:  # Why all: no record may end the controller without a clear error line
            raise DirectoryError(unreadable(self._file_of(offset), offset, error)) from error
        return image

    def _file_of(self, offset: int) -> str:
        bases = [segment.base_offset for segment in self._log.segments if segment.base_offset <= offset]
        return segment_file(self._log.directory, max(bases, default=0), LOG_SUFFIX)

    def replay(self) -> Iterator[tuple[int, int, Iterator[MetadataRecord]]]:
        """Yield each batch: the offset of its first record, the offset after its last one, and its records."""
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            data = self._read(offset)
            before = offset
            for position, header in iter_headers(data):
                if not header.is_control:
                    batch = data[position : position + header.size_in_bytes]
                    yield header.base_offset, header.next_offset, decode_values(iter_records(batch))
                offset = header.next_offset
            if offset <= before:
                raise MalformedMessageError(f"no batch follows offset {before}")

    def _read(self, offset: int) -> memoryview:
        found = self._log.read(offset, READ_BYTES, isolation=FetchIsolation.LOG_END, min_one_message=True)
        assert found.slice is not None, "there are records below the log's end"
        return memoryview(found.slice.read())

    def holds(self, offset: int, epoch: int) -> bool:
        """Return whether this log, or a snapshot that replaced its start, has the record that `epoch` had at `offset`.

        Another cluster's log may be as long, but it reached that offset in another epoch. With epoch -1 only the
        offset counts.
        """
        if offset >= self._log.log_end_offset or epoch > self.epoch:
            return False
        if epoch < 0 or offset < self._log.log_start_offset:
            return True
        found, end_offset = self._log.end_offset_for_epoch(epoch)
        return found == epoch and offset < end_offset

    def open_epoch(self) -> None:
        """Begin a new epoch; the next append makes it durable."""
        self.epoch = max(self.epoch, 0) + 1

    def append(self, batch: bytearray) -> int:
        """Append a batch from `encode_batch` (rule 1); return the offset of its first record."""
        base_offset = self._log.log_end_offset
        set_offset_and_epoch(batch, base_offset, self.epoch)
        self._log.append_as_leader(memoryview(batch), leader_epoch=self.epoch, origin=AppendOrigin.RAFT_LEADER)
        return base_offset

    def flush(self) -> None:
        """Make everything appended durable (rule 2)."""
        self._log.flush()
        self._durable_end.write(self._log.log_end_offset)
        self._scheduler.run_due()

    def write_snapshot(self, extent: tuple[int, int], records: Iterable[MetadataRecord]) -> int:
        """Replace the whole log, which is flushed, by a snapshot (rule 3); returns the snapshot's bytes.

        `extent` is the log's end and the epoch of its last record. Raises SnapshotWriteError.
        """
        directory = self._log.directory
        before = list_snapshots(self._fs, directory)
        snapshot = SnapshotId(*extent)
        size_bytes = write_snapshot(self._fs, directory, snapshot, records, self._clock.wall_ms())
        self._log.roll()
        self._log.flush()
        self._log.update_high_watermark(self._log.log_end_offset)
        old = [segment for segment in self._log.segments if segment is not self._log.active_segment]
        self._log.delete_segments(old, f"snapshot {snapshot.file_name}")
        self._scheduler.run_due()
        for older in before:
            if older != snapshot:
                self._fs.unlink(f"{directory}/{older.file_name}")
        log.info("Wrote snapshot %s", snapshot.file_name)
        return size_bytes

    def close(self) -> None:
        """Flush and close the files."""
        self._log.close()


def load_log(
    fs: FileSystem,
    path: str,
    start: int,
    durable_end: DurableEnd,
    config: Config,
    clock: Clock,
    scheduler: ManualScheduler,
) -> Log:
    """Open the log in `path` that follows a snapshot, which ends at `start`; what was never flushed is cut.

    Raises DirectoryError if something that was durable is missing.
    """
    end = durable_end.check(path, start)
    # Why: storage may replace this file without an fsync, so a power cut can leave it empty. All batches are read (the
    # recovery point is 0), which rebuilds it.
    fs.unlink(f"{path}/{LEADER_EPOCH_FILE}")
    topic_config = _topic_config(config)
    loaded = LogLoader(
        fs,
        path,
        TOPIC_PARTITION,
        topic_config,
        clock,
        log_start_offset=start,
        recovery_point=0,
        clean_shutdown=False,
        producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
    ).load()
    opened = Log(fs, path, TOPIC_PARTITION, topic_config, clock, scheduler, loaded)
    if end < opened.log_end_offset:
        # A power cut may lose the end of a segment, and keep the name of the next one.
        log.info("%s ends at offset %d; what follows was never flushed", path, end)
        opened.truncate_to(end)
        scheduler.run_due()
        fs.fsync_dir(path)
    return opened


def _topic_config(config: Config) -> TopicConfig:
    """Return the settings of the log: what it keeps is up to snapshots, and never to retention."""
    return config.topic_config(
        {
            "segment.bytes": str(config.metadata_log_segment_bytes),
            "segment.ms": str(config.metadata_log_segment_ms),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "file.delete.delay.ms": "0",
        }
    )
