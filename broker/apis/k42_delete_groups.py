"""DeleteGroups: v0-v2

Behaviour: deletes groups that have no members, with their offsets; answers when that is written. The state of a share
group's partitions is deleted first, at the share coordinators.

Version notes: v2 flexible.

Errors per group: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE (not replicated in time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.errors import ErrorCode


def handle(services: Services, request: Request) -> Park:
    """Park until the deletions are written."""
    message: DeleteGroupsRequest = request.message
    group_ids = list(dict.fromkeys(message.groups_names))
    access = request.access
    allowed = group_ids
    if access is not None:
        allowed = [group_id for group_id in group_ids if access.allows(rights.DELETE_GROUP, group_id)]
    deferred = Deferred()

    def answered(errors: Mapping[str, ErrorCode]) -> None:
        results = [
            DeletableGroupResult(group_id=group_id, error_code=errors.get(group_id, rights.DELETE_GROUP.error))
            for group_id in group_ids
        ]
        deferred.complete(DeleteGroupsResponse(results=results))

    services.group_coordinator.delete_groups(allowed, answered)
    return Park(deferred)


API = Api(42, "DeleteGroups", (0, 2), handle)
