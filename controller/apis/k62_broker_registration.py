"""BrokerRegistration: v0-v4

Behaviour: registers a broker, fenced, under a new epoch. Its sender then starts with a FULL push. The same incarnation
may register again with other listeners or features; its epoch stays.

Errors: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION,
OFFSET_OUT_OF_RANGE (this log lacks what the broker has applied), BROKER_ID_NOT_REGISTERED (a
migrating ZooKeeper broker).

Different from Apache Kafka: tagged fields report how far a broker has come, the reason for a refusal, the security
metadata and the broker's dynamic configs (push_tags.py). A new broker needs these before the first push, to
authenticate the controller that sends it by what is in force.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later
from barnabas.controller.push.requests import broker_configs
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationResponse
from barnabas.protocol.push_tags import set_controller_epoch, set_offset, set_reason, set_records
from barnabas.protocol.schema import Message


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the registration."""
    message = request.message
    if not message.listeners:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    return decide_later(
        services,
        "registerBroker",
        lambda view: services.controller.register(view, message),
        lambda epoch: _accepted(services, message.broker_id, epoch),
    )


def _accepted(services: ControllerServices, broker_id: int, epoch: int) -> BrokerRegistrationResponse:
    """Return the response to a registered broker, with its configs and the security metadata of the newest commit."""
    response = BrokerRegistrationResponse(broker_epoch=epoch)
    image = services.controller.committed_image
    set_records(response, [*broker_configs(image, broker_id), *image.security.records()])
    set_offset(response, image.offset)
    set_controller_epoch(response, services.controller.epoch)
    return response


def refusal(_: Message, __: int, code: int, reason: str | None) -> BrokerRegistrationResponse:
    """Return the response to a broker that is refused."""
    response = BrokerRegistrationResponse(error_code=code)
    if reason:
        set_reason(response, reason)
    return response


API = Api(
    62,
    "BrokerRegistration",
    (0, 4),
    handle,
    error_response=refusal,
    nodes_only=nodes_only,
)
