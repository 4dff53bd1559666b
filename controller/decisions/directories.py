"""Log directories: brokers report the directory of each replica, and their failed directories (KIP-858).

Rules
1. If a directory fails, its replicas leave their ISRs and leaderships. The broker's other replicas stay.
2. A broker may report a replica in a directory that has already failed. The report is accepted, and rule 1 applies.
3. A replica that alone may have the data of a partition without a leader keeps its directory, even if its broker no
   longer has that directory: the last of the ISR, a member of the ELR, the last leader. A log that the broker has
   elsewhere is not the data. When the directory comes back, the replica can lead again.
4. If the partition has a leader, a replica in a new directory leaves the ELR.

Threads: none; pure.

Source: ReplicationControlManager.handleAssignReplicasToDirs, handleDirectoriesOffline (Kafka 4.3), which have neither
rule 3 nor rule 4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.decisions.elections import Target, change_partition, leader_and_isr_updates
from barnabas.controller.image import NO_LEADER, Broker, Image, Partition, PartitionKey, Topic
from barnabas.controller.image_editor import with_records
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire
from barnabas.protocol.metadata_records import BrokerRegistrationChangeRecord, MetadataRecord

log = logging.getLogger("barnabas.controller.directories")


def assign_replicas_to_dirs(
    view: View, request: wire.AssignReplicasToDirsRequest
) -> Decision[wire.AssignReplicasToDirsResponse]:
    """Note the directories of a broker's replicas; raises STALE_BROKER_EPOCH for the whole request."""
    broker = check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    failed: list[PartitionKey] = []
    response = wire.AssignReplicasToDirsResponse()
    for directory in request.directories:
        results = wire.ResponseDirectoryData(id=directory.id, topics=[])
        for named in directory.topics:
            topic = view.image.topics.get(named.topic_id)
            partitions = []
            for index in (p.partition_index for p in named.partitions):
                error = _error(broker, topic, index)
                if topic is not None and error is ErrorCode.NONE:
                    records += _assign(view, broker, PartitionKey(topic.id, index), directory.id)
                    if not broker.has_online_dir(directory.id):
                        failed.append(PartitionKey(topic.id, index))
                partitions.append(wire.ResponsePartitionData(partition_index=index, error_code=error))
            results.topics.append(wire.ResponseTopicData(topic_id=named.topic_id, partitions=partitions))
        response.directories.append(results)
    if failed:
        ahead = View(with_records(view.image, records), view.config, view.rng)
        records += leader_and_isr_updates(ahead, failed, broker_to_remove=broker.id)
    return Decision(records, response)


def _error(broker: Broker, topic: Topic | None, index: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker.id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assign(view: View, broker: Broker, key: PartitionKey, directory: bytes) -> Sequence[MetadataRecord]:
    partition = view.image.topics[key.topic_id].partitions[key.partition]
    if is_lost(broker, partition):
        log.warning(
            "Broker %d has another log of %s-%d, but only its lost directory %s had all the data",
            broker.id, view.image.topics[key.topic_id].name, key.partition, partition.directory(broker.id).hex(),
        )  # fmt: skip
        return []
    old = partition.directory(broker.id)
    has_data = old == directory or broker.has_online_dir(old)
    target = Target(
        directories={broker.id: directory}, without_data=frozenset() if has_data else frozenset({broker.id})
    )
    record = change_partition(view, key, partition, target)
    return [] if record is None else [record]


def cordoning(image: Image, broker: Broker, reported: Sequence[bytes] | None) -> list[MetadataRecord]:
    """Return the record of a broker's cordoned log directories, if the report changes them (KIP-1066).

    They get no new replicas. A report of None changes nothing. Below metadata.version 4.3-IV0 the log cannot hold the
    list, and the report is ignored, as in Kafka.
    """
    if reported is None or not image.can_cordon or set(reported) == set(broker.cordoned_log_dirs):
        return []
    log.info("Broker %d has %d cordoned log directories", broker.id, len(reported))
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(reported))
    ]


def is_lost(broker: Broker, partition: Partition) -> bool:
    """Return whether this broker may have had the only data, in a directory that it no longer has (rule 3)."""
    is_last = partition.isr == (broker.id,) or broker.id in (*partition.elr, *partition.last_known_elr)
    return partition.leader == NO_LEADER and is_last and not broker.has_online_dir(partition.directory(broker.id))


def directory_failures(view: View, broker: Broker, reported: Sequence[bytes]) -> list[MetadataRecord]:
    """Return the records that remove failed log directories from a registration, and their replicas from the ISRs.

    See rule 1.
    """
    offline = [directory for directory in reported if directory in broker.log_dirs]
    if not offline:
        return []
    keys = [
        PartitionKey(topic.id, index)
        for topic, index, partition in view.image.each_partition()
        if broker.id in partition.replicas and partition.directory(broker.id) in offline
    ]
    log.warning("Broker %d reports %d log directories offline", broker.id, len(offline))
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[directory for directory in broker.log_dirs if directory not in offline],
    )
    return [*leader_and_isr_updates(view, keys, broker_to_remove=broker.id), change]
