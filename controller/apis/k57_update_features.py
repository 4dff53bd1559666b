"""UpdateFeatures: v0-v2

Behaviour: changes the feature levels that the cluster has agreed on, all or none; brokers are told by push.

Version notes: v1 (KIP-584) validate_only, upgrade types; v2 answers for the whole only.

Errors: INVALID_UPDATE_VERSION.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.features import update_features


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the levels changed."""
    message, version = request.message, request.version
    return decide_later(
        services, "updateFeatures", lambda view: update_features(view, message, version), same, message.timeout_ms
    )


API = Api(57, "UpdateFeatures", (0, 2), handle, operation="ALTER", resource="CLUSTER")
