"""Reassignments: move a partition to other replicas. The partition never has too few replicas meanwhile.

Stages
1. A record adds the new replicas to the assignment, and names the `adding` and the `removing` replicas.
2. The new replicas copy the data and join the ISR (AlterPartition).
3. Once all remaining replicas are in the ISR, the same change drops the `removing` ones (elections.py, rule 6).
Stages 1 and 2 are skipped if the ISR is already right, for example if only the order of the replicas changes.

Threads: none; pure.

Source: ReplicationControlManager, PartitionReassignmentReplicas, PartitionReassignmentRevert (Kafka 4.3); KIP-455.
"""

from __future__ import annotations

from barnabas.controller.decision import Decision, Failure, View, check_item_count
from barnabas.controller.decisions.elections import Election, Target, change_partition, default_directory
from barnabas.controller.decisions.topics import check_manual_assignment
from barnabas.controller.image import Image, Partition, PartitionKey, Topic
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k45_alter_partition_reassignments as alter_wire
from barnabas.protocol.messages import k46_list_partition_reassignments as list_wire
from barnabas.protocol.metadata_records import MetadataRecord, PartitionChangeRecord


def alter_reassignments(
    view: View, request: alter_wire.AlterPartitionReassignmentsRequest
) -> Decision[alter_wire.AlterPartitionReassignmentsResponse]:
    """Start, replace or (replicas None) cancel reassignments; each partition is decided separately."""
    check_item_count(sum(max(1, len(topic.partitions)) for topic in request.topics))
    records: list[MetadataRecord] = []
    named: set[tuple[str, int]] = set()
    response = alter_wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            failure = Failure(ErrorCode.NONE)
            try:
                if (topic.name, wanted.partition_index) in named:  # Why: both would be decided from the same state
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each partition must appear at most once.")
                named.add((topic.name, wanted.partition_index))
                record = _alter_one(view, topic.name, wanted, request.allow_replication_factor_change)
                records += [] if record is None else [record]
            except ApiError as error:
                # Why not the code's own text: Kafka sends none, and its tools then show what the code means.
                failure = Failure(error.code, None if error.message == error.code.message else error.message)
            results.append(
                alter_wire.ReassignablePartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=failure.code,
                    error_message=failure.message,
                )
            )
        response.responses.append(alter_wire.ReassignableTopicResponse(name=topic.name, partitions=results))
    return Decision(records, response)


def _alter_one(
    view: View, name: str, wanted: alter_wire.ReassignablePartition, allow_factor_change: bool
) -> PartitionChangeRecord | None:
    topic = view.image.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{wanted.partition_index}."
        )
    key = PartitionKey(topic.id, wanted.partition_index)
    if wanted.replicas is None:
        return _cancel(view, topic, key, partition)
    return _start(view, key, partition, tuple(wanted.replicas), allow_factor_change)


def _start(
    view: View, key: PartitionKey, partition: Partition, wanted: tuple[int, ...], allow_factor_change: bool
) -> PartitionChangeRecord | None:
    check_manual_assignment(view.image, wanted, None)
    current_factor = len((set(partition.replicas) | set(partition.adding)) - set(partition.removing))
    if not allow_factor_change and len(wanted) != current_factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current_factor} to {len(wanted)}",
        )
    removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(partition.replicas)))
    target = Target(
        replicas=wanted + removing,
        removing=removing or None,
        adding=adding or None,
        directories={replica: default_directory(view.image, replica) for replica in adding},
    )
    return change_partition(view, key, partition, target)


def original_replicas(partition: Partition) -> tuple[int, ...]:
    """Return the assignment without the replicas that the reassignment in progress adds."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _cancel(view: View, topic: Topic, key: PartitionKey, partition: Partition) -> PartitionChangeRecord | None:
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = original_replicas(partition)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    unclean_allowed = view.unclean_election_enabled(topic.name)
    if not isr and not set(partition.elr) & set(replicas):
        # Only replicas that were being added are in sync. Going back would lose the records that only they have.
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not unclean_allowed:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{key.partition} because it would require an "
                "unclean leader election.",
            )
        isr = replicas[:1]
    target = Target(
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
    )
    return change_partition(view, key, partition, target)


def list_reassignments(
    image: Image, request: list_wire.ListPartitionReassignmentsRequest
) -> list_wire.ListPartitionReassignmentsResponse:
    """Return the reassignments in progress: all, or those of the requested topics and partitions."""
    response = list_wire.ListPartitionReassignmentsResponse()
    if request.topics is None:
        wanted = [(topic, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        found = ((image.topic(named.name), list(named.partition_indexes)) for named in request.topics)
        wanted = [(topic, indexes) for topic, indexes in found if topic is not None]
    for topic, indexes in wanted:
        ongoing = [_ongoing(topic, index) for index in indexes]
        partitions = [one for one in ongoing if one is not None]
        if partitions:
            response.topics.append(list_wire.OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return response


def _ongoing(topic: Topic, index: int) -> list_wire.OngoingPartitionReassignment | None:
    partition = topic.partitions.get(index)
    if partition is None or not partition.is_reassigning:
        return None
    return list_wire.OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
