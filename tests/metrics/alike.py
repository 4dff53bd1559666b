"""`python -m tests.metrics.alike`: the same load on Barnabas and on Apache Kafka, and the readings of the same MBeans.

Apache's are read over JMX by its own JmxTool, Barnabas's off its page. The load is one producer's batches and one
group's reader, so that most counts must be equal; times and idle shares are for people to compare.
"""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from barnabas.common.processes.ports import free_ports
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KafkaRuntime, kafka_runtime
from tests.support.kafka.kafka_tools import SMALL_JVM
from tests.support.waiting import eventually

TOPIC, GROUP = "alike", "alike-readers"
BATCHES, RECORDS_IN_BATCH, RECORD_SIZE = 300, 20, 100


@dataclass(frozen=True)
class Reading:
    """One attribute of an MBean, its series here, and the tolerance between both (None: only shown)."""

    mbean: str
    attribute: str
    series: str
    labels: tuple[tuple[str, str], ...] = ()
    tolerance: float | None = 0.0


def _topic(name: str, series: str, topic: str = TOPIC) -> Reading:
    tail = f",topic={topic}" if topic else ""
    labels = (("topic", topic),)
    return Reading(f"kafka.server:type=BrokerTopicMetrics,name={name}{tail}", "Count", series, labels)


def _request(name: str, attribute: str, request: str, tolerance: float | None = None) -> Reading:
    series = f"kafka_network_requestmetrics_{name.lower()}"
    quantiles = {"50thPercentile": "0.50", "99thPercentile": "0.99"}
    labels = [("request", request)]
    if attribute in quantiles:
        labels.append(("quantile", quantiles[attribute]))
    else:
        series += "_" + attribute.lower()
    mbean = f"kafka.network:type=RequestMetrics,name={name},request={request}"
    return Reading(mbean, attribute, series, tuple(labels), tolerance)


_METRICS = "kafka_server_brokertopicmetrics"
READINGS = (
    _topic("MessagesInPerSec", f"{_METRICS}_messagesin_total"),
    _topic("BytesInPerSec", f"{_METRICS}_bytesin_total"),
    _topic("BytesOutPerSec", f"{_METRICS}_bytesout_total"),
    _topic("TotalProduceRequestsPerSec", f"{_METRICS}_totalproducerequests_total"),
    Reading(
        f"kafka.log:type=Log,name=LogEndOffset,topic={TOPIC},partition=0",
        "Value",
        "kafka_log_log_logendoffset",
        (("topic", TOPIC), ("partition", "0")),
    ),
    Reading(
        f"kafka.log:type=Log,name=Size,topic={TOPIC},partition=0",
        "Value",
        "kafka_log_log_size",
        (("topic", TOPIC), ("partition", "0")),
    ),
    Reading(
        f"kafka.log:type=Log,name=NumLogSegments,topic={TOPIC},partition=0",
        "Value",
        "kafka_log_log_numlogsegments",
        (("topic", TOPIC), ("partition", "0")),
    ),
    *(
        Reading(
            f"kafka.cluster:type=Partition,name={name},topic={TOPIC},partition=0",
            "Value",
            f"kafka_cluster_partition_{name.lower()}",
            (("topic", TOPIC), ("partition", "0")),
        )
        for name in ("UnderReplicated", "UnderMinIsr", "AtMinIsr", "ReplicasCount", "InSyncReplicasCount")
    ),
    *(
        Reading(f"kafka.server:type=ReplicaManager,name={name}", "Value", f"kafka_server_replicamanager_{name.lower()}")
        for name in ("PartitionCount", "LeaderCount", "UnderReplicatedPartitions", "OfflineReplicaCount")
    ),
    *(
        Reading(
            f"kafka.coordinator.group:type=GroupMetadataManager,name={name}",
            "Value",
            f"kafka_coordinator_group_groupmetadatamanager_{name.lower()}",
            tolerance=tolerance,
        )
        # Apache Kafka counts its groups only once a minute.
        for name, tolerance in (("NumOffsets", 0.0), ("NumGroups", None), ("NumGroupsEmpty", None))
    ),
    Reading("kafka.server:type=KafkaServer,name=BrokerState", "Value", "kafka_server_kafkaserver_brokerstate"),
    Reading(
        "kafka.controller:type=KafkaController,name=GlobalTopicCount",
        "Value",
        "kafka_controller_kafkacontroller_globaltopiccount",
    ),
    Reading(
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        "Value",
        "kafka_controller_kafkacontroller_globalpartitioncount",
    ),
    _request("TotalTimeMs", "Count", "Produce", 0.0),
    _request("RequestBytes", "Mean", "Produce", 0.0),
    _request("TotalTimeMs", "Mean", "Produce"),
    _request("TotalTimeMs", "99thPercentile", "Produce"),
    _request("LocalTimeMs", "Mean", "Produce"),
    _request("RequestQueueTimeMs", "Mean", "Produce"),
    _request("RemoteTimeMs", "Mean", "Produce"),
    _request("ResponseSendTimeMs", "Mean", "Produce"),
    _request("RemoteTimeMs", "50thPercentile", "FetchConsumer"),
    Reading(
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        tolerance=None,
    ),
    Reading(
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
        "Value",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        tolerance=None,
    ),
    Reading(
        "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation=Fetch",
        "Value",
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        (("delayedOperation", "Fetch"),),
        tolerance=None,  # the reader's last fetch may still wait
    ),
)


