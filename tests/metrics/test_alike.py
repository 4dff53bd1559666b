"""Under the same load the same MBeans have the same values here and in Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metrics.alike import READINGS, from_apache, from_barnabas
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.programs import KAFKA


@pytest.mark.needs(*KAFKA)
def test_the_same_load_gives_the_same_readings(tmp_path: Path) -> None:
    theirs = from_apache(kafka_runtime(), tmp_path / "apache")
    ours = from_barnabas(tmp_path / "barnabas")
    different = [
        (reading.mbean, reading.attribute, a, b)
        for reading, a, b in zip(READINGS, theirs, ours, strict=True)
        if a != a or b != b or (reading.tolerance is not None and b != pytest.approx(a, rel=reading.tolerance))
    ]
    assert different == []
