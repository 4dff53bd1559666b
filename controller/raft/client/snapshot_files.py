"""The snapshots of a replica: `<end offset>-<epoch>.checkpoint` beside the segments, and one that is being fetched.

Rules
1. A snapshot that is fetched grows in a file with the suffix `.part`. It gets its name when it replaces the log, and no
   earlier: the newest snapshot counts at the next start.
2. After its header, a snapshot under kraft.version 1 has the version and the voters. One without them leaves the voters
   of the configuration.
3. A file counts only if it is whole: its last batch is the footer, and all checksums are right.

Format: see metadata/snapshot.py.

Threads: the raft thread; `write` by the thread that takes a snapshot.

Source: FileRawSnapshotWriter, RecordsSnapshotWriter, KafkaMetadataLog (Kafka 4.3); KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.common.disk.files import FileHandle, FileSystem
from barnabas.controller.metadata.record_batches import checked_batches, decode_values
from barnabas.controller.metadata.snapshot import SnapshotId, is_footer, list_snapshots, write_snapshot
from barnabas.controller.raft.batches import control_record, control_records
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.voter_set import VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord, VotersRecord
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.records.batch import iter_records
from barnabas.protocol.records.compression import Buffer

PART_SUFFIX: Final = ".part"


class SnapshotFile:
    """A whole snapshot (a LoadedSnapshot of interface.py)."""

    __slots__ = ("_fs", "id", "is_awaited", "path")

    def __init__(self, fs: FileSystem, path: str, snapshot: OffsetAndEpoch) -> None:
        self._fs = fs
        self.path = path
        self.id = snapshot
        #: Whether the listener has it and has not read it yet. The raft thread sets it, and the reader clears it.
        self.is_awaited = False

    def records(self) -> Iterator[MetadataRecord]:
        """Decode the metadata records; raises MalformedMessageError."""
        content = self._fs.read_bytes(self.path)
        self.is_awaited = False
        for header, batch in checked_batches(content):
            if not header.is_control:
                yield from decode_values(iter_records(batch))


class SnapshotFiles:
    """The snapshots in the directory of the log."""

    def __init__(self, fs: FileSystem, directory: str, bootstrap: Membership) -> None:
        self._fs = fs  # fixed before start
        self._directory = directory  # fixed before start
        self._bootstrap = bootstrap  # fixed before start
        self._part: FileHandle | None = None  # owner: raft thread; of the snapshot that is being fetched
        self._handed_over: list[SnapshotFile] = []  # owner: raft thread; some of them may be read already
        for name in [entry.name for entry in fs.listdir(directory) if entry.name.endswith(PART_SUFFIX)]:
            fs.unlink(f"{directory}/{name}")  # Why: a fetch begins again after a start

    def path(self, snapshot: OffsetAndEpoch) -> str:
        """Return the path of a snapshot."""
        return f"{self._directory}/{SnapshotId(*snapshot).file_name}"

    def newest(self) -> tuple[SnapshotFile, Membership] | None:
        """Return the newest whole snapshot, and the voters in it (rule 3)."""
        for found in sorted(list_snapshots(self._fs, self._directory), reverse=True):
            snapshot = OffsetAndEpoch(*found)
            membership = self._membership(self._fs.read_bytes(self.path(snapshot)), snapshot)
            if membership is not None:
                return SnapshotFile(self._fs, self.path(snapshot), snapshot), membership
        return None

    def _membership(self, data: bytes, snapshot: OffsetAndEpoch) -> Membership | None:
        version, voters = self._bootstrap.kraft_version, None
        is_complete = False
        try:
            for header, batch in checked_batches(data):
                is_complete = header.is_control and is_footer(batch)
                for record in control_records(batch) if header.is_control else ():
                    if isinstance(record, KRaftVersionRecord):
                        version = record.kraft_version
                    elif isinstance(record, VotersRecord):
                        voters = VoterSet.from_record(record)
        except MalformedMessageError:
            return None
        if not is_complete:
            return None
        # Why the end: where the record was is not in the file; that it is committed counts.
        return self._bootstrap if voters is None else Membership(snapshot.offset - 1, version, voters)

    def write(
        self,
        snapshot: OffsetAndEpoch,
        records: Iterable[MetadataRecord],
        membership: Membership,
        now_ms: int,
    ) -> int:
        """Write a snapshot (rule 2); it survives a power cut on return. Returns its size in bytes.

        Raises SnapshotWriteError.
        """
        control = []
        if membership.kraft_version > 0:
            version = KRaftVersionRecord(version=0, kraft_version=membership.kraft_version)
            control = [control_record(record, now_ms) for record in (version, membership.voters.to_record())]
        return write_snapshot(self._fs, self._directory, SnapshotId(*snapshot), records, now_ms, control)

    # The one that is being fetched

    def write_part(self, snapshot: OffsetAndEpoch, position: int, data: Buffer) -> None:
        """Write a part; at position 0 an earlier attempt is discarded."""
        if position == 0 or self._part is None:
            self.discard_part()
            self._part = self._fs.open(self.path(snapshot) + PART_SUFFIX, create=True)
        self._part.pwrite(data, position)

    def load_part(self, snapshot: OffsetAndEpoch) -> Membership | None:
        """Make the fetched snapshot durable and return the voters in it; None if it is damaged (rule 3)."""
        if self._part is None or self._part.path != self.path(snapshot) + PART_SUFFIX:
            return None
        self._part.fsync()
        return self._membership(self._fs.read_bytes(self._part.path), snapshot)

    def adopt_part(self, snapshot: OffsetAndEpoch) -> SnapshotFile:
        """Give the fetched snapshot its name (rule 1); it survives a power cut on return."""
        part, self._part = self._part, None
        assert part is not None, "it was loaded before"
        part.close()
        self._fs.rename(part.path, self.path(snapshot))
        self._fs.fsync_dir(self._directory)
        return SnapshotFile(self._fs, self.path(snapshot), snapshot)

    def discard_part(self) -> None:
        """Remove what was fetched of a snapshot."""
        part, self._part = self._part, None
        if part is not None:
            part.close()
            self._fs.unlink(part.path)

    # Others' fetches, and the end

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the size of a snapshot and its bytes from `position` on; None if it does not exist."""
        try:
            handle = self._fs.open(self.path(snapshot))
        except FileNotFoundError:
            return None
        try:
            size = handle.size()
            return size, handle.pread(max_bytes, position) if 0 <= position < size else b""
        finally:
            handle.close()

    def hand_over(self, snapshot: SnapshotFile) -> SnapshotFile:
        """Keep a snapshot until its reader has read it: that may take longer than the next snapshot needs to come."""
        snapshot.is_awaited = True
        self._handed_over = [found for found in self._handed_over if found.is_awaited] + [snapshot]
        return snapshot

    def delete_older(self, than: OffsetAndEpoch) -> None:
        """Delete the snapshots before this one, except those that are still to be read; the next call deletes them."""
        awaited = {found.id for found in self._handed_over if found.is_awaited}
        for found in map(OffsetAndEpoch._make, list_snapshots(self._fs, self._directory)):
            if found.offset < than.offset and found not in awaited:
                self._fs.unlink(self.path(found))
