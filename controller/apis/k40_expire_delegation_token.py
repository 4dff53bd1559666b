"""ExpireDelegationToken: v1-v2

Behaviour: sets the end of a delegation token; a negative period removes it at once.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (a client that is anonymous, or authenticated by a token),
DELEGATION_TOKEN_AUTH_DISABLED (no secret is configured), UNSUPPORTED_VERSION (the metadata.version is too old);
DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.

Different from Apache Kafka: it refuses every request that came over a PLAINTEXT controller listener, even if the client
authenticated to the broker that forwarded it.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.token_requests import decide_for_caller
from barnabas.controller.decisions.security.tokens import expire_token


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    return decide_for_caller(services, request, expire_token)


API = Api(40, "ExpireDelegationToken", (1, 2), handle, is_forwarded=True)
