"""DescribeConfigs: v1-v4

Behaviour: describes resources as a broker does: this controller's own configs and loggers by its id, and topics, groups
and client metrics by its committed metadata. Defaults of topics and groups are those of this controller's file.

Version notes and errors: those of a broker.

Different from Apache Kafka: a controller takes over from the metadata only the settings that its own decisions read,
such as `min.insync.replicas`; others are described with the value that they get at the next start with that value in
the file.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.apis import k32_describe_configs as of_broker
from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.broker.settings.config_rights import ConfigRights
from barnabas.controller.apis.node_configs import NodeConfigs
from barnabas.controller.apis.services import ControllerServices

RIGHTS: Final = ConfigRights(
    rights.DESCRIBE_TOPIC_CONFIGS, rights.DESCRIBE_CLUSTER_CONFIGS, rights.DESCRIBE_GROUP_CONFIGS
)


def handle(services: ControllerServices, request: Request) -> Answer:
    """Describe each requested resource."""
    image = services.controller.committed_image
    return of_broker.answer(request, NodeConfigs(services.config, image), image.topic_ids.__contains__, RIGHTS)


API = Api(32, "DescribeConfigs", (1, 4), handle)
