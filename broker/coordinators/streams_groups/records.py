"""Encodes and decodes the records of streams groups (KIP-1071) in __consumer_offsets.

Format (each key begins with its record type, each value with its version, 0; value null: a tombstone)
    17  StreamsGroupMetadata                  group         the group's epoch
    19  StreamsGroupMemberMetadata            group, member
    20  StreamsGroupTargetAssignmentMetadata  group         the assignment epoch
    21  StreamsGroupTargetAssignmentMember    group, member
    22  StreamsGroupCurrentMemberAssignment   group, member
    23  StreamsGroupTopology                  group

Lists are sorted, so that equal values have equal bytes. Type 18 was in early versions only.

Source: Kafka's StreamsCoordinatorRecordHelpers, TasksTupleWithEpochs, StreamsTopology, GroupCoordinatorRecordSerde
(4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.values import Epochs, Member, OwnedTasks, Partitions, Record, Tasks
from barnabas.protocol.coordinator_records import streams_groups as wire
from barnabas.protocol.coordinator_records.record import (
    CoordinatorKey,
    CoordinatorValue,
    decode_versioned,
    encode_versioned,
)

KeyValue: TypeAlias = tuple[bytes, bytes | None]
Pair: TypeAlias = tuple[CoordinatorKey, CoordinatorValue | None]
TargetIds: TypeAlias = wire.StreamsGroupTargetAssignmentMemberTaskIds
CurrentIds: TypeAlias = wire.StreamsGroupCurrentMemberAssignmentTaskIds


class StreamsGroupRecord(NamedTuple):
    """A record and its group."""

    group_id: str
    record: Record


def encode(group_id: str, record: Record) -> KeyValue:
    """Build the key and the value of a record."""
    key, value = WRITERS[type(record)](group_id, record)
    return encode_versioned(key), None if value is None else encode_versioned(value)


def read(record_type: int, key: bytes, value: bytes | None) -> StreamsGroupRecord | None:
    """Decode a record of this type; None if it is not a streams group's. Raises MalformedMessageError."""
    classes = CLASSES.get(record_type)
    if classes is None:
        return None
    key_class, value_class, reader = classes
    parsed_key: Any = decode_versioned(key_class, key)
    parsed_value: Any = None if value is None else decode_versioned(value_class, value)
    return StreamsGroupRecord(parsed_key.group_id, reader(parsed_key, parsed_value))


# Writing


def _write_epoch(group_id: str, record: v.GroupEpoch) -> Pair:
    key = wire.StreamsGroupMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    configs = sorted(record.assignment_configs.items())
    return key, wire.StreamsGroupMetadataValue(
        epoch=record.epoch,
        metadata_hash=record.metadata_hash,
        validated_topology_epoch=record.validated_topology_epoch,
        last_assignment_configs=[wire.LastAssignmentConfig(key=name, value=value) for name, value in configs],
    )


def _write_member(group_id: str, record: v.MemberMetadata) -> Pair:
    key = wire.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    endpoint = member.user_endpoint
    return key, wire.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=name, value=value) for name, value in sorted(member.client_tags.items())],
    )


def _write_target_epoch(group_id: str, record: v.TargetEpoch) -> Pair:
    key = wire.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
    )


def _write_target(group_id: str, record: v.TargetAssignment) -> Pair:
    key = wire.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    tasks = record.tasks
    if tasks is None:
        return key, None
    return key, wire.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_ids(tasks.active),
        standby_tasks=_target_ids(tasks.standby),
        warmup_tasks=_target_ids(tasks.warmup),
    )


def _write_current(group_id: str, record: v.CurrentAssignment) -> Pair:
    key = wire.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    assigned, pending = member.assigned, member.pending_revocation
    return key, wire.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        active_tasks=_ids_with_epochs(assigned.active),
        standby_tasks=_current_ids(assigned.standby),
        warmup_tasks=_current_ids(assigned.warmup),
        active_tasks_pending_revocation=_ids_with_epochs(pending.active),
        standby_tasks_pending_revocation=_current_ids(pending.standby),
        warmup_tasks_pending_revocation=_current_ids(pending.warmup),
    )


