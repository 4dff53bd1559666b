"""Idempotent producers: no record is lost or duplicated, and the order is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import pytest
from confluent_kafka import Producer

from tests.support.cluster import Target
from tests.support.kafka.clients import ConfluentKafka

COUNT = 2000


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_confluent_kafkas_idempotent_producer_keeps_order(
    target: Target, create_topic: Callable[..., str], compression: str
) -> None:
    topic = create_topic()
    offsets: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 0,
            "batch.num.messages": 50,
        }
    )
    for number in range(COUNT):
        producer.produce(topic, str(number), "key", on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(30) == 0
    assert sorted(offsets) == list(range(COUNT))
    received = ConfluentKafka().consume(target.bootstrap, topic, COUNT)
    assert [message.value for message in received] == [str(number) for number in range(COUNT)]


def test_aiokafkas_idempotent_producer_keeps_order(target: Target, create_topic: Callable[..., str]) -> None:
    topic = create_topic()

    async def produce() -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=target.bootstrap, enable_idempotence=True) as producer:
            sent = [await producer.send(topic, str(number).encode(), b"key") for number in range(COUNT)]
            return [metadata.offset for metadata in await asyncio.gather(*sent)]

    assert asyncio.run(asyncio.wait_for(produce(), 30)) == list(range(COUNT))
