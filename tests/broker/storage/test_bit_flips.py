"""Flips every bit of every file of a log directory, one at a time, and starts a broker on it. (On uncompiled sources:
every third bit, so that each bit of a byte has its turn.)

The broker must refuse the directory in one clear line, or still know the same: records, aborted transactions, leader
epochs, the log's start, its topic. Its high watermark may be lower, and logs may be cleaned again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from barnabas.broker.replication.high_watermarks import HighWatermarks
from barnabas.broker.storage.cleaner.cleaner_manager import LogCleanerManager
from barnabas.broker.storage.directories.checkpoints import OffsetCheckpoint, format_partition_metadata
from barnabas.broker.storage.directories.names import HIGH_WATERMARK_FILE
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import (
    ControlType,
    SimpleRecord,
    build_batch,
    end_txn_marker,
    iter_headers,
)
from tests.broker.storage.test_log_manager import TOPIC_ID, Node
from tests.support.broker.storage_bench import Settings, consumed
from tests.support.sample import sample

TP = TopicPartition("flights", 0)
OTHER_TOPIC_ID = b"\x06" * 16
SETTINGS = Settings(segment_bytes=330, index_interval_bytes=100)
HIGH_WATERMARK, CLEAN_UP_TO, START = 9, 4, 1
HIGH_WATERMARKS, CLEANER_OFFSETS = f"/a/{HIGH_WATERMARK_FILE}", "/a/cleaner-offset-checkpoint"


class Writer:
    """Fills a log."""

    def __init__(self, node: Node, target: Log) -> None:
        self._node = node
        self._target = target
        self._sequences: dict[int, int] = {}

    def data(self, value: str, producer: int, epoch: int, *, in_transaction: bool = False) -> None:
        self._node.clock.advance_ms(1000)
        batch = build_batch(
            [SimpleRecord(self._node.clock.wall_ms(), b"k", value.encode())],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self._sequences.setdefault(producer, 0),
            is_transactional=in_transaction,
        )
        self._sequences[producer] += 1
        self._target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=epoch)

    def marker(self, kind: ControlType, producer: int, epoch: int) -> None:
        batch = end_txn_marker(
            kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self._node.clock.wall_ms()
        )
        self._target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=epoch, origin=AppendOrigin.COORDINATOR)


def new_node(fs: MemoryFileSystem | None = None) -> Node:
    return Node(fs, topic=SETTINGS, transaction_partition_verification_enable=False)


def written() -> MemoryFileSystem:
    """A log of several segments with transactions across segments, one of them still open at the end."""
    node = new_node().start()
    target = node.manager.get_or_create_log(TP, TOPIC_ID, SETTINGS, True)
    writer = Writer(node, target)
    writer.data("a", 1, 0)
    writer.data("b", 2, 0, in_transaction=True)
    writer.data("c", 1, 0)
    writer.data("d", 3, 2, in_transaction=True)
    writer.data("e", 4, 2, in_transaction=True)
    writer.marker(ControlType.ABORT, 2, 2)
    writer.data("f", 2, 2, in_transaction=True)
    writer.marker(ControlType.COMMIT, 3, 3)
    writer.marker(ControlType.ABORT, 2, 3)
    writer.data("g", 5, 3, in_transaction=True)
    writer.marker(ControlType.ABORT, 4, 3)
    writer.data("h", 1, 5)
    target.update_high_watermark(target.log_end_offset)
    target.maybe_increment_log_start_offset(START, "DeleteRecords")
    target.flush()
    node.manager.shutdown(7)
    assert isinstance(node.fs, MemoryFileSystem)
    OffsetCheckpoint(node.fs, HIGH_WATERMARKS).write({TP: HIGH_WATERMARK})
    OffsetCheckpoint(node.fs, CLEANER_OFFSETS).write({TP: CLEAN_UP_TO})
    return node.fs


FS = written()
PATHS = [
    f"{directory}/{entry.name}"
    for directory in ("/a", f"/a/{TP.topic}-{TP.partition}")
    for entry in FS.listdir(directory)
    if not entry.is_dir and FS.size(f"{directory}/{entry.name}")
]


@dataclass(frozen=True)
class Known:
    """The facts that a broker knows about the log."""

    start: int
    end: int
    stable: int
    epochs: list[tuple[int, int]]
    records: list[tuple[int, str]]
    committed: list[tuple[int, str]]
    offsets_by_time: list[object]


def known(target: Log) -> Known:
    target.update_high_watermark(target.log_end_offset)
    first_ms = 1_000 + new_node().clock.wall_ms()
    return Known(
        target.log_start_offset,
        target.log_end_offset,
        target.last_stable_offset,
        target.leader_epoch_cache.entries,
        list(consumed(target, FetchIsolation.LOG_END)),
        list(consumed(target, FetchIsolation.TXN_COMMITTED)),
        [target.fetch_offset_by_timestamp(first_ms + 500 * step) for step in range(0, 20, 3)],
    )


def started(fs: MemoryFileSystem) -> Node:
    """Start a broker on the directory; raises LogDirectoryError."""
    return new_node(fs).start()


def unclean(fs: MemoryFileSystem) -> MemoryFileSystem:
    fs.unlink("/a/.kafka_cleanshutdown")
    return fs


GOLDEN_NODE = started(FS.kill())
GOLDEN = known(GOLDEN_NODE.log(TP))
AFTER_A_CRASH = pytest.mark.parametrize("stop", [MemoryFileSystem.kill, lambda fs: unclean(fs.kill())])


def test_the_directory_has_all_kinds_of_files() -> None:
    names = {path.rpartition("/")[2] for path in PATHS}
    assert {name for name in names if not name[:20].isdigit()} == {
        ".boot_id",
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "log-start-offset-checkpoint.copy",
        "meta.properties",
        "partition.metadata",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "txn-index-checkpoint",
    }
    suffixes = [name[20:] for name in names if name[:20].isdigit()]
    assert set(suffixes) == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert GOLDEN.epochs == [(0, 1), (2, 3), (3, 7), (5, 11)]
    assert GOLDEN.records == [(1, "b"), (2, "c"), (3, "d"), (4, "e"), (6, "f"), (9, "g"), (11, "h")]
    assert GOLDEN.committed == [(2, "c"), (3, "d")]
    early = [
        (segment.base_offset, entry)
        for segment in GOLDEN_NODE.log(TP).segments
        for entry in segment.txn_index.entries()
        if entry.first_offset < segment.base_offset
    ]
    assert len(early) >= 2, early


def flipped(path: str, index: int, bit: int) -> bytes:
    damaged = bytearray(FS.read_bytes(path))
    damaged[index] ^= 1 << bit
    return bytes(damaged)


def all_bits(path: str) -> Iterator[bytes]:
    for number in sample(range(8 * FS.size(path)), 3):
        yield flipped(path, *divmod(number, 8))


def one_bit_a_byte(path: str) -> Iterator[bytes]:
    chance = random.Random(path)
    for index in range(FS.size(path)):
        yield flipped(path, index, chance.randrange(8))


def torn_and_zeroed(path: str) -> Iterator[bytes]:
    """Yield a file's beginning, then nothing or zeros; and zeros, then its end."""
    whole = FS.read_bytes(path)
    for kept in sample(range(len(whole)), 2):
        yield whole[:kept]
        yield whole[:kept] + bytes(len(whole) - kept)
        yield bytes(kept + 1) + whole[kept + 1 :]


