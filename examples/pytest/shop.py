"""The services under test; each uses another client library."""

from __future__ import annotations

import json

from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer


class Till:
    """Announces sales, with confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "retry.backoff.ms": 50, "client.id": "till"}
        )

    def sell(self, article: str, amount: int) -> None:
        """Announce a sale; raises KafkaException if it could not be delivered."""
        failures: list[KafkaError] = []
        self._producer.produce(
            self._topic,
            key=article,
            value=json.dumps({"article": article, "amount": amount}),
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        self._producer.flush(30)
        if failures:
            raise KafkaException(failures[0])


class Stock:
    """Counts sold articles, with aiokafka, and commits its offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            retry_backoff_ms=50,
        )
        self.sold: dict[str, int] = {}

    async def __aenter__(self) -> Stock:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def count(self, sales: int) -> None:
        """Count so many sales, then commit."""
        for _ in range(sales):
            sale = json.loads((await self._consumer.getone()).value)
            self.sold[sale["article"]] = self.sold.get(sale["article"], 0) + sale["amount"]
        await self._consumer.commit()


class Archive:
    """Writes lines to a topic, with kafka-python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="archive", retry_backoff_ms=50)

    def keep(self, line: str) -> int:
        """Write a line; return its offset."""
        return int(self._producer.send(self._topic, line.encode()).get(timeout=30).offset)

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()
