"""FetchSnapshot: v0-v1.

Behaviour: tells `barnabas controller recover` what this broker knows of the cluster (recovery_report.py), as the
snapshot of `__cluster_metadata-0` that it is asked for. `position` 0 makes the report; the answer has all of it,
whatever `max_bytes` says. It is served before the controller was heard of, for then it is needed. ApiVersions does not
list it: it is for nodes, and refused on a listener for clients.

Errors: INCONSISTENT_CLUSTER_ID, UNKNOWN_TOPIC_OR_PARTITION, POSITION_OUT_OF_RANGE; KAFKA_STORAGE_ERROR while a log
directory is offline.

Different from Apache Kafka: its brokers do not serve it, and its controllers answer with batches of metadata records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api, nodes_only
from barnabas.common.recovery_report import encode_report
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k59_fetch_snapshot as wire

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request

TOPIC = "__cluster_metadata"


def handle(services: Services, request: Request) -> Answer:
    """Answer with the report."""
    message: wire.FetchSnapshotRequest = request.message
    if message.cluster_id is not None and message.cluster_id != services.cluster_id:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    topics = [
        wire.ResponseTopicSnapshot(
            name=topic.name, partitions=[_answer(services, topic.name, partition) for partition in topic.partitions[:1]]
        )
        for topic in message.topics[:1]
    ]
    return Reply(wire.FetchSnapshotResponse(topics=topics))


def _answer(services: Services, topic: str, asked: wire.RequestPartitionSnapshot) -> wire.ResponsePartitionSnapshot:
    answer = wire.ResponsePartitionSnapshot(index=asked.partition, unaligned_records=b"")
    if (topic, asked.partition) != (TOPIC, 0):
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif asked.position != 0:
        answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
    else:
        report = services.recovery.report()
        data = encode_report(report)
        answer.snapshot_id = wire.SnapshotId(end_offset=report.metadata_offset + 1, epoch=report.controller_epoch)
        answer.size, answer.unaligned_records = len(data), data
    return answer


API = Api(
    59,
    "FetchSnapshot",
    (0, 1),
    handle,
    operation="CLUSTER_ACTION",
    resource="CLUSTER",
    advertised=False,
    nodes_only=nodes_only,
)
