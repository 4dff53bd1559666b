"""`kafka-dump-log` reads our files: segments, offset and time indexes, producer snapshots, internal topics."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import Target
from tests.support.kafka.clients import COMPRESSIONS
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

COUNT = 3000
# The tool's complaints about a file that it can read but finds inconsistent.
COMPLAINTS = re.compile(
    r"Mismatches in|Non-consecutive|not found|corrupt|is missing|isvalid: false|Exception|out of order", re.IGNORECASE
)


@pytest.fixture
def dump(tools: KafkaTools) -> Callable[..., str]:
    """Runs kafka-dump-log on files, checks that it has no complaint and returns its output."""

    def run(files: list[Path], *arguments: str) -> str:
        assert files
        names = ",".join(str(file) for file in sorted(files))
        output = tools.run("kafka-dump-log", "--files", names, *arguments).check().stdout
        assert COMPLAINTS.findall(output) == []
        return output

    return run


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_segments_indexes_and_snapshots_are_sound(
    target: Target, create_topic: Callable[..., str], dump: Callable[..., str], compression: str
) -> None:
    topic = create_topic(segment_bytes=str(1024 * 1024))  # the minimum of Kafka 4.3
    noise = random.Random(1)
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "enable.idempotence": True,
            "compression.type": compression,
            "batch.num.messages": 20,
        }
    )
    for number in range(COUNT):
        value = f"value {number} {noise.randbytes(number % 977).hex()}"  # hex: at best halved by any compression
        producer.produce(topic, value, f"key-{number}", headers={"h": "1"})
    assert producer.flush(30) == 0
    directory = target.broker_data_directory() / f"{topic}-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 1
    output = dump(segments, "--deep-iteration", "--print-data-log")
    assert re.findall(r"payload: value (\d+) ", output) == [str(number) for number in range(COUNT)]
    assert f"compresscodec: {compression}" in output
    dump(list(directory.glob("*.index")), "--index-sanity-check")
    dump(list(directory.glob("*.index")), "--verify-index-only")
    dump(list(directory.glob("*.timeindex")), "--verify-index-only")
    snapshots = dump(list(directory.glob("*.snapshot")))
    assert re.search(r"producerId: \d+ producerEpoch: 0 coordinatorEpoch: -1", snapshots)


def test_committed_offsets_are_kafkas_own_records(
    target: Target, create_topic: Callable[..., str], dump: Callable[..., str]
) -> None:
    topic = create_topic()
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic})
    try:
        consumer.subscribe([topic])
        eventually("it has joined", lambda: consumer.poll(0.05) is None and consumer.assignment())
        consumer.commit(offsets=[TopicPartition(topic, 0, 42, metadata="note")], asynchronous=False)
    finally:
        consumer.close()
    logs = [file for file in target.broker_data_directory().glob("__consumer_offsets-*/*.log") if file.stat().st_size]
    output = dump(logs, "--offsets-decoder", "--deep-iteration")
    assert f'"group":"{topic}","topic":"{topic}","partition":0' in output
    assert '"offset":42' in output
    assert '"metadata":"note' in output  # librdkafka ends it with a NUL
    assert '"protocolType":"consumer"' in output