DAMAGES = pytest.mark.parametrize("damages", [all_bits, torn_and_zeroed])
Damages = Callable[[str], Iterator[bytes]]


def on(path: str, content: bytes, stop: Callable[[MemoryFileSystem], MemoryFileSystem] = MemoryFileSystem.kill) -> Node:
    """Start a broker with this content in a file; raises LogDirectoryError."""
    fs = stop(FS)
    fs.write_bytes(path, content, sync=True)
    return started(fs)


def path_of(name: str) -> str:
    return next(path for path in PATHS if path.rpartition("/")[2] == name)


@DAMAGES
@AFTER_A_CRASH
@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_damaged_files_whose_content_is_also_stored_elsewhere(
    name: str, stop: Callable[[MemoryFileSystem], MemoryFileSystem], damages: Damages
) -> None:
    path = path_of(name)
    for content in damages(path):
        assert known(on(path, content, stop).log(TP)) == GOLDEN, content


@DAMAGES
@pytest.mark.parametrize("name", ["log-start-offset-checkpoint.copy", ".kafka_cleanshutdown", "txn-index-checkpoint"])
def test_damaged_files_that_no_result_depends_on(name: str, damages: Damages) -> None:
    path = path_of(name)
    for content in damages(path):
        assert known(on(path, content).log(TP)) == GOLDEN, content


def test_the_next_checkpoint_repairs_a_damaged_log_start_offset() -> None:
    path = path_of("log-start-offset-checkpoint")
    node = on(path, b"damaged")
    node.manager.checkpoint_log_start_offsets()
    assert node.fs.read_bytes(path) == FS.read_bytes(path)


def test_damaged_leader_epochs_are_written_again() -> None:
    path = path_of("leader-epoch-checkpoint")
    node = on(path, flipped(path, 4, 0))
    node.manager.shutdown()
    assert node.fs.read_bytes(path) == FS.read_bytes(path)


@DAMAGES
def test_high_watermarks_are_unchanged_or_unknown(damages: Damages) -> None:
    for content in damages(HIGH_WATERMARKS):
        node = on(HIGH_WATERMARKS, content)
        marks = HighWatermarks(node.manager, node.fs)
        assert marks.restored(node.log(TP), TP) in (0, HIGH_WATERMARK), content


