"""Questions to a controller: those that brokers forward, asked directly, and those that only nodes ask."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare.authorization.questions import administration
from tests.compare.authorization.questions.question import NEWEST, Fields, Question
from tests.compare.authorization.world import UNKNOWN_ID, World

_STRANGER = {"broker_id": 7, "broker_epoch": 1}  # no broker has this id
#: What a controller answers to clients too.
_ADMINISTRATION = {
    Key.CREATE_TOPICS,
    Key.CREATE_PARTITIONS,
    Key.ALTER_CONFIGS,
    Key.CREATE_ACLS,
    Key.DELETE_ACLS,
    Key.ELECT_LEADERS,
    Key.ALTER_PARTITION_REASSIGNMENTS,
    Key.LIST_PARTITION_REASSIGNMENTS,
    Key.ALTER_CLIENT_QUOTAS,
    Key.ALTER_USER_SCRAM_CREDENTIALS,
    Key.UPDATE_FEATURES,
    Key.UNREGISTER_BROKER,
    Key.DESCRIBE_QUORUM,
    Key.ADD_RAFT_VOTER,
    Key.REMOVE_RAFT_VOTER,
}


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    for question in administration.questions():
        if question.key in _ADMINISTRATION:
            yield question._replace(name=f"{question.name} of the controller", asks_controller=True)
    for name, key, fields in (
        ("AllocateProducerIds", Key.ALLOCATE_PRODUCER_IDS, _STRANGER),
        ("AssignReplicasToDirs", Key.ASSIGN_REPLICAS_TO_DIRS, {**_STRANGER, "directories": []}),
        ("BrokerHeartbeat", Key.BROKER_HEARTBEAT, _STRANGER),
    ):
        yield Question(name, key, lambda _w, _v, fields=fields: fields, asks_controller=True)
    yield Question("BrokerRegistration", Key.BROKER_REGISTRATION, _register, (2, NEWEST), asks_controller=True)
    yield Question(
        "IncrementalAlterConfigs of the controller",
        Key.INCREMENTAL_ALTER_CONFIGS,
        administration.alter_configs_but_loggers,
        asks_controller=True,
    )
    yield Question("AlterPartition", Key.ALTER_PARTITION, _alter_partition, asks_controller=True)
    cluster = {"include_cluster_authorized_operations": True, "endpoint_type": 2}
    yield Question(
        "DescribeCluster of the controller",
        Key.DESCRIBE_CLUSTER,
        lambda _w, _v: cluster,
        (1, NEWEST),
        asks_controller=True,
    )


def _register(_world: World, _version: int) -> Fields:
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 1, "security_protocol": 0}
    return {"broker_id": 7, "cluster_id": "another", "log_dirs": [UNKNOWN_ID], "listeners": [listener]}


def _alter_partition(world: World, _version: int) -> Fields:
    topic = {"topic_id": world.id_of("shut-t"), "partitions": [{"partition_index": 0}]}
    return {**_STRANGER, "topics": [topic]}
