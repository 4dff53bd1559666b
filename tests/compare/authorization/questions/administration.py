"""Questions about topics, configs, ACLs, users, tokens and quotas. They change nothing, or nothing that is compared."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.api_keys import ApiKey as Key
from barnabas.security.values import AclOperation, PatternType, PermissionType, ResourceType
from tests.compare.authorization.questions.question import MISSING, NEWEST, TOPICS, Fields, Question
from tests.compare.authorization.world import BROKER, CLIENT_METRICS, LOGGER, NEW_ACL, World

_TIMEOUT = {"timeout_ms": 10_000}
_DOOMED = ["open-d", "shut-d"]
_HOUR_MS = 3_600_000
# A resource of each kind, by the protocol's code of the kind, and a setting of it.
_CONFIGS = [
    *((2, name, "retention.ms", "1000") for name in TOPICS),
    (4, BROKER, "log.cleaner.threads", "2"),
    (4, "", "log.cleaner.threads", "2"),
    (8, BROKER, LOGGER, "INFO"),
    (16, CLIENT_METRICS, "interval.ms", "1000"),
    *((32, name, "consumer.session.timeout.ms", "50000") for name in ("open-g", "shut-g")),
]
_LOGGER_KIND = 8


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    yield from _topic_questions()
    yield from _partition_questions()
    yield from _config_questions()
    yield from _acl_questions()
    yield from _token_questions()
    yield from _user_questions()
    yield Question("UnregisterBroker", Key.UNREGISTER_BROKER, lambda _w, _v: {"broker_id": 99})
    yield from _quorum_questions()
    yield Question("UpdateFeatures", Key.UPDATE_FEATURES, _update_features, (1, NEWEST))


def _quorum_questions() -> Iterator[Question]:
    metadata = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    yield Question("DescribeQuorum", Key.DESCRIBE_QUORUM, lambda _w, _v: metadata)
    stranger = {"cluster_id": "another", "voter_id": 7, "voter_directory_id": bytes(15) + b"1"}
    yield Question("AddRaftVoter", Key.ADD_RAFT_VOTER, lambda _w, _v: {**stranger, "listeners": []})
    yield Question("RemoveRaftVoter", Key.REMOVE_RAFT_VOTER, lambda _w, _v: stranger)


def _topic_questions() -> Iterator[Question]:
    yield Question("CreateTopics", Key.CREATE_TOPICS, _create_topics, (2, 4, 5, NEWEST))
    yield Question("DeleteTopics", Key.DELETE_TOPICS, _delete_topics, (NEWEST,), deletes=True)
    yield Question("DeleteTopics by id", Key.DELETE_TOPICS, _delete_topics_by_id, (NEWEST,), deletes=True)
    missing = {"topic_names": MISSING, **_TIMEOUT}
    yield Question("DeleteTopics that are missing", Key.DELETE_TOPICS, lambda _w, _v: missing, (1, 5))
    yield Question("CreatePartitions", Key.CREATE_PARTITIONS, _create_partitions)


def _create_topics(_world: World, _version: int) -> Fields:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in TOPICS]
    return {"topics": topics, "validate_only": True, **_TIMEOUT}


def _delete_topics(_world: World, _version: int) -> Fields:
    return {"topics": [{"name": name} for name in (*_DOOMED, *MISSING)], **_TIMEOUT}


def _delete_topics_by_id(world: World, _version: int) -> Fields:
    topics = [{"name": None, "topic_id": world.id_of(name)} for name in (*_DOOMED, "shut-n")]
    return {"topics": topics, **_TIMEOUT}


def _create_partitions(_world: World, _version: int) -> Fields:
    topics = [{"name": name, "count": 3, "assignments": None} for name in TOPICS]
    return {"topics": topics, "validate_only": True, **_TIMEOUT}


# -- partitions and their replicas


def _partition_questions() -> Iterator[Question]:
    by_name = [{"name": name, "partitions": [{"partition_index": 0, "replicas": [0]}]} for name in TOPICS]
    listed = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    by_topic = [{"topic": name, "partitions": [0]} for name in TOPICS]
    moved = [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in TOPICS]}]
    for name, key, fields in (
        ("ElectLeaders", Key.ELECT_LEADERS, {"topic_partitions": by_topic, **_TIMEOUT}),
        ("AlterPartitionReassignments", Key.ALTER_PARTITION_REASSIGNMENTS, {"topics": by_name, **_TIMEOUT}),
        ("ListPartitionReassignments", Key.LIST_PARTITION_REASSIGNMENTS, {"topics": listed, **_TIMEOUT}),
        ("AlterReplicaLogDirs", Key.ALTER_REPLICA_LOG_DIRS, {"dirs": moved}),
        ("DescribeLogDirs", Key.DESCRIBE_LOG_DIRS, {"topics": by_topic}),
        ("DescribeLogDirs of all topics", Key.DESCRIBE_LOG_DIRS, {"topics": None}),
    ):
        yield Question(name, key, lambda _w, _v, fields=fields: fields)


# -- configs


def _config_questions() -> Iterator[Question]:
    yield Question("DescribeConfigs", Key.DESCRIBE_CONFIGS, _describe_configs)
    yield Question("AlterConfigs", Key.ALTER_CONFIGS, _alter_configs)
    yield Question("IncrementalAlterConfigs", Key.INCREMENTAL_ALTER_CONFIGS, _incremental_alter_configs)
    yield Question("ListConfigResources", Key.LIST_CONFIG_RESOURCES, lambda _w, _v: {})


def _describe_configs(_world: World, _version: int) -> Fields:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name, *_ in _CONFIGS
    ]
    return {"resources": resources}


def _alter_configs(_world: World, _version: int) -> Fields:
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}
        for kind, name, key, value in _CONFIGS
        if kind != _LOGGER_KIND
    ]
    return {"resources": resources, "validate_only": True}


def _incremental_alter_configs(_world: World, _version: int) -> Fields:
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": 0, "value": value}],
        }
        for kind, name, key, value in _CONFIGS
    ]
    return {"resources": resources, "validate_only": True}


def alter_configs_but_loggers(world: World, version: int) -> Fields:
    """Return the request without loggers, which each node has for itself."""
    given = _incremental_alter_configs(world, version)
    return {**given, "resources": [row for row in given["resources"] if row["resource_type"] != _LOGGER_KIND]}


# -- ACLs


def _acl_questions() -> Iterator[Question]:
    literal, topic, read = int(PatternType.LITERAL), int(ResourceType.TOPIC), int(AclOperation.READ)
    created = {
        "resource_type": topic,
        "resource_name": NEW_ACL,
        "resource_pattern_type": literal,
        "principal": "User:nobody",
        "host": "*",
        "operation": read,
        "permission_type": int(PermissionType.ALLOW),
    }
    found = {
        "resource_type_filter": topic,
        "resource_name_filter": NEW_ACL,
        "pattern_type_filter": literal,
        "principal_filter": "User:nobody",
        "host_filter": "*",
        "operation": read,
        "permission_type": int(PermissionType.ALLOW),
    }
    missing = {**found, "resource_name_filter": "missing"}
    yield Question("CreateAcls", Key.CREATE_ACLS, lambda _w, _v: {"creations": [created]})
    yield Question("DescribeAcls", Key.DESCRIBE_ACLS, lambda _w, _v: found)
    yield Question("DeleteAcls", Key.DELETE_ACLS, lambda _w, _v: {"filters": [missing]})


# -- delegation tokens


def _token_questions() -> Iterator[Question]:
    create, describe = Key.CREATE_DELEGATION_TOKEN, Key.DESCRIBE_DELEGATION_TOKEN
    lifetime = {"renewers": [], "max_lifetime_ms": _HOUR_MS}
    another = {"owner_principal_type": "User", "owner_principal_name": "shut-u", **lifetime}
    owners = [{"principal_type": "User", "principal_name": name} for name in ("open-u", "shut-u")]
    yield Question("CreateDelegationToken", create, lambda _w, _v: lifetime, (1,))
    yield Question("CreateDelegationToken for another", create, lambda _w, _v: another, (NEWEST,))
    yield Question("DescribeDelegationToken", describe, lambda _w, _v: {"owners": owners})
    yield Question("DescribeDelegationToken of all owners", describe, lambda _w, _v: {"owners": None})
    renew, expire = Key.RENEW_DELEGATION_TOKEN, Key.EXPIRE_DELEGATION_TOKEN
    yield Question("RenewDelegationToken", renew, lambda world, _v: _renewal(_hmac(world)))
    yield Question("RenewDelegationToken of no token", renew, lambda _w, _v: _renewal(b"none"))
    yield Question("ExpireDelegationToken", expire, lambda world, _v: _expiry(_hmac(world)))
    yield Question("ExpireDelegationToken of no token", expire, lambda _w, _v: _expiry(b"none"))


def _hmac(world: World) -> bytes:
    return world.hmacs["shut-token"]


def _renewal(hmac: bytes) -> Fields:
    return {"hmac": hmac, "renew_period_ms": _HOUR_MS}


def _expiry(hmac: bytes) -> Fields:
    return {"hmac": hmac, "expiry_time_period_ms": _HOUR_MS}


# -- users


def _user_questions() -> Iterator[Question]:
    entity = {"entity": [{"entity_type": "user", "entity_name": "nobody"}]}
    change = {**entity, "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}
    quotas = {"entries": [change], "validate_only": True}
    filters = {"components": [{"entity_type": "user", "match_type": 0, "match": "nobody"}], "strict": True}
    deleted = {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}
    yield Question("DescribeClientQuotas", Key.DESCRIBE_CLIENT_QUOTAS, lambda _w, _v: filters)
    yield Question("AlterClientQuotas", Key.ALTER_CLIENT_QUOTAS, lambda _w, _v: quotas)
    described = {"users": [{"name": "nobody"}]}
    yield Question("DescribeUserScramCredentials", Key.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda _w, _v: described)
    yield Question("AlterUserScramCredentials", Key.ALTER_USER_SCRAM_CREDENTIALS, lambda _w, _v: deleted)


def _update_features(_world: World, _version: int) -> Fields:
    update = {"feature": "nope", "max_version_level": 1, "upgrade_type": 1}
    return {"feature_updates": [update], "validate_only": True, **_TIMEOUT}
