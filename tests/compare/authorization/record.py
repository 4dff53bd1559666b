"""`make golden`: records what Apache Kafka answers to users who lack a right."""

from __future__ import annotations

import tempfile
from pathlib import Path

from barnabas.cluster import HOST, free_ports
from tests.compare.authorization import golden
from tests.compare.authorization.replay import answers, settings
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KAFKA_VERSION, kafka_runtime


def main() -> None:
    """Start a fresh Apache Kafka, ask everything and write the answers."""
    with tempfile.TemporaryDirectory(prefix="barnabas-golden-") as directory:
        ports = tuple(free_ports(3))
        config = settings((ports[0], ports[1]))
        config["advertised.listeners"] = config["listeners"]
        config["listeners"] += f",CONTROLLER://{HOST}:{ports[2]}"
        with ApacheKafka(kafka_runtime(), Path(directory), config, ports=(ports[0], ports[2])):
            golden.save(answers(ports[1], ports[2]), f"Apache Kafka {KAFKA_VERSION}, one KRaft node")
    print(f"wrote {golden.FILE}")


if __name__ == "__main__":
    main()
