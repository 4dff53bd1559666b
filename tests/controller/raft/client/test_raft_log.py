"""The log on disk: what a crash at each of its operations leaves, and what a start refuses."""

from __future__ import annotations

import pytest

from barnabas.common.disk.faulty_files import DiskFaultError, FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.snapshot import SnapshotWriteError
from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.client.raft_log import RaftLog
from barnabas.controller.raft.effects import Persist
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.protocol.errors import ApiError
from barnabas.protocol.records.batch import set_offset_and_epoch
from tests.controller.raft.client.rig import batch_of, config_record, open_log, voters_of
from tests.controller.rig import DIRECTORY

VOTERS = voters_of(1, 2, 3)
LOG = f"{DIRECTORY}/__cluster_metadata-0"


def data_batch(offset: int, epoch: int, *names: str) -> Batch:
    data = batch_of(*names)
    set_offset_and_epoch(data, offset, epoch)
    return Batch(offset, offset + len(names) - 1, epoch, (), data)


def voters_batch(offset: int, epoch: int) -> Batch:
    return Batch(offset, offset, epoch, (voters_of(1, 2).voters.to_record(),), None)


def append(log: RaftLog, batch: Batch) -> None:
    log.append([batch])
    log.flush()


def fetched_snapshot() -> tuple[OffsetAndEpoch, bytes]:
    """A snapshot of another replica."""
    fs = MemoryFileSystem()
    other = open_log(fs, VOTERS)
    snapshot = OffsetAndEpoch(10, 3)
    other.snapshots.write(snapshot, [config_record("x")], VOTERS, 1)
    return snapshot, fs.read_bytes(other.snapshots.path(snapshot))


FETCHED = fetched_snapshot()


def fetch_snapshot(log: RaftLog) -> None:
    snapshot, content = FETCHED
    log.snapshots.write_part(snapshot, 0, content[:50])
    log.snapshots.write_part(snapshot, 50, content[50:])
    assert log.snapshots.load_part(snapshot) is not None
    log.replace(snapshot)


def take_snapshot(log: RaftLog) -> None:
    snapshot = OffsetAndEpoch(12, 4)
    log.snapshots.write(snapshot, [config_record("x"), config_record("y")], VOTERS, 1)
    log.delete_prefix(snapshot)


#: What a replica does to its log, and the epoch and end offset after it.
LIFE = [
    (lambda log: append(log, data_batch(0, 1, "a", "b")), (1, 2)),
    (lambda log: append(log, voters_batch(2, 1)), (1, 3)),
    (lambda log: append(log, data_batch(3, 2, "c", "d", "e")), (2, 6)),
    (lambda log: log.truncate(3), (1, 3)),
    (lambda log: append(log, data_batch(3, 3, "f")), (3, 4)),
    (fetch_snapshot, (3, 10)),
    (lambda log: append(log, data_batch(10, 4, "y", "z")), (4, 12)),
    (take_snapshot, (4, 12)),
    (lambda log: append(log, data_batch(12, 4, "g")), (4, 13)),
]


def live(fs: FileSystem) -> int:
    """Live until the disk fails; return how many steps are done."""
    done = -1
    try:
        log = open_log(fs, VOTERS)
        done = 0
        for step, _ in LIFE:
            step(log)
            done += 1
    except (DiskFaultError, SnapshotWriteError, ApiError):
        pass
    return done


@pytest.mark.parametrize("end", ["kill", "power cut", "power cut that loses names"])
def test_a_crash_leaves_a_log_from_before_or_after_the_step(end: str) -> None:
    whole = FaultyFileSystem(MemoryFileSystem())
    assert live(whole) == len(LIFE)
    states = [(0, 0), *(state for _, state in LIFE)]
    for fail_at in range(1, whole.operations + 1):
        inner = MemoryFileSystem()
        done = live(FaultyFileSystem(inner, fail_at=fail_at))
        after = inner.kill() if end == "kill" else inner.crash(names_survive=end == "power cut")
        log = open_log(after, VOTERS)
        allowed = {states[max(done, 0)], states[min(max(done, 0) + 1, len(LIFE))]}
        found = log.outline.end
        assert (found.epoch, found.offset) in allowed, f"operation {fail_at}, after {done} steps"
        append(log, data_batch(found.offset, 9, "later"))
        again = open_log(after.kill(), VOTERS)
        assert again.outline.end == OffsetAndEpoch(found.offset + 1, 9)


def test_the_voters_are_those_of_the_last_record() -> None:
    fs = MemoryFileSystem()
    log = open_log(fs, VOTERS)
    append(log, voters_batch(0, 1))
    assert [node.key.id for node in open_log(fs.kill(), VOTERS).outline.voters] == [1, 2]


def test_the_first_voters_come_from_the_snapshot_that_kafka_storage_writes() -> None:
    fs = MemoryFileSystem()
    first = open_log(fs, VOTERS)
    first.snapshots.write(OffsetAndEpoch(0, 0), [], voters_of(7), 1)
    log = open_log(fs.kill(), voters_of(kraft_version=0))
    assert [node.key.id for node in log.outline.voters] == [7]
    assert log.outline.membership.offset == -1
    assert (log.outline.snapshot, log.outline.end_offset) == (None, 0)
    append(log, data_batch(0, 1, "a"))


def test_a_damaged_quorum_state_is_an_error() -> None:
    fs = MemoryFileSystem()
    log = open_log(fs, VOTERS)
    assert log.election() is None
    log.persist(Persist(ElectionState(7, None, None), 1, ()))
    assert open_log(fs.kill(), VOTERS).election() == ElectionState(7)
    fs.write_bytes(f"{LOG}/quorum-state", b"{", sync=True)
    with pytest.raises(DirectoryError, match="quorum-state cannot be read"):
        open_log(fs, VOTERS).election()


def test_a_lost_record_is_an_error() -> None:
    fs = MemoryFileSystem()
    log = open_log(fs, VOTERS)
    append(log, data_batch(0, 1, "a"))
    append(log, data_batch(1, 1, "b"))
    path = f"{LOG}/{0:020d}.log"
    content = fs.read_bytes(path)
    fs.write_bytes(path, content[:-1], sync=True)
    with pytest.raises(DirectoryError, match="damaged at offset 1"):
        open_log(fs.kill(), VOTERS)


def test_an_unflushed_append_that_began_a_segment_is_a_torn_tail() -> None:
    fs = MemoryFileSystem()
    log = open_log(fs, VOTERS)
    append(log, data_batch(0, 1, "a"))
    log.append([data_batch(1, 1, "b")])
    log._log.roll()
    log.append([data_batch(2, 1, "c")])
    again = open_log(fs.crash(), VOTERS)
    assert again.outline.end == OffsetAndEpoch(1, 1)
    append(again, data_batch(1, 2, "d"))


def test_committed_batches_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.controller.raft.client.raft_log.READ_BYTES", 1)
    log = open_log(MemoryFileSystem(), VOTERS)
    for offset in range(3):
        append(log, data_batch(offset, 1, f"n{offset}"))
    found = list(log.committed(1, 3))
    assert [[batch.base_offset for batch in part] for part in found] == [[1], [2]]
