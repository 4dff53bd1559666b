"""IncrementalAlterConfigs: v0-v1.

Behaviour: changes single settings of each resource: SET (0), DELETE (1), and for lists APPEND (2) and SUBTRACT (3). The
broker checks changes of its own config, changes its loggers' levels (BROKER_LOGGER) at once, and forwards the rest. The
controller checks that, writes, and pushes to all brokers.

Version notes: v1 is flexible. KIP-339; loggers KIP-412.

Errors, for each resource: INVALID_REQUEST (a resource or key named twice, a null value, another broker's id, an unknown
operation, a key that cannot change at run time), INVALID_CONFIG (an unknown logger or level, or the controller's
refusal), UNKNOWN_TOPIC_OR_PARTITION.

Different from Apache Kafka: keys that this project cannot change at run time are refused, even if Kafka accepts them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.apis.altering import answer
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.settings.config_changes import check_incremental, preprocess
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Check this broker's own resources, forward the rest."""
    message = request.message
    check = partial(
        check_incremental,
        validate_only=message.validate_only,
        may_alter_loggers=lambda: request.access is None or request.access.allows(rights.ALTER_LOGGERS),
    )
    outcomes = preprocess(services.dynamic_config, message.resources, check)
    return answer(services, request, outcomes, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)


API = Api(44, "IncrementalAlterConfigs", (0, 1), handle)
