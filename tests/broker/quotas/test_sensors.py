"""Sensors: their number is bounded, and an unused one is dropped."""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.quotas import sensors as module
from barnabas.broker.quotas.limits import Share
from barnabas.broker.quotas.rates import UNLIMITED, Window
from barnabas.broker.quotas.sensors import EXPIRY_MS, BucketSensor, RateSensor, Sensors, bounded, sanitized
from barnabas.metrics.client_ids import NAME_MAX

WINDOW = Window(11, 1000)


def some(limit: float = 10) -> Sensors[RateSensor]:
    return Sensors(lambda share, now_ms: RateSensor(share, limit, WINDOW, now_ms))


def test_a_rate_is_counted_even_above_its_limit() -> None:
    sensor = RateSensor(Share("a", ""), 10, WINDOW, 0)
    assert sensor.record(100, 0) == (0, 10)
    assert sensor.record(50, 0) == (5000, 15)
    assert sensor.record(0, 0) == (5000, 15)
    sensor.record_unchecked(-150, 0)
    assert sensor.numbers(0) == (0,)


def test_without_a_limit_there_is_no_wait() -> None:
    assert RateSensor(Share("a", ""), UNLIMITED, WINDOW, 0).record(1e12, 0)[0] == 0
    assert BucketSensor(Share("a", ""), UNLIMITED, WINDOW, 0).record(1e12, 0, is_strict=True)[0] == 0


def test_a_strict_bucket_gives_any_number_until_it_is_overdrawn() -> None:
    sensor = BucketSensor(Share("a", ""), 10, WINDOW, 0)
    assert sensor.record(1000, 0, is_strict=True) == (0, -890)
    assert sensor.record(1, 0, is_strict=True) == (89_000, -890)
    assert sensor.record(1, 89_000, is_strict=True) == (0, -1)


def test_a_permissive_bucket_gives_always() -> None:
    sensor = BucketSensor(Share("a", ""), 10, WINDOW, 0)
    assert sensor.record(110, 0, is_strict=False) == (0, 0)
    assert sensor.record(5, 0, is_strict=False) == (500, -5)
    assert sensor.record(5, 0, is_strict=False) == (1000, -10)
    assert sensor.numbers(0)[0] == -10


def test_the_number_of_sensors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENSORS_MAX", 20)
    known = some()
    for number in range(1000):
        known.get(Share("", str(number)), number)
        assert len(list(known)) <= 20
    assert Share("", "999") in [sensor.share for sensor in known]
    assert Share("", "0") not in [sensor.share for sensor in known]


def test_an_unused_sensor_is_dropped() -> None:
    known = some()
    known.get(Share("a", ""), 0)
    known.get(Share("b", ""), 0).record(1, 1000)
    known.expire(EXPIRY_MS)
    assert [sensor.share.user for sensor in known] == ["b"]


def test_limits_are_replaced() -> None:
    known = some()
    short, long = Share("", "x"), bounded(Share("", "y" * 1000))
    known.get(short, 0)
    known.get(long, 0)
    known.set_limits(lambda share: 77.0)
    assert [(sensor.share, sensor.limit) for sensor in known] == [(short, 77.0)]


def test_long_client_ids_are_cut_and_kept_apart() -> None:
    one, other = bounded(Share("u", "x" * 5000)), bounded(Share("u", "x" * 5001))
    assert one != other
    assert len(one.client_id) == NAME_MAX
    assert bounded(Share("u", "x" * (NAME_MAX - 1))).client_id == "x" * (NAME_MAX - 1)


def test_users_are_spelled_as_kafka_does() -> None:
    assert sanitized("CN=a b,O=*~") == "CN%3Da%20b%2CO%3D%2A%7E"
    assert sanitized("alice-1_x.y") == "alice-1_x.y"


def test_threads_get_the_same_sensor() -> None:
    known = some(UNLIMITED)
    barrier = threading.Barrier(4)
    found = []

    def work() -> None:
        barrier.wait()
        for _ in range(500):
            sensor = known.get(Share("a", ""), 0)
            sensor.record(1, 0)
        found.append(sensor)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(sensor) for sensor in found}) == 1
    assert found[0].numbers(0) == (200.0,)
