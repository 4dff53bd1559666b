"""WriteTxnMarkers: v1-v2

Behaviour: writes the markers that end a transaction in partitions led here, for the transaction's coordinator or for an
administrator that aborts a hanging transaction. Each partition has its own result, once its marker is on all in-sync
replicas.

On a listener for clients, without an authorizer, only an administrator's abort is allowed: of a producer that the
partition knows, with epochs that are not above the known ones. Any other request as a whole gets
CLUSTER_AUTHORIZATION_FAILED.

Version notes: v1 flexible; v2 (KIP-1228) transaction version: a marker of version 2 must raise the epoch.

Errors (each on a partition): UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR; INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED (a newer producer or coordinator ends this transaction).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.authorization.nodes import is_node_by_listener
from barnabas.broker.coordinators.transactions.marker import Marker
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.requests.parking import Park
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

Errors = dict[TopicPartition, ErrorCode]


def handle(services: Services, request: Request) -> Park:
    """Park until every marker is replicated, or has failed."""
    message: WriteTxnMarkersRequest = request.message
    is_checked_here = request.context.is_for_clients and is_node_by_listener(request)
    if is_checked_here and not all(_is_admin_abort(services, marker) for marker in message.markers):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    deferred = Deferred()
    gathering: Gathering[int, Errors] = Gathering(
        len(message.markers), lambda errors: deferred.complete(_response(message, errors))
    )
    services.marker_writer.write(
        [(_marker(wire), _partitions(wire), partial(gathering.add, i)) for i, wire in enumerate(message.markers)]
    )
    return Park(deferred)


def _partitions(wire: WritableTxnMarker) -> set[TopicPartition]:
    return {TopicPartition(topic.name, i) for topic in wire.topics for i in topic.partition_indexes}


def _is_commit(request: Request) -> bool:
    """Return whether the request commits, which only a transaction's coordinator may decide."""
    return any(marker.transaction_result for marker in request.message.markers)


def _is_admin_abort(services: Services, marker: WritableTxnMarker) -> bool:
    """Return whether the epochs are not above those that the partitions know.

    Admin.abortTransaction takes them from DescribeProducers (0 for a coordinator epoch of -1). Higher ones would fence
    the producer or the coordinator.
    """
    for tp in _partitions(marker):
        partition = services.replica_manager.find(tp)
        log = None if partition is None else partition.log
        if log is None:
            continue  # the partition gets an error of its own
        known = log.active_producer(marker.producer_id)
        if known is None or marker.producer_epoch > known.epoch + (marker.transaction_version >= 2):
            return False
        if marker.coordinator_epoch > max(known.coordinator_epoch, 0):
            return False
    return True


def _marker(wire: WritableTxnMarker) -> Marker:
    return Marker(
        wire.producer_id, wire.producer_epoch, wire.transaction_result, wire.coordinator_epoch,
        wire.transaction_version,
    )  # fmt: skip


def _response(message: WriteTxnMarkersRequest, errors: dict[int, Errors]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=wire.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=i, error_code=errors[index][TopicPartition(topic.name, i)]
                            )
                            for i in topic.partition_indexes
                        ],
                    )
                    for topic in wire.topics
                ],
            )
            for index, wire in enumerate(message.markers)
        ]
    )


API = Api(27, "WriteTxnMarkers", (1, 2), handle, nodes_only=_is_commit)
