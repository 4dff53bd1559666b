"""LocalClient: the metadata log of a single controller, as the quorum of one that it is.

It has the methods of a `RaftClient` (controller/raft/client/interface.py), but no thread: a group of batches is
committed when the caller flushes it. The listener is called within `start` and `flush`.

Rules
1. Each start opens the next epoch. The controller's first record makes it durable.
2. What is on disk at the start is committed: nobody else can take it back.

Threads: main starts it; then the event thread owns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.controller.metadata.snapshot import image_records
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, RaftListener
from barnabas.controller.raft.client.status import Member, RaftStatus
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.controller.image import Image
    from barnabas.controller.metadata.metadata_log import MetadataLog
    from barnabas.protocol.metadata_records import MetadataRecord


class ReplayedLog:
    """What was on disk at the start: a `LoadedSnapshot` whose image is known already."""

    def __init__(self, image: Image, epoch: int, path: str, log_bytes: int) -> None:
        self.image = image
        self.path = path
        #: The bytes of the log that no snapshot replaces yet.
        self.log_bytes = log_bytes
        self.id = OffsetAndEpoch(image.offset + 1, epoch)

    def records(self) -> Iterator[MetadataRecord]:
        """Return the records that make the image."""
        return image_records(self.image)


class LocalClient:
    """See the module."""

    def __init__(self, node_id: int, log: MetadataLog) -> None:
        self._node_id = node_id  # fixed before start
        self._log = log  # fixed before start
        self._listener: RaftListener | None = None  # fixed before start
        self._appended: list[CommittedBatch] = []  # owner: event thread; not flushed yet

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """This node, and the epoch of this start."""
        return LeaderAndEpoch(self._node_id, self._log.epoch)

    def register(self, listener: RaftListener) -> None:
        """Let a listener have everything; before `start`, once."""
        self._listener = listener

    def start(self) -> None:
        """Replay the log and lead the next epoch; raises DirectoryError if the log cannot be read."""
        assert self._listener is not None
        image = self._log.image()
        self._listener.handle_load_snapshot(
            ReplayedLog(image, self._log.epoch, self._log.directory, self._log.size_in_bytes)
        )
        self._log.open_epoch()
        self._listener.handle_leader_change(self.leader_and_epoch)

    def append(self, epoch: int, batch: bytearray) -> int:
        """Append one record batch; return the offset of its last record.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER for another epoch, KAFKA_STORAGE_ERROR if the disk fails. After that
        the process must end.
        """
        if epoch != self._log.epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The epoch is {self._log.epoch}, not {epoch}.")
        base_offset = self._log.append(batch)
        last_offset = self._log.next_offset - 1
        self._appended.append(CommittedBatch(base_offset, last_offset, epoch, is_control=False, data=batch))
        return last_offset

    def flush(self) -> None:
        """Commit what was appended: make it durable, and report it to the listener."""
        if not self._appended:
            return
        self._log.flush()
        committed, self._appended = self._appended, []
        assert self._listener is not None
        self._listener.handle_commit(committed)

    def holds(self, offset: int, epoch: int) -> bool:
        """Return whether the log has the record of `epoch` at `offset` (MetadataLog.holds)."""
        return self._log.holds(offset, epoch)

    def create_snapshot(self, end_offset: int, records: Iterable[MetadataRecord], epoch: int) -> int | None:
        """Replace the log by a snapshot that ends at `end_offset`; return its bytes.

        Returns None, and does nothing, unless that is the end of the log. Raises SnapshotWriteError, after which the
        log goes on, and OSError of the log itself, after which the process must end.
        """
        if self._appended or end_offset != self._log.next_offset:
            return None
        try:
            return self._log.write_snapshot(OffsetAndEpoch(end_offset, epoch), records)
        except ApiError as error:  # the log raises it when its disk has failed
            raise OSError(str(error)) from error

    def status(self) -> RaftStatus:
        """Return the state of the quorum of one; any thread."""
        key, epoch, end_offset = ReplicaKey(self._node_id), self._log.epoch, self._log.next_offset
        appended = self._appended
        return RaftStatus(
            key=key,
            role="leader",
            epoch=epoch,
            leader_id=self._node_id,
            voted=key,
            high_watermark=appended[0].base_offset if appended else end_offset,
            end_offset=end_offset,
            end_epoch=epoch,
            kraft_version=0,
            voters=(Member(key, "", end_offset, 0, 0),),
        )

    def shutdown(self, timeout_ms: int) -> None:
        """Close the log; there is no voter to tell."""
        self._log.close()
