"""AlterConfigs: v0-v2.

Behaviour: replaces all settings of each resource; settings that are not named return to their default. The broker
checks changes of its own config and refuses contradictory requests. The controller checks the rest, writes, and pushes
to all brokers.

Version notes: v2 is flexible. Clients have IncrementalAlterConfigs (KIP-339) since 2.3.

Errors, for each resource: INVALID_REQUEST (a resource or key named twice, a null value, another broker's id, a key that
cannot change at run time), INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION and others of the controller.

Different from Apache Kafka: keys that this project cannot change at run time are refused, even if Kafka accepts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.altering import answer
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.settings.config_changes import check_legacy, preprocess
from barnabas.protocol.messages.k33_alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Check this broker's own resources, forward the rest."""
    outcomes = preprocess(services.dynamic_config, request.message.resources, check_legacy)
    return answer(services, request, outcomes, AlterConfigsResponse, AlterConfigsResourceResponse)


API = Api(33, "AlterConfigs", (0, 2), handle)
