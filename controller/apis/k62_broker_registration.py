"""BrokerRegistration: v0-v4

Behaviour: makes a broker known, fenced, under a new epoch; its sender begins to tell it everything. The same
incarnation may register again, to amend what it said.

Errors: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION,
OFFSET_OUT_OF_RANGE (this log lacks what the broker has applied), BROKER_ID_NOT_REGISTERED (a broker of the ZooKeeper
days).

Different from Apache Kafka: tagged fields say how far a broker has come, and why it is refused (registration_tags.py).
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationResponse
from barnabas.protocol.registration_tags import set_reason
from barnabas.protocol.schema import Message


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the broker registered."""
    message = request.message
    if not message.listeners:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    return decide_later(
        services,
        "registerBroker",
        lambda view: services.controller.register(view, message),
        lambda epoch: BrokerRegistrationResponse(broker_epoch=epoch),
    )


def refusal(_: Message, __: int, code: int, reason: str | None) -> BrokerRegistrationResponse:
    """The response to a broker that is not registered."""
    response = BrokerRegistrationResponse(error_code=code)
    if reason:
        set_reason(response, reason)
    return response


API = Api(
    62,
    "BrokerRegistration",
    (0, 4),
    handle,
    operation="CLUSTER_ACTION",
    resource="CLUSTER",
    error_response=refusal,
)
