"""The APIs that a controller lists are those of Apache Kafka 4.3.1, in the same versions (`controller/apis/table.py`).

`tests/data/apache-kafka-controller-apis.tsv` is what it lists; a test asks it.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.client.connection import NodeConnection
from barnabas.cluster import HOST, free_ports
from barnabas.controller.apis.table import TABLE
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KafkaRuntime

RECORDED = Path(__file__).parents[1] / "data" / "apache-kafka-controller-apis.tsv"


def recorded() -> dict[int, tuple[int, int]]:
    """The recorded APIs: key -> oldest and latest version."""
    rows = (line.split("\t") for line in RECORDED.read_text().splitlines()[1:])
    return {int(key): (int(oldest), int(latest)) for key, _, oldest, latest in rows}


def test_our_controller_lists_the_same() -> None:
    assert {key: api.versions for key, api in TABLE.items()} == recorded()


def test_apache_kafka_lists_what_is_recorded(apache_runtime: KafkaRuntime, tmp_path: Path) -> None:
    first, second = free_ports(2)
    with (
        ApacheKafka(apache_runtime, tmp_path, ports=(first, second)),
        NodeConnection(HOST, second, timeout_ms=30_000) as connection,
    ):
        response = connection.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert {row.api_key: (row.min_version, row.max_version) for row in response.api_keys} == recorded()
