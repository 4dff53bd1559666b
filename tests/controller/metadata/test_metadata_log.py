"""The metadata log and its snapshots, read by Apache Kafka's own tools: with answers to forwarded requests in them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from barnabas.common.disk.files import OsFileSystem
from barnabas.controller.decision import Decision
from barnabas.controller.forwarded.answers import Answered
from barnabas.protocol.metadata_records import FeatureLevelRecord
from tests.controller.rig import Rig
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

RECORDS = (
    "FEATURE_LEVEL_RECORD",
    "REGISTER_BROKER_RECORD",
    "BROKER_REGISTRATION_CHANGE_RECORD",
    "TOPIC_RECORD",
    "CONFIG_RECORD",
    "PARTITION_RECORD",
    "PARTITION_CHANGE_RECORD",
    "NO_OP_RECORD",
)
SHELL_TIMEOUT_S = 30.0


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
    answer = Answered.of(b"s" * 16, 1, 0, (19, 7), bytes(10_000))
    rig.decide(lambda _: Decision([FeatureLevelRecord(name="group.version", feature_level=1), answer.record()], None))
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
    assert output.count('"type":"NO_OP_RECORD"') == 1

    def topics() -> list[str]:
        arguments = ("--snapshot", str(snapshot), "ls", "/image/topics/byName")
        with contextlib.suppress(AssertionError):  # the shell may wait for ever
            return tools.run("kafka-metadata-shell", *arguments, timeout_s=SHELL_TIMEOUT_S).check().stdout.split()
        return []

    # Why more than once: the shell may also answer before it has read the snapshot.
    eventually("the shell shows the topic", lambda: topics() == ["t"], round(SHELL_TIMEOUT_S * 3000))
    # The shell closes its output. A test after this one still reads what its own tools print.
    assert tools.run("kafka-storage", "random-uuid").check().stdout.strip()
