"""DescribeAcls: v1-v3

Behaviour: lists the ACLs that a filter selects, as a broker does; from this controller's committed metadata.

Version notes and errors: those of a broker.
"""

from __future__ import annotations

from barnabas.broker.apis import k29_describe_acls as of_broker
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices


def handle(services: ControllerServices, request: Request) -> Answer:
    """Return the selected ACLs."""
    return of_broker.answer(request, services.config, services.controller.committed_image.security)


API = Api(29, "DescribeAcls", (1, 3), handle)
