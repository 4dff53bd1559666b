"""THE table of rights, as a broker asks for them.

Source: KafkaApis, AuthHelper, AclApis, ConfigHelper, DescribeTopicPartitionsRequestHandler (Kafka 4.3); for the
controller's pushes KafkaApis of Kafka 3.9.

Different from Apache Kafka: ListOffsets in the name of a replica needs CLUSTER_ACTION, since it sees more than a client
may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization.row import ERRORS, Answer, Asks, Row, the_cluster
from barnabas.protocol.api_keys import ApiKey as Key
from barnabas.protocol.errors import ErrorCode
from barnabas.security.values import ANY_NAME, CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request

ROWS: list[Row] = []

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TXN_ID = ResourceType.TRANSACTIONAL_ID
_Op = AclOperation
_FROM_BROKERS = 4  # the first version of AddPartitionsToTxn that brokers send
_SHARE_KEY_TYPE = 2  # of FindCoordinator
_WITH_PROTOCOL = 5  # the first version of SyncGroup that must name the protocol


def _add(row: Row) -> Row:
    ROWS.append(row)
    return row


def _whole(
    key: Key,
    operation: AclOperation,
    resource: ResourceType,
    asks: Asks | None = the_cluster,
    condition: str = "",
    error: ErrorCode | None = None,
    *,
    is_any: bool = False,
) -> Row:
    """Add a right without which the request is refused."""
    given = ERRORS[resource] if error is None else error
    return _add(Row(key, condition, operation, resource, Answer.REQUEST, given, asks, is_any))


def _item(
    key: Key, operation: AclOperation, resource: ResourceType, condition: str = "", error: ErrorCode | None = None
) -> Row:
    """Add a right without which an item is refused."""
    return _add(Row(key, condition, operation, resource, Answer.ITEM, ERRORS[resource] if error is None else error))


def _left_out(
    key: Key, operation: AclOperation, resource: ResourceType, condition: str = "", *, is_logged: bool = True
) -> Row:
    """Add a right without which an item is left out."""
    return _add(Row(key, condition, operation, resource, Answer.LEFT_OUT, is_logged=is_logged))


def _next(
    key: Key, operation: AclOperation, resource: ResourceType, asks: Asks | None = None, condition: str = ""
) -> Row:
    """Add a right that stands for those in the rows after it."""
    return _add(Row(key, condition, operation, resource, Answer.NEXT, asks=asks, is_logged=False))


# -- names of resources in requests


def _group(request: Request) -> str | None:
    name: str = request.message.group_id
    return name


def _transactional_id(request: Request) -> str | None:
    name: str | None = request.message.transactional_id
    return name


def _synced_group(request: Request) -> str | None:
    message = request.message
    if request.version >= _WITH_PROTOCOL and (message.protocol_type is None or message.protocol_name is None):
        return None  # the request is refused for that
    return _group(request)


def _two_phase(request: Request) -> str | None:
    return _transactional_id(request) if request.message.enable2_pc else None


def _cluster_if_idempotent(request: Request) -> str | None:
    return CLUSTER_NAME if request.message.transactional_id is None else None


def _any_topic_if_idempotent(request: Request) -> str | None:
    return ANY_NAME if request.message.transactional_id is None else None


def _cluster_if_of_shares(request: Request) -> str | None:
    return CLUSTER_NAME if request.message.key_type == _SHARE_KEY_TYPE else None


def _cluster_if_from_broker(request: Request) -> str | None:
    return CLUSTER_NAME if request.version >= _FROM_BROKERS else None


# -- records

PRODUCE_TRANSACTION = _whole(Key.PRODUCE, _Op.WRITE, _TXN_ID, None, "transactional records")
PRODUCE_TOPIC = _item(Key.PRODUCE, _Op.WRITE, _TOPIC)
FETCH_AS_REPLICA = _item(
    Key.FETCH, _Op.CLUSTER_ACTION, _CLUSTER, "in the name of a replica", ErrorCode.TOPIC_AUTHORIZATION_FAILED
)
FETCH_TOPIC = _item(Key.FETCH, _Op.READ, _TOPIC, "as a consumer")
LIST_OFFSETS_AS_REPLICA = _item(
    Key.LIST_OFFSETS, _Op.CLUSTER_ACTION, _CLUSTER, "in the name of a replica", ErrorCode.TOPIC_AUTHORIZATION_FAILED
)
LIST_OFFSETS_TOPIC = _item(Key.LIST_OFFSETS, _Op.DESCRIBE, _TOPIC, "as a consumer")

# -- metadata

METADATA_TOPIC = _item(Key.METADATA, _Op.DESCRIBE, _TOPIC, "topics by name or id")
METADATA_ALL_TOPICS = _left_out(Key.METADATA, _Op.DESCRIBE, _TOPIC, "all topics", is_logged=False)
METADATA_CREATE_ANY = _next(Key.METADATA, _Op.CREATE, _CLUSTER, None, "a missing topic would be created")
METADATA_CREATE_TOPIC = _item(Key.METADATA, _Op.CREATE, _TOPIC, "a missing topic would be created")
METADATA_CLUSTER = _left_out(Key.METADATA, _Op.DESCRIBE, _CLUSTER, "the cluster's authorized operations (v8-v10)")

# -- the controller's pushes

LEADER_AND_ISR = _whole(Key.LEADER_AND_ISR, _Op.CLUSTER_ACTION, _CLUSTER)
STOP_REPLICA = _whole(Key.STOP_REPLICA, _Op.CLUSTER_ACTION, _CLUSTER)
UPDATE_METADATA = _whole(Key.UPDATE_METADATA, _Op.CLUSTER_ACTION, _CLUSTER)

# -- groups

OFFSET_COMMIT = _whole(Key.OFFSET_COMMIT, _Op.READ, _GROUP, _group)
OFFSET_COMMIT_TOPIC = _item(Key.OFFSET_COMMIT, _Op.READ, _TOPIC)
OFFSET_FETCH_GROUP = _item(Key.OFFSET_FETCH, _Op.DESCRIBE, _GROUP)
OFFSET_FETCH_TOPIC = _item(Key.OFFSET_FETCH, _Op.DESCRIBE, _TOPIC, "topics by name or id")
OFFSET_FETCH_ALL_TOPICS = _left_out(Key.OFFSET_FETCH, _Op.DESCRIBE, _TOPIC, "all topics")
FIND_GROUP = _item(Key.FIND_COORDINATOR, _Op.DESCRIBE, _GROUP, "of groups")
FIND_TRANSACTION = _item(Key.FIND_COORDINATOR, _Op.DESCRIBE, _TXN_ID, "of transactions")
FIND_SHARE = _whole(
    Key.FIND_COORDINATOR, _Op.CLUSTER_ACTION, _CLUSTER, _cluster_if_of_shares, "of share partitions (type 2)"
)
JOIN_GROUP = _whole(Key.JOIN_GROUP, _Op.READ, _GROUP, _group)
HEARTBEAT = _whole(Key.HEARTBEAT, _Op.READ, _GROUP, _group)
LEAVE_GROUP = _whole(Key.LEAVE_GROUP, _Op.READ, _GROUP, _group)
SYNC_GROUP = _whole(Key.SYNC_GROUP, _Op.READ, _GROUP, _synced_group)
DESCRIBE_GROUP = _item(Key.DESCRIBE_GROUPS, _Op.DESCRIBE, _GROUP)
LIST_ANY_GROUP = _next(Key.LIST_GROUPS, _Op.DESCRIBE, _CLUSTER)
LIST_GROUP = _left_out(Key.LIST_GROUPS, _Op.DESCRIBE, _GROUP, is_logged=False)

# -- topics and producers

DELETE_RECORDS_TOPIC = _item(Key.DELETE_RECORDS, _Op.DELETE, _TOPIC)
INIT_TRANSACTION = _whole(Key.INIT_PRODUCER_ID, _Op.WRITE, _TXN_ID, _transactional_id, "a transactional id")
INIT_TWO_PHASE = _whole(Key.INIT_PRODUCER_ID, _Op.TWO_PHASE_COMMIT, _TXN_ID, _two_phase, "two-phase commit")
INIT_IDEMPOTENT = _next(
    Key.INIT_PRODUCER_ID, _Op.IDEMPOTENT_WRITE, _CLUSTER, _cluster_if_idempotent, "no transactional id"
)
INIT_ANY_TOPIC = _whole(
    Key.INIT_PRODUCER_ID, _Op.WRITE, _TOPIC, _any_topic_if_idempotent, "no transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, is_any=True,
)  # fmt: skip
EPOCHS_OF_ANY_TOPIC = _next(Key.OFFSET_FOR_LEADER_EPOCH, _Op.CLUSTER_ACTION, _CLUSTER)
EPOCHS_OF_TOPIC = _item(Key.OFFSET_FOR_LEADER_EPOCH, _Op.DESCRIBE, _TOPIC)

# -- transactions

ADD_PARTITIONS_OF_CLIENTS = _whole(
    Key.ADD_PARTITIONS_TO_TXN, _Op.CLUSTER_ACTION, _CLUSTER, _cluster_if_from_broker, "from v4, which brokers send"
)
ADD_PARTITIONS = _item(Key.ADD_PARTITIONS_TO_TXN, _Op.WRITE, _TXN_ID, "until v3")
ADD_PARTITIONS_TOPIC = _item(Key.ADD_PARTITIONS_TO_TXN, _Op.WRITE, _TOPIC, "until v3")
ADD_OFFSETS = _whole(Key.ADD_OFFSETS_TO_TXN, _Op.WRITE, _TXN_ID, _transactional_id)
ADD_OFFSETS_GROUP = _whole(Key.ADD_OFFSETS_TO_TXN, _Op.READ, _GROUP, _group)
END_TXN = _whole(Key.END_TXN, _Op.WRITE, _TXN_ID, _transactional_id)
WRITE_MARKERS_OF_ADMIN = _next(Key.WRITE_TXN_MARKERS, _Op.ALTER, _CLUSTER, the_cluster)
WRITE_MARKERS = _whole(Key.WRITE_TXN_MARKERS, _Op.CLUSTER_ACTION, _CLUSTER)
TXN_OFFSET_COMMIT = _whole(Key.TXN_OFFSET_COMMIT, _Op.WRITE, _TXN_ID, _transactional_id)
TXN_OFFSET_COMMIT_GROUP = _whole(Key.TXN_OFFSET_COMMIT, _Op.READ, _GROUP, _group)
TXN_OFFSET_COMMIT_TOPIC = _item(Key.TXN_OFFSET_COMMIT, _Op.READ, _TOPIC)

# -- administration

DESCRIBE_ACLS = _whole(Key.DESCRIBE_ACLS, _Op.DESCRIBE, _CLUSTER)
DESCRIBE_TOPIC_CONFIGS = _item(Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _TOPIC, "of topics")
DESCRIBE_CLUSTER_CONFIGS = _item(
    Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _CLUSTER, "of brokers, loggers and client metrics"
)
DESCRIBE_GROUP_CONFIGS = _item(Key.DESCRIBE_CONFIGS, _Op.DESCRIBE_CONFIGS, _GROUP, "of groups")
ALTER_LOG_DIRS = _whole(Key.ALTER_REPLICA_LOG_DIRS, _Op.ALTER, _CLUSTER)
DESCRIBE_LOG_DIRS = _whole(Key.DESCRIBE_LOG_DIRS, _Op.DESCRIBE, _CLUSTER)
CREATE_TOKEN = _whole(Key.CREATE_DELEGATION_TOKEN, _Op.CREATE_TOKENS, ResourceType.USER, None, "for another owner")
DESCRIBE_TOKEN = _next(
    Key.DESCRIBE_DELEGATION_TOKEN, _Op.DESCRIBE, ResourceType.DELEGATION_TOKEN, None, "neither owned nor renewed"
)
DESCRIBE_TOKENS_OF = _left_out(
    Key.DESCRIBE_DELEGATION_TOKEN, _Op.DESCRIBE_TOKENS, ResourceType.USER, "neither owned nor renewed"
)
DELETE_GROUP = _item(Key.DELETE_GROUPS, _Op.DELETE, _GROUP)
ALTER_LOGGERS = _item(Key.INCREMENTAL_ALTER_CONFIGS, _Op.ALTER_CONFIGS, _CLUSTER, "of loggers")
OFFSET_DELETE = _whole(Key.OFFSET_DELETE, _Op.DELETE, _GROUP, _group)
OFFSET_DELETE_TOPIC = _item(Key.OFFSET_DELETE, _Op.READ, _TOPIC)
DESCRIBE_QUOTAS = _whole(Key.DESCRIBE_CLIENT_QUOTAS, _Op.DESCRIBE_CONFIGS, _CLUSTER)
DESCRIBE_SCRAM = _whole(Key.DESCRIBE_USER_SCRAM_CREDENTIALS, _Op.DESCRIBE, _CLUSTER)
FETCH_SNAPSHOT = _whole(Key.FETCH_SNAPSHOT, _Op.CLUSTER_ACTION, _CLUSTER)
DESCRIBE_CLUSTER = _left_out(Key.DESCRIBE_CLUSTER, _Op.DESCRIBE, _CLUSTER, "the cluster's authorized operations")
DESCRIBE_PRODUCERS_TOPIC = _item(Key.DESCRIBE_PRODUCERS, _Op.READ, _TOPIC)
DESCRIBE_TRANSACTION = _item(Key.DESCRIBE_TRANSACTIONS, _Op.DESCRIBE, _TXN_ID)
DESCRIBE_TRANSACTION_TOPIC = _left_out(Key.DESCRIBE_TRANSACTIONS, _Op.DESCRIBE, _TOPIC)
LIST_TRANSACTION = _left_out(Key.LIST_TRANSACTIONS, _Op.DESCRIBE, _TXN_ID)
CONSUMER_HEARTBEAT = _whole(Key.CONSUMER_GROUP_HEARTBEAT, _Op.READ, _GROUP, None)
CONSUMER_HEARTBEAT_TOPIC = _whole(
    Key.CONSUMER_GROUP_HEARTBEAT, _Op.DESCRIBE, _TOPIC, None, "each topic subscribed by name"
)
CONSUMER_REGEX_TOPIC = _left_out(
    Key.CONSUMER_GROUP_HEARTBEAT, _Op.DESCRIBE, _TOPIC, "topics that match a regular expression", is_logged=False
)
CONSUMER_GROUP_DESCRIBE = _item(Key.CONSUMER_GROUP_DESCRIBE, _Op.DESCRIBE, _GROUP)
CONSUMER_GROUP_DESCRIBE_TOPIC = _item(
    Key.CONSUMER_GROUP_DESCRIBE, _Op.DESCRIBE, _TOPIC, "each topic in the assignments of a group"
)
SHARE_HEARTBEAT = _whole(Key.SHARE_GROUP_HEARTBEAT, _Op.READ, _GROUP, None)
SHARE_HEARTBEAT_TOPIC = _whole(Key.SHARE_GROUP_HEARTBEAT, _Op.DESCRIBE, _TOPIC, None, "each subscribed topic")
SHARE_GROUP_DESCRIBE = _item(Key.SHARE_GROUP_DESCRIBE, _Op.DESCRIBE, _GROUP)
SHARE_GROUP_DESCRIBE_TOPIC = _item(
    Key.SHARE_GROUP_DESCRIBE, _Op.DESCRIBE, _TOPIC, "each topic in the assignments of a group"
)
DESCRIBE_SHARE_OFFSETS = _item(Key.DESCRIBE_SHARE_GROUP_OFFSETS, _Op.DESCRIBE, _GROUP)
DESCRIBE_SHARE_OFFSETS_TOPIC = _item(Key.DESCRIBE_SHARE_GROUP_OFFSETS, _Op.DESCRIBE, _TOPIC, "topics by name")
DESCRIBE_SHARE_OFFSETS_ALL = _left_out(Key.DESCRIBE_SHARE_GROUP_OFFSETS, _Op.DESCRIBE, _TOPIC, "all topics")
ALTER_SHARE_OFFSETS = _whole(Key.ALTER_SHARE_GROUP_OFFSETS, _Op.READ, _GROUP, None)
ALTER_SHARE_OFFSETS_TOPIC = _item(Key.ALTER_SHARE_GROUP_OFFSETS, _Op.READ, _TOPIC)
DELETE_SHARE_OFFSETS = _whole(Key.DELETE_SHARE_GROUP_OFFSETS, _Op.DELETE, _GROUP, None)
DELETE_SHARE_OFFSETS_TOPIC = _item(Key.DELETE_SHARE_GROUP_OFFSETS, _Op.READ, _TOPIC)
STREAMS_HEARTBEAT = _whole(Key.STREAMS_GROUP_HEARTBEAT, _Op.READ, _GROUP, None)
STREAMS_HEARTBEAT_TOPIC = _whole(Key.STREAMS_GROUP_HEARTBEAT, _Op.DESCRIBE, _TOPIC, None, "each topic of the topology")
STREAMS_CREATE_ANY = _next(
    Key.STREAMS_GROUP_HEARTBEAT, _Op.CREATE, _CLUSTER, None, "an internal topic would be created"
)
STREAMS_CREATE_TOPIC = _left_out(Key.STREAMS_GROUP_HEARTBEAT, _Op.CREATE, _TOPIC, "an internal topic would be created")
STREAMS_GROUP_DESCRIBE = _item(Key.STREAMS_GROUP_DESCRIBE, _Op.DESCRIBE, _GROUP)
STREAMS_GROUP_DESCRIBE_TOPIC = _item(
    Key.STREAMS_GROUP_DESCRIBE, _Op.DESCRIBE, _TOPIC, "each topic of a group's topology"
)
LIST_CONFIGS = _whole(Key.LIST_CONFIG_RESOURCES, _Op.DESCRIBE_CONFIGS, _CLUSTER)
DESCRIBE_TOPIC = _item(Key.DESCRIBE_TOPIC_PARTITIONS, _Op.DESCRIBE, _TOPIC, "topics by name")
DESCRIBE_ALL_TOPICS = _left_out(Key.DESCRIBE_TOPIC_PARTITIONS, _Op.DESCRIBE, _TOPIC, "all topics")

# -- share state, for brokers

SHARE_FETCH_GROUP = _whole(Key.SHARE_FETCH, _Op.READ, _GROUP, _group)
SHARE_FETCH_TOPIC = _item(Key.SHARE_FETCH, _Op.READ, _TOPIC)
SHARE_ACKNOWLEDGE_GROUP = _whole(Key.SHARE_ACKNOWLEDGE, _Op.READ, _GROUP, _group)
SHARE_ACKNOWLEDGE_TOPIC = _item(Key.SHARE_ACKNOWLEDGE, _Op.READ, _TOPIC)
INITIALIZE_SHARE_STATE = _whole(Key.INITIALIZE_SHARE_GROUP_STATE, _Op.CLUSTER_ACTION, _CLUSTER)
READ_SHARE_STATE = _whole(Key.READ_SHARE_GROUP_STATE, _Op.CLUSTER_ACTION, _CLUSTER)
WRITE_SHARE_STATE = _whole(Key.WRITE_SHARE_GROUP_STATE, _Op.CLUSTER_ACTION, _CLUSTER)
DELETE_SHARE_STATE = _whole(Key.DELETE_SHARE_GROUP_STATE, _Op.CLUSTER_ACTION, _CLUSTER)
READ_SHARE_STATE_SUMMARY = _whole(Key.READ_SHARE_GROUP_STATE_SUMMARY, _Op.CLUSTER_ACTION, _CLUSTER)
