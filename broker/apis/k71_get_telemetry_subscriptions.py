"""GetTelemetrySubscriptions: v0.

Behaviour: names the metrics that a client is to push (KIP-714), how often, and in which compressions. That is what all
client metrics subscriptions ask for that match the client, or nothing. A client without an id gets one. It may ask once
per interval, or at once after its push was refused because its subscription has changed.

Different from Apache Kafka, which offers this API only with a plugin that takes the metrics: the broker takes them.

Errors: THROTTLING_QUOTA_EXCEEDED for a client that asks too early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Reply:
    """Return the client's subscription."""
    return Reply(services.client_metrics.get_subscriptions(request))


API = Api(71, "GetTelemetrySubscriptions", (0, 0), handle)
