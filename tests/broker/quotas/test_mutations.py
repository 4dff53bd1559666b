"""Quotas of changes of topics: strict and permissive, as in KIP-599."""

from __future__ import annotations

import pytest

from barnabas.broker.quotas.limits import CONTROLLER_MUTATION_RATE
from barnabas.broker.quotas.mutations import MutationQuota, MutationQuotas
from barnabas.broker.quotas.rates import Window
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest
from barnabas.security.values import Limits, QuotaEntity

STRICT_SINCE = 6


def limits(value: float, user: str | None = "alice") -> dict[QuotaEntity, Limits]:
    return {QuotaEntity.of({"user": user}): {CONTROLLER_MUTATION_RATE: value}}


class MutationRig:
    def __init__(self, value: float) -> None:
        self.clock = FakeClock()
        self.quotas = MutationQuotas(Window(10, 1000), self.clock)
        self.quotas.update(limits(value))

    def quota(self, version: int) -> MutationQuota:
        context = RequestContext("L", "SASL_SSL", "127.0.0.1", 5, "connection", "User:alice")
        header = RequestHeader(19, version, 7, None)
        quota = self.quotas.quota_for(
            Request.for_message(header, CreateTopicsRequest(), context), strict_since=STRICT_SINCE
        )
        assert quota is not None
        return quota


def test_a_new_client_is_refused_until_its_bucket_has_no_debts() -> None:
    rig = MutationRig(5)
    first = rig.quota(STRICT_SINCE)
    first.record(110)  # more than the 50 that the bucket holds
    assert first.throttle().ms == 0
    second = rig.quota(STRICT_SINCE)
    with pytest.raises(ApiError) as refused:
        second.record(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle().ms == 12_000
    assert second.throttle().observed == -60
    rig.clock.advance_ms(2_000)
    assert second.throttle().ms == 10_000, "the time since is taken off"
    rig.clock.advance_ms(10_000)
    assert second.throttle().ms == 0
    rig.quota(STRICT_SINCE).record(1)


def test_an_old_client_is_accepted_and_waits() -> None:
    rig = MutationRig(5)
    quota = rig.quota(STRICT_SINCE - 1)
    quota.record(50)
    assert quota.throttle().ms == 0
    quota.record(10)
    assert quota.throttle().ms == 2_000
    assert quota.throttle().quota == CONTROLLER_MUTATION_RATE
    assert rig.quotas.manager is not None
    ((share, numbers, mean_ms),) = rig.quotas.manager.numbers()
    assert (share.user, numbers, mean_ms) == ("alice", (-10.0, 2.0), 2000.0)


def test_limits_are_taken_when_they_changed() -> None:
    rig = MutationRig(5)
    manager = rig.quotas.manager
    same = limits(7, None)
    rig.quotas.update(same)
    rig.quotas.update(same)
    assert rig.quotas.manager is manager
    rig.quota(STRICT_SINCE).record(71)
    rig.quotas.update({})
    assert rig.quotas.manager is None
    context = RequestContext("L", "SASL_SSL", "127.0.0.1", 5, "connection", "User:alice")
    request = Request.for_message(RequestHeader(19, 7, 7, None), CreateTopicsRequest(), context)
    assert rig.quotas.quota_for(request, strict_since=STRICT_SINCE) is None
