"""AlterClientQuotas: v0-v1

Behaviour: sets and removes quotas; each entity changes as a whole or not at all. With `validate_only` nothing changes.
Names of hosts are resolved before the decision.

Version notes: v1 flexible.

Errors: INVALID_REQUEST; POLICY_VIOLATION (too many).
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.common.net import can_be_resolved
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.security.quotas import alter_client_quotas, named_hosts


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    known = {name for name in named_hosts(message) if can_be_resolved(name)}
    return decide_once(
        services,
        request,
        "alterClientQuotas",
        lambda view: alter_client_quotas(view, message, known.__contains__),
        same,
    )


API = Api(49, "AlterClientQuotas", (0, 1), handle, is_forwarded=True)
