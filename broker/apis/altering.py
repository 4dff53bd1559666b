"""Answers to AlterConfigs and IncrementalAlterConfigs: this broker decides some resources, the controller the rest.

Source: KafkaApis.handleAlterConfigsRequest, ConfigAdminManager.reassemble* (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.requests.parking import Answer, then
from barnabas.protocol.headers import SIZE_BYTES, encode_request

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.broker.settings.config_changes import Outcome


def answer(
    services: Services,
    request: Request,
    outcomes: Sequence[Outcome | None],
    response_type: Callable[..., Any],
    row_type: Callable[..., Any],
) -> Answer:
    """Reply if every resource has an outcome; else forward the resources without one and merge the responses.

    `outcomes` has one entry for each resource of the request, in its order: None where the controller decides.
    `response_type` and `row_type` are the classes of the API's response and of its entry for a resource.
    """
    message = request.message
    pairs = list(zip(message.resources, outcomes, strict=True))
    ours = [
        row_type(
            error_code=outcome.code,
            error_message=outcome.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in pairs
        if outcome is not None
    ]
    rest = [resource for resource, outcome in pairs if outcome is None]
    if not rest:
        return Reply(response_type(responses=ours))
    if not ours:
        return services.forwarding.forward(request)
    places = {(r.resource_type, r.resource_name): i for i, r in enumerate(message.resources)}

    def merge(given: Ending) -> Answer:
        assert isinstance(given, Reply), "the controller's answer is a message"
        response: Any = given.message
        response.responses = sorted(
            [*ours, *response.responses], key=lambda r: places[r.resource_type, r.resource_name]
        )
        return given

    request.message = type(message)(resources=rest, validate_only=message.validate_only)
    request.buffer = memoryview(encode_request(request.header, request.message))[SIZE_BYTES:]
    return then(services.forwarding.forward(request), merge)
