"""The API versions of each release of Apache Kafka, for faults that pretend to be one, such as Kafka 2.8.

A row lists the highest versions with the first release of each: "2.4:8 2.8:9" is 8 since 2.4 and 9 since 2.8, and no
such API before. The source is `validVersions` in the message definitions at each release's tag, without versions marked
unstable. The lowest versions are those of this project: 4.0 dropped older ones.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from barnabas.protocol.api_keys import ApiKey

RELEASES: Final = (
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    *("4.0", "4.1", "4.2"),
)

MAXIMA: Final[dict[int, str]] = {
    ApiKey.PRODUCE: "2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11 4.0:12 4.1:13",
    ApiKey.FETCH: "2.0:8 2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    ApiKey.LIST_OFFSETS: "2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11",
    ApiKey.METADATA: "2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12 4.0:13",
    ApiKey.OFFSET_COMMIT: "2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.2:10",
    ApiKey.OFFSET_FETCH: "2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9 4.2:10",
    ApiKey.FIND_COORDINATOR: "2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
    ApiKey.JOIN_GROUP: "2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
    ApiKey.HEARTBEAT: "2.0:2 2.3:3 2.4:4",
    ApiKey.LEAVE_GROUP: "2.0:2 2.4:4 3.2:5",
    ApiKey.SYNC_GROUP: "2.0:2 2.3:3 2.4:4 2.5:5",
    ApiKey.DESCRIBE_GROUPS: "2.0:2 2.3:3 2.4:5 4.0:6",
    ApiKey.LIST_GROUPS: "2.0:2 2.4:3 2.6:4 3.8:5",
    ApiKey.SASL_HANDSHAKE: "2.0:1",
    ApiKey.API_VERSIONS: "2.0:2 2.4:3 3.9:4",
    ApiKey.CREATE_TOPICS: "2.0:3 2.4:5 2.7:6 2.8:7",
    ApiKey.DELETE_TOPICS: "2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKey.DELETE_RECORDS: "2.0:1 2.6:2",
    ApiKey.INIT_PRODUCER_ID: "2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "2.0:1 2.1:2 2.3:3 2.8:4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "2.0:1 2.7:2 2.8:3 3.6:4 3.8:5",
    ApiKey.ADD_OFFSETS_TO_TXN: "2.0:1 2.7:2 2.8:3 3.8:4",
    ApiKey.END_TXN: "2.0:1 2.7:2 2.8:3 3.8:4 4.0:5",
    ApiKey.WRITE_TXN_MARKERS: "2.0:0 2.8:1 4.2:2",
    ApiKey.TXN_OFFSET_COMMIT: "2.0:1 2.1:2 2.5:3 3.8:4 4.0:5",
    ApiKey.DESCRIBE_ACLS: "2.0:1 2.5:2 3.3:3",
    ApiKey.CREATE_ACLS: "2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_ACLS: "2.0:1 2.5:2 3.3:3",
    ApiKey.DESCRIBE_CONFIGS: "2.0:2 2.6:3 2.8:4",
    ApiKey.ALTER_CONFIGS: "2.0:1 2.8:2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "2.0:1 2.8:2",
    ApiKey.DESCRIBE_LOG_DIRS: "2.0:1 2.6:2 3.2:3 3.3:4",
    ApiKey.SASL_AUTHENTICATE: "2.0:0 2.2:1 2.5:2",
    ApiKey.CREATE_PARTITIONS: "2.0:1 2.5:2 2.7:3",
    ApiKey.CREATE_DELEGATION_TOKEN: "2.0:1 2.4:2 3.3:3",
    ApiKey.RENEW_DELEGATION_TOKEN: "2.0:1 2.5:2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "2.0:1 2.5:2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_GROUPS: "2.0:1 2.4:2",
    ApiKey.ELECT_LEADERS: "2.2:0 2.4:2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4:0 4.1:1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
    ApiKey.OFFSET_DELETE: "2.4:0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.UPDATE_FEATURES: "2.7:0 3.3:1 4.0:2",
    ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.0:2",
    ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKey.UNREGISTER_BROKER: "4.0:0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.1:2",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7:0 4.0:1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.0:1",
    ApiKey.LIST_CONFIG_RESOURCES: "4.0:0 4.1:1",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "4.0:0",
}


@cache
def highest_version(api_key: int, release: str) -> int | None:
    """Return the highest version of an API that a release lists; None if it does not list the API."""
    rank, found = RELEASES.index(release), None
    for step in MAXIMA.get(api_key, "").split():
        since, _, version = step.partition(":")
        if RELEASES.index(since) <= rank:
            found = int(version)
    return found


#: The first release that lists a feature in ApiVersions.
FEATURES_SINCE: Final = {"metadata.version": "3.3", "group.version": "4.0", "transaction.version": "4.0"}


def release_has_feature(release: str, feature: str) -> bool:
    """Whether a release lists a feature. A feature that is not in the table is newer than all these releases."""
    since = FEATURES_SINCE.get(feature)
    return since is not None and RELEASES.index(since) <= RELEASES.index(release)
