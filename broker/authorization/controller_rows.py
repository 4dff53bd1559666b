"""THE table of rights, as a controller asks for them: for requests that brokers forward, and for those of nodes.

Source: ControllerApis, AclApis (Kafka 4.3).

Different from Apache Kafka: DescribeCluster is answered to a node too (CLUSTER_ACTION), since a broker with empty
directories asks for the cluster's id.
"""

from __future__ import annotations

from barnabas.broker.authorization.row import ERRORS, Answer, Asks, Row, the_cluster
from barnabas.protocol.api_keys import ApiKey as Key
from barnabas.protocol.errors import ErrorCode
from barnabas.security.values import AclOperation, ResourceType

ROWS: list[Row] = []

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_Op = AclOperation


def _add(
    key: Key,
    operation: AclOperation,
    resource: ResourceType = _CLUSTER,
    answer: Answer = Answer.REQUEST,
    condition: str = "",
    *,
    asks: Asks | None = None,
    is_logged: bool = True,
) -> Row:
    """Add a row."""
    error = ERRORS[resource] if answer in (Answer.REQUEST, Answer.ITEM) else ErrorCode.NONE
    made = Row(key, condition, operation, resource, answer, error, asks, is_logged=is_logged)
    ROWS.append(made)
    return made


def _whole(key: Key, operation: AclOperation) -> Row:
    """Add a right on the cluster without which the request is refused."""
    return _add(key, operation, asks=the_cluster)


