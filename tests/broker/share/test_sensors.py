"""What share partitions count."""

from __future__ import annotations

from barnabas.broker.share.partition.values import Acknowledgement
from barnabas.broker.share.sensors import TYPE_NAMES, ShareSensors
from barnabas.common.clock import FakeClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue


def test_acknowledged_records_are_counted_by_type() -> None:
    registry = Registry(FakeClock())
    sensors = ShareSensors(registry)
    sensors.acknowledged([Acknowledgement(0, 9, [1]), Acknowledgement(10, 14, [0, 1, 2, 3, 4])])
    counts = {
        name: registry.meter(catalogue.SHARE_ACKNOWLEDGEMENTS_PER_SEC, ackType=name).count
        for name in TYPE_NAMES.values()
    }
    assert counts == {"Accept": 11, "Release": 1, "Reject": 1, "Renew": 1}


def test_loads_and_expired_fetches_are_counted() -> None:
    registry = Registry(FakeClock())
    sensors = ShareSensors(registry)
    sensors.loaded(5)
    sensors.fetch_expired()
    assert registry.histogram(catalogue.SHARE_PARTITION_LOAD_TIME_MS).count == 1
    assert registry.meter(catalogue.DELAYED_SHARE_FETCH_EXPIRES_PER_SEC).count == 1


def test_how_long_the_fetch_lock_is_held() -> None:
    of_broker = ShareSensors(Registry(FakeClock()))
    sensors = of_broker.of_partition(of_broker.of_group())
    for taken_ms, released_ms in ((100, 100), (100, 110), (140, 150), (160, 160)):
        sensors.fetch_lock_taken(taken_ms)
        sensors.fetch_lock_released(released_ms)
    assert sensors.group.lock_time.snapshot(0.0).sum == 20
    assert sensors.group.lock_ratio.snapshot(0.0).sum == 100 + 100 + 25 + 10
