"""PushTelemetry: v0.

Behaviour: takes the metrics that a client pushes for its subscription (KIP-714): OpenTelemetry's `MetricsData`, which
may be compressed. The page of metrics shows them until the client ends. A client may push once per interval, and its
last push, with `terminating`, at any time. What no subscription asks for is accepted and not read.

Errors: INVALID_REQUEST for a reserved client instance id, and after the client's last push; THROTTLING_QUOTA_EXCEEDED
for a client that pushes too early, or while too many others do; UNKNOWN_SUBSCRIPTION_ID if its subscription has
changed, or its id is that of a client of another principal or address;
UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE above telemetry.max.bytes; INVALID_RECORD for what cannot be read, or
is larger than that decompressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Reply:
    """Take a client's metrics."""
    services.client_metrics.push(request)
    return Reply(PushTelemetryResponse())


API = Api(72, "PushTelemetry", (0, 0), handle)
