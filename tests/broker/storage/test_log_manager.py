"""The log manager: identity, locks, creating, deleting, loading after clean and unclean stops, checkpoints, failures.

Tests `storage/log_manager.py`, `storage/log_registry.py`, `storage/log_opener.py`, `storage/log_removal.py`,
`storage/log_loading.py`, `storage/log_upkeep.py`, `storage/directories/log_directory.py`,
`storage/directories/log_directories.py` and `storage/directories/names.py`.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.broker.storage.log_manager import LogDirectoryError, LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import Buffer, Entry, FileHandle, FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.support.broker.storage_bench import LONG_MAX, Settings, contents
from tests.support.cycles import cyclic_garbage

TPS = [TopicPartition("flights", n) for n in range(4)]
TOPIC_ID = b"\x05" * 16


@dataclass
class BrokerSettings:
    """A broker's settings as the manager reads them."""

    num_recovery_threads_per_data_dir: int = 2
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    barnabas_record_validation: str = "full"
    barnabas_record_decompressed_max_bytes: int = 1 << 28
    cordoned_log_dirs: tuple[str, ...] = ()
    barnabas_stray_retention_ms: int = 604_800_000
    transaction_partition_verification_enable: bool = True
    topic: Settings = field(default_factory=Settings)

    def topic_config(self) -> Settings:
        return self.topic


class Node:
    """A broker's storage that can be stopped, killed and started."""

    def __init__(self, fs: FileSystem | None = None, dirs: tuple[str, ...] = ("/a",), **settings: object) -> None:
        self.fs = fs if fs is not None else MemoryFileSystem()
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.manager = LogManager(BrokerSettings(**settings), dirs, self.clock, self.scheduler, self.fs)

    def start(self) -> Node:
        if self.manager.open_directories(1) is None:
            self.manager.identify("cluster-a")
        self.manager.load_logs()
        self.manager.start()
        return self

    def append(self, target: Log, value: str) -> None:
        batch = build_batch([SimpleRecord(self.clock.wall_ms(), b"k", value.encode())])
        target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
        target.update_high_watermark(target.log_end_offset)

    def log(self, tp: TopicPartition, topic_id: bytes | None = TOPIC_ID) -> Log:
        return self.manager.get_or_create_log(tp, topic_id, Settings(), True)


def test_a_clean_stop_and_start() -> None:
    node = Node().start()
    for tp in TPS:
        node.append(node.log(tp), str(tp))
    node.manager.shutdown(broker_epoch=77)
    assert node.fs.exists("/a/.kafka_cleanshutdown")
    assert node.fs.read_bytes("/a/recovery-point-offset-checkpoint").startswith(b"0\n4\n")
    again = Node(node.fs).start()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")
    assert again.manager.directories[0].clean_shutdown_epoch == 77
    assert again.manager.previous_broker_epoch() == 77
    for tp in TPS:
        found = again.manager.get_log(tp)
        assert found is not None
        assert (contents(found), found.topic_id) == ([(0, str(tp))], TOPIC_ID)


def test_a_killed_broker_loses_nothing() -> None:
    node = Node().start()
    for number in range(5):
        node.append(node.log(TPS[0]), f"v{number}")
    assert isinstance(node.fs, MemoryFileSystem)
    again = Node(node.fs.kill()).start()
    assert [value for _, value in contents(again.log(TPS[0]))] == [f"v{n}" for n in range(5)]
    assert again.manager.directories[0].clean_shutdown_epoch is None
    assert again.manager.previous_broker_epoch() == -1


@pytest.mark.parametrize("epochs", [(5, None), (5, 6), (None, None), (5, -1)])
def test_a_stop_counts_as_clean_only_if_every_directory_has_the_marker_of_it(epochs: tuple[int | None, ...]) -> None:
    manager = Node(dirs=("/a", "/b")).start().manager
    for directory, epoch in zip(manager.directories, epochs, strict=True):
        directory.clean_shutdown_epoch = epoch
    assert manager.previous_broker_epoch() == -1


def test_a_stop_is_not_clean_if_a_directory_is_offline() -> None:
    manager = Node(dirs=("/a", "/b")).start().manager
    for directory in manager.directories:
        directory.clean_shutdown_epoch = 5
    assert manager.previous_broker_epoch() == 5
    manager.directories[0].failure = OSError("broken")
    assert manager.previous_broker_epoch() == -1


