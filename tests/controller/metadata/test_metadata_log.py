"""The metadata log and its snapshots, read by Apache Kafka's own tool."""

from __future__ import annotations

from pathlib import Path

from barnabas.common.disk.files import OsFileSystem
from tests.controller.rig import Rig
from tests.support.kafka.kafka_tools import KafkaTools

RECORDS = (
    "FEATURE_LEVEL_RECORD",
    "REGISTER_BROKER_RECORD",
    "BROKER_REGISTRATION_CHANGE_RECORD",
    "TOPIC_RECORD",
    "CONFIG_RECORD",
    "PARTITION_RECORD",
    "PARTITION_CHANGE_RECORD",
)


def dump(tools: KafkaTools, file: Path) -> str:
    output = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(file)).check().stdout
    assert "isvalid: false" not in output
    assert "Could not" not in output
    return output


def test_kafka_reads_the_log_and_the_snapshot(tools: KafkaTools, tmp_path: Path) -> None:
    rig = Rig(OsFileSystem(), directory=str(tmp_path))
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]], retention_ms="7")
    rig.heartbeat(0, want_fence=True)
    directory = tmp_path / "__cluster_metadata-0"
    output = dump(tools, directory / "00000000000000000000.log")
    assert [name for name in RECORDS if f'"type":"{name}"' not in output] == []
    rig.controller._snapshot_bytes = 100
    rig.controller.loop.step()
    (snapshot,) = directory.glob("*.checkpoint")
    output = dump(tools, snapshot)
    assert "SnapshotHeader" in output
    assert "SnapshotFooter" in output
    assert output.count('"type":"PARTITION_RECORD"') == 2