FETCH_METADATA = _whole(Key.FETCH, _Op.CLUSTER_ACTION)
CREATE_ANY_TOPIC = _add(Key.CREATE_TOPICS, _Op.CREATE, answer=Answer.NEXT, is_logged=False)
CREATE_TOPIC = _add(Key.CREATE_TOPICS, _Op.CREATE, _TOPIC, Answer.ITEM)
SEE_CREATED_CONFIGS = _add(
    Key.CREATE_TOPICS, _Op.DESCRIBE_CONFIGS, _TOPIC, Answer.LEFT_OUT, "the configs of a created topic", is_logged=False
)
DELETE_ANY_TOPIC = _add(Key.DELETE_TOPICS, _Op.DELETE, answer=Answer.NEXT, is_logged=False)
SEE_DELETED_TOPIC = _add(Key.DELETE_TOPICS, _Op.DESCRIBE, _TOPIC, Answer.ITEM)
DELETE_TOPIC = _add(Key.DELETE_TOPICS, _Op.DELETE, _TOPIC, Answer.ITEM)
DESCRIBE_ACLS = _whole(Key.DESCRIBE_ACLS, _Op.DESCRIBE)
CREATE_ACLS = _whole(Key.CREATE_ACLS, _Op.ALTER)
DELETE_ACLS = _whole(Key.DELETE_ACLS, _Op.ALTER)
DESCRIBE_TOPIC_CONFIGS = _add(Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _TOPIC, Answer.ITEM, "of topics")
DESCRIBE_CLUSTER_CONFIGS = _add(
    Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _CLUSTER, Answer.ITEM, "of brokers, loggers and client metrics"
)
DESCRIBE_GROUP_CONFIGS = _add(Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _GROUP, Answer.ITEM, "of groups")
REPLACE_TOPIC_CONFIGS = _add(Key.ALTER_CONFIGS, _Op.ALTER_CONFIGS, _TOPIC, Answer.ITEM, "of topics")
REPLACE_CLUSTER_CONFIGS = _add(
    Key.ALTER_CONFIGS, _Op.ALTER_CONFIGS, _CLUSTER, Answer.ITEM, "of brokers and client metrics"
)
REPLACE_GROUP_CONFIGS = _add(Key.ALTER_CONFIGS, _Op.ALTER_CONFIGS, _GROUP, Answer.ITEM, "of groups")
CREATE_PARTITIONS_TOPIC = _add(Key.CREATE_PARTITIONS, _Op.ALTER, _TOPIC, Answer.ITEM)
CREATE_TOKEN = _add(Key.CREATE_DELEGATION_TOKEN, _Op.CREATE_TOKENS, ResourceType.USER, condition="for another owner")
DESCRIBE_TOKEN = _add(
    Key.DESCRIBE_DELEGATION_TOKEN,
    _Op.DESCRIBE,
    ResourceType.DELEGATION_TOKEN,
    Answer.NEXT,
    "neither owned nor renewed",
)
DESCRIBE_TOKENS_OF = _add(
    Key.DESCRIBE_DELEGATION_TOKEN,
    _Op.DESCRIBE_TOKENS,
    ResourceType.USER,
    Answer.LEFT_OUT,
    "neither owned nor renewed",
)
ELECT_LEADERS = _whole(Key.ELECT_LEADERS, _Op.ALTER)
ALTER_TOPIC_CONFIGS = _add(Key.INCREMENTAL_ALTER_CONFIGS, _Op.ALTER_CONFIGS, _TOPIC, Answer.ITEM, "of topics")
ALTER_CLUSTER_CONFIGS = _add(
    Key.INCREMENTAL_ALTER_CONFIGS, _Op.ALTER_CONFIGS, _CLUSTER, Answer.ITEM, "of brokers and client metrics"
)
ALTER_GROUP_CONFIGS = _add(Key.INCREMENTAL_ALTER_CONFIGS, _Op.ALTER_CONFIGS, _GROUP, Answer.ITEM, "of groups")
ALTER_LOGGERS = _add(Key.INCREMENTAL_ALTER_CONFIGS, _Op.CLUSTER_ACTION, _CLUSTER, Answer.ITEM, "of loggers")
REASSIGN = _whole(Key.ALTER_PARTITION_REASSIGNMENTS, _Op.ALTER)
LIST_REASSIGNMENTS = _whole(Key.LIST_PARTITION_REASSIGNMENTS, _Op.DESCRIBE)
ALTER_QUOTAS = _whole(Key.ALTER_CLIENT_QUOTAS, _Op.ALTER_CONFIGS)
DESCRIBE_SCRAM = _whole(Key.DESCRIBE_USER_SCRAM_CREDENTIALS, _Op.DESCRIBE)
ALTER_SCRAM = _whole(Key.ALTER_USER_SCRAM_CREDENTIALS, _Op.ALTER)
VOTE = _whole(Key.VOTE, _Op.CLUSTER_ACTION)
BEGIN_QUORUM_EPOCH = _whole(Key.BEGIN_QUORUM_EPOCH, _Op.CLUSTER_ACTION)
END_QUORUM_EPOCH = _whole(Key.END_QUORUM_EPOCH, _Op.CLUSTER_ACTION)
DESCRIBE_QUORUM = _whole(Key.DESCRIBE_QUORUM, _Op.DESCRIBE)
ALTER_PARTITION = _whole(Key.ALTER_PARTITION, _Op.CLUSTER_ACTION)
UPDATE_FEATURES = _whole(Key.UPDATE_FEATURES, _Op.ALTER)
ENVELOPE = _whole(Key.ENVELOPE, _Op.CLUSTER_ACTION)
FETCH_SNAPSHOT = _whole(Key.FETCH_SNAPSHOT, _Op.CLUSTER_ACTION)
DESCRIBE_CLUSTER_OF_ADMIN = _add(Key.DESCRIBE_CLUSTER, _Op.ALTER, answer=Answer.NEXT, asks=the_cluster, is_logged=False)
DESCRIBE_CLUSTER = _whole(Key.DESCRIBE_CLUSTER, _Op.CLUSTER_ACTION)
DESCRIBE_CLUSTER_OPERATIONS = _add(
    Key.DESCRIBE_CLUSTER, _Op.DESCRIBE, answer=Answer.LEFT_OUT, condition="the cluster's authorized operations"
)
REGISTER_BROKER = _whole(Key.BROKER_REGISTRATION, _Op.CLUSTER_ACTION)
BROKER_HEARTBEAT = _whole(Key.BROKER_HEARTBEAT, _Op.CLUSTER_ACTION)
UNREGISTER_BROKER = _whole(Key.UNREGISTER_BROKER, _Op.ALTER)
ALLOCATE_PRODUCER_IDS = _whole(Key.ALLOCATE_PRODUCER_IDS, _Op.CLUSTER_ACTION)
REGISTER_CONTROLLER = _whole(Key.CONTROLLER_REGISTRATION, _Op.CLUSTER_ACTION)
ASSIGN_REPLICAS = _whole(Key.ASSIGN_REPLICAS_TO_DIRS, _Op.CLUSTER_ACTION)
ADD_VOTER = _whole(Key.ADD_RAFT_VOTER, _Op.ALTER)
REMOVE_VOTER = _whole(Key.REMOVE_RAFT_VOTER, _Op.ALTER)
UPDATE_VOTER = _whole(Key.UPDATE_RAFT_VOTER, _Op.CLUSTER_ACTION)
