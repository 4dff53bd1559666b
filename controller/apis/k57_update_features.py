"""UpdateFeatures: v0-v2

Behaviour: changes finalized feature levels, all of a request or none. Brokers receive them with the next push.

Version notes: v1 (KIP-584) validate_only, upgrade types; v2: one result for the whole request.

Errors: INVALID_UPDATE_VERSION.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decisions.features import update_features


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message, version = request.message, request.version
    return decide_later(
        services, "updateFeatures", lambda view: update_features(view, message, version), same, message.timeout_ms
    )


API = Api(57, "UpdateFeatures", (0, 2), handle)
