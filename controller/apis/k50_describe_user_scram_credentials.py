"""DescribeUserScramCredentials: v0-v0

Behaviour: lists the SCRAM mechanisms of users, as a broker does; from this controller's committed metadata.

Errors: those of a broker.

Different from Apache Kafka: its controller lists this API, and answers it with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from barnabas.broker.apis import k50_describe_user_scram_credentials as of_broker
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices


def handle(services: ControllerServices, request: Request) -> Answer:
    """Return the users' mechanisms."""
    return of_broker.answer(request, services.controller.committed_image.security)


API = Api(50, "DescribeUserScramCredentials", (0, 0), handle)
