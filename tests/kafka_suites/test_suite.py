"""Which classes of the jars are tests that ask for a cluster (`tests/kafka_suites/suite.py`)."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.kafka_suites.suite import JARS, classes_with_tests
from tests.support.kafka.kafka_jars import KAFKA_VERSION, KafkaRuntime


def test_classes_with_the_annotation_are_found_without_nested_ones(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for jar in JARS:
        with zipfile.ZipFile(tmp_path / "jars" / f"{jar}-{KAFKA_VERSION}-test.jar", "w") as content:
            content.writestr(f"org/{jar}/PlainTest.class", b"org/junit/jupiter/api/Test")
            for name in ("SomeTest", "SomeTest$Inner"):
                content.writestr(f"org/{jar}/{name}.class", b"\x01Lorg/apache/kafka/common/test/api/ClusterTest;\x00")
    found = list(classes_with_tests(KafkaRuntime("java", tmp_path)))
    assert found == [f"org.{jar}.SomeTest" for jar in JARS]
