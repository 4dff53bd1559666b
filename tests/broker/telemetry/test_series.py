"""The series that clients have pushed."""

from __future__ import annotations

import math

import pytest

from barnabas.broker.telemetry import series
from barnabas.broker.telemetry.instance import ClientInstance
from barnabas.broker.telemetry.otlp import Point
from barnabas.broker.telemetry.series import Sample, SeriesStore
from barnabas.broker.telemetry.subscriptions import Wanted
from barnabas.common.ids import uuid_to_string

INTERVAL_MS = 1000


def instance(number: int = 1, wanted: tuple[str, ...] = ("*",)) -> ClientInstance:
    return ClientInstance(bytes([number]) * 16, {"client_id": f"c{number}"}, Wanted(wanted, INTERVAL_MS), 1)


def labels(number: int = 1, **more: str) -> dict[str, str]:
    return {"client_id": f"c{number}", "client_instance_id": uuid_to_string(bytes([number]) * 16), **more}


def test_the_last_number_counts_and_deltas_add_up() -> None:
    store = SeriesStore()
    for value in (1.0, 2.0):
        points = [Point("g", (("t", "x"),), value), Point("s", (), value, True, True), Point("c", (), value, True)]
        assert store.take(instance(), points, 0) == 0
    assert store.by_name() == {
        "c": [Sample(labels(), 2.0, True)],
        "g": [Sample(labels(t="x"), 2.0, False)],
        "s": [Sample(labels(), 3.0, True)],
    }
    assert store.count() == 3


def test_a_client_cannot_set_the_labels_that_name_it() -> None:
    store = SeriesStore()
    store.take(instance(), [Point("g", (("client_id", "x"), ("client_instance_id", "y"), ("z", "1")), 1.0)], 0)
    assert store.by_name() == {"g": [Sample(labels(z="1"), 1.0, False)]}


def test_a_long_client_id_is_cut() -> None:
    store = SeriesStore()
    store.take(ClientInstance(bytes(16), {"client_id": "x" * 30_000}, Wanted(), 1), [Point("g", (), 1.0)], 0)
    assert store.by_name()["g"][0].labels["client_id"] == "x" * 200


def test_a_client_that_is_gone_leaves_nothing() -> None:
    store = SeriesStore()
    for number in (1, 2):
        store.take(instance(number), [Point("g", (), 1.0)], 0)
    store.forget(instance(1).id)
    store.forget(instance(1).id)
    assert store.by_name() == {"g": [Sample(labels(2), 1.0, False)]}
    assert store.count() == 1


def test_a_series_that_is_pushed_no_more_goes_after_three_intervals() -> None:
    store = SeriesStore()
    store.take(instance(), [Point("a", (), 1.0), Point("b", (), 1.0)], 0)
    store.take(instance(), [Point("a", (), 1.0)], INTERVAL_MS)
    store.expire(3 * INTERVAL_MS)
    assert store.count() == 2
    store.expire(3 * INTERVAL_MS + 1)
    assert list(store.by_name()) == ["a"]
    store.expire(4 * INTERVAL_MS + 1)
    assert (store.by_name(), store.count()) == ({}, 0)


def test_a_changed_subscription_begins_again() -> None:
    store = SeriesStore()
    store.take(instance(), [Point("a", (), 1.0, True, True), Point("b", (), 1.0)], 0)
    store.take(instance(wanted=("a",)), [Point("a", (), 1.0, True, True)], 1)
    assert store.by_name() == {"a": [Sample(labels(), 1.0, True)]}
    assert store.count() == 1


def test_there_are_only_so_many_of_a_client_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "CLIENT_SERIES_MAX", 3)
    monkeypatch.setattr(series, "SERIES_MAX", 5)
    store = SeriesStore()
    points = [Point(name, (), 1.0) for name in "abcd"]
    assert [store.take(instance(number), points, 0) for number in (1, 2, 3)] == [1, 2, 4]
    assert store.count() == 5
    assert store.take(instance(1), points, 0) == 1, "known series are updated, and the rest does not fit again"


def test_the_number_of_a_client_by_name() -> None:
    store = SeriesStore()
    points = [Point("x", (("n", "1"),), 2.0), Point("x", (("n", "2"),), 3.0), Point("nan", (), math.nan)]
    store.take(instance(), points, 0)
    (client,) = store.clients()
    assert client.value(["missing", "nan", "x"]) == 3.0
    assert client.value(["nan"]) is None