def test_a_directory_knows_whether_the_machine_has_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/a")
    directory = LogDirectory(fs, "/a")
    assert directory.may_have_lost_power(), "it was never used"
    directory.note_boot()
    assert not directory.may_have_lost_power()
    assert not LogDirectory(fs.kill(), "/a").may_have_lost_power()
    assert LogDirectory(fs.crash(), "/a").may_have_lost_power()
    monkeypatch.setattr(fs, "boot_id", lambda: "")
    assert directory.may_have_lost_power(), "nobody knows"


def with_unflushed_segments() -> tuple[MemoryFileSystem, TopicPartition]:
    """Offset 0 is flushed, 1 to 3 are not, and segments begin at 0, 2 and 3."""
    node = Node().start()
    target = node.log(TPS[0])
    node.append(target, "a")
    target.flush()
    node.manager.checkpoint_recovery_points()
    node.append(target, "b")
    for value in "cd":
        target.roll()
        node.append(target, value)
    assert isinstance(node.fs, MemoryFileSystem)
    return node.fs, TPS[0]


def test_a_loss_of_power_leaves_no_hole() -> None:
    fs, tp = with_unflushed_segments()
    after = fs.crash()
    assert len([entry for entry in after.listdir(f"/a/{tp.topic}-{tp.partition}") if entry.name.endswith(".log")]) == 3
    again = Node(after).start()
    target = again.log(tp)
    assert (target.log_end_offset, contents(target)) == (1, [(0, "a")])
    again.append(target, "e")
    killed_in_the_next_run = Node(after.kill()).start()
    assert contents(killed_in_the_next_run.log(tp)) == [(0, "a"), (1, "e")]


def test_a_kill_leaves_gaps_alone() -> None:
    """A truncation into a batch drops it whole, but not its offsets."""
    fs, tp = with_unflushed_segments()
    fs.unlink(f"/a/{tp.topic}-{tp.partition}/{2:020d}.log")
    assert contents(Node(fs.kill()).start().log(tp)) == [(0, "a"), (1, "b"), (3, "d")]


