"""StreamsGroupHeartbeat: v0

Behaviour: a member of a streams group (KIP-1071) joins with its topology (epoch 0), renews its session and reports its
tasks, or leaves (epoch -1). A field that is null is unchanged. The response has the member's epoch, its tasks if they
changed, statuses of the group, and, if it has changed, which partitions are behind which endpoint; it is sent when the
change is committed. Missing internal topics are created for the member: it needs CREATE on them or on the cluster. A
member that is told of missing topics has no tasks yet, and gets them with a later heartbeat.

Errors: INVALID_REQUEST (also for what Kafka 4.3 does not have yet: static members, warm-up tasks, task offsets, regular
expressions, a changed topology), UNSUPPORTED_VERSION (streams.version is 0, or the protocol is not configured),
STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND (also for a group of another kind), UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.broker.apis import streams_topology
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits
from barnabas.protocol.messages import k88_streams_group_heartbeat as wire
from barnabas.protocol.messages.k88_streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.coordinators.streams_groups.values import HeartbeatResult, Status
    from barnabas.broker.requests.request import Request

ERRORS_SHOWN_MAX: Final = 3
ERRORS_KEPT_HEARTBEATS: Final = 2  # why a topic was not created is kept for this many heartbeat intervals


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the coordinator answers."""
    message: StreamsGroupHeartbeatRequest = request.message
    try:
        if not services.streams_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if request.access is not None:
            request.access.require(rights.STREAMS_HEARTBEAT, message.group_id)
        topology = None
        if message.topology is not None:
            streams_topology.check_size(message.topology)
            streams_topology.check_names(message.topology)
            if request.access is not None:
                _authorize(message.topology, request.access)
        check(message)
        if message.topology is not None:
            topology = streams_topology.of_request(message.topology)
    except ApiError as error:
        return Reply(response(error))
    deferred = Deferred()

    def answer(result: HeartbeatResult | ApiError) -> None:
        if isinstance(result, v.HeartbeatResult) and result.missing:
            result = _create_missing(services, request, result)
        deferred.complete(response(result))

    services.streams_groups.heartbeat(message.group_id, _heartbeat(message, topology, request), answer)
    return Park(deferred)


def _authorize(topology: wire.Topology, access: Access) -> None:
    """Raise ApiError unless the client may describe every topic of the topology."""
    names = streams_topology.names(topology)
    if len(access.allowed(rights.STREAMS_HEARTBEAT_TOPIC, names)) < len(names):
        raise ApiError(rights.STREAMS_HEARTBEAT_TOPIC.error)


def check(message: StreamsGroupHeartbeatRequest) -> None:
    """Raise ApiError for a request that contradicts itself, or that asks for what Kafka 4.3 does not have yet."""
    for value, text in (
        (message.instance_id, "Static membership is not yet supported."),
        (message.task_offsets, "TaskOffsets are not supported yet."),
        (message.task_end_offsets, "TaskEndOffsets are not supported yet."),
        (message.warmup_tasks or None, "WarmupTasks are not supported yet."),
    ):
        _require(value is None, text)
    subtopologies = () if message.topology is None else message.topology.subtopologies
    _require(
        not any(found.source_topic_regex for found in subtopologies),
        "Regular expressions for source topics are not supported yet.",
    )
    for name, text_value in (
        ("MemberId", message.member_id), ("GroupId", message.group_id), ("RackId", message.rack_id),
    ):  # fmt: skip
        _require(text_value is None or bool(text_value.strip()), f"{name} can't be empty.")
    if message.member_epoch == v.JOIN_EPOCH:
        _check_join(message)
    else:
        _require(message.member_epoch != v.STATIC_LEAVE_EPOCH, "InstanceId can't be null.")
        _require(
            message.member_epoch > v.STATIC_LEAVE_EPOCH,
            f"MemberEpoch is {message.member_epoch}, but must be greater than or equal to -2.",
        )
    roles = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    is_partial = any(tasks is None for tasks in roles) and any(tasks is not None for tasks in roles)
    _require(not is_partial, "If one task-type is non-null, all must be non-null.")
    is_late = message.member_epoch != v.JOIN_EPOCH and message.topology is not None
    _require(not is_late, "Topology can only be provided when (re-)joining.")


def _check_join(message: StreamsGroupHeartbeatRequest) -> None:
    _require(message.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", message.active_tasks), ("StandbyTasks", message.standby_tasks),
        ("WarmupTasks", message.warmup_tasks),
    ):  # fmt: skip
        _require(tasks == [], f"{name} must be empty when (re-)joining.")
    _require(message.topology is not None, "Topology must be non-null when (re-)joining.")


