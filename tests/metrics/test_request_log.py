"""The request log, switched on and off for one API while a broker runs, by Apache's own kafka-configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

LOGGER = "kafka.request.logger.Metadata"
MARK = "Completed request:"


def test_one_api_is_logged_on_demand(tools: KafkaTools, tmp_path: Path) -> None:
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0) as cluster:
        broker = cluster.brokers[0]

        def logged() -> list[dict[str, Any]]:
            lines = broker.log_file.read_text().splitlines()
            found = [line.partition(MARK)[2].rpartition(" (")[0] for line in lines if MARK in line]
            return [json.loads(text) for text in found]

        def configure(*change: str) -> str:
            arguments = ("--entity-type", "broker-loggers", "--entity-name", "0", *change)
            return tools.run("kafka-configs", "--bootstrap-server", cluster.bootstrap, *arguments).check().stdout

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "client.id": "asker"})
        admin.list_topics(timeout=20)
        assert logged() == []
        configure("--alter", "--add-config", f"{LOGGER}=DEBUG")
        eventually("the level is described", lambda: f"{LOGGER}=DEBUG" in configure("--describe"))
        admin.list_topics("no-such-topic", timeout=20)

        def mine() -> dict[str, Any] | None:
            # The client also refreshes its metadata by itself, about no topic.
            asked = (entry for entry in logged() if entry["requestHeader"]["clientId"] == "asker")
            return next((entry for entry in asked if entry["request"]["topics"]), None)

        entry = eventually("it is logged", mine)
        assert {e["requestHeader"]["requestApiKeyName"] for e in logged()} == {"METADATA"}
        assert [topic["name"] for topic in entry["request"]["topics"]] == ["no-such-topic"]
        assert entry["response"]["topics"][0]["errorCode"] == 3
        assert entry["clientInformation"]["softwareName"] == "confluent-kafka-python"
        assert entry["totalTimeMs"] > 0
        configure("--alter", "--delete-config", LOGGER)
        count = len(logged())
        admin.list_topics("no-such-topic", timeout=20)
        assert configure("--describe")
        assert len(logged()) == count
