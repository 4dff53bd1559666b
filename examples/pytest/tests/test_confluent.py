from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from shop import Till

from barnabas.faults import Fault
from barnabas.testing import Cluster, Expected


def test_a_sale_is_announced(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    Till(barnabas_cluster.bootstrap, barnabas_topic).sell("tea", 2)
    barnabas_cluster.assert_produced(
        barnabas_topic, Expected(key="tea", value={"article": "tea", "amount": 2}), exactly=True
    )


def test_a_sale_is_announced_once_although_responses_get_lost(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    lost = Fault(api="Produce", topic=barnabas_topic, disconnect=True, at="response", times=2)
    with barnabas_cluster.faults.add(lost) as fault:
        Till(barnabas_cluster.bootstrap, barnabas_topic).sell("tea", 1)
        assert fault.fired == 2
    assert len(barnabas_cluster.records(barnabas_topic)) == 1


def test_a_refused_sale_raises(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    refused = Fault(api="Produce", topic=barnabas_topic, error="TOPIC_AUTHORIZATION_FAILED")
    with barnabas_cluster.faults.add(refused), pytest.raises(KafkaException) as failure:
        Till(barnabas_cluster.bootstrap, barnabas_topic).sell("tea", 1)
    assert failure.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert barnabas_cluster.records(barnabas_topic) == []


@pytest.mark.barnabas(brokers=3, config={"min.insync.replicas": 2})
def test_a_sale_is_announced_while_a_broker_dies(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    till = Till(barnabas_cluster.bootstrap, barnabas_topic)
    till.sell("tea", 1)
    barnabas_cluster.kill(0)
    till.sell("coffee", 1)
    barnabas_cluster.assert_produced(barnabas_topic, Expected(key="tea"), Expected(key="coffee"), timeout=30)
    barnabas_cluster.start(0)
