"""ElectLeaders: an operator requests the preferred leader, or an unclean election that may lose data.

Source: ReplicationControlManager.electLeaders (Kafka 4.3); KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.controller.decision import Decision, Failure, View, check_batch_size, check_item_count
from barnabas.controller.decisions.elections import Election, Target, change_partition
from barnabas.controller.image import NO_LEADER, PartitionKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k43_elect_leaders as wire
from barnabas.protocol.metadata_records import MetadataRecord, PartitionChangeRecord

PREFERRED: Final = 0
UNCLEAN: Final = 1
#: The number of partitions that a request may name; most of them need no election.
NAMED_MAX: Final = 100_000
# In Kafka's words: tools print them.
_NOT_NEEDED: Final = Failure(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_NO_PREFERRED_LEADER: Final = Failure(
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
)
_NO_ELIGIBLE_LEADER: Final = Failure(
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
)


def elect_leaders(view: View, request: wire.ElectLeadersRequest) -> Decision[wire.ElectLeadersResponse]:
    """Hold the requested elections; topic_partitions None means all, and then needless ones are not reported."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asks_all = request.topic_partitions is None
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        wanted = [(topic.name, sorted(topic.partitions)) for topic in view.image.topics.values()]
    else:
        wanted = [(topic.topic, dict.fromkeys(topic.partitions)) for topic in request.topic_partitions]
        check_item_count(sum(max(1, len(topic.partitions)) for topic in request.topic_partitions), NAMED_MAX)
    records: list[MetadataRecord] = []
    response = wire.ElectLeadersResponse()
    for name, indexes in wanted:
        results = []
        for index in indexes:
            failure, record = _elect_one(view, name, index, request.election_type)
            if record is not None:
                records.append(record)
                check_batch_size(records)
            if asks_all and failure.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            results.append(
                wire.PartitionResult(partition_id=index, error_code=failure.code, error_message=failure.message)
            )
        response.replica_election_results.append(wire.ReplicaElectionResult(topic=name, partition_result=results))
    return Decision(records, response)


def _elect_one(view: View, name: str, index: int, election_type: int) -> tuple[Failure, PartitionChangeRecord | None]:
    topic = view.image.topic(name)
    if topic is None:
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"), None
    partition = topic.partitions.get(index)
    if partition is None:
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"), None
    is_unclean = election_type == UNCLEAN
    has_wanted = partition.leader != NO_LEADER if is_unclean else partition.leader == partition.preferred_leader
    if has_wanted:
        return _NOT_NEEDED, None
    target = Target(election=Election.UNCLEAN if is_unclean else Election.PREFERRED)
    key = PartitionKey(topic.id, index)
    record = change_partition(view, key, partition, target)
    if record is not None:
        return Failure(ErrorCode.NONE), record
    return _NO_ELIGIBLE_LEADER if is_unclean else _NO_PREFERRED_LEADER, None
