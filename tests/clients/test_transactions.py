"""Transactions: committed records are read once, aborted ones never, and offsets commit with the records."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.common.clock import SystemClock
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.support.cluster import BarnabasCluster, Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually
from tests.support.wire import RawConnection

TIMEOUT_S = 30
ONE_LIFE = (TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)


def transactional(bootstrap: str, transactional_id: str, **config: object) -> Producer:
    """Return an initialised transactional producer."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **config}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """Begin a transaction and store its records."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def read_committed(bootstrap: str, topic: str, until: int, partition: int = 0) -> list[str]:
    """Read the values of a partition up to offset `until` (exclusive) as a read_committed consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    values: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        for _ in range(1000):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing after {values}"
            if message.error():
                position = consumer.position([TopicPartition(topic, partition)])[0].offset
                if position >= until:
                    return values
                continue
            values.append(message.value().decode())
    finally:
        consumer.close()
    raise AssertionError(f"never came to {until}: {values}")


def create_topic_on(bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    """Create a topic on a cluster of this module's."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(20)


@pytest.fixture
def topic(create_topic: Callable[..., str]) -> str:
    """The name of a new topic."""
    return create_topic()


def test_committed_records_are_read_and_aborted_ones_are_not(target: Target, topic: str) -> None:
    producer = transactional(target.bootstrap, topic)
    for values, ends_with in (
        (["a", "b"], producer.commit_transaction),
        (["x", "y"], producer.abort_transaction),
        (["c"], producer.commit_transaction),
    ):
        write(producer, topic, *values)
        ends_with(TIMEOUT_S)
    assert read_committed(target.bootstrap, topic, 8) == ["a", "b", "c"]


def test_offsets_count_when_the_transaction_is_committed(target: Target, topic: str) -> None:
    producer = transactional(target.bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.subscribe([topic])
    eventually("the consumer has its partition", lambda: consumer.poll(0.1) or consumer.assignment())
    for offset, ends_with in ((5, producer.abort_transaction), (7, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(offset))
        assert producer.flush(TIMEOUT_S) == 0, "what is not sent yet is left out of a transaction that is aborted"
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
        )
        ends_with(TIMEOUT_S)
    committed = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset
    consumer.close()
    assert committed == 7
    assert read_committed(target.bootstrap, topic, 4) == ["7"]


def test_aiokafkas_producer_commits_and_aborts(target: Target, topic: str) -> None:
    async def produce() -> None:
        settings = {"bootstrap_servers": target.bootstrap, "transactional_id": topic}
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"a")
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"x")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"b")

    asyncio.run(asyncio.wait_for(produce(), TIMEOUT_S))
    assert read_committed(target.bootstrap, topic, 6) == ["a", "b"]


def test_a_second_producer_fences_the_first_and_aborts_its_open_transaction(target: Target, topic: str) -> None:
    first = transactional(target.bootstrap, topic)
    write(first, topic, "left open")
    second = transactional(target.bootstrap, topic)
    write(second, topic, "mine")
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].name() == "_FENCED"
    assert read_committed(target.bootstrap, topic, 4) == ["mine"]


def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        create_topic_on(cluster.bootstrap, "t")
        producer = transactional(cluster.bootstrap, "slow", **{"transaction.timeout.ms": 1000})
        write(producer, "t", "late")
        assert read_committed(cluster.bootstrap, "t", 2) == []
        with pytest.raises(KafkaException):
            producer.commit_transaction(TIMEOUT_S)


# Apache Kafka's own client and tools

Run = Callable[..., str]


def runner(tools: KafkaTools, bootstrap: str) -> Run:
    """Return a function that runs a tool on a cluster and returns its output."""

    def run(tool: str, *arguments: str, stdin: str = "") -> str:
        return tools.run(tool, "--bootstrap-server", bootstrap, *arguments, stdin=stdin.encode()).check().stdout

    return run


