"""Topics: creation, deletion, and more partitions.

Rules
1. A request is one atomic batch of records. An item that fails adds no records; the others are carried out.
2. The records of a topic are in this order: TopicRecord, its ConfigRecords, its PartitionRecords.
3. The ISR of a new partition is every replica on an active broker. At least one must be active; the first one leads.

Threads: none; pure except for topic ids and placement, which use the view's random generator.

Source: ReplicationControlManager, ControllerApis (Kafka 4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final

from barnabas.common.ids import ZERO_UUID, random_uuid
from barnabas.controller.decision import (
    Charge,
    Decision,
    Failure,
    Permits,
    View,
    check_batch_size,
    check_item_count,
    everything,
    first_duplicates,
    no_charge,
)
from barnabas.controller.decisions import configs
from barnabas.controller.decisions.elections import default_directory
from barnabas.controller.decisions.placement import UsableBroker, place_replicas
from barnabas.controller.decisions.topic_names import CLUSTER_METADATA_TOPIC, ExistingNames, check_name
from barnabas.controller.image import Image, Partition, Topic
from barnabas.controller.policies.policies import NewTopic
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k37_create_partitions as partitions_wire
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

MAX_PARTITIONS_PER_BATCH: Final = 10_000  # of a CreateTopics request
DEFAULT: Final = -1  # a partition count or replication factor that the controller's config decides
_FIRST_VERSION_WITH_DISABLED_ERROR: Final = 3


# -- creation


def create_topics(
    view: View,
    request: create_wire.CreateTopicsRequest,
    charge: Charge = no_charge,
    may_create: Permits = everything,
    may_see_configs: Permits = everything,
) -> Decision[create_wire.CreateTopicsResponse]:
    """Create the valid topics; with validate_only the response is the same, and nothing is written."""
    _check_partition_total(len(request.topics))  # each topic asks for one at least
    once, duplicates = first_duplicates([topic.name for topic in request.topics])
    names = set(once)
    wanted = [topic for topic in request.topics if topic.name in names]
    permitted = {topic.name for topic in wanted if topic.name != CLUSTER_METADATA_TOPIC and may_create(topic.name)}
    _check_partition_count(view, [topic for topic in wanted if topic.name in permitted])
    existing, effective = ExistingNames(view.image.topic_ids), configs.EffectiveConfigs(view)
    records: list[MetadataRecord] = []
    response = create_wire.CreateTopicsResponse()
    for topic in wanted:
        try:
            result, topic_records = _create_one(view, topic, existing, effective, permitted)
            charge(result.num_partitions)
        except ApiError as error:
            response.topics.append(_create_failure(topic.name, Failure.of(error)))
            continue
        records += topic_records
        check_batch_size(records)
        response.topics.append(result if may_see_configs(topic.name) else _without_configs(result))
    for name in duplicates:
        response.topics.append(_create_failure(name, Failure(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
    return Decision([] if request.validate_only else records, response)


def _check_partition_count(view: View, topics: Sequence[create_wire.CreatableTopic]) -> None:
    """Refuse a request with too many partitions, before any of them is placed: a few bytes ask for all of them.

    Source: ReplicationControlManager.validateTotalNumberOfPartitions (Kafka 4.3).
    """
    default = int(view.config.num_partitions)
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)
    _check_partition_total(total)


def _check_partition_total(total: int) -> None:
    if total > MAX_PARTITIONS_PER_BATCH:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create_one(
    view: View,
    topic: create_wire.CreatableTopic,
    existing: ExistingNames,
    effective: configs.EffectiveConfigs,
    permitted: Set[str],
) -> tuple[create_wire.CreatableTopicResult, list[MetadataRecord]]:
    """Return the result and the records of one new topic; raises ApiError."""
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
    if topic.name not in permitted:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    check_name(topic.name)
    if topic.name in view.image.topic_ids:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    existing.check_collision(topic.name)
    config_records = configs.new_topic_records(view, topic.name, [(c.name, c.value) for c in topic.configs])
    assignment = _manual_assignment(view, topic) if topic.assignments else _placed_assignment(view, topic)
    view.policies.check_topic(_asked(topic, assignment, config_records))
    topic_id = new_topic_id(view)
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    records += [partition.to_record(topic_id, index) for index, partition in enumerate(assignment)]
    result = create_wire.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0].replicas),
        configs=_described(effective.of({r.name: r.value for r in config_records if r.value is not None})),
    )
    return result, records


def _asked(
    topic: create_wire.CreatableTopic, assignment: Sequence[Partition], config_records: Sequence[ConfigRecord]
) -> NewTopic:
    """Return what the operator's policy is asked about."""
    values = {record.name: record.value for record in config_records if record.value is not None}
    if topic.assignments:
        replicas = {index: tuple(partition.replicas) for index, partition in enumerate(assignment)}
        return NewTopic(topic.name, None, None, replicas, values)
    return NewTopic(topic.name, len(assignment), len(assignment[0].replicas), None, values)


