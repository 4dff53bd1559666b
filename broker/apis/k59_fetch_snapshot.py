"""FetchSnapshot: v0-v1.

Behaviour: sends `barnabas controller recover` this broker's report on the cluster (recovery_report.py), in place of a
snapshot of `__cluster_metadata-0`. `position` must be 0, and the response carries the whole report regardless of
`max_bytes`. The broker serves it before the first push arrives, since recovery runs without a controller. ApiVersions
does not list it: only nodes use it, and client listeners refuse it. SCRAM credentials are in the report only if the
requester authenticated.

Errors: INCONSISTENT_CLUSTER_ID, UNKNOWN_TOPIC_OR_PARTITION, POSITION_OUT_OF_RANGE; KAFKA_STORAGE_ERROR while a log
directory is offline.

Different from Apache Kafka: its brokers do not serve this request, and its controllers return batches of metadata
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.push import nodes_only_api
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import ANONYMOUS
from barnabas.common.recovery_report import encode_report
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k59_fetch_snapshot as wire

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

TOPIC = "__cluster_metadata"


def handle(services: Services, request: Request) -> Answer:
    """Return the report."""
    message: wire.FetchSnapshotRequest = request.message
    if message.cluster_id is not None and message.cluster_id != services.cluster_id:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    topics = [
        wire.ResponseTopicSnapshot(
            name=topic.name,
            partitions=[_partition(services, request.principal, topic.name, p) for p in topic.partitions[:1]],
        )
        for topic in message.topics[:1]
    ]
    return Reply(wire.FetchSnapshotResponse(topics=topics))


def _partition(
    services: Services, principal: str, topic: str, wanted: wire.RequestPartitionSnapshot
) -> wire.ResponsePartitionSnapshot:
    response = wire.ResponsePartitionSnapshot(index=wanted.partition, unaligned_records=b"")
    if (topic, wanted.partition) != (TOPIC, 0):
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif wanted.position != 0:
        response.error_code = ErrorCode.POSITION_OUT_OF_RANGE
    else:
        report = services.recovery.report(with_credentials=principal != ANONYMOUS)
        data = encode_report(report)
        response.snapshot_id = wire.SnapshotId(end_offset=report.metadata_offset + 1, epoch=report.controller_epoch)
        response.size, response.unaligned_records = len(data), data
    return response


API = nodes_only_api(wire.FetchSnapshotRequest, (0, 1), handle)
