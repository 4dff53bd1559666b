"""DescribeCluster: v0-v2

Behaviour: a controller returns the controllers (endpoint type 2, KIP-919), which of them is active (-1 if it does not
know) and the cluster id. A standby controller answers too. A broker with empty
directories learns the cluster id from it.

Errors: MISMATCHED_ENDPOINT_TYPE (from v1, for the brokers), UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.apis.authorized import NOT_REQUESTED, cluster_operations
from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterBroker, DescribeClusterResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2
NO_CONTROLLER: Final = -1
_FIRST_VERSION_WITH_TYPE: Final = 1


def handle(services: ControllerServices, request: Request) -> Answer:
    """Return the controllers."""
    message = request.message
    has_type = request.header.api_version >= _FIRST_VERSION_WITH_TYPE
    if has_type and message.endpoint_type != CONTROLLERS:
        if message.endpoint_type == BROKERS:
            raise ApiError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER",
            )
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {message.endpoint_type}")
    leader_id = services.controller.leader.leader_id
    return Reply(
        DescribeClusterResponse(
            endpoint_type=CONTROLLERS if has_type else BROKERS,  # v0 has no such field
            cluster_id=services.cluster_id,
            cluster_authorized_operations=(
                cluster_operations(request, rights.DESCRIBE_CLUSTER_OPERATIONS)
                if message.include_cluster_authorized_operations
                else NOT_REQUESTED
            ),
            controller_id=NO_CONTROLLER if leader_id is None else leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=host, port=port)
                for node_id, (host, port) in sorted(_addresses(services, request.context.listener_name).items())
            ],
        )
    )


def _addresses(services: ControllerServices, listener_name: str) -> dict[int, tuple[str, int]]:
    """Return where the registered controllers, and this one, have a listener."""
    found = {
        controller.id: (endpoint.host, endpoint.port)
        for controller in services.controller.committed_image.controllers.values()
        for endpoint in controller.endpoints
        if endpoint.name == listener_name
    }
    return {services.endpoint[0]: services.endpoint[1:], **found}


API = Api(60, "DescribeCluster", (0, 2), handle)
