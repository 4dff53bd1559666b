"""DeleteAcls: v1-v3

Behaviour: removes every ACL that a filter selects, in one batch.

Errors: SECURITY_DISABLED without an authorizer; INVALID_REQUEST (among others, for more than 10,000 ACLs at once);
POLICY_VIOLATION for more than 10,000 filters, or 1,000 filters that leave a field open.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.security.acls import delete_acls


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    return decide_once(services, request, "deleteAcls", lambda view: delete_acls(view, message), same)


API = Api(31, "DeleteAcls", (1, 3), handle, is_forwarded=True)
