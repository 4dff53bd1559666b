"""Streams groups (KIP-1071) for `barnabas group`: librdkafka's admin client has no requests for them.

A task has its subtopology and its partition in its name, as Kafka Streams writes it: `0_3`. Its lag is that of the
partitions that it reads, as far as offsets are committed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.cli.admin.share_groups import by_coordinator
from barnabas.cli.output import Row
from barnabas.common.pages.phrases import count
from barnabas.protocol.messages.k89_streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
)

COLUMNS: Final = ("task", "role", "member", "host", "process", "epoch", "lag")
TYPE: Final = "streams"  # Kafka's word for the kind
DESCRIBE_VERSION: Final = 0

Lags = Mapping[tuple[str, int], int]  # by (topic, partition)


class Task(NamedTuple):
    """A task of a streams group."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


def describe(bootstrap: str, name: str) -> DescribedGroup | None:
    """Describe a streams group; None if there is none of this name. Raises UserError."""
    found: dict[str, DescribedGroup] = by_coordinator(
        bootstrap, [name], lambda names: StreamsGroupDescribeRequest(group_ids=names), DESCRIBE_VERSION
    )
    return found.get(name)


def title(group: DescribedGroup) -> str:
    """Return a streams group in a few words."""
    topology = "no topology" if group.topology is None else f"topology epoch {group.topology.epoch}"
    epochs = f"group epoch {group.group_epoch}"
    if group.assignment_epoch != group.group_epoch:
        epochs += f" (assigned: {group.assignment_epoch})"
    members = count(len(group.members), "member")
    return f"{group.group_id}: streams group, {group.group_state}, {members}, {epochs}, {topology}"


def rows(group: DescribedGroup, lags: Lags) -> list[Row]:
    """Return a row for each task of each member, each task that no member has, and each member without tasks."""
    subtopologies = (group.topology.subtopologies or ()) if group.topology is not None else ()
    read = {
        found.subtopology_id: {*found.source_topics, *(topic.name for topic in found.repartition_source_topics)}
        for found in subtopologies
    }
    shown: list[tuple[Task, str | None, Member | None]] = []
    idle = []
    for member in group.members:
        has = set(_tasks(member.assignment))
        comes = set(_tasks(member.target_assignment)) - has
        shown += [(task, role, member) for task, role in has]
        shown += [(task, f"to be {role}", member) for task, role in comes]
        if not has and not comes:
            idle.append(member)
    left = {Task(id_, number) for id_, topics in read.items() for topic, number in lags if topic in topics}
    shown += [(task, None, None) for task in left.difference(task for task, _, _ in shown)]
    shown.sort(key=lambda item: (item[0], item[1] or ""))
    return [
        *(_row(task, role, member, _lag(task, read, lags)) for task, role, member in shown),
        *(_row(None, None, member, None) for member in idle),
    ]


def _tasks(assignment: Assignment) -> Iterator[tuple[Task, str]]:
    roles = (
        ("active", assignment.active_tasks),
        ("standby", assignment.standby_tasks),
        ("warm-up", assignment.warmup_tasks),
    )
    for role, tasks in roles:
        for each in tasks:
            for partition in each.partitions:
                yield Task(each.subtopology_id, partition), role


def _lag(task: Task, read: Mapping[str, set[str]], lags: Lags) -> int | None:
    found = [lags.get((topic, task.partition)) for topic in read.get(task.subtopology_id, ())]
    known = [lag for lag in found if lag is not None]
    return sum(known) if known else None


def _row(task: Task | None, role: str | None, member: Member | None, lag: int | None) -> Row:
    return {
        "task": None if task is None else str(task),
        "role": role,
        "member": None if member is None else member.member_id,
        "host": None if member is None else member.client_host.lstrip("/"),
        "process": None if member is None else member.process_id,
        "epoch": None if member is None else member.member_epoch,
        "lag": lag,
    }
