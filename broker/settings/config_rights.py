"""The rights to see or alter configs, by the type of the resource; of brokers and of controllers.

Source: ConfigHelper.describeConfigs, ControllerApis.authorizeAlterResource (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.security.values import CLUSTER_NAME

if TYPE_CHECKING:
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.authorization.row import Row


class ConfigRights(NamedTuple):
    """The rows of one API."""

    topic: Row
    cluster: Row  # of all other resources, such as brokers and client metrics
    group: Row

    def require(self, access: Access, kind: int, name: str) -> None:
        """Raise ApiError if the client lacks the right on a resource of this type (`ResourceType`)."""
        if kind == ResourceType.TOPIC:
            access.require(self.topic, name)
        elif kind == ResourceType.GROUP:
            access.require(self.group, name)
        else:
            access.require(self.cluster, CLUSTER_NAME)