@pytest.mark.parametrize("name", ["cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_gaps_that_may_be_the_cleaners_are_left_alone(name: str) -> None:
    fs, tp = with_unflushed_segments()
    after = fs.crash()
    after.atomic_write(f"/a/{name}", f"0\n1\n{tp.topic} {tp.partition} 0\n".encode())
    if name.startswith("recovery"):
        after.atomic_write(f"/a/{name}", b"damaged")
    assert Node(after).start().log(tp).log_end_offset == 3


def test_a_compacted_log_is_flushed_before_the_next_segment_begins() -> None:
    node = Node().start()
    target = node.manager.get_or_create_log(TPS[0], TOPIC_ID, Settings(compact=True), True)
    node.append(target, "a")
    target.roll()
    assert isinstance(node.fs, MemoryFileSystem)
    assert contents(Node(node.fs.crash()).start().log(TPS[0])) == [(0, "a")]


def test_a_new_log_goes_to_the_directory_with_the_fewest() -> None:
    node = Node(dirs=("/a", "/b")).start()
    for tp in TPS:
        node.log(tp)
    assert [len(node.manager.logs_in(directory)) for directory in node.manager.directories] == [2, 2]
    assert node.log(TPS[0]) is node.log(TPS[0])


def test_cordoned_directories_get_no_logs_while_there_are_others() -> None:
    node = Node(dirs=("/a", "/b", "/c"), cordoned_log_dirs=("/a", "/c")).start()
    assert [node.manager.is_cordoned(directory) for directory in node.manager.directories] == [True, False, True]
    for tp in TPS[:3]:
        assert node.log(tp).directory.startswith("/b/")
    node.manager.fail_directory(node.manager.directories[1], OSError("gone"))
    made = node.manager.get_or_create_log(TPS[3], TOPIC_ID, Settings(), True)
    assert made.directory.startswith("/a/"), "all directories are cordoned, and the controller requires the log"
    assert all(map(Node(cordoned_log_dirs=("*",)).manager.is_cordoned, node.manager.directories))


def test_identity() -> None:
    node = Node().start()
    assert b"cluster.id=cluster-a\n" in node.fs.read_bytes("/a/meta.properties")
    with pytest.raises(LogDirectoryError, match="in use"):
        Node(node.fs).start()
    node.manager.shutdown()
    stranger = Node(node.fs)
    with pytest.raises(LogDirectoryError, match="belongs to node 1"):
        stranger.manager.open_directories(2)
    other = Node(node.fs)
    assert other.manager.open_directories(1) == "cluster-a"
    with pytest.raises(LogDirectoryError, match="belongs to cluster"):
        other.manager.identify("cluster-b")


def test_directory_ids_stay() -> None:
    node = Node(dirs=("/a", "/b")).start()
    ids = [directory.directory_id for directory in node.manager.directories]
    assert len(set(ids)) == 2
    node.manager.shutdown()
    assert [d.directory_id for d in Node(node.fs, ("/a", "/b")).start().manager.directories] == ids


def test_another_topic_of_the_same_name() -> None:
    node = Node().start()
    node.log(TPS[0])
    with pytest.raises(ApiError) as caught:
        node.log(TPS[0], b"\x06" * 16)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_deleted_logs_are_forgotten_at_once_and_their_files_removed_later() -> None:
    node = Node().start()
    node.append(node.log(TPS[0]), "old")
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    assert node.manager.get_log(TPS[0]) is None
    fresh = node.log(TPS[0], b"\x09" * 16)
    assert fresh.log_end_offset == 0
    assert [e.name for e in node.fs.listdir("/a") if e.name.endswith("-delete")]
    node.clock.advance_ms(60_000)
    node.scheduler.run_due()
    assert [e.name for e in node.fs.listdir("/a") if e.is_dir] == ["flights-0"]


def test_a_pending_deletion_is_finished_after_a_restart() -> None:
    node = Node().start()
    node.append(node.log(TPS[0]), "old")
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    assert isinstance(node.fs, MemoryFileSystem)
    again = Node(node.fs.kill()).start()
    assert again.manager.all_logs() == []
    again.clock.advance_ms(60_000)
    again.scheduler.run_due()
    assert not [e for e in again.fs.listdir("/a") if e.is_dir]


def test_other_directories_are_ignored() -> None:
    node = Node()
    for name in ("lost+found", "__cluster_metadata-0", "no_number-x"):
        node.fs.mkdir(f"/a/{name}")
    assert node.start().manager.all_logs() == []
    assert len([e for e in node.fs.listdir("/a") if e.is_dir]) == 3


def test_periodic_work() -> None:
    node = Node().start()
    target = node.log(TPS[0])
    target.update_config(Settings(retention_ms=1000, flush_ms=10))
    node.append(target, "old")
    target.flush()
    node.clock.advance_ms(300_000)
    node.scheduler.run_due()
    assert target.log_start_offset == 1
    assert b"flights 0 1" in node.fs.read_bytes("/a/recovery-point-offset-checkpoint")
    node.append(target, "new")
    node.clock.advance_ms(11)
    node.manager.flush_dirty_logs()
    assert target.recovery_point == 2


def test_truncations_are_checkpointed_at_once_and_together() -> None:
    node = Node().start()
    logs = [node.log(tp) for tp in TPS[:2]]
    for target in logs:
        for value in "abc":
            node.append(target, value)
        target.flush()
    node.manager.checkpoint_recovery_points()
    logs[0].truncate_to(1)
    logs[1].truncate_fully_and_start_at(0)
    assert node.scheduler.run_due() == 1
    assert b"flights 0 1\nflights 1 0" in node.fs.read_bytes("/a/recovery-point-offset-checkpoint")


def test_a_roll_after_a_truncation_flushes_until_the_checkpoint_has_the_truncation() -> None:
    flushed: list[str] = []

    def note(operation: str, path: str) -> bool:
        if operation == "fsync" and path.endswith(".log"):
            flushed.append(path.rpartition("/")[2])
        return False

    node = Node(FaultyFileSystem(MemoryFileSystem(), matches=note)).start()
    target = node.log(TPS[0])
    for value in "abc":
        node.append(target, value)
    target.flush()
    node.manager.checkpoint_recovery_points()
    target.truncate_to(1)
    flushed.clear()
    target.roll()
    assert flushed == ["00000000000000000000.log"]
    node.manager.checkpoint_recovery_points()
    node.append(target, "b")
    target.roll()
    assert flushed == ["00000000000000000000.log"]


def test_no_older_points_are_written_over_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncation is checkpointed while the periodic checkpoint, which has collected its points, waits."""
    node = Node().start()
    target = node.log(TPS[0])
    for value in "abc":
        node.append(target, value)
    target.flush()
    checkpoint = node.manager.directories[0].recovery_points
    write, newer = checkpoint.write, threading.Thread(target=node.manager.checkpoint_recovery_points)

    def slow_write(points: dict[TopicPartition, int]) -> None:
        if not newer.ident:
            target.truncate_to(1)
            newer.start()
            newer.join(0.2)  # without the lock it would write now
        write(points)

    monkeypatch.setattr(checkpoint, "write", slow_write)
    node.manager.checkpoint_recovery_points()
    newer.join()
    assert b"flights 0 1" in node.fs.read_bytes("/a/recovery-point-offset-checkpoint")


def test_log_start_offsets_survive() -> None:
    node = Node().start()
    target = node.log(TPS[0])
    for value in "abc":
        node.append(target, value)
    target.maybe_increment_log_start_offset(2, "test")
    node.manager.checkpoint_log_start_offsets()
    assert isinstance(node.fs, MemoryFileSystem)
    assert contents(Node(node.fs.kill()).start().log(TPS[0])) == [(2, "c")]


def test_a_damaged_checkpoint_costs_only_time() -> None:
    node = Node().start()
    node.append(node.log(TPS[0]), "v")
    node.manager.shutdown()
    node.fs.write_bytes("/a/recovery-point-offset-checkpoint", b"garbage", sync=True)
    assert contents(Node(node.fs).start().log(TPS[0])) == [(0, "v")]


def test_a_failed_directory_goes_offline_alone() -> None:
    inner = MemoryFileSystem()
    disk = FaultyFileSystem(inner, matches=lambda _operation, path: path.startswith("/a/"))
    node = Node(disk, ("/a", "/b"))
    failed: list[str] = []
    node.manager.on_directory_failure = lambda directory: failed.append(directory.path)
    node.start()
    logs = [node.log(tp) for tp in TPS]
    disk.fail_at = disk.operations + 1
    bad = [found for found in logs if found.directory.startswith("/a/")]
    good = [found for found in logs if found.directory.startswith("/b/")]
    for found in bad:
        with pytest.raises(ApiError) as caught:
            node.append(found, "x")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == ["/a"]
    for found in good:
        node.append(found, "x")
    new = TopicPartition("delays", 0)
    assert node.log(new).directory == "/b/delays-0"
    with pytest.raises(ApiError):
        node.manager.get_or_create_log(TopicPartition("unknown", 0), TOPIC_ID, Settings(), False)
    node.manager.shutdown()
    assert not inner.exists("/a/.kafka_cleanshutdown")
    assert inner.exists("/b/.kafka_cleanshutdown")


def test_loading_that_fails_takes_the_directory_offline() -> None:
    node = Node().start()
    node.append(node.log(TPS[0]), "v")
    node.manager.shutdown()
    disk = FaultyFileSystem(
        node.fs, fail_at=1, matches=lambda operation, path: "flights-0" in path or operation == "unlink"
    )
    again = Node(disk, ("/a", "/b"))
    again.manager.open_directories(1)
    assert again.manager.load_logs() == 0
    assert [directory.is_offline for directory in again.manager.directories] == [True, False]
    disk.fail_at = disk.operations + 1
    alone = Node(disk)
    again.manager.shutdown()
    alone.manager.open_directories(1)
    with pytest.raises(LogDirectoryError, match="no log directory can be used"):
        alone.manager.load_logs()


def test_a_start_without_a_usable_directory_is_refused() -> None:
    disk = FaultyFileSystem(
        MemoryFileSystem(), matches=lambda operation, path: operation == "mkdir" and "flights" in path
    )
    node = Node(disk).start()
    disk.fail_at = 1
    with pytest.raises(ApiError) as caught:
        node.log(TPS[0])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def directories_of(node: Node, path: str) -> list[str]:
    """Return the names of partitions' directories without their random parts."""
    return sorted(re.sub(r"\.\w+", "", entry.name) for entry in node.fs.listdir(path) if entry.is_dir)


def test_a_directory_that_is_broken_at_start_is_offline() -> None:
    fs = MemoryFileSystem()
    Node(fs, ("/a", "/b")).start().manager.shutdown()
    fs.write_bytes("/b/meta.properties", b"version=9\n", sync=True)
    node = Node(fs, ("/a", "/b")).start()
    assert [directory.is_offline for directory in node.manager.directories] == [False, True]
    assert node.log(TPS[0]).directory.startswith("/a/")
    node.manager.shutdown()
    fs.write_bytes("/a/meta.properties", b"version=9\n", sync=True)
    with pytest.raises(LogDirectoryError, match="no log directory can be used"):
        Node(fs, ("/a", "/b")).start()


def test_a_torn_log_that_waits_for_its_deletion_is_no_failure_of_the_disk() -> None:
    """Its records were never flushed, and the power was lost before it was deleted."""
    node = Node().start()
    for value in "ab":
        node.append(node.log(TPS[0]), value)
    node.log(TPS[0]).roll()
    node.append(node.log(TPS[0]), "c")
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    (doomed,) = [entry.name for entry in node.fs.listdir("/a") if entry.name.endswith("-delete")]
    assert isinstance(node.fs, MemoryFileSystem)
    after = node.fs.kill()
    path = f"/a/{doomed}/{0:020d}.log"
    whole = after.read_bytes(path)
    after.write_bytes(path, whole[: len(whole) // 2 + 22], sync=True)  # in the header of the second batch
    after.unlink(f"/a/{doomed}/{2:020d}.snapshot")
    again = Node(after).start()
    assert not again.manager.directories[0].is_offline
    assert again.manager.all_logs() == []
    again.clock.advance_ms(again.manager.get_or_create_log(TPS[1], TOPIC_ID, Settings()).config.file_delete_delay_ms)
    again.scheduler.run_due()
    assert [entry.name for entry in after.listdir("/a") if entry.is_dir] == ["flights-1"]


def test_a_directory_must_not_be_named_twice() -> None:
    with pytest.raises(LogDirectoryError, match="named twice"):
        Node(dirs=("/a", "/b", "/b/")).start()


def test_the_logs_of_a_failed_directory_are_forgotten() -> None:
    node = Node(dirs=("/a", "/b")).start()
    for tp in TPS:
        node.append(node.log(tp), "x")
    failed = node.manager.directories[0]
    node.manager.fail_directory(failed, OSError("gone"))
    lost = node.manager.forget_directory(failed)
    assert len(lost) == 2
    assert all(node.manager.get_log(tp) is None for tp in lost)
    kept = [found.topic_partition for found in node.manager.all_logs()]
    assert sorted([*lost, *kept]) == TPS
    with pytest.raises(ApiError) as caught:
        node.manager.get_or_create_log(lost[0], TOPIC_ID, Settings())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.log(lost[0]).directory.startswith("/b/"), "a new topic's log may be made where there is a disk"


def moving(node: Node) -> tuple[Log, Log]:
    """Return a log in /a and its future log in /b, which has all but the last record."""
    current = node.log(TPS[0])
    there = node.manager.directories[1] if current.directory.startswith("/a") else node.manager.directories[0]
    for number in range(5):
        node.append(current, f"v{number}")
    future = node.manager.create_future_log(TPS[0], there)
    copy(current, future)
    node.append(current, "v5")
    return current, future


def copy(source: Log, target: Log) -> None:
    while target.log_end_offset < source.log_end_offset:
        data = source.read(target.log_end_offset, 100, isolation=FetchIsolation.LOG_END, min_one_message=True)
        assert data.slice is not None
        target.append_as_follower(memoryview(data.slice.read()))


def test_a_log_moves_to_another_directory() -> None:
    node = Node(dirs=("/a", "/b")).start()
    current, future = moving(node)
    assert node.manager.future_log(TPS[0]) is future
    assert node.manager.create_future_log(TPS[0], node.manager.directories[1]) is future
    assert directories_of(node, "/b") == ["flights-0-future"]
    current.assign_epoch_start_offset(7, current.log_end_offset)
    copy(current, future)
    assert node.manager.swap_in_future(TPS[0]) is future is node.manager.get_log(TPS[0])
    assert node.manager.future_log(TPS[0]) is None
    assert (future.high_watermark, future.latest_epoch, future.topic_id) == (6, 7, TOPIC_ID)
    assert directories_of(node, "/b") == ["flights-0"]
    assert directories_of(node, "/a") == ["flights-0-delete"]
    node.append(future, "v6")
    node.clock.advance_ms(60_000)
    node.scheduler.run_due()
    assert directories_of(node, "/a") == []
    node.manager.shutdown()
    again = Node(node.fs, ("/a", "/b")).start()
    assert [value for _, value in contents(again.log(TPS[0]))] == [f"v{n}" for n in range(7)]


def test_a_move_continues_after_a_restart() -> None:
    node = Node(dirs=("/a", "/b")).start()
    moving(node)
    node.manager.shutdown()
    again = Node(node.fs, ("/a", "/b")).start()
    current, future = again.manager.get_log(TPS[0]), again.manager.future_log(TPS[0])
    assert current is not None
    assert future is not None
    assert (current.log_end_offset, future.log_end_offset) == (6, 5)
    again.manager.drop_future_log(TPS[0])
    assert directories_of(again, "/b") == ["flights-0-delete"]
    assert again.manager.future_log(TPS[0]) is None


@pytest.mark.parametrize("topic_id", [TOPIC_ID, bytes(15) + b"\x09"])
def test_a_copy_takes_the_place_of_a_log_whose_directory_is_gone(topic_id: bytes) -> None:
    """KAFKA-16082. An empty log beside it would truncate the copy, the only one there may be."""
    node = Node(dirs=("/a", "/b")).start()
    moving(node)
    node.manager.shutdown()
    again = Node(node.fs, ("/b",)).start()
    found = again.manager.get_or_create_log(TPS[0], topic_id, Settings())
    assert found.directory == "/b/flights-0"
    if topic_id == TOPIC_ID:
        assert [value for _, value in contents(found)] == [f"v{n}" for n in range(5)]
        assert again.manager.future_log(TPS[0]) is None
        assert directories_of(again, "/b") == ["flights-0"]
    else:
        assert found.log_end_offset == 0, "it is of another topic"


def test_a_deleted_partitions_future_log_is_deleted_too() -> None:
    node = Node(dirs=("/a", "/b")).start()
    moving(node)
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    assert [directories_of(node, path) for path in ("/a", "/b")] == [["flights-0-delete"]] * 2


def test_two_current_logs_after_a_crash_within_the_swap(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(dirs=("/a", "/b")).start()
    current, future = moving(node)
    copy(current, future)
    future.rename("flights-0")  # the crash happens before the old one is marked for deletion
    node.append(future, "v6")
    assert isinstance(node.fs, MemoryFileSystem)
    again = Node(node.fs.kill(), ("/a", "/b")).start()
    assert [value for _, value in contents(again.log(TPS[0]))] == [f"v{n}" for n in range(7)]
    assert directories_of(again, "/a") == ["flights-0-stray"]
    assert "flights-0 is in two log directories: /b/flights-0 is kept, not /a/flights-0" in caplog.text


def with_deleted_records(fs: MemoryFileSystem, dirs: tuple[str, ...]) -> Node:
    """TPS[1] in the last directory begins at offset 2, which only a checkpoint says."""
    node = Node(fs, dirs).start()
    node.manager.prefer_directory(TPS[1], node.manager.directories[-1])
    for value in "abc":
        node.append(node.log(TPS[1]), value)
    node.log(TPS[1]).maybe_increment_log_start_offset(2, "DeleteRecords")
    return node


def test_a_partition_in_two_directories_leaves_the_checkpoints_of_others_alone() -> None:
    fs, dirs = MemoryFileSystem(), ("/a", "/b", "/c")
    node = with_deleted_records(fs, dirs)
    node.manager.prefer_directory(TPS[0], node.manager.directories[0])
    current, future = moving(node)
    copy(current, future)
    future.rename("flights-0")  # the crash happens before the old one is marked for deletion
    node.manager.checkpoint_log_start_offsets()
    again = Node(fs.kill(), dirs).start()  # sets one aside before it loads the third directory
    assert contents(again.log(TPS[1])) == [(2, "c")]


def test_a_stop_before_all_logs_are_loaded_leaves_the_checkpoints_alone() -> None:
    node = with_deleted_records(MemoryFileSystem(), ("/a",))
    node.manager.checkpoint_log_start_offsets()
    assert isinstance(node.fs, MemoryFileSystem)
    after = node.fs.kill()
    stopped = Node(after)
    stopped.manager.open_directories(1)

    def refuse(_topic: str) -> Settings:
        raise LogDirectoryError("a person must fix it")

    with pytest.raises(LogDirectoryError):
        stopped.manager.load_logs(refuse)
    stopped.manager.shutdown()
    assert contents(Node(after).start().log(TPS[1])) == [(2, "c")]


def test_a_log_is_created_in_its_preferred_directory() -> None:
    node = Node(dirs=("/a", "/b")).start()
    for tp in TPS[:3]:
        node.manager.prefer_directory(tp, node.manager.directories[1])
        assert node.log(tp).directory.startswith("/b/")
    node.manager.prefer_directory(TPS[0], node.manager.directories[1])
    node.manager.delete_logs({TPS[0]: TOPIC_ID})
    assert node.log(TPS[0], b"\x09" * 16).directory.startswith("/a/"), "it was there already, so no preference was kept"


def test_preferred_directories_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.storage.log_registry.PREFERRED_MAX", 2)
    manager = Node(dirs=("/a", "/b")).start().manager
    for partition in (0, 1, 0, 1):
        manager.prefer_directory(TopicPartition("to-come", partition), manager.directories[1])
    with pytest.raises(ApiError):
        manager.prefer_directory(TopicPartition("to-come", 2), manager.directories[1])


def test_a_failed_directory_ends_moves_into_it() -> None:
    node = Node(dirs=("/a", "/b", "/c")).start()
    moving(node)
    target = node.manager.directories[1]
    node.manager.fail_directory(target, OSError("gone"))
    assert node.manager.forget_directory(target) == []
    assert node.manager.future_log(TPS[0]) is None
    with pytest.raises(ApiError) as caught:
        node.manager.create_future_log(TPS[0], node.manager.directories[2])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "the future log may lie in the failed directory"


class CountingFileSystem(MemoryFileSystem):
    """Counts reads of the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: Counter[str] = Counter()

    def listdir(self, path: str) -> list[Entry]:
        self.looks["listdir"] += 1
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        self.looks["exists"] += 1
        return super().exists(path)

    def size(self, path: str) -> int:
        self.looks["size"] += 1
        return super().size(path)

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        self.looks["open"] += 1
        return super().open(path, create=create)

    def read_bytes(self, path: str) -> bytes:
        self.looks["read_bytes"] += 1
        return super().read_bytes(path)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        self.looks["write_bytes"] += 1
        super().write_bytes(path, data, sync=sync)

    def fsync_dir(self, path: str) -> None:
        self.looks["fsync_dir"] += 1
        super().fsync_dir(path)


def test_creating_and_deleting_many_logs_needs_no_fsync_for_each() -> None:
    """So a topic of a thousand partitions takes a second, even if the disk's fsync is slow."""
    fs = FaultyFileSystem(MemoryFileSystem(), matches=lambda operation, _path: operation.startswith("fsync"))
    node = Node(fs).start()
    tps = [TopicPartition("many", index) for index in range(100)]
    before = fs.operations
    for tp in tps:
        node.log(tp).assign_epoch_start_offset(0, 0)
    node.clock.advance_ms(2000)
    node.scheduler.run_due()
    assert fs.operations == before
    assert node.manager.delete_logs(dict.fromkeys(tps, TOPIC_ID)) == {}
    assert fs.operations <= before + 5, "the directory, and the checkpoint of recovery points"
    assert node.manager.all_logs() == []


def test_deleted_logs_leave_no_cycles() -> None:
    node = Node(MemoryFileSystem()).start()
    tps = [TopicPartition("many", index) for index in range(50)]

    def make_and_delete() -> None:
        for tp in tps:
            node.append(node.log(tp), "v")
        assert node.manager.delete_logs(dict.fromkeys(tps, TOPIC_ID)) == {}
        node.clock.advance_ms(600_000)
        node.scheduler.run_due()

    assert cyclic_garbage(make_and_delete) < len(tps)


@pytest.mark.parametrize("seed", range(20))
def test_a_new_log_after_a_power_cut(seed: int) -> None:
    """One log was never flushed and may have lost its topic id; the other has a flushed record and must not."""
    fs = MemoryFileSystem()
    node = Node(fs).start()
    node.log(TPS[0])
    node.append(node.log(TPS[1]), "safe")
    node.log(TPS[1]).flush()
    after = fs.crash(random.Random(seed) if seed else None)
    again = Node(after).start()
    assert not any(directory.is_offline for directory in again.manager.directories)
    kept = again.manager.get_log(TPS[1])
    assert kept is not None
    assert kept.topic_id == TOPIC_ID
    assert contents(kept) == [(0, "safe")]
    found = again.log(TPS[0])  # the controller's push
    assert found.topic_id == TOPIC_ID
    assert contents(found) == []
    again.append(found, "first")
    again.manager.shutdown()
    assert [found.topic_id for found in Node(after).start().manager.all_logs()] == [TOPIC_ID] * 2


@pytest.mark.parametrize("seed", range(20))
def test_records_that_were_never_flushed_are_found_although_the_topic_id_was_torn(seed: int) -> None:
    fs = MemoryFileSystem()
    node = Node(fs).start()
    for tp in TPS[:2]:
        node.append(node.log(tp), "by luck")
    after = fs.crash(random.Random(seed) if seed else None)
    again = Node(after).start()
    for tp in TPS[:2]:
        survived = again.manager.get_log(tp)
        assert survived is not None
        before = contents(survived)
        found = again.log(tp)  # the controller's push
        assert (found, found.topic_id, contents(found)) == (survived, TOPIC_ID, before)
        again.append(found, "next")
        found.flush()
    assert {log.topic_id for log in Node(after.crash()).start().manager.all_logs()} == {TOPIC_ID}


def test_a_deletion_during_a_flush_is_no_disk_failure() -> None:
    node = Node().start()
    log = node.log(TPS[0])
    node.append(log, "v")
    log.rename_for_delete()
    log.flush()
    assert not log.is_offline
    assert not any(directory.is_offline for directory in node.manager.directories)


def test_a_clean_start_costs_a_log_a_few_small_reads() -> None:
    """So thousands of partitions start in seconds: a fixed number of reads for each, and no writes."""
    fs = CountingFileSystem()
    node = Node(fs).start()
    tps = [TopicPartition("many", index) for index in range(50)]
    for tp in tps:
        log = node.log(tp)
        for _ in range(20):
            node.append(log, "x" * 100)
    node.manager.shutdown()
    fs.looks.clear()
    again = Node(fs).start()
    assert len(again.manager.all_logs()) == len(tps)
    assert {look: round(count / len(tps)) for look, count in fs.looks.items() if count >= len(tps)} == {
        "listdir": 3,  # leftovers of a crash, segments, snapshots
        "open": 3,  # both indexes' last entries, the end of the segment
        "read_bytes": 3,  # leader epochs, topic id, producers
        "exists": 4,  # those two, the checksums and the index of transactions
        "size": 5,  # the segment, both indexes, and these again by their sanity checks
    }
    assert all(not segment.is_open for log in again.manager.all_logs() for segment in log.segments)


def test_a_new_log_costs_a_few_system_calls() -> None:
    """Nothing is looked for in a directory that was made just now."""
    fs = CountingFileSystem()
    node = Node(fs).start()
    fs.looks.clear()
    for index in range(50):
        node.log(TopicPartition("many", index))
    assert {look: count / 50 for look, count in fs.looks.items()} == {
        "open": 1,  # the first segment
        "write_bytes": 1,  # the topic id
    }


def test_a_log_whose_directory_is_there_already_is_loaded() -> None:
    """A directory that a crash left, or that a person put there."""
    fs = MemoryFileSystem()
    node = Node(fs).start()
    node.append(node.log(TPS[0]), "v0")
    again = Node(fs.kill())
    again.manager.open_directories(1)
    assert contents(again.log(TPS[0])) == [(0, "v0")]


def test_retention_waits_until_the_topics_settings_are_known() -> None:
    """A broker that starts without its controller must not apply retention to a compacted topic."""
    node = Node().start()
    for number in range(3):
        node.append(node.log(TPS[0]), f"v{number}")
        node.log(TPS[0]).roll()
    node.manager.shutdown()
    again = Node(node.fs, topic=Settings(retention_ms=1000)).start()
    again.clock.advance_ms(3_600_000)
    for target in again.manager.all_logs():
        target.update_high_watermark(3)
    assert again.manager.delete_old_segments() == 0
    found = again.log(TPS[0])  # the controller's push brings the settings
    assert len(contents(found)) == 3
    found.update_config(Settings(retention_ms=1000))
    assert again.manager.delete_old_segments() == 3


@pytest.mark.parametrize(("flush_messages", "kept"), [(1, [(0, "a")]), (LONG_MAX, [])])
def test_what_a_killed_process_did_not_flush_is_flushed_at_the_start(
    flush_messages: int, kept: list[tuple[int, str]]
) -> None:
    node = Node().start()
    target = node.log(TPS[0])
    target.flush()
    node.append(target, "a")
    assert isinstance(node.fs, MemoryFileSystem)
    again = Node(node.fs.kill(), topic=Settings(flush_messages=flush_messages)).start()
    assert isinstance(again.fs, MemoryFileSystem)
    assert contents(again.log(TPS[0])) == [(0, "a")]
    assert contents(Node(again.fs.crash()).start().log(TPS[0])) == kept


def test_idle_producers_are_looked_for_as_often_as_configured() -> None:
    node = Node(producer_id_expiration_ms=10_000, producer_id_expiration_check_interval_ms=500).start()
    target = node.log(TPS[0])
    record = SimpleRecord(node.clock.wall_ms(), b"k", b"v")
    batch = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=0)
    target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
    target.producer_state.producer_id_expiration_ms = 10_000
    assert target.producer_state.entry(7) is not None
    node.clock.advance_ms(10_500)
    node.scheduler.run_due()
    assert target.producer_state.entry(7) is None
