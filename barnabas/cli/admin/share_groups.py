"""Share groups (KIP-932) for `barnabas group`: librdkafka's admin client has no requests for them.

The group's coordinator knows the members and their partitions. The share coordinators know the start offsets, and the
leaders the lag: any broker collects these. Only the leaders know which records are in flight, and their pages show it
(`/live.json`, section `shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.cli.cluster_nodes import CLIENT_ID, TIMEOUT_MS, OldReleaseError, ask, ask_any
from barnabas.cli.errors import UserError
from barnabas.cli.output import Row
from barnabas.cli.security.answers import check
from barnabas.cli.security.command_config import connector
from barnabas.client.connection import NodeConnectionError
from barnabas.common.pages.live_shape import SharePartition
from barnabas.common.pages.phrases import count
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k77_share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from barnabas.protocol.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.protocol.schema import Request

COLUMNS: Final = ("topic", "partition", "start", "lag", "in_flight", "held", "deliveries", "members")
TYPE: Final = "share"  # Kafka's word for the kind
GROUP: Final = 0
METADATA_VERSION, LIST_VERSION = 12, 5
COORDINATOR_VERSION, DESCRIBE_VERSION, OFFSETS_VERSION = 4, 1, 1
UNKNOWN: Final = -1
NO_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


class Position(NamedTuple):
    """Where a share group is in a partition; None: not known."""

    start: int | None
    lag: int | None


Positions = dict[TopicPartition, Position]


def states(bootstrap: str, kind: str = TYPE) -> dict[str, str]:
    """Return the state of each group of a kind, by default of each share group. Raises UserError."""
    found = {}
    for broker in ask_any(bootstrap, MetadataRequest(topics=[]), METADATA_VERSION).brokers:
        try:
            answer = _ask(bootstrap, broker.host, broker.port, ListGroupsRequest(types_filter=[kind]), LIST_VERSION)
        except UserError:
            continue  # Why: librdkafka has reported it already, or it is an older one, without such groups
        found.update({group.group_id: group.group_state for group in answer.groups})
    return found


def share_groups(bootstrap: str, names: Sequence[str]) -> dict[str, DescribedGroup]:
    """Describe those of these groups that are share groups. Raises UserError."""
    return by_coordinator(
        bootstrap, names, lambda together: ShareGroupDescribeRequest(group_ids=together), DESCRIBE_VERSION
    )


def by_coordinator(
    bootstrap: str, names: Sequence[str], describe: Callable[[list[str]], Request], version: int
) -> dict[str, Any]:
    """Ask the coordinator of each group with `describe`; return the groups that are of its kind. Raises UserError."""
    coordinators: dict[tuple[str, int], list[str]] = {}
    if names:
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=list(names))
        try:
            answers = ask_any(bootstrap, request, COORDINATOR_VERSION).coordinators
        except OldReleaseError:
            return {}  # Why: releases that find one coordinator at a time have consumer groups only
        for each in answers:
            check(each.error_code, each.error_message, each.key)
            coordinators.setdefault((each.host, each.port), []).append(each.key)
    found = {}
    for (host, port), together in coordinators.items():
        try:
            answer = _ask(bootstrap, host, port, describe(together), version)
        except UserError:
            continue  # see `states`
        for group in answer.groups:
            if group.error_code not in NO_GROUP:
                check(group.error_code, group.error_message, group.group_id)
                found[group.group_id] = group
    return found


def positions(bootstrap: str, name: str) -> Positions:
    """Return the partitions of a share group whose state is initialised. Raises UserError."""
    (coordinator,) = ask_any(
        bootstrap, FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[name]), COORDINATOR_VERSION
    ).coordinators
    check(coordinator.error_code, coordinator.error_message, name)
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    (group,) = _ask(bootstrap, coordinator.host, coordinator.port, request, OFFSETS_VERSION).groups
    check(group.error_code, group.error_message, name)
    return {
        TopicPartition(topic.topic_name, part.partition_index): Position(
            None if part.error_code or part.start_offset == UNKNOWN else part.start_offset,
            None if part.error_code or part.lag == UNKNOWN else part.lag,
        )
        for topic in group.topics
        for part in topic.partitions
    }


def _ask(bootstrap: str, host: str, port: int, message: Request, version: int) -> Any:
    try:
        with connector(bootstrap)(host, port, timeout_ms=TIMEOUT_MS, client_id=CLIENT_ID) as connection:
            return ask(connection, message, version)
    except NodeConnectionError as error:
        raise UserError(f"{host}:{port} does not answer: {error}") from error


def title(group: DescribedGroup) -> str:
    """Return a share group in a few words."""
    return f"{group.group_id}: share group, {group.group_state}, {count(len(group.members), 'member')}"


def rows(
    group: DescribedGroup, found: Mapping[TopicPartition, Position], delivered: Iterable[SharePartition] | None
) -> list[Row]:
    """Return a row for each partition; `delivered` is what the leaders' pages show, None if they show nothing."""
    owners: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for topic in member.assignment.topic_partitions:
            for partition in topic.partitions:
                owners.setdefault(TopicPartition(topic.topic_name, partition), []).append(member.member_id)
    shown = {TopicPartition(each["topic"], each["partition"]): each for each in delivered or ()}
    return [
        _row(tp, found.get(tp, Position(None, None)), shown.get(tp), owners.get(tp, ()), is_shown=delivered is not None)
        for tp in sorted({*found, *owners, *shown})
    ]


def _row(
    tp: TopicPartition, at: Position, shown: SharePartition | None, owners: Sequence[str], *, is_shown: bool
) -> Row:
    nothing = 0 if is_shown else None
    held = shown["held"]["items"] if shown is not None else []
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        # Why the leader's: what it has passed since its last write is not kept yet.
        "start": at.start if shown is None or shown["is_loading"] else shown["start_offset"],
        "lag": at.lag,
        "in_flight": nothing if shown is None else shown["in_flight"],
        "held": nothing if shown is None else sum(each["last_offset"] - each["first_offset"] + 1 for each in held),
        "deliveries": max((each["delivery_count"] for each in held), default=nothing),
        "members": ", ".join(sorted(owners)),
    }
