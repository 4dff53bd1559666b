"""The metadata log: every change of the cluster, in order. A change is on disk before any effect of it is visible.

Rules
1. The records of one append are one batch: after a crash the log has all of them or none.
2. `flush` returns once everything appended survives a power cut. Before that, nothing outside this process may rely
   on it.
3. Once the log is longer than metadata.log.max.record.bytes.between.snapshots, a snapshot replaces its contents
   (snapshot.py).
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
from collections.abc import Iterator, Sequence
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
from barnabas.controller.metadata.bootstrap import bootstrap_records
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION, DurableEnd
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.record_batches import decode_values
from barnabas.controller.metadata.snapshot import (
    check_log_begins,
    list_snapshots,
    newest_snapshot,
    unreadable,
    write_snapshot,
)
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.metadata_records import MetadataRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch, iter_headers, iter_records

if TYPE_CHECKING:
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.controller.log")

READ_BYTES: Final = 4 << 20
#: The bound of one batch, and so of the changes of one request (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
BATCH_BYTES_MAX: Final = 8 << 20


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
        topic_config = config.topic_config(
            {
                "segment.bytes": str(config.metadata_log_segment_bytes),
                "segment.ms": str(config.metadata_log_segment_ms),
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "file.delete.delay.ms": "0",
            }
        )
        # Why: storage may replace this file without an fsync, so a power cut can leave it empty. The start reads all
        # batches (the recovery point is 0) and rebuilds it.
        fs.unlink(f"{path}/{LEADER_EPOCH_FILE}")
        found = newest_snapshot(fs, path)
        if found is None and (lost := [s for s in list_snapshots(fs, path) if s.end_offset > 0]):
            check_log_begins(fs, path, lost[-1])
        self._end_of_snapshot = 0 if found is None else found[0].end_offset
        #: The image that the replay starts from. Owner: main
        self.snapshot = Image() if found is None else found[1]
        self._durable_end = DurableEnd(fs, directory)  # fixed before start
        self._durable_end.check(path, self._end_of_snapshot)
        self._max_bytes = int(config.metadata_log_max_record_bytes_between_snapshots)  # fixed before start
        loaded = LogLoader(
            fs,
            path,
            TOPIC_PARTITION,
            topic_config,
            clock,
            log_start_offset=self._end_of_snapshot,
            recovery_point=0,
            clean_shutdown=False,
            producer_id_expiration_ms=86_400_000,
        ).load()
        self._log = Log(fs, path, TOPIC_PARTITION, topic_config, clock, self._scheduler, loaded)
        #: The epoch of the last batch; -1 in an empty log. Owner: event thread
        self.epoch = max(self._log.latest_epoch, -1 if found is None else found[0].epoch)

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
            for offset, records in self.replay():
                editor.apply_all(records, offset)
                offset += len(records)
            image = editor.image()
            image.invariants()
        except OSError:
            raise
        except Exception as error:  # Why all: no record may end the controller without a clear error line
            raise DirectoryError(unreadable(self._file_of(offset), offset, error)) from error
        return image

    def _file_of(self, offset: int) -> str:
        bases = [segment.base_offset for segment in self._log.segments if segment.base_offset <= offset]
        return segment_file(self._log.directory, max(bases, default=0), LOG_SUFFIX)

    def replay(self) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """Yield each batch: the offset of its first record, and its records."""
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            data = self._read(offset)
            before = offset
            for position, header in iter_headers(data):
                if not header.is_control:
                    batch = data[position : position + header.size_in_bytes]
                    yield header.base_offset, list(decode_values(iter_records(batch)))
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

    def bootstrap_records(self) -> list[MetadataRecord]:
        """Return the first records of an empty log (bootstrap.py); raises DirectoryError."""
        return bootstrap_records(self._fs, self._root)

    def open_epoch(self) -> None:
        """Begin a new epoch; the next append makes it durable."""
        self.epoch = max(self.epoch, 0) + 1

    def encode(self, records: Sequence[MetadataRecord]) -> bytearray:
        """Return records as one batch for the next `append` (rule 1); changes nothing.

        Raises ApiError(RECORD_LIST_TOO_LARGE), and EncodeError for a value that a record cannot hold.
        """
        now_ms = self._clock.wall_ms()
        encoded: list[SimpleRecord] = []
        size = 0
        for record in records:
            value = encode_record(record)
            size += len(value)
            if size > BATCH_BYTES_MAX:  # Why inside the loop: an oversized batch is never built
                raise ApiError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"The records of this change take more than {BATCH_BYTES_MAX} bytes of the metadata log.",
                )
            encoded.append(SimpleRecord(now_ms, None, value))
        return bytearray(build_batch(encoded, base_offset=self._log.log_end_offset, leader_epoch=self.epoch))

    def append(self, batch: bytearray) -> int:
        """Append a batch from `encode`; return the offset of its first record."""
        base_offset = self._log.log_end_offset
        self._log.append_as_leader(memoryview(batch), leader_epoch=self.epoch, origin=AppendOrigin.RAFT_LEADER)
        return base_offset

    def flush(self) -> None:
        """Make everything appended durable (rule 2)."""
        self._log.flush()
        self._durable_end.write(self._log.log_end_offset)
        self._scheduler.run_due()

    @property
    def is_long(self) -> bool:
        """Whether a snapshot is due."""
        return self._log.size_in_bytes > self._max_bytes

    def write_snapshot(self, image: Image) -> int:
        """Replace the log by a snapshot of `image`, the last flushed image (rule 3); returns the snapshot's bytes."""
        directory = self._log.directory
        before = list_snapshots(self._fs, directory)
        snapshot = write_snapshot(self._fs, directory, image, self.epoch, self._clock.wall_ms())
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
        return self._fs.size(f"{directory}/{snapshot.file_name}")

    def close(self) -> None:
        """Flush and close the files."""
        self._log.close()
