"""Fetch: v4-v18

Behaviour: the leader of the quorum returns what follows a replica's log of `__cluster_metadata-0`. It answers when
there are records or a higher high watermark, or when max_wait_ms has passed; it waits 5 seconds at most.

Version notes: before v12, Fetch has no epoch of the last record, and is refused.

Errors: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST; of the partition: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, ask_quorum
from barnabas.protocol.errors import ApiError, ErrorCode

#: Bounds what is kept of connections that end while their fetch waits.
WAIT_MS_MAX: Final = 5_000
_FIRST_VERSION_WITH_EPOCH: Final = 12
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the fetch to this controller's replica."""
    message = request.message
    if request.version < _FIRST_VERSION_WITH_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Replicas of the metadata log fetch by v12 or later.")
    if request.version < _FIRST_VERSION_WITH_REPLICA_STATE:
        message.replica_state.replica_id = message.replica_id
    message.max_wait_ms = min(message.max_wait_ms, WAIT_MS_MAX)
    return ask_quorum(services, request)


API = Api(1, "Fetch", (4, 18), handle, nodes_only=nodes_only)
