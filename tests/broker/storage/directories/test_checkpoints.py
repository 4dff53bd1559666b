"""Checkpoint files: golden texts, damage of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.storage.directories import checkpoints
from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, MirroredCheckpoint, OffsetCheckpoint
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition

FLIGHTS, DELAYS = TopicPartition("flights", 0), TopicPartition("delays", 12)
TOPIC_ID = bytes(range(16))
CHECKSUM = b"\t \t \t  \t \t      \t\t   \t\t  \t\t  \t \t"  # a CRC-32C as blanks


@pytest.fixture
def fs() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    return disk


def test_offsets(fs: MemoryFileSystem) -> None:
    checkpoint = OffsetCheckpoint(fs, "/d/x")
    assert checkpoint.read() == {}
    checkpoint.write({FLIGHTS: 1041, DELAYS: 0})
    assert fs.read_bytes("/d/x") == b"0\n2\nflights 0 1041\ndelays 12 0" + CHECKSUM + b"\n"
    assert checkpoint.read() == {FLIGHTS: 1041, DELAYS: 0}
    assert fs.crash(names_survive=False).exists("/d/x")


def test_unchanged_offsets_are_not_written_again(fs: MemoryFileSystem) -> None:
    disk = FaultyFileSystem(fs)
    checkpoint = OffsetCheckpoint(disk, "/d/x")
    checkpoint.write({FLIGHTS: 1})
    before = disk.operations
    checkpoint.write({FLIGHTS: 1})
    assert disk.operations == before


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"x",
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\nflights 0 1\n",
        b"0\n1\nflights 0\n",
        b"0\n1\nflights x 1\n",
        b"\xff\xfe",
    ],
)
def test_damaged_offsets(fs: MemoryFileSystem, damage: bytes) -> None:
    fs.write_bytes("/d/x", damage, sync=True)
    with pytest.raises(CorruptCheckpointError):
        OffsetCheckpoint(fs, "/d/x").read()


def test_a_mirrored_checkpoint_has_a_copy(fs: MemoryFileSystem) -> None:
    checkpoint = MirroredCheckpoint(fs, "/d/x", "/d/x.copy")
    checkpoint.write({})
    assert not fs.exists("/d/x.copy")
    checkpoint.write({FLIGHTS: 7})
    assert fs.read_bytes("/d/x.copy") == fs.read_bytes("/d/x")
    fs.write_bytes("/d/x", b"0\n1\nflights 0 8 \n", sync=True)
    assert checkpoint.read() == {FLIGHTS: 7}
    fs.write_bytes("/d/x.copy", b"", sync=True)
    with pytest.raises(CorruptCheckpointError):
        checkpoint.read()
    fs.unlink("/d/x.copy")
    with pytest.raises(CorruptCheckpointError):
        checkpoint.read()


def test_the_copy_is_ignored_if_kafka_has_written_since(fs: MemoryFileSystem) -> None:
    checkpoint = MirroredCheckpoint(fs, "/d/x", "/d/x.copy")
    checkpoint.write({FLIGHTS: 7})
    fs.write_bytes("/d/x", b"0\n1\nflights 0 9\n", sync=True)  # Apache Kafka
    assert checkpoint.read() == {FLIGHTS: 9}
    fs.unlink("/d/x")
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert OffsetCheckpoint(fs, "/d/x.copy").read() == {}


@pytest.mark.parametrize("damage", [b"0\n1\n1\n", b"0\n1\n1 x\n", b"2\n0\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 5\n"])
def test_damaged_epochs(fs: MemoryFileSystem, damage: bytes) -> None:
    fs.write_bytes("/d/x", damage, sync=True)
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_epochs(fs, "/d/x")


def test_partition_metadata(fs: MemoryFileSystem) -> None:
    assert checkpoints.read_partition_metadata(fs, "/d/x") is None
    checkpoints.write_partition_metadata(fs, "/d/x", TOPIC_ID)
    assert fs.read_bytes("/d/x") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\ncrc32c: 491ca7be\n"
    assert checkpoints.read_partition_metadata(fs, "/d/x") == TOPIC_ID


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n",
        b"version: 0\n",
        b"version: 0\ntopic_id: x\n",
        b"nonsense",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
    ],
)
def test_damaged_partition_metadata(fs: MemoryFileSystem, damage: bytes) -> None:
    fs.write_bytes("/d/x", damage, sync=True)
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_partition_metadata(fs, "/d/x")


def test_the_remains_of_partition_metadata_confirm_only_their_topic() -> None:
    whole = checkpoints.format_partition_metadata(TOPIC_ID)
    other = bytes(15) + b"\1"
    for kept in range(len(whole)):
        for left in (whole[:kept], whole[:kept] + bytes(len(whole) - kept)):
            assert checkpoints.confirms_topic_id(left, TOPIC_ID), left
            assert checkpoints.confirms_topic_id(left, other) == (kept <= len("version: 0\ntopic_id: AA")), left
        for bit in range(8):
            left = whole[:kept] + bytes([whole[kept] ^ 1 << bit]) + whole[kept + 1 :]
            assert checkpoints.confirms_topic_id(left, TOPIC_ID), left
            assert not checkpoints.confirms_topic_id(left, other), left
    assert not checkpoints.confirms_topic_id(b"version: 7\ntopic_id: ?\n", TOPIC_ID)


def test_meta_properties(fs: MemoryFileSystem) -> None:
    assert checkpoints.read_meta_properties(fs, "/d/x") is None
    checkpoints.write_meta_properties(fs, "/d/x", cluster_id="abc", node_id=7, directory_id="def")
    assert fs.read_bytes("/d/x").startswith(b"#crc32c=0512454b\ncluster.id=abc\n")
    assert checkpoints.read_meta_properties(fs, "/d/x") == {
        "version": "1",
        "cluster.id": "abc",
        "node.id": "7",
        "directory.id": "def",
    }


def test_meta_properties_of_the_java_broker(fs: MemoryFileSystem) -> None:
    text = b"#\n#Thu Nov 21 09:00:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\\=\\=\nnode.id=1\nversion=1\n"
    fs.write_bytes("/d/x", text, sync=True)
    read = checkpoints.read_meta_properties(fs, "/d/x")
    assert read is not None
    assert read["cluster.id"] == "MkU3OEVBNTcwNTJENDM2Qg=="


@pytest.mark.parametrize("damage", [b"version=9\n", b"node.id=1\n", b"garbage\n", b"\xff"])
def test_damaged_meta_properties(fs: MemoryFileSystem, damage: bytes) -> None:
    fs.write_bytes("/d/x", damage, sync=True)
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_meta_properties(fs, "/d/x")


def test_clean_shutdown(fs: MemoryFileSystem) -> None:
    assert checkpoints.read_clean_shutdown(fs, "/d/x") is None
    checkpoints.write_clean_shutdown(fs, "/d/x", 42)
    assert fs.read_bytes("/d/x") == b'{"version":0,"brokerEpoch":"42"}'
    assert checkpoints.read_clean_shutdown(fs, "/d/x") == 42


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"brokerEpoch":"x"}'])
def test_a_clean_shutdown_marker_with_other_content_counts(fs: MemoryFileSystem, content: bytes) -> None:
    fs.write_bytes("/d/x", content, sync=True)
    assert checkpoints.read_clean_shutdown(fs, "/d/x") == -1


WRITERS: list[Callable[[FileSystem], None]] = [
    lambda fs: OffsetCheckpoint(fs, "/d/x").write({FLIGHTS: 1}),
    lambda fs: checkpoints.write_epochs(fs, "/d/x", [(1, 0)]),
    lambda fs: checkpoints.write_meta_properties(fs, "/d/x", cluster_id="a", node_id=1, directory_id="b"),
    lambda fs: checkpoints.write_clean_shutdown(fs, "/d/x", 1),
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_crash_leaves_the_old_or_the_new_content(write: Callable[[FileSystem], None]) -> None:
    for fail_at in range(1, 5):
        inner = MemoryFileSystem()
        inner.mkdir("/d")
        inner.atomic_write("/d/x", b"old")
        with pytest.raises(OSError):
            write(FaultyFileSystem(inner, fail_at=fail_at))
        whole = MemoryFileSystem()
        whole.mkdir("/d")
        write(whole)
        assert inner.crash().read_bytes("/d/x") in (b"old", whole.read_bytes("/d/x"))
