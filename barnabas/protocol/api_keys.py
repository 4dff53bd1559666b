"""The API keys: one row each, with the versions that our messages cover.

The versions are those of Apache Kafka 4.3.1; LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA and CONTROLLED_SHUTDOWN,
which 4.0 removed, have those of 3.9. The TABLE of a process lists the APIs that it serves.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.fields import INFINITY


class ApiKey(IntEnum):
    """An API, by the key that starts each request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiRow(NamedTuple):
    """The facts about an API that framing needs; versions are inclusive."""

    name: str  # Kafka's: "ListOffsets"
    min_version: int
    max_version: int
    flexible_from: int  # the first version with compact lengths and tagged fields
    cluster_action: bool  # only brokers and controllers may send it


NEVER = INFINITY


def _row(name: str, min_version: int, max_version: int, flexible_from: int, cluster_action: bool = False) -> ApiRow:
    return ApiRow(name, min_version, max_version, flexible_from, cluster_action)


ROWS: dict[int, ApiRow] = {
    ApiKey.PRODUCE: _row("Produce", 3, 13, 9),
    ApiKey.FETCH: _row("Fetch", 4, 18, 12),
    ApiKey.LIST_OFFSETS: _row("ListOffsets", 1, 11, 6),
    ApiKey.METADATA: _row("Metadata", 0, 13, 9),
    ApiKey.LEADER_AND_ISR: _row("LeaderAndIsr", 0, 7, 4, cluster_action=True),
    ApiKey.STOP_REPLICA: _row("StopReplica", 0, 4, 2, cluster_action=True),
    ApiKey.UPDATE_METADATA: _row("UpdateMetadata", 0, 8, 6, cluster_action=True),
    ApiKey.CONTROLLED_SHUTDOWN: _row("ControlledShutdown", 0, 3, 3, cluster_action=True),
    ApiKey.OFFSET_COMMIT: _row("OffsetCommit", 2, 10, 8),
    ApiKey.OFFSET_FETCH: _row("OffsetFetch", 1, 10, 6),
    ApiKey.FIND_COORDINATOR: _row("FindCoordinator", 0, 6, 3),
    ApiKey.JOIN_GROUP: _row("JoinGroup", 0, 9, 6),
    ApiKey.HEARTBEAT: _row("Heartbeat", 0, 4, 4),
    ApiKey.LEAVE_GROUP: _row("LeaveGroup", 0, 5, 4),
    ApiKey.SYNC_GROUP: _row("SyncGroup", 0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: _row("DescribeGroups", 0, 6, 5),
    ApiKey.LIST_GROUPS: _row("ListGroups", 0, 5, 3),
    ApiKey.SASL_HANDSHAKE: _row("SaslHandshake", 0, 1, NEVER),
    ApiKey.API_VERSIONS: _row("ApiVersions", 0, 4, 3),
    ApiKey.CREATE_TOPICS: _row("CreateTopics", 2, 7, 5),
    ApiKey.DELETE_TOPICS: _row("DeleteTopics", 1, 6, 4),
    ApiKey.DELETE_RECORDS: _row("DeleteRecords", 0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: _row("InitProducerId", 0, 6, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _row("OffsetForLeaderEpoch", 2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _row("AddPartitionsToTxn", 0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _row("AddOffsetsToTxn", 0, 4, 3),
    ApiKey.END_TXN: _row("EndTxn", 0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: _row("WriteTxnMarkers", 1, 2, 1, cluster_action=True),
    ApiKey.TXN_OFFSET_COMMIT: _row("TxnOffsetCommit", 0, 5, 3),
    ApiKey.DESCRIBE_ACLS: _row("DescribeAcls", 1, 3, 2),
    ApiKey.CREATE_ACLS: _row("CreateAcls", 1, 3, 2),
    ApiKey.DELETE_ACLS: _row("DeleteAcls", 1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: _row("DescribeConfigs", 1, 4, 4),
    ApiKey.ALTER_CONFIGS: _row("AlterConfigs", 0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _row("AlterReplicaLogDirs", 1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _row("DescribeLogDirs", 1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: _row("SaslAuthenticate", 0, 2, 2),
    ApiKey.CREATE_PARTITIONS: _row("CreatePartitions", 0, 3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: _row("CreateDelegationToken", 1, 3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: _row("RenewDelegationToken", 1, 2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _row("ExpireDelegationToken", 1, 2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _row("DescribeDelegationToken", 1, 3, 2),
    ApiKey.DELETE_GROUPS: _row("DeleteGroups", 0, 2, 2),
    ApiKey.ELECT_LEADERS: _row("ElectLeaders", 0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _row("IncrementalAlterConfigs", 0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _row("AlterPartitionReassignments", 0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _row("ListPartitionReassignments", 0, 0, 0),
    ApiKey.OFFSET_DELETE: _row("OffsetDelete", 0, 0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _row("DescribeClientQuotas", 0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: _row("AlterClientQuotas", 0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _row("DescribeUserScramCredentials", 0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _row("AlterUserScramCredentials", 0, 0, 0),
    ApiKey.VOTE: _row("Vote", 0, 2, 0, cluster_action=True),
    ApiKey.BEGIN_QUORUM_EPOCH: _row("BeginQuorumEpoch", 0, 1, 1, cluster_action=True),
    ApiKey.END_QUORUM_EPOCH: _row("EndQuorumEpoch", 0, 1, 1, cluster_action=True),
    ApiKey.DESCRIBE_QUORUM: _row("DescribeQuorum", 0, 2, 0, cluster_action=True),
    ApiKey.ALTER_PARTITION: _row("AlterPartition", 2, 3, 0, cluster_action=True),
    ApiKey.UPDATE_FEATURES: _row("UpdateFeatures", 0, 2, 0, cluster_action=True),
    ApiKey.ENVELOPE: _row("Envelope", 0, 0, 0, cluster_action=True),
    ApiKey.FETCH_SNAPSHOT: _row("FetchSnapshot", 0, 1, 0),
    ApiKey.DESCRIBE_CLUSTER: _row("DescribeCluster", 0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: _row("DescribeProducers", 0, 0, 0),
    ApiKey.BROKER_REGISTRATION: _row("BrokerRegistration", 0, 4, 0, cluster_action=True),
    ApiKey.BROKER_HEARTBEAT: _row("BrokerHeartbeat", 0, 2, 0, cluster_action=True),
    ApiKey.UNREGISTER_BROKER: _row("UnregisterBroker", 0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _row("DescribeTransactions", 0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: _row("ListTransactions", 0, 2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: _row("AllocateProducerIds", 0, 0, 0, cluster_action=True),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _row("ConsumerGroupHeartbeat", 0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _row("ConsumerGroupDescribe", 0, 1, 0),
    ApiKey.CONTROLLER_REGISTRATION: _row("ControllerRegistration", 0, 0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _row("GetTelemetrySubscriptions", 0, 0, 0),
    ApiKey.PUSH_TELEMETRY: _row("PushTelemetry", 0, 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _row("AssignReplicasToDirs", 0, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: _row("ListConfigResources", 0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _row("DescribeTopicPartitions", 0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: _row("ShareGroupHeartbeat", 1, 1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: _row("ShareGroupDescribe", 1, 1, 0),
    ApiKey.SHARE_FETCH: _row("ShareFetch", 1, 2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: _row("ShareAcknowledge", 1, 2, 0),
    ApiKey.ADD_RAFT_VOTER: _row("AddRaftVoter", 0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: _row("RemoveRaftVoter", 0, 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: _row("UpdateRaftVoter", 0, 0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _row("InitializeShareGroupState", 0, 0, 0, cluster_action=True),
    ApiKey.READ_SHARE_GROUP_STATE: _row("ReadShareGroupState", 0, 0, 0, cluster_action=True),
    ApiKey.WRITE_SHARE_GROUP_STATE: _row("WriteShareGroupState", 0, 1, 0, cluster_action=True),
    ApiKey.DELETE_SHARE_GROUP_STATE: _row("DeleteShareGroupState", 0, 0, 0, cluster_action=True),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _row("ReadShareGroupStateSummary", 0, 1, 0, cluster_action=True),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _row("StreamsGroupHeartbeat", 0, 0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: _row("StreamsGroupDescribe", 0, 0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _row("DescribeShareGroupOffsets", 0, 1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _row("AlterShareGroupOffsets", 0, 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _row("DeleteShareGroupOffsets", 0, 0, 0),
}


def supported_versions(api_key: int) -> tuple[int, int]:
    """Return the versions that our messages cover, inclusive; raises KeyError for an unknown key."""
    row = ROWS[api_key]
    return row.min_version, row.max_version


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, for people; an unknown key is named after its number."""
    row = ROWS.get(api_key)
    return row.name if row is not None else f"UNKNOWN({api_key})"
