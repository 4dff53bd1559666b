"""Share state outlives kill -9 of its coordinators, and Apache Kafka's tool reads what is on disk.

The persister of a broker runs here, over real connections to the brokers' internal listeners.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.coordinators.persister.persister import SharePersister
from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.share_state.values import (
    NO_START_OFFSET,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateWrite,
)
from barnabas.broker.metadata.metadata_cache import (
    SHARE_GROUP_STATE_TOPIC,
    BrokerInfo,
    Endpoint,
    MetadataCache,
    MetadataSnapshot,
    PartitionInfo,
    TopicInfo,
)
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

TOPIC, GROUPS, PARTITIONS, STATE_PARTITIONS = "shared", ("g", "h"), 4, 3
WRITES = 30  # of each share partition; a kill falls in between
METADATA_VERSION, FIND_VERSION, SHARE_KEY_TYPE = 12, 6, 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Three brokers; each has a replica of each partition of the share state."""
    config = {
        "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
        "share.coordinator.snapshot.update.records.per.snapshot": "7",
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
    }
    with BarnabasCluster(tmp_path, broker_count=3, first_port=0, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(20)
        yield cluster


class RemotePersister:
    """A persister without a broker: its metadata comes from the brokers' internal listeners."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self._cluster = cluster
        self._cache = MetadataCache()
        self._scheduler = Scheduler(2, SystemClock())
        self._has_changed = threading.Condition()
        self.topic_id = eventually("the topic", self._refresh)
        coordinator: Any = self
        self.persister = SharePersister(
            broker_id=99,
            clock=SystemClock(),
            coordinator=coordinator,
            metadata_cache=self._cache,
            call_later=lambda wait_ms, job: self._scheduler.schedule_once("persister", job, wait_ms),
            create_topic=self._create,
            listener_name="INTERNAL",
            request_timeout_ms=5000,
        )
        self._scheduler.schedule("metadata", self._refresh, 200)

    def __enter__(self) -> RemotePersister:
        return self

    def __exit__(self, *_: object) -> None:
        self.persister.shutdown()
        self._scheduler.shutdown()

    def partition_for(self, key: str) -> int:
        return partition_for(key, STATE_PARTITIONS)

    def _ask(self, message: Any, version: int) -> Any:
        """Ask any broker that lives."""
        for node in self._cluster.brokers:
            if node.is_running:
                with NodeConnection(node.host, node.internal_port, timeout_ms=2000) as connection:
                    try:
                        return connection.send(message, version)
                    except NodeConnectionError:
                        continue
        return None

    def _create(self, name: str) -> None:
        assert name == SHARE_GROUP_STATE_TOPIC
        key = SharePartitionKey("g", self.topic_id, 0).coordinator_key
        self._ask(FindCoordinatorRequest(key_type=SHARE_KEY_TYPE, coordinator_keys=[key]), FIND_VERSION)

    def _refresh(self) -> bytes:
        """Take the brokers' metadata; returns the topic's id."""
        names = (TOPIC, SHARE_GROUP_STATE_TOPIC)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answer = self._ask(request, METADATA_VERSION)
        if answer is None:
            return b""
        brokers = {
            b.node_id: BrokerInfo(b.node_id, None, {"INTERNAL": Endpoint(b.host, b.port, 0)}) for b in answer.brokers
        }
        topics = {}
        for topic in answer.topics:
            if not topic.error_code:
                partitions = {
                    p.partition_index: PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, 0, (), (), ())
                    for p in topic.partitions
                }
                topics[topic.name] = TopicInfo(topic.name, topic.topic_id, partitions)
        self._cache.snapshot = MetadataSnapshot(brokers, topics)
        return topics[TOPIC].id if TOPIC in topics else b""

    def until_done(self, call: Any) -> list[Any]:
        """Call with a completion, again after an error that may pass; returns a list that gets the answer."""
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            error = answer if isinstance(answer, ErrorCode) else answer.error
            if error == ErrorCode.COORDINATOR_NOT_AVAILABLE:  # a busy machine: nobody took over in time
                call(answered)
            else:
                answers.append(answer)

        call(answered)
        return answers


def test_what_was_written_is_there_after_each_coordinator_was_killed(
    cluster: BarnabasCluster, tools: KafkaTools, request: pytest.FixtureRequest
) -> None:
    moments = random.Random(request.config.getoption("seed"))
    with RemotePersister(cluster) as remote:
        persister = remote.persister
        keys = [SharePartitionKey(group, remote.topic_id, n) for group in GROUPS for n in range(PARTITIONS)]
        answers = [
            remote.until_done(lambda done, key=key: persister.initialize(key, 1, NO_START_OFFSET, done)) for key in keys
        ]
        eventually("the state is initialized", lambda: all(answers))
        assert {answer for (answer,) in answers} == {ErrorCode.NONE}
        offset = 0
        for node in cluster.brokers:
            kill_at = moments.randrange(WRITES)
            written = []
            for number in range(WRITES):
                if number == kill_at:
                    cluster.stop_node(node, signal.SIGKILL)
                for key in keys:
                    write = StateWrite(1, 0, offset // 2, (StateBatch(offset, offset, 2, 1),), 0)
                    written.append(remote.until_done(lambda done, k=key, w=write: persister.write(k, w, done)))
                offset += 1
            eventually("every write is answered", lambda written=written: all(written), 60_000)
            assert {answer for (answer,) in written} == {ErrorCode.NONE}
            cluster.start_node(node)
            cluster.await_ready()
        expected = StateRead(ErrorCode.NONE, 1, (offset - 1) // 2, (StateBatch((offset - 1) // 2, offset - 1, 2, 1),))
        reads = [remote.until_done(lambda done, key=key: persister.read(key, 0, done)) for key in keys]
        eventually("every read is answered", lambda: all(reads), 60_000)
        assert [read for (read,) in reads] == [expected] * len(keys)
    directories = sorted(cluster.broker_data_directory().glob(f"{SHARE_GROUP_STATE_TOPIC}-*"))
    assert len(directories) == STATE_PARTITIONS
    segments = [str(path) for directory in directories for path in directory.glob("*.log")]
    dumped = tools.run(
        "kafka-dump-log", "--files", ",".join(segments), "--share-group-state-decoder", "--print-data-log"
    ).check()
    for kind in (0, 1):  # snapshots and updates
        assert f'key: {{"type":"{kind}","data":{{"groupId":"g"' in dumped.stdout, dumped.stdout[-2000:]
    assert '"stateBatches":[{"firstOffset":' in dumped.stdout