def _write_topology(group_id: str, record: v.GroupTopology) -> Pair:
    key = wire.StreamsGroupTopologyKey(group_id=group_id)
    topology = record.topology
    if topology is None:
        return key, None
    subtopologies = [_subtopology_to_wire(found) for _, found in sorted(topology.subtopologies.items())]
    return key, wire.StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies)


def _target_ids(tasks: Partitions) -> list[TargetIds]:
    return [
        wire.StreamsGroupTargetAssignmentMemberTaskIds(subtopology_id=id_, partitions=sorted(found))
        for id_, found in sorted(tasks.items())
    ]


def _current_ids(tasks: Partitions) -> list[CurrentIds]:
    return [
        wire.StreamsGroupCurrentMemberAssignmentTaskIds(
            subtopology_id=id_, partitions=sorted(found), assignment_epochs=None
        )
        for id_, found in sorted(tasks.items())
    ]


def _ids_with_epochs(tasks: Epochs) -> list[CurrentIds]:
    return [
        wire.StreamsGroupCurrentMemberAssignmentTaskIds(
            subtopology_id=id_,
            partitions=sorted(found),
            assignment_epochs=[found[partition] for partition in sorted(found)],
        )
        for id_, found in sorted(tasks.items())
    ]


def _subtopology_to_wire(found: v.Subtopology) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=found.subtopology_id,
        source_topics=list(found.source_topics),
        source_topic_regex=list(found.source_topic_regexes),
        state_changelog_topics=_topics_to_wire(found.changelogs),
        repartition_sink_topics=list(found.repartition_sinks),
        repartition_source_topics=_topics_to_wire(found.repartition_sources),
        copartition_groups=[
            wire.CopartitionGroup(
                source_topics=list(group.source_topics),
                source_topic_regex=list(group.source_topic_regexes),
                repartition_source_topics=list(group.repartition_sources),
            )
            for group in found.copartition_groups
        ],
    )


def _topics_to_wire(topics: Sequence[v.InternalTopic]) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[wire.TopicConfig(key=name, value=value) for name, value in topic.configs],
        )
        for topic in topics
    ]


WRITERS: Mapping[type[Any], Callable[[str, Any], Pair]] = {
    v.GroupEpoch: _write_epoch,
    v.MemberMetadata: _write_member,
    v.TargetEpoch: _write_target_epoch,
    v.TargetAssignment: _write_target,
    v.CurrentAssignment: _write_current,
    v.GroupTopology: _write_topology,
}

# Reading


def _read_epoch(_key: wire.StreamsGroupMetadataKey, value: wire.StreamsGroupMetadataValue | None) -> v.GroupEpoch:
    if value is None:
        return v.GroupEpoch(None)
    configs = {config.key: config.value for config in value.last_assignment_configs or ()}
    return v.GroupEpoch(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)


