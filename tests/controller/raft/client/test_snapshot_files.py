"""Snapshots on disk: the voters in them, damage, and one that is being fetched."""

from __future__ import annotations

import pytest

from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.raft.client.snapshot_files import SnapshotFiles
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from tests.controller.raft.client.rig import config_record, voters_of

ID = OffsetAndEpoch(5, 2)
STATIC = voters_of(9, kraft_version=0)


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    return fs


def files(fs: MemoryFileSystem) -> SnapshotFiles:
    return SnapshotFiles(fs, "/log", STATIC)


def test_a_snapshot_has_its_records_and_voters(fs: MemoryFileSystem) -> None:
    dynamic = voters_of(1, 2)
    size = files(fs).write(ID, [config_record("a")], dynamic, 1)
    found = files(fs).newest()
    assert found is not None
    snapshot, membership = found
    assert (snapshot.id, list(snapshot.records())) == (ID, [config_record("a")])
    assert (membership.offset, membership.kraft_version, membership.voters) == (4, 1, dynamic.voters)
    assert fs.size(snapshot.path) == size


def test_a_snapshot_may_be_deleted_as_soon_as_it_has_its_name(fs: MemoryFileSystem) -> None:
    """The event thread writes one while the raft thread lets a newer one, of the leader, replace the log."""
    found = files(fs)

    class Replacing(MemoryFileSystem):
        def fsync_dir(self, path: str) -> None:
            super().fsync_dir(path)
            SnapshotFiles(self, "/log", STATIC).delete_older(OffsetAndEpoch(9, 2))

    replacing = Replacing()
    replacing.mkdir("/log")
    size = files(replacing).write(ID, [config_record("a")], voters_of(1), 1)
    assert size == found.write(ID, [config_record("a")], voters_of(1), 1)
    assert files(replacing).newest() is None


def test_static_voters_are_not_in_it(fs: MemoryFileSystem) -> None:
    files(fs).write(ID, [], STATIC, 1)
    found = files(fs).newest()
    assert found is not None
    assert found[1] == STATIC


def test_a_damaged_snapshot_does_not_count(fs: MemoryFileSystem) -> None:
    path = files(fs).path(ID)
    files(fs).write(ID, [config_record("a")], voters_of(1), 1)
    content = fs.read_bytes(path)
    for damaged in (content[:-1], content[:30], b"", content[:-3] + b"abc", content[: len(content) // 2]):
        fs.write_bytes(path, damaged, sync=True)
        assert files(fs).newest() is None


def test_a_fetched_snapshot_counts_once_it_replaces_the_log(fs: MemoryFileSystem) -> None:
    source = MemoryFileSystem()
    source.mkdir("/log")
    files(source).write(ID, [config_record("a")], voters_of(1), 1)
    content = source.read_bytes(files(source).path(ID))
    fetching = files(fs)
    fetching.write_part(ID, 0, b"an earlier attempt that is longer than the snapshot will be" * 100)
    fetching.write_part(ID, 0, content[:9])
    fetching.write_part(ID, 9, content[9:])
    assert fetching.load_part(OffsetAndEpoch(6, 2)) is None
    assert fetching.load_part(ID) == voters_of(1)._replace(offset=4)
    assert fetching.newest() is None
    fetching.adopt_part(ID)
    assert files(fs.crash(names_survive=False)).newest() is not None


def test_parts_are_forgotten_at_the_next_start(fs: MemoryFileSystem) -> None:
    files(fs).write_part(ID, 0, b"part")
    files(fs)
    assert fs.listdir("/log") == []


def test_parts_of_a_snapshot_are_read(fs: MemoryFileSystem) -> None:
    stored = files(fs)
    size = stored.write(ID, [], voters_of(1), 1)
    whole = fs.read_bytes(stored.path(ID))
    assert stored.read(ID, 3, 4) == (size, whole[3:7])
    assert stored.read(ID, size, 4) == (size, b"")
    assert stored.read(OffsetAndEpoch(4, 2), 0, 4) is None
    stored.write(OffsetAndEpoch(6, 2), [], voters_of(1), 1)
    stored.delete_older(OffsetAndEpoch(6, 2))
    assert stored.read(ID, 0, 1) is None


def test_a_snapshot_that_its_reader_has_not_read_yet_is_kept(fs: MemoryFileSystem) -> None:
    stored = files(fs)
    later = OffsetAndEpoch(6, 2)
    stored.write(ID, [config_record("a")], voters_of(1), 1)
    found = stored.newest()
    assert found is not None
    awaited = stored.hand_over(found[0])
    stored.write(later, [], voters_of(1), 1)
    stored.delete_older(later)
    assert list(awaited.records()) == [config_record("a")]
    stored.delete_older(later)
    assert not fs.exists(awaited.path)
    assert fs.exists(stored.path(later))