def rows(table: str) -> list[dict[str, str]]:
    """Parse a tool's table by its headings."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def test_the_java_producer_commits_a_transaction_after_another(target: Target, topic: str, tools: KafkaTools) -> None:
    printed = tools.run(
        "kafka-producer-perf-test", "--bootstrap-server", target.bootstrap, "--topic", topic, "--num-records", "2000",
        "--record-size", "10", "--throughput", "2000", "--transactional-id", topic, "--transaction-duration-ms", "50",
    ).check().stdout  # fmt: skip
    assert "2000 records sent" in printed
    run = runner(tools, target.bootstrap)
    state = rows(run("kafka-transactions", "describe", "--transactional-id", topic))[0]
    assert state["TransactionState"] in ("CompleteCommit", "PrepareCommit")
    assert int(state["ProducerEpoch"]) > 1  # raised with every end: transaction.version 2
    read = run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--isolation-level", "read_committed",
        "--max-messages", "2000", "--timeout-ms", "20000",
    )  # fmt: skip
    assert len(read.splitlines()) == 2000


def test_kafka_transactions_lists_and_describes(target: Target, topic: str, tools: KafkaTools) -> None:
    run = runner(tools, target.bootstrap)
    producer = transactional(target.bootstrap, topic)
    write(producer, topic, "open")
    listed = {row["TransactionalId"]: row for row in rows(run("kafka-transactions", "list"))}
    assert listed[topic]["TransactionState"] == "Ongoing"
    (state,) = rows(run("kafka-transactions", "describe", "--transactional-id", topic))
    assert listed[topic]["Coordinator"] == state["CoordinatorId"]
    assert (state["TransactionState"], state["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    where = ("--topic", topic, "--partition", "0")
    (active,) = rows(run("kafka-transactions", "describe-producers", *where))
    assert (active["ProducerId"], active["CurrentTransactionStartOffset"]) == (state["ProducerId"], "0")
    producer.commit_transaction(TIMEOUT_S)
    eventually(
        "it is complete",
        lambda: "CompleteCommit" in run("kafka-transactions", "describe", "--transactional-id", topic),
    )
    (active,) = rows(run("kafka-transactions", "describe-producers", *where))
    assert active["CurrentTransactionStartOffset"] == "None"


def test_kafka_dump_log_reads_the_log_of_transactions_and_markers(
    target: Target, topic: str, tools: KafkaTools
) -> None:
    producer = transactional(target.bootstrap, topic)
    write(producer, topic, "a")
    producer.commit_transaction(TIMEOUT_S)
    assert read_committed(target.bootstrap, topic, 2) == ["a"]
    directory = target.broker_data_directory()

    def dump(pattern: str, *arguments: str) -> str:
        files = ",".join(str(path) for path in sorted(directory.glob(pattern)) if path.stat().st_size)
        return tools.run("kafka-dump-log", "--files", files, "--deep-iteration", *arguments).check().stdout

    def states() -> list[int]:
        dumped = dump("__transaction_state-*/*.log", "--transaction-log-decoder")
        mine = [line for line in dumped.splitlines() if f'"transactionalId":"{topic}"' in line]
        return [int(line.partition('"transactionStatus":')[2][0]) for line in mine]

    eventually("its end is written", lambda: states() == [state.code for state in ONE_LIFE])
    assert "endTxnMarker: COMMIT coordinatorEpoch:" in dump(f"{topic}-0/*.log")


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """A cluster that does not verify partitions, as before KIP-890: its transactions can hang."""
    config = {"transaction.partition.verification.enable": "false"}
    with BarnabasCluster(tmp_path_factory.mktemp("trusting"), broker_count=1, first_port=0, config=config) as cluster:
        yield cluster


def test_a_hanging_transaction_is_found_and_aborted(trusting: BarnabasCluster, tools: KafkaTools) -> None:
    create_topic_on(trusting.bootstrap, "h")
    transactional(trusting.bootstrap, "any")  # creates the coordinator's topic
    long_ago_ms = SystemClock().wall_ms() - 3_600_000
    batch = build_batch(
        [SimpleRecord(long_ago_ms, None, b"hanging")], producer_id=77, producer_epoch=3, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    data = TopicProduceData(name="h", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=5000, topic_data=[data])
    frame = encode_request(RequestHeader(0, 9, 1, "zombie"), request)[4:]
    with RawConnection(trusting.brokers[0].port) as connection:
        assert connection.request(frame) is not None
    run = runner(tools, trusting.bootstrap)
    find = ("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "15")
    (hanging,) = rows(run("kafka-transactions", *find))
    assert (hanging["Topic"], hanging["ProducerId"], hanging["StartOffset"]) == ("h", "77", "0")
    run("kafka-transactions", "abort", "--topic", "h", "--partition", "0", "--start-offset", "0")
    assert rows(run("kafka-transactions", *find)) == []
    assert read_committed(trusting.bootstrap, "h", 2) == []


def test_kafka_features_lowers_and_raises_the_version(trusting: BarnabasCluster, tools: KafkaTools) -> None:
    run = runner(tools, trusting.bootstrap)

    def level() -> str:
        described = run("kafka-features", "describe")
        found = re.search(r"transaction\.version.*FinalizedVersionLevel: (\d)", described)
        assert found is not None, described
        return found[1]

    assert level() == "2"
    run("kafka-features", "downgrade", "--feature", "transaction.version=0")
    eventually("it is lower", lambda: level() == "0")
    create_topic_on(trusting.bootstrap, "v0")
    perf = (
        "--topic", "v0", "--num-records", "200", "--record-size", "10", "--throughput", "1000",
        "--transactional-id", "v0", "--transaction-duration-ms", "20",
    )  # fmt: skip
    assert "200 records sent" in run("kafka-producer-perf-test", *perf)
    (state,) = rows(run("kafka-transactions", "describe", "--transactional-id", "v0"))
    assert state["ProducerEpoch"] == "0"  # version 1 of the protocol keeps it
    run("kafka-features", "upgrade", "--feature", "transaction.version=2")
    eventually("it is higher", lambda: level() == "2")


# Three brokers

COUNT = 24


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """Three brokers with few partitions of the internal topics, so that a stopped broker often leads one."""
    config = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with BarnabasCluster(tmp_path_factory.mktemp("three"), broker_count=3, first_port=0, config=config) as cluster:
        yield cluster


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_transactions_continue_while_brokers_stop_and_start(three: BarnabasCluster, how: str) -> None:
    topic = f"moving-{how}"
    create_topic_on(three.bootstrap, topic, 3, 3, **{"min.insync.replicas": "2"})
    producers = [transactional(three.bootstrap, f"{topic}-{number}") for number in range(3)]
    committed: list[str] = []
    for number in range(COUNT):
        if number % 8 == 3:
            three.stop_node(three.brokers[number // 8], signal.SIGKILL if how == "kill" else signal.SIGTERM)
        if number % 8 == 6:
            three.start_node(three.brokers[number // 8])
            three.await_ready()
        for index, producer in enumerate(producers):
            value = f"{index}-{number}"
            producer.begin_transaction()
            for partition in range(3):
                producer.produce(topic, value, partition=partition)
            if number % 4 == 3:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
                committed.append(value)
    ends = {
        partition: Consumer({"bootstrap.servers": three.bootstrap, "group.id": "x"}).get_watermark_offsets(
            TopicPartition(topic, partition), TIMEOUT_S
        )[1]
        for partition in range(3)
    }
    for partition, end in ends.items():
        assert sorted(read_committed(three.bootstrap, topic, end, partition)) == sorted(committed)
