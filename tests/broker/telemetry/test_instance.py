"""When a client may ask for its subscriptions, and when it may push."""

from __future__ import annotations

import pytest

from barnabas.broker.telemetry.instance import EXPIRY_MIN_MS, ClientInstance
from barnabas.broker.telemetry.subscriptions import Wanted
from barnabas.protocol.errors import ErrorCode

INTERVAL_MS = 1000


@pytest.fixture
def instance() -> ClientInstance:
    return ClientInstance(bytes(16), {}, Wanted(("*",), INTERVAL_MS), 1)


def test_a_client_asks_once_per_interval(instance: ClientInstance) -> None:
    assert [instance.may_get(now_ms) for now_ms in (0, 999, 1000, 1999, 2000)] == [True, False, True, False, True]


def test_the_first_push_after_a_question_is_accepted_at_any_time(instance: ClientInstance) -> None:
    assert instance.may_push(0)
    assert not instance.may_push(999)
    assert instance.may_get(1000)
    assert instance.may_push(1001)
    assert not instance.may_push(2000)
    assert instance.may_push(2001)


def test_a_push_delays_the_next_question(instance: ClientInstance) -> None:
    assert instance.may_get(0)
    assert instance.may_push(600)
    assert not instance.may_get(1000)
    assert instance.may_get(1600)


def test_a_question_in_the_millisecond_of_the_push_allows_no_other_push(instance: ClientInstance) -> None:
    assert instance.may_get(5)
    assert instance.may_push(5)
    assert not instance.may_push(5)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_a_client_whose_subscription_has_changed_asks_at_once(instance: ClientInstance, error: ErrorCode) -> None:
    assert instance.may_get(0)
    instance.last_error = error
    assert instance.may_get(1)
    instance.last_error = ErrorCode.TELEMETRY_TOO_LARGE
    assert not instance.may_get(2)


@pytest.mark.parametrize(("interval_ms", "kept_ms"), [(INTERVAL_MS, EXPIRY_MIN_MS), (30_000, 90_000)])
def test_an_instance_is_kept_for_three_intervals_and_at_least_a_minute(interval_ms: int, kept_ms: int) -> None:
    instance = ClientInstance(bytes(16), {}, Wanted((), interval_ms), 1)
    instance.touch("c", 7)
    assert (instance.connection_id, instance.expires_ms) == ("c", 7 + kept_ms)
