"""The rights to alter configs, by the type of the resource.

Source: ControllerApis.authorizeAlterResource (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.decisions.configs import Check, anything
from barnabas.controller.image import GROUP_RESOURCE, TOPIC_RESOURCE, ConfigKey
from barnabas.security.values import CLUSTER_NAME

if TYPE_CHECKING:
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.authorization.row import Row


class ConfigRights(NamedTuple):
    """The rows of one API."""

    topic: Row
    cluster: Row  # of brokers and client metrics
    group: Row


def check_resources(access: Access | None, rights: ConfigRights) -> Check:
    """Return what raises ApiError for a resource that the client may not alter."""
    if access is None:
        return anything

    def check(resource: ConfigKey) -> None:
        if resource.type == TOPIC_RESOURCE:
            access.require(rights.topic, resource.name)
        elif resource.type == GROUP_RESOURCE:
            access.require(rights.group, resource.name)
        else:
            access.require(rights.cluster, CLUSTER_NAME)

    return check
