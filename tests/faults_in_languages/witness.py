"""Does with confluent-kafka what it is told, a line each on stdin, and says on stdout how the client saw it end: `ok`,
or `error CODE NAME`. The argument is bootstrap.servers. The commands are in languages.py.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 30
SETTINGS: dict[str, Any] = {
    "bootstrap.servers": sys.argv[1],
    "client.id": "python",
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "logger": logging.getLogger("quiet"),
}
logging.getLogger("quiet").addHandler(logging.NullHandler())
logging.getLogger("quiet").propagate = False


def produce(topic: str) -> None:
    ends: list[KafkaError | None] = []
    producer = Producer(SETTINGS)
    producer.produce(topic, "from python", on_delivery=lambda error, _message: ends.append(error))
    producer.flush(PATIENCE_S)
    raise_first(ends or [KafkaError(KafkaError._TIMED_OUT)])


def consume(topic: str) -> None:
    consumer = Consumer({**SETTINGS, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    poll_once(consumer)


def join(topic: str, group: str) -> None:
    consumer = Consumer({**SETTINGS, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    poll_once(consumer)


def poll_once(consumer: Consumer) -> None:
    try:
        message = consumer.poll(PATIENCE_S)
        raise_first([message.error() if message is not None else KafkaError(KafkaError._TIMED_OUT)])
    finally:
        consumer.close()


def create(topic: str) -> None:
    admin = AdminClient(SETTINGS)  # its futures die with it
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def raise_first(errors: list[KafkaError | None]) -> None:
    for error in errors:
        if error is not None:
            raise KafkaException(error)


ACTIONS = {"produce": produce, "consume": consume, "join": join, "create": create}
for line in sys.stdin:
    action, *words = line.split()
    try:
        ACTIONS[action](*words)
        print("ok", flush=True)
    except KafkaException as failure:
        cause = failure.args[0]
        print("error", cause.code(), cause.name(), cause.str(), flush=True)