def _without_configs(result: create_wire.CreatableTopicResult) -> create_wire.CreatableTopicResult:
    """Return the result for a client that may not see the configs of the topic."""
    return create_wire.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error_code,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def new_topic_id(view: View) -> bytes:
    """Return a random id that no topic has."""
    while True:
        topic_id = random_uuid(view.rng.randbytes)
        if topic_id not in view.image.topics:
            return topic_id


def _described(effective: Sequence[configs.EffectiveConfig]) -> list[create_wire.CreatableTopicConfigs]:
    return [
        create_wire.CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in effective
    ]


def _create_failure(name: str, failure: Failure) -> create_wire.CreatableTopicResult:
    return create_wire.CreatableTopicResult(name=name, error_code=failure.code, error_message=failure.message)


def _placed_assignment(view: View, topic: create_wire.CreatableTopic) -> list[Partition]:
    """Return the partitions of a new topic, on replicas that the controller chooses."""
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = int(view.config.num_partitions) if topic.num_partitions == DEFAULT else topic.num_partitions
    factor = topic.replication_factor
    if factor == DEFAULT:
        factor = int(view.config.default_replication_factor)
    return _place(view, count, factor)


def _place(view: View, count: int, replication_factor: int) -> list[Partition]:
    try:
        placed = place_replicas(usable_brokers(view.image), count, replication_factor, view.rng)
    except ApiError as error:
        raise ApiError(error.code, f"Unable to replicate the partition {replication_factor} time(s): {error}") from None
    return [_placed_partition(view.image, replicas) for replicas in placed]


def usable_brokers(image: Image) -> list[UsableBroker]:
    """Return the brokers that may get replicas: not shutting down, and with a directory that is not cordoned."""
    return [
        UsableBroker(broker.id, broker.rack, broker.is_fenced)
        for broker in image.brokers.values()
        if not broker.in_controlled_shutdown and broker.takes_replicas
    ]


def _placed_partition(image: Image, replicas: tuple[int, ...]) -> Partition:
    isr = tuple(replica for replica in replicas if image.is_active(replica))
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in "
            "controlled shutdown.",
        )
    return _new_partition(image, replicas, isr)


def _new_partition(image: Image, replicas: tuple[int, ...], isr: tuple[int, ...]) -> Partition:
    directories = tuple(default_directory(image, replica) for replica in replicas)
    return Partition(replicas=replicas, isr=isr, leader=isr[0], directories=directories)


