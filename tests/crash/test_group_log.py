"""The log of groups is compacted, and after kill -9 the compacted log has the same offsets."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.compare.conversation import Conversation
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

TOPIC, GROUP = "read", "reader"
PARTITIONS = 100
COMMITS = 200  # of all partitions: more than two segments in all
SEGMENT_BYTES = 1024 * 1024
COMMIT_VERSION, FETCH_VERSION, FIND_VERSION = 9, 9, 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """One broker whose group log has small segments, cleaned at once."""
    config = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "100",
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
    }
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
        yield cluster


def commit(conversation: Conversation, offset: int) -> bool:
    """Commit the same offset of every partition, as a simple consumer."""
    rows = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_leader_epoch=0, committed_metadata=f"at {offset}"
        )
        for number in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
    answer = conversation.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), COMMIT_VERSION)
    return {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.NONE}


def committed(conversation: Conversation) -> set[tuple[int, str | None]]:
    """Return all partitions' offsets and metadata; empty without a coordinator."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    (group,) = conversation.ask(request, FETCH_VERSION).groups
    rows = [row for topic in group.topics for row in topic.partitions]
    return {(row.committed_offset, row.metadata) for row in rows} if len(rows) == PARTITIONS else set()


def test_the_group_log_is_compacted_and_replayed(cluster: BarnabasCluster, tools: KafkaTools) -> None:
    (broker,) = cluster.brokers
    conversation = Conversation(broker.port)
    find = FindCoordinatorRequest(key=GROUP)
    eventually("a coordinator", lambda: conversation.ask(find, FIND_VERSION).error_code == 0)
    eventually("it has loaded", lambda: commit(conversation, 0))
    for number in range(1, COMMITS + 1):
        assert commit(conversation, number)
    directory = cluster.broker_data_directory() / "__consumer_offsets-0"

    def closed_bytes() -> int:
        """Return the size of all segments except the active one."""
        return sum(path.stat().st_size for path in sorted(directory.glob("*.log"))[:-1])

    eventually("the closed segments are compacted", lambda: 0 < closed_bytes() < SEGMENT_BYTES / 10)
    segments = [str(path) for path in sorted(directory.glob("*.log"))]
    dumped = tools.run("kafka-dump-log", "--files", ",".join(segments), "--offsets-decoder").check()
    assert f'"group":"{GROUP}"' in dumped.stdout

    cluster.stop_node(broker, signal.SIGKILL)
    cluster.start_node(broker)
    cluster.await_ready()
    eventually("it is loaded", lambda: committed(conversation) == {(COMMITS, f"at {COMMITS}")})
