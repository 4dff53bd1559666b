"""Apache Kafka's kafka-dump-log reads every kind of file that we write, with deep iteration and without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.log.log import AppendOrigin
from barnabas.common.disk.files import OsFileSystem
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker.storage_bench import Bench
from tests.support.kafka.kafka_tools import KafkaTools

BATCHES = 200


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition's directory with all compressions, an idempotent producer, aborted and committed transactions."""
    directory = tmp_path_factory.mktemp("dump") / "flights-0"
    bench = Bench(OsFileSystem(), str(directory))
    target = bench.open(segment_bytes=9000, index_interval_bytes=300)
    sequence = 0
    for number in range(BATCHES):
        values = [f"v{number}-{index}" for index in range(1 + number % 7)]
        kind = list(CompressionType)[number % 5]
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        bench.append(target, *values, leader_epoch=number // 100, compression=kind, **options)
        sequence += len(values)
        bench.clock.advance_ms(7)
        if number % 20 == 3:
            transactional = bench.batch(
                "t", producer_id=9, producer_epoch=1, base_sequence=number // 20, is_transactional=True
            )
            target.append_as_leader(transactional, leader_epoch=number // 100)
            marker = end_txn_marker(
                ControlType.ABORT if number % 40 == 3 else ControlType.COMMIT,
                producer_id=9,
                producer_epoch=1,
                coordinator_epoch=2,
                timestamp_ms=bench.clock.wall_ms(),
            )
            target.append_as_leader(
                memoryview(bytearray(marker)), leader_epoch=number // 100, origin=AppendOrigin.COORDINATOR
            )
    target.flush()
    target.close()
    return directory


def dump(tools: KafkaTools, directory: Path, suffix: str) -> str:
    files = sorted(str(path) for path in directory.iterdir() if path.name.endswith(suffix))
    assert files
    result = tools.run("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", ",".join(files)).check()
    output = result.stdout + result.stderr
    for complaint in ("mismatch", "found timestamp", "corrupt", "isvalid: false", "exception"):
        assert complaint not in output.lower(), complaint
    # Why -1: the tool expects every file to begin at offset 0 and reports all other segments this way.
    gaps = [line for line in output.splitlines() if " is followed by " in line]
    assert [line for line in gaps if not line.strip().startswith("-1 ")] == []
    return result.stdout


def test_the_log(written: Path, tools: KafkaTools) -> None:
    output = dump(tools, written, ".log")
    assert output.count(" payload: v") == sum(1 + number % 7 for number in range(BATCHES))
    for name in ("GZIP", "SNAPPY", "LZ4", "ZSTD", "endTxnMarker: ABORT", "endTxnMarker: COMMIT"):
        assert name.lower() in output.lower()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_the_files_beside_the_log(written: Path, tools: KafkaTools, suffix: str) -> None:
    output = dump(tools, written, suffix)
    assert {
        ".index": "offset:",
        ".timeindex": "timestamp:",
        ".txnindex": "producerId: 9",
        ".snapshot": "producerId: 5",
    }[suffix] in output
