"""Which classes of the jars are tests that ask for a cluster (`tests/kafka_suites/suite.py`)."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.kafka_suites.suite import JARS, classes_with_tests
from tests.support.kafka.kafka_jars import KAFKA_VERSION, KafkaRuntime

OBJECT = "java/lang/Object"


def compiled(parent: str, text: str = "") -> bytes:
    """The begin of a compiled class: its constants and its superclass."""
    texts = [b"\x01" + len(each).to_bytes(2, "big") + each for each in (b"own", parent.encode(), text.encode())]
    classes = [b"\x07\x00\x01", b"\x07\x00\x02"]
    constants = [b"\x05" + bytes(8)]  # a long: it counts twice
    count = len([*texts, *classes]) + 3
    head = b"\xca\xfe\xba\xbe\x00\x00\x00\x3d" + count.to_bytes(2, "big")
    return head + b"".join([*texts, *classes, *constants]) + b"\x00\x01\x00\x04\x00\x05"


def test_classes_with_the_annotation_are_found_without_nested_ones(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for jar in JARS:
        with zipfile.ZipFile(tmp_path / "jars" / f"{jar}-{KAFKA_VERSION}-test.jar", "w") as content:
            content.writestr(f"org/{jar}/PlainTest.class", compiled(OBJECT, "org/junit/jupiter/api/Test"))
            for name in ("SomeTest", "SomeTest$Inner"):
                annotated = compiled(OBJECT, "Lorg/apache/kafka/common/test/api/ClusterTest;")
                content.writestr(f"org/{jar}/{name}.class", annotated)
    found = list(classes_with_tests(KafkaRuntime("java", tmp_path)))
    assert found == [f"org.{jar}.SomeTest" for jar in JARS]


def test_classes_that_extend_the_harness_of_single_brokers_are_found(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for jar in JARS:
        with zipfile.ZipFile(tmp_path / "jars" / f"{jar}-{KAFKA_VERSION}-test.jar", "w") as content:
            if jar == "kafka_2.13":
                content.writestr("kafka/server/QuorumTestHarness.class", compiled(OBJECT))
                content.writestr("kafka/BaseHarness.class", compiled("kafka/server/QuorumTestHarness"))
                content.writestr("kafka/SomeTest.class", compiled("kafka/BaseHarness"))
                content.writestr("kafka/OtherTest.class", compiled(OBJECT))
    assert list(classes_with_tests(KafkaRuntime("java", tmp_path))) == ["kafka.SomeTest"]
