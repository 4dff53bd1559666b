"""DescribeCluster: v0-v2

Behaviour: returns the cluster's id and its live brokers as the request's listener knows them. The "controller" is this
broker while it is alive, else some live one.

Version notes: v1 (KIP-919): endpoint type; a broker answers for brokers only. v2 (KIP-1073): fenced brokers may be
requested too.

Errors: UNSUPPORTED_ENDPOINT_TYPE, MISMATCHED_ENDPOINT_TYPE (INVALID_REQUEST in v0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import NOT_REQUESTED, cluster_operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

BROKERS, CONTROLLERS = 1, 2


def handle(services: Services, request: Request) -> Answer:
    """Answer from one snapshot of the cache."""
    message: DescribeClusterRequest = request.message
    if message.endpoint_type != BROKERS:
        return Reply(_refusal(message.endpoint_type, request.version))
    snapshot = services.metadata_cache.snapshot
    nodes = snapshot.nodes(request.listener_name)
    brokers = [(node, False) for node in nodes]
    if message.include_fenced_brokers:
        brokers += [(node, True) for node in snapshot.fenced_nodes(request.listener_name)]
    controller_id = snapshot.controller_for_clients(services.broker_id)
    return Reply(
        DescribeClusterResponse(
            cluster_id=services.cluster_id,
            endpoint_type=BROKERS,
            controller_id=controller_id if any(node.id == controller_id for node in nodes) else -1,
            brokers=[
                DescribeClusterBroker(
                    broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=is_fenced
                )
                for node, is_fenced in brokers
            ],
            cluster_authorized_operations=(
                cluster_operations(request, rights.DESCRIBE_CLUSTER)
                if message.include_cluster_authorized_operations
                else NOT_REQUESTED
            ),
        )
    )


def _refusal(endpoint_type: int, version: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=ErrorCode.INVALID_REQUEST if version == 0 else error, error_message=text)


API = Api(60, "DescribeCluster", (0, 2), handle)
