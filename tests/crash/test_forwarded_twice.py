"""The active controller carries out a forwarded request and dies before its answer: the next one gives the answer.

The broker sends the request again. Meanwhile somebody else has made a topic of the same name. It must stay.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barnabas.client.connection import NodeConnection
from barnabas.cluster import Node
from barnabas.faults import Fault, Faults
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.crash.test_quorum_failover import CONFIG, active
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
TIMEOUT_MS = 60_000


def ask(node: Node, message: Any, version: int) -> Any:
    with NodeConnection(node.host, node.port, timeout_ms=TIMEOUT_MS) as connection:
        return connection.send(message, version)


def create(node: Node) -> bytes:
    """Create the topic through a broker; returns its id."""
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (made,) = ask(node, CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), 7).topics
    assert made.error_code == 0
    return bytes(made.topic_id)


def delete(node: Node) -> int:
    """Delete the topic through a broker; returns the error."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=TIMEOUT_MS)
    return int(ask(node, request, 6).responses[0].error_code)


def topic_id(node: Node) -> bytes | None:
    """The id of the topic according to a broker; None if it is not there."""
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name="t")])
    request.allow_auto_topic_creation = False
    (found,) = ask(node, request, 12).topics
    return None if found.error_code else bytes(found.topic_id)


def test_a_deletion_is_not_made_again(tmp_path: Path) -> None:
    config = {**CONFIG, "barnabas.faults.enable": "true"}
    with (
        BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=config, controller_count=3) as cluster,
        Faults(cluster) as faults,
        ThreadPoolExecutor(1) as pool,
    ):
        one, other = cluster.brokers
        create(one)
        eventually("both have it", lambda: topic_id(other) is not None)
        first = active(cluster)
        fault = faults.add(
            Fault(api="Envelope", delay_ms=HOUR_MS, at="response", sender="brokers", times=1, node=first.node_id)
        )
        deletion = pool.submit(delete, one)
        eventually("it is gone", lambda: topic_id(other) is None)
        fault.wait_fired()
        made = create(other)
        assert not deletion.done()
        cluster.stop_node(first, signal.SIGKILL)
        assert deletion.result(TIMEOUT_MS / 1000) == 0
        assert active(cluster) is not first
        eventually("both have the new one", lambda: topic_id(one) == topic_id(other) == made)
