"""Who may alter configs, as the check that a decision runs for each resource.

Source: ControllerApis.authorizeAlterResource (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.configs import Check, anything

if TYPE_CHECKING:
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.settings.config_rights import ConfigRights
    from barnabas.controller.image import ConfigKey


def check_resources(access: Access | None, rights: ConfigRights) -> Check:
    """Return what raises ApiError for a resource that the client may not alter."""
    if access is None:
        return anything

    def check(resource: ConfigKey) -> None:
        rights.require(access, resource.type, resource.name)

    return check
