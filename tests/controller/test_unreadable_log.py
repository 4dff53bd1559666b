"""A whole metadata log with unreadable records is a one-line error with file and offset."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.controller.rig import Rig


def log_with(frame: bytes | None) -> tuple[MemoryFileSystem, int]:
    """A controller's disk whose log goes on with this record, and its offset."""
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]])
    offset = rig.image.offset + 1
    batch = build_batch([SimpleRecord(0, None, frame)], base_offset=offset, leader_epoch=1)
    rig.log._log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=1, origin=AppendOrigin.RAFT_LEADER)
    rig.log.flush()
    rig.controller.stop()
    assert isinstance(rig.fs, MemoryFileSystem)
    return rig.fs, offset


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=b"x" * 16, replicas=[0], isr=[0], leader=0),
        RemoveTopicRecord(topic_id=b"x" * 16),
        BrokerRegistrationChangeRecord(broker_id=77, broker_epoch=1, fenced=1),
        TopicRecord(name="t", topic_id=b"y" * 16),
    ],
)
def test_the_error_for_a_contradictory_record_names_file_and_offset(record: Any) -> None:
    fs, offset = log_with(encode_record(record))
    with pytest.raises(DirectoryError) as caught:
        Rig(fs)
    line = str(caught.value)
    assert re.match(rf"/meta/__cluster_metadata-0/0{{20}}\.log cannot be understood at offset {offset}", line) or (
        f"at offset {offset + 1} (AssertionError" in line
    )
    assert "\n" not in line


@pytest.mark.parametrize(
    "frame", [b"", b"\x01", b"\x01\x63\x00", b"\x07\x00\x00", b"\x01\x02\x63", b"\x01\x02\x00\x05", None]
)
def test_the_error_for_an_unknown_version_names_file_and_offset(frame: bytes | None) -> None:
    fs, offset = log_with(frame)
    with pytest.raises(DirectoryError, match=rf"\.log cannot be understood at offset {offset}"):
        Rig(fs)


def test_a_snapshot_of_an_unknown_version_is_an_error_and_not_skipped() -> None:
    rig = Rig()
    rig.join(0)
    rig.controller._snapshot_bytes = 1
    rig.controller.loop.step()
    rig.controller.stop()
    (name,) = (e.name for e in rig.fs.listdir("/meta/__cluster_metadata-0") if e.name.endswith(".checkpoint"))
    path = f"/meta/__cluster_metadata-0/{name}"
    header, footer = (
        build_batch([SimpleRecord(0, struct.pack(">hh", 0, kind), b"")], base_offset=o, leader_epoch=1, is_control=True)
        for kind, o in ((3, 0), (4, 2))
    )
    strange = build_batch([SimpleRecord(0, None, b"\x01\x63\x00")], base_offset=1, leader_epoch=1)
    rig.fs.write_bytes(path, header + strange + footer, sync=True)
    with pytest.raises(DirectoryError, match=rf"{name} cannot be understood at offset 1"):
        Rig(rig.fs)


def test_a_damaged_snapshot_without_a_log_is_refused() -> None:
    from tests.controller.metadata.test_recovery import rebuilt_on

    fs = MemoryFileSystem()
    rebuilt_on(fs)
    (name,) = (e.name for e in fs.listdir("/meta/__cluster_metadata-0") if e.name.endswith(".checkpoint"))
    fs.write_bytes(f"/meta/__cluster_metadata-0/{name}", b"x", sync=True)
    with pytest.raises(DirectoryError, match=f"{name} is damaged, and there is no log"):
        Rig(fs)
