"""LocalClient: a single controller's log has the manners of a replicated one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.controller.metadata.local_client import LocalClient
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.metadata.record_batches import encode_batch
from barnabas.controller.metadata.snapshot import SnapshotWriteError
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from barnabas.protocol.push_tags import offset_of
from tests.controller.rig import DIRECTORY, FakeBroker, Rig, make_config


class Listener:
    """Notes what is reported."""

    def __init__(self) -> None:
        self.news: list[object] = []

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Note offsets."""
        self.news += [(batch.base_offset, batch.last_offset, batch.epoch) for batch in batches]

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Note the end and the records."""
        self.news.append((tuple(snapshot.id), list(snapshot.records())))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Note the leader."""
        self.news.append(leader)

    def begin_shutdown(self) -> None:
        """Nothing follows."""

    def take(self) -> list[object]:
        """Return the news since the last call."""
        news, self.news = self.news, []
        return news


FEATURE = FeatureLevelRecord(name="metadata.version", feature_level=30)


def started(fs: MemoryFileSystem | FaultyFileSystem) -> tuple[LocalClient, Listener]:
    listener = Listener()
    client = LocalClient(100, MetadataLog(DIRECTORY, make_config(), FakeClock(), fs))
    client.register(listener)
    client.start()
    return client, listener


def batch(*records: MetadataRecord) -> bytearray:
    return encode_batch(records, 0)


def test_it_replays_leads_and_commits_at_the_flush() -> None:
    fs = MemoryFileSystem()
    client, listener = started(fs)
    assert listener.take() == [((0, -1), []), LeaderAndEpoch(100, 1)]
    assert client.append(1, batch(FEATURE, NoOpRecord())) == 1
    assert client.append(1, batch(NoOpRecord())) == 2
    assert listener.take() == []
    client.flush()
    assert listener.take() == [(0, 1, 1), (2, 2, 1)]
    client.flush()
    assert listener.take() == []
    client.shutdown(0)
    again, listener = started(fs)
    assert listener.take() == [((3, 1), [FEATURE]), LeaderAndEpoch(100, 2)]
    assert again.leader_and_epoch == LeaderAndEpoch(100, 2)
    assert (again.holds(2, 1), again.holds(2, 2), again.holds(3, 1)) == (True, False, False)


def test_another_epoch_is_refused() -> None:
    client, _ = started(MemoryFileSystem())
    with pytest.raises(ApiError) as refused:
        client.append(2, batch(NoOpRecord()))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_snapshot_replaces_only_a_flushed_log_and_all_of_it() -> None:
    fs = MemoryFileSystem()
    client, listener = started(fs)
    client.append(1, batch(FEATURE, NoOpRecord()))
    assert client.create_snapshot(2, [FEATURE], 1) is None
    client.flush()
    assert client.create_snapshot(1, [FEATURE], 1) is None
    assert client.create_snapshot(2, [FEATURE], 1) == fs.size(
        "/meta/__cluster_metadata-0/00000000000000000002-0000000001.checkpoint"
    )
    client.shutdown(0)
    _, listener = started(fs)
    assert listener.take() == [((2, 1), [FEATURE]), LeaderAndEpoch(100, 2)]


def test_the_log_goes_on_without_a_snapshot_that_cannot_be_written() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk, sticky=False)
    client, _ = started(fs)
    client.append(1, batch(FEATURE))
    client.flush()
    before = {entry.name for entry in disk.listdir("/meta/__cluster_metadata-0")}
    fs.fail_at = fs.operations + 1
    with pytest.raises(SnapshotWriteError, match="checkpoint could not be written: injected fault: write"):
        client.create_snapshot(1, [FEATURE], 1)
    assert {entry.name for entry in disk.listdir("/meta/__cluster_metadata-0")} == before
    client.append(1, batch(FEATURE))
    client.flush()
    assert client.create_snapshot(2, [FEATURE], 1)


def test_a_log_that_fails_after_a_snapshot_ends_the_process() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), matches=lambda _, path: not path.endswith((".checkpoint", ".tmp")))
    client, _ = started(fs)
    client.append(1, batch(FEATURE))
    client.flush()
    fs.fail_at = fs.operations + 2  # the first one is the fsync of the directory, for the snapshot's name
    with pytest.raises(OSError):
        client.create_snapshot(1, [FEATURE], 1)


def live(fs: FileSystem) -> tuple[list[str], list[int]]:
    """Start twice, decide, push and take snapshots until the disk fails; return the topics answered and the pushes."""
    created: list[str] = []
    brokers: list[FakeBroker] = []
    try:
        fs.mkdir(DIRECTORY)
        for start in range(2):
            rig = Rig(fs, metadata_log_max_record_bytes_between_snapshots="1500")
            if not start:
                rig.join(1, 2)
            for name in (f"{start}-a", f"{start}-b", f"{start}-c"):
                rig.create(name, [[1, 2]])
                created.append(name)
                rig.push()
                rig.tick(1)
                brokers += [each for each in rig.brokers.values() if each not in brokers]
    except (OSError, ApiError):
        pass
    return created, [offset for broker in brokers for push in broker.take() if (offset := offset_of(push)) is not None]


def test_whatever_the_disk_fails_at_all_that_was_answered_or_pushed_survives_a_power_cut() -> None:
    whole = FaultyFileSystem(MemoryFileSystem())
    created, pushed = live(whole)
    assert len(created) == 6
    assert max(pushed) >= 8
    for fail_at in range(1, whole.operations + 1):
        disk = MemoryFileSystem()
        created, pushed = live(FaultyFileSystem(disk, fail_at=fail_at))
        survivor = disk.crash(names_survive=False)
        survivor.mkdir(DIRECTORY)
        log = MetadataLog(DIRECTORY, make_config(), FakeClock(), survivor)
        assert {topic.name for topic in log.image().topics.values()} >= set(created), fail_at
        assert max(pushed, default=-1) < log.next_offset, fail_at
        log.close()
