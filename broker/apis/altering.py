"""How AlterConfigs and IncrementalAlterConfigs are answered: part here, the rest by the controller.

Source: KafkaApis.handleAlterConfigsRequest, ConfigAdminManager.reassemble* (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.answers import Answer, Park, Reply
from broker.purgatory import Deferred

if TYPE_CHECKING:
    from broker.apis.services import Services
    from broker.config_changes import Outcome
    from broker.request_channel import Request

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
        return Park(services.controller_channel.forward(request))
    request.message = type(asked)(resources=rest, validate_only=asked.validate_only)
    forwarded = services.controller_channel.forward(request)
    whole = Deferred()
    ours = build(here).responses
    order = {(r.resource_type, r.resource_name): i for i, r in enumerate(asked.resources)}

    def complete(_: Any) -> None:
        outcome = forwarded.response()
        message = outcome.message if isinstance(outcome, Reply) else outcome
        if hasattr(message, "responses"):
            message.responses = sorted(
                [*ours, *message.responses], key=lambda r: order[r.resource_type, r.resource_name]
            )
        whole.complete(outcome)

    forwarded.bind(complete)
    return Park(whole)
