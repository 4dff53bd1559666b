"""Reassignments: move a partition to other replicas, without a moment in which it has too few.

Stages
1. The record adds the new replicas to the assignment and says which are `adding` and which are `removing`.
2. The new replicas copy the data and join the ISR (AlterPartition).
3. Once all that stay are in the ISR, the same change drops the `removing` ones (elections.py, rule 6).
Stages 1 and 2 are skipped when the ISR is already right, e.g. when replicas are only put in another order.

Threads: none; pure.

Source: ReplicationControlManager, PartitionReassignmentReplicas, PartitionReassignmentRevert (Kafka 4.3); KIP-455.
"""

from __future__ import annotations

from typing import Any

from barnabas.controller.decision import Decision, Failure, View, check_item_count
from barnabas.controller.elections import Election, Target, change_partition, default_directory
from barnabas.controller.image import Image, Partition, PartitionKey, Topic
from barnabas.controller.topics import check_manual_assignment
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k45_alter_partition_reassignments as alter_wire
from barnabas.protocol.messages import k46_list_partition_reassignments as list_wire
from barnabas.protocol.metadata_records import PartitionChangeRecord


def alter_reassignments(
    view: View, request: alter_wire.AlterPartitionReassignmentsRequest
) -> Decision[alter_wire.AlterPartitionReassignmentsResponse]:
    """Start, replace or (replicas None) cancel reassignments, each partition on its own."""
    check_item_count(sum(max(1, len(topic.partitions)) for topic in request.topics))
    records: list[Any] = []
    named: set[tuple[str, int]] = set()
    response = alter_wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            failure = Failure(ErrorCode.NONE)
            try:
                if (topic.name, asked.partition_index) in named:  # Why: both would be decided upon the same state
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each partition must appear at most once.")
                named.add((topic.name, asked.partition_index))
                record = _alter_one(view, topic.name, asked, request.allow_replication_factor_change)
                records += [] if record is None else [record]
            except ApiError as error:
                failure = Failure.of(error)
            answers.append(
                alter_wire.ReassignablePartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=failure.code,
                    error_message=failure.message,
                )
            )
        response.responses.append(alter_wire.ReassignableTopicResponse(name=topic.name, partitions=answers))
    return Decision(records, response)


def _alter_one(view: View, name: str, asked: Any, allow_factor_change: bool) -> PartitionChangeRecord | None:
    topic = view.image.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}."
        )
    key = PartitionKey(topic.id, asked.partition_index)
    if asked.replicas is None:
        return _cancel(view, topic, key, partition)
    return _start(view, key, partition, tuple(asked.replicas), allow_factor_change)


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
    return change_partition(view.image, key, partition, target)


def original_replicas(partition: Partition) -> tuple[int, ...]:
    """The assignment without what the reassignment under way adds."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _cancel(view: View, topic: Topic, key: PartitionKey, partition: Partition) -> PartitionChangeRecord | None:
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = original_replicas(partition)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    unclean_allowed = view.unclean_election_enabled(topic.name)
    if not isr:
        # Every in-sync replica is one that was being added: going back would lose what only they have.
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
    return change_partition(view.image, key, partition, target)


def list_reassignments(
    image: Image, request: list_wire.ListPartitionReassignmentsRequest
) -> list_wire.ListPartitionReassignmentsResponse:
    """The reassignments under way: all, or those of the topics and partitions asked for."""
    response = list_wire.ListPartitionReassignmentsResponse()
    if request.topics is None:
        wanted = [(topic, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        found = ((image.topic(asked.name), list(asked.partition_indexes)) for asked in request.topics)
        wanted = [(topic, indexes) for topic, indexes in found if topic is not None]
    for topic, indexes in wanted:
        ongoing = [_ongoing(topic, index) for index in indexes]
        partitions = [one for one in ongoing if one is not None]
        if partitions:
            response.topics.append(list_wire.OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return response


def _ongoing(topic: Topic, index: int) -> Any:
    partition = topic.partitions.get(index)
    if partition is None or not partition.is_reassigning:
        return None
    return list_wire.OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
