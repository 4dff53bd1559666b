"""The API versions and features of each release of Apache Kafka, to answer as one did, such as Kafka 2.8.

A row lists the highest versions with the first release of each: "2.4:8 2.8:9" is 8 since 2.4 and 9 since 2.8, and no
such API before. The source is `validVersions` in the message definitions at each release's tag, without versions marked
unstable; for 0.10, `Protocol.java`. Releases before 4.0 had every version from 0 on; 4.0 removed some (KIP-896).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from barnabas.protocol.api_keys import ApiKey

RELEASES: Final = (
    *("0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1"),
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    *("4.0", "4.1", "4.2"),
)

#: Other names of releases: a minor release without its last number is the newest of it.
ALIASES: Final = {"0.10": "0.10.2"}

#: The first release without the versions that KIP-896 removed.
_FIRST_WITHOUT_REMOVED: Final = "4.0"

MAXIMA: Final[dict[int, str]] = {
    ApiKey.PRODUCE: "0.10.0:2 0.11:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11 4.0:12 4.1:13",
    ApiKey.FETCH: "0.10.0:2 0.10.1:3 0.11:5 1.0:6 1.1:7 2.0:8 2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    ApiKey.LIST_OFFSETS: "0.10.0:0 0.10.1:1 0.11:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11",
    ApiKey.METADATA: "0.10.0:1 0.10.1:2 0.11:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12 4.0:13",
    ApiKey.OFFSET_COMMIT: "0.10.0:2 0.11:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.2:10",
    ApiKey.OFFSET_FETCH: "0.10.0:1 0.10.2:2 0.11:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9 4.2:10",
    ApiKey.FIND_COORDINATOR: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
    ApiKey.JOIN_GROUP: "0.10.0:0 0.10.1:1 0.11:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
    ApiKey.HEARTBEAT: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:4",
    ApiKey.LEAVE_GROUP: "0.10.0:0 0.11:1 2.0:2 2.4:4 3.2:5",
    ApiKey.SYNC_GROUP: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:4 2.5:5",
    ApiKey.DESCRIBE_GROUPS: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:5 4.0:6",
    ApiKey.LIST_GROUPS: "0.10.0:0 0.11:1 2.0:2 2.4:3 2.6:4 3.8:5",
    ApiKey.SASL_HANDSHAKE: "0.10.0:0 1.0:1",
    ApiKey.API_VERSIONS: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.9:4",
    ApiKey.CREATE_TOPICS: "0.10.1:0 0.10.2:1 0.11:2 2.0:3 2.4:5 2.7:6 2.8:7",
    ApiKey.DELETE_TOPICS: "0.10.1:0 0.11:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKey.DELETE_RECORDS: "0.11:0 2.0:1 2.6:2",
    ApiKey.INIT_PRODUCER_ID: "0.11:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0.11:0 2.0:1 2.1:2 2.3:3 2.8:4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5",
    ApiKey.ADD_OFFSETS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",
    ApiKey.END_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4 4.0:5",
    ApiKey.WRITE_TXN_MARKERS: "0.11:0 2.8:1 4.2:2",
    ApiKey.TXN_OFFSET_COMMIT: "0.11:0 2.0:1 2.1:2 2.5:3 3.8:4 4.0:5",
    ApiKey.DESCRIBE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKey.CREATE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DESCRIBE_CONFIGS: "0.11:0 1.1:1 2.0:2 2.6:3 2.8:4",
    ApiKey.ALTER_CONFIGS: "0.11:0 2.0:1 2.8:2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0:0 2.0:1 2.8:2",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4",
    ApiKey.SASL_AUTHENTICATE: "1.0:0 2.2:1 2.5:2",
    ApiKey.CREATE_PARTITIONS: "1.0:0 2.0:1 2.5:2 2.7:3",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_GROUPS: "1.1:0 2.0:1 2.4:2",
    ApiKey.ELECT_LEADERS: "2.2:0 2.4:2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4:0 4.1:1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
    ApiKey.OFFSET_DELETE: "2.4:0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.DESCRIBE_QUORUM: "4.0:2",
    ApiKey.UPDATE_FEATURES: "2.7:0 3.3:1 4.0:2",
    ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.0:2",
    ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKey.UNREGISTER_BROKER: "4.0:0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.1:2",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7:0 4.0:1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.0:1",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "3.7:0",
    ApiKey.PUSH_TELEMETRY: "3.7:0",
    ApiKey.LIST_CONFIG_RESOURCES: "4.0:0 4.1:1",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "4.0:0",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.1:1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1:1",
    ApiKey.ADD_RAFT_VOTER: "4.0:0 4.2:1",
    ApiKey.REMOVE_RAFT_VOTER: "4.0:0",
    ApiKey.SHARE_FETCH: "4.1:1 4.2:2",
    ApiKey.SHARE_ACKNOWLEDGE: "4.1:1 4.2:2",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "4.1:0",
    ApiKey.READ_SHARE_GROUP_STATE: "4.1:0",
    ApiKey.WRITE_SHARE_GROUP_STATE: "4.1:0 4.2:1",
    ApiKey.DELETE_SHARE_GROUP_STATE: "4.1:0",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "4.1:0 4.2:1",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "4.1:0",
    ApiKey.STREAMS_GROUP_DESCRIBE: "4.1:0",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1:0 4.2:1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1:0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.1:0",
}


#: Features in ApiVersions, in the same notation: the highest level that a release supports.
FEATURES: Final[dict[str, str]] = {
    "eligible.leader.replicas.version": "4.0:1",
    "group.version": "4.0:1",
    "kraft.version": "3.9:1",
    "metadata.version": "3.3:7 3.4:8 3.5:11 3.6:14 3.7:19 3.8:20 3.9:21 4.0:25 4.1:27 4.2:29",
    "share.version": "4.1:1",
    "streams.version": "4.1:1",
    "transaction.version": "4.0:2",
}

#: The features that a release supported before a new cluster of it had them: the highest level of a new cluster.
FINALIZED: Final[dict[str, str]] = {
    "eligible.leader.replicas.version": "4.0:0 4.1:1",
    "share.version": "4.1:0 4.2:1",
    "streams.version": "4.1:0 4.2:1",
}


def release_of(name: str) -> str:
    """Return the release that a name means: `0.10` is the newest 0.10."""
    return ALIASES.get(name, name)


def has_removed_versions(release: str) -> bool:
    """Return whether a release has the versions that 4.0 removed (`protocol/removed`)."""
    return RELEASES.index(release) < RELEASES.index(_FIRST_WITHOUT_REMOVED)


def highest_version(api_key: int, release: str) -> int | None:
    """Return the highest version of an API that a release lists; None if it does not list the API."""
    return _highest(MAXIMA.get(api_key, ""), release)


def highest_level(feature: str, release: str) -> int | None:
    """Return the highest level of a feature that a release lists; None if it does not list the feature.

    A feature that is not in the table is newer than all these releases.
    """
    return _highest(FEATURES.get(feature, ""), release)


def finalized_level(feature: str, release: str) -> int | None:
    """Return the highest level of a feature in a new cluster of a release; None if the release does not list it."""
    return _highest(FINALIZED.get(feature) or FEATURES.get(feature, ""), release)


@cache
def _highest(steps: str, release: str) -> int | None:
    rank, found = RELEASES.index(release), None
    for step in steps.split():
        since, _, highest = step.partition(":")
        if RELEASES.index(since) <= rank:
            found = int(highest)
    return found
