"""`replication/high_watermarks.py`: checkpoints are written, restored, and ignored if damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.storage.directories.checkpoints import OffsetCheckpoint
from barnabas.broker.storage.directories.names import HIGH_WATERMARK_FILE
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.push_tags import FULL
from tests.support.broker.broker_rig import DATA, BrokerRig, batch, produce, state, topic_id

TP = TopicPartition("t", 0)
PATH = f"{DATA}/{HIGH_WATERMARK_FILE}"


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    """Broker 1 leads a partition with two records, of which its follower has one."""
    made = BrokerRig()
    made.push({"t": [state(1, (1, 2))]})
    made.answer(produce(batch(b"a", b"b")), 9)
    partition = made.manager.partition(TP)
    partition.update_follower(2, fetch_offset=1, log_start_offset=0, now_ms=0, broker_epoch=1)
    assert partition.high_watermark == 1
    made.high_watermarks.write(made.manager.partitions())
    yield made
    made.close()


def restarted(rig: BrokerRig) -> tuple[int, int]:
    """High watermark and log end offset after a restart on the same files."""
    rig.close()
    again = BrokerRig(rig.fs)
    again.push({"t": [state(1, (1, 2), leader_epoch=1, partition_epoch=1)]}, type_=FULL)
    partition = again.manager.partition(TP)
    assert partition.log is not None
    again.close()
    return partition.high_watermark, partition.log.log_end_offset


def test_watermarks_survive_a_restart(rig: BrokerRig) -> None:
    assert restarted(rig) == (1, 2)


def test_a_broker_that_stops_before_its_first_push_keeps_them(rig: BrokerRig) -> None:
    rig.close()
    again = BrokerRig(rig.fs)
    again.high_watermarks.write(again.manager.partitions())
    again.push({"u": [state(1, is_new=True)]})
    again.high_watermarks.write(again.manager.partitions())
    again.log_manager.delete_logs({TopicPartition("u", 0): topic_id("u")})
    again.high_watermarks.write(again.manager.partitions())
    assert TopicPartition("u", 0) not in OffsetCheckpoint(rig.fs, PATH).read()
    assert restarted(again) == (1, 2)


def test_a_damaged_file_is_ignored(rig: BrokerRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.fs.write_bytes(PATH, b"nonsense", sync=True)
    assert restarted(rig) == (0, 2)
    assert "starting without it" in caplog.text
