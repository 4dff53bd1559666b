from __future__ import annotations

import asyncio

from confluent_kafka import Producer
from shop import Stock

from barnabas.faults import Fault
from barnabas.testing import Cluster


def sell(cluster: Cluster, topic: str, *amounts: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for amount in amounts:
        producer.produce(topic, f'{{"article": "tea", "amount": {amount}}}')
    producer.flush(30)


def test_the_stock_counts_and_commits(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    sell(barnabas_cluster, barnabas_topic, 1, 2, 3)

    async def count() -> dict[str, int]:
        async with Stock(barnabas_cluster.bootstrap, barnabas_topic, "stock") as stock:
            await stock.count(3)
            await asyncio.to_thread(barnabas_cluster.wait_stable, "stock", members=1)
            return stock.sold

    assert asyncio.run(count()) == {"tea": 6}
    assert barnabas_cluster.committed("stock")[barnabas_topic, 0] == 3


def test_the_stock_keeps_counting_after_a_lost_connection(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    async def count() -> int:
        async with Stock(barnabas_cluster.bootstrap, barnabas_topic, "stock-of-a-bad-day") as stock:
            with barnabas_cluster.faults.add(
                Fault(api="Fetch", topic=barnabas_topic, disconnect=True, times=1)
            ) as fault:
                sell(barnabas_cluster, barnabas_topic, 1, 2)
                await stock.count(2)
            return fault.fired

    assert asyncio.run(count()) == 1