def put_load_on(bootstrap: str) -> None:
    """Produce batches of equal size, one in each request; read and commit them as a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    eventually("the topic is known", lambda: TOPIC in admin.list_topics(timeout=20).topics)
    # Why no flush: it may split a batch. Full batches are sent at once.
    batches = {"batch.num.messages": RECORDS_IN_BATCH, "linger.ms": 100_000}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": False, **batches})
    for _ in range(BATCHES * RECORDS_IN_BATCH):
        producer.produce(TOPIC, b"v" * RECORD_SIZE, timestamp=1_700_000_000_000)
    eventually("everything is acknowledged", lambda: producer.poll(0.1) == 0 and len(producer) == 0)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.assign([Position(TOPIC, 0, 0)])
    total = BATCHES * RECORDS_IN_BATCH
    read = 0
    while read < total:
        read += len(consumer.consume(total - read, 5))
    consumer.commit(offsets=[Position(TOPIC, 0, total)], asynchronous=False)
    consumer.close()


def from_barnabas(directory: Path) -> list[float]:
    """Return the readings of Barnabas after the load, from its pages."""
    config = {"barnabas.metrics.port": "0", "offsets.topic.num.partitions": "5"}
    with BarnabasCluster(directory, broker_count=1, first_port=0, config=config) as cluster:
        put_load_on(cluster.bootstrap)
        samples = [
            sample
            for node in cluster.nodes.values()
            for sample in _page(node.metrics_port)
            if node.role == "broker" or sample.name.startswith("kafka_controller_")
        ]
    return [
        next((s.value for s in samples if s.name == r.series and _has(s.labels, r.labels)), float("nan"))
        for r in READINGS
    ]


def _page(port: int) -> list[object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return [sample for family in families for sample in family.samples]


def _has(labels: dict[str, str], wanted: tuple[tuple[str, str], ...]) -> bool:
    return all(labels.get(key, "") == value for key, value in wanted)


def from_apache(runtime: KafkaRuntime, directory: Path) -> list[float]:
    """Return the readings of Apache Kafka after the load, over JMX."""
    (port,) = free_ports(1)
    remote = "-Dcom.sun.management.jmxremote"
    options = (*SMALL_JVM, f"{remote}.port={port}", f"{remote}.rmi.port={port}", f"{remote}.authenticate=false")
    options += (f"{remote}.ssl=false", f"{remote}.host=127.0.0.1", "-Djava.rmi.server.hostname=127.0.0.1")
    node = ApacheKafka(runtime, directory, config={"offsets.topic.num.partitions": "5"}, jvm_options=options)
    with node:
        put_load_on(node.bootstrap)
        command = runtime.command("org.apache.kafka.tools.JmxTool", *SMALL_JVM)
        command += ["--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi", "--one-time"]
        command += ["--report-format", "properties"]
        for mbean in dict.fromkeys(reading.mbean for reading in READINGS):
            command += ["--object-name", mbean]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    values = dict(line.rpartition("=")[::2] for line in result.stdout.splitlines() if "=" in line)
    return [float(values.get(f"{r.mbean}:{r.attribute}", "nan")) for r in READINGS]


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="alike-") as name:
        ours, theirs = from_barnabas(Path(name) / "barnabas"), from_apache(kafka_runtime(), Path(name) / "apache")
    print("| MBean | attribute | Apache Kafka 4.3.1 | Barnabas |\n|---|---|---:|---:|")
    for reading, a, b in zip(READINGS, theirs, ours, strict=True):
        mbean = reading.mbean.replace("|", "")
        print(f"| {mbean} | {reading.attribute} | {a:g} | {b:g} |")


if __name__ == "__main__":
    main()
