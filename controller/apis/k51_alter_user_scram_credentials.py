"""AlterUserScramCredentials: v0-v0

Behaviour: sets and removes SCRAM credentials in one batch (KIP-554). A user that is named twice keeps what it has.

Errors: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM,
UNSUPPORTED_VERSION (the metadata.version is too old); POLICY_VIOLATION (too many).
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.security.scram import alter_scram_credentials


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    return decide_once(
        services, request, "alterUserScramCredentials", lambda view: alter_scram_credentials(view, message), same
    )


API = Api(51, "AlterUserScramCredentials", (0, 0), handle, is_forwarded=True)
