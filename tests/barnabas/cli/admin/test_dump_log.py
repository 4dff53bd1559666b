"""`barnabas dump-log`: dump_log.py and internal_records.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.broker.storage.directories.checkpoints import (
    OffsetCheckpoint,
    write_epochs,
    write_meta_properties,
    write_partition_metadata,
    write_txn_checksums,
)
from barnabas.broker.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.broker.storage.producers.snapshots import format_snapshot
from barnabas.broker.storage.segments.txn_index import AbortedTxn, TransactionIndex
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_from_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.controller.metadata.snapshot import encode_snapshot
from barnabas.protocol.coordinator_records.offsets import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.coordinator_records.record import encode_versioned
from barnabas.protocol.coordinator_records.transactions import TransactionLogKey
from barnabas.protocol.metadata_records import TopicRecord, encode_record
from barnabas.protocol.metadata_records.configs import ConfigRecord
from barnabas.protocol.metadata_records.security import UserScramCredentialRecord
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from barnabas.protocol.records.compression import CompressionType
from tests.barnabas.cli.conftest import Barnabas

FS = OsFileSystem()
TOPIC_ID = "aGVsbG8td29ybGQtMTIzNA"


def segment(directory: Path) -> Path:
    """A segment of two batches."""
    path = directory / "00000000000000000040.log"
    records = [SimpleRecord(1000, b"k", b"v", (("h", b"x"),)), SimpleRecord(1001, None, b"\xff\n")]
    first = build_batch(records, base_offset=40, compression=CompressionType.GZIP, leader_epoch=3)
    path.write_bytes(first + build_batch(records[:1], base_offset=42, producer_id=7, producer_epoch=0, base_sequence=5))
    return path


def test_the_batches_of_a_segment(tmp_path: Path, barnabas: Barnabas) -> None:
    first, second = json.loads(barnabas("dump-log", str(segment(tmp_path)), "--json").out)
    assert (first["base_offset"], first["last_offset"], first["count"]) == (40, 41, 2)
    assert (first["compression"], first["leader_epoch"], first["timestamp"]) == ("gzip", 3, 1001)
    assert (second["producer_id"], second["base_sequence"], second["position"]) == (7, 5, first["size"])
    assert len(barnabas("dump-log", str(tmp_path / "00000000000000000040.log")).rows) == 2


def test_the_records_of_a_segment(tmp_path: Path, barnabas: Barnabas) -> None:
    assert barnabas("dump-log", "--records", str(segment(tmp_path))).rows == [
        ["40", "1000", "1970-01-01T00:00:01.000Z", "k", "v", "h=x"],
        ["41", "1001", "1970-01-01T00:00:01.001Z", "-", "\\xff\\n", ""],
        ["42", "1000", "1970-01-01T00:00:01.000Z", "k", "v", "h=x"],
    ]


def test_the_records_of_the_controllers_log_are_decoded(tmp_path: Path, barnabas: Barnabas) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    value = encode_record(TopicRecord(name="flights", topic_id=uuid_from_string(TOPIC_ID)))
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch([SimpleRecord(1, None, value)]))
    assert "TopicRecord(name='flights'" in barnabas("dump-log", "--records", str(path)).out


@pytest.mark.parametrize("name", ["00000000000000000002-0000000001.checkpoint", "bootstrap.checkpoint"])
def test_a_snapshot_of_the_metadata_is_decoded(tmp_path: Path, barnabas: Barnabas, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(encode_snapshot(1, [TopicRecord(name="flights", topic_id=uuid_from_string(TOPIC_ID))], 1))
    out = barnabas("dump-log", "--records", str(path)).out
    assert "TopicRecord(name='flights'" in out
    assert out.index("SNAPSHOT_HEADER") < out.index("TopicRecord") < out.index("SNAPSHOT_FOOTER")
    assert len(barnabas("dump-log", str(path)).rows) == 3


def test_secrets_of_the_controllers_log_are_hidden(tmp_path: Path, barnabas: Barnabas) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    jaas = "listener.name.a.plain.sasl.jaas.config"
    records = [
        ConfigRecord(resource_type=4, resource_name="1", name=jaas, value="s3cret"),
        ConfigRecord(resource_type=4, resource_name="1", name=jaas, value=None),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7"),
        UserScramCredentialRecord(name="alice", salt=b"s3cret", stored_key=b"s3cret", server_key=b"s3cret"),
    ]
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch([SimpleRecord(1, None, encode_record(record)) for record in records]))
    out = barnabas("dump-log", "--records", str(path)).out
    assert "s3cret" not in out
    assert f"name='{jaas}', value='[hidden]'" in out
    assert f"name='{jaas}', value=None" in out
    assert "name='retention.ms', value='7'" in out
    assert "UserScramCredentialRecord(name='alice'" in out


def test_the_records_of_coordinators_are_decoded_and_others_shown_raw(tmp_path: Path, barnabas: Barnabas) -> None:
    offset = OffsetCommitKey(group="billing", topic="orders", partition=1)
    committed = OffsetCommitValue(offset=42, metadata="note")
    transaction = TransactionLogKey(transactional_id="copier")
    contents = {
        "__consumer_offsets-7": [
            SimpleRecord(1, encode_versioned(offset), encode_versioned(committed)),
            SimpleRecord(2, encode_versioned(offset), None),
            SimpleRecord(3, encode_versioned(offset), b"\x00\x63damage"),
            SimpleRecord(4, b"\x03\xe7odd", b"x"),
        ],
        "__transaction_state-0": [SimpleRecord(5, encode_versioned(transaction), None)],
    }
    for name, records in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(build_batch(records))
    marker = end_txn_marker(ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp_ms=6)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(marker)
    rows = json.loads(barnabas("dump-log", "--records", str(tmp_path), "--json").out)
    keys = [row["key"] for row in rows]
    assert keys[:3] == ["OffsetCommitKey(group='billing', topic='orders', partition=1)"] * 3
    assert keys[4:] == ["TransactionLogKey(transactional_id='copier')", "COMMIT"]
    assert rows[0]["value"].startswith("OffsetCommitValue(offset=42,")
    assert (rows[1]["value"], rows[4]["value"], rows[5]["value"]) == (None, None, "coordinator epoch 3")
    assert "damage (cannot be decoded: " in rows[2]["value"]
    assert rows[3]["value"] == "x"
    assert [Path(row["file"]).parent.name for row in rows[3:]] == [
        "__consumer_offsets-7",
        "__transaction_state-0",
        "t-0",
    ]


def test_a_directory_is_all_its_segments(tmp_path: Path, barnabas: Barnabas) -> None:
    for name in ("b-0", "a-1"):
        (tmp_path / name).mkdir()
        segment(tmp_path / name)
        (tmp_path / name / "00000000000000000040.index").write_bytes(b"")
    out = barnabas("dump-log", str(tmp_path)).out
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        f"{tmp_path}/a-1/00000000000000000040.log:",
        f"{tmp_path}/b-0/00000000000000000040.log:",
    ]
    (tmp_path / "empty").mkdir()
    outcome = barnabas("dump-log", str(tmp_path / "empty"))
    assert outcome == (1, "", f"barnabas: {tmp_path}/empty: there is no segment (.log) in or below it\n")


@pytest.mark.parametrize("suffix", ["", ".deleted"])
def test_indexes(tmp_path: Path, barnabas: Barnabas, suffix: str) -> None:
    offsets = tmp_path / f"00000000000000000040.index{suffix}"
    offsets.write_bytes(bytes.fromhex("00000001 00000064 00000000 00000000"))
    times = tmp_path / f"00000000000000000040.timeindex{suffix}"
    times.write_bytes(bytes.fromhex("00000000000003e8 00000002"))
    transactions = TransactionIndex(FS, str(tmp_path / "00000000000000000040.txnindex"), 40)
    transactions.append(AbortedTxn(7, 41, 44, 45))
    assert barnabas("dump-log", str(offsets)).rows == [["41", "100"]]
    assert barnabas("dump-log", str(times)).rows == [["1000", "42", "1970-01-01T00:00:01.000Z"]]
    assert barnabas("dump-log", transactions.path).rows == [["7", "41", "44", "45"]]


def test_a_producer_snapshot(tmp_path: Path, barnabas: Barnabas) -> None:
    entry = ProducerEntry(7, 1, -1, 1000, 44)
    entry.batches.append(BatchMetadata(9, 45, 1, 1000))
    path = tmp_path / "00000000000000000046.snapshot"
    path.write_bytes(format_snapshot([entry]))
    assert barnabas("dump-log", str(path)).rows == [
        ["7", "1", "-1", "44", "1000", "9", "45", "1970-01-01T00:00:01.000Z"]
    ]


def test_checkpoints_and_properties(tmp_path: Path, barnabas: Barnabas) -> None:
    offsets = tmp_path / "replication-offset-checkpoint"
    OffsetCheckpoint(FS, str(offsets)).write({TopicPartition("flights", 1): 998})
    epochs = tmp_path / "leader-epoch-checkpoint"
    write_epochs(FS, str(epochs), [(0, 0), (3, 41)])
    checksums = tmp_path / "txn-index-checkpoint"
    write_txn_checksums(FS, str(checksums), {40: 4711})
    topic_id = tmp_path / "partition.metadata"
    write_partition_metadata(FS, str(topic_id), uuid_from_string(TOPIC_ID))
    properties = tmp_path / "meta.properties"
    write_meta_properties(FS, str(properties), cluster_id="c", node_id=4, directory_id="d")
    assert barnabas("dump-log", str(offsets)).rows == [["flights", "1", "998"]]
    assert barnabas("dump-log", str(epochs)).rows == [["0", "0"], ["3", "41"]]
    assert barnabas("dump-log", str(checksums)).rows == [["40", "4711"]]
    assert barnabas("dump-log", str(topic_id)).rows == [[TOPIC_ID]]
    assert ["node.id", "4"] in barnabas("dump-log", str(properties)).rows
    several = barnabas("dump-log", str(epochs), str(offsets))
    assert several.out.startswith(f"{epochs}:\nepoch\tstart_offset\n")
    both = json.loads(barnabas("dump-log", str(epochs), str(offsets), "--json").out)
    assert [Path(row["file"]).name for row in both] == [epochs.name, epochs.name, offsets.name]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.txt", b"", "not a file of a log directory"),
        ("x.log", b"", "its name does not begin with an offset"),
        ("00000000000000000000.log", b"\0" * 80, "00000000000000000000.log: "),
        ("00000000000000000000.snapshot", b"\0\1", "a snapshot of 2 bytes"),
        ("00000000000000000000.txnindex", b"\0" * 35, "holds part of an entry"),
        ("leader-epoch-checkpoint", b"0\n2\n", "declares 2 entries and has 0"),
        ("txn-index-checkpoint", b"0\n1\nx\n", "is malformed: "),
        ("replication-offset-checkpoint", b"0\n1\nx\n", "is malformed at 'x'"),
        ("replication-offset-checkpoint", b"0\n1\nx 0 1 \t \n", "is damaged: its checksum is wrong"),
        ("meta.properties", b"version=9\n", "unknown version 9"),
        ("partition.metadata", b"version: 0\n", "is malformed"),
    ],
)
def test_an_invalid_file_is_one_line(tmp_path: Path, barnabas: Barnabas, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    outcome = barnabas("dump-log", str(tmp_path / name))
    assert outcome.code == 1
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_batches_before_a_damaged_one_are_shown(tmp_path: Path, barnabas: Barnabas) -> None:
    path = segment(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    outcome = barnabas("dump-log", str(path))
    assert outcome.code == 1
    assert [row[0] for row in outcome.rows] == ["40"]
    assert "CRC" in outcome.err.upper()
