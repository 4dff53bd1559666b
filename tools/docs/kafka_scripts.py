"""Every script in `bin/` of Apache Kafka 4.3.1: whether it works with a cluster of Barnabas, or why not.

The page `docs/compatibility.md` has the table. A test holds each script that works to be run by a test.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script, without `.sh`. `why_not`: what is in the way, and what to use; empty for one that works."""

    name: str
    does: str
    why_not: str = ""


SCRIPTS: Final = (
    Script("connect-distributed", "a worker of Kafka Connect in a group of workers"),
    Script("connect-mirror-maker", "MirrorMaker 2, from one cluster to another"),
    Script("connect-plugin-path", "plugins of Kafka Connect; it asks no cluster"),
    Script("connect-standalone", "a single worker of Kafka Connect"),
    Script("kafka-acls", "ACLs"),
    Script("kafka-broker-api-versions", "the versions that brokers offer"),
    Script("kafka-client-metrics", "subscriptions to metrics of clients"),
    Script("kafka-cluster", "the cluster's id; unregistering brokers"),
    Script("kafka-configs", "settings of topics, brokers, groups, users and addresses; loggers"),
    Script("kafka-console-consumer", "reads records"),
    Script("kafka-console-producer", "writes records"),
    Script("kafka-console-share-consumer", "reads records in a share group"),
    Script("kafka-consumer-groups", "groups and their offsets"),
    Script("kafka-consumer-perf-test", "throughput of a consumer"),
    Script("kafka-delegation-tokens", "delegation tokens"),
    Script("kafka-delete-records", "deletes records before an offset"),
    Script("kafka-dump-log", "the files of a data directory"),
    Script("kafka-e2e-latency", "the time from a producer to a consumer"),
    Script("kafka-features", "feature levels"),
    Script("kafka-get-offsets", "offsets of partitions"),
    Script("kafka-groups", "groups of every type"),
    Script("kafka-jmx", "metrics over JMX", "a process has no JVM, and so no JMX: its metrics are on `/metrics`"),
    Script("kafka-leader-election", "elections of leaders"),
    Script("kafka-log-dirs", "log directories and their sizes"),
    Script("kafka-metadata-quorum", "the quorum of controllers"),
    Script("kafka-metadata-shell", "the metadata log or a snapshot of it"),
    Script("kafka-producer-perf-test", "throughput of a producer"),
    Script("kafka-reassign-partitions", "moves replicas"),
    Script("kafka-replica-verification", "compares replicas"),
    Script(
        "kafka-run-class",
        "runs a class of Kafka's in a JVM",
        "it starts programs of Java; those that are clients work",
    ),
    Script(
        "kafka-server-start", "starts a node", "it starts Apache Kafka: use `barnabas server FILE` with the same file"
    ),
    Script("kafka-server-stop", "ends nodes", "it looks for a JVM with Apache Kafka: send the process SIGTERM instead"),
    Script("kafka-share-consumer-perf-test", "throughput of share consumers"),
    Script("kafka-share-groups", "share groups and their offsets"),
    Script("kafka-storage", "formats a controller's data directory; makes cluster ids"),
    Script("kafka-streams-application-reset", "resets an application of Kafka Streams"),
    Script("kafka-streams-groups", "streams groups"),
    Script("kafka-topics", "topics"),
    Script("kafka-transactions", "transactions, hanging ones too"),
    Script("kafka-verifiable-consumer", "a consumer that reports what it reads"),
    Script("kafka-verifiable-producer", "a producer that reports what it sends"),
    Script("kafka-verifiable-share-consumer", "a share consumer that reports what it reads"),
    Script("trogdor", "workloads and faults for tests"),
)
