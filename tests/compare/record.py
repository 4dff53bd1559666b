"""`make golden`: records Apache Kafka's responses to all questions in tests/data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.compare import golden, security_questions
from tests.compare.questions import advertised, answers
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KAFKA_VERSION, kafka_runtime


def main() -> None:
    """Start fresh nodes of Apache Kafka, send all questions and write the responses."""
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-golden-") as directory,
        ApacheKafka(kafka_runtime(), Path(directory), {"auto.create.topics.enable": "false"}) as node,
    ):
        golden.save(answers(node.port), advertised(node.port), f"Apache Kafka {KAFKA_VERSION}, one KRaft node")
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-golden-") as directory,
        ApacheKafka(kafka_runtime(), Path(directory), security_questions.CONFIG) as node,
    ):
        golden.save_security(security_questions.answers(node.port))
    print(f"wrote {golden.FILE} and {golden.SECURITY_FILE}")


if __name__ == "__main__":
    main()
