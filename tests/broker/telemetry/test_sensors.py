"""The metrics of client telemetry itself."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.telemetry import sensors as module
from barnabas.broker.telemetry.sensors import TelemetrySensors
from barnabas.common.clock import FakeClock
from barnabas.common.ids import uuid_to_string
from barnabas.metrics.registry import Registry

ID = b"i" * 16


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeClock())


def counts(registry: Registry) -> dict[tuple[str, str], Any]:
    """The counts by attribute and client instance; averages as pairs."""
    found: dict[tuple[str, str], Any] = {}
    for row, instruments in registry.collect():
        for labels, instrument in instruments:
            read: Any = instrument
            value = read.read() if hasattr(read, "read") else getattr(read, "count", None)
            found[row.name, "".join(labels)] = read.snapshot() if value is None else value
    return found


def test_events_are_counted_for_each_instance(registry: Registry) -> None:
    sensors = TelemetrySensors(registry, lambda: 3)
    sensors.unknown_subscription()
    sensors.throttled(ID)
    sensors.exported(ID, 2.0)
    sensors.exported(ID, 4.0)
    sensors.failed(ID)
    name = uuid_to_string(ID)
    assert counts(registry) == {
        ("instance-count", ""): 3,
        ("unknown-subscription-request", ""): 1,
        ("throttle", name): 1,
        ("plugin-export", name): 2,
        ("plugin-export-time", name): (3.0, 4.0),
        ("plugin-error", name): 1,
    }
    sensors.forget(ID)
    assert [key for key in counts(registry) if key[1]] == []


def test_only_so_many_instances_have_sensors(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 1)
    sensors = TelemetrySensors(registry, lambda: 3)
    for instance_id in (ID, b"o" * 16):
        sensors.throttled(instance_id)
    assert [label for name, label in counts(registry) if name == "throttle"] == [uuid_to_string(ID)]