@DAMAGES
def test_cleaned_offsets_are_unchanged_or_unknown(damages: Damages) -> None:
    for content in damages(CLEANER_OFFSETS):
        node = on(CLEANER_OFFSETS, content)
        cleaner = LogCleanerManager(node.fs, ["/a"], node.manager.all_logs, node.clock)
        assert cleaner.clean_up_to(node.log(TP)) in (None, CLEAN_UP_TO), content


@DAMAGES
def test_a_log_is_never_attributed_to_another_topic(damages: Damages) -> None:
    """Nor deleted as a stray: an unreadable topic id counts as none; the controller's id is compared with the rest."""
    path = path_of("partition.metadata")
    for content in damages(path):
        node = on(path, content)
        (target,) = node.manager.all_logs()
        assert target.topic_id in (None, TOPIC_ID), content
        if not format_partition_metadata(OTHER_TOPIC_ID).startswith(content.rstrip(b"\0")):
            with pytest.raises(ApiError, match=r"damaged|Tried to assign another topic ID") as refused:
                node.log(TP, OTHER_TOPIC_ID)
            assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        try:
            node.log(TP, TOPIC_ID)
        except ApiError:  # the remains of a file without its beginning may not show the topic
            assert content.startswith(b"\0"), content
        else:
            assert known(target) == GOLDEN
            assert target.topic_id == TOPIC_ID


@DAMAGES
def test_a_directory_whose_owner_cannot_be_read_is_refused(damages: Damages) -> None:
    path = path_of("meta.properties")
    identity = GOLDEN_NODE.manager.directories[0].directory_id
    refused: list[str] = []
    accepted = 0
    for content in damages(path):
        try:
            node = on(path, content)
        except LogDirectoryError as error:
            refused.append(str(error))
            continue
        (directory,) = node.manager.directories
        assert (directory.cluster_id, directory.directory_id) == ("cluster-a", identity), content
        accepted += 1
    assert all(re.fullmatch(r"no log directory can be used: /a: /a/meta\.properties .*", line) for line in refused)
    assert accepted <= 8 * len("#crc32c="), "the checksum is gone, the content is whole"


@DAMAGES
@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith((".index", ".timeindex"))])
def test_indexes_are_verified_against_the_log(path: str, damages: Damages) -> None:
    for content in damages(path):
        assert known(on(path, content).log(TP)) == GOLDEN, content


@pytest.mark.parametrize("damages", [one_bit_a_byte, torn_and_zeroed])
@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith(".snapshot")])
def test_producers_are_rebuilt_from_the_log(path: str, damages: Damages) -> None:
    for content in damages(path):
        assert known(on(path, content).log(TP)) == GOLDEN, content


@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith(".txnindex")])
def test_aborted_transactions_are_verified(path: str) -> None:
    for content in all_bits(path):
        assert known(on(path, content).log(TP)) == GOLDEN, content
    for content in torn_and_zeroed(path):
        assert known(on(path, content).log(TP)) == GOLDEN, content


@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith(".log")])
def test_damaged_batches_are_cut_off_or_refused(path: str) -> None:
    """After a crash recovery cuts them off; after a clean stop readers find their CRC wrong.

    What the CRC leaves out, base offset and leader epoch, is not looked at here.
    """
    whole = FS.read_bytes(path)
    bare = {at + byte for at, _ in iter_headers(whole) for byte in (*range(8), *range(12, 16))}
    first_read = next(at for at, header in iter_headers(whole) if header.last_offset >= START)
    for index in sample((index for index in range(len(whole)) if index not in bare), 2):
        content = flipped(path, index, index % 8)
        after_a_crash = known(on(path, content, crashed).log(TP))
        assert is_beginning(after_a_crash, GOLDEN), (index, after_a_crash)
        target = on(path, content).log(TP)  # the broker starts with any damage
        try:
            found = known(target)
        except (MalformedMessageError, ApiError):
            continue
        # It is never read, or the end of the last segment could not be scanned and was cut, as after a crash.
        assert found == GOLDEN if index < first_read else is_beginning(found, GOLDEN), (index, found)
        assert index < first_read or found.end < GOLDEN.end, (index, found)


def crashed(fs: MemoryFileSystem) -> MemoryFileSystem:
    """Start before anything was flushed: everything is recovered."""
    after = unclean(fs.kill())
    after.unlink(path_of("recovery-point-offset-checkpoint"))
    return after


def is_beginning(found: Known, whole: Known) -> bool:
    """Return whether only the end is missing; transactions that ended there are open again."""
    return (
        found.start == min(whole.start, found.end)
        and found.records == whole.records[: len(found.records)]
        and found.committed == whole.committed[: len(found.committed)]
        and found.epochs == whole.epochs[: len(found.epochs)]
    )
