"""How AlterConfigs and IncrementalAlterConfigs are answered: part here, the rest by the controller.

Source: KafkaApis.handleAlterConfigsRequest, ConfigAdminManager.reassemble* (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.forwarding import forward
from barnabas.protocol.headers import encode_request

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.config_changes import Outcome
    from barnabas.broker.request_channel import Request

_SIZE_PREFIX = 4

#: Builds a response of the outcomes of resources.
Build: TypeAlias = "Callable[[Sequence[tuple[Any, Outcome]]], Any]"


def answer(services: Services, request: Request, outcomes: Sequence[Outcome | None], build: Build) -> Answer:
    """Reply if every resource has its outcome, else forward those that have none and answer for all."""
    asked = request.message
    here = [(r, o) for r, o in zip(asked.resources, outcomes, strict=True) if o is not None]
    rest = [r for r, o in zip(asked.resources, outcomes, strict=True) if o is None]
    if not rest:
        return Reply(build(here))
    if not here:
        return forward(services, request)
    ours = build(here).responses
    places = {(r.resource_type, r.resource_name): i for i, r in enumerate(asked.resources)}

    def amend(response: Any) -> Any:
        response.responses = sorted(
            [*ours, *response.responses], key=lambda r: places[r.resource_type, r.resource_name]
        )
        return response

    request.message = type(asked)(resources=rest, validate_only=asked.validate_only)
    request.buffer = memoryview(encode_request(request.header, request.message))[_SIZE_PREFIX:]
    return forward(services, request, amend=amend)
