"""AlterPartition: a leader proposes a new ISR for a partition; the controller accepts or refuses it.

Rules
1. Only the current leader may change an ISR. It must name the current leader epoch and partition epoch, and each
   partition once. So two changes are never accepted for the same state.
2. A replica joins an ISR only if its broker is active, and is the incarnation that the leader saw catching up.
   Otherwise a broker that has lost its disk could pass for one that has the data (KIP-903).
3. A change that completes a reassignment may move the leader. The response to the proposer is then
   NEW_LEADER_ELECTED.

Threads: none; pure.

Source: ReplicationControlManager.alterPartition (Kafka 4.3).
"""

from __future__ import annotations

import logging

from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.decisions.elections import Election, Target, change_partition, default_directory
from barnabas.controller.image import NO_LEADER_CHANGE, RECOVERED, RECOVERING, Image, Partition, PartitionKey, Topic
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k56_alter_partition as wire
from barnabas.protocol.metadata_records import PartitionChangeRecord

log = logging.getLogger("barnabas.controller.alter_partition")

NO_EPOCH_CHECK = -1
FIRST_VERSION_WITH_EPOCHS = 3


def alter_partition(
    view: View, request: wire.AlterPartitionRequest, version: int
) -> Decision[wire.AlterPartitionResponse]:
    """Decide each proposed ISR; raises STALE_BROKER_EPOCH for the whole request."""
    check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    decided: set[PartitionKey] = set()
    response = wire.AlterPartitionResponse()
    for named in request.topics:
        topic = view.image.topics.get(named.topic_id)
        partitions = []
        for proposal in named.partitions:
            key = PartitionKey(named.topic_id, proposal.partition_index)
            if topic is None:
                answer = _failed(proposal.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif key in decided:  # Why: both would be decided from the same state
                answer = _failed(proposal.partition_index, ErrorCode.INVALID_REQUEST)
            else:
                answer = _alter_one(view, request.broker_id, topic, proposal, version, records)
            decided.add(key)
            partitions.append(answer)
        response.topics.append(wire.ResponseTopicData(topic_id=named.topic_id, partitions=partitions))
    return Decision(records, response)


def _alter_one(
    view: View,
    broker_id: int,
    topic: Topic,
    proposal: wire.RequestPartitionData,
    version: int,
    records: list[PartitionChangeRecord],
) -> wire.ResponsePartitionData:
    """Decide one partition: append its record, if any, and return its part of the response."""
    partition = topic.partitions.get(proposal.partition_index)
    isr = proposed_isr(proposal, version)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else ErrorCode.NONE
    if partition is not None:
        error = validate(view.image, broker_id, partition, proposal, isr)
    if partition is None or error is not ErrorCode.NONE:
        log.info(
            "Rejecting AlterPartition of broker %d for %s-%d with %s: proposed %s, current state %s",
            broker_id, topic.name, proposal.partition_index, error.name, proposal, partition,
        )  # fmt: skip
        return _failed(proposal.partition_index, error)
    unclean = view.unclean_election_enabled(topic.name)
    key = PartitionKey(topic.id, proposal.partition_index)
    target = Target(
        isr=tuple(replica for replica, _ in isr),
        recovery_state=proposal.leader_recovery_state,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        directories=_moved_directories(view.image, partition, [replica for replica, _ in isr]),
    )
    record = change_partition(view, key, partition, target)
    if record is not None:
        records.append(record)
        partition = partition.merge(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            log.info("The new ISR of %s-%d completed a reassignment and moved its leader", topic.name, key.partition)
            return _failed(proposal.partition_index, ErrorCode.NEW_LEADER_ELECTED)
    return _succeeded(proposal.partition_index, partition)


def _moved_directories(image: Image, partition: Partition, members: list[int]) -> dict[int, bytes]:
    """Return new directories for members in a directory that their broker no longer has: they have copied the data."""
    return {
        replica: default_directory(image, replica)
        for replica in members
        if replica not in partition.isr
        and replica in image.brokers
        and not image.brokers[replica].has_online_dir(partition.directory(replica))
    }


def proposed_isr(proposal: wire.RequestPartitionData, version: int) -> list[tuple[int, int]]:
    """Return the proposed members as (broker id, broker epoch); the epoch is NO_EPOCH_CHECK before version 3."""
    if version < FIRST_VERSION_WITH_EPOCHS:
        return [(broker_id, NO_EPOCH_CHECK) for broker_id in proposal.new_isr]
    return [(state.broker_id, state.broker_epoch) for state in proposal.new_isr_with_epochs]


def validate(
    image: Image,
    broker_id: int,
    partition: Partition,
    proposal: wire.RequestPartitionData,
    isr: list[tuple[int, int]],
) -> ErrorCode:
    """Return the error of a proposal, NONE if this broker may make the change now (rules 1 and 2)."""
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [replica for replica, _ in isr]
    if not _is_possible_isr(partition, members, proposal.leader_recovery_state):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, replica, epoch) for replica, epoch in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_possible_isr(partition: Partition, members: list[int], recovery_state: int) -> bool:
    if not members or len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return False
    if partition.leader not in members or recovery_state not in (RECOVERED, RECOVERING):
        return False
    if recovery_state == RECOVERING:
        return len(members) == 1 and partition.recovery_state == RECOVERING
    return True


def _is_eligible(image: Image, broker_id: int, broker_epoch: int) -> bool:
    """Return whether rule 2 lets the broker join an ISR."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active:
        return False
    return broker_epoch in (NO_EPOCH_CHECK, broker.epoch)


def _failed(index: int, error: ErrorCode) -> wire.ResponsePartitionData:
    return wire.ResponsePartitionData(partition_index=index, error_code=error)


def _succeeded(index: int, partition: Partition) -> wire.ResponsePartitionData:
    return wire.ResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.recovery_state,
        partition_epoch=partition.partition_epoch,
    )