def _require(is_met: bool, text: str) -> None:
    if not is_met:
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


def _heartbeat(message: StreamsGroupHeartbeatRequest, topology: v.Topology | None, request: Request) -> v.Heartbeat:
    endpoint, tags = message.user_endpoint, message.client_tags
    return v.Heartbeat(
        member_id=message.member_id,
        epoch=message.member_epoch,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        topology=topology,
        owned=_owned(message),
        process_id=message.process_id,
        user_endpoint=None if endpoint is None else v.Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
        endpoint_epoch=message.endpoint_information_epoch,
        shuts_down=message.shutdown_application,
        client_id=request.client_id or "",
        client_host=request.client_host,
    )


def _owned(message: StreamsGroupHeartbeatRequest) -> v.Tasks | None:
    active, standby, warmup = message.active_tasks, message.standby_tasks, message.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return v.Tasks(_partitions(active), _partitions(standby), _partitions(warmup))


def _partitions(tasks: Sequence[wire.TaskIds]) -> v.Partitions:
    return v.partitions_of((each.subtopology_id, each.partitions) for each in tasks)


# Internal topics


def _create_missing(services: Services, request: Request, result: HeartbeatResult) -> HeartbeatResult:
    """Have the first missing topics created, if the client may; returns the result with why some are not."""
    missing = {topic.name: topic for topic in streams_topology.first_to_create(result.missing)}
    names = list(missing)
    refused = _may_not_create(names, request.access)
    if refused:
        return _explained(result, f"Unauthorized to CREATE on topics {streams_topology.listed(refused)}.")
    creation = services.auto_topic_creation
    keep_errors_ms = result.heartbeat_interval_ms * ERRORS_KEPT_HEARTBEATS
    creation.create_for_streams(names, lambda name: streams_topology.creatable(missing[name]), request, keep_errors_ms)
    failed = [f"{name} ({message})" for name, message in creation.streams_errors(names).items()]
    if not failed:
        return result
    more = len(failed) - ERRORS_SHOWN_MAX
    rest = f" and {more} more" if more > 0 else ""
    return _explained(result, f"Creation failed: {', '.join(failed[:ERRORS_SHOWN_MAX])}{rest}.")


def _may_not_create(names: Sequence[str], access: Access | None) -> list[str]:
    if access is None or access.allows(rights.STREAMS_CREATE_ANY):
        return []
    allowed = access.allowed(rights.STREAMS_CREATE_TOPIC, names)
    return [name for name in names if name not in allowed]


def _explained(result: HeartbeatResult, why: str) -> HeartbeatResult:
    """Add why topics are not created to the status that says that they are missing."""

    def explained(status: Status) -> Status:
        is_it = status.code == v.StatusCode.MISSING_INTERNAL_TOPICS
        return status._replace(detail=f"{status.detail}; {why}") if is_it else status

    return replace(result, statuses=tuple(explained(status) for status in result.statuses))


# The response


def response(result: HeartbeatResult | ApiError) -> StreamsGroupHeartbeatResponse:
    """Build the response."""
    if isinstance(result, ApiError):
        return StreamsGroupHeartbeatResponse(error_code=result.code, error_message=result.own_message)
    message = StreamsGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        endpoint_information_epoch=result.endpoint_epoch,
        status=[
            wire.Status(status_code=status.code, status_detail=message_that_fits(status.detail))
            for status in result.statuses
        ],
    )
    if result.tasks is not None:
        message.active_tasks = _task_ids(result.tasks.active)
        message.standby_tasks = _task_ids(result.tasks.standby)
        message.warmup_tasks = _task_ids(result.tasks.warmup)
    if result.endpoints is not None:
        message.partitions_by_user_endpoint = [_endpoint(found) for found in result.endpoints]
    return message


def _task_ids(tasks: v.Partitions) -> list[wire.TaskIds]:
    return [wire.TaskIds(subtopology_id=id_, partitions=sorted(found)) for id_, found in sorted(tasks.items())]


def _endpoint(found: v.EndpointPartitions) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=found.endpoint.host, port=found.endpoint.port),
        active_partitions=[wire.TopicPartition(topic=name, partitions=list(p)) for name, p in found.active.items()],
        standby_partitions=[wire.TopicPartition(topic=name, partitions=list(p)) for name, p in found.standby.items()],
    )


API = Api(88, "StreamsGroupHeartbeat", (0, 0), handle)
