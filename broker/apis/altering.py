"""Answers to AlterConfigs and IncrementalAlterConfigs: this broker decides some resources, the controller the rest.

Source: KafkaApis.handleAlterConfigsRequest, ConfigAdminManager.reassemble* (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.requests.parking import Answer, then
from barnabas.protocol.headers import SIZE_BYTES, encode_request

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.broker.settings.config_changes import Outcome

#: Builds a response from resources and their outcomes.
Build: TypeAlias = "Callable[[Sequence[tuple[Any, Outcome]]], Any]"


def answer(services: Services, request: Request, outcomes: Sequence[Outcome | None], build: Build) -> Answer:
    """Reply if every resource has an outcome; else forward the resources without one and merge the responses.

    `outcomes` has one entry for each resource of the request, in its order: None where the controller decides.
    """
    message = request.message
    decided = [(r, o) for r, o in zip(message.resources, outcomes, strict=True) if o is not None]
    rest = [r for r, o in zip(message.resources, outcomes, strict=True) if o is None]
    if not rest:
        return Reply(build(decided))
    if not decided:
        return services.forwarding.forward(request)
    ours = build(decided).responses
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