def _manual_assignment(view: View, topic: create_wire.CreatableTopic) -> list[Partition]:
    """Return the partitions of a new topic, on replicas that the client chose."""
    if topic.replication_factor != DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    partitions: dict[int, Partition] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        partitions[index] = manual_partition(view.image, index, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
    if set(partitions) != set(range(len(partitions))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [partitions[index] for index in range(len(partitions))]


def manual_partition(image: Image, index: int, replicas: Sequence[int], factor: int | None) -> Partition:
    """Return a new partition on the client's replicas; raises INVALID_REPLICA_ASSIGNMENT.

    `factor` is the number of replicas of the other partitions, None for the first.
    """
    check_manual_assignment(image, replicas, factor)
    isr = tuple(replica for replica in replicas if image.is_active(replica))
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return _new_partition(image, tuple(replicas), isr)


def check_manual_assignment(image: Image, replicas: Sequence[int], factor: int | None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT if these cannot be the replicas of one partition.

    `factor` is the required number of replicas, None for any.
    """
    prefix = "The manual partition assignment includes"
    if not replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} an empty replica list.")
    previous: int | None = None
    for replica in sorted(replicas):
        if replica not in image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{prefix} broker {replica}, but no such broker is registered.",
            )
        if replica == previous:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} the broker {replica} more than once.")
        previous = replica
    if factor is not None and len(replicas) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{prefix} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s).",
        )


# -- more partitions


def create_partitions(
    view: View,
    request: partitions_wire.CreatePartitionsRequest,
    charge: Charge = no_charge,
    may_alter: Permits = everything,
) -> Decision[partitions_wire.CreatePartitionsResponse]:
    """Add partitions to topics; with validate_only the response is the same, and nothing is written."""
    check_item_count(len(request.topics))
    once, duplicates = first_duplicates([topic.name for topic in request.topics])
    names = set(once)
    response = partitions_wire.CreatePartitionsResponse()
    records: list[MetadataRecord] = []
    for name in duplicates:
        failure = Failure(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        response.results.append(_partitions_result(name, failure))
    for topic in request.topics:
        if topic.name not in names:
            continue
        try:
            if not may_alter(topic.name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            added = _grow_one(view, topic)
            charge(len(added))
        except ApiError as error:
            response.results.append(_partitions_result(topic.name, Failure.of(error)))
            continue
        records += added
        check_batch_size(records)
        response.results.append(_partitions_result(topic.name, Failure(ErrorCode.NONE)))
    return Decision([] if request.validate_only else records, response)


def _partitions_result(name: str, failure: Failure) -> partitions_wire.CreatePartitionsTopicResult:
    return partitions_wire.CreatePartitionsTopicResult(
        name=name, error_code=failure.code, error_message=failure.message
    )


def _grow_one(view: View, wanted: partitions_wire.CreatePartitionsTopic) -> list[PartitionRecord]:
    topic = view.image.topic(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if wanted.count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if wanted.count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s); {wanted.count} would not be an increase.",
        )
    check_batch_size(range(wanted.count - current))
    partitions = _added_partitions(view, topic, wanted, wanted.count - current)
    return [partition.to_record(topic.id, index) for index, partition in enumerate(partitions, current)]


def _added_partitions(
    view: View, topic: Topic, wanted: partitions_wire.CreatePartitionsTopic, additional: int
) -> Iterable[Partition]:
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        placed = place_replicas(usable_brokers(view.image), additional, factor, view.rng)
        return [_placed_partition(view.image, replicas) for replicas in placed]
    if len(wanted.assignments) != additional:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
            "assignment(s) were specified.",
        )
    start = len(topic.partitions)
    return [
        manual_partition(view.image, index, assignment.broker_ids, factor)
        for index, assignment in enumerate(wanted.assignments, start)
    ]


# -- deletion


def delete_topics(
    view: View,
    request: delete_wire.DeleteTopicsRequest,
    version: int,
    charge: Charge = no_charge,
    may_describe: Permits = everything,
    may_delete: Permits = everything,
) -> Decision[delete_wire.DeleteTopicsResponse]:
    """Delete topics by name or by id; raises TOPIC_DELETION_DISABLED if delete.topic.enable is false."""
    if not view.config.delete_topic_enable:
        if version < _FIRST_VERSION_WITH_DISABLED_ERROR:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    check_item_count(len(request.topic_names) + len(request.topics))
    deletions = _Deletions(view.image, may_describe, may_delete)
    names = list(request.topic_names)
    ids = []
    for topic in request.topics:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            deletions.fail(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif topic.name is None:
            ids.append(topic.topic_id)
        elif topic.topic_id == ZERO_UUID:
            names.append(topic.name)
        else:
            message = "You may not specify both topic name and topic id."
            deletions.fail(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)
    deletions.add_ids(ids)
    deletions.add_names(names)
    deletions.charge(charge)
    response = delete_wire.DeleteTopicsResponse(responses=deletions.results())
    records = [RemoveTopicRecord(topic_id=topic.id) for topic in deletions.chosen.values()]
    return Decision(records, response)


class _Deletions:
    """The topics that a DeleteTopics request deletes, and the failures of its other items."""

    def __init__(self, image: Image, may_describe: Permits, may_delete: Permits) -> None:
        self._image = image
        self._may_describe = may_describe
        self._may_delete = may_delete
        self._failures: list[delete_wire.DeletableTopicResult] = []
        self._duplicate_ids: set[bytes] = set()
        self.chosen: dict[bytes, Topic] = {}  # by topic id

    def fail(self, name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None) -> None:
        """Add a failure; without a message it has the code's own text."""
        self._failures.append(
            delete_wire.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message or code.message
            )
        )

    def add_ids(self, ids: Sequence[bytes]) -> None:
        """Choose topics by id."""
        for topic_id, count in Counter(ids).items():
            if count > 1:
                self._duplicate_ids.add(topic_id)
                self.fail(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
            elif topic_id not in self._image.topics:
                self.fail(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            elif not self._may_delete(name := self._image.topics[topic_id].name):
                shown = name if self._may_describe(name) else None
                self.fail(shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                self.chosen[topic_id] = self._image.topics[topic_id]

    def add_names(self, names: Sequence[str]) -> None:
        """Choose topics by name; a topic that was also chosen by id fails."""
        once, duplicates = first_duplicates(names)
        for name in duplicates:
            self.fail(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name in once:
            topic = self._image.topic(name)
            if not self._may_describe(name):  # Why first: the client must not learn whether the topic exists
                self.fail(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None:
                self.fail(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif not self._may_delete(name):
                self.fail(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic.id in self._duplicate_ids or self.chosen.pop(topic.id, None) is not None:
                self._duplicate_ids.add(topic.id)
                message = "The provided topic name maps to an ID that was already supplied."
                self.fail(name, topic.id, ErrorCode.INVALID_REQUEST, message)
            else:
                self.chosen[topic.id] = topic

    def charge(self, charge: Charge) -> None:
        """Charge each chosen topic; those that the client's quota refuses fail."""
        for topic in list(self.chosen.values()):
            try:
                charge(len(topic.partitions))
            except ApiError as error:
                del self.chosen[topic.id]
                self.fail(topic.name, topic.id, error.code)

    def results(self) -> list[delete_wire.DeletableTopicResult]:
        """Return the result of each item: the successes, then the failures."""
        successes = [
            delete_wire.DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)
            for topic in self.chosen.values()
        ]
        return successes + self._failures
