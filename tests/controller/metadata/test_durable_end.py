"""Flipped bits, and truncated or lost files: the controller starts with its whole log, or fails with one line.

It must never start with less: brokers would set the logs of the missing topics aside as strays. Also covers
`controller/metadata/metadata_directory.py`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from barnabas.broker.storage.directories.checkpoints import OffsetCheckpoint
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.controller.image import Image
from barnabas.controller.metadata.durable_end import DurableEnd
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.metadata.record_batches import encode_batch
from barnabas.protocol.metadata_records import FeatureLevelRecord
from tests.controller.rig import Rig, make_config
from tests.controller.test_quorum_controller import contents

DIRECTORY = "/meta/__cluster_metadata-0"
DURABLE_END = "/meta/recovery-point-offset-checkpoint"


def filled(*, with_snapshot: bool) -> tuple[MemoryFileSystem, Image]:
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0], [0]], retention_ms="7")
    if with_snapshot:
        rig.controller._snapshot_bytes = 100
        rig.controller.loop.step()
        rig.controller._snapshot_bytes = 1 << 20
    rig.create("u", [[0]])
    rig.controller.stop()
    assert isinstance(rig.fs, MemoryFileSystem)
    return rig.fs, rig.image


PLAIN = filled(with_snapshot=False)
SNAPSHOT = filled(with_snapshot=True)


def file_of(fs: MemoryFileSystem, suffix: str) -> str:
    (name,) = (entry.name for entry in fs.listdir(DIRECTORY) if entry.name.endswith(suffix))
    return f"{DIRECTORY}/{name}"


def flips(content: bytes) -> Iterator[bytes]:
    for index in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[index] ^= 1 << bit
            yield bytes(damaged)


def cuts(content: bytes) -> Iterator[bytes]:
    """Its beginning alone, or followed by zeros."""
    for kept in range(0, len(content), 9):
        yield content[:kept]
        yield content[:kept] + bytes(len(content) - kept)


def refusals(fs: MemoryFileSystem, path: str, contents_of_it: Iterator[bytes], image: Image) -> list[str]:
    """Start on every content of a file; what starts has the whole image."""
    lines: list[str] = []
    for content in contents_of_it:
        disk = fs.kill()
        disk.write_bytes(path, content, sync=True)
        try:
            again = Rig(disk)
        except DirectoryError as error:
            lines.append(str(error))
            assert disk.read_bytes(path) == content, "what is left is left alone"
        else:
            assert contents(again.image) == contents(image), content
    return lines


@pytest.mark.parametrize(("fs", "image"), [PLAIN, SNAPSHOT], ids=["log", "log behind a snapshot"])
def test_a_damaged_log_is_refused(fs: MemoryFileSystem, image: Image) -> None:
    path = file_of(fs, ".log")
    content = fs.read_bytes(path)
    lines = refusals(fs, path, flips(content), image) + refusals(fs, path, cuts(content), image)
    assert len(lines) > len(content)
    assert all("is damaged at offset" in line and "Restore it from a copy" in line for line in lines)
    assert all("barnabas controller recover" in line and "remove" not in line for line in lines), "no log is given up"


def test_a_damaged_snapshot_is_refused() -> None:
    fs, image = SNAPSHOT
    path = file_of(fs, ".checkpoint")
    content = fs.read_bytes(path)
    lines = refusals(fs, path, flips(content), image) + refusals(fs, path, cuts(content), image)
    assert len(lines) > len(content)
    assert all("its last whole snapshot ends at 0. Restore its .checkpoint file" in line for line in lines)


def test_without_a_durable_end_the_log_is_accepted_as_it_is() -> None:
    fs, image = PLAIN
    assert refusals(fs, DURABLE_END, flips(fs.read_bytes(DURABLE_END)), image) == []
    path = file_of(fs, ".log")
    disk = fs.kill()
    disk.unlink(DURABLE_END)
    disk.open(path).truncate(disk.size(path) - 1)
    assert set(Rig(disk).image.topic_ids) == {"t"}


def test_a_missing_log_is_refused() -> None:
    fs, _ = SNAPSHOT
    disk = fs.kill()
    disk.unlink(file_of(fs, ".log"))
    with pytest.raises(DirectoryError, match="batches are missing"):
        Rig(disk)


def test_the_written_end_is_never_beyond_the_durable_end() -> None:
    fs, image = PLAIN
    assert DurableEnd(fs, "/meta").read() == image.offset + 1
    for seed in range(30):
        assert DurableEnd(fs.crash(random.Random(seed)), "/meta").read() <= image.offset + 1


def test_beside_a_broker_the_end_is_in_a_file_of_its_own() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/meta/__cluster_metadata-0")
    alone, shared = DurableEnd(fs, "/meta"), DurableEnd(fs, "/meta", is_shared=True)
    alone.write(5)
    assert shared.read() == 5, "a controller became a node with both roles"
    shared.write(9)
    OffsetCheckpoint(fs, DURABLE_END).write({TopicPartition("t", 0): 3})  # the broker writes its own
    assert shared.read() == alone.read() == 9, "and the other way round"
    OffsetCheckpoint(fs, DURABLE_END).write({TopicPartition("__cluster_metadata", 0): 12})
    assert shared.read() == alone.read() == 9, "an entry that is too high would refuse a whole log"


def test_a_change_of_roles_leaves_no_old_entry_behind() -> None:
    """The log is cut after the change, and an entry from before it would count again after the next one."""
    fs, image = PLAIN
    end = image.offset + 1
    disk = fs.kill()
    OffsetCheckpoint(disk, DURABLE_END).write({TopicPartition("__cluster_metadata", 0): end, TopicPartition("t", 0): 3})
    shared = DurableEnd(disk, "/meta", is_shared=True)
    shared.check(DIRECTORY, 0)
    assert OffsetCheckpoint(disk, DURABLE_END).read() == {TopicPartition("t", 0): 3}, "the broker's are still there"
    assert shared.read() == end
    shared.lower(3)
    alone = DurableEnd(disk, "/meta")
    assert alone.read() == 3
    alone.check(DIRECTORY, 0)
    assert not disk.exists(f"{DIRECTORY}/recovery-point-offset-checkpoint")
    alone.lower(2)
    assert shared.read() == 2


def test_a_crash_while_an_entry_moves_lets_the_lower_one_count() -> None:
    fs, image = PLAIN
    end = image.offset + 1
    for operations in range(1, 20):
        disk = fs.kill()
        disk.write_bytes(DURABLE_END, fs.read_bytes(DURABLE_END), sync=True)
        faulty = FaultyFileSystem(disk)
        faulty.fail_at = faulty.operations + operations
        try:
            DurableEnd(faulty, "/meta", is_shared=True).check(DIRECTORY, 0)
        except OSError:
            for again in (disk.crash(), disk.kill()):
                assert DurableEnd(again, "/meta", is_shared=True).read() == end
                assert DurableEnd(again, "/meta").read() == end
        else:
            break
    else:
        raise AssertionError("it never came to its end")
    disk = fs.kill()
    DurableEnd(disk, "/meta", is_shared=True).write(2)  # as if the two were from different times
    assert DurableEnd(disk, "/meta").read() == 2
    assert DurableEnd(disk, "/meta", is_shared=True).read() == 2


def test_the_identity_of_the_directory() -> None:
    fs = MemoryFileSystem()
    MetadataDirectory.open(fs, "/meta", 100, "cluster-a").close()
    content = fs.read_bytes("/meta/meta.properties")
    accepted = 0
    for index in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[index] ^= 1 << bit
            fs.write_bytes("/meta/meta.properties", damaged, sync=True)
            try:
                found = MetadataDirectory.open(fs, "/meta", 100, "cluster-a")
            except DirectoryError:
                continue
            found.close()
            assert found.cluster_id == "cluster-a"
            accepted += 1
    assert accepted <= 8 * len("#crc32c="), "the checksum line went, the content is whole"


def test_an_unflushed_append_that_began_a_segment_is_a_torn_tail() -> None:
    """A power cut may keep the name of the new segment, and lose the end of the one before it."""
    fs = MemoryFileSystem()
    log = MetadataLog("/meta", make_config(), FakeClock(), fs)
    log.open_epoch()
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    log.append(encode_batch([record], 1))
    log.flush()
    log.append(encode_batch([record], 1))
    log._log.roll()
    log.append(encode_batch([record], 1))
    again = MetadataLog("/meta", make_config(), FakeClock(), fs.crash())
    assert again.next_offset == 1
    assert again.append(encode_batch([record], 1)) == 1
    again.flush()
    assert [offset for offset, _, _ in again.replay()] == [0, 1]
