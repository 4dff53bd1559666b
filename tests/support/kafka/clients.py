"""Five Kafka clients with one interface: produce records with a compression, and consume a number of records.

They are independent implementations: librdkafka (confluent-kafka, kcat), Java (Apache's console tools), and two in
Python.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 20
_DELIMITER = "|"
LEADER_IS_CHANGING = {
    confluent_kafka.KafkaError.FENCED_LEADER_EPOCH,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    confluent_kafka.KafkaError._NOENT,  # librdkafka's word for a partition without a leader in the metadata
}


@dataclass(frozen=True, slots=True)
class Message:
    """A record as a client sees it, as text, since the command-line clients cannot handle bytes."""

    key: str
    value: str
    headers: tuple[tuple[str, str], ...] = ()


class Client(Protocol):
    """One client library or tool."""

    name: str

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        """Send all messages to a topic and return when all are acknowledged."""

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        """Read `count` messages from the start of a topic's only partition."""


def list_offsets(
    admin: AdminClient, specs: Mapping[confluent_kafka.TopicPartition, OffsetSpec]
) -> dict[confluent_kafka.TopicPartition, int]:
    """The offset of each partition, with retries.

    librdkafka's admin client does not retry. A broker may name a new leader in its metadata a moment before that broker
    leads (Apache Kafka publishes the two one after the other), which causes a retriable error.
    """
    found: dict[confluent_kafka.TopicPartition, int] = {}

    def ask() -> bool:
        missing = {tp: spec for tp, spec in specs.items() if tp not in found}
        for tp, answer in admin.list_offsets(missing).items():
            try:
                found[tp] = answer.result(TIMEOUT_S).offset
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in LEADER_IS_CHANGING:
                    raise
                admin.list_topics(tp.topic, timeout=TIMEOUT_S)  # else librdkafka asks with the epoch that it has kept
        return len(found) == len(specs)

    eventually("all offsets are known", ask)
    return found


class ConfluentKafka:
    """confluent-kafka: librdkafka behind Python."""

    name = "confluent-kafka"

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        errors: list[str] = []
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 20}
        )
        for message in messages:
            headers = [(name, value.encode()) for name, value in message.headers]
            producer.produce(
                topic,
                message.value,
                message.key,
                headers=headers,
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        unsent = producer.flush(TIMEOUT_S)
        assert (unsent, errors) == (0, [])

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "enable.auto.commit": False}
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            received = consumer.consume(count, TIMEOUT_S)
        finally:
            consumer.close()
        assert [message.error() for message in received] == [None] * count
        return [
            Message(
                message.key().decode(),
                message.value().decode(),
                tuple((name, value.decode()) for name, value in message.headers() or ()),
            )
            for message in received
        ]


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if compression == "none" else compression, linger_ms=20
        )
        try:
            futures = [
                producer.send(
                    topic,
                    message.value.encode(),
                    message.key.encode(),
                    [(name, value.encode()) for name, value in message.headers],
                )
                for message in messages
            ]
            producer.flush(TIMEOUT_S)
            for future in futures:
                future.get(TIMEOUT_S)
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        received: list[Message] = []
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=TIMEOUT_S * 1000
        )
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            for record in consumer:
                received.append(_from_python_record(record))
                if len(received) == count:
                    break
        finally:
            consumer.close()
        return received


class AioKafka:
    """aiokafka: its own protocol code on asyncio."""

    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        asyncio.run(asyncio.wait_for(self._produce(bootstrap, topic, messages, compression), TIMEOUT_S))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        return asyncio.run(asyncio.wait_for(self._consume(bootstrap, topic, count), TIMEOUT_S))

    async def _produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if compression == "none" else compression, linger_ms=20
        )
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    message.value.encode(),
                    message.key.encode(),
                    headers=[(name, value.encode()) for name, value in message.headers],
                )
                for message in messages
            ]
            await asyncio.gather(*sent)

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        async with consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [_from_python_record(await consumer.getone()) for _ in range(count)]


class Kcat:
    """kcat: a shell command with an older librdkafka than confluent-kafka's."""

    name = "kcat"

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        for message in messages:
            assert message.headers == messages[0].headers, "kcat sends the same headers with every message"
        headers = [argument for name, value in messages[0].headers for argument in ("-H", f"{name}={value}")]
        lines = "".join(f"{message.key}{_DELIMITER}{message.value}\n" for message in messages)
        self._run("-P", "-b", bootstrap, "-t", topic, "-K", _DELIMITER, "-z", compression, *headers, stdin=lines)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        where = ("-t", topic, "-p", "0", "-o", "beginning", "-c", str(count))
        lines = self._run("-C", "-J", "-q", "-b", bootstrap, *where).splitlines()
        return [_from_kcat_json(json.loads(line)) for line in lines]

    def _run(self, *arguments: str, stdin: str = "") -> str:
        program = shutil.which("kcat")
        assert program, "kcat is missing (Debian: apt-get install kcat)"
        result = subprocess.run(
            [program, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout


@dataclass
class ApacheConsole:
    """Apache Kafka's console producer and console consumer: the Java client."""

    tools: KafkaTools
    name: str = field(default="apache-console", init=False)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], compression: str) -> None:
        lines = "".join(
            f"{','.join(f'{name}:{value}' for name, value in message.headers)}\t{message.key}\t{message.value}\n"
            for message in messages
        )
        reader = [f"--reader-property={option}" for option in ("parse.key=true", "parse.headers=true")]
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", compression)
        result = self.tools.run("kafka-console-producer", *where, *reader, stdin=lines.encode()).check()
        assert "ERROR" not in result.stderr, result.stderr

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        formatter = [f"--formatter-property={option}" for option in ("print.key=true", "print.headers=true")]
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest")
        limits = ("--max-messages", str(count), "--timeout-ms", str(TIMEOUT_S * 1000))
        result = self.tools.run("kafka-console-consumer", *where, *limits, *formatter).check()
        return [_from_console_line(line) for line in result.stdout.splitlines()]


def _from_python_record(record: kafka.consumer.fetcher.ConsumerRecord) -> Message:
    headers = tuple((name, value.decode()) for name, value in record.headers)
    return Message(record.key.decode(), record.value.decode(), headers)


def _from_kcat_json(record: dict[str, object]) -> Message:
    flat = record.get("headers", [])  # [name, value, name, value, ...]
    assert isinstance(flat, list)
    return Message(str(record["key"]), str(record["payload"]), tuple(zip(flat[::2], flat[1::2], strict=True)))


def _from_console_line(line: str) -> Message:
    headers, key, value = line.split("\t")
    pairs = () if headers == "NO_HEADERS" else tuple(tuple(pair.split(":")) for pair in headers.split(","))
    return Message(key, value, pairs)