def _read_member(
    key: wire.StreamsGroupMemberMetadataKey, value: wire.StreamsGroupMemberMetadataValue | None
) -> v.MemberMetadata:
    if value is None:
        return v.MemberMetadata(key.member_id, None)
    endpoint = value.user_endpoint
    member = Member(
        member_id=key.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else v.Endpoint(endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
    )
    return v.MemberMetadata(key.member_id, member)


def _read_target_epoch(
    _key: wire.StreamsGroupTargetAssignmentMetadataKey, value: wire.StreamsGroupTargetAssignmentMetadataValue | None
) -> v.TargetEpoch:
    return v.TargetEpoch(None) if value is None else v.TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _read_target(
    key: wire.StreamsGroupTargetAssignmentMemberKey, value: wire.StreamsGroupTargetAssignmentMemberValue | None
) -> v.TargetAssignment:
    if value is None:
        return v.TargetAssignment(key.member_id, None)
    tasks = Tasks(_partitions(value.active_tasks), _partitions(value.standby_tasks), _partitions(value.warmup_tasks))
    return v.TargetAssignment(key.member_id, tasks)


def _read_current(
    key: wire.StreamsGroupCurrentMemberAssignmentKey, value: wire.StreamsGroupCurrentMemberAssignmentValue | None
) -> v.CurrentAssignment:
    if value is None:
        return v.CurrentAssignment(key.member_id, None)
    member = Member(
        key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=v.MemberState.of(value.state),
        assigned=OwnedTasks(
            _epochs(value.active_tasks, value.member_epoch),
            _partitions(value.standby_tasks),
            _partitions(value.warmup_tasks),
        ),
        pending_revocation=OwnedTasks(
            _epochs(value.active_tasks_pending_revocation, value.member_epoch),
            _partitions(value.standby_tasks_pending_revocation),
            _partitions(value.warmup_tasks_pending_revocation),
        ),
    )
    return v.CurrentAssignment(key.member_id, member)


def _read_topology(_key: wire.StreamsGroupTopologyKey, value: wire.StreamsGroupTopologyValue | None) -> v.GroupTopology:
    if value is None:
        return v.GroupTopology(None)
    subtopologies = {found.subtopology_id: _subtopology(found) for found in value.subtopologies}
    return v.GroupTopology(v.Topology(value.epoch, subtopologies))


def _partitions(tasks: Sequence[TargetIds] | Sequence[CurrentIds]) -> Partitions:
    return v.partitions_of((task_ids.subtopology_id, task_ids.partitions) for task_ids in tasks)


def _epochs(tasks: Sequence[CurrentIds], member_epoch: int) -> Epochs:
    """Return active tasks with their epochs; early versions wrote none, and the member's epoch stands for them."""
    found: dict[str, dict[int, int]] = {}
    for task_ids in tasks:
        epochs = task_ids.assignment_epochs
        if epochs is None or len(epochs) != len(task_ids.partitions):
            epochs = [member_epoch] * len(task_ids.partitions)
        if task_ids.partitions:
            found.setdefault(task_ids.subtopology_id, {}).update(zip(task_ids.partitions, epochs, strict=True))
    return found


def _subtopology(found: wire.Subtopology) -> v.Subtopology:
    return v.Subtopology(
        subtopology_id=found.subtopology_id,
        source_topics=tuple(found.source_topics),
        source_topic_regexes=tuple(found.source_topic_regex),
        changelogs=_topics(found.state_changelog_topics),
        repartition_sinks=tuple(found.repartition_sink_topics),
        repartition_sources=_topics(found.repartition_source_topics),
        copartition_groups=tuple(
            v.CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in found.copartition_groups
        ),
    )


def _topics(topics: Sequence[wire.TopicInfo]) -> tuple[v.InternalTopic, ...]:
    return tuple(
        v.InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )


CLASSES: Mapping[int, tuple[type[CoordinatorKey], type[CoordinatorValue], Callable[[Any, Any], Record]]] = {
    17: (wire.StreamsGroupMetadataKey, wire.StreamsGroupMetadataValue, _read_epoch),
    19: (wire.StreamsGroupMemberMetadataKey, wire.StreamsGroupMemberMetadataValue, _read_member),
    20: (
        wire.StreamsGroupTargetAssignmentMetadataKey,
        wire.StreamsGroupTargetAssignmentMetadataValue,
        _read_target_epoch,
    ),
    21: (wire.StreamsGroupTargetAssignmentMemberKey, wire.StreamsGroupTargetAssignmentMemberValue, _read_target),
    22: (wire.StreamsGroupCurrentMemberAssignmentKey, wire.StreamsGroupCurrentMemberAssignmentValue, _read_current),
    23: (wire.StreamsGroupTopologyKey, wire.StreamsGroupTopologyValue, _read_topology),
}
