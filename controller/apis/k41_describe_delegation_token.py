"""DescribeDelegationToken: v1-v3

Behaviour: lists delegation tokens, as a broker does; from this controller's committed metadata.

Version notes and errors: those of a broker.

Different from Apache Kafka: its controller lists this API, and answers it with UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.apis import k41_describe_delegation_token as of_broker
from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices

RIGHTS: Final = of_broker.TokenRights(rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_OF)


def handle(services: ControllerServices, request: Request) -> Answer:
    """Return the requested tokens that the client may see."""
    return of_broker.answer(request, services.config, services.controller.committed_image.security, RIGHTS)


API = Api(41, "DescribeDelegationToken", (1, 3), handle)
