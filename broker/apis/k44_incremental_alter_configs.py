"""IncrementalAlterConfigs: v0-v1.

Behaviour: changes single settings of each resource: SET (0), DELETE (1), and for lists APPEND (2) and SUBTRACT (3).
The broker checks changes of its own config, changes levels of its loggers (BROKER_LOGGER) at once, and forwards the
rest to the controller, which checks, writes, and pushes to all brokers.

Version notes: v1 is flexible. KIP-339; loggers KIP-412.

Errors: INVALID_REQUEST (a resource or key named twice, a null value, another broker's id, an unknown operation, a key
that cannot change at run time), INVALID_CONFIG (a logger or level that does not exist, and what the controller says),
UNKNOWN_TOPIC_OR_PARTITION, for each resource.

Different from Apache Kafka: keys whose change at run time this project does not apply are refused, though Kafka would
accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.answers import Answer
from barnabas.broker.apis.altering import answer
from barnabas.broker.apis.api import Api
from barnabas.broker.config_changes import Outcome, check_incremental, preprocess
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Check what this broker must, forward the rest."""
    asked = request.message
    check = partial(check_incremental, validate_only=asked.validate_only)
    return answer(services, request, preprocess(services, asked.resources, check), _response)


def _response(outcomes: Sequence[tuple[Any, Outcome]]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, outcome in outcomes
        ]
    )


API = Api(44, "IncrementalAlterConfigs", (0, 1), handle, operation="ALTER_CONFIGS")
