"""GetTelemetrySubscriptions and PushTelemetry, from request to response.

Tests k71_get_telemetry_subscriptions.py and k72_push_telemetry.py.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.support.broker.broker_rig import BrokerRig


def test_a_client_gets_a_subscription_and_pushes() -> None:
    rig = BrokerRig(telemetry_max_bytes="100")
    answer = rig.answer(GetTelemetrySubscriptionsRequest(), 0)
    assert (answer.error_code, answer.requested_metrics, answer.telemetry_max_bytes) == (0, [], 100)
    of_it = {"client_instance_id": answer.client_instance_id, "subscription_id": answer.subscription_id}
    assert rig.answer(PushTelemetryRequest(**of_it), 0) == PushTelemetryResponse()
    with pytest.raises(ApiError) as error:
        rig.answer(PushTelemetryRequest(**of_it, terminating=True, metrics=bytes(101)), 0)
    assert error.value.code is ErrorCode.TELEMETRY_TOO_LARGE
